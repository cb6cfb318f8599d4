"""What is known of classes: tables of attributes, their files, encoders and checks."""

from semfs.attributes.checks import AttributeReport, describe_attributes
from semfs.attributes.encoders import encode_class_names, read_names
from semfs.attributes.files import read_attributes
from semfs.attributes.markers import attributes_from_markers
from semfs.attributes.ontology import attributes_from_ontology
from semfs.attributes.tables import (
    AttributeTable,
    align_attributes,
    as_attribute_table,
    normalize_attributes,
)

__all__ = [
    "AttributeReport",
    "AttributeTable",
    "align_attributes",
    "as_attribute_table",
    "attributes_from_markers",
    "attributes_from_ontology",
    "describe_attributes",
    "encode_class_names",
    "normalize_attributes",
    "read_attributes",
    "read_names",
]
