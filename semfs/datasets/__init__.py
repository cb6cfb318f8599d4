"""Data sets for zero-shot feature selection: rows, labels, class descriptions, a class split.

`ZeroShotDataset` holds one, whatever its source; each ``load_*`` function returns one.
"""

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.catalog import CATALOG, CIFAR10_CLASSES, find_files, load_sample
from semfs.datasets.files import load_npz, load_table, read_features
from semfs.datasets.images import load_apy, load_cifar10, load_sun, load_xlsa17

__all__ = ["CATALOG", "CIFAR10_CLASSES", "ZeroShotDataset", "find_files", "load_apy"]
__all__ += ["load_cifar10", "load_npz", "load_sample", "load_sun", "load_table", "load_xlsa17"]
__all__ += ["read_features"]
