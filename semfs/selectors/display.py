"""How selectors look: a short text line, and the chosen features in a notebook."""

from __future__ import annotations

import html
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from semfs.rows.devices import as_numpy

__all__ = ["features_html", "short_repr"]

#: A notebook shows at most this many features; get_feature_names_out() has the rest.
SHOWN = 200

# Colours come from scikit-learn's own diagram, which follows the notebook's theme.
_STYLE = (
    "font-size:0.9em;max-width:60em;overflow-x:auto;margin-top:0.4em",
    "border-collapse:collapse;font-variant-numeric:tabular-nums",
    "padding:0.1em 0.8em;text-align:right",
    "padding:0.1em 0.8em;text-align:left",
)


def short_repr(estimator: Any) -> str:
    """Return the call that makes the estimator, tables and long lists in words.

    Only parameters that differ from their defaults are shown.

    Examples
    --------
    >>> from semfs import SemFS
    >>> short_repr(SemFS(20, attributes={"ant": [6, 0], "cat": [4, 1]}, gamma=0.1))
    'SemFS(attributes=<2 classes × 2 attributes>, gamma=0.1, n_features_to_select=20)'
    """
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(estimator)).parameters.items()
    }
    shown = []
    for name, value in sorted(estimator.get_params(deep=False).items()):
        text = _in_words(name, value)
        if text != _in_words(name, defaults.get(name, inspect.Parameter.empty)):
            shown.append(f"{name}={text}")
    return f"{type(estimator).__name__}({', '.join(shown)})"


def _in_words(name: str, value: Any) -> str:
    if name.endswith("attributes") and value is not None:
        return f"<{_table_size(value)}>"
    shape = getattr(value, "shape", ())
    if shape:
        return f"<array of shape {tuple(shape)}>"
    text = repr(value)
    if len(text) > 80:
        size = f" of {len(value)}" if hasattr(value, "__len__") else ""
        return f"<{type(value).__name__}{size}>"
    return text


def _table_size(table: Any) -> str:
    if isinstance(table, Mapping):
        first = next(iter(table.values()), ())
        return f"{len(table)} classes × {np.size(first)} attributes"
    shape = tuple(np.shape(table))
    if len(shape) != 2:
        return type(table).__name__
    m = shape[1] - 1 if hasattr(table, "get_columns") else shape[1]  # polars: labels first
    return f"{shape[0]} classes × {m} attributes"


def features_html(selector: Any) -> str:
    """Return the chosen features of a fitted selector, best first, as a table to unfold.

    Names are untrusted text and are escaped.
    """
    order, support, scores = (
        np.asarray(as_numpy(getattr(selector, name)))
        for name in ("order_", "support_", "scores_")
    )
    chosen = order[: int(support.sum())]
    names = getattr(selector, "feature_names_in_", None)
    box, table, number, text = _STYLE
    rows = "".join(
        f'<tr><td style="{number}">{rank}</td>'
        f'<td style="{text}">{html.escape(_name(names, j))}</td>'
        f'<td style="{number}">{scores[j]:.4g}</td></tr>'
        for rank, j in enumerate(chosen[:SHOWN].tolist(), start=1)
    )
    more = len(chosen) - SHOWN
    rest = f"<p>… and {more:,} more: get_feature_names_out()</p>" if more > 0 else ""
    d = selector.n_features_in_
    return (
        f'<details style="{box}"><summary>{len(chosen):,} of {d:,} features chosen: '
        f"{_first_names(names, chosen)}</summary>"
        f'<table style="{table}"><thead><tr><th style="{number}">rank</th>'
        f'<th style="{text}">feature</th><th style="{number}">score</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{rest}</details>"
    )


def _first_names(names: Any, chosen: np.ndarray) -> str:
    first = ", ".join(_name(names, j)[:40] for j in chosen[:5].tolist())
    return html.escape(first + (", …" if len(chosen) > 5 else ""))


def _name(names: Any, feature: int) -> str:
    return f"x{feature}" if names is None else str(names[feature])
