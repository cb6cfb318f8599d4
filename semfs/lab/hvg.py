"""Highly variable genes: the selection that most single-cell analyses begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import check_is_fitted, validate_data

from semfs._typing import Float64, Indices, LabelsLike, Mask, Matrix

#: Bins of the mean expression, as in scanpy.
N_BINS = 20

#: exp(x) - 1 of larger values overflows when squared; log1p of counts stays far below.
LARGEST_LOGARITHM = 100.0


@dataclass(eq=False, repr=False)
class HighlyVariableGenes(SelectorMixin, BaseEstimator):
    """Rank genes by dispersion, compared with genes of similar mean expression.

    The ranking is that of scanpy's ``highly_variable_genes(flavor="seurat")``. X holds log(1 +
    x) of normalized counts x. Let μ_j and v_j be the mean and variance of x_j over the cells.
    Genes are assigned to 20 bins of equal width by log(1 + μ_j). The score is

        score_j = (log(v_j / μ_j) - mean of its bin) / standard deviation of its bin.

    A gene that is alone in its bin has the score 1. Genes that do not vary come last.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Number of genes to select.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Score of each gene, which is -inf if the gene does not vary.
    order_ : ndarray of shape (d,)
        Indices of the genes, best first.
    """

    n_features_to_select: int = 50

    def fit(self, X: Matrix, y: LabelsLike | None = None) -> Self:
        """Rank the genes of X, which holds logarithms of normalized counts; y is ignored."""
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_min_samples=2,
        )
        smallest = X.min()
        largest = X.max()
        if smallest < 0 or largest > LARGEST_LOGARITHM:
            raise ValueError(
                f"X has values from {smallest:.3g} to {largest:.3g}, but "
                "highly variable genes need logarithms of normalized "
                "counts, log(1 + x). Normalize counts first, and do not "
                "center or scale the data."
            )
        mean, variance = _moments_of_counts(X)
        self.scores_ = _normalized_dispersions(mean, variance)
        self.order_: Indices = np.argsort(-self.scores_, kind="stable")
        return self

    def _get_support_mask(self) -> Mask:
        check_is_fitted(self)
        mask = np.zeros(len(self.order_), dtype=bool)
        mask[self.order_[: self.n_features_to_select]] = True
        return mask

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def _moments_of_counts(X: Matrix) -> tuple[Float64, Float64]:
    """Mean (d,) and unbiased variance (d,) of exp(X) - 1."""
    n = X.shape[0]
    if sp.issparse(X):
        mean, variance = mean_variance_axis(sp.csr_array(X).expm1(), axis=0)
    else:
        counts = np.expm1(X)
        mean = counts.mean(axis=0)
        variance = counts.var(axis=0)
    return mean, variance * (n / (n - 1))


def _normalized_dispersions(mean: Float64, variance: Float64) -> Float64:
    """Scores (d,) of genes from mean (d,) and variance (d,) of their counts."""
    scores = np.full(len(mean), -np.inf)
    varying = variance > 0
    if not varying.any():
        return scores
    # scanpy takes logarithms of both, because dispersions are skewed.
    dispersion = np.log(variance[varying] / mean[varying])
    # The bins span all genes, also those that do not vary.
    bins = _equal_width_bins(np.log1p(mean))[varying]
    sizes = np.bincount(bins, minlength=N_BINS)
    centers = np.bincount(bins, dispersion, N_BINS) / np.maximum(sizes, 1)
    squares = np.bincount(bins, (dispersion - centers[bins]) ** 2, N_BINS)
    # With n - 1, as pandas (and so scanpy) computes a standard deviation.
    spreads = np.sqrt(squares / np.maximum(sizes - 1, 1))
    # A bin of equal dispersions, or of one gene, has no spread: scanpy's convention for one.
    degenerate = spreads[bins] == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        normalized = (dispersion - centers[bins]) / spreads[bins]
    normalized[degenerate] = 1.0
    scores[varying] = normalized
    return scores


def _equal_width_bins(values: Float64) -> Indices:
    """Return the bin (d,) of each value: N_BINS of equal width, each with its right edge."""
    edges = np.linspace(values.min(), values.max(), N_BINS + 1)
    # edges[b] < v <= edges[b + 1] is bin b; the smallest value is moved into bin 0.
    return np.clip(np.searchsorted(edges, values, side="left") - 1, 0, N_BINS - 1)
