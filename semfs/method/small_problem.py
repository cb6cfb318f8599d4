"""The problem of a panel among a few features, whose Gram columns a search has at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.method.columns import ColumnCache, NearCopies
from semfs.method.panel import Panel
from semfs.method.quadratic import Quadratic
from semfs.method.search import Search


@dataclass(frozen=True, eq=False)
class SmallProblem:
    """What a search among m features needs; it holds on to no data and no other features.

    Attributes
    ----------
    features : ndarray of shape (m,)
        The features, ascending. In all that follows they are counted from 0.
    quadratics : sequence of Quadratic
        J of these features.
    panel : Panel
        The rules, for these features.
    forced : mask of shape (m,)
        Features that are selected before all others.
    copies : NearCopies or None
    """

    features: Indices
    quadratics: Sequence[Quadratic]
    panel: Panel
    forced: Mask
    copies: NearCopies | None

    @classmethod
    def of(
        cls,
        search: Search,
        panel: Panel,
        features: Indices,
        forced: Mask,
    ) -> SmallProblem:
        """Return the problem among some features (m,), ascending, of a search that has ended.

        ``panel`` and ``forced`` (d,) are about all features. The features include what was
        selected, which shows that the demands of the panel can be met.
        """
        units = panel.units_of(features)
        small = panel.restricted_to(features, units)
        if small.n_units is not None:
            # a rule that is given up may have left more units to select than are at hand
            small = replace(small, n_units=min(small.n_units, len(units)))
        if small.demands is not None:
            small = replace(small, feasible=small.units_with(search.is_selected[features]))
        copies = None
        if search.copies is not None:
            copies = _CopiesAmong(search.copies, features)
        quadratics = [
            _restricted(quadratic, G, features)
            for quadratic, G in zip(search.quadratics, search.gram_among(features))
        ]
        return cls(features, quadratics, small, forced[features], copies)

    def among(self, places: Indices) -> SmallProblem:
        """Return the problem among some of the features, given by their places, ascending.

        No panel is known that satisfies its demands.
        """
        quadratics = [
            _restricted(quadratic, quadratic.columns(places)[places], places)
            for quadratic in self.quadratics
        ]
        return SmallProblem(
            self.features[places],
            quadratics,
            self.panel.restricted_to(places, self.panel.units_of(places)),
            self.forced[places],
            None if self.copies is None else _CopiesAmong(self.copies, places),
        )

    def caches(self) -> list[ColumnCache]:
        """Return the Gram columns of all m features, one cache per quadratic."""
        found = []
        for quadratic in self.quadratics:
            cache = ColumnCache(quadratic.columns)
            # all at once: no search among them has to predict what it will need
            cache.fetch(range(len(self.features)))
            found.append(cache)
        return found


def _restricted(quadratic: Quadratic, G: Float64, features: Indices) -> Quadratic:
    """The same J for some features (m,), among which G (m, m) is known."""

    def columns(places: Indices) -> Float64:
        return G[:, places]

    return replace(
        quadratic,
        B=quadratic.B[features],
        diag=quadratic.diag[features],
        columns=columns,
        estimate=None,
        among=None,
    )


class _CopiesAmong(NearCopies):
    """Near copies among some features (m,), which are counted from 0."""

    def __init__(self, copies: NearCopies, features: Indices) -> None:
        self.max_correlation = copies.max_correlation
        self._copies = copies.among(features)

    def among(self, features: Indices) -> dict[int, Indices]:
        """Return the near copies of some of the features among them, by their places."""
        found = [self._copies[feature] for feature in features.tolist()]
        return {
            place: np.flatnonzero(np.isin(features, one)) for place, one in enumerate(found)
        }

    def find(self, features: Iterable[int]) -> None:
        """All of them were found."""
