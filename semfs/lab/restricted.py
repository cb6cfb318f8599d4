"""Rules that hold for every method of a comparison: features and classes that are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from semfs.datasets import ZeroShotDataset
from semfs.feature_names import resolve_features
from semfs.labels import Labels
from semfs.scverse import without_descriptions, without_rare_classes
from semfs.validation import ParameterError


def restricted(
    data: ZeroShotDataset,
    *,
    candidates: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    min_cells: int | None = None,
) -> ZeroShotDataset:
    """Return the data without the features and classes that no method may use.

    ``candidates`` and ``exclude`` specify features as in `semfs.SemFS`. Classes with fewer
    samples than ``min_cells`` are left out, together with their descriptions.

    Examples
    --------
    >>> from semfs.datasets import load_sample
    >>> data = load_sample()
    >>> restricted(data, candidates=["A2M", "ZYX"], exclude=["ZYX"]).feature_names.tolist()
    ['A2M']
    """
    if candidates is not None or exclude is not None:
        data = _with_features(data, candidates, exclude)
    if min_cells is None:
        return data
    labels = Labels.of(data.y)
    common = without_rare_classes(labels, "min_cells", min_cells, unseen=None)
    kept = common.codes >= 0
    used = set(data.y[kept].tolist())
    unseen = [label for label in data.unseen.tolist() if label in used]
    if not used or (len(data.unseen) and not unseen):
        which = "unseen class" if used else "class"
        raise ParameterError(
            "min_cells", f"is {min_cells}, but no {which} has that many samples."
        )
    table = without_descriptions(data.attributes, labels, common)
    batch = None if data.batch is None else data.batch.array()[kept]
    return replace(
        data, X=data.X[kept], y=data.y[kept], unseen=unseen, attributes=table, batch=batch
    )


def _with_features(
    data: ZeroShotDataset, candidates: Sequence[str] | None, exclude: Sequence[str] | None
) -> ZeroShotDataset:
    """Return the data with candidates alone, without those that are excluded."""
    names = data.feature_names.tolist()
    allowed = np.ones(len(names), dtype=bool)
    if candidates is not None:
        allowed[:] = False
        allowed[resolve_features("candidates", candidates, names)] = True
    allowed[resolve_features("exclude", exclude, names)] = False
    if not allowed.any():
        parameter = "exclude" if candidates is None else "candidates"
        raise ParameterError(parameter, "leaves no feature to select from.")
    return replace(data, X=data.X[:, allowed], feature_names=data.feature_names[allowed])
