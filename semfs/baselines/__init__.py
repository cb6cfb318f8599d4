"""The paper's comparison methods, each a scikit-learn selector.

Unsupervised: `RandomSelector`, `VarianceSelector`, `MCFS`, `FSASL`. Supervised, by class
labels or by the attributes of the classes: `LassoSelector`, `L20ALM`, `WkNN`.
"""

from semfs.baselines.supervised import L20ALM, LassoSelector
from semfs.baselines.unsupervised import FSASL, MCFS, RandomSelector, VarianceSelector
from semfs.baselines.wknn import WkNN

__all__ = [
    "FSASL",
    "L20ALM",
    "MCFS",
    "LassoSelector",
    "RandomSelector",
    "VarianceSelector",
    "WkNN",
]
