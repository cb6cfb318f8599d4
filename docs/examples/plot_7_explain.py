"""
Why these genes?
================

``explain()`` tells what each chosen feature stands for: the attributes it carries, the classes it
separates, what it duplicates, and how stable the choice is when the classes are drawn again.
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
# The table says where cells are and what they do; it names none of these genes.

figure = explanation.plot_attributes()

# %%
# Each gene's share of the fit, in order of entry:

figure = explanation.plot_gains()

# %%
# How often would the gene be chosen again, were the cell types drawn anew? Low bars mostly belong
# to genes with look-alikes.

figure = explanation.plot_stability()
