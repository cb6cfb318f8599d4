"""HDF5 and Zarr files, read without trust, and AnnData: in them, in memory, or backed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.io.probe import probe_ok
from semfs.io.reader import ArrayReader, Reader
from semfs.io.safety import DAMAGED, FileError, check_declared_size, file_errors, stored_size
from semfs.io.sparse import SparseReader, array_reader, distinct
from semfs.labels import Labels
from semfs.system import import_optional

try:
    from deflate import zlib_decompress  # beside others, and faster than HDF5's own
except ImportError:
    zlib_decompress = None  # type: ignore[assignment]


def is_zarr(path: Path) -> bool:
    """Whether this is a Zarr array or group."""
    marks = ("zarr.json", ".zarray", ".zgroup")
    return path.suffix.lower() == ".zarr" or any((path / mark).exists() for mark in marks)


def opened(path: Path) -> Any:
    """Return an HDF5 file, or a Zarr group or array."""
    if is_zarr(path):
        return import_optional("zarr", "data", what=str(path)).open(str(path), mode="r")
    h5py = import_optional("h5py", "data", what=str(path))
    if not probe_ok(path):
        text = "the HDF5 library crashed on it, or came to no end. Copy or download it again."
        raise FileError(f"{path} is damaged: {text}")
    return h5py.File(path, "r")


def node(path: Path, name: str) -> Any:
    """Return an array or group in a file; links, which may lead elsewhere, are not followed."""
    found = opened(path)
    for part in name.strip("/").split("/") if name else ():
        if not hasattr(found, "keys") or part not in _own_names(path, found):
            there = ", ".join(found) or "nothing" if hasattr(found, "keys") else "one array"
            raise FileError(f"{path} has no array {name!r}, only {there}; links not followed.")
        found = found[part]
    return found


def group_reader(path: Path, key: str | None) -> Reader:
    """Return a reader of a matrix, dense or sparse, in an HDF5 file or a Zarr group."""
    with file_errors(path, "HDF5"):
        key = _matrix_name(path) if key is None else key
        if hasattr(node(path, key), "shape"):
            return ArrayReader(partial(open_array, path, key), path)
        return sparse_reader(path, key)


def _matrix_name(path: Path) -> str:
    """X, or the only matrix there is."""
    found = opened(path)
    names = [""] if hasattr(found, "shape") else _own_names(path, found)
    matrices = [name for name in names if _is_matrix(node(path, name))]
    if "X" not in matrices and len(matrices) != 1:
        there = ", ".join(names) or "nothing"
        raise FileError(f"{path} holds {there}: say which is the matrix with key=...")
    return "X" if "X" in matrices else matrices[0]


def _is_matrix(found: Any) -> bool:
    return len(found.shape) == 2 if hasattr(found, "shape") else "indptr" in found


def _own_names(path: Path, group: Any) -> list[str]:
    if is_zarr(path):
        return list(group)
    hard = import_optional("h5py").HardLink
    return [name for name in group if isinstance(group.get(name, getlink=True), hard)]


def texts(path: Path, name: str) -> np.ndarray:
    """Return an array that is held, text as such."""
    array = open_array(path, name, held=True)
    text = hasattr(array, "asstr") and array.dtype.kind in "OS"
    return array.asstr()[:] if text else array[:]


def open_array(path: Path, name: str, *, held: bool = False) -> Any:
    """An array of a file, if it is local and of a credible size; what is ``held`` must fit."""
    found = node(path, name)
    if not hasattr(found, "shape"):
        raise FileError(f"{path}: {name} is a group; an array was expected.")
    if getattr(found, "external", None) or getattr(found, "is_virtual", False):
        raise FileError(f"{path}: {name} takes its data from other files; it is not read.")
    if found.shape is None:
        raise FileError(f"{path}: {name} is empty.")
    declared = math.prod(found.shape) * found.dtype.itemsize
    stored = stored_size(path / name) if is_zarr(path) else found.id.get_storage_size()
    check_declared_size(path, name, declared, stored, held=held)
    if not is_zarr(path) and found.chunks:  # HDF5 takes kilobytes for each, there or not
        n = math.prod(-(-length // side) for length, side in zip(found.shape, found.chunks))
        if n > 1000 + 10 * found.id.get_num_chunks():
            raise FileError(f"{path}: {name} declares {n} chunks; most of them are missing.")
    return found


def sparse_reader(path: Path, name: str) -> SparseReader:
    """Return a reader of a sparse matrix as AnnData and 10x Genomics write them."""
    group = node(path, name)
    kind = str(group.attrs.get("encoding-type", "10x"))
    if "indptr" not in group or not kind.startswith(("csr", "csc", "10x")):
        raise FileError(f"{path}: {name} is no matrix.")
    if kind == "10x":  # genes × cells, by columns: cells × genes by rows
        shape = open_array(path, f"{name}/shape", held=True)[:][::-1]
    else:
        shape = group.attrs.get("shape")
    if shape is None or len(shape) != 2:
        raise FileError(f"{path}: {name} has no shape of two numbers.")
    open_arrays = partial(_sparse_arrays, path, name)
    out = SparseReader(open_arrays, shape, by_columns=kind.startswith("csc"), path=path)
    names = "gene_names" if "gene_names" in group else "features/name"
    if kind == "10x" and names in group:
        found = texts(path, f"{name}/{names}")
        out.feature_names = distinct(found) if len(found) == out.n_features else None
    return out


def _sparse_arrays(path: Path, name: str) -> tuple[Any, ...]:
    names = [f"{name}/{part}" for part in ("data", "indices", "indptr")]
    arrays = [open_array(path, part) for part in names]
    chunks = arrays[1]  # of Zarr; one that is not there would be the first column throughout
    if is_zarr(path) and (missing := chunks.nchunks - chunks.nchunks_initialized):
        lost = f"{missing} of {chunks.nchunks} chunks of {names[1]} are missing"
        raise FileError(f"{path}: {lost}. {DAMAGED}")
    return tuple(_unpacked(array, path / part) for array, part in zip(arrays, names))


def _unpacked(array: Any, folder: Path) -> Any:
    """An array (n,) whose chunks threads may unpack at the same time, where we know how."""
    if array.ndim != 1 or array.dtype.kind not in "fiu" or not array.chunks:
        return array
    if hasattr(array, "id"):
        deflated = array.compression == "gzip" and zlib_decompress is not None
        alone = array.id.get_create_plist().get_nfilters() == 1
        whole = array.id.get_num_chunks() == -(-len(array) // array.chunks[0])
        usable = deflated and alone and whole
        return Chunks(array, partial(_inflated, array)) if usable else array
    codec = _zarr_codec(array)
    if codec not in ("blosc", "zstd") or array.dtype.byteorder == ">":
        return array
    decode = (
        import_optional("numcodecs", "data", what=str(folder)).get_codec({"id": codec}).decode
    )
    return Chunks(array, partial(_file_decoded, array, folder, decode))


def _zarr_codec(array: Any) -> Any:
    """The name of what alone compresses the chunks of a Zarr array, or None."""
    if not hasattr(array, "metadata"):  # zarr 2
        return None
    found = array.metadata.to_dict()
    if found["zarr_format"] == 2:
        return None if found["filters"] else (found["compressor"] or {}).get("id")
    first, *rest = (codec["name"] for codec in found["codecs"])
    return rest[0] if first == "bytes" and len(rest) == 1 else None


def _inflated(dataset: Any, at: int) -> Any:
    skipped, raw = dataset.id.read_direct_chunk((at * dataset.chunks[0],))
    return None if skipped else zlib_decompress(raw, dataset.chunks[0] * dataset.dtype.itemsize)


def _file_decoded(array: Any, folder: Path, decode: Callable, at: int) -> Any:
    file = folder / array.metadata.encode_chunk_key((at,))
    return decode(file.read_bytes()) if file.is_file() else None


class Chunks:
    """An array (n,) in chunks, whose bytes a function of their number unpacks, or None."""

    def __init__(self, array: Any, unpack: Callable) -> None:
        self.array, self.unpack, self.size = array, unpack, array.chunks[0]
        self.dtype, self.shape = array.dtype, array.shape

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(*self.shape)
        out = np.empty(stop - start, dtype=self.dtype)

        for at in range(start // self.size, -(-stop // self.size)):
            first = at * self.size
            low, high = max(first, start), min(first + self.size, stop)
            out[low - start : high - start] = self._chunk(at)[low - first : high - first]
        return out

    def _chunk(self, at: int) -> np.ndarray:
        values, size = self.unpack(at), self.size * self.dtype.itemsize
        if values is None:  # stored in another way, or not at all
            return self.array[at * self.size : (at + 1) * self.size]
        if len(values) != size:
            raise FileError(f"a chunk holds {len(values)} bytes, {size} expected.")
        return np.frombuffer(values, self.dtype)


def view(
    adata: Any, layer: str | None = None, use_raw: bool = False, gene_symbols: str | None = None
) -> GeneMatrix:
    """Return one matrix of an AnnData object, to be passed wherever the object may be.

    Parameters
    ----------
    adata : AnnData
        In memory or backed; nothing is copied or read yet.
    layer : str, optional
        Layer to take instead of ``X``; ``"raw"`` is the same as ``use_raw=True``.
    use_raw : bool, default=False
        Whether to take ``adata.raw``, with its genes.
    gene_symbols : str, optional
        Column of ``var`` with the names of the genes, by default the index. A gene without
        one keeps its own; of names that occur twice the second gets ``-1``.

    Examples
    --------
    >>> import anndata, semfs
    >>> cells = anndata.AnnData(np.zeros((4, 2)), obs={"type": ["b", "b", "t", "t"]})
    >>> cells.layers["log"] = np.array([[1.0, 3.0], [2.0, 3.1], [1.0, 0.0], [2.0, 0.1]])
    >>> cells.var["symbol"] = ["ACTB", "CD19"]
    >>> genes = view(cells, layer="log", gene_symbols="symbol")
    >>> semfs.SemFS(1).fit(genes, "type").get_feature_names_out()
    array(['CD19'], dtype=object)
    """
    if use_raw and layer not in (None, "raw"):
        raise ValueError(f"layer={layer!r} and use_raw=True: give one of the two.")
    use_raw = use_raw or (layer == "raw" and "raw" not in adata.layers)
    missing = adata.raw is None if use_raw else layer is not None and layer not in adata.layers
    if missing:
        found = ", ".join([*adata.layers, *(["raw"] if adata.raw is not None else [])])
        name = "raw" if use_raw else f"layer {layer!r}"
        raise ValueError(f"the AnnData object has no {name}; layers: {found or 'none'}.")
    out = GeneMatrix(adata, None if use_raw else layer, use_raw, gene_symbols)
    if gene_symbols is not None and gene_symbols not in out.var:
        found = ", ".join(map(str, out.var.columns[:8])) or "none"
        raise ValueError(f"var has no column {gene_symbols!r}; found: {found}.")
    return out


def as_genes(data: Any) -> GeneMatrix | None:
    """Return an AnnData object, known by its looks, as its X; None for all other data."""
    if isinstance(data, GeneMatrix):
        return data
    looks = all(hasattr(type(data), name) for name in ("obs", "var", "X"))
    return GeneMatrix(data, None, False, None) if looks else None


@dataclass(frozen=True, eq=False)
class GeneMatrix:
    """X, a layer or raw of an AnnData object; made by `view`."""

    adata: Any
    layer: str | None
    use_raw: bool
    gene_symbols: str | None

    @property
    def var(self) -> Any:
        return (self.adata.raw if self.use_raw else self.adata).var

    @property
    def names(self) -> list[str]:
        names = self.var.index.to_series()
        if self.gene_symbols is not None:
            names = self.var[self.gene_symbols].astype(object).fillna(names)
        return distinct(names)

    def labels(self, column: str) -> Labels:
        """Return the labels of the cells in a column of ``obs``; missing ones are none."""
        if column not in self.adata.obs:
            found = ", ".join(map(str, list(self.adata.obs)[:8]))
            raise ValueError(f"obs has no column {column!r}; found: {found}.")
        return Labels.of(self.adata.obs[column].array).strip_blank()

    def reader(self) -> Reader:
        """Return a reader of the cells in blocks."""
        X = (self.adata.raw if self.use_raw else self.adata).X
        X = X if self.layer is None else self.adata.layers[self.layer]
        if hasattr(X, "group"):  # backed and sparse
            out: Reader = sparse_reader(Path(X.group.file.filename), X.group.name)
        else:
            out = array_reader(X)
        out.feature_names, out.of_cells = self.names, True
        return out

    def keep(self, columns: np.ndarray) -> Any:
        """Return the AnnData object with some genes (k,) alone; of raw, a new one."""
        if not self.use_raw:
            return self.adata[:, columns]
        reader, parts = self.reader(), ("obs", "uns", "obsm", "obsp")
        blocks = [X[:, columns] for _, X, _ in reader.blocks(0, None, reader.usual_step)]
        return import_optional("anndata").AnnData(
            sp.csr_matrix(sp.vstack(blocks)) if reader.sparse else np.vstack(blocks),
            var=self.var.iloc[columns].copy(),
            **{name: getattr(self.adata, name).copy() for name in parts},
        )


def file_reader(path: Path, layer: str | None) -> Reader:
    """Return a reader of X, a layer or "raw" of an AnnData file (.h5ad, .zarr)."""
    file = opened(path)
    raw = layer == "raw" and "raw" in file
    name = "raw/X" if raw else "X" if layer is None else f"layers/{layer}"
    if name not in file:
        layers = list(file.get("layers", {})) + (["raw"] if "raw" in file else [])
        name = "raw" if layer == "raw" else name
        raise FileError(f"{path} has no {name}; layers: {', '.join(layers) or 'none'}.")
    out = group_reader(path, name)
    out.frame, out.of_cells = "raw/var" if raw else "var", True
    out.feature_names = distinct(file_column(path, out.frame, None))
    return out


def file_column(path: Path, frame: str, column: str | None) -> Any:
    """Return a column of ``obs`` or ``var`` of a file as pandas has it; None: the index."""
    io = import_optional("anndata.io", "data", what=str(path))
    group = opened(path).get(frame)
    if not hasattr(group, "keys"):
        raise FileError(f"{path} is no AnnData file (of 0.7 or later): no group {frame!r}.")
    name = str(group.attrs.get("_index", "_index")) if column is None else column
    if name not in group:
        names = ", ".join(str(n) for n in group.attrs.get("column-order", list(group)))
        what = f"has no {frame} column {name!r}" if name else f"needs a column of {frame} as y"
        raise FileError(f"{path} {what}; found: {names or 'none'}.")
    found = node(path, f"{frame}/{name}")
    for part in found if hasattr(found, "keys") else [""]:
        open_array(path, f"{frame}/{name}/{part}".rstrip("/"), held=True)
    if "categories" in found.attrs:  # AnnData 0.7
        return io.read_elem(group)[name].array
    return io.read_elem(found)


def check_counts(reader: Reader, normalize: bool) -> None:
    """Say what to do if cells hold counts, or no logarithms, but should not, or do not."""
    found = reader.some_values()
    known = len(found) and found.min() >= 0 and np.isfinite(found.max())
    found = found if known else np.zeros(1)
    top, middle = float(found.max()), float(np.median(found))
    whole = bool((found == np.floor(found)).all()) and top > 0
    # Logarithms do not reach 50, and other measurements seldom have so long a tail.
    unlogged = not whole and top > 50 and top > 20 * middle
    if normalize and known and not (whole or unlogged):
        message = 'normalize="log1p" expects counts, but there are other numbers; leave it out.'
        warnings.warn(message, stacklevel=3)
    elif not normalize and (unlogged or (whole and (top > 30 or top > 8 * found.mean()))):
        what = "raw counts (whole numbers" if whole else "no logarithms (numbers"
        message = (
            f"the cells hold {what} up to {top:.0f}), among which the genes of highest "
            'expression win. Normalize them on the fly: normalize="log1p" (of open_blocks, '
            "load_table and select_genes); or name a layer that went through "
            "sc.pp.normalize_total and sc.pp.log1p (layer=...)."
        )
        warnings.warn(message, stacklevel=3)
