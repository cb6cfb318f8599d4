"""The table of all features, best first, with reasons why they were selected or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs.feature_names import resolve_features
from semfs.io.write import feature_names
from semfs.rows import BlockSource
from semfs.selectors.explanation import Explanation
from semfs.selectors.rules.feature_values import group_labels, group_members
from semfs.selectors.semfs import SemFS

if TYPE_CHECKING:
    import pandas as pd


#: Why a rule keeps a feature out, for the feature table.
REASONS = {
    "exclude": "excluded",
    "candidates": "not a candidate",
    "min_level": "below min_level",
    "max_level": "above max_level",
}


def feature_table(
    selector: SemFS,
    source: BlockSource,
    reasons: Mapping[int, str],
    pandas: Any,
) -> pd.DataFrame:
    """Return one row per feature, best first."""
    order = np.asarray(selector.order_)
    scores = np.asarray(selector.scores_, dtype=np.float64)[order]
    columns = {
        "feature": [str(name) for name in feature_names(source)[order]],
        # an empty cell instead of -inf
        "score": np.where(np.isfinite(scores), scores, np.nan),
        "selected": np.asarray(selector.support_)[order],
        "column": order,
    }
    if selector.groups is not None:
        groups = group_labels(selector.groups, source.n_features, source.feature_names)
        columns["group"] = [groups[int(j)] for j in order]
    columns["reason"] = [reasons.get(int(j), "") for j in order]
    ranks = pandas.RangeIndex(1, len(order) + 1, name="rank")
    return pandas.DataFrame(columns, index=ranks)


def feature_reasons(
    selector: SemFS,
    source: BlockSource,
    explanation: Explanation,
) -> dict[int, str]:
    """Return why features were selected, or could not be selected, by index."""
    reasons: dict[int, str] = {}
    # Features that may not be selected have the score -inf: excluded ones, and constants.
    names = source.feature_names
    d = source.n_features
    groups = group_members(selector.groups, d, names)
    excluded = resolve_features("exclude", selector.exclude, names, d, groups)
    for feature in np.flatnonzero(np.isneginf(selector.scores_)).tolist():
        reasons[feature] = "constant"
    # a rule is a better reason than that a feature is constant, so it comes later
    for rule, features in selector._get_fitted().ruled_out.items():
        reasons.update(dict.fromkeys(features.tolist(), REASONS.get(rule, rule)))
    reasons.update(dict.fromkeys(excluded.tolist(), "excluded"))

    explained = explanation.features
    selected = np.asarray(selector.order_)[: len(explained)].tolist()
    forced = resolve_features("include", selector.include, names, d, groups).tolist()
    remarks = selector._get_fitted().remarks()
    for feature, row in zip(selected, explained.itertuples()):
        parts = [remarks.get(feature, "included")] if feature in forced else []
        parts.append(f"varies with {row.carries}")
        if row.separates:
            parts.append(row.separates)
        if row.duplicates:
            parts.append(f"similar to {row.duplicates}")
        reasons[feature] = "; ".join(parts)
    return reasons
