"""Data sets for zero-shot feature selection: rows, labels, class descriptions, a class split.

`ZeroShotDataset` holds one, whatever its source; each ``load_*`` function returns one.
"""

from semfs.datasets.apy import load_apy
from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.catalog import CATALOG, find_entry, find_files
from semfs.datasets.cifar10 import CIFAR10_CLASSES, load_cifar10, read_word_table
from semfs.datasets.features import extract_features
from semfs.datasets.fetch import (
    fetch_apy,
    fetch_cifar10,
    fetch_glove,
    fetch_sun,
    fetch_xlsa17,
)
from semfs.datasets.files import load_h5ad, load_npz, load_table, read_features
from semfs.datasets.sample import load_sample
from semfs.datasets.sun import load_sun
from semfs.datasets.xlsa17 import Xlsa17Splits, load_xlsa17, read_xlsa17_splits
from semfs.datasets.xlsa17_export import check_xlsa17, to_xlsa17

__all__ = [
    "CATALOG",
    "CIFAR10_CLASSES",
    "Xlsa17Splits",
    "ZeroShotDataset",
    "check_xlsa17",
    "extract_features",
    "fetch_apy",
    "fetch_cifar10",
    "fetch_glove",
    "fetch_sun",
    "fetch_xlsa17",
    "find_entry",
    "find_files",
    "load_apy",
    "load_cifar10",
    "load_h5ad",
    "load_npz",
    "load_sample",
    "load_sun",
    "load_table",
    "load_xlsa17",
    "read_features",
    "read_word_table",
    "read_xlsa17_splits",
    "to_xlsa17",
]
