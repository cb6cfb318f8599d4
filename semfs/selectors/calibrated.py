"""`CalibratedPredictor`: a Gaussian model with calibrated scores.

It combines the model of `prediction` with corrections of its scores, which `calibration`,
`certainty` and `together` learn from a few samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import softmax

from semfs._typing import Float64, Mask
from semfs.arrays import batches
from semfs.attributes import AttributeTable
from semfs.selectors.calibration import Calibration
from semfs.selectors.calibration_sample import CalibrationSample
from semfs.selectors.certainty import Certainty
from semfs.selectors.prediction import ClassPredictor, ClassScorer, first_equal
from semfs.selectors.together import KeptBlocks, Mixture, TogetherTrial

#: Rows of a block of samples that are predicted together.
ROWS_AT_ONCE = 8192
#: Together, a sample is also compared with the means that moved, and seen classes are
#: handicapped by this many biases more.
MORE_BIAS = 0.5


@dataclass(frozen=True, eq=False)
class CalibratedPredictor:
    """A `ClassPredictor` whose scores of seen and of unseen classes can be compared."""

    predictor: ClassPredictor
    given: CalibrationSample | None = None  # None: simulate one

    @cached_property
    def calibration(self) -> Calibration:
        """Return the calibration on samples of seen classes, or on simulated ones."""
        sample = self.given
        if sample is None:
            predictor = self.predictor
            sample = CalibrationSample.simulated(predictor.means, predictor.within)
        return Calibration(self.predictor, sample)

    @cached_property
    def certainty(self) -> Certainty:
        """Return the temperatures of probabilities and the thresholds for unknown samples."""
        return Certainty(self.calibration)

    @cached_property
    def trial(self) -> TogetherTrial:
        """Return how predicting together affects classes that are treated as unseen."""
        return TogetherTrial(self.certainty)

    @property
    def bias(self) -> float:
        """Return what is subtracted from scores of seen classes if unseen ones compete."""
        return self.calibration.bias

    def keep_features(self, kept: Mask) -> CalibratedPredictor:
        """Return the model for the features in a mask (k,), calibrated again."""
        given = None if self.given is None else self.given.keep_features(kept)
        return CalibratedPredictor(self.predictor.keep_features(kept), given)

    def seen(self, table: AttributeTable) -> Mask:
        """Return which classes (U,) of a table are seen."""
        return self.predictor.seen_positions(table) >= 0

    def scores(self, Z: Float64, table: AttributeTable) -> Float64:
        """Return calibrated log-likelihoods (n, U) of the classes of a table."""
        return self.scorer(table).scores(Z)

    def scorer(self, table: AttributeTable) -> ClassScorer:
        """Return a scorer of samples, comparable between seen and unseen classes of a table."""
        found = self.predictor.scorer(table)
        if found.seen.any() and not found.seen.all():
            found = replace(found, bias=self.bias)
        return found

    def predictions(
        self, blocks: Iterable[Float64], table: AttributeTable, *, together: bool
    ) -> Iterator[tuple[Float64, Float64]]:
        """Yield probabilities and scores (r, U) of samples (r, k), block by block.

        If samples are predicted together, all are read before the first is predicted. If this
        did not help on the folds, each sample is predicted alone.
        """
        if together and not self.seen(table).all() and self.trial.helps:
            yield from self._predictions_together(blocks, table)
            return
        temperature = self.certainty.temperature(table)
        scorer = self.scorer(table)
        for Z in blocks:
            scores = scorer.scores(Z)
            yield softmax(scores / temperature, axis=1), scores

    def _predictions_together(
        self, blocks: Iterable[Float64], table: AttributeTable
    ) -> Iterator[tuple[Float64, Float64]]:
        """Yield `predictions` from a mixture that is fitted to all samples."""
        kept = KeptBlocks()
        scorer = self.scorer(table)
        for Z in blocks:
            for part in batches(len(Z), ROWS_AT_ONCE):
                kept.append(self.predictor.whiten(Z[part]), scorer.scores(Z[part]))
        mixture = self.mixture(table).fit(kept)
        temperature = self.trial.temperature(table)
        for whitened, scores in kept:
            together = mixture.scores(whitened, scores)
            yield softmax(together / temperature, axis=1), scores

    def mixture(self, table: AttributeTable) -> Mixture:
        """Return the mixture that predicts samples together, before it is fitted."""
        position = self.predictor.seen_positions(table)
        seen = position >= 0
        fixed = np.zeros((len(position), self.predictor.means.shape[1]))
        fixed[seen] = self.predictor.whiten(self.predictor.means[position[seen]])
        correction = np.zeros(len(position))
        if seen.any() and not seen.all():
            correction[seen] = -MORE_BIAS * self.bias
        first = np.arange(len(position))
        unseen = np.flatnonzero(~seen)
        first[unseen] = unseen[first_equal(table.values[unseen])]
        return Mixture(seen, fixed, correction, first=first)
