"""
Compare your own selector
=========================

Any scikit-learn selector can join the comparison. Its ranking is read from ``order_``,
``ranking_``, ``scores_`` or ``feature_importances_``; a selector with none of these is fitted again
for every number of features.
"""

from pathlib import Path

import matplotlib.pyplot as plt

from semfs.lab.comparison import curves
from semfs.lab.evaluate import evaluate

# %%
# This one ranks features by the ratio of between-class to within-class variance, and gives all classes the
# same weight. It is written to a file because worker processes must be able to import it.

source = """
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import validate_data


class FisherSelector(SelectorMixin, BaseEstimator):
    def __init__(self, n_features_to_select=10):
        self.n_features_to_select = n_features_to_select

    def fit(self, X, y):
        X, y = validate_data(self, X, y)
        means = np.array([X[y == c].mean(axis=0) for c in np.unique(y)])
        within = np.mean([X[y == c].var(axis=0) for c in np.unique(y)], axis=0)
        self.scores_ = means.var(axis=0) / (within + 1e-3)
        self.order_ = np.argsort(-self.scores_, kind="stable")
        return self

    def _get_support_mask(self):
        mask = np.zeros(len(self.order_), dtype=bool)
        mask[self.order_[: self.n_features_to_select]] = True
        return mask
"""
Path("my_selector.py").write_text(source)

# %%
# Name it as ``module:Selector``, here and on the command line:
# ``semfs evaluate sample --method semfs,anova,my_selector:FisherSelector -k 5:30:5``.

rows, summary = evaluate(
    "sample",
    ["semfs", "anova", "my_selector:FisherSelector", "random"],
    ks=[5, 10, 15, 20, 25, 30],
    n_repeats=10,
    n_jobs=1,
)
print(f"{summary.n_computed} jobs computed, {len(summary.failures)} failed")

# %%
# ``rows`` holds all measurements, and ``curves`` averages them over the splits.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2))
for ax, metric in zip(axes, ("acc", "nmi")):
    for label, line in curves(rows, metric).items():
        ax.plot([point.x for point in line], [point.mean for point in line], "o-", label=label)
    ax.set(xlabel="genes", title=f"{metric.upper()} on unseen types")
axes[0].legend(frameon=False, fontsize=8)
figure.tight_layout()

# %%
# This is one split. ``semfs reproduce clustering --data DIR --out RUN --method ...`` runs the whole protocol on
# many splits and on your own data sets. It can be resumed, and ``semfs report RUN`` makes one page of the results.

Path("my_selector.py").unlink()
