"""Code shared by the baselines: checked data, scaling, targets, and a finite ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.utils import check_random_state

from semfs._typing import ArrayLike, Float64, Floats, Indices, LabelsLike, Mask, Matrix
from semfs.attributes import align_attributes
from semfs.selectors.ranking import RankingSelector, constant_columns

#: Range of the largest entry of X in which parameters in the units of X have a meaning: from
#: 1e-9 to 1e12, chosen wide.
ORDINARY = (2.0**-30, 2.0**40)
#: Range in which squares neither overflow nor underflow in float64.
COMPUTABLE = (1e-150, 1e150)


@dataclass(frozen=True)
class Training:
    """Checked training data."""

    X: Floats  # (n, d), for methods that take it sparse perhaps CSR
    constant: Mask  # (d,), of the columns that hold one value only
    codes: Indices  # (n,), number of the class of each row; unsupervised methods: empty
    table: Float64  # (C, m), attributes of the classes; unsupervised methods: empty

    @property
    def varying(self) -> Floats:
        """X without its constant columns, (n, d')."""
        if not self.constant.any():
            return self.X
        return self.X[:, ~self.constant]

    @property
    def T(self) -> Float64:
        """Targets (n, m): the attributes of the class of each row."""
        return self.table[self.codes]

    def spread(self, rows: Floats) -> Float64:
        """Expand rows (d', c) to (d, c), with zeros for the constant columns."""
        full = np.zeros((len(self.constant), rows.shape[1]))
        full[~self.constant] = rows
        return full

    def raw(
        self, W: Floats, b: Float64, offset: Float64, scale: Float64
    ) -> tuple[Float64, Float64]:
        """Return coefficients (d, m) and intercept (m,) for X as given.

        W (d', m) and b (m,) belong to the columns ``(X - offset) / scale``.
        """
        coef = W / scale[:, None]
        return self.spread(coef), b - offset @ coef


@dataclass(eq=False, repr=False)
class Baseline(RankingSelector):
    """Base class of the baselines.

    A subclass implements ``_scores(data)``, which returns one score per column of X, or one per
    column that is not constant.
    """

    n_features_to_select: float = 50

    _unit_free = False  # whether the units of X do not matter

    def fit(self, X: ArrayLike | Matrix, y: LabelsLike | None = None) -> Self:
        """Rank the features of X.

        Supervised methods need the labels y. Unsupervised methods ignore them and accept None.
        """
        # An overflow is not lost: _rank refuses scores that are not finite.
        with self._all_or_nothing(), np.errstate(all="ignore"):
            data = self._training(X, y)
            try:
                scores = self._scores(data)
            except np.linalg.LinAlgError as error:
                raise ValueError(self._breakdown(f"met a singular matrix ({error})")) from error
            self._rank(scores, data)
        return self

    def _training(self, X: ArrayLike | Matrix, y: LabelsLike | None) -> Training:
        """Return checked data, with ``max_samples`` rows if the method has that parameter."""
        checked, classes, codes = self._check_training_data(X, y if self._supervised else None)
        self._check_parameters()
        max_samples = getattr(self, "max_samples", None)
        if max_samples is not None and max_samples < len(checked):
            rng = check_random_state(getattr(self, "random_state", None))
            drawn = rng.choice(len(checked), max_samples, replace=False)
            checked = checked[np.sort(drawn)]
        constant = constant_columns(checked)
        self._check_numbers(checked, constant)
        if classes is None or codes is None:
            return Training(checked, constant, np.empty(0, dtype=np.intp), np.empty((0, 0)))
        table = align_attributes(getattr(self, "attributes", None), classes)
        self.classes_ = classes
        largest = np.abs(table.values).max()
        if 0.0 < largest < COMPUTABLE[0]:
            raise ValueError(
                f"The largest attribute is {largest:.0e}, which is too small. Rescale "
                "attributes."
            )
        return Training(checked, constant, codes, table.values)

    def _check_numbers(self, X: Floats, constant: Mask) -> None:
        """Raise if the method cannot rank the data, or if rounding errors would decide."""
        name = type(self).__name__
        n, d = X.shape
        if n < 2:
            raise ValueError(f"Found array with {n} sample(s), but {name} needs at least 2.")
        if constant.all():
            raise ValueError(f"All {d} columns of X are constant: {name} has nothing to rank.")
        any_units = getattr(self, "standardize", self._unit_free)
        low, high = COMPUTABLE if any_units else ORDINARY
        largest = float(max(X.max(), -X.min()))
        if not low <= largest <= high:
            raise ValueError(
                f"The largest value of X is {largest:.1e}, but {name} "
                f"needs a largest value between {low:.0e} and {high:.0e}. "
                "Rescale X, for example to unit variance."
            )

    def _breakdown(self, what: str) -> str:
        return (
            f"{type(self).__name__} {what}, because the numbers differ too much in size for "
            "floating point. Rescale X and the attributes, for example to unit variance, and "
            "use parameters closer to the defaults."
        )

    def _scores(self, data: Training) -> Floats:
        """Return the score of each column (d,), or of each column that varies (d',)."""
        raise NotImplementedError

    def _rank(self, scores: Floats, data: Training) -> None:
        """Rank by finite scores (d,) or (d',), with -inf for the constant columns."""
        varying = ~data.constant
        if len(scores) == len(varying):
            scores = scores[varying]
        n_lost = np.count_nonzero(~np.isfinite(scores))
        if n_lost:
            raise ValueError(self._breakdown(f"found no finite score for {n_lost} features"))
        if not np.isfinite(getattr(self, "objective_", 0.0)).all():
            raise ValueError(self._breakdown("found no finite objective"))
        full = np.full(varying.shape, -np.inf)
        full[varying] = scores
        self._set_ranking(full)


def break_ties(scores: Floats, fallback: Floats) -> Float64:
    """Replace zeros of scores (d,) by tiny negative numbers that are ordered by ``fallback``.

    They lie between -1e-10 and 0, so that these features rank after all others.
    """
    zero = scores == 0
    distinct, position = np.unique(-fallback[zero], return_inverse=True)  # 0 is the best
    broken = np.array(scores, dtype=np.float64)
    broken[zero] = -1e-10 * (position + 1) / max(len(distinct), 1)
    return broken


def standardize_columns(
    X: Floats, *, center: bool = True, scale: bool = True
) -> tuple[Floats, Float64, Float64]:
    """Return a centered and scaled copy of X in its dtype, offsets (d,) and scales (d,)."""
    d = X.shape[1]
    offset = X.mean(axis=0, dtype=np.float64) if center else np.zeros(d)
    divisor = X.std(axis=0, dtype=np.float64) if scale else np.ones(d)
    divisor[(divisor == 0) | constant_columns(X)] = 1.0
    Z = X - offset.astype(X.dtype)
    Z /= divisor.astype(X.dtype)
    return Z, offset, divisor
