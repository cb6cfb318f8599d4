"""Class descriptions: attribute tables, their files, encoders and checks."""

from semfs.attributes.encoders import encode_class_names
from semfs.attributes.files import attributes_from_markers, read_attributes
from semfs.attributes.hierarchy import attributes_from_hierarchy, combine_attributes
from semfs.attributes.names import read_names
from semfs.attributes.ontology import attributes_from_ontology, mapping_template
from semfs.attributes.tables import (
    AttributeTable,
    align_attributes,
    attributes_of,
    constant_attributes,
    describe_attributes,
)

__all__ = [
    "AttributeTable",
    "align_attributes",
    "attributes_from_hierarchy",
    "attributes_from_markers",
    "attributes_from_ontology",
    "attributes_of",
    "combine_attributes",
    "constant_attributes",
    "describe_attributes",
    "encode_class_names",
    "mapping_template",
    "read_attributes",
    "read_names",
]
