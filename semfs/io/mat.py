"""MATLAB files of version 5, read without trust.

They have a reader of their own, because scipy's crashes the interpreter on some damaged
files. The format is documented in MathWorks' "MAT-File Format", chapter 1.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semfs.io.safety import FileError, check_declared_size, file_errors, open_existing

_MATRIX, _COMPRESSED = 14, 15
#: Types of stored numbers, by the number the file gives them.
_STORED = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
#: Kinds of numeric arrays. Their numbers may be stored in a smaller type, which is kept.
_NUMERIC = range(6, 16)
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _CHAR, _OPAQUE = 1, 4, 17
_COMPLEX = 0x0800
_DEPTH = 3  # of cells within cells
_START = 2**16  # of bytes that hold the name of a variable


def names_in_mat(path: Any) -> list[str]:
    """Return the names of the variables of a file."""
    path = open_existing(path)
    with file_errors(path, ".mat"):
        return [name for name, _ in _Mat5(path).variables()]


def read_mat(path: Any, name: str, kind: type = np.ndarray) -> Any:
    """Return a variable as MATLAB shows it: a matrix of numbers, or of cells a list of texts.

    Anything else (structs, objects, sparse matrices) is refused.
    """
    path = open_existing(path)
    with file_errors(path, ".mat"):
        found = [read() for key, read in _Mat5(path).variables() if key == name]
    if not found:
        raise FileError(f"{path} has no {name!r}; found {', '.join(names_in_mat(path))}.")
    if not isinstance(found[0], kind) or getattr(found[0], "ndim", 2) != 2:
        wanted = "matrix of numbers" if kind is np.ndarray else "cell array of text"
        raise FileError(f"{path}: {name} must be a {wanted}.")
    return found[0]


class _Header(NamedTuple):
    """What a matrix element says before its data."""

    kind: int
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    start: int  # of the data


class _Mat5:
    """One file: its byte order, and where its top-level elements are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            order = {b"IM": "<", b"MI": ">"}.get(file.read(128)[126:])
        if order is None:
            raise FileError(f"{path} is not a MATLAB file of version 5. Save it with -v7.")
        self.order = order

    def variables(self) -> Iterator[tuple[str, Any]]:
        """Yield each variable's name, and a function that reads it."""
        size, start = self.path.stat().st_size, 128
        with self.path.open("rb") as file:
            while start < size:
                file.seek(start)
                tag = file.read(8)
                kind, length = self._pair(tag) if len(tag) == 8 else (0, 0)
                start += 8
                if kind not in (_MATRIX, _COMPRESSED) or start + length > size:
                    raise self._broken("it is truncated")
                place = (file, start, length, kind == _COMPRESSED)
                name = self._header(self._content(*place, most=_START)).name
                yield name, lambda place=place: self._value(self._content(*place))
                start += length

    def _broken(self, why: str) -> FileError:
        return FileError(f"{self.path} is damaged ({why}). Copy or download it again.")

    def _pair(self, data: Any, position: int = 0) -> tuple[int, int]:
        return struct.unpack_from(f"{self.order}II", data, position)

    def _content(
        self, file: Any, start: int, length: int, packed: bool, most: int | None = None
    ) -> memoryview:
        """The bytes of a matrix element, unpacked; at most so many of its beginning."""
        file.seek(start)
        data = file.read(length if most is None else min(length, most))
        if not packed:
            return memoryview(data)
        stream = zlib.decompressobj()
        declared = self._pair(stream.decompress(data, 8))[1]
        check_declared_size(self.path, "a variable", declared, length)
        out = stream.decompress(stream.unconsumed_tail, most or declared + 1)
        if most is None and (len(out) != declared or not stream.eof):  # its checksum is right
            raise self._broken("a compressed element has another length than it says")
        return memoryview(out)

    def _element(self, data: memoryview, position: int) -> tuple[int, memoryview, int]:
        """Type and bytes of the element at a position, and where the next one begins."""
        kind, size = self._pair(data, position)
        start = position + 8
        stop = start + size + -size % 8
        if kind >> 16:  # a small element keeps its data in the tag
            kind, size, start, stop = kind & 0xFFFF, kind >> 16, position + 4, position + 8
        if start + size > len(data):
            raise self._broken("an element is cut off")
        return kind, data[start : start + size], stop

    def _header(self, data: memoryview) -> _Header:
        if not len(data):  # an empty cell
            return _Header(6, False, (0, 0), "", 0)
        _, flags, position = self._element(data, 0)
        flag = self._pair(flags)[0]
        if flag & 0xFF == _OPAQUE:  # objects have no size; they are refused when read
            return _Header(_OPAQUE, False, (), "", position)
        _, sizes, position = self._element(data, position)
        shape = tuple(np.frombuffer(sizes, f"{self.order}u4").tolist())
        _, letters, position = self._element(data, position)
        name = bytes(letters).decode("latin-1")
        return _Header(flag & 0xFF, bool(flag & _COMPLEX), shape, name, position)

    def _value(self, data: memoryview) -> Any:
        header = self._header(data)
        if header.kind == _CELL:
            return self._cells(data, header, _DEPTH)
        if header.kind not in _NUMERIC or header.is_complex:
            raise FileError(
                f"{self.path}: {header.name or 'a variable'} is a struct, an object, text, "
                "sparse or complex, not an array of numbers or a cell array of text."
            )
        if 0 in header.shape:
            return np.zeros(header.shape)
        kind, content, _ = self._element(data, header.start)
        values = np.frombuffer(content, self.order + _STORED[kind])
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        return native.reshape(header.shape, order="F")  # numpy checks that the sizes agree

    def _text(self, data: memoryview, header: _Header) -> list[str]:
        """Rows of text, stored column by column."""
        if 0 in header.shape:
            return [""]
        kind, content, _ = self._element(data, header.start)
        encoding, rows = _TEXT[kind], header.shape[0]
        if rows > len(content):
            raise self._broken(f"{header.name} has less text than it says")
        if encoding in ("utf-16", "utf-32"):
            encoding += "-le" if self.order == "<" else "-be"
        letters = bytes(content).decode(encoding, "replace")
        return [letters[i::rows] for i in range(rows)]

    def _cells(self, data: memoryview, header: _Header, depth: int) -> list[str]:
        """Texts of the cells, and of cells within them, column by column."""
        out, position = [], header.start
        for _ in range(math.prod(header.shape)):
            _, content, position = self._element(data, position)
            inner = self._header(content)
            if inner.kind == _CHAR:
                out += self._text(content, inner)
            elif inner.kind == _CELL and depth:
                out += self._cells(content, inner, depth - 1)
            elif 0 in inner.shape:
                out.append("")
            else:
                other = f"{header.name} is a cell array of something other than text"
                raise FileError(f"{self.path}: {other}.")
        return out
