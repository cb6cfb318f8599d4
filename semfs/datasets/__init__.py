"""Data sets for zero-shot feature selection.

Each ``load_*`` function returns a `ZeroShotDataset`, which holds samples, class labels, class
descriptions and a split into seen and unseen classes.
"""

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.catalog import CATALOG, CIFAR10_CLASSES, find_files, load_sample
from semfs.datasets.cifar10 import load_cifar10
from semfs.datasets.files import load_npz, load_table
from semfs.datasets.images import load_apy, load_sun
from semfs.datasets.matrices import read_features
from semfs.datasets.xlsa17 import load_xlsa17

__all__ = [
    "CATALOG",
    "CIFAR10_CLASSES",
    "ZeroShotDataset",
    "find_files",
    "load_apy",
    "load_cifar10",
    "load_npz",
    "load_sample",
    "load_sun",
    "load_table",
    "load_xlsa17",
    "read_features",
]
