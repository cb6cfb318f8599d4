"""
Explain a selection
===================

``explain()`` describes each selected feature: the attributes and classes that it follows, the features that
could replace it, and how often it is selected again if the classes are resampled.
"""

import pandas as pd

from semfs import SemFS
from semfs.datasets import load_sample

data = load_sample("lining")
X, y, _, _ = data.split()
cells = pd.DataFrame(X, columns=data.feature_names)
selector = SemFS(10, attributes=data.attributes).fit(cells, y)
explanation = selector.explain()
print(explanation)

# %%
# The attribute table describes where cells are and what they do. It mentions none of these genes.

figure = explanation.plot_attributes()
figure.set_label("Correlation of the class means of each gene with each attribute")

# %%
# The share of each gene in the fit, in order of selection:

figure = explanation.plot_gains()
figure.set_label("Share of each gene in the fit, and all together")

# %%
# How often is the gene selected again in bootstraps over cell types? Most genes with low bars have similar
# genes that replace them.

figure = explanation.plot_stability()
figure.set_label("Share of the bootstraps that select each gene, with intervals")
