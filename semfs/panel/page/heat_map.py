"""A heat map of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from semfs._typing import Float64
from semfs.lab.sections import Panel


def heat_map(
    title: str,
    axis: str,
    names: list[str],
    values: Float64,
    measure: str,
    *,
    color: str,
    limits: tuple[float, float],
) -> Panel:
    """Return a heat map of a measure (n, n) of all pairs; the diagonal and NaN stay empty.

    ``axis`` says what is compared, and ``color`` is the title of the colors.
    """
    series: dict[str, list[tuple[Any, ...]]] = {}
    for i, first in enumerate(names):
        fields: list[tuple[Any, ...]] = []
        for j, second in enumerate(names):
            value = float(values[i, j])
            if i == j or np.isnan(value):
                fields.append((second, None, ""))
            else:
                fields.append((second, value, f"{measure} {value:.2f}"))
        series[first] = fields
    return Panel(title, axis, axis, series, kind="heat", color=color, limits=limits)
