"""What is known of classes: tables of attributes, their files, encoders and checks."""

from semfs.attributes.encoders import encode_class_names, read_names
from semfs.attributes.files import attributes_from_markers, attributes_of, read_attributes
from semfs.attributes.ontology import attributes_from_ontology
from semfs.attributes.tables import (
    AttributeTable,
    align_attributes,
    as_attribute_table,
    constant_attributes,
    describe_attributes,
)

__all__ = ["AttributeTable", "align_attributes", "as_attribute_table"]
__all__ += ["attributes_from_markers", "attributes_from_ontology", "attributes_of"]
__all__ += ["constant_attributes", "describe_attributes", "encode_class_names"]
__all__ += ["read_attributes", "read_names"]
