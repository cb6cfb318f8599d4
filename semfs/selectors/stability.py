"""How often features are selected when classes are drawn with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import beta
from sklearn.base import clone

from semfs._typing import Float64, Indices, Mask
from semfs.method.batches import uncorrected_rows
from semfs.method.demands import feasible_panel
from semfs.method.moments import Moments
from semfs.method.panel import Panel
from semfs.rows import in_memory
from semfs.rows.device import to_numpy
from semfs.selectors.candidates import user_candidates
from semfs.selectors.folds import ClassFolds
from semfs.selectors.knowledge import UNSEEN_CLASSES
from semfs.selectors.rules.class_levels import ClassLevels
from semfs.selectors.rules.panel_maker import panel_rules
from semfs.system import import_optional
from semfs.validation import class_weights

if TYPE_CHECKING:
    import pandas as pd

    from semfs.selectors.linear import LinearSelector


#: Features that enter the search on bootstraps of the classes: those of the largest first gain,
#: and all selected ones. On 19,457 genes frequencies with 2,000 and 6,000 candidates agree.
BOOTSTRAP_CANDIDATES = 2000
#: The search looks at at least this many candidates per selected feature.
BOOTSTRAP_CANDIDATES_PER_FEATURE = 4


def can_bootstrap(moments: Moments | None) -> bool:
    """Return whether the samples are in memory and have enough classes."""
    if moments is None or not in_memory(uncorrected_rows(moments)):
        return False
    # two classes drawn from two are the same two, or one of them twice
    return len(moments.classes) > 2


def selection_counts(
    selector: LinearSelector,
    selected: Indices,
    moments: Moments,
    n_bootstraps: int,
    random_state: int | None,
) -> Float64:
    """Return how often each feature (d,) is selected when classes are drawn with replacement.

    The rules of the panel apply to every bootstrap, with markers only for the drawn classes.
    Features that are not candidates have NaN, because their frequency is unknown.
    """
    n_classes = len(moments.classes)
    fitted: Any = getattr(selector, "best_estimator_", selector)  # the SemFS of a SemFSCV
    semfs = clone(fitted)
    semfs.set_params(n_features_to_select=len(selected))
    table = fitted.class_table_
    names = getattr(fitted, "feature_names_in_", None)
    all_classes = np.ones(n_classes, dtype=bool)
    panel = _panel_of(fitted, moments, names)
    n_candidates = max(BOOTSTRAP_CANDIDATES, BOOTSTRAP_CANDIDATES_PER_FEATURE * len(selected))
    folds = ClassFolds(
        moments,
        table,
        [semfs],
        [all_classes],
        names,
        n_candidates,
        keep=selected,
        preprocessing=fitted._preprocessing(),
        unit_of=None if panel is None else panel.unit_of,
    )
    if panel is not None:
        panel = _among_candidates(panel, folds.candidates(all_classes), selected)
    weights = class_weights(fitted.class_weight, moments.classes, moments.counts)
    if weights is None:
        weights = np.ones(n_classes)
    counts = np.full(moments.n_features, np.nan)
    counts[folds.candidates(all_classes)] = 0.0
    rng = np.random.default_rng(random_state)
    n_done = 0
    while n_done < n_bootstraps:
        times = np.bincount(rng.integers(0, n_classes, n_classes), minlength=n_classes)
        if np.count_nonzero(times) < 2:
            continue  # there is nothing to separate a single class from
        # a class that is drawn twice gets twice its weight: no sample is copied
        drawn = (times * weights).tolist()
        semfs.class_weight = dict(zip(moments.classes.tolist(), drawn))
        of_drawn = None if panel is None else _for_drawn_classes(panel, times > 0)
        counts[folds.paths(all_classes, of_drawn)[0]] += 1
        n_done += 1
    # bootstraps have no unlabeled samples, so that they say nothing about a feature that is
    # selected for clusters of these and is constant elsewhere
    counts[moments.constant() & (counts == 0.0)] = np.nan
    return counts


def _panel_of(fitted: Any, moments: Moments, names: Sequence[str] | None) -> Panel | None:
    """Return the panel rules of a fitted SemFS, or None if it has none."""
    preprocessing = fitted._preprocessing()
    # Described unseen classes are in the rules if the fit used them.
    is_used = (
        UNSEEN_CLASSES in fitted.knowledge_
        and UNSEEN_CLASSES not in fitted._get_fitted().unused
    )
    unseen = fitted.new_table_ if is_used else None
    levels = ClassLevels.of_fit(fitted, moments, preprocessing, fitted.class_table_, unseen)
    candidates = user_candidates(fitted, moments, names, preprocessing)
    rules = panel_rules(
        fitted,
        levels,
        # a selected feature may be constant in the seen classes, but not in the others
        candidates.constant & ~to_numpy(fitted.support_),
        candidates.forced,
        candidates.ruled_out,
        names,
    )
    if rules.panel is None or rules.panel.is_plain:
        return None
    return rules.panel


def _among_candidates(panel: Panel, features: Indices, selected: Indices) -> Panel:
    """Return the same rules for some features (m,), which include the selected ones."""
    units = features if panel.unit_of is None else np.unique(panel.unit_of[features])
    found = panel.restricted_to(features, units)
    if found.demands is None:
        return found
    # The panel that was selected satisfies all demands, unless these are other samples.
    chosen = selected if panel.unit_of is None else panel.unit_of[selected]
    is_chosen = np.isin(units, chosen)
    if found.demands.met_by(is_chosen):
        return replace(found, feasible=is_chosen)
    return replace(found, feasible=feasible_panel(found.demands))


def _for_drawn_classes(panel: Panel, drawn: Mask) -> Panel:
    """Return the same rules without markers of the classes (C,) that were not drawn."""
    demands = panel.demands
    if demands is None or not len(demands.needs):
        return panel
    # Seen classes come first; what is demanded of described unseen ones stays.
    needs = demands.needs.copy()
    needs[: len(drawn)][~drawn] = 0.0
    return replace(panel, demands=replace(demands, needs=needs))


def stability_table(
    selector: LinearSelector,
    selected: Indices,
    counts: Float64 | None,
    n_bootstraps: int,
) -> pd.DataFrame:
    """Return frequencies with Jeffreys intervals: selected features, then other likely ones."""
    frame = import_optional("pandas", "data", what="explain").DataFrame
    if counts is None:
        features = selected[:0]
        hits = np.zeros(0)
    else:
        # features that nearly made it tell which ones are interchangeable
        others = np.argsort(-np.nan_to_num(counts), kind="stable")
        others = others[~np.isin(others, selected) & (counts[others] > 0)]
        features = np.concatenate([selected, others[: len(selected)]])
        hits = counts[features]
    # Jeffreys: the posterior of a share under a Beta(1/2, 1/2) prior
    misses = n_bootstraps - hits
    low = beta.ppf(0.025, hits + 0.5, misses + 0.5)
    high = beta.ppf(0.975, hits + 0.5, misses + 0.5)
    table = frame(
        {
            "frequency": hits / max(n_bootstraps, 1),
            # at 0 and 1 the interval is extended to the end, as is usual (Brown et al. 2001)
            "low": np.where(hits == 0, 0.0, low),
            "high": np.where(misses == 0, 1.0, high),
            "chosen": np.isin(features, selected),
        },
        index=[selector._name_of(j) for j in features.tolist()],
    )
    table.index.name = "feature"
    return table
