"""Certainty of predictions: temperatures of probabilities, and thresholds for unknown samples.

Both are learned from samples of seen classes, some of which are treated as unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from semfs._typing import Float64, Indices
from semfs.attributes import AttributeTable
from semfs.selectors.calibration import Calibration, ScoredSamples

#: Range of temperatures. 1 is right if classes are Gaussian and their means known.
TEMPERATURES = (0.25, 100.0)
#: Features were selected for the classes treated as unseen, too. Where these are few, unseen
#: ones are less certain than they: the temperature is up to twice as large with 20 classes or
#: fewer, and hardly larger with 100.
FEW_CLASSES = 20


@dataclass(frozen=True, eq=False)
class Certainty:
    """Temperatures and thresholds of scores."""

    calibration: Calibration

    # ---- probabilities -------------------------------------------------------------------

    def temperature(self, table: AttributeTable) -> float:
        """Return the number by which scores are divided before the softmax."""
        found = self.fold_temperature(table)
        position = self.calibration.predictor.seen_positions(table)
        if (position >= 0).all():
            return found
        n_seen = len(self.calibration.predictor.means)
        return found * (1.0 + min(1.0, (FEW_CLASSES / n_seen) ** 2))

    def fold_temperature(self, table: AttributeTable) -> float:
        """Return the temperature of seen classes, of classes treated as unseen, or of both."""
        seen = self.calibration.predictor.seen_positions(table) >= 0
        if seen.all():
            return self._of_seen
        return self._of_both if seen.any() else self.of_unseen

    @cached_property
    def _of_seen(self) -> float:
        return best_temperature([self.calibration.seen_samples()])

    @cached_property
    def of_unseen(self) -> float:
        """Return the temperature if only classes treated as unseen compete."""
        return best_temperature(self.calibration.unseen_samples())

    @cached_property
    def _of_both(self) -> float:
        return best_temperature(self.calibration.mixed_samples())

    # ---- refusals ------------------------------------------------------------------------

    def lowest_score(self, table: AttributeTable, rate: float) -> float:
        """Return the lowest best score for which a sample belongs to a class of the table.

        This share of the samples of seen classes in the table has lower scores. If the table
        has no seen classes, it is the share of samples of classes treated as unseen.
        """
        position = self.calibration.predictor.seen_positions(table)
        if (position >= 0).any():
            return self._lowest_of_seen(table, position, rate)
        groups = self.calibration.unseen_samples()
        if not groups:
            return -np.inf
        best = np.concatenate([samples.scores.max(axis=1) for samples in groups])
        shares = np.concatenate([samples.shares for samples in groups])
        return quantile(best, shares, rate)

    def _lowest_of_seen(self, table: AttributeTable, position: Indices, rate: float) -> float:
        """Return the score below which this share of samples of a table's seen classes lies."""
        calibration = self.calibration
        sample = calibration.sample
        seen = position >= 0
        scores = calibration.predictor.scores(sample.Z, table)
        scores = calibration.without_itself(scores, position)
        if not seen.all():
            scores[:, seen] -= calibration.bias
        # a class of one sample says nothing about distances from its mean
        usable = np.isin(sample.codes, position) & (sample.counts[sample.codes] > 1)
        # classes as frequent as in the fit; simulated ones all alike
        counts = np.where(np.isinf(sample.counts), 1.0, sample.counts)
        weights = sample.shares * counts[sample.codes]
        return quantile(scores[usable].max(axis=1), weights[usable], rate)


def best_temperature(groups: Sequence[ScoredSamples]) -> float:
    """Return the temperature with the largest likelihood of the true classes."""
    groups = [samples for samples in groups if samples.scores.shape[1] > 1]
    if not groups:
        return 1.0

    def loss(log_temperature: float) -> float:
        temperature = np.exp(log_temperature)
        total = 0.0
        for samples in groups:
            likelihood = log_softmax(samples.scores / temperature, axis=1)
            of_truth = likelihood[np.arange(len(samples.truth)), samples.truth]
            total -= float(samples.shares @ of_truth)
        return total

    low, high = TEMPERATURES
    found = minimize_scalar(
        loss, bounds=(np.log(low), np.log(high)), method="bounded", options={"xatol": 0.02}
    )
    return float(np.exp(found.x))


def quantile(values: Float64, weights: Float64, rate: float) -> float:
    """Return the value below which this share of the weight lies, or -inf without values."""
    if not len(values):
        return -np.inf
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, rate * reached[-1], side="right"))
    return float(values[order][min(place, len(order) - 1)])
