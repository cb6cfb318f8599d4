"""The methods with which SemFS is compared, as scikit-learn selectors.

`RandomSelector`, `VarianceSelector`, `MCFS` and `FSASL` are unsupervised. `Markers` and
`BetweenClassSelector` use class labels. `LassoSelector`, `L20ALM` and `WkNN` use either labels
or class attributes. The page "The comparison methods" of the documentation explains how and why
they differ from the original programs. Most of them share these parameters:

- ``n_features_to_select`` (default 50): the number or share of features to select;
- ``attributes`` (default None): one numeric vector per class, as in `SemFS`; with None, one-hot
  labels are used;
- ``random_state`` (default 0): an int, RandomState or None.

A fitted selector has three arrays of shape (d,). ``scores_`` holds one score per feature, which
is ``-inf`` for constant columns and finite otherwise. ``order_`` holds the feature indices,
best first, and ``ranking_`` the rank of each feature (1 is the best). Supervised methods also
have ``classes_``, and iterative methods have ``n_iter_``.
"""

from semfs.baselines.fsasl import FSASL
from semfs.baselines.l20alm import L20ALM
from semfs.baselines.lasso import LassoSelector
from semfs.baselines.mcfs import MCFS
from semfs.baselines.simple import (
    BetweenClassSelector,
    Markers,
    RandomSelector,
    VarianceSelector,
)
from semfs.baselines.wknn import WkNN

__all__ = [
    "FSASL",
    "L20ALM",
    "MCFS",
    "BetweenClassSelector",
    "LassoSelector",
    "Markers",
    "RandomSelector",
    "VarianceSelector",
    "WkNN",
]
