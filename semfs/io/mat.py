"""A safe reader of MATLAB files of version 5.

`scipy.io.loadmat` is not used, because scipy does not claim that its reader is safe on
untrusted files, and it crashes the interpreter on some damaged ones (2 of 400 that
tools/fuzz.py made, scipy 1.17). A probe in another process (as for HDF5) would have to
decompress the whole matrix a second time (600 MB for the features of AWA2), and a read beyond a
buffer that does not crash there may still crash here. Data sets use few parts of the format.

The format is documented in MathWorks' "MAT-File Format", chapter 1. A file has a header of 128
bytes and then elements: a tag (type and number of bytes) and data, padded to 8 bytes.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semfs._typing import PathLike
from semfs.io.safety import FileError, check_declared_size, file_errors, open_existing

HEADER_BYTES = 128
TAG_BYTES = 8
#: Types of elements: an array of any class, and a compressed element.
_MATRIX = 14
_COMPRESSED = 15
#: numpy's names of the types in which numbers are stored, by the file's numbers for them.
_STORED = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
#: Encodings of text, by the same numbers.
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
#: Classes of arrays: cells, text, numbers (double … uint64), and objects of MATLAB classes.
_CELL = 1
_CHAR = 4
_NUMERIC = range(6, 16)
_OPAQUE = 17
#: The flag of complex numbers.
_COMPLEX = 0x0800
#: Cells within cells that are followed; data sets have one level.
MOST_NESTED = 3
#: Bytes at the start of a variable that hold its name.
START_BYTES = 2**16


def names_in_mat(path: PathLike) -> list[str]:
    """Return the names of the variables of a file."""
    path = open_existing(path)
    with file_errors(path, ".mat"):
        return [variable.name for variable in _Mat5(path).variables()]


def read_mat(path: PathLike, name: str, kind: type = np.ndarray) -> Any:
    """Return a variable: a numeric matrix, or (``kind=list``) the texts of a cell array.

    Raise for anything else (structs, objects, sparse matrices).
    """
    path = open_existing(path)
    value = None
    with file_errors(path, ".mat"):
        file = _Mat5(path)
        for variable in file.variables():
            if variable.name == name:
                value = file.read(variable)
    if value is None:
        raise FileError(f"{path} has no {name!r}. Found: {', '.join(names_in_mat(path))}.")
    if not isinstance(value, kind) or getattr(value, "ndim", 2) != 2:
        wanted = "matrix of numbers" if kind is np.ndarray else "cell array of text"
        raise FileError(f"{path}: {name} must be a {wanted}.")
    return value


class _Variable(NamedTuple):
    """The position of a variable in the file."""

    name: str
    start: int
    length: int
    compressed: bool


class _Header(NamedTuple):
    """The declarations of an array before its data."""

    array_class: int
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    start: int  # of the data


class _Element(NamedTuple):
    """An element: its type, its bytes, and the position of the next element."""

    type: int
    content: memoryview
    end: int


class _Mat5:
    """A file: its byte order and its variables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            mark = file.read(HEADER_BYTES)[HEADER_BYTES - 2 :]
        if mark not in (b"IM", b"MI"):
            raise FileError(
                f"{path} is not a version 5 MATLAB file. Save it with the option -v7."
            )
        self.order = "<" if mark == b"IM" else ">"

    def variables(self) -> Iterator[_Variable]:
        """Yield the variables in the order of the file."""
        size = self.path.stat().st_size
        start = HEADER_BYTES
        with self.path.open("rb") as file:
            while start < size:
                file.seek(start)
                tag = file.read(TAG_BYTES)
                if len(tag) < TAG_BYTES:
                    raise self._damaged("it is truncated")
                element_type, length = self._two_numbers(tag)
                start += TAG_BYTES
                if element_type not in (_MATRIX, _COMPRESSED) or start + length > size:
                    raise self._damaged("it is truncated")
                variable = _Variable("", start, length, element_type == _COMPRESSED)
                content = self._content(file, variable, START_BYTES)
                yield variable._replace(name=self._header(content).name)
                start += length

    def read(self, variable: _Variable) -> npt.NDArray[Any] | list[str]:
        """Return the value of a variable: numbers, or the texts of cells."""
        with self.path.open("rb") as file:
            data = self._content(file, variable)
        header = self._header(data)
        if header.array_class == _CELL:
            return self._cell_texts(data, header, MOST_NESTED)
        if header.array_class not in _NUMERIC or header.is_complex:
            raise FileError(
                f"{self.path}: {header.name or 'a variable'} must be an array of "
                "numbers or a cell array of text; structs, objects, sparse "
                "and complex arrays are not read."
            )
        return self._numbers(data, header)

    def _damaged(self, reason: str) -> FileError:
        return FileError(f"{self.path} is damaged ({reason}). Copy or download it again.")

    def _two_numbers(self, data: bytes | memoryview, position: int = 0) -> tuple[int, int]:
        first, second = struct.unpack_from(f"{self.order}II", data, position)
        return first, second

    def _content(
        self, file: IO[bytes], variable: _Variable, most: int | None = None
    ) -> memoryview:
        """Return the decompressed bytes of a variable, at most ``most`` from its start."""
        file.seek(variable.start)
        n_bytes = variable.length if most is None else min(variable.length, most)
        data = file.read(n_bytes)
        if not variable.compressed:
            return memoryview(data)
        stream = zlib.decompressobj()
        _, declared = self._two_numbers(stream.decompress(data, TAG_BYTES))
        check_declared_size(self.path, "a variable", declared, variable.length)
        # one byte more than declared would show that there are more
        content = stream.decompress(stream.unconsumed_tail, most or declared + 1)
        # at the end of the stream zlib has compared the checksum
        if most is None and (len(content) != declared or not stream.eof):
            raise self._damaged("the length of a compressed element is wrong")
        return memoryview(content)

    def _element(self, data: memoryview, position: int) -> _Element:
        """Return the element at a position."""
        element_type, size = self._two_numbers(data, position)
        start = position + TAG_BYTES
        end = start + size + -size % 8
        if element_type >> 16:  # a small element keeps its data, of up to 4 bytes, in the tag
            size = element_type >> 16
            element_type &= 0xFFFF
            start = position + 4
            end = position + TAG_BYTES
        if start + size > len(data):
            raise self._damaged("an element is cut off")
        return _Element(element_type, data[start : start + size], end)

    def _header(self, data: memoryview) -> _Header:
        """Return class, shape and name of an array."""
        if not len(data):  # an empty cell
            return _Header(_NUMERIC.start, False, (0, 0), "", 0)
        flags = self._element(data, 0)
        flag, _ = self._two_numbers(flags.content)
        array_class = flag & 0xFF
        if array_class == _OPAQUE:  # objects have no shape; they are refused when read
            return _Header(_OPAQUE, False, (), "", flags.end)
        sizes = self._element(data, flags.end)
        # shapes are unsigned here: a negative size of a damaged file is too large
        shape = tuple(np.frombuffer(sizes.content, f"{self.order}u4").tolist())
        letters = self._element(data, sizes.end)
        name = bytes(letters.content).decode("latin-1")
        return _Header(array_class, bool(flag & _COMPLEX), shape, name, letters.end)

    def _numbers(self, data: memoryview, header: _Header) -> npt.NDArray[Any]:
        """Return a numeric array in its stored type."""
        if 0 in header.shape:
            return np.zeros(header.shape)
        element = self._element(data, header.start)
        values = np.frombuffer(element.content, self.order + _STORED[element.type])
        # the file has the byte order of the machine that wrote it
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        return native.reshape(header.shape, order="F")  # numpy checks that the sizes agree

    def _rows_of_text(self, data: memoryview, header: _Header) -> list[str]:
        """Return the rows of a text array, which is stored column by column."""
        if 0 in header.shape:
            return [""]
        element = self._element(data, header.start)
        n_rows = header.shape[0]
        if n_rows > len(element.content):
            raise self._damaged(f"{header.name} has less text than announced")
        encoding = _TEXT[element.type]
        if encoding in ("utf-16", "utf-32"):
            encoding += "-le" if self.order == "<" else "-be"
        letters = bytes(element.content).decode(encoding, "replace")
        return [letters[row::n_rows] for row in range(n_rows)]

    def _cell_texts(self, data: memoryview, header: _Header, n_nested: int) -> list[str]:
        """Return the texts of cells, and of up to ``n_nested`` levels of nested cells."""
        out: list[str] = []
        position = header.start
        for _ in range(math.prod(header.shape)):
            cell = self._element(data, position)
            position = cell.end
            inner = self._header(cell.content)
            if inner.array_class == _CHAR:
                out += self._rows_of_text(cell.content, inner)
            elif inner.array_class == _CELL and n_nested:
                out += self._cell_texts(cell.content, inner, n_nested - 1)
            elif 0 in inner.shape:
                out.append("")
            else:
                raise FileError(
                    f"{self.path}: {header.name} is a cell array of something other than text."
                )
        return out
