"""`save` and `load`, with the checks of a file before it is read."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

import semfs
from semfs._typing import PathLike
from semfs.io.npz import read_npz
from semfs.io.safety import FileError, atomic_write, file_errors, open_existing
from semfs.selectors.persistence.format import FORMAT, FORMAT_NAME, SHOWN_CHARACTERS, Json
from semfs.selectors.persistence.reader import Reader
from semfs.selectors.persistence.writer import Writer


def save(selector: BaseEstimator, path: PathLike) -> Path:
    """Save a fitted or unfitted selector to a single file.

    Parameters
    ----------
    selector : SemFS, SemFSCV or a selector of `semfs.baselines`
        The selector. Its parameters, fitted attributes and the sums of `partial_fit` are saved.
        Arrays on another device are later loaded as NumPy arrays. Callbacks and samples are not
        saved, except for the selected features of at most 20 samples of each class
        (``calibration_sample_``).
    path : path-like
        The file to write, which is replaced atomically. It is an ordinary ``.npz`` file,
        regardless of its extension.

    Examples
    --------
    >>> import os, tempfile
    >>> from semfs import SemFS, load, save
    >>> selector = SemFS(2).fit([[0, 0, 1], [1, 0, 2], [2, 5, 3]], ["ant", "bee", "bee"])
    >>> path = save(selector, os.path.join(tempfile.mkdtemp(), "panel.npz"))
    >>> load(path).get_feature_names_out().tolist() == selector.get_feature_names_out().tolist()
    True
    """
    writer = Writer()
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
    """Load a selector that was saved with `save`.

    Parameters
    ----------
    path : path-like
        The file, which may be written by this version, an earlier version, or a later version
        with the same file format. Nothing in the file is executed.

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
        reader = Reader(path, arrays, header["format_version"])
        return json.loads(text, object_hook=reader.value)["selector"]


def _check_archive(path: Path) -> None:
    """Raise if `save` cannot have written the archive, before anything is read from it."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            start = file.read(4)
        if start == b"":
            raise FileError(f"{path} is empty. Copy it again.")
        if start == b"PK\x03\x04":
            raise FileError(f"{path} is truncated. Copy it again.")
        raise FileError(
            f"{path} was not written by semfs.save, because it is not an "
            ".npz archive. Pickled selectors are refused, because "
            "reading them can run code. Fit again, and use semfs.save."
        )
    with zipfile.ZipFile(path) as archive:
        if "header.npy" not in archive.namelist():
            raise FileError(
                f"{path} is an archive, but without the header that semfs.save writes."
            )
        for item in archive.infolist():
            known_name = re.fullmatch(r"header\.npy|a\d+\.npy", item.filename)
            compressed = item.compress_type != zipfile.ZIP_STORED  # perhaps a zip bomb
            if not known_name or compressed:
                name = item.filename[:SHOWN_CHARACTERS]
                raise FileError(
                    f"{path} holds {name!r} in a form that semfs.save never writes."
                )
        # read_npz maps stored arrays without looking at checksums
        damaged = archive.testzip()
    if damaged is not None:
        raise FileError(f"{path} is damaged: {damaged!r} has changed. Copy it again.")


def _check_header(path: Path, header: Json) -> None:
    """Raise if the header is from another program, has a later format, or has no selector."""
    if not isinstance(header, dict) or header.get("format") != FORMAT_NAME:
        raise FileError(f"{path} is an .npz file, but semfs.save did not write it.")
    version = header.get("format_version")
    # not isinstance, because true of JSON is an int of Python, too
    if type(version) is not int or not 1 <= version <= FORMAT:
        writer = header.get("semfs_version")
        raise FileError(
            f"{path} has format version {version!r:.80} and was written "
            f"by semfs {writer!r:.80}, but semfs {semfs.__version__} "
            f"reads only versions up to {FORMAT}. Upgrade semfs."
        )
    selector = header.get("selector")
    if not isinstance(selector, dict) or selector.get("is") != "selector":
        raise FileError(f"{path} holds no selector. Save it again.")
