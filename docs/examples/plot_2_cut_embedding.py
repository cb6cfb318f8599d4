"""
Cut an embedding for unseen classes
===================================

An index holds vectors with hundreds of coordinates, and memory is expensive. Which coordinates can you drop
if classes will be added next month? We keep those that predict the *descriptions* of today's classes.

The embedding here is a random feature map of scikit-learn's digits with 512 coordinates. Seven digits
are seen, and three are unseen.
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
# The coordinates of a learned embedding differ in variance, and so do these.
wide *= np.random.default_rng(0).lognormal(sigma=0.7, size=512)
unseen = np.isin(digit, [2, 5, 8])

# %%
# Each digit is described by its strokes. The table was written without looking at an image.

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
# One fit gives a nested ranking, so every size is a slice of it. Coordinates are judged by how well
# nearest neighbors recognize the unseen digits.

sizes = [4, 8, 16, 32, 64, 128]
rankings = {
    "SemFS, described": SemFS(128, attributes=table.to_numpy()),
    "SemFS, labels only": SemFS(128),
    "Variance": VarianceSelector(128),
    "Random": RandomSelector(128, random_state=0),
}


def knn_accuracy(X):
    return cross_val_score(KNeighborsClassifier(), X, digit[unseen], cv=10).mean()


figure, ax = plt.subplots(figsize=(6, 3.6))
for name, selector in rankings.items():
    order = selector.fit(wide[~unseen], digit[~unseen]).order_
    found = [knn_accuracy(wide[unseen][:, order[:k]]) for k in sizes]
    ax.plot(sizes, found, marker="o", label=name)
ax.axhline(knn_accuracy(wide[unseen]), color="gray", ls=":", label="all 512")
ax.set(xscale="log", xticks=sizes, xticklabels=sizes)
ax.set(xlabel="coordinates kept", ylabel="accuracy", title="Nearest neighbors on unseen digits")
ax.legend(frameon=False)
figure.tight_layout()

# %%
# With seven seen classes and a rough description, attributes are about as good as plain labels. With few
# coordinates, random ones are as good. :doc:`/knowledge` shows where descriptions help.
