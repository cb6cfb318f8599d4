"""Unlabelled rows: features should also reconstruct what nobody has labelled.

With Z all rows, labelled or not, centred, the reconstruction loss ‖Z − Z S U‖² + γ ‖U‖² is
added to the paper's J. It has the form of J with X as its own target, so the same solver
adds up both gains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import rankdata

from semfs.method.moments import Moments
from semfs.method.objective import Objective
from semfs.rows import Rows
from semfs.rows.memory import spans
from semfs.validation import is_missing

__all__ = ["UNLABELED", "Reconstruction", "spread_agreement", "unlabeled_rows"]

#: scikit-learn's mark of a row without a label.
UNLABELED = -1
# Principal directions of the rows that stand for all columns as targets. What is left out
# enters the gains with the square of its small variance.
N_DIRECTIONS = 64
BLOCK_ROWS = 4096
# So many rows of a class tell which features vary in it.
ROWS_PER_CLASS = 2000


def unlabeled_rows(y: Any) -> np.ndarray | None:
    """Return a mask (n,) of the rows labelled -1, None, NaN or NA; None if there are none.

    Text labels are mixed with -1 in an array of objects, as scikit-learn does it.

    Examples
    --------
    >>> unlabeled_rows([3, -1, 5])
    array([False,  True, False])
    >>> unlabeled_rows(["ant", "bee"]) is None
    True
    """
    values = y.to_numpy() if hasattr(y, "to_numpy") else y
    if isinstance(values, (list, tuple)):
        mask = np.array([_is_mark(v) for v in values], dtype=bool)
    else:
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.kind not in "ifO":
            return None
        if values.dtype.kind == "O":
            mask = np.array([_is_mark(v) for v in values], dtype=bool)
        else:
            mask = (values == UNLABELED) | np.isnan(values)
    return mask if mask.any() else None


def _is_mark(value: Any) -> bool:
    if is_missing(value):
        return True
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool) and bool(value == UNLABELED)


def spread_agreement(rows: Rows, n_classes: int) -> float:
    """Return how far classes agree on which features vary, between 0 and 1.

    The mean rank correlation, over pairs of classes, of the variances of the features within
    each class. Near 1, the spread of a feature is its own and will be found in new classes too;
    near 0 it belongs to the class, and says nothing about others.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 40)) * np.arange(1, 41)
    >>> spread_agreement(Rows(X, np.arange(60) % 2, None), 2) > 0.9
    True
    """
    ranks = []
    for c in range(n_classes):
        own = np.flatnonzero(rows.codes == c)
        X = rows.X[own[:: 1 + len(own) // ROWS_PER_CLASS]]
        if X.shape[0] > 2:
            centred = X.astype(np.float64) - rows.X[own[0]] if not sp.issparse(X) else X
            squares = centred.multiply(centred) if sp.issparse(X) else centred**2
            mean = np.asarray(centred.mean(axis=0)).ravel()
            ranks.append(rankdata(np.asarray(squares.mean(axis=0)).ravel() - mean**2))
    if len(ranks) < 2:
        return 0.0
    correlations = np.nan_to_num(np.corrcoef(ranks))[np.triu_indices(len(ranks), 1)]
    return max(float(correlations.mean()), 0.0)


@dataclass(frozen=True, eq=False)
class Reconstruction(Objective):
    """weight · ‖Z − Z S U‖² as an `Objective`; ``directions`` (d, r) span its targets Z V."""

    directions: np.ndarray
    weight: float

    @classmethod
    def of_rows(
        cls, labelled: Moments, unlabelled: Moments, *, gamma: float, penalty_scale: str
    ) -> Reconstruction:
        """Return the loss of reconstructing both kinds of rows, with weight 1."""
        pooled = _as_one_class(labelled) + _as_one_class(unlabelled)
        return cls(
            pooled,
            np.zeros((1, 1)),
            alpha=0.0,
            penalty=float(gamma),
            penalty_scale=penalty_scale,
            fit_intercept=True,
            directions=principal_directions(pooled, N_DIRECTIONS),
            weight=1.0,
        )

    def weighing(self, weight: float) -> Reconstruction:
        """Return the same loss, multiplied by a weight."""
        return replace(self, weight=float(weight))

    @cached_property
    def B(self) -> np.ndarray:
        """√weight · Z'Z V (d, r)."""
        return np.sqrt(self.weight) * scatter_times(self.moments, self.directions)

    @cached_property
    def q(self) -> float:
        """weight · ‖Z‖²: the loss when nothing is chosen."""
        return self.weight * float(self.moments.scatter_diag.sum())

    @cached_property
    def diag(self) -> np.ndarray:
        """Diagonal of Z'Z (d,)."""
        return self.moments.scatter_diag.copy()

    def columns(self, columns: np.ndarray) -> np.ndarray:
        """Columns (d, b) of Z'Z."""
        return self.moments.scatter_columns(columns, precise=self.precise)


def principal_directions(moments: Moments, n: int, *, n_rounds: int = 4) -> np.ndarray:
    """Return an orthonormal basis (d, r) of the leading directions of the scatter matrix.

    Subspace iteration from a fixed random start: a few passes over the rows, no d × d matrix.
    """
    d = moments.n_features
    V = np.random.default_rng(0).standard_normal((d, min(n + 10, d)))
    for _ in range(n_rounds):
        V, _ = np.linalg.qr(scatter_times(moments, V))
    small = V.T @ scatter_times(moments, V)
    return V @ np.linalg.eigh(small)[1][:, ::-1][:, :n]


def scatter_times(moments: Moments, V: np.ndarray) -> np.ndarray:
    """Return the scatter matrix times V (d, r), in float64."""
    if moments.scatter_matrix is not None:
        return moments.scatter_matrix @ V
    rows = moments.rows
    if not isinstance(rows, Rows):
        raise ValueError("unlabelled rows need X in memory: load it, or leave them out.")
    mean, weights = moments.mean, rows.weights
    if sp.issparse(rows.X):
        inner = rows.X @ V - mean @ V
        inner = inner if weights is None else weights[:, None] * inner
        return rows.X.T @ inner - np.outer(mean, inner.sum(axis=0))
    out = np.zeros_like(V)
    for part in spans(rows.X.shape[0], BLOCK_ROWS):
        Z = rows.X[part] - mean.astype(rows.X.dtype)
        inner = Z @ V.astype(Z.dtype)
        if weights is not None:
            inner *= weights[part, None].astype(Z.dtype)
        out += Z.T @ inner
    return out


def _as_one_class(moments: Moments) -> Moments:
    """The same rows without their labels."""
    rows = moments.rows
    if isinstance(rows, Rows):
        rows = replace(rows, codes=np.zeros(len(rows.codes), dtype=np.intp))
    elif rows is not None:
        raise ValueError("unlabelled rows need X in memory: load it, or leave them out.")
    return replace(
        moments,
        classes=np.array([UNLABELED]),
        counts=np.array([moments.total]),
        means=moments.mean[None],
        rows=rows,
    )
