"""Which classes the selected features recognize, and how scores decrease if features fail.

Both use the features of each method at its largest k. Seen classes are recognized by nearest
neighbors of held-out samples, and unseen classes by K-means clusters that are matched with
classes. If classes have descriptions, both are also recognized by zero-shot prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from semfs._typing import Indices
from semfs.datasets import ZeroShotDataset
from semfs.evaluation import cluster_scores, starting_rows
from semfs.lab.comparison import Row
from semfs.lab.confusion import (
    Confusion,
    dense,
    seen_confusion,
    unseen_confusion,
)
from semfs.lab.splits import SplitData, split_data
from semfs.lab.zero_shot import ZeroShot, is_described, zero_shot
from semfs.labels import encode_labels

#: Numbers of features that fail at random.
FAILING = (1, 3, 5)
#: Random draws of the features that fail, and K-means runs for each of them. All use the
#: starting samples of the complete panel, so that differences are paired.
N_DRAWS = 10
FAILURE_REPEATS = 3


@dataclass(frozen=True, eq=False)
class Robustness:
    """NMI of K-means on the unseen classes when features fail."""

    complete: float  # NMI with all features
    losses: Mapping[int, float]  # mean loss by number of failing features
    worst_feature: str  # whose loss alone hurts most; the name of a group, if groups fail
    worst_loss: float
    of_groups: bool = False  # whether groups fail, each with all its features


@dataclass(frozen=True, eq=False)
class Details:
    """Classes that are recognized by the features of one method on one split."""

    label: str
    split: str
    k: int
    seen: Confusion
    unseen: Confusion
    robustness: Robustness | None  # None of a single feature
    zero_shot: ZeroShot | None  # None if classes are known by their labels only


def details_of(
    data: ZeroShotDataset,
    splits: Mapping[str, Sequence[Any]],
    rows: Iterable[Row],
    *,
    n_repeats: int = 20,
    seed: int = 0,
    unlabeled_half: bool = False,
    groups: Mapping[str, str] = MappingProxyType({}),
) -> list[Details]:
    """Return details of the features that rows of `evaluate` name, at the largest k of each.

    Methods without a list of features, such as random draws, are left out. With
    ``unlabeled_half``, only the half of the unseen samples that no method has seen is
    clustered. With ``groups``, which maps feature names to groups, whole groups fail.
    """
    largest: dict[tuple[str, str], Row] = {}
    for row in rows:
        place = (str(row["split"]), row["label"])
        if row["features"] and row["k"] >= largest.get(place, row)["k"]:
            largest[place] = row
    found = []
    position = {str(name): j for j, name in enumerate(data.feature_names)}
    described = is_described(data.attributes)
    for (name, label), row in largest.items():
        split = split_data(data, tuple(splits[name]), name)
        if unlabeled_half:
            split = split.with_unlabeled_half(seed)
        features = np.array([position[feature] for feature in row["features"][: row["k"]]])
        starts = _starts(split, n_repeats, seed)
        found.append(
            Details(
                label=label,
                split=name,
                k=len(features),
                seen=seen_confusion(split.X[:, features], split.y, split.seed(seed)),
                unseen=unseen_confusion(split.X_unseen[:, features], split.y_unseen, starts),
                robustness=robustness(split, features, seed, groups),
                zero_shot=zero_shot(split, features, seed) if described else None,
            )
        )
    return found


def _starts(split: SplitData, n_repeats: int, seed: int) -> Indices:
    """Return the samples at which clusters start, those of the scores."""
    n_classes = len(encode_labels(split.y_unseen)[0])
    return starting_rows(len(split.y_unseen), n_classes, n_repeats, seed)


# ---- features that fail ----------------------------------------------------------------------


def robustness(
    split: SplitData,
    features: Indices,
    seed: int,
    groups: Mapping[str, str] = MappingProxyType({}),
) -> Robustness | None:
    """Return the loss of NMI on the unseen classes if features (k,), or groups, fail.

    A feature that fails is left out. Because at least one feature must remain, numbers of
    failing features that would leave none are skipped. For a single feature, the result is
    None. A feature without a group fails alone.
    """
    names = split.names_of(features)
    # Units in the order in which their first features were selected.
    place: dict[str, int] = {}
    unit_of = np.array(
        [place.setdefault(groups.get(name, name), len(place)) for name in names], dtype=np.intp
    )
    k = len(place)
    if k < 2:
        return None
    Z = dense(split.X_unseen[:, features])
    starts = _starts(split, FAILURE_REPEATS, seed)

    def score(kept: Indices) -> float:
        columns = np.flatnonzero(np.isin(unit_of, kept))
        _, nmis = cluster_scores(Z[:, columns], split.y_unseen, starts=starts)
        return float(nmis.mean())

    everything = np.arange(k)
    complete = score(everything)
    alone = [score(np.delete(everything, j)) for j in range(k)]
    worst = int(np.argmin(alone))
    rng = np.random.RandomState(split.seed(seed))
    losses = {}
    for n_failing in FAILING:
        if n_failing == 1:
            losses[1] = complete - float(np.mean(alone))  # all of them, no draw is needed
        elif n_failing < k:
            kept = [np.sort(rng.permutation(k)[n_failing:]) for _ in range(N_DRAWS)]
            losses[n_failing] = complete - float(np.mean([score(drawn) for drawn in kept]))
    name = list(place)[worst]
    return Robustness(complete, losses, name, complete - alone[worst], bool(groups))
