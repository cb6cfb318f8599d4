"""
Run on a Dask cluster
=====================

Data in a Dask array or data frame may be larger than the memory of one machine. The selection is the same as for the
same samples in memory.

``fit`` takes these collections directly (``pip install 'semfs[dask]'``). Workers add up class counts, class means and
products of columns, and only these sums are sent over the network.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

from semfs import SemFS

# %%
# Make samples of 40 classes that share 12 attributes, in chunks of uneven size. On a real cluster,
# start a ``dask.distributed.Client`` first and read with ``da.from_zarr`` or ``dd.read_parquet``.

rng = np.random.default_rng(0)
table = rng.integers(0, 2, size=(40, 12)).astype(float)
effects = np.zeros((12, 200))
effects[np.arange(12), np.arange(12)] = 2.0  # features 0 to 11 carry one attribute each
y = rng.integers(0, 40, size=20_000)
X = (table @ effects)[y] + rng.normal(size=(20_000, 200))
chunks = ((7_000, 1_000, 9_000, 3_000), 200)
X_dask, y_dask = da.from_array(X, chunks), da.from_array(y, chunks[:1])
X_dask

# %%
# The same call as for a numpy array:

far = SemFS(12, attributes=table).fit(X_dask, y_dask)
near = SemFS(12, attributes=table).fit(X, y)
print("selected:", sorted(far.get_support(indices=True).tolist()))
print("same order as in memory:", bool((far.order_ == near.order_).all()))

# %%
# The objective shows where the informative features end.

more = SemFS(20, attributes=table).fit(X_dask, y_dask)
figure, ax = plt.subplots(figsize=(6, 3))
ax.plot(np.arange(1, 21), more.objective_, marker="o")
ax.axvline(12, color="gray", ls=":")
ax.set(
    xlabel="selected features",
    ylabel="objective J",
    title="Twelve features carry the attributes",
)
figure.tight_layout()

# %%
# :doc:`/dask` describes deployment on SSH hosts, SLURM and Kubernetes, and what happens when a worker dies.
