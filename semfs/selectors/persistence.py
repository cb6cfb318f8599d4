"""Save and load selectors: arrays and a JSON header in one ``.npz`` file, no code.

The format is ours, not that of pickle or skops, because files must stay readable over releases;
`FORMAT` is its version. The header holds JSON values. What JSON does not have is an object
whose ``"is"`` names a kind of value (`KINDS_OF_VALUES`). Arrays are members of the archive.

Fitted attributes are all attributes whose names end in ``_``: a new one is saved and loaded
without a change here. A new kind of value needs a subclass of `Kind` in `KINDS_OF_VALUES`.
"""

import importlib
import inspect
import json
import re
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

import semfs
from semfs._typing import PathLike
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
from semfs.rows.device import to_numpy
from semfs.selectors.fitted import Notes
from semfs.selectors.problem import squared_label_weight
from semfs.system import import_optional

#: File format version. Increase it when older releases can no longer read new files.
FORMAT = 2
#: Parameters of SemFS and SemFSCV whose defaults changed after format 1, and what they were.
DEFAULTS_OF_FORMAT_1: dict[str, Any] = {
    "gamma": 10.0,
    "penalty_scale": "gram",
    "label_weight": 0.0,
    "max_correlation": None,
}
#: What the header of every file names as its format.
FORMAT_NAME = "semfs selector"
#: The types that may be saved and loaded. Nothing else is constructed.
TYPES = (
    "SemFS",
    "SemFSCV",
    "RandomSelector",
    "VarianceSelector",
    "Markers",
    "MCFS",
    "FSASL",
    "LassoSelector",
    "L20ALM",
    "WkNN",
)
#: What is kept of an estimator besides parameters and fitted attributes. Callbacks are
#: functions, and metadata requests belong to the pipeline around the selector.
SETTINGS = ("_sklearn_output_config",)
#: Fitted attributes of one entry per feature, which a damaged file may have of another length.
PER_FEATURE = (
    "scores_",
    "order_",
    "ranking_",
    "support_",
    "feature_names_in_",
)
#: Characters of a value of the file that a message shows.
SHOWN_CHARACTERS = 80

#: A value of the header.
Json = None | bool | int | float | str | list[Any] | dict[str, Any]


def save(selector: BaseEstimator, path: PathLike) -> Path:
    """Write a selector, fitted or not, to one file; all or nothing.

    Parameters
    ----------
    selector : SemFS, SemFSCV or a selector of `semfs.baselines`
        Parameters, fitted attributes and what `partial_fit` collected are kept. Arrays on
        another device come back as numpy arrays. Callbacks and samples are not kept, but for
        selected features of at most 20 samples of each class (``calibration_sample_``).
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
    header = {
        "format": FORMAT_NAME,
        "format_version": FORMAT,
        "semfs_version": semfs.__version__,
        "selector": writer.selector(selector),
    }
    # bytes, because a text array of numpy takes four of them per character
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    path = Path(path)
    with atomic_write(path) as beside, beside.open("wb") as file:
        np.savez(file, header=text, **writer.arrays)  # type: ignore[arg-type]
    return path


def load(path: PathLike) -> Any:
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
    with file_errors(path, FORMAT_NAME):
        _check_archive(path)
        # copies, because mapped arrays would change with the file
        arrays = {name: np.array(array) for name, array in read_npz(path).items()}
        text = arrays.pop("header").tobytes().decode("utf-8")
        # plain JSON first: another format is refused before its values are made
        header = json.loads(text)
        _check_header(path, header)
        # the hook is called for inner objects first, so that it sees values, not JSON
        reader = _Reader(path, arrays, header["format_version"])
        return json.loads(text, object_hook=reader.value)["selector"]


# ---- checks of a file ------------------------------------------------------------------


def _check_archive(path: Path) -> None:
    """Refuse what `save` cannot have written, before anything is read from it."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"":
            raise FileError(f"{path} is empty. Copy it again.")
        if start == b"PK\x03\x04":
            raise FileError(f"{path} is truncated. Copy it again.")
        raise FileError(
            f"{path} is not a file of semfs.save, because it is not an .npz archive. "
            "Pickled selectors are not read, because that runs code: "
            "fit again and use semfs.save."
        )
    with zipfile.ZipFile(path) as archive:
        if "header.npy" not in archive.namelist():
            raise FileError(f"{path} is an archive, but not a file of semfs.save: no header.")
        for item in archive.infolist():
            known_name = re.fullmatch(r"header\.npy|a\d+\.npy", item.filename)
            compressed = item.compress_type != zipfile.ZIP_STORED  # perhaps a zip bomb
            if not known_name or compressed:
                name = item.filename[:SHOWN_CHARACTERS]
                raise FileError(f"{path} holds {name!r} as semfs.save never writes. Refused.")
        # read_npz maps stored arrays without looking at checksums
        damaged = archive.testzip()
    if damaged is not None:
        raise FileError(f"{path} is damaged: {damaged!r} has changed. Copy it again.")


def _check_header(path: Path, header: Json) -> None:
    """Refuse a header of another program, of a later format, or without a selector."""
    if not isinstance(header, dict) or header.get("format") != FORMAT_NAME:
        raise FileError(f"{path} is an .npz file, but not one of semfs.save.")
    version = header.get("format_version")
    # not isinstance, because true of JSON is an int of Python, too
    if type(version) is not int or not 1 <= version <= FORMAT:
        writer = header.get("semfs_version")
        raise FileError(
            f"{path} has format {version!r:.80}, written by semfs {writer!r:.80}; "
            f"semfs {semfs.__version__} reads up to format {FORMAT}. Upgrade semfs."
        )
    selector = header.get("selector")
    if not isinstance(selector, dict) or selector.get("is") != "selector":
        raise FileError(f"{path} holds no selector. Save it again.")


# ---- kinds of values -------------------------------------------------------------------


class Kind(ABC):
    """A kind of value that JSON does not have, written as an object of named parts."""

    #: What ``"is"`` says in the file. It must never change.
    tag: ClassVar[str]

    @abstractmethod
    def matches(self, value: Any) -> bool:
        """Return whether a value is of this kind."""

    @abstractmethod
    def parts(self, value: Any) -> Mapping[str, Any]:
        """Return the parts of a value: further values by name."""

    @abstractmethod
    def make(self, **parts: Any) -> Any:
        """Return the value of these parts; a file may hold parts of any names and types."""


class TupleKind(Kind):
    """A tuple, as a list of its items."""

    tag = "tuple"

    def matches(self, value: Any) -> bool:
        return type(value) is tuple

    def parts(self, value: tuple[Any, ...]) -> Mapping[str, Any]:
        return {"items": list(value)}

    def make(self, items: list[Any]) -> tuple[Any, ...]:  # type: ignore[override]
        return tuple(items)


class MappingKind(Kind):
    """A mapping, as a list of pairs, because keys of JSON are text."""

    tag = "dict"

    def matches(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def parts(self, value: Mapping[Any, Any]) -> Mapping[str, Any]:
        return {"items": [[key, item] for key, item in value.items()]}

    def make(self, items: list[Any]) -> dict[Any, Any]:  # type: ignore[override]
        return dict(items)


class NotesKind(MappingKind):
    """What was used by a fit (``knowledge_``): a mapping that understands former keys."""

    tag = "notes"

    def matches(self, value: Any) -> bool:
        return isinstance(value, Notes)

    def make(self, items: list[Any]) -> Notes:  # type: ignore[override]
        return Notes(items)


class AttributeTableKind(Kind):
    """Descriptions of classes."""

    tag = "attribute_table"

    def matches(self, value: Any) -> bool:
        return isinstance(value, AttributeTable)

    def parts(self, value: AttributeTable) -> Mapping[str, Any]:
        return {
            "values": value.values,
            "classes": value.classes,
            "names": value.names,
        }

    def make(  # type: ignore[override]
        self,
        values: Any,
        classes: Any,
        names: Any,
    ) -> Any:
        return AttributeTable(values, classes, names)


class MomentsKind(Kind):
    """What `partial_fit` collected: the scatter matrix, but not the samples."""

    tag = "moments"
    fields = (
        "classes",
        "counts",
        "means",
        "scatter_diag",
        "scatter_matrix",
        "eps",
    )

    def matches(self, value: Any) -> bool:
        return isinstance(value, Moments)

    def parts(self, value: Moments) -> Mapping[str, Any]:
        # precise: whoever loads it may choose a penalty that needs all digits
        compact = value.compact(precise=True)
        return {name: getattr(compact, name) for name in self.fields}

    def make(self, **parts: Any) -> Moments:
        return Moments(rows=None, **parts)


class PandasKind(Kind):
    """A pandas frame, each column of its type."""

    tag = "pandas"

    def matches(self, value: Any) -> bool:
        return hasattr(value, "index") and hasattr(value, "columns")

    def parts(self, value: Any) -> Mapping[str, Any]:
        return {
            "index": value.index.tolist(),
            "index_name": value.index.name,
            "columns": value.columns.tolist(),
            "values": [value.iloc[:, j].to_numpy() for j in range(value.shape[1])],
        }

    def make(  # type: ignore[override]
        self,
        index: list[Any],
        index_name: Any,
        columns: list[Any],
        values: list[Any],
    ) -> Any:
        """Return the frame of these labels (n,) and (d,) and columns (n,) each."""
        pandas = import_optional("pandas", "data", what="A table in this file")
        # by number first: names of columns may occur twice
        frame = pandas.DataFrame(
            dict(enumerate(values)), index=pandas.Index(index, name=index_name)
        )
        frame.columns = pandas.Index(columns)
        return frame


class PolarsKind(Kind):
    """A polars frame."""

    tag = "polars"

    def matches(self, value: Any) -> bool:
        return hasattr(value, "get_columns")

    def parts(self, value: Any) -> Mapping[str, Any]:
        columns = [column.to_numpy() for column in value.get_columns()]
        return {"names": value.columns, "columns": columns}

    def make(  # type: ignore[override]
        self,
        names: list[str],
        columns: list[Any],
    ) -> Any:
        polars = import_optional("polars", "data", what="A table in this file")
        return polars.DataFrame(dict(zip(names, columns)))


#: In the order in which they are tried.
KINDS_OF_VALUES: tuple[Kind, ...] = (
    TupleKind(),
    NotesKind(),  # before mappings, which it is one of
    MappingKind(),
    AttributeTableKind(),
    MomentsKind(),
    PandasKind(),
    PolarsKind(),
)


def _selector_type(name: object) -> type[BaseEstimator] | None:
    """The selector type of this name, which may come from a file; None if there is none."""
    if not isinstance(name, str) or name not in TYPES:
        return None
    module = "semfs" if name in semfs.__all__ else "semfs.baselines"
    found: type[BaseEstimator] = getattr(importlib.import_module(module), name)
    return found


# ---- writing ---------------------------------------------------------------------------


class _Writer:
    """Turns values into JSON, and arrays into members of the archive."""

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def selector(self, selector: BaseEstimator) -> dict[str, Any]:
        """JSON of a selector: its type, parameters and fitted attributes."""
        name = type(selector).__name__
        if _selector_type(name) is not type(selector):
            raise TypeError(
                f"save writes selectors of semfs ({', '.join(sorted(TYPES))}), "
                f"got {name}. Of a pipeline, save the selector step."
            )
        params = selector.get_params(deep=False)
        state = {
            key: value
            for key, value in vars(selector).items()
            if (key.endswith("_") or key in SETTINGS) and key not in params
        }
        return {
            "is": "selector",
            "type": name,
            "params": {key: self.value(value, key) for key, value in params.items()},
            "state": {key: self.value(value, key) for key, value in state.items()},
        }

    def value(self, value: Any, where: str) -> Json:
        """JSON of one value; ``where`` is the parameter or attribute that holds it."""
        if isinstance(value, np.generic):
            value = value.item()
        # exact types: an object of a subclass would come back as something else
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) in (list, range):
            return [self.value(item, where) for item in value]
        for kind in KINDS_OF_VALUES:
            if kind.matches(value):
                parts = kind.parts(value)
                written = {name: self.value(part, where) for name, part in parts.items()}
                return {"is": kind.tag, **written}
        if hasattr(value, "__dlpack__"):  # an array, perhaps on another device
            return self.array(np.asarray(to_numpy(value)), where)
        # best_estimator_ of SemFSCV is a selector itself
        if type(value).__name__ in TYPES:
            return self.selector(value)
        raise TypeError(
            f"{where} holds a {type(value).__module__}.{type(value).__name__}, "
            "which save does not write. Use numbers, text, arrays, frames or dicts of them."
        )

    def array(self, array: npt.NDArray[Any], where: str) -> dict[str, Any]:
        """JSON of an array, which names the member that holds its numbers."""
        shape = list(array.shape)
        if array.dtype.kind == "O":
            items = self.value(array.ravel().tolist(), where)
            return {"is": "objects", "items": items, "shape": shape}
        if array.dtype.kind not in "biufcUMm":
            raise TypeError(f"{where} is an array of {array.dtype}, which save does not write.")
        if array.ndim == 2 and array.dtype.kind == "f":
            # W (d, m) has k rows that are not zero
            nonzero = np.flatnonzero(array.any(axis=1))
            if 2 * len(nonzero) < len(array):
                rows = self.member(nonzero)
                name = self.member(array[nonzero])
                return {
                    "is": "some_rows",
                    "rows": rows,
                    "name": name,
                    "shape": shape,
                }
        return {"is": "array", "name": self.member(array)}

    def member(self, array: npt.NDArray[Any]) -> str:
        """Add an array to the archive; return its name there."""
        name = f"a{len(self.arrays)}"
        # reshape, because ascontiguousarray makes arrays of no dimension 1-d
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name


# ---- reading ---------------------------------------------------------------------------


class _Reader:
    """Turns JSON back into values. ``makers`` is all that a file can ask for."""

    def __init__(
        self,
        path: Path,
        arrays: dict[str, npt.NDArray[Any]],
        format_version: int,
    ) -> None:
        """Read with the members of the archive, by name, and the version of its header."""
        self.path = path
        self.arrays = arrays
        self.format_version = format_version
        self.makers: dict[str, Callable[..., Any]] = {
            kind.tag: kind.make for kind in KINDS_OF_VALUES
        }
        self.makers["array"] = self.array
        self.makers["objects"] = self.objects
        self.makers["some_rows"] = self.some_rows
        self.makers["selector"] = self.selector

    def value(self, found: dict[str, Any]) -> Any:
        """What an object of the header stands for; its parts are values already."""
        if "is" not in found:
            return found
        tag = found.pop("is")
        if tag not in self.makers:
            raise FileError(f"{self.path} holds a {tag!r:.80}, unknown to semfs. Refused.")
        return self.makers[tag](**found)

    def array(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name]

    def objects(self, items: list[Any], shape: list[int]) -> npt.NDArray[Any]:
        return object_array(items).reshape(shape)

    def some_rows(self, name: str, rows: str, shape: list[int]) -> npt.NDArray[Any]:
        """An array of zeros but for some rows."""
        n, m = shape
        size = 8 * n * m
        # every feature has a name, score and rank in the file: no more rows than bytes
        plausible = n <= self.path.stat().st_size
        check_declared_size(self.path, "an array", size, size if plausible else 0)
        whole = np.zeros((n, m), dtype=self.arrays[name].dtype)
        whole[self.arrays[rows]] = self.arrays[name]
        return whole

    def selector(self, type: str, params: dict[str, Any], state: dict[str, Any]) -> Any:
        """A selector of an allowed type, with known parameters and fitted attributes."""
        estimator = _selector_type(type)
        if estimator is None:
            known = ", ".join(TYPES)
            raise FileError(f"{self.path} holds a {type!r:.80}; this version loads {known}.")
        known_params = set(inspect.signature(estimator).parameters)
        unknown = set(params) - known_params
        if unknown:
            name = min(unknown)[:SHOWN_CHARACTERS]
            raise FileError(f"{self.path}: {type} has no parameter {name!r}. Upgrade semfs.")
        # only SemFS and SemFSCV have this parameter
        if self.format_version == 1 and "label_weight" in known_params:
            params = _params_of_format_1(params, state)
        selector = estimator(**params)
        for key, value in state.items():
            # a file must not replace methods and properties of the class
            fitted = re.fullmatch(r"[A-Za-z]\w*_", key) and not hasattr(estimator, key)
            if not fitted and key not in SETTINGS:
                shown = key[:SHOWN_CHARACTERS]
                raise FileError(f"{self.path}: {shown!r} is not a fitted attribute. Refused.")
            setattr(selector, key, value)
        d = state.get("n_features_in_")
        for name in PER_FEATURE:
            if name in state and np.shape(state[name]) != (d,):
                raise FileError(f"{self.path}: {name} does not have {d} entries. Refused.")
        return selector


def _params_of_format_1(
    params: dict[str, Any],
    state: dict[str, Any],
) -> dict[str, Any]:
    """Parameters of today that give the selection of SemFS as it was with format 1.

    Its label weight was the square of what indicators were multiplied by. Now it is relative to
    the attributes, which are known if the selector was fitted.
    """
    params = {**DEFAULTS_OF_FORMAT_1, **params}
    weight = params["label_weight"]
    table = state.get("class_table_")
    # labels that weigh nothing, or are alone, have no scale to convert
    if not weight or params.get("attributes") is None:
        return params
    if not isinstance(table, AttributeTable):
        warnings.warn(
            f"label_weight={weight!r} is relative to the attributes since this file was "
            "written: 1 means that both count the same. Set it again.",
            stacklevel=2,
        )
        return params
    unit = squared_label_weight(1.0, table.values)
    return {**params, "label_weight": float(weight) / unit}
