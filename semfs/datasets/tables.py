"""Data sets in one table (CSV or Parquet): a label column, the other columns are features."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semfs.attributes import as_attribute_table
from semfs.attributes.files import read_attributes
from semfs.datasets.base import ZeroShotDataset, import_pandas
from semfs.datasets.labels import Labels
from semfs.files import FileError, open_existing, reading
from semfs.rows.readers import working_dtype

__all__ = [
    "Table",
    "as_frame",
    "import_pyarrow",
    "load_table",
    "open_table",
]

_CSV, _PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
#: Names under which pandas keeps a frame's index: neither a feature nor a label.
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
_CSV_BLOCK = 16 * 2**20  # bytes per step; a row must fit in


def load_table(
    path: Any,
    label: str,
    attributes: Any,
    *,
    unseen: Any = (),
    drop: Sequence[str] = (),
    name: str | None = None,
) -> ZeroShotDataset:
    """Return the data set in a CSV or Parquet file.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv``, ``.txt`` or ``.parquet``.
    label : str
        Name of the column with the class labels. Rows without a label are left out.
    attributes : path-like, DataFrame or mapping
        Class descriptions; a file is read by `semfs.attributes.read_attributes`.
    unseen : array-like of class labels, default=()
        Unseen classes.
    drop : sequence of str, default=()
        Columns that are no features. Columns that hold no numbers are left out in any
        case, and so is an index that pandas stored.
    name : str, optional
        Name of the data set; the file's by default.

    Returns
    -------
    ZeroShotDataset
        ``info["left_out"]`` names the columns that hold no numbers.
    """
    table = open_table(path, label, drop)
    X = table.matrix()
    frame = as_frame(attributes)
    labels = table.labels().matched(frame.index)
    kept = labels.present
    if not kept.all():
        message = f"{table.path}: {(~kept).sum()} rows without a label are left out."
        warnings.warn(message, UserWarning, stacklevel=2)
    return ZeroShotDataset(
        name or table.path.stem,
        X if kept.all() else X[kept],
        labels.values(),
        frame,
        unseen,
        table.features,
        info={"left_out": table.texts},
    )


def as_frame(attributes: Any) -> Any:
    """Return class descriptions, from a file or in any accepted form, as a frame."""
    if isinstance(attributes, (str, Path)):
        return read_attributes(attributes)
    table = as_attribute_table(attributes)
    return import_pandas().DataFrame(table.values, index=table.classes, columns=table.names)


@dataclass(frozen=True, eq=False)
class Table:
    """An opened table: what its columns are, and how to read them.

    Attributes
    ----------
    path : Path
        The file.
    label : str
        Label column.
    features : list of str
        Columns of numbers.
    texts : list of str
        Columns without numbers, and a stored index: carried along, not selected from.
    n_rows : int
        Number of rows, or -1 if it is not known before the file is read (CSV).
    dtype : numpy.dtype
        Precision to compute in.
    """

    path: Path
    label: str
    features: list[str]
    texts: list[str]
    n_rows: int
    dtype: np.dtype
    types: dict[str, Any]

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix.lower() in _PARQUET

    @property
    def nbytes(self) -> int:
        """Bytes of the features in memory, or a fair guess."""
        if self.n_rows < 0:
            return 2 * self.path.stat().st_size
        return self.n_rows * len(self.features) * self.dtype.itemsize

    @property
    def largest_group(self) -> int:
        """Rows of the largest row group (Parquet)."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            groups = range(file.num_row_groups)
            return max((file.metadata.row_group(g).num_rows for g in groups), default=0)

    def matrix(self) -> np.ndarray:
        """Return all features (n, d)."""
        with reading(self.path, self.path.suffix):
            if not self.is_parquet:
                parts = [X for X, _ in self.csv_blocks()]
                empty = np.zeros((0, len(self.features)), dtype=self.dtype)
                return np.concatenate(parts) if parts else empty
            out = np.empty((self.n_rows, len(self.features)), dtype=self.dtype)
            for rows, columns, values in self.parquet_slabs(len(self.features)):
                out[rows, columns] = values
            return out

    def carried(self, names: list[str] | None = None) -> Any:
        """Return label and text columns, or the columns named, as a pyarrow table."""
        names = [self.label, *self.texts] if names is None else names
        pa = import_pyarrow()
        with reading(self.path, self.path.suffix):
            if self.is_parquet:
                import pyarrow.parquet as pq

                with pq.ParquetFile(self.path) as file:
                    return file.read(columns=names)
            schema = pa.schema([(n, pa.string()) for n in names])
            return pa.Table.from_batches(list(self._csv_batches(names)), schema)

    def labels(self) -> Labels:
        """Return the label of each row."""
        column = self.carried([self.label]).column(0)
        starts = range(0, len(column), 2**18)
        labels = Labels.of_chunks(column.slice(i, 2**18).to_pylist() for i in starts)
        return labels if self.is_parquet else labels.whole_numbers()

    # ---- reading in parts ---------------------------------------------------------------

    def csv_blocks(self) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield (features (r, d), record batch) of a CSV file."""
        start = 0
        for batch in self._csv_batches(None):
            columns = [batch.column(name) for name in self.features]
            out = np.empty((batch.num_rows, len(columns)), dtype=self.dtype)
            for j, column in enumerate(columns):
                out[:, j] = _numbers(self.path, self.features[j], column, start)
            start += batch.num_rows
            yield out, batch

    def _csv_batches(self, names: list[str] | None) -> Iterator[Any]:
        import pyarrow.csv as pc

        convert = pc.ConvertOptions(
            column_types=self.types, include_columns=names, strings_can_be_null=False
        )
        with pc.open_csv(self.path, *_csv_options(self.path), convert) as reader:
            yield from reader

    def parquet_slabs(self, width: int) -> Iterator[tuple[slice, slice, np.ndarray]]:
        """Yield (rows, columns, values) of at most ``width`` columns of one row group."""
        import pyarrow.parquet as pq

        pa = import_pyarrow()
        with pq.ParquetFile(self.path, memory_map=False, pre_buffer=False) as file:
            stop = 0
            for group in range(file.num_row_groups):
                start, stop = stop, stop + file.metadata.row_group(group).num_rows
                for first in range(0, len(self.features), width):
                    names = self.features[first : first + width]
                    part = file.read_row_group(group, columns=names)
                    values = np.empty((stop - start, len(names)), dtype=self.dtype)
                    for j, name in enumerate(names):
                        column = part.column(name)
                        values[:, j] = _numbers(self.path, name, column, start)
                    del part
                    pa.default_memory_pool().release_unused()
                    yield slice(start, stop), slice(first, first + len(names)), values


def open_table(path: Any, label: str, drop: Sequence[str] = ()) -> Table:
    """Return an opened CSV or Parquet table with its columns sorted into kinds."""
    path = open_existing(path)
    if path.suffix.lower() not in (*_CSV, *_PARQUET):
        raise FileError(f"{path}: a table is read from {', '.join((*_CSV, *_PARQUET))} files.")
    import_pyarrow()
    with reading(path, path.suffix):
        schema, n_rows = _parquet_schema(path) if path.suffix in _PARQUET else _csv_schema(path)
        _check_columns(path, schema.names, label, drop)
        texts: list[str] = []
        features: list[str] = []
        stored_index = {*_INDEX_NAMES, *_pandas_index(schema)}
        for column in schema:
            if column.name != label and column.name not in drop:
                feature = _is_number(column.type) and column.name not in stored_index
                (features if feature else texts).append(column.name)
        if not features:
            raise FileError(f"{path} has no column of numbers besides {label!r}.")
        types = {c.name: c.type for c in schema}
        dtype = _common_dtype([types[name] for name in features])
        if path.suffix not in _PARQUET:
            types = _csv_types(types, features)
        return Table(path, label, features, texts, n_rows, dtype, types)


def import_pyarrow() -> Any:
    """Return pyarrow, or say how to install it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "CSV and Parquet files need pyarrow. Install it with: pip install 'semfs[data]'"
        ) from error
    return pyarrow


# ---- schemas ------------------------------------------------------------------------------


def _parquet_schema(path: Path) -> tuple[Any, int]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def _pandas_index(schema: Any) -> list[str]:
    """Columns in which pandas keeps the index of a frame."""
    found = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in found if isinstance(name, str)]


def _csv_options(path: Path) -> tuple[Any, Any]:
    import pyarrow.csv as pc

    with path.open("rb") as file:
        header = file.readline(2**24).decode("utf-8-sig", "replace")
    delimiter = max(",;\t", key=header.count)
    block = max(_CSV_BLOCK, 64 * len(header))
    return (
        pc.ReadOptions(block_size=min(block, 2**30), use_threads=False),
        pc.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    )


def _csv_schema(path: Path) -> tuple[Any, int]:
    """Column types as far as the first block shows them."""
    import pyarrow.csv as pc

    if path.stat().st_size == 0:
        raise FileError(f"{path} is empty.")
    convert = pc.ConvertOptions(strings_can_be_null=False)
    with pc.open_csv(path, *_csv_options(path), convert) as reader:
        first = reader.read_next_batch()
    _refuse_broken_numbers(path, first)
    return first.schema, -1


def _refuse_broken_numbers(path: Path, batch: Any) -> None:
    """A text column that is mostly numbers is a column of numbers with a mistake in it."""
    import pyarrow.types as types

    for name, column in zip(batch.schema.names, batch.columns):
        if not types.is_string(column.type):
            continue
        cells = column.slice(0, 200).to_pylist()
        numbers = [cell for cell in cells if _reads_as_number(cell)]
        if len(numbers) > 0.5 * len(cells) and len(numbers) < len(cells):
            bad = next(i for i, cell in enumerate(cells) if not _reads_as_number(cell))
            # the label column may well hold 1, 2, x
            if len(set(cells)) > 0.5 * len(cells):
                raise FileError(
                    f"{path}: column {name!r} holds {cells[bad]!r} in row {bad + 1} among "
                    "numbers. Correct it, or name the column in drop."
                )


def _reads_as_number(cell: str | None) -> bool:
    try:
        float(cell or "")
    except ValueError:
        return False
    return True


def _csv_types(types: dict[str, Any], features: list[str]) -> dict[str, Any]:
    """Types for all of the file: a column of whole numbers may hold 0.5 further down."""
    pa = import_pyarrow()
    numeric = set(features)
    return {name: pa.float64() if name in numeric else pa.string() for name in types}


def _is_number(kind: Any) -> bool:
    import pyarrow.types as types

    return (
        types.is_floating(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or (types.is_decimal(kind))
    )


def _common_dtype(kinds: list[Any]) -> np.dtype:
    import pyarrow.types as types

    stored = {k.to_pandas_dtype() if types.is_floating(k) else np.float64 for k in set(kinds)}
    return working_dtype(*stored)


def _check_columns(path: Path, names: list[str], label: str, drop: Sequence[str]) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise FileError(f"{path} has two columns named {repeated[0]!r}. Rename one.")
    for name in (label, *drop):
        if name not in names:
            import difflib

            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            shown = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
            raise FileError(f"{path} has no column {name!r}{hint} Found: {shown}.")


# ---- values -------------------------------------------------------------------------------


def _numbers(path: Path, name: str, column: Any, first_row: int) -> np.ndarray:
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        row = first_row + int(np.flatnonzero(nulls)[0]) + 1
        raise FileError(
            f"{path}: no value in column {name!r}, row {row} ({column.null_count} missing). "
            "Fill the gaps, or name the column in drop."
        )
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64) if values.dtype.kind == "O" else values
