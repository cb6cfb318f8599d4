"""Table columns with predictions: class, probability and the second most likely class.

`semfs predict` writes these columns, and `semfs.scverse.annotate` adds them to ``obs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs._typing import AttributesLike
from semfs.attributes import AttributeTable
from semfs.labels import Labels
from semfs.selectors.linear import LinearSelector
from semfs.validation import ParameterError, ParameterWarning, listed, warn_user

#: The class of samples that are far from all classes.
UNKNOWN_CLASS = "unknown"
#: A warning says that unseen classes got more than this share of the samples.
LARGE_SHARE = 1 / 3
#: A warning says that the mean probability of the names is below this: most may be wrong.
LOW_PROBABILITY = 0.5
#: A warning says that this many times the share of "unknown" that was asked for was refused …
MANY_TIMES = 3.0
#: … if it is not chance: expected numbers vary by their square root, here times three.
LARGEST_CHANCE = 3.0


def annotation_columns(
    selector: LinearSelector,
    X: Any,
    *,
    class_table: AttributesLike | None,
    together: bool,
    unknown_rate: float | None,
    missing_features: str,
    given: tuple[str, Labels] | None = None,
    batch: tuple[str, Labels | None] = ("batch", None),
    table_parameter: str = "class_table",
) -> dict[str, np.ndarray]:
    """Return columns (n,) with class, probability and second class of samples X (n, d).

    Class names are text. If a rate is given, samples far from all classes get the class
    "unknown". Samples with a label in ``given`` keep it, and only the others are predicted.
    ``given`` and ``batch`` are pairs of values and the name of the parameter they come from,
    and ``table_parameter`` is the name of that of the table. Warnings say if many samples got
    unseen classes or no class, or if the names are uncertain.
    """
    refusal: dict[str, Any] = {}
    if unknown_rate is not None:
        refusal = {"unknown": UNKNOWN_CLASS, "unknown_rate": unknown_rate}
    rows = None if given is None else _rows_to_name(*given)
    batch_parameter, batches = batch
    _warn_of_batches(selector, batch_parameter, batches)
    labels, shares = selector.predict_top(
        X,
        class_table,
        2,
        rows=rows,
        together=together,
        missing_features=missing_features,
        batch=None if batches is None else batches.array(),
        **refusal,
    )
    found = {"class": _texts(labels[:, 0]), "probability": shares[:, 0]}
    # a table of one class has no next best
    if labels.shape[1] > 1:
        found["second"] = _texts(labels[:, 1])
        found["second_probability"] = shares[:, 1]
    _warn_of_uncertain_names(selector, class_table, found, table_parameter)
    if unknown_rate is not None:
        _warn_of_refusals(found["class"], unknown_rate)
    if given is None or rows is None:
        return found
    columns = {name: _spread(values, rows) for name, values in found.items()}
    columns["class"][~rows] = _texts(given[1].array()[~rows])
    return columns


@dataclass(frozen=True)
class Competitors:
    """The classes that predictions decide among, as text."""

    seen: frozenset[str]  # with samples in the fit
    unseen: frozenset[str]  # that are only described

    @classmethod
    def of(cls, selector: LinearSelector, class_table: AttributesLike | None) -> Competitors:
        """Return the classes of a table, by default all that the selector knows."""
        known = frozenset(_texts(selector.class_table_.classes))
        if class_table is not None:
            table = AttributeTable.from_any(class_table)
            given = frozenset(_texts(table.classes))
            return cls(known & given, given - known)
        described = selector.new_table_
        if described is None:
            return cls(known, frozenset())
        return cls(known, frozenset(_texts(described.classes)))


def _warn_of_uncertain_names(
    selector: LinearSelector,
    class_table: AttributesLike | None,
    found: dict[str, np.ndarray],
    parameter: str,
) -> None:
    """Warn if unseen classes got many samples, or if probabilities are low."""
    named = found["class"] != UNKNOWN_CLASS
    n_named = int(named.sum())
    if not n_named:
        return
    remedy = "If some of these classes are not possible, give a table of the possible classes."
    classes = Competitors.of(selector, class_table)
    are_unseen = np.isin(found["class"][named], list(classes.unseen))
    n_unseen = int(are_unseen.sum())
    # without seen competitors all samples are meant to get unseen classes
    if classes.seen and n_unseen > LARGE_SHARE * n_named:
        message = (
            f": {n_unseen} of {n_named} samples got one of the "
            f"{len(classes.unseen)} unseen classes, which are only "
            f"described, although there are {len(classes.seen)} seen "
            "classes. If the samples differ from the training samples "
            "(for example, if they are from another laboratory), too "
            f"many are assigned to unseen classes. {remedy}"
        )
        warn_user(ParameterWarning(parameter, message))
    probability = float(found["probability"][named].mean())
    if probability < LOW_PROBABILITY:
        message = (
            f": the mean probability of the names is {probability:.2f}, "
            "so many names are uncertain. If the samples differ from the "
            "training samples (for example, if they are from another "
            "laboratory), too many may be assigned to a few classes. "
            f"{remedy} Or also look at the second most likely class."
        )
        warn_user(ParameterWarning(parameter, message))


def _warn_of_refusals(names: np.ndarray, rate: float) -> None:
    """Warn if several times as many samples are unknown as the rate says."""
    n = len(names)
    n_refused = int((names == UNKNOWN_CLASS).sum())
    expected = rate * n
    if n_refused <= MANY_TIMES * expected:
        return
    if n_refused <= expected + LARGEST_CHANCE * np.sqrt(expected):
        return
    message = (
        f": {n_refused / n:.0%} of the samples are {UNKNOWN_CLASS!r}, but "
        f"the rate was set to {rate:.0%}, which holds for samples of seen "
        "classes that are like the training samples. These samples "
        "either belong to other classes or differ for another reason, "
        "such as another laboratory. To assign this label to fewer "
        "samples, use a smaller value."
    )
    warn_user(ParameterWarning("unknown_rate", message))


def _rows_to_name(parameter: str, labels: Labels) -> np.ndarray:
    """Return which samples (n,) have no label. Raise if all have one."""
    rows: np.ndarray = labels.codes < 0
    if not rows.any():
        raise ParameterError(
            parameter,
            f": each of the {len(rows)} samples has a label, so there is nothing to predict. "
            "Leave it out to predict all samples.",
        )
    return rows


def _spread(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Expand values of the samples in a mask (n,) to all samples. Others get None or NaN."""
    is_text = values.dtype.kind == "O"
    column: np.ndarray = np.full(len(rows), None if is_text else np.nan, dtype=values.dtype)
    column[rows] = values
    return column


def _warn_of_batches(selector: LinearSelector, parameter: str, batches: Labels | None) -> None:
    """Warn if batch offsets that were removed in the fit cannot be removed here."""
    known = Labels.of(getattr(selector, "batches_", np.zeros(0))).classes
    if batches is None and known:
        message = (
            f": the selector was fitted with {len(known)} batches "
            f"({listed(known)}). To remove the offsets of these batches, "
            "also give the batches of these samples."
        )
        warn_user(ParameterWarning(parameter, message))
    if batches is None or set(batches.classes) & set(known):
        return
    found = listed(batches.classes)
    if known:
        reason = (
            f"the selector was fitted with the batches {listed(known)}, "
            f"but these samples have only other batches ({found})"
        )
    else:
        reason = "the selector was fitted without batches"
    warn_user(ParameterWarning(parameter, f": {reason}. Samples are used without correction."))


def _texts(values: Any) -> np.ndarray:
    return np.array([str(value) for value in values], dtype=object)
