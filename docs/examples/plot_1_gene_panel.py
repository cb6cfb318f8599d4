"""
A gene panel for cell types nobody has labeled
===============================================

A panel of a few genes is ordered today. Later it must separate cell types for which there are no
labeled cells yet. We have labeled cells of *other* types and a description of each type: its location, its shape and its function.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.pipeline import make_pipeline

from semfs import SemFS
from semfs.baselines import RandomSelector, VarianceSelector
from semfs.datasets import load_sample
from semfs.evaluation import cluster_scores

data = load_sample("lining")
data

# %%
# Six types are seen and four are unseen. The description of a type is a row of numbers:

X_seen, y_seen, X_unseen, y_unseen = data.split()
data.attributes.loc[list(data.unseen)].T

# %%
# Select ten genes that predict the descriptions of the seen types:

cells = pd.DataFrame(X_seen, columns=data.feature_names)
selector = SemFS(n_features_to_select=10, attributes=data.attributes).fit(cells, y_seen)
selector

# %%
# The figure shows what each gene contributes, in order of selection. The ranking is nested, so the first
# five genes are the panel of five.

genes = selector.feature_names_in_[selector.order_[:10]]
gains = selector.scores_[selector.order_[:10]]
figure, ax = plt.subplots(figsize=(6, 3))
ax.bar(genes, gains / gains.sum(), color="#3b7dd8")
ax.set(ylabel="share of the fit", title="Ten genes, in order of selection")
ax.tick_params(axis="x", rotation=45)
figure.tight_layout()

# %%
# Do these genes separate the unseen types? The labels of these cells are used only to color the
# points and to compute scores.

small = selector.transform(pd.DataFrame(X_unseen, columns=data.feature_names))
flat = PCA(2).fit_transform(small)
figure, ax = plt.subplots(figsize=(6, 4))
for cell_type in np.unique(y_unseen):
    cells_of_type = y_unseen == cell_type
    ax.scatter(*flat[cells_of_type].T, s=14, alpha=0.7, label=cell_type)
ax.legend(frameon=False, fontsize=8)
ax.set(title="Unseen cell types in the ten genes", xticks=[], yticks=[])
figure.tight_layout()

# %%
# One split proves little, so we compare over twelve splits of the ten types. ACC is the share
# of cells that K-means puts into the right cluster.

methods = {
    "SemFS": lambda table: SemFS(10, attributes=table),
    "ANOVA F": lambda table: make_pipeline(VarianceThreshold(), SelectKBest(k=10)),
    "Variance": lambda table: VarianceSelector(10),
    "Random": lambda table: RandomSelector(10, random_state=0),
}
scores = {name: [] for name in methods}
for split in data.random_splits(12, 4, random_state=0):
    X, y, X_new, y_new = split.split()
    for name, make in methods.items():
        selected = make(split.attributes).fit(X, y)
        accuracies, _ = cluster_scores(selected.transform(X_new), y_new, n_repeats=10)
        scores[name].append(np.mean(accuracies))

figure, ax = plt.subplots(figsize=(6, 3))
ax.boxplot(list(scores.values()), orientation="horizontal", tick_labels=list(scores))
ax.invert_yaxis()
ax.set(xlabel="ACC", title="K-means on unseen types, twelve splits")
figure.tight_layout()
