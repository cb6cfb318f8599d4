"""The methods SemFS is compared with, each a scikit-learn selector.

Unsupervised: `RandomSelector`, `VarianceSelector`, `MCFS`, `FSASL`. Supervised by class
labels: `Markers`; by labels or by the attributes of the classes: `LassoSelector`, `L20ALM`,
`WkNN`.
"""

from semfs.baselines.fsasl import FSASL
from semfs.baselines.l20alm import L20ALM
from semfs.baselines.lasso import LassoSelector
from semfs.baselines.mcfs import MCFS
from semfs.baselines.simple import Markers, RandomSelector, VarianceSelector
from semfs.baselines.wknn import WkNN

__all__ = [
    "FSASL",
    "L20ALM",
    "MCFS",
    "LassoSelector",
    "Markers",
    "RandomSelector",
    "VarianceSelector",
    "WkNN",
]
