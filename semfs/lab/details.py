"""Which classes the selected features recognize, and what is lost when features fail.

Both for the features of each method at its largest k. Seen classes are recognized by their
nearest neighbors among samples held out for this, unseen ones by K-means clusters that are
matched with classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.neighbors import KNeighborsClassifier

from semfs._typing import Float64, Indices, Matrix
from semfs.datasets import ZeroShotDataset
from semfs.evaluation import cluster_scores, starting_rows
from semfs.evaluation.scores import run_kmeans
from semfs.lab.comparison import Row
from semfs.lab.sections import Panel, Section, Table
from semfs.lab.splits import SplitData, split_data
from semfs.labels import encode_labels

#: Share of the samples of each seen class that is held out to be recognized.
HELD_OUT = 0.3
#: Neighbors that vote.
N_NEIGHBORS = 5
#: Numbers of features that fail at random.
FAILING = (1, 3, 5)
#: Random draws of the features that fail, and K-means runs for each of them. All use the
#: starting samples of the complete panel, so that differences are paired.
N_DRAWS = 10
FAILURE_REPEATS = 3
#: Methods whose confusion matrices are drawn.
MOST_MATRICES = 4


@dataclass(frozen=True, eq=False)
class Confusion:
    """How samples of some classes were recognized.

    ``table`` (C, C) counts samples of each class (row) by the class they were taken for.
    """

    classes: list[str]
    table: Float64

    @property
    def n_samples(self) -> Float64:
        """Number of samples (C,) of each class."""
        return self.table.sum(axis=1)

    @property
    def recalls(self) -> Float64:
        """Share (C,) of the samples of each class that were recognized."""
        return np.diag(self.table) / np.maximum(self.n_samples, 1)


@dataclass(frozen=True, eq=False)
class Robustness:
    """NMI of K-means on the unseen classes when features fail."""

    complete: float  # NMI with all features
    losses: Mapping[int, float]  # mean loss by number of failing features
    worst_feature: str  # whose loss alone hurts most
    worst_loss: float


@dataclass(frozen=True, eq=False)
class Details:
    """What the features of one method recognize on one split."""

    label: str
    split: str
    k: int
    seen: Confusion
    unseen: Confusion
    robustness: Robustness | None  # None of a single feature


def details_of(
    data: ZeroShotDataset,
    splits: Mapping[str, Sequence[Any]],
    rows: Iterable[Row],
    *,
    n_repeats: int = 20,
    seed: int = 0,
    unlabeled_half: bool = False,
) -> list[Details]:
    """Return details of the features that rows of `evaluate` name, at the largest k of each.

    Methods without a list of features, such as random draws, are left out. With
    ``unlabeled_half`` that half of the unseen samples is clustered that no method has seen.
    """
    largest: dict[tuple[str, str], Row] = {}
    for row in rows:
        place = (str(row["split"]), row["label"])
        if row["features"] and row["k"] >= largest.get(place, row)["k"]:
            largest[place] = row
    found = []
    position = {str(name): j for j, name in enumerate(data.feature_names)}
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
                robustness=robustness(split, features, seed),
            )
        )
    return found


# ---- recognized classes ----------------------------------------------------------------------


def seen_confusion(X: Matrix, y: Any, seed: int) -> Confusion:
    """Return how held-out samples (a share of each class) are recognized by their neighbors.

    Classes with a single sample have none to hold out.
    """
    classes, codes = encode_labels(y)
    rng = np.random.RandomState(seed)
    held_out = np.zeros(len(codes), dtype=bool)
    for code in range(len(classes)):
        samples = rng.permutation(np.flatnonzero(codes == code))
        # One sample at least stays: without neighbors of its class none could be recognized.
        n_held_out = min(len(samples) - 1, max(1, round(HELD_OUT * len(samples))))
        held_out[samples[:n_held_out]] = True
    Z = _dense(X)
    n_neighbors = min(N_NEIGHBORS, int((~held_out).sum()))
    classifier = KNeighborsClassifier(n_neighbors).fit(Z[~held_out], codes[~held_out])
    table = np.zeros((len(classes), len(classes)))
    if held_out.any():
        np.add.at(table, (codes[held_out], classifier.predict(Z[held_out])), 1.0)
    return Confusion([str(label) for label in classes.tolist()], table)


def unseen_confusion(X: Matrix, y: Any, starts: Indices) -> Confusion:
    """Return how samples fall into clusters matched with classes, mean over K-means runs."""
    classes, codes = encode_labels(y)
    n_classes = len(classes)
    table = np.zeros((n_classes, n_classes))
    for clusters in run_kmeans(_dense(X), starts, n_classes):
        counts = np.zeros((n_classes, n_classes))
        # add.at counts repeated pairs, of which `counts[i, j] += 1` would add one only.
        np.add.at(counts, (codes, clusters), 1.0)
        # Column c becomes the cluster that is matched with class c.
        _, matched = linear_sum_assignment(counts, maximize=True)
        table += counts[:, matched]
    return Confusion([str(label) for label in classes.tolist()], table / len(starts))


def _starts(split: SplitData, n_repeats: int, seed: int) -> Indices:
    """The samples at which clusters start, those of the scores."""
    n_classes = len(encode_labels(split.y_unseen)[0])
    return starting_rows(len(split.y_unseen), n_classes, n_repeats, seed)


def _dense(X: Matrix) -> Float64:
    dense: Any = X.toarray() if hasattr(X, "toarray") else X
    return np.ascontiguousarray(dense, dtype=np.float64)


# ---- features that fail ----------------------------------------------------------------------


def robustness(split: SplitData, features: Indices, seed: int) -> Robustness | None:
    """Return what NMI on the unseen classes loses when features (k,) fail.

    A feature that fails is left out. Numbers of failing features that would leave none are
    left out, too; of a single feature nothing remains: None.
    """
    k = len(features)
    if k < 2:
        return None
    Z = _dense(split.X_unseen[:, features])
    starts = _starts(split, FAILURE_REPEATS, seed)

    def score(kept: Indices) -> float:
        _, nmis = cluster_scores(Z[:, kept], split.y_unseen, starts=starts)
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
    name = split.names_of(features[[worst]])[0]
    return Robustness(complete, losses, name, complete - alone[worst])


# ---- sections --------------------------------------------------------------------------------


def detail_sections(found: Sequence[Details], drawn: Sequence[str] = ()) -> list[Section]:
    """Return sections on recalls, confusions and failing features.

    Confusion matrices are those of the first split, of the methods ``drawn`` (their labels);
    by default of the first method.
    """
    if not found:
        return []
    drawn = [*drawn][:MOST_MATRICES] or [found[0].label]
    parts = [_recall_section(found), _robustness_section(found)]
    first_split = found[0].split
    for details in found:
        if details.split == first_split and details.label in drawn:
            parts.append(_confusion_section(details))
    return parts


def _recall_section(found: Sequence[Details]) -> Section:
    """Recall of every class, seen and unseen, by method; means over the splits."""
    labels = list(dict.fromkeys(details.label for details in found))
    recalls: dict[tuple[str, str], dict[str, list[float]]] = {}
    sizes: dict[tuple[str, str], list[float]] = {}
    for details in found:
        for role, confusion in (("seen", details.seen), ("unseen", details.unseen)):
            counts = confusion.n_samples.tolist()
            for name, n, recall in zip(confusion.classes, counts, confusion.recalls.tolist()):
                if n == 0:
                    continue
                of_class = recalls.setdefault((role, name), {})
                of_class.setdefault(details.label, []).append(recall)
                sizes.setdefault((role, name), []).append(n)
    body: list[list[Any]] = []
    for (role, name), of_class in sorted(recalls.items()):
        n_splits = max(len(values) for values in of_class.values())
        line: list[Any] = [name, role, n_splits, round(float(np.mean(sizes[role, name])))]
        for label in labels:
            values = of_class.get(label)
            line.append(float(np.mean(values)) if values else None)
        body.append(line)
    ks = sorted({details.k for details in found})
    k_text = f"{ks[0]}" if len(ks) == 1 else f"{ks[0]} to {ks[-1]}"
    text = (
        f"Share of the samples of each class that are recognized with {k_text} features. Seen "
        f"classes: by {N_NEIGHBORS} nearest neighbors, {HELD_OUT:.0%} of the samples held out "
        "(features were selected on all of them). Unseen classes: by K-means clusters, each "
        "matched with one class."
    )
    columns = ["class", "role", "splits", "samples", *labels]
    caption = "Recall of each class, mean over the splits in which it has this role"
    return Section("Recall of each class", [text], Table(caption, columns, body))


def _robustness_section(found: Sequence[Details]) -> Section:
    """What is lost when features fail, by method; means over the splits."""
    by_label: dict[str, list[Robustness]] = {}
    for details in found:
        if details.robustness is not None:
            by_label.setdefault(details.label, []).append(details.robustness)
    body: list[list[Any]] = []
    for label, results in by_label.items():
        line: list[Any] = [label, float(np.mean([r.complete for r in results]))]
        for n_failing in FAILING:
            losses = [r.losses[n_failing] for r in results if n_failing in r.losses]
            line.append(float(np.mean(losses)) if losses else None)
        worst = max(results, key=lambda result: result.worst_loss)
        line += [worst.worst_feature, worst.worst_loss]
        body.append(line)
    text = (
        "NMI on the unseen classes when features fail and are left out: all of them in turn, "
        f"or {N_DRAWS} random draws of 3 and 5, from the same K-means starts. A negative "
        "loss is a gain. The worst single feature is that of all splits."
    )
    columns = ["method", "NMI, complete", *(f"loss, {n} fail" for n in FAILING)]
    columns += ["worst single feature", "its loss"]
    table = Table("Loss of NMI when features fail, mean over the splits", columns, body)
    return Section("When features fail", [text], table)


def _confusion_section(details: Details) -> Section:
    """The confusion matrices of one method on one split."""
    panels = []
    body: list[list[Any]] = []
    for role, confusion in (("Seen", details.seen), ("Unseen", details.unseen)):
        shares = confusion.table / np.maximum(confusion.n_samples, 1)[:, None]
        series = {}
        for i, name in enumerate(confusion.classes):
            series[name] = [
                (other, float(shares[i, j]), f"{shares[i, j]:.0%}")
                for j, other in enumerate(confusion.classes)
            ]
            taken = [
                (other, f"{shares[i, j]:.0%}")
                for j, other in enumerate(confusion.classes)
                if i != j and shares[i, j] >= 0.01
            ]
            taken.sort(key=lambda item: -float(item[1].rstrip("%")))
            body.append([name, role.lower(), float(shares[i, i]), taken or "–"])
        title = f"{role} classes"
        panels.append(
            Panel(
                title,
                "taken for",
                "class",
                series,
                kind="heat",
                color="share",
                limits=(1.0, 0.0),
            )
        )
    text = (
        f"{details.label}, {details.k} features, split {details.split}: what the samples of "
        "each class (rows) are taken for (columns)."
    )
    table = Table("Confusions", ["class", "role", "recall", "taken for"], body)
    return Section(f"Confusions: {details.label}", [text], table, panels)
