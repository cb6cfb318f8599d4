"""Kinds of values that JSON does not support, and the parts in which they are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from semfs.attributes import AttributeTable
from semfs.method.moments import Moments
from semfs.selectors.fitted import Notes
from semfs.system import import_optional


class ValueKind(ABC):
    """A kind of value that JSON does not support, stored as an object of named parts."""

    #: What ``"is"`` says in the file. It must never change.
    tag: ClassVar[str]

    @abstractmethod
    def matches(self, value: Any) -> bool:
        """Return whether a value is of this kind."""

    @abstractmethod
    def parts(self, value: Any) -> Mapping[str, Any]:
        """Return the parts of a value, which are further values by name."""

    @abstractmethod
    def make(self, **parts: Any) -> Any:
        """Return the value of these parts. A file may hold parts of any names and types."""


class TupleKind(ValueKind):
    """A tuple, stored as a list of its items."""

    tag = "tuple"

    def matches(self, value: Any) -> bool:
        return type(value) is tuple

    def parts(self, value: tuple[Any, ...]) -> Mapping[str, Any]:
        return {"items": list(value)}

    def make(self, items: list[Any]) -> tuple[Any, ...]:  # type: ignore[override]
        return tuple(items)


class MappingKind(ValueKind):
    """A mapping, stored as a list of pairs, because keys in JSON are always text."""

    tag = "dict"

    def matches(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def parts(self, value: Mapping[Any, Any]) -> Mapping[str, Any]:
        return {"items": [[key, item] for key, item in value.items()]}

    def make(self, items: list[Any]) -> dict[Any, Any]:  # type: ignore[override]
        return dict(items)


class NotesKind(MappingKind):
    """The attribute ``knowledge_``, a mapping that accepts keys of earlier releases."""

    tag = "notes"

    def matches(self, value: Any) -> bool:
        return isinstance(value, Notes)

    def make(self, items: list[Any]) -> Notes:  # type: ignore[override]
        return Notes(items)


class AttributeTableKind(ValueKind):
    """A class-attribute table."""

    tag = "attribute_table"

    def matches(self, value: Any) -> bool:
        return isinstance(value, AttributeTable)

    def parts(self, value: AttributeTable) -> Mapping[str, Any]:
        return {
            "values": value.values,
            "classes": value.classes,
            "names": value.names,
        }

    def make(  # type: ignore[override]
        self,
        values: Any,
        classes: Any,
        names: Any,
    ) -> Any:
        return AttributeTable(values, classes, names)


class MomentsKind(ValueKind):
    """The sums of `partial_fit`: the scatter matrix, but not the samples."""

    tag = "moments"
    fields = (
        "classes",
        "counts",
        "means",
        "scatter_diag",
        "scatter_matrix",
        "eps",
    )

    def matches(self, value: Any) -> bool:
        return isinstance(value, Moments)

    def parts(self, value: Moments) -> Mapping[str, Any]:
        # precise: whoever loads it may choose a penalty that needs all digits
        compact = value.compact(precise=True)
        return {name: getattr(compact, name) for name in self.fields}

    def make(self, **parts: Any) -> Moments:
        return Moments(rows=None, **parts)


class PandasKind(ValueKind):
    """A pandas frame. Each column keeps its type."""

    tag = "pandas"

    def matches(self, value: Any) -> bool:
        return hasattr(value, "index") and hasattr(value, "columns")

    def parts(self, value: Any) -> Mapping[str, Any]:
        return {
            "index": value.index.tolist(),
            "index_name": value.index.name,
            "columns": value.columns.tolist(),
            "values": [value.iloc[:, j].to_numpy() for j in range(value.shape[1])],
        }

    def make(  # type: ignore[override]
        self,
        index: list[Any],
        index_name: Any,
        columns: list[Any],
        values: list[Any],
    ) -> Any:
        """Return the frame with these labels (n,) and (d,), and columns (n,) each."""
        pandas = import_optional("pandas", "data", what="A table in this file")
        # by number first: names of columns may occur twice
        frame = pandas.DataFrame(
            dict(enumerate(values)), index=pandas.Index(index, name=index_name)
        )
        frame.columns = pandas.Index(columns)
        return frame


class PolarsKind(ValueKind):
    """A polars frame."""

    tag = "polars"

    def matches(self, value: Any) -> bool:
        return hasattr(value, "get_columns")

    def parts(self, value: Any) -> Mapping[str, Any]:
        columns = [column.to_numpy() for column in value.get_columns()]
        return {"names": value.columns, "columns": columns}

    def make(  # type: ignore[override]
        self,
        names: list[str],
        columns: list[Any],
    ) -> Any:
        polars = import_optional("polars", "data", what="A table in this file")
        return polars.DataFrame(dict(zip(names, columns)))


#: In the order in which they are tried.
KINDS_OF_VALUES: tuple[ValueKind, ...] = (
    TupleKind(),
    NotesKind(),  # before mappings, which it is one of
    MappingKind(),
    AttributeTableKind(),
    MomentsKind(),
    PandasKind(),
    PolarsKind(),
)
