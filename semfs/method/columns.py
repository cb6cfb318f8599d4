"""Columns of G and of the scatter matrix. They are fetched in batches, one pass over X each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from semfs._typing import Float64, Indices
from semfs.method.moments import Moments


class ColumnCache:
    """A cache of the Gram columns fetched so far, by feature.

    ``fetch_columns`` returns columns (d, b) of G for features (b,), in one pass over the data.
    """

    def __init__(
        self,
        fetch_columns: Callable[[Indices], Float64],
    ) -> None:
        self._fetch_columns = fetch_columns
        self._columns: dict[int, Float64] = {}

    def __contains__(self, feature: int) -> bool:
        return feature in self._columns

    def __getitem__(self, feature: int) -> Float64:
        """Return the column (d,) of a feature that was fetched."""
        return self._columns[feature]

    @property
    def features(self) -> list[int]:
        """The features whose columns are cached."""
        return list(self._columns)

    def fetch(self, features: Iterable[int]) -> None:
        """Fetch all columns that are not cached yet, in one pass."""
        missing = [int(j) for j in features if j not in self._columns]
        if not missing:
            return
        # Reading X dominates: b columns in one pass cost little more than one.
        block = self._fetch_columns(np.array(missing, dtype=np.intp))
        for place, feature in enumerate(missing):
            self._columns[feature] = block[:, place]

    def stacked(self, features: Iterable[int]) -> Float64:
        """Return columns (d, k) of G, fetched if necessary."""
        features = list(features)
        self.fetch(features)
        return np.column_stack([self._columns[j] for j in features])

    def among(self, features: Indices) -> Float64:
        """Return G (m, m) among some features, whose columns are fetched if necessary."""
        self.fetch(features)
        among = np.empty((len(features), len(features)))
        for place, feature in enumerate(features.tolist()):
            # G is symmetric: its columns are also its rows, which are faster to fill
            among[place] = self._columns[feature][features]
        return among


class NearCopies:
    """Finds near copies, which are features with a correlation above a limit in absolute value.

    Correlations are computed from scatter columns (d, b), which are needed for the columns of G
    anyway.

    Parameters
    ----------
    scatter_columns : callable
        Maps features (b,) to their columns of the scatter matrix (d, b) about the mean.
    scatter_diag : ndarray of shape (d,)
        The diagonal of the scatter matrix, with 0 for features that are constant up to rounding
        errors. These are no copies, and have none.
    max_correlation : float
        The limit.
    scatter_among : callable, optional
        Maps features (m,) to the scatter matrix among them (m, m), if that takes no pass over
        the data.

    Examples
    --------
    >>> T = np.array([[1.0, 0.99, 0.1], [0.99, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> copies = NearCopies(lambda features: T[:, features], np.diag(T), 0.95)
    >>> copies.find([0])
    >>> copies.of(0)
    array([1])
    """

    def __init__(
        self,
        scatter_columns: Callable[[Indices], Float64],
        scatter_diag: Float64,
        max_correlation: float,
        scatter_among: Callable[[Indices], Float64] | None = None,
    ) -> None:
        """Take the parameters of the class. No copies are known yet."""
        self.max_correlation = max_correlation
        self._scatter_columns = scatter_columns
        self._scatter_among = scatter_among
        # products with a constant are rounding errors, which exceed every finite limit
        self._spread = np.where(scatter_diag > 0.0, np.sqrt(scatter_diag), np.inf)
        self._copies: dict[int, Indices] = {}

    def find(self, features: Iterable[int]) -> None:
        """Find near copies of some features, best just after fetching their Gram columns."""
        wanted = np.array([j for j in features if j not in self._copies], dtype=np.intp)
        if not len(wanted):
            return
        columns = self._scatter_columns(wanted)
        for place, feature in enumerate(wanted.tolist()):
            # |T_ij| > r √(T_ii T_jj) is |correlation| > r without a division
            limit = self.max_correlation * self._spread[feature] * self._spread
            alike = np.abs(columns[:, place]) > limit
            alike[feature] = False
            self._copies[feature] = np.flatnonzero(alike)

    def among(self, features: Indices) -> dict[int, Indices]:
        """Return the near copies of features (m,) among them, by their places."""
        is_new = np.array([j not in self._copies for j in features.tolist()], dtype=bool)
        found = {}
        if self._scatter_among is None:
            self.find(features.tolist())
            is_new[:] = False
        elif is_new.any():
            spread = self._spread[features]
            limits = self.max_correlation * np.outer(spread, spread)
            alike = np.abs(self._scatter_among(features)) > limits
            np.fill_diagonal(alike, val=False)
            for place in np.flatnonzero(is_new).tolist():
                found[place] = np.flatnonzero(alike[place])
        for place in np.flatnonzero(~is_new).tolist():
            copies = self._copies[int(features[place])]
            # most features have none
            found[place] = np.flatnonzero(np.isin(features, copies)) if len(copies) else copies
        return found

    def of(self, feature: int) -> Indices:
        """Return the near copies of a feature."""
        self.find([feature])
        return self._copies[feature]


class ScatterColumns:
    """Columns of the scatter matrix of some moments. The last batch is cached.

    Two objectives over the same samples, such as those of the seen classes and of unseen
    classes with predicted means, request the same columns one after the other. If they share
    this object, the second request needs no pass over X.
    """

    def __init__(self, moments: Moments) -> None:
        self._moments = moments
        self._request: tuple[list[int], bool] | None = None
        self._last = np.zeros((0, 0))
        self._among_request: tuple[list[int], bool] | None = None
        self._last_among = np.zeros((0, 0))

    def __call__(self, features: Indices, *, precise: bool) -> Float64:
        """Return columns (d, b) about the mean. Do not write into the array."""
        # Compared by value: each objective passes an array of its own.
        request = (features.tolist(), precise)
        if request != self._request:
            self._last = self._moments.scatter_columns(features, precise=precise)
            self._request = request
        return self._last

    @property
    def are_in_memory(self) -> bool:
        """Whether the scatter among a few features takes no pass over the data."""
        return self._moments.are_in_memory

    def among(self, features: Indices, *, precise: bool) -> Float64:
        """Return the scatter (m, m) among features about the mean. Do not write into it.

        The moments are in memory.
        """
        request = (features.tolist(), precise)
        if request != self._among_request:
            self._last_among = self._moments.scatter_among(features, precise=precise)
            self._among_request = request
        return self._last_among
