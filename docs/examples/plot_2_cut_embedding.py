"""
Cutting an embedding without knowing the classes to come
========================================================

An index holds wide vectors, and memory is dear. Which coordinates can go, if new classes will be
added next month? We keep those that predict the *descriptions* of today's classes.

The embedding here is a random feature map of scikit-learn's digits, 512 coordinates wide. Seven
digits are known, three will come later.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from semfs import SemFS
from semfs.baselines import RandomSelector, VarianceSelector

pixels, digit = load_digits(return_X_y=True)
wide = RBFSampler(gamma=1e-3, n_components=512, random_state=0).fit_transform(pixels)
# Coordinates of a learned embedding differ in how much they carry; so do these.
wide *= np.random.default_rng(0).lognormal(sigma=0.7, size=512)
coming = np.isin(digit, [2, 5, 8])

# %%
# A digit is described by its strokes, written down without looking at a single image.

table = pd.DataFrame(
    {
        "loop above": [0.5, 0, 0, 0, 0.5, 0, 0, 0, 1, 1],
        "loop below": [0.5, 0, 0, 0, 0, 0, 1, 0, 1, 0],
        "bar on top": [0, 0, 0.5, 0.5, 0, 1, 0, 1, 0, 0],
        "bar at foot": [0, 0.5, 1, 0, 0, 0, 0, 0, 0, 0],
        "upright": [0, 1, 0, 0, 1, 0, 0, 0.5, 0, 0.5],
        "open left": [0, 0, 0.5, 1, 0, 0.5, 0, 0.5, 0, 0],
        "open right": [0, 0, 0.5, 0, 0, 0.5, 0.5, 0, 0, 0],
    }
)
table.style.format(precision=1)

# %%
# One fit gives a nested ranking, so every size is a slice of it. Coordinates are judged by
# nearest neighbors among the digits that were never seen.

sizes = [4, 8, 16, 32, 64, 128]
rankings = {
    "SemFS, described": SemFS(128, attributes=table.to_numpy()),
    "SemFS, labels only": SemFS(128),
    "Variance": VarianceSelector(128),
    "Random": RandomSelector(128, random_state=0),
}


def knn_accuracy(X):
    return cross_val_score(KNeighborsClassifier(), X, digit[coming], cv=10).mean()


figure, ax = plt.subplots(figsize=(6, 3.6))
for name, selector in rankings.items():
    order = selector.fit(wide[~coming], digit[~coming]).order_
    found = [knn_accuracy(wide[coming][:, order[:k]]) for k in sizes]
    ax.plot(sizes, found, marker="o", label=name)
ax.axhline(knn_accuracy(wide[coming]), color="grey", ls=":", label="all 512")
ax.set(xscale="log", xticks=sizes, xticklabels=sizes)
ax.set(xlabel="coordinates kept", ylabel="5-NN accuracy, unseen digits")
ax.legend(frameon=False)
figure.tight_layout()

# %%
# Few seen classes and a rough description: attributes and plain labels are close here. The
# description pays where classes are many and share attributes; see the user guide.
