"""What the methods of comparison share: checked data, scaling, targets, a finite ranking."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from semfs.attributes import align_attributes
from semfs.selectors.base import RankingSelector, constant_columns

#: Largest entries of X, from and to, where parameters in the units of X have a meaning, and
#: where the squares of float64 have one.
ORDINARY, COMPUTABLE = (2.0**-30, 2.0**40), (1e-150, 1e150)


@dataclass(frozen=True)
class Training:
    """Checked training data."""

    X: Any  # (n, d), dense or sparse
    constant: np.ndarray  # (d,), mask of the columns that hold one value only
    codes: Any = None  # (n,), number of the class of each row; supervised methods only
    table: Any = None  # (C, m), attributes of the classes

    @property
    def varying(self) -> np.ndarray:
        """X without its constant columns, (n, d')."""
        return self.X[:, ~self.constant] if self.constant.any() else self.X

    @property
    def T(self) -> np.ndarray:
        """Targets (n, m): the attributes of the class of each row."""
        return np.asarray(self.table[self.codes])

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (d', c) as (d, c), with zeros for the constant columns."""
        full = np.zeros((len(self.constant), rows.shape[1]))
        full[~self.constant] = rows
        return full

    def raw(
        self, W: np.ndarray, b: np.ndarray, offset: np.ndarray, scale: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (d, m), intercept (m,) for raw X, from those of scaled X."""
        coef = W / scale[:, None]
        return self.spread(coef), b - offset @ coef


@dataclass(eq=False, repr=False)
class Baseline(RankingSelector):
    """Base of the methods of comparison. A subclass has ``_scores(data)``: one per column of X,
    or per column that is not constant."""

    n_features_to_select: float = 50

    _unit_free = False  # whether the units of X do not matter

    def fit(self, X: Any, y: Any = None) -> Self:
        """Rank the features of X (n, d) for labels y (n,), which may be None if not used."""
        with self._all_or_nothing(), np.errstate(all="ignore"):  # overflow shows in scores
            data = self._training(X, y)
            try:
                scores = self._scores(data)
            except np.linalg.LinAlgError as error:
                raise ValueError(self._breakdown(f"met a singular matrix ({error})")) from error
            self._rank(scores, data)
        return self

    def _training(self, X: Any, y: Any) -> Training:
        y = y if self._supervised else None
        X, classes, codes = self._check_training_data(X, y)
        self._check_parameters()
        if (most := getattr(self, "max_samples", None)) is not None and most < len(X):
            rng = check_random_state(getattr(self, "random_state", None))
            X = X[np.sort(rng.choice(len(X), most, replace=False))]
        constant = constant_columns(X)
        self._check_numbers(X, constant)
        if classes is None or codes is None:
            return Training(X, constant)
        table = align_attributes(getattr(self, "attributes", None), classes)
        self.classes_ = classes
        if 0.0 < (largest := np.abs(table.values).max()) < COMPUTABLE[0]:
            raise ValueError(f"attributes go up to {largest:.0e}. Rescale them.")
        return Training(X, constant, codes, table.values)

    def _check_numbers(self, X: Any, constant: np.ndarray) -> None:
        name, (n, d) = type(self).__name__, X.shape
        if n < 2:
            raise ValueError(f"Found array with {n} sample(s), but {name} needs at least 2.")
        if constant.all():
            raise ValueError(f"All {d} columns of X are constant: {name} has nothing to rank.")
        low, high = COMPUTABLE if getattr(self, "standardize", self._unit_free) else ORDINARY
        largest = float(max(X.max(), -X.min()))
        if not low <= largest <= high:
            raise ValueError(
                f"The largest entry of X is {largest:.1e}; {name} and its parameters have a "
                f"meaning from {low:.0e} to {high:.0e}. Rescale X, as by StandardScaler."
            )

    def _breakdown(self, what: str) -> str:
        return (
            f"{type(self).__name__} {what}: numbers of too different size for floating point. "
            "Rescale X, as by StandardScaler, and attributes; keep parameters near defaults."
        )

    def _rank(self, scores: np.ndarray, data: Training) -> None:
        """Rank by finite scores (d,) or (d',), with -inf for the constant columns."""
        varying = ~data.constant
        scores = scores if len(scores) < len(varying) else scores[varying]
        if lost := np.count_nonzero(~np.isfinite(scores)):
            raise ValueError(self._breakdown(f"found no finite score for {lost} features"))
        if not np.isfinite(getattr(self, "objective_", 0.0)).all():
            raise ValueError(self._breakdown("found no finite objective"))
        full = np.full(varying.shape, -np.inf)
        full[varying] = scores
        self._set_ranking(full)


def break_ties(scores: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Rank features of score 0 by ``fallback``, with negative scores of at most 1e-10."""
    zero = scores == 0
    distinct, position = np.unique(-fallback[zero], return_inverse=True)  # 0 is the best
    broken = np.array(scores, dtype=np.float64)
    broken[zero] = -1e-10 * (position + 1) / max(len(distinct), 1)
    return broken


def standardize_columns(
    X: np.ndarray, *, center: bool = True, scale: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a centered/scaled copy of X in its dtype, the offsets (d,) and scales (d,)."""
    d = X.shape[1]
    offset = X.mean(axis=0, dtype=np.float64) if center else np.zeros(d)
    divisor = X.std(axis=0, dtype=np.float64) if scale else np.ones(d)
    divisor[(divisor == 0) | constant_columns(X)] = 1.0
    Z = X - offset.astype(X.dtype)
    Z /= divisor.astype(X.dtype)
    return Z, offset, divisor
