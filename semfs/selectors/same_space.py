"""Finds out whether samples and class descriptions are vectors in the same space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semfs._typing import Indices
from semfs.method.class_means import MIN_SAME_ATTRIBUTES


def same_space(
    feature_names: Sequence[str] | None,
    n_features: int,
    attribute_names: Sequence[str],
    selected: Indices,
) -> Indices | None:
    """Return the attributes (k,) that are the selected features, or None if there are none.

    Samples and descriptions are in the same space if every feature is also an attribute, by
    name. Embeddings of texts and of class names are an example. Features without names are
    called x0, x1, …, so a table whose attributes have these names declares that they are the
    features.
    """
    if feature_names is None:
        feature_names = [f"x{j}" for j in range(n_features)]
    position = {str(name): j for j, name in enumerate(attribute_names)}
    if len(position) < len(attribute_names):
        return None  # a name that occurs twice
    names = [str(name) for name in feature_names]
    if not all(name in position for name in names):
        return None
    return np.array([position[names[j]] for j in selected.tolist()], dtype=np.intp)


def perhaps_same_space(
    feature_names: Sequence[str] | None,
    n_features: int,
    attribute_names: Sequence[str],
    selected: Indices,
) -> Indices | None:
    """Return the attributes (k,) at the positions of selected features, if neither has names.

    If there are as many attributes as features, they may be the same; the caller needs clear
    evidence for that.
    """
    m = len(attribute_names)
    names = [str(name) for name in attribute_names]
    unnamed = names in ([f"a{j}" for j in range(m)], [str(j) for j in range(m)])
    if feature_names is not None or not unnamed:
        return None
    return selected if n_features == m >= MIN_SAME_ATTRIBUTES else None
