"""Feature selection for classes nobody has labelled yet, from class descriptions.

>>> from semfs import SemFS
>>> SemFS(n_features_to_select=10)
SemFS(n_features_to_select=10)
"""

from semfs.method.moments import Moments
from semfs.selectors.persistence import load, save
from semfs.selectors.semfs import AS_PUBLISHED, SemFS
from semfs.selectors.semfs_cv import SemFSCV

__version__ = "0.1.0.dev0"
__all__ = ["AS_PUBLISHED", "Moments", "SemFS", "SemFSCV", "load", "save"]
