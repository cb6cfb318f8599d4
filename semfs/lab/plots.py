"""Figures of an `Explanation`: gains, attributes, stability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_attribute_map", "plot_gains", "plot_stability"]


def plot_gains(explanation: Any) -> Figure:
    """Draw the fall of J, as a share of that of all chosen features, against their number.

    Parameters
    ----------
    explanation : Explanation
        From ``selector.explain()``.
    """
    share = explanation.features["share"]
    figure, ax = _single_panel(max(3.4, 0.24 * len(share)), 2.9)
    at = range(1, len(share) + 1)
    ax.bar(at, share, color="#9aa0a8", label="of each feature")
    ax.plot(at, share.cumsum(), color="#e0245e", marker="o", markersize=3, label="together")
    ax.set_xticks(at, [_text(name) for name in share.index], rotation=90, fontsize=7)
    ax.set(ylabel="share of the fall of J", ylim=(0, 1.05))
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3, axis="y")
    return figure


def plot_attribute_map(explanation: Any) -> Figure:
    """Draw the correlation of chosen features with the attributes, over the seen classes."""
    values = explanation.attributes
    k, m = values.shape
    figure, ax = _single_panel(1.8 + 0.24 * m, 1.5 + 0.2 * k)
    image = ax.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    names = [_text(name) for name in values.columns]
    ax.set_xticks(range(m), names, rotation=90, fontsize=7)
    ax.set_yticks(range(k), [_text(name) for name in values.index], fontsize=7)
    figure.colorbar(image, ax=ax, label="correlation over seen classes", shrink=0.8)
    return figure


def plot_stability(explanation: Any) -> Figure:
    """Draw how often features are chosen on bootstraps of the classes, with intervals.

    Chosen features first, in order of entry, then those that would often take their place.
    """
    found = explanation.stability
    if not len(found):
        raise ValueError("There are no bootstraps to draw. Use explain(n_bootstraps=100).")
    figure, ax = _single_panel(4.2, 1.0 + 0.17 * len(found))
    at = list(range(len(found)))[::-1]
    middle = found["frequency"].astype(float)
    error = [middle - found["low"].astype(float), found["high"].astype(float) - middle]
    colours = ["#e0245e" if chosen else "#9aa0a8" for chosen in found["chosen"]]
    ax.barh(at, middle, xerr=error, color=colours, ecolor="#444444", capsize=1.5)
    ax.set_yticks(at, [_text(name) for name in found.index], fontsize=7)
    ax.set(xlabel=f"share of {explanation.n_bootstraps} class bootstraps", xlim=(0, 1))
    ax.margins(y=0.01)
    ax.grid(alpha=0.3, axis="x")
    return figure


def _single_panel(width: float, height: float) -> tuple[Figure, Any]:
    figure = _figure(width, height)
    return figure, figure.subplots()


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"Figures need {error.name}. Install it with: pip install 'semfs[plots]'"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def _text(text: Any) -> str:
    """Text that matplotlib shows as it is: no mathematics, no hidden legend entries."""
    text = str(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
