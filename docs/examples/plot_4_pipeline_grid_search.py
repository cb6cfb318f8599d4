"""
Tune a pipeline on held-out classes
===================================

``SemFS`` is a scikit-learn selector, so it works in pipelines and ``GridSearchCV``. To choose settings for
*unseen* classes, hold out whole classes, not samples. ``ClassKFold`` makes such folds, and
``cluster_scorer`` scores how well K-means finds the held-out classes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from semfs import SemFS, SemFSCV
from semfs.datasets import load_sample
from semfs.evaluation import ClassKFold, cluster_scorer, cluster_scores

data = load_sample("lining")
X_seen, y_seen, X_unseen, y_unseen = data.split()

pipeline = Pipeline(
    [
        ("scale", StandardScaler()),
        ("select", SemFS(attributes=data.attributes)),
    ]
)
grid = {
    "scale": [StandardScaler(), "passthrough"],
    "select__n_features_to_select": [5, 10, 20, 40],
    "select__gamma": [0.1, 1.0, 10.0],
}
search = GridSearchCV(
    pipeline, grid, cv=ClassKFold(3), scoring=cluster_scorer(n_repeats=5), n_jobs=1
)
search.fit(X_seen, y_seen)

# %%
# These settings separated held-out *seen* types best. The score is that of the unseen types, which took
# no part in the search:

print(search.best_params_)
accuracies, _ = cluster_scores(search.transform(X_unseen), y_unseen)
print(f"ACC on the unseen types: {np.mean(accuracies):.3f}")

# %%
# With six seen types the folds are noisy, so look at the whole table and not only at its best row.

results = search.cv_results_
figure, ax = plt.subplots(figsize=(6, 3.6))
scaled = np.array([p["scale"] != "passthrough" for p in results["params"]])
for scale in (True, False):
    for gamma in grid["select__gamma"]:
        line = (scaled == scale) & (results["param_select__gamma"] == gamma)
        ax.errorbar(
            results["param_select__n_features_to_select"][line].astype(int),
            results["mean_test_score"][line],
            results["std_test_score"][line] / np.sqrt(3),
            marker="o",
            ls="-" if scale else ":",
            capsize=2,
            label=f"γ = {gamma:g}, {'scaled' if scale else 'raw'}",
        )
ax.set(xlabel="genes", ylabel="ACC", title="K-means on held-out seen types, by setting")
ax.legend(frameon=False, fontsize=8, ncols=2)
figure.tight_layout()

# %%
# ``SemFSCV`` does such a search in about one pass over the data. It compares 24 settings, and chooses k by
# the one-standard-error rule.

quick = SemFSCV("auto", data.attributes, max_features=40).fit(X_seen, y_seen)
print(quick.best_params_, quick.n_features_, "genes")
figure, ax = plt.subplots(figsize=(6, 3))
ax.errorbar(quick.curve_["n_features"], quick.curve_["mean"], quick.curve_["se"], capsize=2)
ax.axvline(quick.n_features_, color="gray", ls=":")
ax.set(xlabel="genes", ylabel="score", title="Score on held-out seen types")
figure.tight_layout()
