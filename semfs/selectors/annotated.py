"""Table columns with predictions: class, probability and the second most likely class.

`semfs predict` writes these columns, and `semfs.scverse.annotate` adds them to ``obs``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semfs._typing import AttributesLike
from semfs.labels import Labels
from semfs.selectors.linear import LinearSelector
from semfs.validation import ParameterError, ParameterWarning, listed, warn_user


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
) -> dict[str, np.ndarray]:
    """Return columns (n,) with class, probability and second class of samples X (n, d).

    Class names are text. If a rate is given, samples far from all classes get the class
    "unknown". Samples with a label in ``given`` keep it, and only the others are predicted.
    ``given`` and ``batch`` are pairs of values and the name of the parameter they come from.
    """
    refusal: dict[str, Any] = {}
    if unknown_rate is not None:
        refusal = {"unknown": "unknown", "unknown_rate": unknown_rate}
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
    if given is None or rows is None:
        return found
    columns = {name: _spread(values, rows) for name, values in found.items()}
    columns["class"][~rows] = _texts(given[1].array()[~rows])
    return columns


def _rows_to_name(parameter: str, labels: Labels) -> np.ndarray:
    """Return which samples (n,) have no label. Raise if all have one."""
    rows: np.ndarray = labels.codes < 0
    if not rows.any():
        raise ParameterError(
            parameter,
            f": each of the {len(rows)} samples has a label, so that none is left to name. "
            "Leave it out to name all samples.",
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
            f": the selector was fitted with {len(known)} batches ({listed(known)}). Name the "
            "batches of these samples, too, to remove the offsets of those that were fitted."
        )
        warn_user(ParameterWarning(parameter, message))
    if batches is None or set(batches.classes) & set(known):
        return
    found = listed(batches.classes)
    if known:
        reason = f"none of the batches ({found}) was fitted, which were {listed(known)}"
    else:
        reason = "the selector was fitted without batches"
    warn_user(ParameterWarning(parameter, f": {reason}. Samples are used as they are."))


def _texts(values: Any) -> np.ndarray:
    return np.array([str(value) for value in values], dtype=object)
