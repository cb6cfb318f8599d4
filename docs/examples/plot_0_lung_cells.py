"""
End to end: a lung gene panel from the Cell Ontology
====================================================

We have labeled cells of some types but only the *names* of other types. The Cell Ontology describes all of
them. Genes that predict these descriptions also separate the types that nobody has labeled.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from semfs import SemFS
from semfs.attributes import attributes_from_ontology
from semfs.baselines import Markers, VarianceSelector
from semfs.datasets import load_sample
from semfs.evaluation import cluster_scores

warnings.simplefilter("ignore", UserWarning)  # terms that do not vary over seen types

data = load_sample()
X_seen, y_seen, X_unseen, y_unseen = data.split()
print("labeled:", *sorted(set(y_seen)), sep="\n  ")
print("unseen:", *data.unseen, sep="\n  ")

# %%
# Names become descriptions
# -------------------------
# A type is described by its ancestors. Here they come from an excerpt of the ontology. With
# ``pip install 'semfs[cl]'``, leave the file out to use the whole Cell Ontology.

types = list(data.attributes.index)  # seen and unseen types, in one table
table = attributes_from_ontology(types, "cl_lung.obo")
table.loc[
    data.unseen, ["leukocyte", "phagocyte", "epithelial cell", "endothelial cell"]
].astype(int)

# %%
# Twenty genes
# ------------
# The table also describes types without cells, and SemFS uses these descriptions. It also uses unlabeled
# cells. Here these are the cells of the unseen types, as in a new sample. ``knowledge_`` lists what was used.

cells = pd.DataFrame(X_seen, columns=data.feature_names)
new_cells = pd.DataFrame(X_unseen, columns=data.feature_names)
selector = SemFS(20, attributes=table).fit(cells, y_seen, X_unlabeled=new_cells)
for source, sentence in selector.knowledge_.items():
    print(f"{source}: {sentence}")

# %%
# In order of entry:

genes = selector.feature_names_in_[selector.order_[:20]]
print(*genes)

# %%
# What they look like
# -------------------
# The size of a dot is the share of cells that express a gene, and its color is the mean expression. The
# types in bold had no label when the genes were selected.

everything = pd.DataFrame(data.X, columns=data.feature_names)[genes]
means = everything.groupby(data.y).mean()
compartments = data.info["compartments"]  # immune cells together, and so on
means = (means / means.max()).loc[sorted(means.index, key=compartments.get)]
shares = (everything > 0).groupby(data.y).mean().loc[means.index]

figure, ax = plt.subplots(figsize=(8.5, 6))
rows, columns = np.indices(means.shape)
dots = ax.scatter(
    columns, rows, s=120 * shares.to_numpy().ravel(), c=means.to_numpy().ravel(),
    cmap="YlOrRd", edgecolors="#777777", linewidths=0.4,
)  # fmt: skip
ax.set_xticks(range(len(genes)), genes, rotation=60, ha="right")
for tick, name in zip(ax.set_yticks(range(len(means)), means.index), means.index):
    tick.label1.set_fontweight("bold" if name in data.unseen else "normal")
ax.invert_yaxis()
ax.set_title("Selected genes by cell type (unseen types in bold; size: share of cells)")
figure.colorbar(dots, label="mean expression, share of the largest", shrink=0.6)
figure.tight_layout()

# %%
# Unseen types
# ------------
# One split proves little. Therefore we hide other types twelve times, select genes on the rest, and let K-means
# cluster the cells of the hidden types. Their labels are used for scoring only. Rankings are nested, so one fit
# serves panels of every size.

methods = {
    "markers per type": lambda X, y, new: Markers(50).fit(X, y),
    "variance": lambda X, y, new: VarianceSelector(50).fit(X, y),
    "labels alone": lambda X, y, new: SemFS(50).fit(X, y),
    "+ descriptions": lambda X, y, new: SemFS(50, attributes=table).fit(X, y),
    "+ unlabeled cells": lambda X, y, new: SemFS(50, attributes=table).fit(
        X, y, X_unlabeled=new
    ),
}
scores = {name: [] for name in methods}
for split in data.random_splits(12, 7, random_state=0):
    X, y, new, hidden = split.split()
    for name, fit in methods.items():
        order = fit(X, y, new).order_
        panels = [new[:, order[:k]] for k in (5, 10, 20, 50)]
        scores[name].append(
            np.mean([cluster_scores(p, hidden, n_repeats=5)[1] for p in panels])
        )

found = pd.DataFrame(scores)
found.describe().loc[["mean", "std"]].T.round(3)

# %%
# Compare methods within each split. The intervals are two standard errors wide on each side:

lead = found.drop(columns="markers per type").sub(found["markers per type"], axis=0)
figure, ax = plt.subplots(figsize=(6, 2.8))
ax.errorbar(lead.mean(), lead.columns, xerr=2 * lead.sem(), fmt="o", color="#3b7dd8", capsize=4)
ax.axvline(0, color="#777777", linewidth=1)
ax.invert_yaxis()
ax.margins(y=0.15)
ax.locator_params(axis="x", nbins=6)
ax.set(xlabel="NMI on unseen types", title="Lead over markers per type")
figure.tight_layout()
