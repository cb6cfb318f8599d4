"""`Confusion`: the predicted classes of samples of each class, by neighbors or clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.neighbors import KNeighborsClassifier

from semfs._typing import Float64, Indices, Label, LabelsLike, Mask, Matrix
from semfs.evaluation.scores import run_kmeans
from semfs.labels import encode_labels

#: Share of the samples of each seen class that is held out to be recognized.
HELD_OUT = 0.3
#: Neighbors that vote.
N_NEIGHBORS = 5


@dataclass(frozen=True, eq=False)
class Confusion:
    """A confusion matrix.

    ``table`` (C, C) counts samples of each class (row) by predicted class (column).
    """

    classes: list[str]
    table: Float64

    @classmethod
    def of_codes(cls, classes: Sequence[Label], truth: Indices, found: Indices) -> Self:
        """Count samples by the codes (n,) of their true class and predicted class."""
        table = np.zeros((len(classes), len(classes)))
        # add.at counts repeated pairs, of which `table[i, j] += 1` would add one only.
        np.add.at(table, (truth, found), 1.0)
        return cls([str(label) for label in classes], table)

    @property
    def n_samples(self) -> Float64:
        """Number of samples (C,) of each class."""
        return self.table.sum(axis=1)

    @property
    def recalls(self) -> Float64:
        """Return the share (C,) of the samples of each class that were recognized."""
        return np.diag(self.table) / np.maximum(self.n_samples, 1)

    def accuracy(self, classes: Mask | None = None) -> float:
        """Return the mean recall of the classes (of a mask (C,)) that have samples, else 0."""
        tested = self.n_samples > 0
        if classes is not None:
            tested &= classes
        return float(np.mean(self.recalls[tested])) if tested.any() else 0.0


def held_out_samples(codes: Indices, seed: int) -> Mask:
    """Return which samples (n,) are held out: a share of each class, at random.

    At least one sample of each class is kept, so a class with one sample has none to hold out.
    """
    rng = np.random.RandomState(seed)
    held_out = np.zeros(len(codes), dtype=bool)
    for code in range(int(codes.max(initial=-1)) + 1):
        samples = rng.permutation(np.flatnonzero(codes == code))
        n_held_out = min(len(samples) - 1, max(1, round(HELD_OUT * len(samples))))
        held_out[samples[:n_held_out]] = True
    return held_out


def seen_confusion(X: Matrix, y: LabelsLike, seed: int) -> Confusion:
    """Return the confusion of held-out samples (a share of each class) by their neighbors."""
    classes, codes = encode_labels(y)
    held_out = held_out_samples(codes, seed)
    Z = dense(X)
    n_neighbors = min(N_NEIGHBORS, int((~held_out).sum()))
    classifier = KNeighborsClassifier(n_neighbors).fit(Z[~held_out], codes[~held_out])
    found = classifier.predict(Z[held_out]) if held_out.any() else codes[held_out]
    return Confusion.of_codes(classes.tolist(), codes[held_out], found)


def unseen_confusion(X: Matrix, y: LabelsLike, starts: Indices) -> Confusion:
    """Return the confusion by clusters matched with classes, as mean over K-means runs."""
    classes, codes = encode_labels(y)
    n_classes = len(classes)
    table = np.zeros((n_classes, n_classes))
    for clusters in run_kmeans(dense(X), starts, n_classes):
        counts = Confusion.of_codes(classes.tolist(), codes, clusters).table
        # Column c becomes the cluster that is matched with class c.
        _, matched = linear_sum_assignment(counts, maximize=True)
        table += counts[:, matched]
    return Confusion([str(label) for label in classes.tolist()], table / len(starts))


def dense(X: Matrix) -> Float64:
    """Return samples (n, k) as a dense array in float64."""
    found: Any = X.toarray() if hasattr(X, "toarray") else X
    return np.ascontiguousarray(found, dtype=np.float64)
