"""`Question`: which of some classes do samples belong to? All predictions are based on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from semfs._typing import Float64, Indices, Label, Mask
from semfs.attributes import AttributeTable
from semfs.labels import LabelArray, label_array, object_array
from semfs.selectors.calibrated import CalibratedPredictor
from semfs.selectors.prediction import ClassScorer
from semfs.validation import ParameterError, check_number

#: Of more classes than this the best ones are found by sorting, of fewer one after the other
#: (ten times as fast for two of a hundred).
SORT_BEYOND = 5


@dataclass(frozen=True, eq=False)
class Question:
    """Which of some classes do samples belong to?"""

    model: CalibratedPredictor
    table: AttributeTable  # the classes
    blocks: Iterator[Float64]  # (r, k) each
    unknown: Label | None = None  # the label of samples that are refused
    lowest_score: float = -np.inf  # of the best class of samples that are not refused

    def with_unknown(self, unknown: Label | None, rate: float) -> Question:
        """Return the question with a label for samples that belong to none of the classes."""
        if unknown is None:
            return self
        check_number("unknown_rate", rate, at_least=0)
        if rate > 1:
            raise ParameterError(
                "unknown_rate", f"must be a share between 0 and 1, got {rate}."
            )
        # otherwise nobody could tell refused samples from those of the class
        if unknown in self.table.classes.tolist():
            raise ParameterError("unknown", f"is {unknown!r}, which is one of the classes.")
        lowest = self.model.certainty.lowest_score(self.table, rate)
        return replace(self, unknown=unknown, lowest_score=lowest)

    def without_samples(self) -> Question:
        """Return the question without its samples, so that it can be sent to Dask workers."""
        return replace(self, blocks=iter(()))

    def only(self, rows: Mask) -> Question:
        """Return the question for some of the samples, given as a mask (n,)."""
        return replace(self, blocks=_rows_of(self.blocks, np.asarray(rows, dtype=bool)))

    def scores(self, Z: Float64) -> Float64:
        """Return scores (r, U) of the classes for samples (r, k), each predicted alone."""
        return self._scorer.scores(Z)

    @cached_property
    def _scorer(self) -> ClassScorer:
        """Return the scorer, which is made once for all blocks."""
        return self.model.scorer(self.table)

    def best_class(self, Z: Float64) -> LabelArray:
        """Return the class (r,) of samples (r, k), each predicted alone."""
        scores = self.scores(Z)
        return self.likeliest(scores, scores)

    def predictions(self, together: bool) -> Iterator[tuple[Float64, Float64]]:
        """Yield probabilities and scores (r, U) of each block."""
        return self.model.predictions(self.blocks, self.table, together=together)

    def likeliest(self, values: Float64, scores: Float64) -> LabelArray:
        """Return the class (r,) with the largest of values (r, U), or ``unknown``.

        Samples are labeled ``unknown`` by their scores (r, U), which may be the values
        themselves.
        """
        return self.names_of(largest_columns(values, 1), scores)[:, 0]

    def names_of(self, best: Indices, scores: Float64) -> LabelArray:
        """Return the classes (r, n) of columns ``best`` of scores (r, U), or ``unknown``."""
        found = self.table.classes[best]
        refused = np.zeros(found.shape, dtype=bool)
        refused[:, 0] = scores.max(axis=1) < self.lowest_score
        return _with_unknown(found, refused, self.unknown)


def largest_columns(values: Float64, n: int) -> Indices:
    """Return the columns (r, n) of the largest of values (r, U); with ties, the first ones."""
    if n >= values.shape[1] or n > SORT_BEYOND:
        return np.argsort(-values, axis=1, kind="stable")[:, :n]
    best = np.empty((len(values), n), dtype=np.intp)
    best[:, 0] = values.argmax(axis=1)
    rest = values.copy() if n > 1 else values
    for place in range(1, n):
        # what was found is out of the race for the next places
        np.put_along_axis(rest, best[:, place - 1 : place], -np.inf, axis=1)
        best[:, place] = rest.argmax(axis=1)
    return best


def _rows_of(blocks: Iterator[Float64], rows: Mask) -> Iterator[Float64]:
    """Yield, from blocks (r, k), the samples that a mask (n,) selects."""
    n_done = 0
    for Z in blocks:
        kept = rows[n_done : n_done + len(Z)]
        n_done += len(Z)
        # X is read in blocks, so that its length is known only at the end
        if len(kept) < len(Z):
            break
        if kept.any():
            yield Z[kept]
    if n_done != len(rows):
        raise ParameterError("rows", f"has {len(rows)} values, but X has another length.")


def _with_unknown(
    labels: LabelArray,
    refused: Mask,
    unknown: Label | None,
) -> LabelArray:
    """Replace the labels of samples that belong to no class by ``unknown``."""
    if unknown is None:
        return labels
    # as objects: text beside numbers, or longer text, would be converted or cut
    found = np.where(refused, object_array([unknown]), labels.astype(object))
    return label_array(found.ravel().tolist()).reshape(labels.shape)
