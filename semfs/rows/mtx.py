"""Matrix Market files (.mtx, .mtx.gz) of genes × cells, as 10x Genomics and others write them.

They are parsed once, in parts, into temporary files that vanish with their reader.
"""

import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from semfs.files import FileError, check_declared_size, memory_limit, size_text, unpacked
from semfs.rows.readers import BLOCK_BYTES, Reader, Spilled
from semfs.rows.sparse import SparseReader, distinct

LONGEST_LINE, MOST_COMMENTS = 2**16, 1000
_NUMBERS = b"0123456789+-.eE \t\r\n"  # what they are made of, and what is between them


class Header(NamedTuple):
    n_genes: int
    n_cells: int
    n_entries: int
    kind: str
    n_lines: int  # of the header itself


def mtx_reader(path: Path) -> Reader:
    """Return a reader of cells and their genes, whose names may be in the same folder."""
    header = _header(path)
    arrays, shape = partial(_arrays, path, header), (header.n_cells, header.n_genes)
    out = SparseReader(arrays, shape, path=path)
    out.shared = False  # each process would parse it all
    out.feature_names = _names(path, header.n_genes)
    return out


def _header(path: Path) -> Header:
    from scipy.io import mminfo

    with unpacked(path) as file:
        lines = [file.readline(LONGEST_LINE)]
        while lines[-1].startswith((b"%", b"\n", b"\r")) and len(lines) < MOST_COMMENTS:
            lines.append(file.readline(LONGEST_LINE))
    d, n, n_entries, form, kind, symmetry = mminfo(io.BytesIO(b"".join([*lines, b"\n"])))
    if (form, symmetry) != ("coordinate", "general") or kind == "complex":
        raise FileError(
            f"{path}: a sparse matrix ('coordinate', of 'real', 'integer' or 'pattern', and "
            f"'general') was expected, got '{form} {kind} {symmetry}'. Write it as such."
        )
    size = path.stat().st_size
    check_declared_size(path, f"a matrix of {n} cells", 8 * n, size)
    check_declared_size(
        path, f"a matrix of {n_entries} values", 8 * n_entries, size, held=False
    )
    return Header(d, n, n_entries, kind, len(lines))


def _arrays(path: Path, header: Header) -> tuple[Any, Any, np.ndarray]:
    """Values of the cells, their genes (places of), and where each cell begins (n + 1,)."""
    values, genes = Spilled(np.float32), Spilled(np.int32)
    starts, last = np.zeros(header.n_cells + 1, dtype=np.int64), 0
    for data, rows, cells in _entries(path, header):
        if cells[0] < last or (np.diff(cells) < 0).any():
            return _sorted(path, header)
        values.append(data)
        genes.append(rows)
        last = cells[-1]
        starts[cells[0] + 1 : last + 2] += np.bincount(cells - cells[0])
    return values, genes, np.cumsum(starts)


def _sorted(path: Path, header: Header) -> tuple[Any, Any, np.ndarray]:
    """The same in memory, of entries that are not in the order of cells."""
    size, shape = 24 * header.n_entries, (header.n_cells, header.n_genes)
    if size > memory_limit():
        raise FileError(
            f"{path}: its entries are not in the order of cells, and to sort them takes "
            f"{size_text(size)}, more than this machine's memory. Sort all lines but the first "
            f"{header.n_lines} by their second number (sort -n -k 2), or write it as .h5ad."
        )
    data, genes, cells = map(np.concatenate, zip(*_entries(path, header)))
    X = sp.coo_array((data, (cells, genes)), shape=shape).tocsr()
    return X.data, X.indices, X.indptr


def _entries(path: Path, header: Header) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield values, genes and cells of entries, in parts; all of them are as announced."""
    n_found = 0
    with unpacked(path) as file:
        for _ in range(header.n_lines):
            file.readline(LONGEST_LINE)
        while n_found <= header.n_entries and (text := file.read(BLOCK_BYTES)):
            text = (text + file.readline(LONGEST_LINE)).strip()
            while b"\n\n" in text:
                text = text.replace(b"\n\n", b"\n")
            if text:
                part = _parsed(path, header, header.n_lines + n_found, text)
                n_found += len(part[0])
                yield part
    if n_found != header.n_entries:
        found = f"only {n_found}" if n_found < header.n_entries else "more"
        announced = f"{header.n_entries} entries were announced, but there are {found}"
        raise FileError(f"{path}: {announced}. It may be damaged: copy or download it again.")


@np.errstate(over="ignore")
def _parsed(path: Path, header: Header, n_lines: int, text: bytes) -> tuple[np.ndarray, ...]:
    """The entries of some lines, after ``n_lines`` others."""
    from scipy.io import mmread

    d, n, *_ = header
    kind = "pattern" if header.kind == "pattern" else "real"
    size = text.count(b"\n") + 1
    head = f"%%MatrixMarket matrix coordinate {kind} general\n{d} {n} {size}\n"
    try:
        if wrong := text.translate(None, _NUMBERS)[:1]:
            line = 3 + text.count(b"\n", 0, text.index(wrong))
            raise ValueError(f"Line {line}: {wrong.decode('latin-1')!r} is in no number.")
        # without a last line break the parser may run on into other memory
        found = mmread(io.BytesIO(head.encode() + text + b"\n"), spmatrix=False)
        data = found.data.astype(np.float32)
        if not np.isfinite(data).all():
            raise ValueError(f"Line {3 + np.argmin(np.isfinite(data))}: too large a number.")
    except (ValueError, OverflowError) as error:
        own = re.compile("Line ([0-9]+)")
        reason = own.sub(lambda m: f"line {int(m[1]) - 2 + n_lines}", str(error)).rstrip(".")
        raise FileError(
            f"{path}: {reason}. Each line has a gene (1 to {d}), a cell (1 to {n}) and, unless "
            "it is a pattern, a finite number. Correct it, or download the file again."
        ) from error
    return data, found.row, found.col


def _names(path: Path, d: int) -> list[str] | None:
    """Names of the genes from features.tsv or genes.tsv in the same folder, made distinct."""
    for name in ("features.tsv", "features.tsv.gz", "genes.tsv", "genes.tsv.gz"):
        found = path.with_name(name)
        if found.exists():
            with unpacked(found) as file:
                rows = [line.decode().rstrip("\r\n").split("\t") for line in file]
            if len(rows) == d:
                return distinct([row[min(1, len(row) - 1)] for row in rows])
    return None
