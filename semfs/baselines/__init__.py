"""The methods that SemFS is compared with. Each is a scikit-learn selector.

Unsupervised: `RandomSelector`, `VarianceSelector`, `MCFS`, `FSASL`. Supervised by class labels:
`Markers`, `BetweenClassSelector`; by labels or by the attributes of the classes:
`LassoSelector`, `L20ALM`, `WkNN`. The page "The comparison methods" of the documentation says
how they differ from the original programs, and why. Most have these parameters in common:

- ``n_features_to_select`` (50): a number, or a share of the features;
- ``attributes``: one row of numbers per class, as in `SemFS`; None uses one-hot labels;
- ``random_state`` (0): an int, RandomState or None;

After `fit`, they have ``scores_`` (d,), which are ``-inf`` for constant columns and finite
otherwise, ``order_`` (d,), the feature indices, best first, and ``ranking_`` (d,), the rank of
each feature (1 is the best). Supervised methods also have ``classes_`` (C,), and iterative
methods ``n_iter_``.
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
