"""Save and load selectors: arrays and a JSON header in one ``.npz`` file, no code."""

import importlib
import inspect
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

import semfs
from semfs.attributes import AttributeTable
from semfs.io.npz import read_npz
from semfs.io.safety import (
    FileError,
    atomic_write,
    check_declared_size,
    file_errors,
    open_existing,
)
from semfs.labels import object_array
from semfs.method.moments import Moments
from semfs.rows.device import as_numpy
from semfs.system import import_optional

#: Raised when a file of this version could not be read by the one before.
FORMAT = 1
#: The types that may be saved and loaded. Nothing else is constructed.
TYPES = ["SemFS", "SemFSCV", "RandomSelector", "VarianceSelector", "Markers", "MCFS", "FSASL"]
TYPES += ["LassoSelector", "L20ALM", "WkNN"]

# What an estimator remembers besides parameters and fitted attributes, and may be kept.
# Callbacks are functions, and metadata requests belong to the pipeline around the selector.
_SETTINGS = ("_sklearn_output_config",)
_MOMENTS = ("classes", "counts", "means", "scatter_diag", "scatter_matrix", "eps")


def save(selector: Any, path: Any) -> Path:
    """Write a selector, fitted or not, to one file; all or nothing.

    Parameters
    ----------
    selector : SemFS, SemFSCV or a selector of `semfs.baselines`
        Parameters, fitted attributes and what `partial_fit` collected are kept. Arrays on
        another device come back as numpy arrays. Callbacks and rows of X are not kept.
    path : path-like
        The file. It is an ordinary ``.npz`` file, whatever its name ends in.

    Examples
    --------
    >>> import os, tempfile
    >>> from semfs import SemFS, load, save
    >>> selector = SemFS(2).fit([[0, 0, 1], [1, 0, 2], [2, 5, 3]], ["ant", "bee", "bee"])
    >>> path = save(selector, os.path.join(tempfile.mkdtemp(), "panel.npz"))
    >>> load(path).get_feature_names_out().tolist() == selector.get_feature_names_out().tolist()
    True
    """
    writer = _Writer()
    header = {"format": "semfs selector", "format_version": FORMAT}
    header |= {"semfs_version": semfs.__version__, "selector": writer.selector(selector)}
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    path = Path(path)
    with atomic_write(path) as beside, beside.open("wb") as file:
        np.savez(file, header=text, **writer.arrays)  # type: ignore[arg-type]
    return path


def load(path: Any) -> Any:
    """Return a new selector as `save` wrote it. Nothing in the file is ever executed.

    Parameters
    ----------
    path : path-like
        The file, of this version, an earlier one or a later one of the same format.

    Examples
    --------
    >>> import os, tempfile
    >>> from semfs import SemFS, load, save
    >>> load(save(SemFS(5, gamma=3.0), os.path.join(tempfile.mkdtemp(), "plain.npz")))
    SemFS(gamma=3.0, n_features_to_select=5)
    """
    path = open_existing(path)
    with file_errors(path, "semfs selector"):
        _check_archive(path)
        arrays = {name: np.array(array) for name, array in read_npz(path).items()}
        text = arrays.pop("header").tobytes().decode("utf-8")
        _check_header(path, json.loads(text))
        return json.loads(text, object_hook=_Reader(path, arrays).value)["selector"]


def _check_archive(path: Path) -> None:
    """Refuse what `save` cannot have written, before anything is read from it."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            start = file.read(4)
        if start in (b"", b"PK\x03\x04"):
            raise FileError(f"{path} is {'truncated' if start else 'empty'}. Copy it again.")
        raise FileError(
            f"{path} is not a file of semfs.save (it is no .npz archive). Pickled selectors "
            "are not read, because that runs code: fit again and use semfs.save."
        )
    with zipfile.ZipFile(path) as archive:
        if "header.npy" not in archive.namelist():
            raise FileError(f"{path} is an archive, but not a file of semfs.save: no header.")
        for item in archive.infolist():
            ours = re.fullmatch(r"header\.npy|a\d+\.npy", item.filename)
            if not ours or item.compress_type != zipfile.ZIP_STORED:  # no zip bombs
                name = item.filename[:80]
                raise FileError(f"{path} holds {name!r} as semfs.save never writes. Refused.")
        damaged = archive.testzip()  # read_npz maps stored arrays without a look at this
    if damaged is not None:
        raise FileError(f"{path} is damaged: {damaged!r} has changed. Copy it again.")


def _check_header(path: Path, header: Any) -> None:
    if not isinstance(header, dict) or header.get("format") != "semfs selector":
        raise FileError(f"{path} is an .npz file, but not one of semfs.save.")
    version, writer = header.get("format_version"), header.get("semfs_version")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise FileError(
            f"{path} has format {version!r:.80}, written by semfs {writer!r:.80}; semfs "
            f"{semfs.__version__} reads up to format {FORMAT}. Upgrade semfs."
        )
    selector = header.get("selector")
    if not isinstance(selector, dict) or selector.get("is") != "selector":
        raise FileError(f"{path} holds no selector. Save it again.")


def _frame_parts(frame: Any) -> dict[str, Any]:
    values = [frame.iloc[:, j].to_numpy() for j in range(frame.shape[1])]  # each of its type
    index = {"index": frame.index.tolist(), "index_name": frame.index.name}
    return {**index, "columns": frame.columns.tolist(), "values": values}


def _pandas_frame(index: list, index_name: Any, columns: list, values: list) -> Any:
    pandas = import_optional("pandas", "data", what="A table in this file")
    index = pandas.Index(index, name=index_name)
    frame = pandas.DataFrame(dict(enumerate(values)), index=index)
    frame.columns = pandas.Index(columns)
    return frame


# How values are recognized, taken apart and made again.
Kind = tuple[Callable[[Any], bool], Callable[[Any], Mapping[str, Any]], Callable[..., Any]]
KINDS: dict[str, Kind] = {
    "tuple": (lambda v: type(v) is tuple, lambda v: {"items": [*v]}, lambda items: (*items,)),
    "dict": (  # pairs, because JSON has only text as keys
        lambda v: isinstance(v, Mapping),
        lambda v: {"items": [list(pair) for pair in v.items()]},
        lambda items: dict(items),
    ),
    "attribute_table": (lambda v: isinstance(v, AttributeTable), vars, AttributeTable),
    "moments": (
        lambda v: isinstance(v, Moments),
        lambda v: dict(zip(_MOMENTS, attrgetter(*_MOMENTS)(v.compact(precise=True)))),
        lambda **parts: Moments(rows=None, **parts),
    ),
    "pandas": (
        lambda v: hasattr(v, "index") and hasattr(v, "columns"),
        _frame_parts,
        _pandas_frame,
    ),
    "polars": (
        lambda v: hasattr(v, "get_columns"),
        lambda v: {"names": v.columns, "columns": [c.to_numpy() for c in v.get_columns()]},
        lambda names, columns: import_optional(
            "polars", "data", what="A table in this file"
        ).DataFrame(dict(zip(names, columns))),
    ),
}


def _selector_type(name: str) -> Any:
    """The type of this name, or None; names come from files."""
    room = "semfs" if name in semfs.__all__ else "semfs.baselines"
    return getattr(importlib.import_module(room), name) if name in TYPES else None


class _Writer:  # of values into JSON, and arrays into members of the archive
    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def selector(self, selector: Any) -> dict[str, Any]:
        name = type(selector).__name__
        if _selector_type(name) is not type(selector):
            raise TypeError(
                f"save writes selectors of semfs ({', '.join(sorted(TYPES))}), got {name}. "
                "Of a pipeline, save the selector step."
            )
        params = selector.get_params(deep=False)
        kept = [key for key in vars(selector) if key.endswith("_") or key in _SETTINGS]
        state = {key: getattr(selector, key) for key in kept if key not in params}
        parts = {"params": self.fields(params), "state": self.fields(state)}
        return {"is": "selector", "type": name, **parts}

    def fields(self, parts: Mapping[str, Any], where: str | None = None) -> dict[str, Any]:
        return {key: self.value(part, where or key) for key, part in parts.items()}

    def value(self, value: Any, where: str) -> Any:
        """JSON of one value; ``where`` is the attribute that holds it."""
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) in (type(None), bool, int, float, str):
            return value
        if type(value) in (list, range):
            return [self.value(item, where) for item in value]
        for tag, (known, parts, _) in KINDS.items():
            if known(value):
                return {"is": tag, **self.fields(parts(value), where)}
        if hasattr(value, "__dlpack__"):  # an array, perhaps on another device
            return self.array(np.asarray(as_numpy(value)), where)
        if type(value).__name__ in TYPES:
            return self.selector(value)
        raise TypeError(
            f"{where} holds a {type(value).__module__}.{type(value).__name__}, which save does "
            "not write. Use numbers, text, arrays, frames or dicts of them."
        )

    def array(self, array: np.ndarray, where: str) -> dict[str, Any]:
        shape = list(array.shape)
        if array.dtype.kind == "O":
            items = self.value(array.ravel().tolist(), where)
            return {"is": "objects", "items": items, "shape": shape}
        if array.dtype.kind not in "biufcUMm":
            raise TypeError(f"{where} is an array of {array.dtype}, which save does not write.")
        if array.ndim == 2 and array.dtype.kind == "f":  # W has k rows that are not zero
            used = np.flatnonzero(array.any(axis=1))
            if 2 * len(used) < len(array):
                names = {"rows": self.member(used), "name": self.member(array[used])}
                return {"is": "some_rows", **names, "shape": shape}
        return {"is": "array", "name": self.member(array)}

    def member(self, array: np.ndarray) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name


class _Reader:
    """Turns JSON back into values. ``tags`` are all that a file can ask for."""

    def __init__(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        self.path, self.arrays = path, arrays
        self.tags: dict[Any, Callable] = {tag: make for tag, (*_, make) in KINDS.items()}
        self.tags |= {"some_rows": self.some_rows, "selector": self.selector}
        self.tags["array"] = lambda name: arrays[name]
        self.tags["objects"] = lambda items, shape: object_array(items).reshape(shape)

    def value(self, found: dict[str, Any]) -> Any:
        """What an object of the header stands for; its parts are values already."""
        if "is" not in found:
            return found
        read = self.tags.get(tag := found.pop("is"))
        if read is None:
            raise FileError(f"{self.path} holds a {tag!r:.80}, unknown to semfs. Refused.")
        return read(**found)

    def selector(self, type: str, params: dict, state: dict) -> Any:
        if (kind := _selector_type(type)) is None:
            known = ", ".join(TYPES)
            raise FileError(f"{self.path} holds a {type!r:.80}; this version loads {known}.")
        if unknown := set(params) - set(inspect.signature(kind).parameters):
            name = min(unknown)[:80]
            raise FileError(f"{self.path}: {type} has no parameter {name!r}. Upgrade semfs.")
        selector = kind(**params)
        for key, value in state.items():
            fitted = re.fullmatch(r"[A-Za-z]\w*_", key) and not hasattr(kind, key)
            if not fitted and key not in _SETTINGS:
                raise FileError(f"{self.path}: {key[:80]!r} is no fitted attribute. Refused.")
            setattr(selector, key, value)
        d = state.get("n_features_in_")
        for name in ("scores_", "order_", "ranking_", "support_", "feature_names_in_"):
            if name in state and np.shape(state[name]) != (d,):
                raise FileError(f"{self.path}: {name} does not have {d} entries. Refused.")
        return selector

    def some_rows(self, name: str, rows: str, shape: list[int]) -> np.ndarray:
        n, m = shape
        stored = 8 * n * m if n <= self.path.stat().st_size else 0  # no row is for nothing
        check_declared_size(self.path, "an array", 8 * n * m, stored)
        whole = np.zeros((n, m), dtype=self.arrays[name].dtype)
        whole[self.arrays[rows]] = self.arrays[name]
        return whole
