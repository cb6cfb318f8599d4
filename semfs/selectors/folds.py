"""Features that settings of SemFS select on folds of the classes, without complete refits.

The moments of a fold are the sum of the moments of its classes. Classes that are in the same
folds form a group, and the samples of a group are summed up once for all folds.

The search considers *candidates* only. These are the features that decrease J most when added
first, computed on the training classes of the fold. Samples of held-out classes do not
influence the selection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from semfs._typing import Float64, Indices, Mask, Matrix
from semfs.attributes import AttributeTable
from semfs.method.batches import is_corrected, remove_batches
from semfs.method.moments import Moments
from semfs.method.panel import Panel
from semfs.method.penalty import penalty_unit
from semfs.rows import Preprocessing
from semfs.rows.preprocess import NO_PREPROCESSING
from semfs.selectors.candidates import user_candidates
from semfs.selectors.seen_objective import attribute_targets, seen_objective
from semfs.selectors.solving import solve

if TYPE_CHECKING:
    from semfs.selectors.semfs import SemFS


@dataclass(frozen=True, eq=False)
class Screening:
    """The candidates of one fold."""

    columns: Indices  # of X, ascending
    #: For each setting the unit of its penalty, from the diagonal of G over all features.
    #: (Candidates have larger ones than others.) Empty if all features are candidates.
    penalty_units: Sequence[float]


class ClassFolds:
    """Selects features on folds of the classes, for several settings.

    Parameters
    ----------
    moments : Moments of C classes, with their samples in memory
    table : AttributeTable
        Descriptions of the C classes.
    settings : list of SemFS
    trains : list of masks (C,)
        The training classes of each fold.
    names : sequence of str or None
        Names of the features, which settings may use to include or exclude features.
    n_candidates : int
        Number of features that the search on a fold considers.
    keep : array of int
        Features that are candidates in all folds, in addition to those that settings include.
    preprocessing : Preprocessing, optional
        The preprocessing of the data. Level limits are in the units before it.
    unit_of : array of int of shape (d,), optional
        The group of each feature. Groups are candidates as a whole.
    """

    def __init__(
        self,
        moments: Moments,
        table: AttributeTable,
        settings: "list[SemFS]",
        trains: list[Mask],
        names: Sequence[str] | None,
        n_candidates: int,
        keep: Indices | Sequence[int] = (),
        preprocessing: Preprocessing = NO_PREPROCESSING,
        unit_of: Indices | None = None,
    ) -> None:
        """Sum up the groups of classes; see the class for the parameters."""
        self.moments = moments
        self.unit_of = unit_of
        #: The sums before batches are removed: of pairs (class, batch), or of the classes.
        self.uncorrected = moments
        #: Class of each pair, if there are batches.
        self.class_of: Indices = np.arange(len(moments.classes))
        self.batched = False
        if is_corrected(moments.rows):
            self.batched = True
            self.uncorrected = moments.rows.uncorrected
            self.class_of = moments.rows.pairs.class_of
        self.table = table
        self.settings = settings
        first = settings[0]  # all settings include and exclude the same features
        self.selectable = user_candidates(first, moments, names, preprocessing)
        # what leaves nothing to select from is refused here as in a fit
        self.selectable.check(moments.n_features, names)
        self.keep = np.union1d(self.selectable.forced, np.asarray(keep, dtype=np.intp))
        # classes with the same column of the masks are in one group
        self.groups = np.unique(trains, axis=1, return_inverse=True)[1].reshape(-1)
        n_groups = int(self.groups.max()) + 1

        n_features = moments.n_features
        if n_candidates < n_features:
            within = [self._within_diagonal(g) for g in range(n_groups)]
            screenings = [self._screen(train, within, n_candidates) for train in trains]
        else:
            everything = Screening(np.arange(n_features), [])
            screenings = [everything] * len(trains)
        self._screenings = {
            train.tobytes(): screening for train, screening in zip(trains, screenings)
        }
        #: Columns that are candidates in any fold, ascending.
        self.columns = np.unique(np.concatenate([s.columns for s in screenings]))
        self._parts = [self._part(g) for g in range(n_groups)]

    def candidates(self, train: Mask) -> Indices:
        """Return the features that the search on these training classes considers."""
        return self._screenings[train.tobytes()].columns

    def paths(self, train: Mask, panel: Panel | None = None) -> list[Indices]:
        """Return the first features of each setting on the training classes (C,) of a fold.

        If there are rules of a panel, which apply to the candidates of the fold, return the
        features of that panel.
        """
        screening = self._screenings[train.tobytes()]
        fold = self._fold(train, screening.columns)
        table = self.table.rows_of(fold.classes)
        selectable = self.selectable.restrict(screening.columns)
        selectable = replace(selectable, constant=fold.constant())
        n_selectable = int(selectable.allowed.sum())
        targets: dict[bool, Float64 | None] = {}
        paths = []
        for i, semfs in enumerate(self.settings):
            kind = semfs.fit_intercept
            if kind not in targets:
                targets[kind], _ = attribute_targets(semfs, table)
            gamma = None
            scale = None
            if screening.penalty_units:
                # the unit is that of all features, of which the fold has the candidates only
                gamma = semfs.gamma * screening.penalty_units[i]
                scale = "none"
            objective = seen_objective(
                semfs, fold, targets[kind], gamma=gamma, penalty_scale=scale
            )
            solution = solve(semfs, objective, selectable, panel=panel)
            n_selected = min(semfs.n_features_to_select, n_selectable)
            if panel is not None:
                # groups differ in size, budgets in reach
                n_selected = int(np.count_nonzero(solution.s))
            paths.append(screening.columns[solution.order[:n_selected]])
        return paths

    # ---- sums over groups of classes ---------------------------------------------------

    def _samples(self, group: int) -> tuple[Mask, Indices]:
        """Return the classes (C,), or pairs, of a group, and the positions of their samples."""
        classes = (self.groups == group)[self.class_of]
        return classes, np.flatnonzero(classes[self.uncorrected.rows.codes])

    def _group_moments(self, group: int, X: Matrix) -> Moments:
        """Return the moments of the samples X of a group."""
        rows = self.uncorrected.rows
        classes, samples = self._samples(group)
        codes = (np.cumsum(classes) - 1)[rows.codes[samples]]
        weights = None if rows.weights is None else rows.weights[samples]
        return Moments.from_checked(X, codes, self.uncorrected.classes[classes], weights)

    def _within_diagonal(self, group: int) -> Float64:
        """Return the sums of squares (d,) about the class means, over the samples of a group.

        With batches, they are about the means of pairs (class, batch).
        """
        _, samples = self._samples(group)
        found = self._group_moments(group, self.uncorrected.rows.X[samples])
        between = found.counts @ (found.means - found.mean) ** 2
        return np.maximum(found.scatter_diag - between, 0.0)

    def _part(self, group: int) -> Moments:
        """Return the moments and scatter matrix of a group of classes, for candidates only."""
        _, samples = self._samples(group)
        X = self.uncorrected.rows.X[samples][:, self.columns]
        if sp.issparse(X):
            X = X.toarray()
        return self._group_moments(group, X).compact()

    def _fold(self, train: Mask, columns: Indices) -> Moments:
        """Return the moments of the training classes of a fold, for some of the candidates."""
        kept = [part for g, part in enumerate(self._parts) if train[self.groups == g].all()]
        fold = sum(kept[1:], start=kept[0])
        if len(columns) == len(self.columns):
            return self._corrected(fold)
        assert fold.scatter_matrix is not None
        places = np.searchsorted(self.columns, columns)
        fold = replace(
            fold,
            means=fold.means[:, places],
            scatter_diag=fold.scatter_diag[places],
            scatter_matrix=fold.scatter_matrix[np.ix_(places, places)],
        )
        return self._corrected(fold)

    def _corrected(self, fold: Moments) -> Moments:
        """Return the moments of classes after removing batch offsets estimated on them."""
        return remove_batches(fold) if self.batched else fold

    # ---- candidates --------------------------------------------------------------------

    def _screen(self, train: Mask, within: list[Float64], n_candidates: int) -> Screening:
        """Return the features to keep, filled up from the rankings of the settings in turn.

        Features are ranked by their gain when added first, |B_j|² / (G_jj + γ), on the training
        classes. ``within`` are the sums of squares within each group of classes.
        """
        fold = self._diagonal_moments(train, within)
        table = self.table.rows_of(fold.classes)
        allowed = self.selectable.allowed
        parts: dict[str, tuple[Float64, Float64]] = {}  # what settings have in common
        rankings = []
        penalty_units = []
        for semfs in self.settings:
            # as text, because class weights may be a mapping
            kind = (
                f"{semfs.alpha} {semfs.fit_intercept} {semfs.label_weight} {semfs.class_weight}"
            )
            if kind not in parts:
                targets, _ = attribute_targets(semfs, table)
                objective = seen_objective(semfs, fold, targets)
                B = objective.B
                parts[kind] = objective.diag, np.einsum("ij,ij->i", B, B)
            diagonal, squares = parts[kind]
            unit = penalty_unit(diagonal, semfs.penalty_scale)
            pivots = diagonal + semfs.gamma * unit
            gains = squares / np.maximum(pivots, np.finfo(float).tiny)
            gains = np.where(allowed, gains, -1.0)
            rankings.append(np.argsort(-gains, kind="stable"))
            penalty_units.append(unit)
        # the best of each ranking, then the second best of each, …
        turns = np.stack(rankings, axis=1).ravel()
        turns = turns[allowed[turns]]
        found = np.array([*dict.fromkeys([*self.keep.tolist(), *turns.tolist()])], np.intp)
        n_kept = max(n_candidates, len(self.keep))
        if self.unit_of is None:
            columns = np.sort(found[:n_kept])
        else:
            columns = self._whole_groups(found, n_kept)
        return Screening(columns, penalty_units)

    def _whole_groups(self, features: Indices, n_features: int) -> Indices:
        """Return about this many features, ascending: whole groups, the first ones in order."""
        assert self.unit_of is not None
        sizes = np.bincount(self.unit_of)
        units = np.array([*dict.fromkeys(self.unit_of[features].tolist())], np.intp)
        n_kept = len(np.unique(self.unit_of[self.keep]))
        within = np.cumsum(sizes[units]) <= n_features
        units = units[: max(int(within.sum()), n_kept)]
        return np.flatnonzero(np.isin(self.unit_of, units))

    def _diagonal_moments(self, train: Mask, within: list[Float64]) -> Moments:
        """Return the moments of the training classes, without the scatter matrix."""
        pairs = train[self.class_of]
        counts = self.uncorrected.counts[pairs]
        means = self.uncorrected.means[pairs]
        center = counts @ means / counts.sum()
        groups = np.unique(self.groups[train])
        scatter_diag = sum(within[g] for g in groups.tolist())
        scatter_diag = scatter_diag + counts @ (means - center) ** 2
        classes = self.uncorrected.classes[pairs]
        eps = self.uncorrected.eps
        found = Moments(classes, counts, means, scatter_diag, None, None, eps)
        return self._corrected(found)
