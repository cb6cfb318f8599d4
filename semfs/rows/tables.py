"""Readers of formats that hold labels too: Parquet, AnnData, and (X, y) blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.rows.memory import as_matrix
from semfs.rows.readers import Blocks, Reader, digest, file_state, import_extra, working_dtype
from semfs.validation import label_array

__all__ = ["AnnDataReader", "BlocksReader", "ParquetReader"]


class ParquetReader(Reader):
    """A Parquet file or folder: a column per feature, or one column of lists; and labels."""

    def __init__(self, path: Any, label: str | None, columns: list[str] | None = None) -> None:
        self.path, self.label = Path(path).resolve(), label
        self.has_labels = label is not None
        dataset = self._dataset()
        schema, pa = dataset.schema, import_extra("pyarrow", "data")
        if label is not None and label not in schema.names:
            raise ValueError(f"{path} has no column {label!r}, only {_some(schema.names)}.")
        names = columns or [name for name in schema.names if name != label]
        fields = [schema.field(name) for name in names]
        groups = [g for f in dataset.get_fragments() for g in f.row_groups]
        self.n_rows = sum(g.num_rows for g in groups)
        self.lists = len(fields) == 1 and _is_list(pa, fields[0].type)
        self.columns = names
        if self.lists:
            self.n_features = self._list_length(dataset, names[0], fields[0].type)
            self.dtype = working_dtype(fields[0].type.value_type.to_pandas_dtype())
        else:
            self.n_features, self.feature_names = len(names), names
            self.dtype = _common_dtype(path, pa, fields)
        self.row_bytes = self.n_features * self.dtype.itemsize

    def _dataset(self) -> Any:
        import_extra("pyarrow", "data")
        import pyarrow.dataset as ds

        return ds.dataset(self.path, format="parquet", partitioning="hive")

    def _list_length(self, dataset: Any, name: str, kind: Any) -> int:
        size = getattr(kind, "list_size", -1)
        first = dataset.head(1, columns=[name]).column(0)
        return size if size > 0 else len(first[0])

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels or None); row groups before ``start`` are not read."""
        assert self.n_rows is not None
        stop = self.n_rows if stop is None else stop
        wanted = [*self.columns, self.label] if self.label else self.columns
        first = start
        pieces = self._pieces(start, stop, step, wanted)
        for table in _joined(pieces, step):
            yield first, self._matrix(table), self._labels(table)
            first += table.num_rows

    def _pieces(self, start: int, stop: int, step: int, columns: list[str]) -> Iterator[Any]:
        """Tables of at most ``step`` rows that cover start … stop."""
        import pyarrow as pa

        begin = 0
        for fragment in self._dataset().get_fragments():
            for part in fragment.split_by_row_group():
                end = begin + part.row_groups[0].num_rows
                if end > start and begin < stop:
                    at = begin
                    for batch in part.to_batches(columns=columns, batch_size=step):
                        low, high = max(start - at, 0), min(stop - at, batch.num_rows)
                        if high > low:
                            yield pa.Table.from_batches([batch.slice(low, high - low)])
                        at += batch.num_rows
                begin = end

    def _matrix(self, table: Any) -> np.ndarray:
        if self.lists:
            chunk = table.column(self.columns[0]).combine_chunks()
            flat = chunk.flatten().to_numpy(zero_copy_only=False)
            if flat.size != table.num_rows * self.n_features:
                raise ValueError(
                    f"{self.path}: the lists in {self.columns[0]!r} are not all of length "
                    f"{self.n_features}."
                )
            return flat.reshape(-1, self.n_features).astype(self.dtype)
        out = np.empty((table.num_rows, self.n_features), dtype=self.dtype)
        for place, name in enumerate(self.columns):
            out[:, place] = table.column(name).to_numpy()
        return out

    def _labels(self, table: Any) -> Any:
        if self.label is None:
            return None
        values = table.column(self.label).to_pylist()
        return label_array(values)

    def labels(self) -> Iterator[np.ndarray]:
        """Yield the labels; only their column is read."""
        assert self.n_rows is not None
        for table in self._pieces(0, self.n_rows, 2**16, [self.label or ""]):
            yield label_array(table.column(0).to_pylist())

    def fingerprint(self) -> str:
        """Return a text that changes when the files change."""
        return digest(file_state(self.path), self.label, self.columns)


def _is_list(pa: Any, kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


def _common_dtype(path: Any, pa: Any, fields: list) -> np.dtype:
    for field in fields:
        number = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        if not (number or pa.types.is_boolean(field.type)):
            raise ValueError(
                f"{path}: column {field.name!r} holds {field.type}, not numbers. Name it as "
                "the label, or choose the features with columns=[...]."
            )
    return working_dtype(*{np.dtype(field.type.to_pandas_dtype()) for field in fields})


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" ... ({len(names)} in all)" if len(names) > 5 else "")


def _joined(tables: Iterator[Any], step: int) -> Iterator[Any]:
    """Join small tables to blocks of at most ``step`` rows."""
    waiting: list[Any] = []
    for table in tables:
        if waiting and sum(t.num_rows for t in waiting) + table.num_rows > step:
            yield _concat(waiting)
            waiting = []
        waiting.append(table)
    if waiting:
        yield _concat(waiting)


def _concat(tables: list[Any]) -> Any:
    import pyarrow as pa

    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


class AnnDataReader(Reader):
    """An AnnData object or ``.h5ad`` file: X dense or CSR, labels in a column of obs."""

    def __init__(self, data: Any, label: str | None) -> None:
        if isinstance(data, (str, Path)):
            data = import_extra("anndata", "data").read_h5ad(data, backed="r")
        self.data, self.label = data, label
        self.has_labels = label is not None
        if label is not None and label not in data.obs:
            raise ValueError(f"obs has no column {label!r}, only {_some(list(data.obs))}.")
        self.n_rows, self.n_features = data.shape
        self.feature_names = [str(name) for name in data.var_names]
        first = data.X[:1]
        self.sparse = sp.issparse(first)
        if getattr(data.X, "format", "csr") == "csc":
            raise ValueError(
                "X is stored by columns (CSC): rows cannot be read in blocks. Store it as "
                "CSR, or read it into memory."
            )
        self.dtype = working_dtype(first.dtype)
        self.ours = bool(data.isbacked)
        self.row_bytes = self.n_features * self.dtype.itemsize
        if self.sparse:
            self.row_bytes = 1 + self._n_stored() * (self.dtype.itemsize + 8) // data.shape[0]

    def _n_stored(self) -> int:
        X = self.data.X
        return int(X.nnz if hasattr(X, "nnz") else X.group["data"].shape[0])

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels or None)."""
        assert self.n_rows is not None
        stop = self.n_rows if stop is None else stop
        for first in range(start, stop, step):
            last = min(first + step, stop)
            X = self.data.X[first:last]
            X = sp.csr_array(X, dtype=self.dtype) if self.sparse else np.asarray(X, self.dtype)
            yield first, X, self._obs(first, last)

    def _obs(self, first: int, last: int) -> Any:
        return None if self.label is None else self.data.obs[self.label][first:last].to_numpy()

    def labels(self) -> Iterator[np.ndarray]:
        """Yield the labels."""
        assert self.n_rows is not None
        yield self._obs(0, self.n_rows)

    def fingerprint(self) -> str:
        """Return a text that changes when the file, or first or last row, change."""
        state = file_state(self.data.filename) if self.data.isbacked else None
        ends = [self.data.X[rows] for rows in (slice(0, 1), slice(self.n_rows - 1, None))]  # type: ignore[operator]
        ends = [end.toarray() if sp.issparse(end) else np.asarray(end) for end in ends]
        return digest(state, self.data.shape, self.label, *ends)

    def __getstate__(self) -> dict:
        if not self.data.isbacked:
            return self.__dict__
        return self.__dict__ | {"data": str(self.data.filename)}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        if isinstance(self.data, str):
            self.data = import_extra("anndata", "data").read_h5ad(self.data, backed="r")


class BlocksReader(Reader):
    """(X, y) pairs from an iterable, or from a function that returns a fresh iterator."""

    has_labels = True
    ours = False

    def __init__(self, blocks: Any) -> None:
        self.again = callable(blocks) or iter(blocks) is not iter(blocks)
        self.rereadable = self.again
        self.source = blocks
        iterator = self._fresh()
        first = next(iterator, None)
        if first is None:
            raise ValueError("there are no blocks. Pass (X, y) pairs.")
        self.waiting = itertools.chain([first], iterator)
        X = self._pair(first)[0]
        self.n_features, self.dtype = X.shape[1], X.dtype
        self.sparse = sp.issparse(X)
        self.row_bytes = X.shape[1] * X.dtype.itemsize
        if sp.issparse(X):
            self.row_bytes = 1 + X.nnz * (X.dtype.itemsize + 8) // X.shape[0]
        names = getattr(first[0], "columns", None)
        self.feature_names = None if names is None else [str(name) for name in names]

    def _fresh(self) -> Iterator[Any]:
        return iter(self.source() if callable(self.source) else self.source)

    def _pair(self, pair: Any) -> tuple[Any, Any]:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"blocks must be (X, y) pairs, got {type(pair).__name__}.")
        return as_matrix(pair[0]), pair[1]

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels); ``step`` is up to those who make the blocks."""
        iterator = self._fresh() if self.again else self.waiting
        first = 0
        for X, y in map(self._pair, iterator):
            if X.shape[1] != self.n_features:
                raise ValueError(
                    f"a block of rows has {X.shape[1]} columns, those before had "
                    f"{self.n_features}. All blocks must have the same columns."
                )
            if sp.issparse(X) != self.sparse:
                X = sp.csr_array(X) if self.sparse else X.toarray()
            if first + X.shape[0] > start:
                skip = max(0, start - first)
                yield first + skip, X[skip:], np.asarray(y)[skip:] if skip else y
            first += X.shape[0]

    def fingerprint(self) -> str:
        """Refuse: blocks have no identity."""
        raise ValueError(
            "a checkpoint needs data that can be recognised and continued in the middle. "
            "Write the blocks to a file (.npy, Parquet, Zarr), or leave the checkpoint out."
        )
