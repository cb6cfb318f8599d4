"""Tables (CSV, Excel, Parquet, Feather, frames) with a label column and numeric features."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import Floats
from semfs.arrays import batches
from semfs.io import reader as readers
from semfs.io.delimited import (
    TEXT_TABLES,
    csv_options,
    decimal_sign,
    first_broken_number,
    is_text_table,
    refuse_broken_numbers,
    text_rows,
)
from semfs.io.excel import EXCEL, excel_table, sheet_columns
from semfs.io.labels_file import labels_in_file
from semfs.io.reader import (
    NO_LABEL_TEXTS,
    SAMPLE_ROWS,
    ArrayReader,
    Blocks,
    Reader,
    Request,
    working_dtype,
)
from semfs.io.safety import FileError, check_declared_size, file_errors
from semfs.io.spill import spilled_reader
from semfs.labels import Labels
from semfs.system import import_optional
from semfs.validation import (
    FILL_TO_PREDICT,
    MOST_COLUMNS,
    REPLACE_INFINITY,
    check_distinct,
    did_you_mean,
    listed,
    warn_user,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds

__all__ = [
    "EXCEL",
    "TEXT_TABLES",
    "TableReader",
    "decimal_sign",
    "open_table",
    "read_columns",
    "sheet_columns",
    "table_kind",
]

_BINARY_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".xlsx": "Excel",
    ".xlsm": "Excel",
}
PARQUET = (".parquet", ".pq")
FEATHER = ".feather"
#: Names under which pandas stores a frame's index, which is neither a feature nor a label.
NAMELESS_INDEX = "__index_level_0__"
INDEX_NAMES = ("", "Unnamed: 0", NAMELESS_INDEX)
#: Rows of a text column that are looked at for broken numbers.
INSPECTED_ROWS = 200
#: Column names that a message lists at most.
MOST_NAMES = 8
#: Columns that look like numbers of which a message shows a cell.
MOST_BROKEN = 3
#: What to do about gaps in a table for a fit.
FILL_TO_FIT = (
    "Fill the gaps (--impute on the command line, "
    'SemFS(missing_values="class-mean") in Python), or leave these columns out (--drop NAME; '
    "drop=[name] in Python)."
)
#: Bytes that the Parquet reader buffers of each column.
PARQUET_BUFFER = 2**16
#: A row group that takes more memory than this many blocks is copied to a temporary file,
#: and not read by several processes, each of which would have to copy it.
BLOCKS_PER_GROUP = 4


def table_kind(path: Path) -> str | None:
    """Return "csv", "Excel", "parquet" or "feather", or None if a path is not a table."""
    if path.is_dir():
        return "parquet" if is_parquet_folder(path) else None
    if is_text_table(path):
        return "csv"
    return _BINARY_KINDS.get(path.suffix.lower())


def is_parquet_folder(path: Path) -> bool:
    """Return whether a folder holds Parquet files, at any depth."""
    return any(path.rglob("*.parquet"))


def open_table(
    data: Path | pd.DataFrame | pl.DataFrame, request: Request
) -> tuple[Reader, Labels | None]:
    """Return a reader of a table, and the labels in one of its columns."""
    if isinstance(data, Path):
        request.refuse_key(data)
    name = request.name
    if name is not None and os.path.isfile(name):
        # a label file, unless there is a column of that name
        reader = TableReader(data, None, request.drop, only=request.only)
        if name not in reader.order:
            name = None
    if name is not None or request.name is None:
        reader = TableReader(data, name, request.drop, only=request.only)
    if request.y is None:
        found = _listed(reader.order)
        raise ValueError(
            f"{reader.name}: no labels given. Pass y, either the name of "
            f"the label column (found: {found}), or an array with one "
            "label per sample."
        )
    if reader.texts:
        warn_user(_ignored(reader))
    labels = None if name is None else reader.labels(request.no_label)
    return reader, labels


def _ignored(reader: TableReader) -> str:
    """Return the message about text columns. Those that look like numbers come last."""
    broken = [name for name in reader.texts if name in reader.broken_numbers]
    others = [name for name in reader.texts if name not in reader.broken_numbers]
    text = f"ignored non-numeric columns: {_listed(others, 5)}." if others else ""
    for name in broken[:MOST_BROKEN]:
        row, cell = reader.broken_numbers[name]
        text += (
            f" Column {name!r} looks numeric but was ignored, because row "
            f"{row + 1} holds {cell!r}."
        )
    if len(broken) > MOST_BROKEN:
        text += f" So were {len(broken) - MOST_BROKEN} more columns."
    if broken:
        text += (
            " Correct such cells (write numbers as 1022.5 or 1022,5, "
            "without thousands separators or units), or leave these "
            "columns out (--drop NAME)."
        )
    return text.strip()


def _listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, …" if len(names) > most else shown


class TableReader(Reader):
    """A reader of a table. Numeric columns are features, and others are left out.

    ``data`` is a path, or a pandas or polars frame. Parquet files and folders are read by row
    groups. Text and Feather files are read from the first row on, and Excel files are loaded.
    """

    index_column: str | None = None  # that pandas stored

    def __init__(
        self,
        data: Path | pd.DataFrame | pl.DataFrame,
        label: str | None,
        drop: Sequence[str] = (),
        block_bytes: int | None = None,
        only: Container[str] | None = None,
    ) -> None:
        """Read names, types and the number of rows. Raise if there are no features.

        With ``only``, only these columns can be features, if they are numeric.
        """
        import_optional("pyarrow.dataset", "data", what="A table")
        self.label = label
        self.block_bytes = block_bytes
        self.only = only
        self.dropped = tuple(drop)
        self.table: pa.Table | None = None
        if isinstance(data, Path):
            self.path = data
            self.kind = table_kind(data)
        else:
            self.kind = "frame"
            self.table = _arrow_table(data)
        self.name = self.path or Path("the frame")
        with file_errors(self.name, str(self.kind)):
            if self.kind == "Excel" and self.path is not None:
                self.table = excel_table(self.path)
            #: Text columns that look like numbers: the row of the first bad cell, and the cell.
            self.broken_numbers: dict[str, tuple[int, str]] = {}
            schema = self._first_schema({*drop, label})
            self._check_names(schema.names, drop)
            self._choose_columns(schema, drop)
            self._measure(schema)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self.path is not None:  # another process may work in another folder
            state["path"] = self.path.absolute()
        return state

    def _first_schema(self, not_features: set[str | None]) -> pa.Schema:
        """Return names and types of the columns. In text files, the first rows decide."""
        if self.path is None or self.kind not in ("csv", "Excel"):
            return self._dataset().schema
        if self.path.stat().st_size == 0:
            raise FileError(f"{self.path} is empty.")
        batch = self.table
        if self.kind == "csv":
            # the first block decides on the types; later ones must agree
            pyarrow_csv = import_optional("pyarrow.csv")
            with pyarrow_csv.open_csv(self.path, **csv_options(self.path)) as batch_reader:
                batch = next(iter(batch_reader), None)
        if batch is None or not batch.num_rows:
            raise FileError(f"{self.path} has only a header and no rows.")
        types = import_optional("pyarrow").types
        for name, column in zip(batch.schema.names, batch.slice(0, INSPECTED_ROWS).columns):
            if name in not_features or not self._may_need(name):
                continue
            if types.is_string(column.type):
                cells = column.to_pylist()
                refuse_broken_numbers(self.path, name, cells)
                broken = first_broken_number(cells)
                if broken is not None:
                    self.broken_numbers[name] = broken
        return batch.schema

    def _check_names(self, names: list[str], drop: Sequence[str]) -> None:
        """Raise if column names repeat, or if the label or a dropped column is missing."""
        twice = f"{self.name} has two columns named {{}}. Rename one."
        check_distinct(names, twice, FileError)
        wanted = [*drop] if self.label is None else [self.label, *drop]
        for name in wanted:
            if name not in names:
                hint = did_you_mean(name, names) or "."
                raise FileError(
                    f"{self.name} has no column {name!r}{hint} Found: {_listed(names)}."
                )

    def _choose_columns(self, schema: pa.Schema, drop: Sequence[str]) -> None:
        """Separate features from other columns, which are text and the index of a frame."""
        types = import_optional("pyarrow").types
        index_names = set(INDEX_NAMES)
        for name in (schema.pandas_metadata or {}).get("index_columns", []):
            if isinstance(name, str):  # a RangeIndex is a description, not a column
                index_names.add(name)
        others = [c for c in schema if c.name != self.label and c.name not in drop]
        numbers = [c for c in others if self._is_number(c) and c.name not in index_names]
        if not numbers:
            besides = "" if self.label is None else f" besides {self.label!r}"
            raise FileError(f"{self.name} has no column of numbers{besides}.")
        features = [c for c in numbers if self._may_need(c.name)]
        if not features:
            raise FileError(f"{self.name} has none of the selected features.")
        self.order = list(schema.names)
        self.columns = [column.name for column in features]
        self.flags = {c.name for c in features if types.is_boolean(c.type)}
        is_number = {column.name for column in numbers}
        self.left_out = [c.name for c in others if c.name not in is_number]
        # to a fitted selector, a column without any value is no text but a gap
        empty = {c.name for c in others if self.only is not None and types.is_null(c.type)}
        no_texts = index_names | empty
        self.texts = [name for name in self.left_out if name not in no_texts]
        # an index that pandas stored, or else text in the first column
        indices = [name for name in self.left_out if name in index_names]
        first = schema.field(0)
        if len(indices) == 1:
            self.index_column = indices[0]
            self.read_row_names = partial(_distinct_texts, self, indices[0])
        elif first.name in self.left_out and types.is_string(first.type):
            self.read_row_names = partial(_distinct_texts, self, first.name)

    def _may_need(self, name: str) -> bool:
        """Return whether a column is a feature, provided that it is numeric."""
        return self.only is None or name in self.only

    def _is_number(self, column: pa.Field) -> bool:
        """Return whether a column holds numbers, or is wanted and has no value at all."""
        if self.only is not None and column.name in self.only:
            types = import_optional("pyarrow").types
            return _is_numeric(column.type) or types.is_null(column.type)
        return _is_numeric(column.type)

    def _measure(self, schema: pa.Schema) -> None:
        """Set sizes and types. Raise if a file declares more than it can hold."""
        self.n_features = len(self.columns)
        self.feature_names = self.columns
        self.n_rows = int(self._dataset().count_rows())
        if self.n_rows == 0:
            raise FileError(f"{self.name} has only a header and no rows.")
        self.dtype = self._common_dtype(schema)
        self.row_bytes = self.n_features * self.dtype.itemsize
        if self.path is not None and self.path.is_file():
            stored = self.path.stat().st_size
            declared = self.n_rows * self.row_bytes
            check_declared_size(self.path, "the table", declared, stored, held=False)
        self.largest_group = self._largest_group()
        limit = BLOCKS_PER_GROUP * self._block_bytes
        has_small_groups = 0 < self.largest_group * self.row_bytes <= limit
        self.shared = self.kind == "parquet" and has_small_groups

    def _common_dtype(self, schema: pa.Schema) -> np.dtype[Any]:
        """Return float32 if all features have single or half precision, else float64."""
        if self.kind == "csv":
            return np.dtype(np.float64)
        types = import_optional("pyarrow").types
        # whole numbers and decimals may need more digits than float32 has
        stored = [schema.field(name).type for name in self.columns]
        if not all(types.is_floating(column) for column in stored):
            return np.dtype(np.float64)
        return working_dtype(*{column.to_pandas_dtype() for column in stored})

    @property
    def _block_bytes(self) -> int:
        return self.block_bytes or readers.BLOCK_BYTES

    def _largest_group(self) -> int:
        """Return the rows of the largest row group of Parquet files, or 0 for other formats."""
        if self.kind != "parquet":
            return 0
        lengths = [0]
        # a folder has several files, and each file several row groups
        for file in self._dataset().get_fragments():
            lengths += [group.num_rows for group in file.row_groups]
        return max(lengths)

    def _dataset(self) -> ds.Dataset:
        """Return the table as a dataset of arrow, which reads it in batches."""
        import pyarrow.dataset as ds

        if self.table is not None:
            return ds.dataset(self.table)
        if self.kind != "csv":
            return ds.dataset(self.path, format=self.kind)
        assert self.path is not None
        # types are given: a column of whole numbers may hold 0.5 further down
        pa = import_optional("pyarrow")
        types = dict.fromkeys(self.order, pa.string())
        # this order: flags are among the columns, and need another type
        types.update(dict.fromkeys(self.columns, pa.float64()))
        types.update(dict.fromkeys(self.flags, pa.bool_()))
        csv_format = ds.CsvFileFormat(**csv_options(self.path, types))
        return ds.dataset(self.path, format=csv_format)

    def scan(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches of the columns, from the first row to the last."""
        with file_errors(self.name, str(self.kind)):
            # threads and read-ahead would hold many batches in memory
            scanner = self._dataset().scanner(
                columns=columns, use_threads=False, batch_readahead=1, fragment_readahead=1
            )
            for batch in scanner.to_batches():
                if self.kind == "feather":
                    # arrow maps the file as it is: wrong offsets would crash
                    batch.validate(full=True)
                yield batch

    def labels(self, no_label: Sequence[str] = NO_LABEL_TEXTS) -> Labels:
        """Return the labels in the label column.

        In a frame, every text is a class. In files, ``no_label`` texts mean "no label".
        """
        assert self.label is not None
        values = []
        for batch in self.scan([self.label]):
            values += batch.column(0).to_pylist()
        if self.path is None:
            return Labels.of(values).strip_blank()
        labels = labels_in_file(values, f"{self.path}: {self.label}", no_label)
        # a text file has no types: labels 0, 1, 2 in it are meant as numbers
        return labels.as_int() if self.kind == "csv" else labels

    def some_values(self) -> Floats:
        """Return the nonzero values of the first samples; a table is read from its start."""
        for _, X, _ in self.blocks(0, self.n_rows, SAMPLE_ROWS):
            # a gap says nothing about the units of the values
            return X[(X != 0) & ~np.isnan(X)]
        return np.zeros(0)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None). Row groups before ``start`` are not read."""
        if self.kind == "parquet" and not self.shared:
            yield from self._spilled.blocks(start, stop, step)
            return
        if stop is None:
            stop = self.n_rows or 0
        done = start
        with file_errors(self.name, str(self.kind)):
            for first, batch in self._batches(start, stop, step):
                low = max(start - first, 0)
                high = min(stop - first, batch.num_rows)
                for part in batches(max(high - low, 0), step):
                    if first + low + part.start != done:
                        break  # rows are missing: reported below
                    rows = batch.slice(low + part.start, part.stop - part.start)
                    yield done, self._matrix(rows, done), None
                    done += rows.num_rows
        if done != stop:
            raise FileError(
                f"{self.name} has {done} rows, but {self.n_rows} were "
                "expected. Copy the file again."
            )

    def _batches(
        self, start: int, stop: int, step: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the number of the first row of each batch, and the batch."""
        if self.kind == "parquet":
            yield from self._parquet_batches(start, stop, step)
            return
        first = 0
        for batch in self.scan(self.columns):
            yield first, batch
            first += batch.num_rows

    def _parquet_batches(
        self, start: int, stop: int, step: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of at most ``step`` rows from the row groups in the range."""
        parquet = import_optional("pyarrow.parquet")
        first = 0
        for name in self._dataset().files:
            with parquet.ParquetFile(
                name, pre_buffer=False, buffer_size=PARQUET_BUFFER
            ) as file:
                for group in range(file.num_row_groups):
                    # groups outside the range are not decoded
                    end = first + file.metadata.row_group(group).num_rows
                    if end > start and first < stop:
                        for batch in file.iter_batches(step, [group], self.columns):
                            yield first, batch
                            first += batch.num_rows
                    # also after a group that was passed over
                    first = end

    @cached_property
    def _spilled(self) -> ArrayReader:
        """Copy features to a temporary file, if row groups are too large to read in blocks."""
        shape = (self.n_rows or 0, self.n_features)
        # arrow decodes a group of a column to 8 bytes a value at most
        width = max(1, self._block_bytes // (8 * max(1, self.largest_group)))
        return spilled_reader(self._read_slab, shape, self.dtype, width, self.path)

    def _read_slab(self, columns: slice) -> Iterator[Floats]:
        """Yield blocks (r, width) of some features, over all rows."""
        names = self.columns[columns]
        first = 0
        for batch in self.scan(names):
            yield self._matrix(batch, first, names)
            first += batch.num_rows

    def _matrix(
        self, batch: pa.RecordBatch, first: int, names: Sequence[str] | None = None
    ) -> Floats:
        """Return the features (r, d), or ``names``, of a batch that starts at row ``first``."""
        if names is None:
            names = self.columns
        out = np.empty((batch.num_rows, len(names)), dtype=self.dtype)
        for place, name in enumerate(names):
            column = batch.column(name)
            if name in self.flags:
                column = column.cast("uint8")  # numpy has no missing booleans
            out[:, place] = column.to_numpy(zero_copy_only=False)
            wrong = ~np.isfinite(out[:, place])
            if self.keeps_missing:
                wrong &= ~np.isnan(out[:, place])
            if wrong.any():
                row = int(np.argmax(wrong))
                found = f"{out[row, place]:g}" if column[row].is_valid else "no value"
                advice = FILL_TO_FIT if self.only is None else FILL_TO_PREDICT
                if np.isinf(out[row, place]):
                    advice = REPLACE_INFINITY
                raise FileError(
                    f"{self.name}: {found} in column {name!r}, row "
                    f"{first + row + 1}. {self._gaps()} {advice}"
                )
        return out

    def _gaps(self) -> str:
        """Return a text on all columns with gaps. This reads the whole file."""
        counts: dict[str, int] = dict.fromkeys(self.columns, 0)
        for batch in self.scan(self.columns):
            for name in self.columns:
                column = batch.column(name)
                if name in self.flags:
                    # a flag is never NaN or infinite: only empty cells count
                    counts[name] += column.null_count
                    continue
                values = column.to_numpy(zero_copy_only=False).astype(np.float64)
                counts[name] += int(np.count_nonzero(~np.isfinite(values)))
        affected = [f"{name!r} ({count})" for name, count in counts.items() if count]
        number = "1 column" if len(affected) == 1 else f"{len(affected)} columns"
        total = sum(counts.values())
        return f"There are {total} in {number}: {listed(affected, MOST_COLUMNS)}."


def _arrow_table(frame: Any) -> pa.Table:
    """Return a pandas or polars frame as an arrow table."""
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    return import_optional("pyarrow").table(frame)


def _is_numeric(column_type: pa.DataType) -> bool:
    types = import_optional("pyarrow").types
    return (
        types.is_floating(column_type)
        or types.is_integer(column_type)
        or types.is_boolean(column_type)
        or types.is_decimal(column_type)
    )


def _distinct_texts(reader: TableReader, name: str) -> list[str] | None:
    """Return a column as text, which holds the names of the samples.

    None if cells are equal: these are not names of samples.
    """
    cells = [cell for batch in reader.scan([name]) for cell in batch.column(0).to_pylist()]
    texts = [str(cell) for cell in cells]
    return texts if len(set(texts)) == len(texts) else None


def read_columns(path: Path) -> dict[str, list[object]]:
    """Return the columns of a small table (text, Excel, Parquet, Feather) by name, in order.

    Cells of text files are text, so that "007" and "NA" do not change. Other cells have the
    types of the file. An empty cell is "". An index that pandas stored in a Parquet file is the
    first column. Raise if two columns have the same name, if rows have different lengths, or if
    the file is empty.
    """
    with file_errors(path, path.suffix.lower()):
        if path.suffix.lower() in (*PARQUET, FEATHER):
            return _binary_columns(path)
        if path.suffix.lower() in EXCEL:
            rows = [list(row) for row in zip(*sheet_columns(path))]
        else:
            rows = [list(row) for row in text_rows(path)]
        return _named_columns(path, rows)


def _named_columns(path: Path, rows: list[list[object]]) -> dict[str, list[object]]:
    """Return rows of cells as columns, named by the first row. Empty rows are ignored."""
    # openpyxl gives None for an empty cell, csv gives ""
    filled = [["" if cell is None else cell for cell in row] for row in rows]
    header = filled[0] if filled else []
    if not header:
        raise FileError(f"{path} is not a readable table: it is empty.")
    names = [str(name) for name in header]
    check_distinct(names, f"{path} has two columns named {{}}. Rename one.", FileError)
    records = [row for row in filled[1:] if any(cell != "" for cell in row)]
    for row in records:
        if len(row) != len(header):
            raise FileError(
                f"{path}: a row has {len(row)} cells, but the header has "
                f"{len(header)}. Correct the file, or export it again."
            )
    return {name: [row[place] for row in records] for place, name in enumerate(names)}


def _binary_columns(path: Path) -> dict[str, list[object]]:
    """Return the columns of a Parquet or Feather file. A stored index comes first."""
    pandas = import_optional("pandas", "data", what="A table")
    read = pandas.read_feather if path.suffix.lower() == FEATHER else pandas.read_parquet
    frame = read(path)
    columns: dict[str, list[object]] = {}
    # a RangeIndex was not stored, pandas makes it up
    if not isinstance(frame.index, pandas.RangeIndex):
        columns[str(frame.index.name or "")] = frame.index.tolist()
    names = [*columns, *map(str, frame.columns)]
    check_distinct(names, f"{path} has two columns named {{}}. Rename one.", FileError)
    for place, name in enumerate(frame.columns):
        columns[str(name)] = frame.iloc[:, place].tolist()
    return columns
