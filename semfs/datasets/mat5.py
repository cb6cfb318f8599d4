"""MATLAB files of version 5: arrays of numbers and text, and cells of text. Nothing else.

Written for files that nobody vouches for: scipy's reader crashes the interpreter on some
damaged ones. The format is documented in MathWorks' "MAT-File Format", chapter 1.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.files import FileError, check_declared_size

__all__ = ["names_in_mat5", "read_mat5"]

_MATRIX, _COMPRESSED = 14, 15
#: Types of stored numbers, by the number the file gives them.
_STORED = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
#: Kinds of numeric arrays. Their numbers may be stored in a smaller type, which is kept.
_NUMERIC = range(6, 16)
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _CHAR, _SPARSE = 1, 4, 5
_COMPLEX = 0x0800
_DEPTH = 3  # of cells within cells
_CHUNK = 2**20


@dataclass(frozen=True)
class _Header:
    """What a matrix element says before its data."""

    kind: int
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    start: int  # of the data


class _Reader:
    """One file: its byte order, and where its top-level elements are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            header = file.read(128)
        order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
        if len(header) < 128 or order is None:
            raise FileError(
                f"{path} is not a MATLAB file of version 5 or 7.3. Save it with -v7 or -v7.3."
            )
        self.order = order

    def variables(self) -> Iterator[tuple[str, Any]]:
        """Yield each variable's name, and a function that reads it."""
        size = self.path.stat().st_size
        position = 128
        with self.path.open("rb") as file:
            while position < size:
                file.seek(position)
                tag = file.read(8)
                kind, length = self._unpack(tag) if len(tag) == 8 else (0, 0)
                if kind not in (_MATRIX, _COMPRESSED) or position + 8 + length > size:
                    raise self.broken("it is truncated")
                start = position + 8
                beginning = self._content(file, start, kind, length, limit=4096)
                name = self._header(beginning, cut=True).name
                yield name, lambda s=start, k=kind, n=length: self._variable(file, s, k, n)
                position = start + length

    def broken(self, why: str) -> FileError:
        """The error of a damaged file."""
        return FileError(f"{self.path} is damaged ({why}). Copy or download it again.")

    def _variable(self, file: Any, start: int, kind: int, length: int) -> Any:
        data = self._content(file, start, kind, length)
        return self._value(data, self._header(data), _DEPTH)

    def _unpack(self, tag: Any, position: int = 0) -> tuple[int, int]:
        first, second = struct.unpack_from(f"{self.order}II", tag, position)
        return first, second

    def _content(
        self, file: Any, start: int, kind: int, length: int, limit: int | None = None
    ) -> memoryview:
        """The bytes of a matrix element, unpacked; at most ``limit`` of them."""
        file.seek(start)
        if kind == _MATRIX:
            return memoryview(file.read(length if limit is None else min(limit, length)))
        stream = zlib.decompressobj()
        packed = file.read(min(length, _CHUNK))
        tag = stream.decompress(packed, 8)
        if len(tag) < 8 or self._unpack(tag)[0] != _MATRIX:
            raise self.broken("a compressed element holds no array")
        declared = self._unpack(tag)[1]
        check_declared_size(self.path, "a variable", declared, length)
        wanted = declared if limit is None else min(limit, declared)
        out, left = bytearray(), length - len(packed)
        packed = stream.unconsumed_tail
        while len(out) < wanted:
            part = stream.decompress(packed, wanted - len(out))
            packed = stream.unconsumed_tail
            out += part
            if not packed and left > 0:
                packed = file.read(min(left, _CHUNK))
                left -= len(packed)
            elif not part and (stream.eof or not packed):
                break
        if limit is None:
            stream.decompress(packed + file.read(left), 1)  # at its end is a checksum
            if len(out) < wanted or not stream.eof:
                raise self.broken("a compressed element has another length than it says")
        return memoryview(bytes(out) if limit else out)

    def _element(self, data: memoryview, position: int) -> tuple[int, memoryview, int]:
        """Type and bytes of the element at a position, and where the next one begins."""
        if position + 8 > len(data):
            raise self.broken("an element is cut off")
        kind, size = self._unpack(data, position)
        if kind >> 16:  # a small element keeps its data in the tag
            kind, size, start, stop = kind & 0xFFFF, kind >> 16, position + 4, position + 8
            if size > 4:
                raise self.broken("a small element is too large")
        else:
            start = position + 8
            stop = start + size + -size % 8
        if start + size > len(data):
            raise self.broken("an element is cut off")
        return kind, data[start : start + size], stop

    def _header(self, data: memoryview, *, cut: bool = False) -> _Header:
        if not len(data):  # an empty cell
            return _Header(6, False, (0, 0), "", 0)
        kind, flags, position = self._element(data, 0)
        if kind != 6 or len(flags) != 8:
            raise self.broken("an array has no flags")
        flag = self._unpack(flags)[0]
        if flag & 0xFF == 17:  # opaque objects have no size; they are refused when read
            return _Header(17, False, (), "", position)
        kind, sizes, position = self._element(data, position)
        shape = np.frombuffer(sizes, f"{self.order}i4").tolist() if kind == 5 else []
        if not 2 <= len(shape) <= 8 or min(shape) < 0:
            raise self.broken("an array has no size")
        _, letters, position = self._element(data, position)
        name = bytes(letters).decode("latin-1")
        return _Header(flag & 0xFF, bool(flag & _COMPLEX), tuple(shape), name, position)

    # ---- values -------------------------------------------------------------------------

    def _value(self, data: memoryview, header: _Header, depth: int) -> Any:
        if header.kind in _NUMERIC and not header.is_complex:
            return self._numbers(data, header)
        if header.kind == _CHAR:
            return self._text(data, header)
        if header.kind == _CELL and depth:
            return self._cells(data, header, depth)
        if header.kind == _SPARSE and not header.is_complex:
            return self._sparse(data, header)
        raise FileError(
            f"{self.path}: {header.name or 'a variable'} is a struct, an object, complex or a "
            "cell array of cells; an array of numbers or a cell array of text was expected."
        )

    def _numbers(self, data: memoryview, header: _Header) -> np.ndarray:
        if math.prod(header.shape) == 0:
            return np.zeros(header.shape)
        values, _ = self._vector(data, header.start)
        if values.size != math.prod(header.shape):
            raise self.broken(f"{header.name} has {values.size} numbers for {header.shape}")
        return values.reshape(header.shape, order="F")

    def _vector(self, data: memoryview, position: int) -> tuple[np.ndarray, int]:
        kind, content, position = self._element(data, position)
        stored = np.dtype(self.order + _STORED[kind]) if kind in _STORED else None
        if stored is None or len(content) % stored.itemsize:
            raise self.broken("numbers of an unknown type")
        values = np.frombuffer(content, stored)
        return values.astype(stored.newbyteorder("="), copy=False), position

    def _text(self, data: memoryview, header: _Header) -> np.ndarray:
        """Rows of text, (r,) of str."""
        rows = header.shape[0] if len(header.shape) == 2 else -1
        if math.prod(header.shape) == 0:
            return np.array([""])
        kind, content, _ = self._element(data, header.start)
        encoding = _TEXT.get(kind)
        if encoding is None or rows < 1:
            raise self.broken(f"{header.name} holds text of an unknown type")
        if encoding in ("utf-16", "utf-32"):
            encoding += "-le" if self.order == "<" else "-be"
        letters = bytes(content).decode(encoding, "replace")
        return np.array(["".join(letters[i::rows]) for i in range(rows)])  # column by column

    def _cells(self, data: memoryview, header: _Header, depth: int) -> list:
        """Contents of the cells, column by column."""
        out, position = [], header.start
        for _ in range(math.prod(header.shape)):
            kind, content, position = self._element(data, position)
            if kind != _MATRIX:
                raise self.broken("a cell holds no array")
            inner = self._header(content)
            if inner.kind not in (_CHAR, _CELL) and 0 not in inner.shape:
                raise FileError(
                    f"{self.path}: {header.name} is a cell array of something other than text."
                )
            is_text = inner.kind in (_CHAR, _CELL)
            out.append(self._value(content, inner, depth - 1) if is_text else "")
        return out

    def _sparse(self, data: memoryview, header: _Header) -> Any:
        rows, position = self._vector(data, header.start)
        starts, position = self._vector(data, position)
        values, _ = self._vector(data, position)
        if len(header.shape) != 2 or starts.size != header.shape[1] + 1 or not starts.size:
            raise self.broken(f"{header.name} has a broken index")
        used = int(starts[-1])
        if not 0 <= used <= min(rows.size, values.size):
            raise self.broken(f"{header.name} has a broken index")
        parts = (values[:used], rows[:used], starts)
        X = sparse.csc_array(parts, shape=header.shape)
        X.check_format(full_check=True)
        return X


def names_in_mat5(path: Path) -> list[str]:
    """Return the names of the variables."""
    return [name for name, _ in _Reader(path).variables()]


def read_mat5(path: Path, names: list[str]) -> dict[str, Any]:
    """Return the named variables that are there: arrays, sparse matrices, lists of text."""
    return {name: read() for name, read in _Reader(path).variables() if name in names}
