"""The methods SemFS is compared with, each a scikit-learn selector.

Unsupervised: `RandomSelector`, `VarianceSelector`, `MCFS`, `FSASL`. Supervised by class
labels: `Markers`; by labels or by the attributes of the classes: `LassoSelector`, `L20ALM`,
`WkNN`. The documentation's page on the comparison methods says how they differ from the
original programs, and why. Where they have them, they share the parameters

- ``n_features_to_select`` (50), a number, or a share of the features;
- ``attributes``: one row of numbers per class, as in `SemFS`; None takes the labels, one-hot;
- ``random_state`` (0): an int, RandomState or None;

and, once fitted, ``scores_`` (d,), finite but for ``-inf`` of constant columns, ``order_``
(d,), the feature indices, best first, ``ranking_`` (d,), the rank of each feature, 1 = best;
supervised ones also ``classes_`` (C,), those that iterate ``n_iter_``.
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
