"""Matrix Market files (.mtx, .mtx.gz) of genes × cells, alone or in a 10x Genomics folder.

A file is parsed once, in blocks of text, into temporary files that are removed with the reader.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from semfs.io import reader as readers
from semfs.io.reader import Reader, Request, TempArray
from semfs.io.safety import FileError, check_declared_size, check_memory, file_errors, unpacked
from semfs.io.sparse import SparseArrays, SparseReader
from semfs.io.tenx import add_names_beside, matrix_in_folder

#: Bytes of the longest line that is read. Entries have 40 at most, comments may have more.
LONGEST_LINE = 2**16
#: Lines of the longest header.
MOST_COMMENTS = 1000
#: Bytes of an entry while entries are sorted: value, row, column, and a copy of them.
SORTING_BYTES = 24
#: Characters of numbers and of what is between them.
_NUMERIC = b"0123456789+-.eE \t\r\n"
#: Values, rows and columns of entries, (m,) each.
Entries = tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any]]


def is_tenx_folder(folder: Path) -> bool:
    """Return whether a folder holds the matrix of 10x Genomics' Cell Ranger."""
    return matrix_in_folder(folder) is not None


def open_mtx(path: Path, request: Request) -> tuple[Reader, None]:
    """Return a reader of cells × genes. Labels are never in the same file.

    ``path`` is the matrix file, or a 10x folder.
    """
    matrix = matrix_in_folder(path) if path.is_dir() else path
    assert matrix is not None  # `is_tenx_folder` was asked
    request.refuse_key(path)
    with file_errors(matrix, "Matrix Market"):
        reader = mtx_reader(matrix)
    # Cell Ranger writes raw counts. A matrix by itself may be anything.
    reader.of_cells = path.is_dir()
    return reader, None


def mtx_reader(path: Path, block_bytes: int | None = None) -> Reader:
    """Return a reader of cells × genes, with names from the same folder if present.

    The text is parsed in blocks of ``block_bytes``, by default `BLOCK_BYTES`.
    """
    file = MtxFile(path, block_bytes)
    reader = SparseReader(file.arrays, file.shape, path=path)
    reader.shared = False  # each process would parse all of it
    add_names_beside(reader, path)
    return reader


class MtxFile:
    """A Matrix Market file of genes × cells, which is read as cells × genes."""

    def __init__(self, path: Path, block_bytes: int | None = None) -> None:
        """Read the header. Raise if the file is not a sparse matrix or declares too much."""
        from scipy.io import mminfo

        self.path = path
        self.block_bytes = block_bytes
        with unpacked(path) as file:
            lines = [file.readline(LONGEST_LINE)]
            while lines[-1].startswith((b"%", b"\n", b"\r")) and len(lines) < MOST_COMMENTS:
                lines.append(file.readline(LONGEST_LINE))
        header = io.BytesIO(b"".join([*lines, b"\n"]))
        n_genes, n_cells, n_entries, form, field, symmetry = mminfo(header)
        if (form, symmetry) != ("coordinate", "general") or field == "complex":
            raise FileError(
                f"{path}: a sparse matrix ('coordinate', of 'real', "
                "'integer' or 'pattern', and 'general') was expected, "
                f"got '{form} {field} {symmetry}'. Convert the file."
            )
        size = path.stat().st_size
        check_declared_size(path, f"a matrix of {n_cells} cells", 8 * n_cells, size)
        what = f"a matrix of {n_entries} values"
        check_declared_size(path, what, 8 * n_entries, size, held=False)
        self.shape = (n_cells, n_genes)
        self.n_entries = n_entries
        self.field = "pattern" if field == "pattern" else "real"
        self.n_header_lines = len(lines)
        self.start = sum(map(len, lines))  # where the entries begin

    def arrays(self) -> SparseArrays:
        """Return the values of the cells, their genes, and the start of each cell (n + 1,)."""
        values = TempArray(np.float32)
        genes = TempArray(np.int32)
        counts = np.zeros(self.shape[0] + 1, dtype=np.int64)  # of the cell before
        last_cell = 0
        for data, rows, cells in self._entries():
            # CSR needs the entries of a cell together, and cells in order
            if cells[0] < last_cell or (np.diff(cells) < 0).any():
                return self._sorted()
            values.append(data)
            genes.append(rows)
            last_cell = cells[-1]
            counts[cells[0] + 1 : last_cell + 2] += np.bincount(cells - cells[0])
        return values, genes, np.cumsum(counts)

    def _sorted(self) -> SparseArrays:
        """Return the same arrays in memory, if entries are not in the order of cells."""
        check_memory(
            f"{self.path}: its entries are not sorted by cell, and sorting them",
            SORTING_BYTES * self.n_entries,
            f"Sort all lines but the first {self.n_header_lines} by "
            "their second number (sort -n -k 2), or write it as .h5ad.",
        )
        data, genes, cells = map(np.concatenate, zip(*self._entries()))
        X = sp.coo_array((data, (cells, genes)), shape=self.shape).tocsr()
        return X.data, X.indices, X.indptr

    def _entries(self) -> Iterator[Entries]:
        """Yield values, genes and cells in blocks. Raise unless all entries are found."""
        n_found = 0
        block_bytes = self.block_bytes or readers.BLOCK_BYTES
        with unpacked(self.path) as file:
            file.seek(self.start)
            while n_found <= self.n_entries:
                text = file.read(block_bytes)
                if not text:
                    break
                # to the end of the last line
                text = (text + file.readline(LONGEST_LINE)).strip()
                # lines are counted as entries
                while b"\n\n" in text:
                    text = text.replace(b"\n\n", b"\n")
                if text:
                    block = self._parsed(text, self.n_header_lines + n_found)
                    n_found += len(block[0])
                    yield block
        if n_found != self.n_entries:
            found = f"only {n_found}" if n_found < self.n_entries else "more"
            raise FileError(
                f"{self.path}: {self.n_entries} entries were announced, "
                f"but there are {found}. The file may be damaged: copy or "
                "download it again."
            )

    def _parsed(self, text: bytes, n_lines_before: int) -> Entries:
        """Return the entries of some lines. scipy parses them with a header added."""
        from scipy.io import mmread

        n_cells, n_genes = self.shape
        n_lines = text.count(b"\n") + 1
        header = (
            f"%%MatrixMarket matrix coordinate {self.field} general\n"
            f"{n_genes} {n_cells} {n_lines}\n"
        )
        try:
            _check_numeric(text)
            # without a last line break the parser may read beyond the text
            source = io.BytesIO(header.encode() + text + b"\n")
            with np.errstate(over="ignore"):
                found = mmread(source, spmatrix=False)
                data = found.data.astype(np.float32)
            finite = np.isfinite(data)
            if not finite.all():
                raise ValueError(f"Line {3 + np.argmin(finite)}: the number is too large.")
        except (ValueError, OverflowError) as error:
            reason = _with_file_lines(str(error), n_lines_before)
            raise FileError(
                f"{self.path}: {reason.rstrip('.')}. Each line has a gene "
                f"(1 to {n_genes}), a cell (1 to {n_cells}) and, unless "
                "the matrix is a pattern, a finite number. Correct the "
                "line, or download the file again."
            ) from error
        return data, found.row, found.col


def _check_numeric(text: bytes) -> None:
    """Raise at the first character that is not part of a number, with the line number."""
    others = text.translate(None, _NUMERIC)
    if others:
        line = 3 + text.count(b"\n", 0, text.index(others[:1]))  # two lines of header before
        wrong = others[:1].decode("latin-1")
        raise ValueError(f"Line {line}: {wrong!r} is not part of a number.")


def _with_file_lines(reason: str, n_lines_before: int) -> str:
    """Replace line numbers of the block in a parser message by those of the file."""

    def in_file(match: re.Match[str]) -> str:
        return f"line {int(match[1]) - 2 + n_lines_before}"

    return re.sub("Line ([0-9]+)", in_file, reason)
