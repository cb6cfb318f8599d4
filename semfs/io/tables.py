"""Tables: CSV, Excel, Parquet, Feather, frames: a label column, and features in numbers."""

import contextlib
import csv
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from semfs.arrays import batches
from semfs.io import reader
from semfs.io.reader import ArrayReader, Blocks, Reader, TempArray, working_dtype
from semfs.io.safety import FileError, check_archive, check_declared_size, file_errors, unpacked
from semfs.labels import Labels
from semfs.system import import_optional
from semfs.validation import check_distinct, did_you_mean

TEXT_TABLES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
EXCEL = (".xlsx", ".xlsm")
_ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather"}
_ENDINGS |= dict.fromkeys(EXCEL, "Excel")
#: Numbers as people write them; those with a comma that cannot stand for thousands.
_NUMBER = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?|nan|inf", re.I)
_COMMA = re.compile(r"[+-]?((0|[0-9]{4,}),[0-9]+|[0-9]*,([0-9]{1,2}|[0-9]{4,}))([eE].*)?")
#: Names under which pandas keeps a frame's index: neither a feature nor a label.
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")

# Row groups up to this size are read one at a time; larger ones would not stay within memory.
LARGEST_GROUP = 4 * reader.BLOCK_BYTES


def table_kind(path: Path) -> str | None:
    """Return "csv", "Excel", "parquet" or "feather"; None if a path is no table."""
    if path.is_dir():
        return "parquet" if any(path.rglob("*.parquet")) else None
    if path.name.lower().endswith(TEXT_TABLES):
        return "csv"
    return _ENDINGS.get(path.suffix.lower())


class TableReader(Reader):
    """A table: columns of numbers are features, others are left out and named.

    ``data`` is a path, or a pandas or polars frame. Parquet, also in a folder, is read by row
    groups; text and Feather from the first row on; Excel is loaded.
    """

    def __init__(self, data: Any, label: str | None, drop: Sequence[str] = ()) -> None:
        import_optional("pyarrow.dataset", "data", what="A table")
        self.label, self.table = label, None
        if isinstance(data, Path):
            self.path, self.kind = data, table_kind(data)
        else:
            pa, self.kind = import_optional("pyarrow"), "frame"
            self.table = data.to_arrow() if hasattr(data, "to_arrow") else pa.table(data)
        self.name = self.path or "the frame"
        with file_errors(Path(self.name), str(self.kind)):
            if self.kind == "Excel":
                self.table = _excel_table(data)
            self._describe(drop)

    def __getstate__(self) -> dict:  # another process may work in another folder
        return super().__getstate__() | {"path": self.path and self.path.absolute()}

    def _describe(self, drop: Sequence[str]) -> None:
        schema = self._first_schema({*drop, self.label})
        twice = f"{self.name} has two columns named {{}}. Rename one."
        check_distinct(schema.names, twice, FileError)
        for name in {self.label or schema.names[0], *drop} - set(schema.names):
            hint = did_you_mean(name, schema.names) or "."
            shown = ", ".join(map(repr, schema.names[:8])) + ", …" * (len(schema.names) > 8)
            raise FileError(f"{self.name} has no column {name!r}{hint} Found: {shown}.")
        index = (schema.pandas_metadata or {}).get("index_columns", [])  # of a pandas frame
        stored_index = {*_INDEX_NAMES, *(name for name in index if isinstance(name, str))}
        others = [c for c in schema if c.name != self.label and c.name not in drop]
        types = import_optional("pyarrow").types
        numeric = (types.is_floating, types.is_integer, types.is_boolean, types.is_decimal)
        numbers = [c for c in others if any(test(c.type) for test in numeric)]
        features = [c for c in numbers if c.name not in stored_index]
        if not features:
            raise FileError(f"{self.name} has no column of numbers besides {self.label!r}.")
        self.columns = [column.name for column in features]
        chosen = set(self.columns)
        self.left_out = [c.name for c in others if c.name not in chosen]
        self.texts = [name for name in self.left_out if name not in stored_index]
        self.order = schema.names
        self.flags = {c.name for c in features if types.is_boolean(c.type)}
        self.n_rows = self._dataset().count_rows()
        kinds = (c.type for c in features)
        stored = {k.to_pandas_dtype() if types.is_floating(k) else float for k in kinds}
        self.dtype = np.dtype(np.float64) if self.kind == "csv" else working_dtype(*stored)
        self.n_features, self.feature_names = len(self.columns), self.columns
        if self.n_rows == 0:
            raise FileError(f"{self.name} has no rows, only names of columns.")
        self.row_bytes = self.n_features * self.dtype.itemsize
        if self.path is not None and self.path.is_file():
            size, declared = self.path.stat().st_size, self.n_rows * self.row_bytes
            check_declared_size(self.path, "the table", declared, size, held=False)
        files = self._dataset().get_fragments() if self.kind == "parquet" else ()
        groups = [group.num_rows for file in files for group in file.row_groups]
        self.largest_group = max(groups, default=0)
        # of longer ones a page of each column would be in memory
        self.shared = bool(groups) and self.largest_group * self.row_bytes <= LARGEST_GROUP

    def _dataset(self) -> Any:
        import pyarrow.dataset as ds

        if self.table is not None:
            return ds.dataset(self.table)
        if self.kind != "csv":
            return ds.dataset(self.path, format=self.kind)
        # a column of whole numbers may hold 0.5 further down
        pa, numbers = import_optional("pyarrow"), set(self.columns)
        types = {n: pa.float64() if n in numbers else pa.string() for n in self.order}
        types |= dict.fromkeys(self.flags, pa.bool_())
        return ds.dataset(self.path, format=ds.CsvFileFormat(**_csv_options(self.path, types)))

    def _first_schema(self, known: set) -> Any:
        batch = self.table
        if self.path is None or self.kind not in ("csv", "Excel"):
            return self._dataset().schema
        if self.path.stat().st_size == 0:
            raise FileError(f"{self.path} is empty.")
        if self.kind == "csv":
            with import_optional("pyarrow.csv").open_csv(
                self.path, **_csv_options(self.path)
            ) as reader:
                batch = next(iter(reader), None)
        if batch is None or not batch.num_rows:
            raise FileError(f"{self.path} has no rows, only names of columns.")
        for name, column in zip(batch.schema.names, batch.slice(0, 200).columns):
            if name not in known and import_optional("pyarrow").types.is_string(column.type):
                _refuse_broken_numbers(self.path, name, column.to_pylist())
        return batch.schema

    def scan(self, columns: list[str]) -> Iterator[Any]:
        """Yield record batches of some columns, from first row to last."""
        options = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
        with file_errors(Path(self.name), str(self.kind)):
            for batch in self._dataset().scanner(columns=columns, **options).to_batches():
                if self.kind == "feather":  # is taken as it lies there: wrong places crash
                    batch.validate(full=True)
                yield batch

    def labels(self) -> Labels:
        assert self.label is not None
        batches = self.scan([self.label])
        found = Labels.of(
            v for batch in batches for v in batch.column(0).to_pylist()
        ).strip_blank()
        return found.as_int() if self.kind == "csv" else found

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None); row groups before ``start`` are not read."""
        if self.kind == "parquet" and not self.shared:
            yield from self._copied.blocks(start, stop, step)
            return
        done, stop = start, (self.n_rows or 0) if stop is None else stop
        with file_errors(Path(self.name), str(self.kind)):
            for at, batch in self._batches(start, stop, step):
                low, high = max(start - at, 0), min(stop - at, batch.num_rows)
                for part in batches(max(high - low, 0), step):
                    if at + low + part.start != done:
                        break
                    rows = batch.slice(low + part.start, part.stop - part.start)
                    yield done, self._matrix(rows, done), None
                    done += rows.num_rows
            if done != stop:
                raise FileError(f"{self.name} has {done} rows, {self.n_rows} were announced.")

    def _batches(self, start: int, stop: int, step: int) -> Iterator[tuple[int, Any]]:
        """The place of its first row and a batch; those of Parquet are never long."""
        at = 0
        if self.kind != "parquet":
            for batch in self.scan(self.columns):
                yield at, batch
                at += batch.num_rows
            return
        parquet = import_optional("pyarrow.parquet")
        for name in self._dataset().files:
            with parquet.ParquetFile(name, pre_buffer=False, buffer_size=2**16) as file:
                for group in range(file.num_row_groups):
                    end = at + file.metadata.row_group(group).num_rows
                    if end > start and at < stop:
                        for batch in file.iter_batches(step, [group], self.columns):
                            yield at, batch
                            at += batch.num_rows
                    at = end

    @cached_property
    def _copied(self) -> ArrayReader:
        """The features in a temporary file, as many columns at a time as fit."""
        values, shape = TempArray(self.dtype), (self.n_rows or 0, self.n_features)
        width = max(1, reader.BLOCK_BYTES // (8 * self.largest_group))
        for part in batches(shape[1], width):
            first = 0
            for batch in self.scan(self.columns[part]):
                values.append(self._matrix(batch, first, self.columns[part]))
                first += batch.num_rows
        return ArrayReader(partial(ColumnSlabs, values, shape, self.dtype, width), self.path)

    def _matrix(self, batch: Any, first: int, columns: list[str] | None = None) -> np.ndarray:
        """The features of a batch as one matrix."""
        columns = columns or self.columns
        out = np.empty((batch.num_rows, len(columns)), dtype=self.dtype)
        for place, name in enumerate(columns):
            column = batch.column(name)
            if name in self.flags:  # of which numpy could not take a gap
                column = column.cast("uint8")
            out[:, place] = column.to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(~np.isfinite(out[:, place]))
            if len(wrong):
                found = f"{out[wrong[0], place]:g}" if column[wrong[0]].is_valid else "no value"
                raise FileError(
                    f"{self.name}: {found} in column {name!r}, row {first + wrong[0] + 1} "
                    f"({len(wrong)} in all). Fill the gaps, or name the column in drop."
                )
        return out


@dataclass(frozen=True)
class ColumnSlabs:
    """A matrix, some columns of all rows after the others."""

    values: TempArray
    shape: tuple[int, int]
    dtype: np.dtype
    width: int

    def __getitem__(self, rows: slice) -> np.ndarray:
        out = np.empty((rows.stop - rows.start, self.shape[1]), dtype=self.dtype)
        for part in batches(self.shape[1], self.width):
            place = part.start * self.shape[0] + rows.start * (part.stop - part.start)
            found = self.values[place : place + out[:, part].size]
            out[:, part] = found.reshape(len(out), -1)
        return out


def _refuse_broken_numbers(path: Path, name: str, cells: list) -> None:
    """A text column that is mostly numbers is a column of numbers with a mistake in it."""
    bad = [i for i, cell in enumerate(cells) if not _NUMBER.fullmatch(cell.strip())]
    if len(bad) < 0.5 * len(cells) and len(set(cells)) > 0.5 * len(cells):
        signs = ([i for i, cell in enumerate(cells) if sign in cell] for sign in ",.")
        row = (bad or min(filter(None, signs), key=len, default=[0]))[0]  # the rarer of two
        raise FileError(
            f"{path}: column {name!r} holds {cells[row]!r} in row {row + 1} among numbers. "
            "Correct it (decimals are 1.5 or 1,5, one sign in a file), or name it in drop."
        )


def decimal_sign(cells: Iterable[str]) -> str:
    """Return "," if numbers in cells of a table are written as 1,5 rather than 1.5."""
    found = [cell.strip() for cell in cells]
    commas = sum(_COMMA.fullmatch(cell) is not None for cell in found)
    points = sum("." in cell and _NUMBER.fullmatch(cell) is not None for cell in found)
    return "," if commas > points else "."


def sheet_columns(path: Path) -> list[tuple]:
    """Return the columns of the first sheet, without empty ones; an empty cell is None."""
    with zipfile.ZipFile(path) as archive:
        check_archive(path, archive.infolist())
        paid = 10_000 + sum(item.file_size for item in archive.infolist())
    book = import_optional("openpyxl", "data", what=str(path)).load_workbook(
        path, read_only=True
    )
    sheet, rows = book.worksheets[0], []
    sheet.reset_dimensions()  # what the file says of them may be wrong
    with contextlib.closing(book):
        for row in sheet.iter_rows(values_only=True):  # one far cell makes billions of places
            paid -= 1 + len(row)  # no more places than the text of the file pays for
            if paid < 0:
                far = f"{path}: the sheet reaches far beyond its cells."
                raise FileError(far + " Delete empty rows and columns, or save it as .csv.")
            rows.append(row)
    full = [row for row in rows if any(cell is not None for cell in row)]
    return [c for c in zip_longest(*full) if any(cell is not None for cell in c)]


def _excel_table(path: Path) -> Any:
    """The first sheet as an arrow table; columns of several types are text."""
    pa, names, arrays = import_optional("pyarrow"), [], []
    for name, *cells in sheet_columns(path):
        try:
            arrays.append(pa.array(cells))
        except (TypeError, ValueError, OverflowError):
            arrays.append(pa.array(["" if cell is None else str(cell) for cell in cells]))
        names.append("" if name is None else str(name))
    return pa.Table.from_arrays(arrays, names=names)


def _csv_options(path: Any, types: dict[str, Any] | None = None) -> dict[str, Any]:
    """How to read and parse a text file, and turn its columns into these types."""
    import pyarrow.csv as pc

    with unpacked(path) as file:
        header = file.readline(2**24).decode("utf-8-sig", "replace")
        first = [file.readline(2**20).decode("utf-8", "replace") for _ in range(20)]
    block = min(max(reader.BLOCK_BYTES, 64 * len(header)), 2**30)  # a row must fit in
    delimiter = max(",;\t", key=header.count)
    sign = decimal_sign(cell for row in csv.reader(first, delimiter=delimiter) for cell in row)
    convert = {"strings_can_be_null": False, "decimal_point": sign}
    return {
        "read_options": pc.ReadOptions(block_size=block, use_threads=False),
        "parse_options": pc.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": pc.ConvertOptions(column_types=types, **convert),
    }
