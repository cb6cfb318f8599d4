"""Calibration of scores, using seen classes that are treated as unseen.

The mean of an unseen class is only predicted, so its samples lie far from it, and seen classes
would win too often. In turn, a third of the seen classes is treated as unseen, and their means
are predicted from the other classes. These folds show by how much the scores of seen classes
must be lowered (`bias`), how reliable scores are (`certainty`), and whether it helps to predict
samples together (`together`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from semfs._typing import Float64, Indices
from semfs.attributes import AttributeTable
from semfs.selectors.calibration_sample import CalibrationSample
from semfs.selectors.prediction import ClassPredictor

#: Each third of the classes is treated as unseen once, in so many random partitions.
N_FOLDS = 3
N_PARTITIONS = 2
#: Biases that are tried: so many quantiles of the differences that a bias must overcome.
N_BIASES = 400


@dataclass(frozen=True, eq=False)
class ScoredSamples:
    """Scores of samples for H competing classes, and the true class of each sample."""

    scores: Float64  # (r, H)
    truth: Indices  # (r,), columns of the true classes
    shares: Float64  # (r,), weights that sum up to 1 in each class

    @property
    def accuracy(self) -> float:
        """The share of samples whose best class is correct, averaged over classes."""
        right = self.scores.argmax(axis=1) == self.truth
        return float(self.shares @ right) / self.scores.shape[1]


@dataclass(frozen=True, eq=False)
class Fold:
    """A fold: scores when some of the seen classes are treated as unseen."""

    held_out: Indices  # (H,), those
    scores: Float64  # (s, C), log-likelihoods of all classes for the calibration sample


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibration of the scores of a model on the calibration sample."""

    predictor: ClassPredictor
    sample: CalibrationSample

    @cached_property
    def folds(self) -> list[Fold]:
        """Return the folds, in which classes are treated as unseen. Needs three classes."""
        predictor = self.predictor
        C = len(predictor.means)
        seen_scores = predictor.scores(self.sample.Z, predictor.table)
        found = []
        for held_out in _thirds(C):
            rest = np.setdiff1d(np.arange(C), held_out)
            if len(rest) < 2:
                continue
            table = predictor.table
            unseen = AttributeTable(
                table.values[held_out], table.classes[held_out], table.names
            )
            scores = seen_scores.copy()
            scores[:, held_out] = predictor.keep_classes(rest).scores(self.sample.Z, unseen)
            found.append(Fold(held_out, scores))
        return found

    @cached_property
    def bias(self) -> float:
        """The amount to subtract from scores of seen classes if unseen ones compete.

        It maximizes the harmonic mean of the accuracies of seen and unseen classes.
        """
        if not self.folds:
            return 0.0
        codes = self.sample.codes
        races = [_Race.of(fold, codes, self.sample.shares) for fold in self.folds]
        gaps = np.concatenate([race.gap for race in races])
        biases = np.unique(np.quantile(gaps, np.linspace(0.0, 1.0, N_BIASES)))
        harmonic = np.mean([race.harmonic_means(biases) for race in races], axis=0)
        best = harmonic >= harmonic.max() - 1e-12
        return float(np.median(biases[best]))

    # ---- samples whose class is known ----------------------------------------------------

    def seen_samples(self) -> ScoredSamples:
        """Return samples of seen classes, with seen classes as the only candidates."""
        predictor = self.predictor
        scores = predictor.scores(self.sample.Z, predictor.table)
        scores = self.without_itself(scores, np.arange(len(predictor.means)))
        return ScoredSamples(scores, self.sample.codes, self.sample.shares)

    def unseen_samples(self) -> list[ScoredSamples]:
        """Return samples of classes treated as unseen, with these as the only candidates."""
        found = []
        for fold in self.folds:
            rows = self.plays_unseen(fold)
            truth = np.searchsorted(fold.held_out, self.sample.codes[rows])
            scores = fold.scores[np.ix_(rows, fold.held_out)]
            found.append(ScoredSamples(scores, truth, self.sample.shares[rows]))
        return found

    def mixed_samples(self) -> list[ScoredSamples]:
        """Return all samples, with all classes as candidates."""
        found = []
        for fold in self.folds:
            scores = fold.scores - self.bias
            scores[:, fold.held_out] += self.bias
            found.append(ScoredSamples(scores, self.sample.codes, self.sample.shares))
        return found

    def plays_unseen(self, fold: Fold) -> Indices:
        """Return which samples (r,) have a class that was treated as unseen."""
        return np.flatnonzero(np.isin(self.sample.codes, fold.held_out))

    def without_itself(self, scores: Float64, position: Indices) -> Float64:
        """Correct scores (s, U) for the influence of a sample on the mean of its own class.

        Without the sample, the mean of its class would be n/(n − 1) times as far away.
        ``position`` (U,) holds the positions of the classes among the seen ones.
        """
        sample = self.sample
        counts = sample.counts[sample.codes]
        # simulated samples, of infinite counts, are no part of the means
        known = np.where(np.isinf(counts), 1.0, counts)
        factor = (known / np.maximum(known - 1.0, 1.0)) ** 2
        constant = self.predictor.log_constant
        is_class = position == sample.codes[:, None]
        stretched = constant - factor[:, None] * (constant - scores)
        return np.where(is_class, stretched, scores)


@dataclass(frozen=True, eq=False)
class _Race:
    """The best seen class and the best unseen class of each sample in a fold."""

    gap: Float64  # (s,), score of the best seen minus that of the best unseen class
    seen_right: Float64  # (s,), share of the accuracy of seen classes if the seen one wins
    unseen_right: Float64  # (s,), likewise

    @classmethod
    def of(cls, fold: Fold, codes: Indices, shares: Float64) -> Self:
        """Compare the classes of a fold. Every class has the same weight."""
        C = fold.scores.shape[1]
        unseen = np.isin(np.arange(C), fold.held_out)
        best_seen = np.where(unseen, -np.inf, fold.scores)
        best_unseen = np.where(unseen, fold.scores, -np.inf)
        n_unseen = len(fold.held_out)
        share = shares / np.where(unseen[codes], n_unseen, C - n_unseen)
        return cls(
            gap=best_seen.max(axis=1) - best_unseen.max(axis=1),
            seen_right=share * (best_seen.argmax(axis=1) == codes),
            unseen_right=share * (best_unseen.argmax(axis=1) == codes),
        )

    def harmonic_means(self, biases: Float64) -> Float64:
        """Return the harmonic mean (b,) of the accuracies for each of some ascending biases."""
        order = np.argsort(self.gap)
        # the unseen class wins if the gap is at most the bias
        n_unseen = np.searchsorted(self.gap[order], biases, side="right")
        unseen = np.concatenate([[0.0], np.cumsum(self.unseen_right[order])])[n_unseen]
        seen_before = np.concatenate([[0.0], np.cumsum(self.seen_right[order])])
        seen = seen_before[-1] - seen_before[n_unseen]
        total = np.maximum(seen + unseen, np.finfo(float).tiny)
        return 2.0 * seen * unseen / total


def _thirds(n_classes: int) -> Iterator[Indices]:
    """Yield the groups of classes that are treated as unseen together."""
    for partition in range(N_PARTITIONS):
        order = np.random.default_rng(partition).permutation(n_classes)
        for first in range(N_FOLDS):
            held_out = np.sort(order[first::N_FOLDS])
            if len(held_out):
                yield held_out
