"""Gaussian densities of classes that share a covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.spatial.distance import cdist

from semfs._typing import Float64

#: Share of the diagonal in the covariances, which shrinks correlations.
SHRINKAGE = 0.5
#: Eigenvalues of a covariance below this share of the largest one are raised to it.
SMALLEST_VARIANCE = 1e-9


@dataclass(frozen=True, eq=False)
class GaussianDensity:
    """Gaussian densities with several means and one covariance."""

    root: Float64  # (k, k) of the inverse covariance
    log_constant: float  # -½ log of its determinant

    @classmethod
    def of_covariance(cls, covariance: Float64) -> Self:
        """Return the densities of a covariance (k, k), shrunk to its diagonal."""
        diagonal = np.diag(np.diag(covariance))
        shrunk = (1.0 - SHRINKAGE) * covariance + SHRINKAGE * diagonal
        values, vectors = np.linalg.eigh(shrunk)
        values = np.maximum(values, SMALLEST_VARIANCE * values[-1])
        return cls(vectors / np.sqrt(values), float(-0.5 * np.log(values).sum()))

    def whiten(self, Z: Float64) -> Float64:
        """Return Z (n, k) in coordinates in which the covariance is the identity."""
        return Z @ self.root

    def log_likelihood(self, Z: Float64, whitened_means: Float64) -> Float64:
        """Return log-likelihoods (n, U) of samples Z (n, k), up to a constant for given k."""
        with np.errstate(over="ignore", invalid="ignore"):
            distances = cdist(self.whiten(Z), whitened_means, "sqeuclidean")
            return self.log_constant - 0.5 * distances
