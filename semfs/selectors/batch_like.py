"""Check whether clusters of unlabeled samples follow a column that looks like a batch.

SemFS treats clusters of unlabeled samples as unseen classes. If the clusters are donors
instead, the selected features separate donors. A warning tells the user to name the batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from semfs._typing import Indices
from semfs.validation import ParameterWarning, warn_user

#: Words in names of columns that often hold batches; orig.ident is Seurat's name for samples.
BATCH_WORDS = (
    "assay",
    "batch",
    "dataset",
    "donor",
    "individual",
    "library",
    "orig.ident",
    "patient",
    "plate",
    "replicate",
    "subject",
)
#: Clusters follow a column if they save this share of the errors of guessing its value.
FOLLOWED = 0.5
#: With fewer samples per value, clusters are single values by chance.
FEWEST_PER_VALUE = 5


def looks_like_batches(column: str) -> bool:
    """Return whether the name of a column suggests that it holds batches.

    Examples
    --------
    >>> looks_like_batches("Donor_ID"), looks_like_batches("cell_type")
    (True, False)
    """
    return re.search("|".join(map(re.escape, BATCH_WORDS)), column.casefold()) is not None


def warn_of_batch_like_clusters(
    parameter: str, clusters: Indices, columns: Mapping[str, Indices]
) -> None:
    """Warn if clusters (n,) of unlabeled samples follow one of some columns (n,).

    Columns hold a code for the value of each sample, negative if it has none. ``clusters`` is
    negative for ignored samples. ``parameter`` is the name of the parameter that takes a column
    of batches.
    """
    best = 0.0
    found = ""
    for name, codes in columns.items():
        share, of_largest = _guessed(clusters, codes)
        saved = (share - of_largest) / (1.0 - of_largest) if of_largest < 1.0 else 0.0
        # of columns that say the same, such as donor and donor_tissue, the first counts
        if saved >= FOLLOWED and saved > best:
            best = saved
            found = (
                f": the clusters of unlabeled samples follow {name!r}. "
                "The cluster of a sample predicts this value correctly "
                f"for {share:.0%} of the samples; always guessing the "
                f"most frequent value is correct for {of_largest:.0%}. If "
                "these values are batches, set this parameter to "
                f"{name!r} to remove the differences between them."
            )
    if found:
        warn_user(ParameterWarning(parameter, found))


def _guessed(clusters: Indices, codes: Indices) -> tuple[float, float]:
    """Return the shares of samples with the most frequent value of their cluster, and overall.

    Both are 1 if the values cannot be batches.
    """
    # a sample without a value is of no batch
    used = (clusters >= 0) & (codes >= 0)
    n_used = np.count_nonzero(used)
    cluster_of = np.unique(clusters[used], return_inverse=True)[1]
    value_of = np.unique(codes[used], return_inverse=True)[1]
    n_values = value_of.max(initial=-1) + 1
    if n_values < 2 or n_used < FEWEST_PER_VALUE * n_values:
        return 1.0, 1.0
    counts = np.zeros((cluster_of.max() + 1, n_values))
    np.add.at(counts, (cluster_of, value_of), 1)
    share = counts.max(axis=1).sum() / n_used
    of_largest = counts.sum(axis=0).max() / n_used
    return float(share), float(of_largest)
