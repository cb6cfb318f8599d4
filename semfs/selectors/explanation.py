"""Why these features: what they carry and separate, what copies them, how stable they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta
from sklearn.base import clone

from semfs.method.moments import Moments
from semfs.rows import Rows
from semfs.selectors.folds import ClassFolds
from semfs.selectors.training import Units
from semfs.system import import_optional
from semfs.validation import class_weights

N_CANDIDATES = 512  # features that enter the search on bootstraps of the classes
COPY = 0.7  # correlation over all rows from which a feature counts as a copy; half of it within
RED, GREY = "#e0245e", "#9aa0a8"  # what is in question, and what stands beside it


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a selector chose, and why; tables are pandas frames with names.

    Attributes
    ----------
    features : DataFrame of shape (k, …)
        By order of entry: ``gain`` (fall of J), ``share`` of the total fall, ``carries`` and
        ``separates`` in words, ``duplicates``, and the selection ``frequency`` over class
        bootstraps with its interval ``low``–``high``.
    attributes : DataFrame of shape (k, m)
        Correlation, over the seen classes, of a feature's mean with each attribute.
    weights : DataFrame of shape (k, m)
        W: standard deviations of an attribute for one of the feature, others held fixed.
    classes : DataFrame of shape (k, C)
        Class means about the mean over classes, in standard deviations within classes.
    duplicates : DataFrame
        Pairs (feature, other, correlation, chosen): what says nearly the same.
    stability : DataFrame
        ``frequency`` of the chosen features and of others that were often chosen instead.
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
            parts = [f"{row['share']:5.1%}", f"carries {row['carries']}", row["separates"]]
            parts.append(f"like {row['duplicates']}" if row["duplicates"] else "")
            if self.n_bootstraps:
                parts.append(f"chosen in {row['frequency']:.0%} of bootstraps")
            lines.append(f"{name!s:<{width}}  " + "; ".join(filter(None, parts)))
        return "\n".join(lines)

    __repr__ = __str__

    def plot_gains(self) -> Any:
        """Return a figure of the share of the fall of J that each further feature adds."""
        share = self.features["share"]
        figure, ax = _panel(max(3.4, 0.24 * len(share)), 2.9)
        at = range(1, len(share) + 1)
        ax.bar(at, share, color=GREY, label="of each feature")
        ax.plot(at, share.cumsum(), color=RED, marker="o", markersize=3, label="together")
        ax.set_xticks(at, _as_they_are(share.index), rotation=90, fontsize=7)
        ax.set(ylabel="share of the fall of J", ylim=(0, 1.05))
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3, axis="y")
        return figure

    def plot_attributes(self) -> Any:
        """Return a heat map of features against the attributes they carry."""
        values = self.attributes
        k, m = values.shape
        figure, ax = _panel(1.8 + 0.24 * m, 1.5 + 0.2 * k)
        image = ax.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        ax.set_xticks(range(m), _as_they_are(values.columns), rotation=90, fontsize=7)
        ax.set_yticks(range(k), _as_they_are(values.index), fontsize=7)
        figure.colorbar(image, ax=ax, label="correlation over seen classes", shrink=0.8)
        return figure

    def plot_stability(self) -> Any:
        """Return bars of the frequency of selection over class bootstraps, with intervals."""
        found = self.stability
        if not len(found):
            raise ValueError("There are no bootstraps to draw. Use explain(n_bootstraps=100).")
        figure, ax = _panel(4.2, 1.0 + 0.17 * len(found))
        at = np.arange(len(found))[::-1]
        middle, low, high = (found[name].astype(float) for name in ("frequency", "low", "high"))
        colors = np.where(found["chosen"], RED, GREY)
        interval = [middle - low, high - middle]
        ax.barh(at, middle, xerr=interval, color=colors, ecolor="#444444", capsize=1.5)
        ax.set_yticks(at, _as_they_are(found.index), fontsize=7)
        ax.set(xlabel=f"share of {self.n_bootstraps} class bootstraps", xlim=(0, 1))
        ax.margins(y=0.01)
        ax.grid(alpha=0.3, axis="x")
        return figure


def _panel(width: float, height: float) -> tuple[Any, Any]:
    """A figure with one pair of axes; pyplot's global state is not touched."""
    library = import_optional("matplotlib.figure", "plots", what="A figure")
    figure = library.Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _as_they_are(names: Any) -> list[str]:
    """Names that matplotlib shows as they are, not as mathematics."""
    return [str(name).replace("$", r"\$") for name in names]


def explain_selection(
    selector: Any, moments: Moments | None, n_bootstraps: int, random_state: Any
) -> Explanation:
    """Explain a fitted selector from the moments it was fitted to; see `SemFS.explain`."""
    frame = import_optional("pandas", "data", what="explain").DataFrame
    chosen = np.asarray(selector.order_)[: int(np.asarray(selector.support_).sum())]
    table, names = selector.class_table_, [selector._name_of(j) for j in chosen]
    attributes, classes = table.names.tolist(), [str(c) for c in table.classes.tolist()]
    units = Units() if moments is None else Units.of(moments, table)
    values = units.table(table).values
    spread = np.ldexp(values.std(axis=0), units.a - units.x)
    weights = np.asarray(selector.coef_)[chosen] * np.asarray(selector.selection_)[chosen, None]
    weights = weights / np.where(spread > 0, spread, np.inf)
    correlations, carried, copies = np.full(weights.shape, np.nan), weights, []
    levels = np.full((len(chosen), len(classes)), np.nan)
    if moments is not None:
        scaled = units.moments(moments)
        weights = np.sqrt(scaled.scatter_diag[chosen] / scaled.total)[:, None] * weights
        M, A = (part - part.mean(axis=0) for part in (scaled.means[:, chosen], values))
        sizes = np.outer(np.linalg.norm(M, axis=0), np.linalg.norm(A, axis=0))
        carried = correlations = _ratios(M.T @ A, sizes)  # over classes, all alike
        levels, copies = _levels(scaled, chosen), _copies(scaled, chosen)
    counts = np.zeros(0)
    if n_bootstraps and moments and isinstance(moments.rows, Rows) and len(classes) > 2:
        counts = _selection_counts(selector, scaled, units, n_bootstraps, random_state)
    n_bootstraps = n_bootstraps if counts.size else 0
    stability = frame(_stability(chosen if n_bootstraps else chosen[:0], counts, n_bootstraps))
    stability.index = [selector._name_of(j) for j in stability.pop("feature")]
    duplicates = frame(
        [(selector._name_of(j), selector._name_of(o), r, o in chosen) for j, o, r in copies],
        columns=["feature", "other", "correlation", "chosen"],
    )
    gains = np.asarray(selector.scores_)[chosen]
    features = frame({"gain": gains}, index=names)
    features["share"] = gains / max(float(np.maximum(gains, 0.0).sum()), 1e-300)
    features["carries"] = [_carried(row, attributes) for row in carried]
    features["separates"] = [_separated(row, classes) for row in levels]
    others = duplicates.groupby("feature")["other"].agg(", ".join)
    features["duplicates"] = others.reindex(names).fillna("")
    features = features.join(stability[["frequency", "low", "high"]])
    features.index.name = stability.index.name = "feature"
    tables = frame(correlations, names, attributes), frame(weights, names, attributes)
    rest = frame(levels, names, classes), duplicates, stability, n_bootstraps
    return Explanation(features, *tables, *rest)


def _ratios(products: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Products by their scale; 0 where there is none."""
    smallest = 1e-12 * scale.max(initial=np.finfo(float).tiny)
    return np.divide(products, scale, out=np.zeros_like(scale), where=scale > smallest)


def _levels(moments: Moments, chosen: np.ndarray) -> np.ndarray:
    """Class means (k, C) about the mean over classes, in within-class deviations."""
    M = moments.means[:, chosen]
    between = moments.counts @ (M - moments.mean[chosen]) ** 2
    within = np.maximum(moments.scatter_diag[chosen] - between, 0.0) / moments.total
    return ((M - M.mean(axis=0)) / np.sqrt(np.where(within > 0, within, np.inf))).T


def _carried(row: np.ndarray, names: Sequence[str], most: int = 3) -> str:
    """The strongest attributes in words: "+ CD19, − T cell"."""
    size = np.abs(row)
    if not np.isfinite(size).all() or size.max(initial=0.0) <= 1e-12:
        return "no attribute"
    order = np.argsort(-size, kind="stable")[:most]
    strong = [j for j in order if size[j] >= 0.8 * size[order[0]]]
    return ", ".join(f"{'+' if row[j] > 0 else '−'} {names[j]}" for j in strong)


def _separated(levels: np.ndarray, classes: Sequence[str]) -> str:
    """Which classes lie on the two sides of the widest gap, the smaller side first."""
    order = np.argsort(levels, kind="stable")
    gaps = np.diff(levels[order])
    if not (gaps > 0).any():
        return ""
    cut = int(np.argmax(gaps)) + 1
    low, high = order[:cut], order[cut:][::-1]
    side, word = (high, "high") if len(high) <= len(low) else (low, "low")
    more = f" and {len(side) - 4} more" if len(side) > 4 else ""
    return f"{word} in {', '.join(classes[c] for c in side[:4])}{more}"


def _copies(moments: Moments, chosen: np.ndarray) -> list[tuple[int, int, float]]:
    """Features, chosen or not, that correlate with a chosen one within and over classes."""
    total = moments.scatter_columns(chosen)
    root = np.sqrt(moments.counts)[:, None] * (moments.means - moments.mean)
    within = total - root.T @ root[:, chosen]
    diag = moments.scatter_diag
    inner = np.maximum(diag - np.einsum("cd,cd->d", root, root), 0.0)
    found = []
    for i, j in enumerate(chosen.tolist()):
        r = _ratios(total[:, i], np.sqrt(diag * diag[j]))
        r_within = _ratios(within[:, i], np.sqrt(inner * inner[j]))
        alike = np.flatnonzero((np.abs(r) >= COPY) & (np.abs(r_within) >= COPY / 2))
        alike = alike[np.argsort(-np.abs(r[alike]), kind="stable")]
        found += [(j, o, float(r[o])) for o in alike[alike != j][:3].tolist()]
    return found


def _selection_counts(
    selector: Any, moments: Moments, units: Units, n_bootstraps: int, random_state: Any
) -> np.ndarray:
    """How often each feature (d,) is chosen when classes are drawn again."""
    k, C = int(np.asarray(selector.support_).sum()), len(moments.classes)
    model = getattr(selector, "best_estimator_", selector)
    again = clone(model).set_params(n_features_to_select=k, **units.params(model))
    table, names = units.table(model.class_table_), getattr(model, "feature_names_in_", None)
    every, most = np.ones(C, dtype=bool), max(N_CANDIDATES, 4 * k)
    folds = ClassFolds(moments, table, [again], [every], names, most)
    weights = class_weights(model.class_weight, moments.classes, moments.counts)
    weights = np.ones(C) if weights is None else weights
    rng, counts, done = np.random.default_rng(random_state), np.zeros(moments.n_features), 0
    while done < n_bootstraps:
        times = np.bincount(rng.integers(0, C, C), minlength=C)
        if (times > 0).sum() > 1:  # a single class has nothing to tell apart
            again.class_weight = dict(zip(moments.classes.tolist(), (times * weights).tolist()))
            counts[folds.paths(every)[0]] += 1
            done += 1
    return counts


def _stability(chosen: np.ndarray, counts: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """Frequencies with Jeffreys intervals, chosen features first, then the likeliest others."""
    others = np.argsort(-counts, kind="stable")
    others = others[~np.isin(others, chosen) & (counts[others] > 0)][: len(chosen)]
    features = np.concatenate([chosen, others])
    hits = counts[features]
    low, high = (beta.ppf(q, hits + 0.5, n - hits + 0.5) for q in (0.025, 0.975))
    return {
        "feature": features,
        "frequency": hits / n,
        "low": np.where(hits == 0, 0.0, low),
        "high": np.where(hits == n, 1.0, high),
        "chosen": np.isin(features, chosen),
    }
