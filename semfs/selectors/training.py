"""What a selector is fitted to: moments of labeled rows, and rows without a label."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite

from semfs.attributes import AttributeTable, as_attribute_table
from semfs.labels import Labels, label_array
from semfs.method.moments import Moments
from semfs.rows import ArrayRows, Plain, Rows, as_source, is_foreign
from semfs.validation import feature_indices

#: scikit-learn's mark of a row without a label; None, NaN and NA say the same.
UNLABELED = -1
#: Numbers whose squares, and products of these, keep their digits, in float32 too; and in
#: float64 alone, of rows that are not scaled because they are not in memory.
ORDINARY, STREAMED = (2.0**-16, 2.0**24), (2.0**-200, 2.0**200)
RESCALE = "Rescale X and the attributes, for example to unit variance: squares lose digits."


@dataclass(frozen=True)
class StreamedRows:
    """Rows without a label beyond memory."""

    rows: Any  # those, among rows whose labels are known
    seen: Any  # likewise those of seen classes, or None if these are in memory
    options: dict[str, Any]  # that sums over rows take


@dataclass(frozen=True)
class TrainingData:
    """Labeled rows and rows without a label."""

    X: Any  # labeled rows, None if they are not in memory
    moments: Moments  # of these
    unlabeled: Rows | StreamedRows | None

    @classmethod
    def of_rows(
        cls,
        X: Any,
        codes: np.ndarray,
        classes: np.ndarray,
        weights: np.ndarray | None,
        hidden: np.ndarray | None = None,
        X_unlabeled: Any = None,
    ) -> Self:
        """Return checked rows, those ``hidden`` (a mask) and ``X_unlabeled`` without labels."""
        if hidden is None and X_unlabeled is None:
            return cls(X, _moments(X, codes, classes, weights), None)
        if is_foreign(X):
            raise ValueError("unlabeled rows need numpy or sparse X. Convert X, or drop them.")
        hidden = np.zeros(len(codes), dtype=bool) if hidden is None else hidden
        apart, weights_apart = X[hidden], None if weights is None else weights[hidden]
        assert_all_finite(apart.data if sp.issparse(apart) else apart, input_name="X")
        if hidden.any():
            X, codes = X[~hidden], codes[~hidden]
            weights = None if weights is None else weights[~hidden]
        if X_unlabeled is not None:
            if sp.issparse(X):
                apart = sp.vstack([apart, sp.csr_array(X_unlabeled)], format="csr")
            else:
                more = X_unlabeled.toarray() if sp.issparse(X_unlabeled) else X_unlabeled
                apart = np.concatenate([apart, more]) if len(apart) else more
            if weights_apart is not None:
                weights_apart = np.append(weights_apart, np.ones(X_unlabeled.shape[0]))
        no_class = np.zeros(apart.shape[0], dtype=np.intp)
        moments = _moments(X, codes, classes, weights)
        return cls(X, moments, Rows(apart, no_class, weights_apart))

    def with_streamed(self, rows: Any, seen: Any, options: dict[str, Any]) -> Self:
        """Return the same with unlabeled rows beyond memory."""
        if self.unlabeled is not None:
            raise ValueError(
                "some rows of X have no label and X_unlabeled is given as well. Beyond memory "
                "only one of them can be used: put these rows together."
            )
        seen = None if seen is None else seen.labels_known()
        return replace(self, unlabeled=StreamedRows(rows.labels_known(), seen, options))


def _moments(X: Any, codes: np.ndarray, classes: np.ndarray, weights: Any) -> Moments:
    """Moments of checked rows; float32 whose squares overflow is taken as float64."""
    try:
        return Moments.from_checked(X, codes, classes, weights)
    except ValueError:
        values = X.data if sp.issparse(X) else X
        if is_foreign(X) or X.dtype != np.float32 or not np.isfinite(values).all():
            raise
        return Moments.from_checked(X.astype(np.float64), codes, classes, weights)


@dataclass(frozen=True)
class Units:
    """X and the attributes are fitted as multiples of 2**x and 2**a; both are 0 unless numbers
    are so large or small that their squares lose digits."""

    x: int = 0
    a: int = 0

    @classmethod
    def of(cls, moments: Moments, table: AttributeTable, unlabeled: Any = None) -> Self:
        """Return the units that make numbers ordinary."""
        single = moments.eps > np.finfo(np.float64).eps
        here = isinstance(moments.rows, (Rows, ArrayRows, type(None)))
        here &= not isinstance(unlabeled, StreamedRows)
        spread = np.sqrt(moments.scatter_diag.max() / moments.total)
        size = max(moments.means.max(), -moments.means.min(), spread)
        x = _exponent(size, 120 if single else 1000, ORDINARY if here or single else STREAMED)
        return cls(x, _exponent(np.abs(table.values).max(), 1000))

    def moments(self, moments: Moments) -> Moments:
        """Return the moments in these units."""
        if not self.x:
            return moments
        factor, rows = 2.0**-self.x, moments.rows
        if isinstance(rows, (Rows, ArrayRows)):
            X = rows.X * factor
            return Moments.from_checked(X, rows.codes, moments.classes, rows.weights)
        single = moments.eps > np.finfo(np.float64).eps
        if rows is not None or (single and abs(self.x) > 40):  # squares were taken already
            raise ValueError(f"X has numbers as large as {2.0**self.x:.0e}. {RESCALE}")
        scatter = moments.scatter_matrix
        return replace(
            moments,
            means=moments.means * factor,
            scatter_diag=moments.scatter_diag * factor**2,
            scatter_matrix=None if scatter is None else scatter * factor**2,
        )

    def rows(self, rows: Any) -> Any:
        """Return unlabeled rows in these units."""
        if not self.x or rows is None:
            return rows
        if not isinstance(rows, Rows):
            raise ValueError(f"X has numbers as large as {2.0**self.x:.0e}. {RESCALE}")
        return replace(rows, X=rows.X * 2.0**-self.x)

    def table(self, table: AttributeTable) -> AttributeTable:
        """Return attributes in these units."""
        return replace(table, values=np.ldexp(table.values, -self.a)) if self.a else table

    def params(self, selector: Any) -> dict[str, Any]:
        """Return the parameters of a SemFS that depend on units."""
        gamma, step = selector.gamma, selector.step
        if selector.penalty_scale == "none":
            gamma = float(np.ldexp(gamma, -2 * self.x))
        step = step if isinstance(step, str) else float(np.ldexp(step, 2 * self.a))
        weight = float(np.ldexp(selector.label_weight, -2 * self.a))
        out = {"gamma": gamma, "step": step, "label_weight": weight}
        for name in [name for name, value in out.items() if value == np.inf]:
            raise ValueError(f"{name} is too large next to X or the attributes. {RESCALE}")
        return out

    def undone(self, results: dict[str, Any], *, direct: bool) -> dict[str, Any]:
        """Return fitted attributes in the units given; refuse what no float64 can hold."""
        powers = {"coef_": self.a - self.x, "intercept_": self.a, "objective_": 2 * self.a}
        powers |= {"class_means_": self.x, "within_": 2 * self.x}
        powers |= {"scores_": 2 * self.a} if direct else {}
        out = dict(results)
        for name, power in powers.items() if self.x or self.a else ():
            if name in out:
                with np.errstate(over="ignore"):
                    out[name] = np.ldexp(results[name], power)
                vanished = results[name].any() and not out[name].any()
                if vanished or (np.isinf(out[name]) != np.isinf(results[name])).any():
                    raise ValueError(f"{name} is beyond float64. {RESCALE}")
        return out


def _exponent(size: float, most: int, ordinary: tuple[float, float] = ORDINARY) -> int:
    """The power of two to divide numbers of this size by; 0 for ordinary ones."""
    if not 0 < size < np.inf or ordinary[0] <= size <= ordinary[1]:
        return 0
    return int(np.clip(np.frexp(size)[1], -most, most))


@dataclass(frozen=True)
class Candidates:
    """Constant columns (a mask), and indices of features to include and to exclude."""

    constant: np.ndarray
    include: np.ndarray
    exclude: np.ndarray

    @classmethod
    def of(cls, moments: Moments, include: Any, exclude: Any, names: Any) -> Self:
        """Return the limits of features given by index or name."""
        d, constant = moments.n_features, moments.constant()
        if constant.all():
            raise ValueError(f"all {d} columns of X are constant: there is nothing to rank.")
        given = (("include", include), ("exclude", exclude))
        return cls(constant, *(feature_indices(name, those, d, names) for name, those in given))

    def check(self, k: int) -> None:
        """Raise unless k features can be chosen within these limits."""
        if (both := np.intersect1d(self.include, self.exclude)).size:
            raise ValueError(f"feature {both[0]} is in include and in exclude.")
        if (n := len(self.include)) > k:
            raise ValueError(f"include has {n} features, more than n_features_to_select={k}.")
        if len(self.exclude) == len(self.constant):
            raise ValueError("exclude holds every feature: nothing is left to select.")

    def among(self, columns: np.ndarray) -> Self:
        """Return the limits of some columns only, which hold all features to include."""
        few = [np.flatnonzero(np.isin(columns, own)) for own in (self.include, self.exclude)]
        return type(self)(self.constant[columns], *few)

    @property
    def candidates(self) -> np.ndarray:
        """Mask (d,) of the features that may be chosen."""
        allowed = ~self.constant
        allowed[self.exclude] = False
        allowed[self.include] = True
        return allowed


def check_two_classes(moments: Moments) -> None:
    """Raise unless there are rows of at least two classes."""
    if len(moments.classes) < 2:
        one = moments.classes.tolist()[0]
        raise ValueError(f"y has only one class ({one!r}). Pass rows of at least two.")


def split_labels(y: Any, attributes: Any = None) -> tuple[Any, np.ndarray | None]:
    """Return y with a stand-in where a label is missing, and a mask (n,) of these rows or None.

    -1, None, NaN and NA mark missing labels; -1 does not if ``attributes`` describes it.

    >>> split_labels([3, -1, None])
    (array([3, 3, 3]), array([False,  True,  True]))
    >>> split_labels(["ant", "bee"])
    (['ant', 'bee'], None)
    """
    values = y if isinstance(y, (list, tuple)) or hasattr(y, "to_numpy") else np.asarray(y)
    nested = isinstance(y, list) and any(isinstance(label, list) for label in y)
    if nested or getattr(values, "ndim", 1) != 1:
        return y, None  # refused by `encode_labels`
    labels = Labels.of(values)
    if UNLABELED in labels.classes and not describes(attributes, UNLABELED):
        labels = labels.without([UNLABELED])
    hidden = labels.codes < 0
    if not hidden.any():
        return y, None
    if hidden.all():
        found = f"all {len(hidden)} values of y are -1, None, NaN or NA"
        raise ValueError(f"no row has a label: {found}. Pass those of the seen classes.")
    return label_array(labels.classes)[np.maximum(labels.codes, 0)], hidden


def describes(attributes: Any, label: Any) -> bool:
    """Whether the attribute table describes a class of this label."""
    if attributes is None or isinstance(attributes, (np.ndarray, list, tuple)):
        return False
    return label in as_attribute_table(attributes).classes.tolist()


def rows_beyond_memory(X: Any, y: Any, sample_weight: Any, attributes: Any) -> Any:
    """Data that must not be held whole, as rows to pass over; None for arrays and frames."""
    if hasattr(X, "keep_classes"):  # rows already
        if y is not None or sample_weight is not None:
            raise ValueError("Pass labels and weights to open_blocks, not to fit.")
        rows = X
    elif hasattr(X, "__dask_graph__"):
        from semfs.rows.cluster import dask_rows

        rows = dask_rows(X, y, sample_weight)
    else:
        rows = as_source(X, y, sample_weight)
    if rows is None:
        return None
    if attributes is not None:
        known = as_attribute_table(attributes).classes.tolist()
        if rows.labels is not None:
            rows = rows.with_labels(rows.labels.align_to(known))
    if rows.labels is None or describes(attributes, UNLABELED):
        return rows
    return rows.with_labels(rows.labels.mask_label(UNLABELED))


def loaded(rows: Any) -> tuple[Plain, Any, Any]:
    """Rows that fit into memory, their labels and weights."""
    X, labels, weights = rows.load()
    y = labels.array()
    return Plain(X, y, rows.feature_names), y, weights
