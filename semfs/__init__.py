"""Feature selection for classes nobody has labelled yet, from class descriptions.

>>> from semfs import SemFS
>>> SemFS(n_features_to_select=10)
SemFS(n_features_to_select=10)
"""

from semfs.crossval import SemFSCV
from semfs.estimator import AS_PUBLISHED, SemFS
from semfs.moments import Moments
from semfs.persistence import load, save

__version__ = "0.1.0.dev0"
__all__ = ["AS_PUBLISHED", "Moments", "SemFS", "SemFSCV", "load", "save"]
