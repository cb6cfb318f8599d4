"""Batches of samples: finding them in the input, and numbering them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semfs.io.anndata import as_genes
from semfs.labels import Labels
from semfs.method.batches import batch_labels
from semfs.rows import OutOfCoreRows, beyond_memory
from semfs.rows.dask_data import is_dask
from semfs.rows.device import to_numpy
from semfs.rows.opening import column_labels
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.inputs.source import labels_of
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows
from semfs.validation import did_you_mean


def batch_of(X: Any, batch: Any, parameter: str) -> tuple[Any, Any]:
    """Return X without its column of batches, and the batches (n,) or None.

    ``batch`` holds the batches, or the name of a column of a frame, of AnnData's ``obs``, or of
    a file.
    """
    if batch is None:
        return X, None
    if not isinstance(batch, str):
        # one value per sample: little beside X
        if is_dask(batch):
            batch = batch.compute()
        return X, to_numpy(batch)
    kind = classify(X)
    if kind is Kind.STORED and not isinstance(X, (str, Path)):
        genes = as_genes(X)
        if genes is not None:
            return X, genes.labels(batch)
    if kind is Kind.STORED:
        return X, column_labels(X, batch)
    columns = [str(name) for name in getattr(X, "columns", ())]
    if batch not in columns:
        hint = did_you_mean(batch, columns) or "."
        raise ValueError(
            f"{parameter}: X has no column {batch!r}{hint} Pass one batch per sample."
        )
    values = X[batch]
    if is_dask(X):
        return X.drop(columns=batch), values.compute()
    return X.drop(columns=batch) if hasattr(X, "iloc") else X.drop(batch), values


def with_batches(source: OutOfCoreRows, values: Any) -> OutOfCoreRows:
    """Return a source with its labels and with the batches of its samples, if any."""
    if values is None and source.batches is None:
        return source
    # pairs of class and batch need the classes, also where blocks bring them
    known = source.labels_known()
    n = len(labels_of(known))
    return replace(known, batches=batch_labels(source.batches if values is None else values, n))


def with_unlabeled_batches(
    rows: UnlabeledRows | OutOfCoreRows | None, values: Any, known: Labels | None
) -> Any:
    """Return X_unlabeled with its batches. Batches that X has as well keep their numbers."""
    if rows is None or values is None:
        return rows
    n = len(labels_of(rows)) if beyond_memory(rows) else rows.n_rows
    found = batch_labels(values, n, "batch_unlabeled")
    names = list(found.classes if known is None else known.classes)
    names += [batch for batch in found.classes if batch not in names]
    # one numbering for unlabeled samples of X and of X_unlabeled, which are joined
    place = np.array([names.index(batch) for batch in found.classes], dtype=np.int32)
    codes = place[found.codes]
    if beyond_memory(rows):
        return replace(rows, batches=Labels(names, codes))
    return replace(rows, batches=codes.astype(np.intp))
