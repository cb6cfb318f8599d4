"""Prediction of samples together, which corrects the predicted means of unseen classes.

The mean of an unseen class is predicted from its description and may be far from its samples. A
mixture model moves it toward the samples that probably belong to the class, a little more in
each round. The means of seen classes do not change. Only sums over samples are needed, so
samples may come in blocks. A trial on seen classes that are treated as unseen shows whether
this helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.attributes import AttributeTable
from semfs.io.reader import TempArray
from semfs.selectors.calibration import ScoredSamples
from semfs.selectors.certainty import Certainty, best_temperature

#: Scores are divided by this: class assignments stay soft while means move.
TEMPERATURE = 2.0
#: The first estimate of a mean counts as this many samples.
PRIOR_SAMPLES = 20.0
#: How far class sizes are drawn toward even ones before the first round (1: all the way).
EVEN_SIZES = 0.25
#: Rounds of moving means; more of them gained nothing.
N_ROUNDS = 5
#: Bytes of samples that are kept in memory; others are kept in a temporary file.
KEPT_BYTES = 256 * 2**20
#: Added to shares of classes, which may be 0.
SMALLEST_SHARE = 1e-3
#: Predicting together is not used if it loses more than this accuracy on seen classes that are
#: treated as unseen (the standard error of six folds of ten classes).
MOST_LOSS = 0.01
#: How much larger the temperature is where nothing can be tried: two likelihoods are added,
#: which are right together only once.
USUAL_STRETCH = 2.0


class KeptBlocks:
    """Blocks of samples and their scores, in memory or, above a limit, in a temporary file.

    They can be read several times.
    """

    def __init__(self, memory: int = KEPT_BYTES) -> None:
        self.memory = memory
        self.blocks: list[tuple[Float64, Float64]] = []
        self.shapes: list[tuple[int, int, int]] = []  # samples, features, classes
        self.file: TempArray | None = None

    def append(self, whitened: Float64, scores: Float64) -> None:
        """Add a block of whitened samples (r, k) and their scores (r, U)."""
        size = 8 * (whitened.size + scores.size)
        if self.file is None and size <= self.memory:
            self.memory -= size
            self.blocks.append((whitened, scores))
            return
        if self.file is None:
            self.file = TempArray(np.float64)
        self.file.append(whitened)
        self.file.append(scores)
        self.shapes.append((len(whitened), whitened.shape[1], scores.shape[1]))

    def __iter__(self) -> Iterator[tuple[Float64, Float64]]:
        """Yield the blocks in the order in which they came."""
        yield from self.blocks
        if self.file is None:
            return
        first = 0
        for rows, k, U in self.shapes:
            middle = first + rows * k
            last = middle + rows * U
            whitened = self.file[first:middle].reshape(rows, k)
            yield whitened, self.file[middle:last].reshape(rows, U)
            first = last


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of U Gaussian classes, in whitened features (k)."""

    seen: Mask  # (U,), classes whose means are known
    fixed: Float64  # (U, k), these means
    correction: Float64  # (U,), added to scores
    means: Float64 | None = None  # (U, k), after `fit`
    # (U,), the first unseen class of the same description: rounding errors must not decide
    # between such classes, and would depend on the order of samples
    first: Indices | None = None

    @classmethod
    def of_unseen(cls, n_classes: int, n_features: int) -> Self:
        """Return the mixture for classes that are all unseen."""
        seen = np.zeros(n_classes, dtype=bool)
        return cls(seen, np.zeros((n_classes, n_features)), np.zeros(n_classes))

    def fit(self, blocks: Iterable[tuple[Float64, Float64]]) -> Mixture:
        """Fit the mixture to samples, and return it.

        Parameters
        ----------
        blocks : re-iterable of pairs
            Whitened samples (r, k), and their scores (r, U) if each is predicted alone.
        """
        current = self._corrected(blocks)
        first = None
        for _ in range(N_ROUNDS):
            totals, sums = current._totals(blocks)
            if first is None:
                first = sums / np.maximum(totals, 1e-9)[:, None]
            means = (sums + PRIOR_SAMPLES * first) / (totals + PRIOR_SAMPLES)[:, None]
            means[self.seen] = self.fixed[self.seen]
            means = self._alike(means, axis=0)
            current = replace(current, means=means)
        return current

    def scores(self, whitened: Float64, alone: Float64) -> Float64:
        """Return scores (r, U) of samples (r, k), given the scores (r, U) of each alone."""
        if self.means is None:
            return alone + self.correction
        # |w|² of a whitened sample w is the same for all classes
        found = whitened @ self.means.T
        found += alone
        found += self.correction - 0.5 * (self.means**2).sum(axis=1)
        return self._alike(found, axis=1)

    def _alike(self, values: Float64, axis: int) -> Float64:
        """Return values of classes with those of the first class of the same description."""
        return values if self.first is None else values.take(self.first, axis)

    def _corrected(self, blocks: Iterable[tuple[Float64, Float64]]) -> Mixture:
        """Correct scores so that the sizes of unseen classes become more equal."""
        totals, _ = self._totals(blocks)
        unseen = totals[~self.seen]
        shares = unseen / max(float(unseen.sum()), 1e-9) * len(unseen)
        correction = self.correction.copy()
        correction[~self.seen] -= EVEN_SIZES * TEMPERATURE * np.log(shares + SMALLEST_SHARE)
        return replace(self, correction=self._alike(correction, axis=0))

    def _totals(self, blocks: Iterable[tuple[Float64, Float64]]) -> tuple[Float64, Float64]:
        """Return the number of samples (U,) of each class, and their sums (U, k)."""
        totals = np.zeros(len(self.seen))
        sums = np.zeros_like(self.fixed)
        for whitened, alone in blocks:
            shares = _softmax_in_place(self.scores(whitened, alone) / TEMPERATURE)
            totals += shares.sum(axis=0)
            sums += shares.T @ whitened
        return totals, sums


def _softmax_in_place(scores: Float64) -> Float64:
    """Turn scores (r, U) into shares that sum up to 1, in place to save time."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


@dataclass(frozen=True, eq=False)
class TogetherTrial:
    """A trial of predicting together, on seen classes that are treated as unseen."""

    certainty: Certainty

    @cached_property
    def samples(self) -> list[ScoredSamples]:
        """Return the samples of classes treated as unseen, predicted together.

        Simulated samples are Gaussian, as the method assumes, and would show nothing, so they
        are not used.
        """
        calibration = self.certainty.calibration
        if not calibration.sample.is_real:
            return []
        whitened = calibration.predictor.whiten(calibration.sample.Z)
        found = []
        for fold, alone in zip(calibration.folds, calibration.unseen_samples()):
            group = whitened[calibration.plays_unseen(fold)]
            mixture = Mixture.of_unseen(len(fold.held_out), whitened.shape[1])
            fitted = mixture.fit([(group, alone.scores)])
            found.append(replace(alone, scores=fitted.scores(group, alone.scores)))
        return found

    @cached_property
    def gain(self) -> float:
        """The gain in accuracy on classes treated as unseen, or nan if unknown."""
        if not self.samples:
            return float("nan")
        together = [samples.accuracy for samples in self.samples]
        alone = [samples.accuracy for samples in self.certainty.calibration.unseen_samples()]
        return float(np.mean(together) - np.mean(alone))

    @property
    def helps(self) -> bool:
        """Whether samples should be predicted together, judging by the folds."""
        return not self.gain < -MOST_LOSS

    @cached_property
    def stretch(self) -> float:
        """The factor of the temperature if samples are predicted together."""
        if not self.samples:
            return USUAL_STRETCH
        return best_temperature(self.samples) / self.certainty.of_unseen

    def temperature(self, table: AttributeTable) -> float:
        """Return the temperature of samples that are predicted together."""
        return self.stretch * self.certainty.fold_temperature(table)
