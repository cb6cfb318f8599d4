"""The known data sets: their files, where these are looked for, and how to get them."""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.originals import load_cifar10
from semfs.files import cache_folder, check_declared_size, reading

__all__ = [
    "CATALOG",
    "Entry",
    "data_folders",
    "download",
    "fetch_cifar10",
    "fetch_glove",
    "find_entry",
    "find_files",
    "unpack",
]


@dataclass(frozen=True)
class Entry:
    """A known data set.

    ``files`` are paths relative to a data folder, any one group of which suffices. Only an
    archive with a ``url`` and a checksum, ``sha256``, is ever downloaded.
    """

    name: str
    what: str
    loader: str
    files: tuple[tuple[str, ...], ...]
    source: str
    licence: str
    url: str | None = None
    sha256: str | None = None


def _files(folder: str, names: str, suffix: str = "") -> tuple[str, ...]:
    return tuple(f"{folder}/{name}{suffix}" for name in names.split())


def _xlsa17(name: str, what: str, source: str = "") -> Entry:
    return Entry(
        name,
        what,
        f'load_xlsa17(root, "{name}")',
        tuple(
            (f"{folder}{name}/res101.mat", f"{folder}{name}/att_splits.mat")
            for folder in ("xlsa17/data/", "xlsa17/", "")
        ),
        source
        or "unpack http://datasets.d2.mpi-inf.mpg.de/xian/xlsa17.zip (Xian et al., 'Zero-Shot "
        "Learning - A Comprehensive Evaluation', xlsa17.zip)",
        "features: none stated; images: see the data set's authors",
    )


_BATCHES = " ".join([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"])
CATALOG: tuple[Entry, ...] = (
    Entry(
        "sample",
        "964 lung cells × 2,000 genes, 19 types × 56 attributes, 12/7",
        "load_sample()",
        (),
        "bundled with semfs",
        "CC BY 4.0 as reported (Tabula Sapiens)",
    ),
    Entry(
        "blood",
        "700 blood cells × 765 genes, 10 types × 20 attributes, 6/4",
        'load_sample("blood")',
        (),
        "bundled with semfs",
        "CC BY 4.0 as reported (10x Genomics)",
    ),
    Entry(
        "SUN attributes",
        "14,340 scenes, 717 classes × 102 attributes, 707/10",
        'load_sun("SUNAttributeDB", features)',
        (_files("SUNAttributeDB", "images attributes attributeLabels_continuous", ".mat"),),
        "unpack http://cs.brown.edu/~gmpatter/Attributes/SUNAttributeDB.tar.gz",
        "none stated; cite Patterson & Hays, CVPR 2012",
    ),
    Entry(
        "aPY",
        "15,339 objects, 32 classes × 64 attributes, 20/12",
        'load_apy("aPY_annotations", features)',
        (
            _files(
                "aPY_annotations",
                "apascal_train apascal_test ayahoo_test attribute_names class_names",
                ".txt",
            ),
        ),
        "unpack http://vision.cs.uiuc.edu/attributes/attribute_data.tar.gz and name the folder "
        "aPY_annotations",
        "none stated; cite Farhadi et al., CVPR 2009",
    ),
    Entry(
        "CIFAR10",
        "60,000 images, 10 classes, 45 two-class splits",
        "load_cifar10(root, features)",
        (
            _files("cifar-10-batches-bin", _BATCHES, ".bin"),
            _files("cifar-10-batches-py", _BATCHES),
        ),
        "semfs.datasets.fetch_cifar10(attributes=TABLE), or unpack cifar-10-binary.tar.gz from "
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "none stated; cite Krizhevsky, 2009",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    Entry(
        "GloVe",
        "word vectors of 400,000 words, 50 to 300 numbers each",
        'encode_class_names(names, "glove.6B.100d.txt")',
        (("glove.6B.50d.txt",), ("glove.6B.100d.txt",), ("glove.6B.300d.txt",)),
        "semfs.datasets.fetch_glove(), or unpack glove.6B.zip from "
        "https://nlp.stanford.edu/projects/glove/",
        "Public Domain Dedication and License 1.0",
        "https://nlp.stanford.edu/data/glove.6B.zip",
        "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    ),
    _xlsa17("AWA1", "30,475 images, 50 animals × 85 attributes, 40/10"),
    _xlsa17("AWA2", "37,322 images, 50 animals × 85 attributes, 40/10"),
    _xlsa17("CUB", "11,788 images, 200 birds × 312 attributes, 150/50"),
    _xlsa17("SUN", "14,340 images, 717 scenes × 102 attributes, 645/72"),
    _xlsa17("APY", "15,339 images, 32 classes × 64 attributes, 20/12"),
    _xlsa17(
        "FLO",
        "8,189 images, 102 flowers × 1,024 text features, 82/20",
        "not part of xlsa17.zip: a later addition by others in the same layout, with files "
        "FLO/res101.mat and FLO/att_splits.mat",
    ),
)


def data_folders() -> list[Path]:
    """Return where data sets are looked for: ``$SEMFS_DATA``, ``data``, here, the cache."""
    chosen = os.environ.get("SEMFS_DATA", "")
    given = [Path(part) for part in chosen.split(os.pathsep) if part]
    return [*given, Path("data"), Path(), cache_folder()]


def find_entry(name: str) -> Entry:
    """Return the entry of a data set by its name, whatever the case."""
    for entry in CATALOG:
        if entry.name.lower() == name.lower():
            return entry
    known = ", ".join(entry.name for entry in CATALOG)
    raise ValueError(f"no data set {name!r} is known. Known: {known}.")


def find_files(entry: Entry, folders: list[Path] | None = None) -> Path | None:
    """Return the folder that holds the files of a data set, or None."""
    for folder in data_folders() if folders is None else folders:
        for group in entry.files:
            if all((folder / name).is_file() for name in group):
                return (folder / group[0]).parent
    return None


# ---- downloads -------------------------------------------------------------------------------


def fetch_cifar10(
    features: Any = None, *, attributes: Any, folder: Any = None
) -> ZeroShotDataset:
    """Download CIFAR-10 (170 MB) once, and return it as `load_cifar10` does.

    Parameters
    ----------
    features, attributes
        See `load_cifar10`; there are no word vectors in the download, so pass attributes.
    folder : path-like, optional
        Where to keep it; by default `semfs.attributes.encoders.cache_folder`.
    """
    root = download(find_entry("CIFAR10"), folder)
    return load_cifar10(root, features, attributes=attributes)


def fetch_glove(size: int = 100, *, folder: Any = None) -> Path:
    """Download GloVe word vectors (862 MB) once; returns the file for `encode_class_names`.

    Parameters
    ----------
    size : {50, 100, 200, 300}, default=100
        Numbers per word.
    folder : path-like, optional
        Where to keep it; by default `semfs.attributes.encoders.cache_folder`.
    """
    if size not in (50, 100, 200, 300):
        raise ValueError(f"size must be 50, 100, 200 or 300, got {size!r}.")
    return download(find_entry("GloVe"), folder) / f"glove.6B.{size}d.txt"


def download(entry: Entry, folder: Any = None) -> Path:
    """Return the folder with an entry's unpacked archive, downloaded if it is not there."""
    root = Path(folder or cache_folder())
    target = root / entry.name.lower()
    if target.is_dir():
        return target
    if entry.url is None:
        raise FileNotFoundError(
            f"{entry.name} is not downloaded, because no checksum of it is published. To get "
            f"it: {entry.source}; put it into {root}."
        )
    try:
        import pooch
    except ImportError as error:
        raise ImportError("Downloads need pooch: pip install 'semfs[data]'") from error
    print(f"{entry.name}: {entry.what}. Licence: {entry.licence}.", file=sys.stderr)
    name = Path(entry.url).name
    registry, urls = {name: f"sha256:{entry.sha256}"}, {name: entry.url}
    files = pooch.create(root, "", registry=registry, urls=urls, retry_if_failed=2)
    http = pooch.HTTPDownloader(sys.stderr.isatty(), chunk_size=2**20, timeout=60)
    try:
        archive = files.fetch(name, downloader=http)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise OSError(
            f"{entry.url} could not be downloaded ({reason}). Download it by hand into {root}."
        ) from error
    return unpack(Path(archive), target)


def unpack(archive: Path, target: Path) -> Path:
    """Unpack a .zip, .tar or .tar.gz file into a new folder, which appears whole.

    Nothing is written outside the folder, and an archive that expands beyond belief is
    refused. (pooch's processors check no sizes, and no paths of tar files before Python 3.12.)
    """
    with reading(archive, "archive"), tempfile.TemporaryDirectory(dir=target.parent) as beside:
        content = Path(beside) / target.name
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _check_size(archive, [item.file_size for item in zipped.infolist()])
                zipped.extractall(content)
        else:
            with tarfile.open(archive) as tar:
                _check_size(archive, [item.size for item in tar.getmembers()])
                tar.extractall(content, filter="data")
        return content.rename(target)


def _check_size(archive: Path, sizes: list[int]) -> None:
    check_declared_size(archive, "its content", sum(sizes), archive.stat().st_size)
