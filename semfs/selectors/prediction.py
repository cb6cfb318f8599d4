"""Which class a row belongs to, seen or described only: Gaussians about class means.

The mean of a seen class is known, that of another class is predicted from its description
(`MeanModel`); classes share the covariance within seen classes, and what predictions miss is
added for those predicted. Only means and covariance of the chosen features are needed.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist

from semfs.attributes import AttributeTable
from semfs.attributes.targets import MeanModel

#: How far covariances are shrunk to their diagonal.
SHRINKAGE = 0.5
#: How far predicted means are brought to the usual distance from the center, and at most so
#: many times: regression shrinks some more than others, and rows would go to the nearest.
EVENNESS, MOST_STRETCH = 0.75, 10.0
#: Share of the covariance of prediction errors that is added for predicted means.
ERROR_SHARE = 0.5
#: Share of the range of class means that rows of a class differ by at least.
LEAST_SPREAD = 1e-3
#: Ridge of the prediction of attributes, in mean variances.
RIDGE = 0.1


@dataclass(frozen=True, eq=False)
class ClassPredictor:
    """Scores of classes for rows Z (n, k) of the chosen features."""

    table: AttributeTable  # the C seen classes
    means: np.ndarray  # (C, k)
    within: np.ndarray  # (k, k), the covariance within classes
    same: np.ndarray | None = None  # (k,), attributes that are the chosen features themselves

    @cached_property
    def sd(self) -> np.ndarray:
        """Spread (k,) within classes, or a little of that between them if this is more."""
        within, between = np.sqrt(np.abs(np.diag(self.within))), np.ptp(self.means, axis=0)
        sd = np.maximum(within, LEAST_SPREAD * between)
        return np.where(sd > 0, sd, 1.0)

    def scores(self, Z: np.ndarray, table: AttributeTable) -> np.ndarray:
        """Return the log-likelihood (n, U), up to a constant, of each class of a table."""
        rows = zip(self.table.classes.tolist(), self.table.values.tolist())
        known = {(label, *row): i for i, (label, row) in enumerate(rows)}  # as described then
        asked = zip(table.classes.tolist(), table.values.tolist())
        place = np.array([known.get((label, *row), -1) for label, row in asked])
        out = np.empty((len(Z), len(place)))
        sd, center = self.sd, self.means.mean(axis=0)  # near it differences keep their digits
        Z, V = (Z - center) / sd, self.within / sd / sd[:, None]
        np.fill_diagonal(V, 1.0)
        seen, new, M = place >= 0, place < 0, (self.means - center) / sd
        if seen.any():
            root, constant = _whitening(V)
            distances = cdist(Z @ root, M[place[seen]] @ root, "sqeuclidean")
            out[:, seen] = constant - 0.5 * distances
        if new.any():
            means, errors = self._predicted(table.values[new])
            E = errors / sd
            root, constant = _whitening(V + ERROR_SHARE * (E.T @ E) / len(E))
            P = ((means - center) / sd) @ root
            usual = np.median(np.linalg.norm((M - E) @ root, axis=1))  # of classes left out
            lengths = np.maximum(np.linalg.norm(P, axis=1), usual / MOST_STRETCH)
            P *= ((usual or 1.0) / np.where(lengths > 0.0, lengths, 1.0))[:, None] ** EVENNESS
            out[:, new] = constant - 0.5 * cdist(Z @ root, P, "sqeuclidean")
        return out

    def _predicted(self, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (U, k) of classes with attributes A (U, m), and errors (C, k) of seen ones."""
        seen, sd, same = self.table.values, self.sd, self.same
        own, new = (None if same is None else table[:, same] / sd for table in (seen, A))
        model = MeanModel.fit(seen, self.means / sd, own)
        return model.predict(A, new) * sd, model.errors * sd

    def attributes(self, Z: np.ndarray) -> np.ndarray:
        """Return the attributes (n, m) that ridge regression predicts, all classes alike."""
        A, M = self.table.values, self.means
        mean, average = M.mean(axis=0), A.mean(axis=0)
        total = self.within + np.cov(M.T, bias=True).reshape(self.within.shape)
        sd = np.sqrt(np.maximum(np.diag(total), np.finfo(float).tiny))
        H = total / np.outer(sd, sd) + RIDGE * np.eye(len(sd))
        W = np.linalg.solve(H, ((M - mean) / sd).T @ (A - average) / len(A))
        return average + ((Z - mean) / sd) @ W


def _whitening(V: np.ndarray) -> tuple[np.ndarray, float]:
    """A root (k, k) of the inverse of a shrunk covariance V, and the log of its determinant:
    Gaussians have the log-likelihood of that minus half the squared distance after it."""
    V = (1.0 - SHRINKAGE) * V + SHRINKAGE * np.diag(np.diag(V))
    values, Q = np.linalg.eigh(V)
    values = np.maximum(values, 1e-9 * values[-1])
    return Q / np.sqrt(values), float(-0.5 * np.log(values).sum())
