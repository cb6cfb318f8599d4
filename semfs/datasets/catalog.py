"""The known data sets: which files they need, where these are looked for, how to get them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from semfs.files import cache_folder

__all__ = ["CATALOG", "Entry", "data_folders", "find_entry", "find_files"]


@dataclass(frozen=True)
class Entry:
    """A known data set.

    ``files`` are paths relative to a data folder, any one group of which suffices.
    ``sha256`` is None where no checksum could be verified; such files are not downloaded.
    """

    name: str
    what: str
    loader: str
    files: tuple[tuple[str, ...], ...]
    source: str
    licence: str
    url: str | None = None
    sha256: str | None = None


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_XLSA = "Xian et al., 'Zero-Shot Learning - A Comprehensive Evaluation', xlsa17.zip"
_XLSA_URL = "http://datasets.d2.mpi-inf.mpg.de/xian/xlsa17.zip"


def _xlsa17(name: str, what: str, note: str = "") -> Entry:
    files = tuple(
        (f"{folder}{name}/res101.mat", f"{folder}{name}/att_splits.mat")
        for folder in ("xlsa17/data/", "xlsa17/", "")
    )
    licence = "features: none stated; images: see the data set's authors"
    source = note or f"unpack {_XLSA_URL} ({_XLSA})"
    return Entry(name, what, f'load_xlsa17(root, "{name}")', files, source, licence)


CATALOG: tuple[Entry, ...] = (
    Entry(
        "sample",
        "700 blood cells × 765 genes, 10 types × 20 attributes",
        "load_sample()",
        (),
        "bundled with semfs",
        "CC BY 4.0 as reported (10x Genomics)",
    ),
    Entry(
        "SUN attributes",
        "14,340 scenes, 717 classes × 102 attributes, 707/10",
        'load_sun("SUNAttributeDB", features)',
        (
            (
                "SUNAttributeDB/images.mat",
                "SUNAttributeDB/attributes.mat",
                "SUNAttributeDB/attributeLabels_continuous.mat",
            ),
        ),
        "unpack http://cs.brown.edu/~gmpatter/Attributes/SUNAttributeDB.tar.gz",
        "none stated; cite Patterson & Hays, CVPR 2012",
    ),
    Entry(
        "aPY",
        "15,339 objects, 32 classes × 64 attributes, 20/12",
        'load_apy("aPY_annotations", features)',
        (
            tuple(
                f"aPY_annotations/{name}.txt"
                for name in (
                    "apascal_train",
                    "apascal_test",
                    "ayahoo_test",
                    "attribute_names",
                    "class_names",
                )
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
            tuple(f"cifar-10-batches-bin/{b}.bin" for b in (*_BATCHES, "test_batch")),
            tuple(f"cifar-10-batches-py/{b}" for b in (*_BATCHES, "test_batch")),
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
