"""How clearly samples of unseen classes differ from seen classes in an embedding.

These metrics follow the "Unseen" metrics of Zappia et al., "Feature selection methods affect
the performance of scRNA-seq data integration and querying", Nature Methods 22 (2025). The two
distances follow their definitions, with shrunk covariances. The uncertainty differs: theirs
comes from the classifier of an integration model and is averaged over classes, and ours comes
from the k nearest neighbors in the embedding. All functions accept any embedding, for example
principal components of the selected features. Larger is better for all three. Their MILO metric
is not included, because it tests neighborhoods for differential abundance between replicates,
which needs replicates and an edgeR model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import check_array

from semfs._typing import ArrayLike, Float64, LabelsLike
from semfs.labels import encode_labels
from semfs.validation import check_integer

#: A sample is far from a class beyond this quantile of the distances of the class's own.
OWN_QUANTILE = 0.9
#: Fewest samples of a class from which a covariance is estimated.
FEWEST_FOR_COVARIANCE = 3
#: Samples of an unseen class for each dimension from which its own covariance is measured.
SAMPLES_PER_DIMENSION = 2


@dataclass(frozen=True, eq=False)
class _ClassShape:
    """Mean (p,), precision (p, p), and the distance beyond which a sample is far away."""

    mean: Float64
    precision: Float64
    limit: float

    @classmethod
    def of(cls, Z: Float64) -> _ClassShape:
        """Estimate the shape from the samples (n, p) of one class."""
        fitted = LedoitWolf().fit(Z)
        shape = cls(fitted.location_, fitted.precision_, 0.0)
        limit = float(np.quantile(shape.distances(Z), OWN_QUANTILE))
        return cls(fitted.location_, fitted.precision_, limit)

    def distances(self, Z: Float64) -> Float64:
        """Return the Mahalanobis distances (n,) of samples (n, p)."""
        difference = Z - self.mean
        squares = np.einsum("ij,jk,ik->i", difference, self.precision, difference)
        return np.sqrt(np.maximum(squares, 0.0))


def unseen_sample_distance(
    Z_seen: ArrayLike,
    y_seen: LabelsLike,
    Z_unseen: ArrayLike,
) -> float:
    """Return the share of unseen samples that are far from their nearest seen class.

    The nearest class is the one with the smallest Mahalanobis distance. An unseen sample is far
    from that class if it is farther away than 90 % of the samples of the class. Covariances are
    shrunk (Ledoit and Wolf), and classes with fewer than 3 samples are left out.

    Parameters
    ----------
    Z_seen : array-like of shape (n, p)
        Samples of seen classes in the embedding.
    y_seen : array-like of shape (n,)
        Their classes.
    Z_unseen : array-like of shape (n', p)
        Samples of unseen classes in the same embedding.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(100, 2)) + np.repeat([[0.0, 0.0], [9.0, 0.0]], 50, axis=0)
    >>> unseen_sample_distance(Z, np.repeat(["ant", "cat"], 50), [[4.5, 9.0], [0.0, 0.1]])
    0.5
    """
    shapes = _shapes(Z_seen, y_seen)
    samples = _embedding("Z_unseen", Z_unseen)
    return float(_is_far(shapes, samples).mean())


def unseen_class_distance(
    Z_seen: ArrayLike,
    y_seen: LabelsLike,
    Z_unseen: ArrayLike,
    y_unseen: LabelsLike,
) -> float:
    """Return how far unseen classes are from seen classes, relative to their own spread.

    For each unseen class, this is the Mahalanobis distance from its center to the nearest
    center of a seen class, divided by the largest distance of its own samples, and at most 1.
    The covariance is that of the unseen class, shrunk. The mean is over the classes with at
    least 2 p samples, because fewer do not determine p variances. Zappia et al. call this the
    unseen label distance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(100, 2)) + np.repeat([[0.0, 0.0], [99.0, 0.0]], 50, axis=0)
    >>> new = rng.normal(size=(50, 2)) + [50.0, 0.0]
    >>> unseen_class_distance(Z, np.repeat(["ant", "cat"], 50), new, ["bee"] * 50)
    1.0
    """
    seen = _embedding("Z_seen", Z_seen)
    samples = _embedding("Z_unseen", Z_unseen)
    centers = np.stack([members.mean(axis=0) for members in _members(seen, y_seen)])
    fewest = SAMPLES_PER_DIMENSION * samples.shape[1]
    shares = [
        _own_distance(members, centers)
        for members in _members(samples, y_unseen)
        if len(members) >= fewest
    ]
    if not shares:
        raise ValueError(
            f"y_unseen has no class with at least {fewest} samples, that "
            f"is, {SAMPLES_PER_DIMENSION} for each dimension of the "
            "embedding. Pass more samples, or an embedding with fewer "
            "dimensions."
        )
    return float(np.mean(shares))


def _own_distance(members: Float64, centers: Float64) -> float:
    """Return the distance of the nearest center, as a share of that of the farthest member."""
    shape = _ClassShape.of(members)
    return min(1.0, float(shape.distances(centers).min() / shape.distances(members).max()))


def _members(Z: Float64, y: LabelsLike) -> list[Float64]:
    """Return the samples of each class."""
    classes, codes = encode_labels(y, n_samples=len(Z))
    return [Z[codes == code] for code in range(len(classes))]


def unseen_uncertainty(
    Z_seen: ArrayLike,
    y_seen: LabelsLike,
    Z_unseen: ArrayLike,
    n_neighbors: int = 15,
) -> float:
    """Return how uncertain a neighbor classifier of the seen classes is about unseen samples.

    This is the mean of 1 - p over the unseen samples, where p is the share of the nearest seen
    neighbors, weighted by inverse distance, that vote for the predicted class.

    Examples
    --------
    >>> unseen_uncertainty([[0.0], [2.0]], ["ant", "cat"], [[1.0]], n_neighbors=2)
    0.5
    """
    samples = _embedding("Z_unseen", Z_unseen)
    seen = _embedding("Z_seen", Z_seen)
    _, codes = encode_labels(y_seen, n_samples=len(seen))
    check_integer("n_neighbors", n_neighbors, 1)
    n_voting = min(n_neighbors, len(seen))
    classifier = KNeighborsClassifier(n_voting, weights="distance").fit(seen, codes)
    largest = classifier.predict_proba(samples).max(axis=1)
    return float(1.0 - largest.mean())


def _shapes(Z: ArrayLike, y: LabelsLike) -> list[_ClassShape]:
    """Return the shapes of the seen classes that have enough samples."""
    groups = _members(_embedding("Z_seen", Z), y)
    shapes = [_ClassShape.of(group) for group in groups if len(group) >= FEWEST_FOR_COVARIANCE]
    if not shapes:
        raise ValueError(
            f"y_seen has no class with at least {FEWEST_FOR_COVARIANCE} "
            "samples, which are needed to estimate a covariance. Pass "
            "more samples."
        )
    return shapes


def _is_far(shapes: list[_ClassShape], Z: Float64) -> Any:
    """Return whether each sample (n, p) is beyond the limit of its nearest class (n,)."""
    distances = np.stack([shape.distances(Z) for shape in shapes])
    nearest = distances.argmin(axis=0)
    limits = np.array([shape.limit for shape in shapes])
    return distances.min(axis=0) > limits[nearest]


def _embedding(name: str, Z: ArrayLike) -> Float64:
    """Return the embedding as a finite float64 matrix."""
    return check_array(Z, dtype=np.float64, input_name=name)
