"""Decompresses chunks of arrays in several threads at the same time.

HDF5 decompresses under one lock, and Zarr in Python. Both give access to the raw bytes of a
chunk, which are decompressed here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semfs.io.safety import FileError
from semfs.system import import_optional

if TYPE_CHECKING:
    import h5py
    import zarr

try:
    # libdeflate releases the GIL and takes a third of zlib's time
    from deflate import zlib_decompress
except ImportError:
    zlib_decompress = None  # type: ignore[assignment]

#: Codecs of Zarr that numcodecs decodes without parameters.
_ZARR_CODECS = ("blosc", "zstd")


class ChunkedArray:
    """An array (n,) of a file, whose chunks are decompressed by a function.

    ``decompress(number)`` returns the bytes of a chunk. It returns None if the chunk is stored
    in another way, and then the library reads it.
    """

    def __init__(
        self,
        array: h5py.Dataset | zarr.Array,
        decompress: Callable[[int], bytes | bytearray | None],
    ) -> None:
        self.array = array
        self.decompress = decompress
        self.chunk_length: int = array.chunks[0]
        self.dtype: np.dtype[Any] = array.dtype
        self.shape: tuple[int, ...] = array.shape

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        """Return a slice, composed of the chunks that it overlaps."""
        start, stop, _ = part.indices(self.shape[0])
        length = self.chunk_length
        out = np.empty(stop - start, dtype=self.dtype)
        for number in range(start // length, -(-stop // length)):
            first = number * length
            low = max(first, start)
            high = min(first + length, stop)
            chunk = self._chunk(number)
            out[low - start : high - start] = chunk[low - first : high - first]
        return out

    def _chunk(self, number: int) -> npt.NDArray[Any]:
        content = self.decompress(number)
        if content is None:  # not compressed, or not stored at all
            first = number * self.chunk_length
            return np.asarray(self.array[first : first + self.chunk_length])
        expected = self.chunk_length * self.dtype.itemsize
        if len(content) != expected:
            raise FileError(f"a chunk holds {len(content)} bytes, but must hold {expected}.")
        return np.frombuffer(content, self.dtype)


def hdf5_chunks(array: h5py.Dataset) -> h5py.Dataset | ChunkedArray:
    """Return an array (n,) of HDF5, decompressed by threads if only gzip was used."""
    if not _is_chunked(array) or array.compression != "gzip" or zlib_decompress is None:
        return array
    # other filters (shuffle, scale-offset) change the bytes before gzip sees them
    only_filter = array.id.get_create_plist().get_nfilters() == 1
    # chunks that were never written have no bytes to read
    complete = array.id.get_num_chunks() == -(-len(array) // array.chunks[0])
    if not only_filter or not complete:
        return array
    return ChunkedArray(array, partial(_inflated, array))


def _inflated(array: h5py.Dataset, number: int) -> bytearray | None:
    length = array.chunks[0]
    filters_skipped, raw = array.id.read_direct_chunk((number * length,))
    if filters_skipped:
        return None
    return zlib_decompress(raw, length * array.dtype.itemsize)


def zarr_chunks(array: zarr.Array, folder: Path) -> zarr.Array | ChunkedArray:
    """Return an array (n,) of a Zarr folder, decompressed by threads for known codecs."""
    codec = _zarr_codec(array)
    native = array.dtype.byteorder != ">"
    if not _is_chunked(array) or codec not in _ZARR_CODECS or not native:
        return array
    numcodecs = import_optional("numcodecs", "data", what=str(folder))
    decode = numcodecs.get_codec({"id": codec}).decode
    return ChunkedArray(array, partial(_decoded, array, folder, decode))


def _decoded(
    array: zarr.Array, folder: Path, decode: Callable[[bytes], bytes], number: int
) -> bytes | None:
    file = folder / array.metadata.encode_chunk_key((number,))
    # a chunk without a file holds zeros, which Zarr fills in
    return decode(file.read_bytes()) if file.is_file() else None


def _zarr_codec(array: zarr.Array) -> str | None:
    """Return the name of the compressor of the chunks, or None if it is not the only codec."""
    if not hasattr(array, "metadata"):  # zarr 2
        return None
    metadata: dict[str, Any] = dict(array.metadata.to_dict())
    if metadata["zarr_format"] == 2:
        if metadata["filters"] or not metadata["compressor"]:
            return None
        return metadata["compressor"].get("id")
    # version 3: "bytes" turns numbers into bytes, then one codec compresses them
    names = [codec["name"] for codec in metadata["codecs"]]
    return names[1] if len(names) == 2 and names[0] == "bytes" else None


def _is_chunked(array: h5py.Dataset | zarr.Array) -> bool:
    return array.ndim == 1 and array.dtype.kind in "fiu" and bool(array.chunks)
