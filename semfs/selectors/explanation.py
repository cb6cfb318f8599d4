"""Why these features: the tables of an explanation, in words and as figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from semfs.system import import_optional

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Colors of what is in question, and of what stands beside it.
RED = "#e0245e"
GREY = "#9aa0a8"


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a selector selected, and why; tables are pandas frames with names.

    Attributes
    ----------
    features : DataFrame of shape (k, …)
        By order of entry: ``gain`` (fall of J), ``share`` of the total fall, ``carries`` and
        ``separates`` in words, ``duplicates``, and the selection ``frequency`` over class
        bootstraps with its 95 % interval ``low``–``high``. ``skipped`` are near copies that
        could not be selected beside it (``max_correlation``). If batches were removed, also
        ``class_variance`` and ``batch_variance``, the shares of class and batch in its
        variance, and ``more_batch`` where that of the batch is larger.
    attributes : DataFrame of shape (k, m)
        Correlation, over the seen classes, of a feature's mean with each attribute.
    weights : DataFrame of shape (k, m)
        W: standard deviations of an attribute for one of the feature, others held fixed.
    classes : DataFrame of shape (k, C)
        Class means about the mean over classes, in standard deviations within classes.
    duplicates : DataFrame
        Near copies, as pairs (feature, other, correlation, chosen).
    stability : DataFrame
        ``frequency`` of the selected features and of others that were often selected instead.
        The search on a bootstrap looks at the selected features and the 2,000 features of the
        largest first gain (more if more than 500 are selected); others are not tested.
    n_bootstraps : int
        Number of bootstraps; 0 if there were none, and frequencies are NaN.
    means : DataFrame of shape (k, U)
        Means of all U classes, seen ones first; those of described unseen ones are predicted.
    markers : DataFrame of shape (k, U)
        Whether a feature marks a class: its mean lies a standard deviation within classes
        above that of the other classes, and the class is among its two highest.
    correlation : DataFrame of shape (k, k)
        Correlations between the selected features over all samples, all classes alike.
    separation : DataFrame of shape (U, U)
        Mahalanobis distances between class means under the covariance within classes: the
        best rule for two classes at distance D errs in a share Φ(-D / 2) of their samples.
    """

    features: pd.DataFrame
    attributes: pd.DataFrame
    weights: pd.DataFrame
    classes: pd.DataFrame
    duplicates: pd.DataFrame
    stability: pd.DataFrame
    n_bootstraps: int
    means: pd.DataFrame
    markers: pd.DataFrame
    correlation: pd.DataFrame
    separation: pd.DataFrame

    @property
    def coverage(self) -> pd.Series:
        """Number of selected features that mark each class (U,)."""
        return self.markers.sum(axis=0).rename("markers")

    @property
    def unseen(self) -> list[str]:
        """The described classes without samples, whose means are predicted."""
        return [name for name in self.means.columns if name not in self.classes.columns]

    @property
    def pairs(self) -> pd.DataFrame:
        """Pairs of classes, the least separated first: ``first``, ``second``, ``distance``.

        ``error`` is the share of their samples that the best rule would confuse if they were
        normally distributed about these means, Φ(-distance / 2). That is too little as a rule,
        much too little of few samples; `semfs.panel.PanelReport.pairs` counts samples instead.
        """
        frame = import_optional("pandas", "data", what="explain").DataFrame
        distances = self.separation.to_numpy()
        first, second = np.triu_indices(len(distances), 1)
        found = distances[first, second]
        order = np.argsort(found, kind="stable")
        names = np.array(self.separation.index, dtype=object)
        columns = {
            "first": names[first[order]],
            "second": names[second[order]],
            "distance": found[order],
            "error": norm.cdf(-0.5 * found[order]),
        }
        return frame(columns)

    def __str__(self) -> str:
        """A line per feature."""
        width = max((len(str(name)) for name in self.features.index), default=0)
        lines = []
        for name, row in self.features.iterrows():
            parts = [f"{row['share']:5.1%}", f"carries {row['carries']}"]
            if row["separates"]:
                parts.append(row["separates"])
            if row["duplicates"]:
                parts.append(f"like {row['duplicates']}")
            if row["skipped"]:
                parts.append(f"skipped as copies: {row['skipped']}")
            if row.get("more_batch", False):
                batch = row["batch_variance"]
                parts.append(
                    f"varies more with the batch ({batch:.0%}) than with the class "
                    f"({row['class_variance']:.0%})"
                )
            if self.n_bootstraps:
                parts.append(f"selected in {row['frequency']:.0%} of bootstraps")
            lines.append(f"{name!s:<{width}}  " + "; ".join(parts))
        return "\n".join(lines)

    __repr__ = __str__

    def plot_gains(self) -> Figure:
        """Return a figure of the share of the decrease of J that each further feature adds."""
        share = self.features["share"]
        figure, ax = _figure(max(3.4, 0.24 * len(share)), 2.9)
        ranks = range(1, len(share) + 1)
        ax.bar(ranks, share, color=GREY, label="of each feature")
        ax.plot(
            ranks,
            share.cumsum(),
            color=RED,
            marker="o",
            markersize=3,
            label="together",
        )
        ax.set_xticks(
            ranks,
            _plain_text(share.index),
            rotation=90,
            fontsize=7,
        )
        ax.set(ylabel="share of the decrease of J", ylim=(0, 1.05))
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3, axis="y")
        return figure

    def plot_attributes(self) -> Figure:
        """Return a heat map of features against the attributes they carry."""
        values = self.attributes
        k, m = values.shape
        figure, ax = _figure(1.8 + 0.24 * m, 1.5 + 0.2 * k)
        image = ax.imshow(
            values,
            cmap="RdBu",
            vmin=-1,
            vmax=1,
            aspect="auto",
        )
        ax.set_xticks(
            range(m),
            _plain_text(values.columns),
            rotation=90,
            fontsize=7,
        )
        ax.set_yticks(range(k), _plain_text(values.index), fontsize=7)
        figure.colorbar(
            image,
            ax=ax,
            label="correlation over seen classes",
            shrink=0.8,
        )
        return figure

    def plot_stability(self) -> Figure:
        """Return bars of the frequency of selection over class bootstraps, with intervals."""
        found = self.stability
        if not len(found):
            message = "There are no bootstraps to plot. Call explain(n_bootstraps=100) first."
            raise ValueError(message)
        figure, ax = _figure(4.2, 1.0 + 0.17 * len(found))
        # axes count upward, tables downward: the first bar is at the top
        places = np.arange(len(found))[::-1]
        frequency = found["frequency"].astype(float)
        interval = [frequency - found["low"], found["high"] - frequency]
        colors = np.where(found["chosen"], RED, GREY)
        ax.barh(
            places,
            frequency,
            xerr=interval,
            color=colors,
            ecolor="#444444",
            capsize=1.5,
        )
        ax.set_yticks(places, _plain_text(found.index), fontsize=7)
        ax.set(
            xlabel=f"share of {self.n_bootstraps} class bootstraps",
            xlim=(0, 1),
        )
        ax.margins(y=0.01)
        ax.grid(alpha=0.3, axis="x")
        return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; pyplot's global state is not touched."""
    library = import_optional("matplotlib.figure", "plots", what="A figure")
    figure = library.Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _plain_text(names: Iterable[object]) -> list[str]:
    """Names that matplotlib shows as they are, not as mathematics."""
    return [str(name).replace("$", r"\$") for name in names]
