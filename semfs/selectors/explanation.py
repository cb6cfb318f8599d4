"""Why these features: what they carry and separate, what copies them, how stable they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta

from semfs.files import need
from semfs.method.moments import Moments
from semfs.rows import Rows
from semfs.selectors.folds import ClassSums, Setting, screen_features
from semfs.validation import feature_indices

__all__ = ["Explanation", "explain_selection"]

#: Features that enter the search on bootstraps of the classes.
N_CANDIDATES = 512
#: Correlation within classes, and over all rows, from which a feature counts as a copy.
COPY = 0.7


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a selector chose, and why; tables are pandas frames with names.

    Attributes
    ----------
    features : DataFrame of shape (k, …)
        One row per chosen feature, in order of entry: ``gain`` (fall of J), ``share`` of the
        total fall, ``carries`` and ``separates`` in words, ``duplicates``, and the selection
        ``frequency`` over class bootstraps with its interval ``low``–``high``.
    attributes : DataFrame of shape (k, m)
        Correlation, over the seen classes, of a feature's mean with each attribute.
    weights : DataFrame of shape (k, m)
        W: how far one standard deviation of the feature moves the prediction of an
        attribute, in standard deviations of that attribute, the other features held fixed.
    classes : DataFrame of shape (k, C)
        Mean of the feature in each class, in standard deviations within classes from the
        mean over classes.
    duplicates : DataFrame
        Pairs (feature, other, correlation, chosen): what says nearly the same.
    stability : DataFrame
        Frequency of selection over bootstraps of the classes, with 95 % intervals, of the
        chosen features and of others that were often chosen instead.
    n_bootstraps : int
    """

    features: Any
    attributes: Any
    weights: Any
    classes: Any
    duplicates: Any
    stability: Any
    n_bootstraps: int

    def __str__(self) -> str:
        """A line per feature."""
        lines = []
        width = max((len(str(name)) for name in self.features.index), default=0)
        for name, row in self.features.iterrows():
            parts = [f"{row['share']:5.1%}", f"carries {row['carries']}"]
            if row["separates"]:
                parts.append(row["separates"])
            if row["duplicates"]:
                parts.append(f"like {row['duplicates']}")
            if self.n_bootstraps:
                parts.append(f"chosen in {row['frequency']:.0%} of bootstraps")
            lines.append(f"{name!s:<{width}}  " + "; ".join(parts))
        return "\n".join(lines)

    def __repr__(self) -> str:
        m = self.attributes.shape[1]
        return f"Explanation of {len(self.features)} features by {m} attributes\n{self}"

    def plot_gains(self) -> Any:
        """Return a figure of the share of the fall of J that each further feature adds."""
        from semfs.lab.plots import plot_gains

        return plot_gains(self)

    def plot_attributes(self) -> Any:
        """Return a heat map of features against the attributes they carry."""
        from semfs.lab.plots import plot_attribute_map

        return plot_attribute_map(self)

    def plot_stability(self) -> Any:
        """Return bars of the frequency of selection over class bootstraps."""
        from semfs.lab.plots import plot_stability

        return plot_stability(self)


def explain_selection(
    selector: Any,
    moments: Moments | None,
    *,
    n_bootstraps: int = 100,
    random_state: Any = 0,
) -> Explanation:
    """Explain a fitted selector from the moments it was fitted to.

    Without moments only gains and weights are known. See `SemFS.explain`.
    """
    pandas = need("pandas", "data")
    chosen = np.asarray(selector.order_)[: int(np.asarray(selector.support_).sum())]
    names = _names(selector, chosen)
    gains = np.asarray(selector.scores_)[chosen]
    attribute_names = [str(name) for name in selector.class_table_.names]
    table = selector.class_table_.values
    parts = _Parts(chosen, names, attribute_names, selector.class_table_.classes)
    spread = np.ones(len(chosen)) if moments is None else _spread(moments, chosen)
    weights = parts.by_attribute(_weights(selector, chosen, table, spread))
    if moments is None:
        means, correlations = None, np.full(weights.shape, np.nan)
    else:
        means = moments.means[:, chosen]
        correlations = _correlations(means, table, moments.counts)
    carried = weights.to_numpy() if moments is None else correlations
    features = pandas.DataFrame(
        {
            "gain": gains,
            "share": gains / max(float(np.maximum(gains, 0.0).sum()), 1e-300),
            "carries": [_carried(row, attribute_names) for row in carried],
        },
        index=pandas.Index(names, name="feature"),
    )
    classes, copies = parts.by_class(np.full((len(names), len(table)), np.nan)), None
    features["separates"] = ""
    if means is not None and moments is not None:
        levels = _levels(moments, chosen)
        classes = parts.by_class(levels)
        features["separates"] = [
            _separated(row, selector.class_table_.classes) for row in levels
        ]
        copies = _copies(selector, moments, chosen)
    duplicates = pandas.DataFrame(
        copies or [], columns=["feature", "other", "correlation", "chosen"]
    )
    features["duplicates"] = [
        ", ".join(str(other) for other in duplicates["other"][duplicates["feature"] == name])
        for name in names
    ]
    stability = pandas.DataFrame(columns=["frequency", "low", "high", "chosen"])
    bootstraps = n_bootstraps if moments is not None and _can_resample(moments) else 0
    if bootstraps and moments is not None:
        counts = _selection_counts(selector, moments, bootstraps, random_state)
        stability = _stability(pandas, selector, chosen, counts, bootstraps)
    frequency = stability.reindex(features.index)[["frequency", "low", "high"]]
    features = features.join(frequency.astype(float))
    return Explanation(
        features,
        parts.by_attribute(correlations),
        weights,
        classes,
        duplicates,
        stability,
        bootstraps,
    )


@dataclass(frozen=True)
class _Parts:
    """Names for the rows and columns of tables."""

    chosen: np.ndarray
    names: list[str]
    attributes: list[str]
    classes: np.ndarray

    def by_attribute(self, values: np.ndarray) -> Any:
        return need("pandas", "data").DataFrame(
            values, index=self.names, columns=self.attributes
        )

    def by_class(self, values: np.ndarray) -> Any:
        labels = [str(label) for label in self.classes.tolist()]
        return need("pandas", "data").DataFrame(values, index=self.names, columns=labels)


def _names(selector: Any, features: np.ndarray) -> list[str]:
    names = getattr(selector, "feature_names_in_", None)
    return [f"x{j}" if names is None else str(names[j]) for j in features]


def _spread(moments: Moments, chosen: np.ndarray) -> np.ndarray:
    return np.sqrt(moments.scatter_diag[chosen] / moments.total)


def _weights(
    selector: Any, chosen: np.ndarray, table: np.ndarray, spread: np.ndarray
) -> np.ndarray:
    """W of the chosen features (k, m) in standard deviations of feature and attribute."""
    W = np.asarray(selector.coef_)[chosen] * np.asarray(selector.selection_)[chosen, None]
    scale = table.std(axis=0)
    return spread[:, None] * W / np.where(scale > 0, scale, np.inf)


def _correlations(means: np.ndarray, table: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Correlation (k, m) over classes, all classes alike."""
    M, A = means - means.mean(axis=0), table - table.mean(axis=0)
    scale = np.outer(np.linalg.norm(M, axis=0), np.linalg.norm(A, axis=0))
    return np.divide(M.T @ A, scale, out=np.zeros_like(scale), where=scale > 1e-12)


def _levels(moments: Moments, chosen: np.ndarray) -> np.ndarray:
    """Class means (k, C) about the mean over classes, in within-class deviations."""
    M = moments.means[:, chosen]
    between = moments.counts @ (M - moments.mean[chosen]) ** 2
    within = np.maximum(moments.scatter_diag[chosen] - between, 0.0) / moments.total
    within = np.sqrt(np.where(within > 0, within, np.inf))
    return ((M - M.mean(axis=0)) / within).T


def _carried(row: np.ndarray, names: Sequence[str], most: int = 3) -> str:
    """The strongest attributes in words: "+ CD19, − T cell"."""
    size = np.abs(row)
    if not np.isfinite(size).all() or size.max(initial=0.0) <= 1e-12:
        return "no attribute"
    order = np.argsort(-size, kind="stable")[:most]
    strong = [j for j in order if size[j] >= 0.8 * size[order[0]]]
    return ", ".join(f"{'+' if row[j] > 0 else '−'} {names[j]}" for j in strong)


def _separated(levels: np.ndarray, classes: np.ndarray) -> str:
    """Which classes lie on the two sides of the widest gap, the smaller side first."""
    if len(levels) < 2:
        return ""
    order = np.argsort(levels, kind="stable")
    gaps = np.diff(levels[order])
    cut = int(np.argmax(gaps)) + 1
    if not gaps[cut - 1] > 0:
        return ""
    low, high = order[:cut], order[cut:]
    side, word = (high, "high") if len(high) <= len(low) else (low, "low")
    labels = [str(classes[c]) for c in (side[::-1] if word == "high" else side)]
    shown = ", ".join(labels[:4]) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")
    return f"{word} in {shown}"


def _copies(selector: Any, moments: Moments, chosen: np.ndarray) -> list[list[Any]]:
    """Features, chosen or not, that correlate with a chosen one within and over classes."""
    total = moments.scatter_columns(chosen)
    root = np.sqrt(moments.counts)[:, None] * (moments.means - moments.mean)
    within = total - root.T @ root[:, chosen]
    diag = moments.scatter_diag
    inner = np.maximum(diag - np.einsum("cd,cd->d", root, root), 0.0)
    found = []
    names = set(chosen.tolist())
    for i, j in enumerate(chosen.tolist()):
        r = _ratio(total[:, i], diag, diag[j])
        r_within = _ratio(within[:, i], inner, inner[j])
        alike = np.flatnonzero((np.abs(r) >= COPY) & (np.abs(r_within) >= COPY / 2))
        alike = alike[np.argsort(-np.abs(r[alike]), kind="stable")]
        for other in [o for o in alike.tolist() if o != j][:3]:
            this, that = _names(selector, np.array([j, other]))
            found.append([this, that, float(r[other]), other in names])
    return found


def _ratio(column: np.ndarray, diag: np.ndarray, own: float) -> np.ndarray:
    scale = np.sqrt(diag * own)
    return np.divide(column, scale, out=np.zeros_like(column), where=scale > 1e-12)


# ---- stability ------------------------------------------------------------------------


def _can_resample(moments: Moments) -> bool:
    return isinstance(moments.rows, Rows) and len(moments.classes) > 2


def _selection_counts(
    selector: Any, moments: Moments, n_bootstraps: int, random_state: Any
) -> np.ndarray:
    """How often each feature (d,) is chosen when the classes are drawn with replacement.

    The moments are weighted as in the fit, so that class weights are not applied again.
    """
    model = getattr(selector, "best_estimator_", selector)
    params = model.get_params(deep=False) | {"class_weight": None}
    k, C = int(np.asarray(selector.support_).sum()), len(moments.classes)
    choose = _quick_choice if params["solver"] == "direct" else _refitted_choice
    chosen_by = choose(selector, params, moments, k)
    rng = np.random.default_rng(random_state)
    counts = np.zeros(moments.n_features)
    for _ in range(n_bootstraps):
        times = np.bincount(rng.integers(0, C, C), minlength=C).astype(np.float64)
        while (times > 0).sum() < 2:
            times = np.bincount(rng.integers(0, C, C), minlength=C).astype(np.float64)
        counts[chosen_by(times)] += 1
    return counts


def _quick_choice(
    selector: Any, params: dict[str, Any], moments: Moments, k: int
) -> Callable[[np.ndarray], np.ndarray]:
    """A function from class multiplicities (C,) to features, by the direct solver."""
    d, setting = moments.n_features, Setting.of_params(params)
    table = None if selector.attributes is None else selector.class_table_.values
    names = getattr(selector, "feature_names_in_", None)
    include = feature_indices("include", params["include"], d, names)
    allowed = np.isfinite(np.asarray(selector.scores_))
    columns, diagonal = np.arange(d), float("nan")
    if d > N_CANDIDATES:
        keep = np.union1d(np.asarray(selector.order_)[:k], include)
        limit = max(N_CANDIDATES, 4 * k)
        columns, diagonals = screen_features(
            moments, table, [setting], limit, allowed=allowed, keep=keep
        )
        diagonal = diagonals[setting]
    sums = ClassSums.of_columns(moments, columns, np.arange(len(moments.classes)), table)
    first = np.flatnonzero(np.isin(columns, include))
    kind = {"balanced": False, "fit_intercept": setting.fit_intercept}

    def choose(times: np.ndarray) -> np.ndarray:
        limits = {"allowed": allowed[columns], "first": first}
        return columns[sums.resample(times, **kind).path(setting, k, diagonal, **limits)]

    return choose


def _refitted_choice(
    selector: Any, params: dict[str, Any], moments: Moments, k: int
) -> Callable[[np.ndarray], np.ndarray]:
    """The same by a fit of its own for each bootstrap."""
    names = getattr(selector, "feature_names_in_", None)
    for name in ("include", "exclude"):
        found = feature_indices(name, params[name], moments.n_features, names)
        params[name] = found.tolist() or None
    model = type(selector)(**params)

    def choose(times: np.ndarray) -> np.ndarray:
        factors = dict(zip(moments.classes.tolist(), times.tolist()))
        return np.asarray(model.fit_moments(moments.reweighted(factors)).order_)[:k]

    return choose


def _stability(
    pandas: Any, selector: Any, chosen: np.ndarray, counts: np.ndarray, n: int
) -> Any:
    """Frequencies with Jeffreys intervals, chosen features first, then the likeliest others."""
    others = np.argsort(-counts, kind="stable")
    others = others[~np.isin(others, chosen) & (counts[others] > 0)][: len(chosen)]
    features = np.concatenate([chosen, others])
    hits = counts[features]
    low, high = (beta.ppf(q, hits + 0.5, n - hits + 0.5) for q in (0.025, 0.975))
    return pandas.DataFrame(
        {
            "frequency": hits / n,
            "low": np.where(hits == 0, 0.0, low),
            "high": np.where(hits == n, 1.0, high),
            "chosen": np.isin(features, chosen),
        },
        index=pandas.Index(_names(selector, features), name="feature"),
    )
