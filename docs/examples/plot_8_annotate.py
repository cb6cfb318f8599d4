"""
From a panel to annotated cells
===============================

An atlas has twelve labeled cell types of the lung. A new sample has seven other types. We know only their
descriptions, which are their ancestors in the Cell Ontology. We select a panel on the atlas, predict the types
of the new cells, and compare with the labels that we held back.
"""

import anndata
import matplotlib.pyplot as plt
import pandas as pd
from sklearn.metrics import ConfusionMatrixDisplay, balanced_accuracy_score

from semfs import SemFS
from semfs.datasets import load_sample
from semfs.scverse import annotate

lung = load_sample()
X_atlas, y_atlas, X_new, y_new = lung.split()
genes = pd.DataFrame(index=lung.feature_names)
atlas = anndata.AnnData(X_atlas, obs=pd.DataFrame({"cell_type": y_atlas}), var=genes)
sample = anndata.AnnData(X_new, var=genes)

# %%
# The panel has fifty genes. The table also describes the seven types that the atlas lacks, and SemFS uses
# these descriptions.

selector = SemFS(50, attributes=lung.attributes).fit(atlas, "cell_type")
print(*selector.get_feature_names_out()[:10])

# %%
# Suppose we know that the new sample has none of the twelve types. We predict each cell alone, and all cells
# together, because groups of cells show where the unseen types are. On average over data sets, predicting
# together is better. With few cells of similar types, as here, either may win.

new_types = lung.attributes.loc[lung.unseen]
annotate(sample, selector, new_types, key_added="alone")
annotate(sample, selector, new_types, together=True, key_added="together")
for key in ("alone", "together"):
    accuracy = balanced_accuracy_score(y_new, sample.obs[f"{key}_class"].astype(str))
    print(f"{key}: {accuracy:.2f} of the cells of a type are right")

# %%
# Which types are confused? Most confusions are between types with similar descriptions in the ontology.

figure, axes = plt.subplots(figsize=(8, 7), layout="constrained")
ConfusionMatrixDisplay.from_predictions(
    y_new,
    sample.obs["together_class"].astype(str),
    normalize="true",
    values_format=".1f",
    xticks_rotation="vertical",
    ax=axes,
    colorbar=False,
)
axes.set_title("Share of the cells of each type by predicted type")

# %%
# Without a table, all nineteen types compete. Seen types would win too often, because more is known about
# them. A bias that was learned from the atlas alone corrects this.

annotate(sample, selector, together=True)
print(f"bias {selector.bias_:.1f}")
print(
    (sample.obs["semfs_class"].astype(str) == y_new).mean().round(2), "of all cells are right"
)
sample.obs[["semfs_class", "semfs_probability", "semfs_second"]].head()
