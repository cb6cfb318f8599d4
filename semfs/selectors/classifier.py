"""`Classifier`: decides which class of a table each sample belongs to.

All predictions come down to it, and it is made in four steps, a file each:

1. ``prediction``: a normal distribution for each class gives scores. `ClassPredictor` knows the
   seen classes and predicts the means of unseen ones. Its `ClassScorer` is for one table.
2. ``calibration``: samples of seen classes that are treated as unseen give the bias, which
   makes scores of seen and of unseen classes comparable.
3. ``certainty``: the same samples give the temperature of probabilities, and the score below
   which a sample is unknown.
4. ``together``: samples that are predicted together move the predicted means.

`CalibratedPredictor` (``calibrated``) holds all four for one fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from semfs._typing import Float64, Indices, Label
from semfs.attributes import AttributeTable
from semfs.labels import LabelArray, label_array, object_array
from semfs.selectors.calibrated import CalibratedPredictor
from semfs.selectors.prediction import ClassScorer
from semfs.validation import ParameterError, check_number

#: Of more classes than this the best ones are found by sorting, of fewer one after the other
#: (ten times as fast for two of a hundred).
SORT_BEYOND = 5


@dataclass(frozen=True, eq=False)
class Classifier:
    """Decides which of the U classes of a table samples belong to, seen or unseen."""

    model: CalibratedPredictor
    table: AttributeTable  # the classes
    unknown: Label | None = None  # the label of samples that belong to none of the classes
    lowest_score: float = -np.inf  # samples are unknown if their best class scores less

    def with_unknown(self, unknown: Label | None, rate: float) -> Classifier:
        """Return the classifier with a label for samples that belong to none of the classes.

        At most about this share (``rate``) of samples of seen classes get it by mistake.
        """
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

    def scores(self, Z: Float64) -> Float64:
        """Return scores (r, U) of the classes for samples (r, k), each predicted alone."""
        return self._scorer.scores(Z)

    @cached_property
    def _scorer(self) -> ClassScorer:
        """Return the scorer, which is made once for all blocks."""
        return self.model.scorer(self.table)

    def probabilities(
        self, blocks: Iterable[Float64], *, together: bool
    ) -> Iterator[tuple[Float64, Float64]]:
        """Yield probabilities and scores (r, U) of each block of samples (r, k)."""
        return self.model.predictions(blocks, self.table, together=together)

    def labels(self, Z: Float64) -> LabelArray:
        """Return the class (r,) of samples (r, k), each predicted alone."""
        scores = self.scores(Z)
        return self.labels_of(largest_columns(scores, 1), scores)[:, 0]

    def labels_of(self, best: Indices, scores: Float64) -> LabelArray:
        """Return the classes (r, n) in the columns ``best`` (r, n) of the table, best first.

        In place of the first class, samples are ``unknown`` if all scores (r, U) are too low.
        """
        found = self.table.classes[best]
        if self.unknown is None:
            return found
        is_unknown = np.zeros(found.shape, dtype=bool)
        is_unknown[:, 0] = scores.max(axis=1) < self.lowest_score
        # as objects: text beside numbers, or longer text, would be converted or cut
        labels = np.where(is_unknown, object_array([self.unknown]), found.astype(object))
        return label_array(labels.ravel().tolist()).reshape(found.shape)


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
