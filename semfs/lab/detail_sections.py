"""Sections of a page on recognized classes, confusions, and failing features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from semfs._typing import Float64
from semfs.lab.confusion import HELD_OUT, N_NEIGHBORS, Confusion
from semfs.lab.details import FAILING, N_DRAWS, Details, Robustness
from semfs.lab.sections import Panel, Section, Table

#: Methods whose confusion matrices are drawn.
MOST_MATRICES = 4
#: Confusions of a smaller share of the samples of a class are not named.
SMALLEST_CONFUSION = 0.01


def detail_sections(found: Sequence[Details], drawn: Sequence[str] = ()) -> list[Section]:
    """Return sections on recalls, zero-shot prediction, confusions and failing features.

    Confusion matrices are those of the first split, of the methods ``drawn`` (their labels);
    by default of the first method.
    """
    if not found:
        return []
    drawn = [*drawn][:MOST_MATRICES] or [found[0].label]
    parts = [*_zero_shot_sections(found), _recall_section(found), _robustness_section(found)]
    first_split = found[0].split
    for details in found:
        if details.split == first_split and details.label in drawn:
            parts.append(_confusion_section(details))
            if details.zero_shot is not None:
                parts.append(_prediction_section(details))
    return parts


# ---- tables over the splits ------------------------------------------------------------------


def _zero_shot_sections(found: Sequence[Details]) -> list[Section]:
    """Return accuracies of zero-shot prediction by method, if any, as means over splits."""
    by_label: dict[str, list[list[float]]] = {}
    for details in found:
        result = details.zero_shot
        if result is not None:
            by_label.setdefault(details.label, []).append(
                [
                    result.accuracy,
                    result.unseen_accuracy,
                    result.seen_accuracy,
                    result.harmonic_mean,
                ]
            )
    if not by_label:
        return []
    body = [[label, *np.mean(values, axis=0).tolist()] for label, values in by_label.items()]
    text = (
        "The classes of samples are predicted by SemFS, fitted to the "
        "features of each method at its largest number of features. "
        f"{HELD_OUT:.0%} of the samples of the seen classes are held out. "
        "The class means of unseen classes are predicted from their "
        "descriptions. Accuracies are means over classes."
    )
    columns = [
        "method",
        "unseen classes compete",
        "all compete: unseen",
        "all compete: seen",
        "harmonic mean",
    ]
    table = Table("Zero-shot accuracy, mean over the splits", columns, body, open=True)
    return [Section("Zero-shot prediction", [text], table)]


def _recall_section(found: Sequence[Details]) -> Section:
    """Return the recall of every seen and unseen class by method, as means over splits."""
    ks = sorted({details.k for details in found})
    k_text = f"{ks[0]}" if len(ks) == 1 else f"{ks[0]} to {ks[-1]}"
    text = [
        "Share of the samples of each class that are recognized with "
        f"{k_text} features. Seen classes: by {N_NEIGHBORS} nearest "
        f"neighbors, {HELD_OUT:.0%} of the samples held out (features "
        "were selected on all of them). Unseen classes: by K-means "
        "clusters, each of which is matched with one class."
    ]
    shown = [(details.label, _recognized(details)) for details in found]
    predicted = [
        (f"{details.label}, predicted", _predicted(details))
        for details in found
        if details.zero_shot is not None
    ]
    if predicted:
        text.append("Predicted: by zero-shot prediction, where all classes compete.")
    body, labels = _recall_table([*shown, *predicted])
    columns = ["class", "role", "splits", "samples", *labels]
    caption = "Recall of each class, mean over the splits in which it has this role"
    return Section("Recall of each class", text, Table(caption, columns, body))


#: Recalls of one method on one split: (role, class) -> number of samples, and recall.
_Recalls = dict[tuple[str, str], tuple[float, float]]


def _recognized(details: Details) -> _Recalls:
    """Return recalls by neighbors and by clusters."""
    return _recalls(details.seen, "seen") | _recalls(details.unseen, "unseen")


def _predicted(details: Details) -> _Recalls:
    """Return recalls by zero-shot prediction."""
    assert details.zero_shot is not None
    found: _Recalls = {}
    every = _recalls(details.zero_shot.everything, "seen")
    for ((_, name), value), unseen in zip(every.items(), details.zero_shot.is_unseen):
        found["unseen" if unseen else "seen", name] = value
    return found


def _recalls(confusion: Confusion, role: str) -> _Recalls:
    """Return the number of samples and the recall of each class."""
    values = zip(confusion.n_samples.tolist(), confusion.recalls.tolist())
    return {(role, name): value for name, value in zip(confusion.classes, values)}


def _recall_table(found: Sequence[tuple[str, _Recalls]]) -> tuple[list[list[Any]], list[str]]:
    """Return a line per class and role with means over splits, and the columns: labels."""
    labels = list(dict.fromkeys(label for label, _ in found))
    recalls: dict[tuple[str, str], dict[str, list[float]]] = {}
    sizes: dict[tuple[str, str], list[float]] = {}
    for label, of_split in found:
        for place, (n, recall) in of_split.items():
            if n == 0:
                continue
            recalls.setdefault(place, {}).setdefault(label, []).append(recall)
            sizes.setdefault(place, []).append(n)
    body: list[list[Any]] = []
    for (role, name), of_class in sorted(recalls.items()):
        n_splits = max(len(values) for values in of_class.values())
        line: list[Any] = [name, role, n_splits, round(float(np.mean(sizes[role, name])))]
        for label in labels:
            values = of_class.get(label)
            line.append(float(np.mean(values)) if values else None)
        body.append(line)
    return body, labels


def _robustness_section(found: Sequence[Details]) -> Section:
    """Return what is lost when features fail, by method; means over the splits."""
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
    of_groups = any(results[0].of_groups for results in by_label.values())
    what = "group" if of_groups else "feature"
    text = (
        f"NMI on the unseen classes when {what}s fail and are left out: "
        f"each {what} in turn, or {N_DRAWS} random draws of 3 and of 5 "
        f"{what}s. All use the same K-means starts. A negative loss is a "
        f"gain. The worst single {what} is the worst over all splits."
    )
    columns = ["method", "NMI, complete", *(f"loss, {n} fail" for n in FAILING)]
    columns += [f"worst single {what}", "its loss"]
    table = Table(f"Loss of NMI when {what}s fail, mean over the splits", columns, body)
    return Section(f"When {what}s fail", [text], table)


# ---- confusion matrices of one method on one split -------------------------------------------


def _confusion_section(details: Details) -> Section:
    """Return confusions by neighbors and clusters."""
    text = (
        f"{details.label}, {details.k} features, split {details.split}: the share of "
        "the samples of each class (rows) that are assigned to each class (columns)."
    )
    body: list[list[Any]] = []
    for role, confusion in (("seen", details.seen), ("unseen", details.unseen)):
        body += _confusion_rows(confusion, [role] * len(confusion.classes))
    panels = [_heat("Seen classes", details.seen), _heat("Unseen classes", details.unseen)]
    table = Table("Confusions", ["class", "role", "recall", "taken for"], body)
    return Section(f"Confusions: {details.label}", [text], table, panels)


def _prediction_section(details: Details) -> Section:
    """Return confusions by zero-shot prediction, among unseen classes and among all."""
    result = details.zero_shot
    assert result is not None
    text = (
        f"{details.label}, {details.k} features, split {details.split}: the share of "
        "the samples of each class (rows) that are predicted to be of each class (columns). "
        "Seen classes come first, then unseen ones."
    )
    roles = ["unseen" if unseen else "seen" for unseen in result.is_unseen]
    panels = [
        _heat("Unseen classes compete", result.unseen),
        _heat("All classes compete", result.everything),
    ]
    table = Table(
        "Confusions when all classes compete",
        ["class", "role", "recall", "predicted to be"],
        _confusion_rows(result.everything, roles),
    )
    return Section(f"Predicted classes: {details.label}", [text], table, panels)


def _heat(title: str, confusion: Confusion) -> Panel:
    """Return a confusion matrix as shares of the samples of each class."""
    shares = _shares(confusion)
    series = {}
    for i, name in enumerate(confusion.classes):
        series[name] = [
            (other, float(shares[i, j]), f"{shares[i, j]:.0%}")
            for j, other in enumerate(confusion.classes)
        ]
    return Panel(
        title, "taken for", "class", series, kind="heat", color="share", limits=(1.0, 0.0)
    )


def _confusion_rows(confusion: Confusion, roles: Sequence[str]) -> list[list[Any]]:
    """Return the role (C,), recall and most frequent wrong predictions of each class."""
    shares = _shares(confusion)
    body: list[list[Any]] = []
    for i, name in enumerate(confusion.classes):
        order = np.argsort(-shares[i], kind="stable").tolist()
        taken = [
            (confusion.classes[j], f"{shares[i, j]:.0%}")
            for j in order
            if i != j and shares[i, j] >= SMALLEST_CONFUSION
        ]
        body.append([name, roles[i], float(shares[i, i]), taken or "–"])
    return body


def _shares(confusion: Confusion) -> Float64:
    """Return the confusions (C, C) as shares of the samples of each class."""
    return confusion.table / np.maximum(confusion.n_samples, 1)[:, None]
