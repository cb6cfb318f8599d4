"""What is known of classes: tables of attributes, their files, encoders and checks."""

from semfs.attributes.tables import (
    AttributeReport,
    AttributeTable,
    align_attributes,
    as_attribute_table,
    describe_attributes,
    encode_class_names,
    encode_labels,
    normalize_attributes,
    read_attributes,
)

__all__ = [
    "AttributeReport",
    "AttributeTable",
    "align_attributes",
    "as_attribute_table",
    "describe_attributes",
    "encode_class_names",
    "encode_labels",
    "normalize_attributes",
    "read_attributes",
]
