"""`Explanation`: why features were selected, as tables and figures."""

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
    """Explanation of which features were selected and why, as pandas frames.

    Attributes
    ----------
    features : DataFrame of shape (k, …)
        The selected features in the order in which they were added. ``gain`` is the decrease of
        J, and ``share`` is its share of the total decrease. ``carries`` and ``separates``
        describe in words the attributes and classes about which the feature is informative.
        ``duplicates`` lists near copies, and ``skipped`` lists near copies that could not be
        selected because of ``max_correlation``. ``frequency`` is the share of class bootstraps
        in which the feature is selected, with its 95 % interval ``low``–``high``. If batches
        were removed, ``class_variance`` and ``batch_variance`` are the shares of class and
        batch in the variance of the feature, and ``more_batch`` says whether the share of the
        batch is larger.
    attributes : DataFrame of shape (k, m)
        Correlation of the class means of a feature with each attribute, over the seen classes.
        The means do not include offsets of batches that were removed.
    weights : DataFrame of shape (k, m)
        The coefficients W in standard units. A weight is the number of standard deviations by
        which the predicted attribute changes if the feature increases by one standard deviation
        and all other features stay the same.
    classes : DataFrame of shape (k, C)
        Class means minus their mean over classes, in standard deviations within classes. Like
        ``means`` and ``separates``, they are as measured, even if offsets of batches were
        removed.
    duplicates : DataFrame
        Pairs of near copies, with the columns ``feature``, ``other``, ``correlation`` and
        ``chosen`` (whether the other feature is also selected).
    stability : DataFrame
        ``frequency`` of the selected features, and of other features that were often selected
        instead of them. In each bootstrap, the search considers the selected features and the
        2,000 features that decrease J most when added first (more than 2,000 if more than 500
        features are selected). Other features are not tested.
    n_bootstraps : int
        Number of bootstraps. If it is 0, frequencies are NaN.
    means : DataFrame of shape (k, U)
        Means of the features in all U classes, seen classes first. The means of unseen classes
        are predicted from their descriptions.
    markers : DataFrame of shape (k, U)
        Whether a feature marks a class. It does if its mean in the class exceeds its mean over
        the other classes by at least one standard deviation within classes, and if at most one
        class has a higher mean. The means do not include offsets of batches that were removed.
    correlation : DataFrame of shape (k, k)
        Correlations between the selected features over all samples, with the same weight for
        each class.
    separation : DataFrame of shape (U, U)
        Mahalanobis distances between class means, for the covariance within classes. If two
        classes are normally distributed and their distance is D, the best rule misclassifies a
        share Φ(-D / 2) of their samples.
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
        """Number of selected features that mark each class."""
        return self.markers.sum(axis=0).rename("markers")

    @property
    def adjusted(self) -> bool:
        """Whether offsets of batches were removed before features were compared."""
        return "batch_variance" in self.features

    @property
    def unseen(self) -> list[str]:
        """Described classes without samples, whose means are predicted."""
        return [name for name in self.means.columns if name not in self.classes.columns]

    @property
    def pairs(self) -> pd.DataFrame:
        """Pairs of classes, with the least separated pairs first.

        The columns are ``first``, ``second``, ``distance`` and ``error``. ``error`` is
        Φ(-distance / 2), the share of samples that the best rule would confuse if both classes
        were normally distributed. Real errors are usually larger, and much larger if there are
        few samples. `semfs.panel.PanelReport.pairs` counts confused samples instead.
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
        """Return a text with one line per feature."""
        width = max((len(str(name)) for name in self.features.index), default=0)
        lines = []
        for name, row in self.features.iterrows():
            parts = [f"{row['share']:5.1%}", f"varies with {row['carries']}"]
            if row["separates"]:
                parts.append(row["separates"])
            if row["duplicates"]:
                parts.append(f"like {row['duplicates']}")
            if row["skipped"]:
                parts.append(f"skipped as copies: {row['skipped']}")
            if row.get("more_batch", False):
                batch = row["batch_variance"]
                parts.append(
                    f"varies more with the batch ({batch:.0%}) than with "
                    f"the class ({row['class_variance']:.0%}); unless "
                    "this is expected, exclude the feature"
                )
            if self.n_bootstraps:
                parts.append(f"selected in {row['frequency']:.0%} of bootstraps")
            lines.append(f"{name!s:<{width}}  " + "; ".join(parts))
        return "\n".join(lines)

    __repr__ = __str__

    def plot_gains(self) -> Figure:
        """Plot the share of the decrease of J that each additional feature contributes."""
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
        """Plot a heat map of the correlations of features and attributes."""
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
        """Plot how often each feature is selected over class bootstraps, with intervals."""
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
    """Return a figure with one pair of axes, without pyplot's global state."""
    library = import_optional("matplotlib.figure", "plots", what="A figure")
    figure = library.Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _plain_text(names: Iterable[object]) -> list[str]:
    """Escape names so that matplotlib does not read them as formulas."""
    return [str(name).replace("$", r"\$") for name in names]
