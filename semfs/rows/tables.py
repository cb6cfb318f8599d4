"""Tables: CSV, Parquet, Feather and frames; a label column, columns of numbers are features."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from semfs.files import FileError, check_declared_size, need, reading
from semfs.rows.memory import spans
from semfs.rows.readers import BLOCK_BYTES, ArrayReader, Blocks, Labels, Reader, working_dtype
from semfs.validation import check_distinct, did_you_mean

__all__ = ["TEXT_TABLES", "TableReader", "table_kind"]

TEXT_TABLES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather"}
#: Names under which pandas keeps a frame's index: neither a feature nor a label.
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")


# Row groups up to this size are read one at a time; larger ones would not stay within memory.
LARGEST_GROUP = 4 * BLOCK_BYTES


def table_kind(path: Path) -> str | None:
    """Return "csv", "parquet" or "feather"; None if a path is no table."""
    if path.is_dir():
        return "parquet" if any(path.rglob("*.parquet")) else None
    if path.name.lower().endswith(TEXT_TABLES):
        return "csv"
    return _ENDINGS.get(path.suffix.lower())


class TableReader(Reader):
    """A table: columns of numbers are features, others are left out and named.

    Parquet is read by row groups, also from a folder. Text and Feather files, and Parquet with
    very long row groups, are copied to a temporary file when they must be read in blocks.
    ``data`` is a path, or a pandas or polars frame; ``label`` its label column, ``drop`` some
    that are no features.
    """

    def __init__(self, data: Any, label: str | None, drop: Sequence[str] = ()) -> None:
        need("pyarrow.dataset", "data", what="A table")
        self.label, self.table = label, None
        self._copy: ArrayReader | None = None
        if isinstance(data, Path):
            self.path, self.kind = data.resolve(), table_kind(data)
        else:
            pa, self.kind = need("pyarrow"), "frame"
            self.table = data.to_arrow() if hasattr(data, "to_arrow") else pa.table(data)
        self.name = self.path or "the frame"
        with reading(Path(self.name), str(self.kind)):
            self._describe(drop)

    def _describe(self, drop: Sequence[str]) -> None:
        schema = self._first_schema(drop)
        check_distinct(
            schema.names, f"{self.name} has two columns named {{}}. Rename one.", FileError
        )
        for name in (*([] if self.label is None else [self.label]), *drop):
            _check_known(self.name, name, schema.names)
        stored_index = {*_INDEX_NAMES, *_pandas_index(schema)}
        others = [c for c in schema if c.name != self.label and c.name not in drop]
        features = [c for c in others if _is_number(c.type) and c.name not in stored_index]
        if not features:
            raise FileError(f"{self.name} has no column of numbers besides {self.label!r}.")
        self.columns = [column.name for column in features]
        chosen = set(self.columns)
        self.left_out = [c.name for c in others if c.name not in chosen]
        self.texts = [name for name in self.left_out if name not in stored_index]
        self.order = schema.names
        self._set_shape(features)

    def _set_shape(self, features: list[Any]) -> None:
        dataset = self._dataset()
        self.n_rows = dataset.count_rows()
        kinds = {_stored_type(column.type) for column in features}
        self.dtype = np.dtype(np.float64) if self.kind == "csv" else working_dtype(*kinds)
        self.n_features, self.feature_names = len(self.columns), self.columns
        if self.n_rows == 0:
            raise FileError(f"{self.name} has no rows, only names of columns.")
        self.row_bytes = self.n_features * self.dtype.itemsize
        if self.path is not None and self.path.is_file():
            size, declared = self.path.stat().st_size, self.n_rows * self.row_bytes
            check_declared_size(self.path, "the table", declared, size, held=False)
        groups = []
        if self.kind == "parquet":
            groups = [g.num_rows for f in dataset.get_fragments() for g in f.row_groups]
        self.largest_group = max(groups, default=1)
        self.shared = bool(groups) and self.largest_group * self.row_bytes <= LARGEST_GROUP

    # ---- the file ---------------------------------------------------------------------

    def _dataset(self) -> Any:
        import pyarrow.dataset as ds

        if self.table is not None:
            return ds.dataset(self.table)
        if self.kind != "csv":
            partitioning = "hive" if self.kind == "parquet" else None
            return ds.dataset(self.path, format=self.kind, partitioning=partitioning)
        # a column of whole numbers may hold 0.5 further down
        pa, numbers = need("pyarrow"), set(self.columns)
        types = {n: pa.float64() if n in numbers else pa.string() for n in self.order}
        read, parse, convert = _csv_options(self.path, types)
        options = {"parse_options": parse, "convert_options": convert, "read_options": read}
        return ds.dataset(self.path, format=ds.CsvFileFormat(**options))

    def _first_schema(self, drop: Sequence[str]) -> Any:
        """Names and types of the columns, of a text as far as its first block shows them."""
        if self.kind != "csv":
            return self._dataset().schema
        assert self.path is not None
        if self.path.stat().st_size == 0:
            raise FileError(f"{self.path} is empty.")
        with need("pyarrow.csv").open_csv(self.path, *_csv_options(self.path)) as reader:
            batch = next(iter(reader), None)
        if batch is None or not batch.num_rows:
            raise FileError(f"{self.path} has no rows, only names of columns.")
        known = [n for n in batch.schema.names if n != self.label and n not in drop]
        if len(set(known)) == len(known):
            _refuse_broken_numbers(self.path, batch.slice(0, 200).select(known))
        return batch.schema

    def scan(self, columns: list[str]) -> Iterator[Any]:
        """Yield record batches of some columns, from first row to last."""
        options = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
        with reading(Path(self.name), str(self.kind)):
            for batch in self._dataset().scanner(columns=columns, **options).to_batches():
                if self.kind == "feather":  # is taken as it lies there: wrong places crash
                    batch.validate(full=True)
                yield batch

    def labels(self) -> Labels:
        """Return the label of each row; only that column is kept."""
        assert self.label is not None
        batches = self.scan([self.label])
        found = Labels.of(v for batch in batches for v in batch.column(0).to_pylist()).tidied()
        return found.whole_numbers() if self.kind == "csv" else found

    # ---- rows ---------------------------------------------------------------------------

    def load(self) -> np.ndarray:
        """Return all features (n, d)."""
        out, first = np.empty((self.n_rows or 0, self.n_features), dtype=self.dtype), 0
        with reading(Path(self.name), str(self.kind)):
            for batch in self.scan(self.columns):
                out[first : first + batch.num_rows] = self._matrix(batch, first)
                first += batch.num_rows
            if first != len(out):
                raise FileError(f"{self.name} has {first} rows, {len(out)} were announced.")
        return out

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None); row groups before ``start`` are not read."""
        assert self.n_rows is not None
        stop = self.n_rows if stop is None else stop
        if self.shared:
            with reading(Path(self.name), "parquet"):
                yield from self._ranges(start, stop, step)
        else:
            self._copy = self._copy or self._copied()
            yield from self._copy.blocks(start, stop, step)

    def _ranges(self, start: int, stop: int, step: int) -> Blocks:
        """Rows start … stop of Parquet files, a row group at a time."""
        end = 0
        for fragment in self._dataset().get_fragments():
            for part in fragment.split_by_row_group():
                at, end = end, end + part.row_groups[0].num_rows
                if end > start and at < stop:
                    for batch in part.to_batches(columns=self.columns, batch_size=step):
                        low, high = max(start - at, 0), min(stop - at, batch.num_rows)
                        if high > low:
                            rows = self._matrix(batch.slice(low, high - low), at + low)
                            yield at + low, rows, None
                        at += batch.num_rows

    def _copied(self) -> ArrayReader:
        """The features in a temporary file, as many columns at a time as fit."""
        folder = tempfile.TemporaryDirectory(prefix="semfs-")
        path, shape = Path(folder.name) / "features", (self.n_rows or 0, self.n_features)
        width = shape[1]
        if self.kind == "parquet":
            width = max(1, BLOCK_BYTES // (8 * self.largest_group))
        with path.open("wb") as file:
            for part in spans(shape[1], width):
                first = 0
                for batch in self.scan(self.columns[part]):
                    self._matrix(batch, first).tofile(file)
                    first += batch.num_rows
        return ArrayReader(partial(Slabs, path, shape, self.dtype, width), self.path, folder)

    def _matrix(self, batch: Any, first: int) -> np.ndarray:
        """The columns of a batch as one matrix."""
        out = np.empty((batch.num_rows, batch.num_columns), dtype=self.dtype)
        for place, name in enumerate(batch.schema.names):
            out[:, place] = self._numbers(name, batch.column(place), first)
        return out

    def _numbers(self, name: str, column: Any, first: int) -> np.ndarray:
        numbers = np.asarray(column.to_numpy(zero_copy_only=False), dtype=self.dtype)
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            row = int(wrong.argmax())
            found = f"{numbers[row]:g}" if column[row].is_valid else "no value"
            raise FileError(
                f"{self.name}: {found} in column {name!r}, row {first + row + 1} "
                f"({wrong.sum()} in all). Fill the gaps, or name the column in drop."
            )
        return numbers

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_copy": None}


@dataclass(frozen=True)
class Slabs:
    """A matrix in a file, some columns of all rows after the others; read, not mapped."""

    path: Path
    shape: tuple[int, int]
    dtype: np.dtype
    width: int

    def __getitem__(self, rows: slice) -> np.ndarray:
        out = np.empty((rows.stop - rows.start, self.shape[1]), dtype=self.dtype)
        for part in spans(self.shape[1], self.width):
            place = part.start * self.shape[0] + rows.start * (part.stop - part.start)
            size, offset = out[:, part].size, place * self.dtype.itemsize
            values = np.fromfile(self.path, self.dtype, size, offset=offset)
            out[:, part] = values.reshape(len(out), -1)
        return out


# ---- columns ----------------------------------------------------------------------------


def _is_number(kind: Any) -> bool:
    types = need("pyarrow").types
    tests = (types.is_floating, types.is_integer, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _stored_type(kind: Any) -> Any:
    floating = need("pyarrow").types.is_floating(kind)
    return kind.to_pandas_dtype() if floating else np.float64


def _pandas_index(schema: Any) -> list[str]:
    """Columns in which pandas keeps the index of a frame."""
    found = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in found if isinstance(name, str)]


def _check_known(path: Any, name: str, names: list[str]) -> None:
    if name not in names:
        hint = did_you_mean(name, names) or "."
        shown = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
        raise FileError(f"{path} has no column {name!r}{hint} Found: {shown}.")


# ---- text -------------------------------------------------------------------------------


def _csv_options(path: Any, types: dict[str, Any] | None = None) -> tuple[Any, Any, Any]:
    """How to read and parse a text file, and turn its columns into these types."""
    import pyarrow.csv as pc

    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        header = file.readline(2**24).decode("utf-8-sig", "replace")
    block = min(max(BLOCK_BYTES, 64 * len(header)), 2**30)  # a row must fit in
    delimiter = max(",;\t", key=header.count)
    return (
        pc.ReadOptions(block_size=block, use_threads=False),
        pc.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        pc.ConvertOptions(column_types=types, strings_can_be_null=False),
    )


def _refuse_broken_numbers(path: Path, head: Any) -> None:
    """A text column that is mostly numbers is a column of numbers with a mistake in it."""
    types = need("pyarrow").types
    for name, column in zip(head.schema.names, head.columns):
        cells = column.to_pylist() if types.is_string(column.type) else []
        bad = [i for i, cell in enumerate(cells) if not _is_written_number(cell)]
        if 0 < len(bad) < 0.5 * len(cells) and len(set(cells)) > 0.5 * len(cells):
            raise FileError(
                f"{path}: column {name!r} holds {cells[bad[0]]!r} in row {bad[0] + 1} among "
                "numbers. Correct it, or name the column in drop."
            )


def _is_written_number(cell: str) -> bool:
    try:
        float(cell)  # pandas.to_numeric crashes on "1e999999999999"
    except ValueError:
        return False
    return True
