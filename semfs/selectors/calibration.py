"""Calibrated predictions: seen against unseen classes, probabilities, and refusals.

Samples of unseen classes lie far from means that were only predicted, so that seen classes win
too often. What a seen class must be handicapped by is learned where the truth is known: a
third of the seen classes plays unseen, predicted from the descriptions of the others, in turn.
The same folds tell how certain scores are, and whether predicting samples together helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from semfs._typing import Float64, Indices, Mask
from semfs.arrays import batches
from semfs.attributes import AttributeTable
from semfs.selectors.prediction import ClassPredictor
from semfs.selectors.together import KeptBlocks, Mixture

#: Samples of each class that are kept for calibration, at most.
SAMPLES_PER_CLASS = 20
#: Samples that are kept of all classes together, at most (two of each class at least). The
#: bias was within .01 of the best one with 20 samples of up to 150 classes.
MOST_SAMPLES = 3000
#: Each third of the classes plays unseen once, in so many random partitions.
N_FOLDS = 3
N_PARTITIONS = 2
#: Biases that are tried: so many quantiles of the differences that a bias must overcome.
N_BIASES = 400
#: Rows of a block of samples that are predicted together.
BLOCK_ROWS = 8192
#: Range of temperatures. 1 is right if classes are Gaussian and their means known.
TEMPERATURES = (0.25, 100.0)
#: Predicting together is not used if it loses more than this accuracy on seen classes that
#: play unseen (the standard error of six folds of ten classes).
MOST_LOSS = 0.01


@dataclass(frozen=True, eq=False)
class CalibrationSample:
    """Selected features of a few samples of each seen class."""

    Z: Float64  # (s, k)
    codes: Indices  # (s,), their classes
    counts: Float64  # (C,), samples of each class that the means are those of; inf: simulated

    @classmethod
    def simulated(cls, means: Float64, within: Float64) -> Self:
        """Return samples of Gaussians about class means (C, k), where no others are known."""
        C, k = means.shape
        codes = np.repeat(np.arange(C), samples_per_class(C))
        values, vectors = np.linalg.eigh(within)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = np.random.default_rng(0).standard_normal((len(codes), k))
        return cls(means[codes] + noise @ root.T, codes, np.full(C, np.inf))

    @property
    def is_real(self) -> bool:
        """Whether these are samples of the data."""
        return bool(np.isfinite(self.counts).all())

    def keep_features(self, kept: Mask) -> CalibrationSample:
        """Return the same samples with some of the features, a mask (k,)."""
        return CalibrationSample(self.Z[:, kept], self.codes, self.counts)


def samples_per_class(n_classes: int) -> int:
    """Return how many samples of each class are kept."""
    return max(2, min(SAMPLES_PER_CLASS, MOST_SAMPLES // n_classes))


def draw_samples(codes: Indices, n_classes: int) -> Indices:
    """Return places of a few random samples of each class, given all codes (n,)."""
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    counts = np.bincount(codes, minlength=n_classes)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place_in_class = np.arange(len(codes)) - np.repeat(first, counts)
    return np.sort(by_class[place_in_class < samples_per_class(n_classes)])


@dataclass(frozen=True, eq=False)
class Fold:
    """Seen classes, of which some played unseen."""

    held_out: Indices  # (H,), those
    scores: Float64  # (s, C), log-likelihoods of all classes for the calibration sample


@dataclass(frozen=True, eq=False)
class CalibratedPredictor:
    """A `ClassPredictor` whose scores of seen and of unseen classes can be compared."""

    predictor: ClassPredictor
    given: CalibrationSample | None = None  # None: simulate one

    @cached_property
    def sample(self) -> CalibrationSample:
        """Samples of seen classes, simulated if none were kept."""
        if self.given is not None:
            return self.given
        return CalibrationSample.simulated(self.predictor.means, self.predictor.within)

    def keep_features(self, kept: Mask) -> CalibratedPredictor:
        """Return the model of some of the features, a mask (k,), calibrated anew."""
        given = None if self.given is None else self.given.keep_features(kept)
        return CalibratedPredictor(self.predictor.keep_features(kept), given)

    # ---- predictions -------------------------------------------------------------------

    def scores(self, Z: Float64, table: AttributeTable) -> Float64:
        """Return calibrated log-likelihoods (n, U) of the classes of a table."""
        out = self.predictor.scores(Z, table)
        seen = self.seen(table)
        if seen.any() and not seen.all():
            out[:, seen] -= self.bias
        return out

    def probabilities(self, Z: Float64, table: AttributeTable) -> Float64:
        """Return probabilities (n, U) of the classes of a table."""
        found: Float64 = softmax(self.scores(Z, table) / self.temperature(table), axis=1)
        return found

    def seen(self, table: AttributeTable) -> Mask:
        """Which classes (U,) of a table are seen ones."""
        return self.predictor.seen_positions(table) >= 0

    def mixture(self, table: AttributeTable) -> Mixture:
        """Return what predicts samples together, not yet fitted to any."""
        position = self.predictor.seen_positions(table)
        seen = position >= 0
        fixed = np.zeros((len(position), self.predictor.means.shape[1]))
        fixed[seen] = self.predictor.whiten(self.predictor.means[position[seen]])
        return Mixture(seen, fixed)

    # ---- calibration -------------------------------------------------------------------

    @cached_property
    def folds(self) -> list[Fold]:
        """Scores of the sample when classes play unseen; none with fewer than three classes."""
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
        """What is subtracted from scores of seen classes where unseen ones compete.

        The one of largest harmonic mean of the accuracies of seen and unseen classes.
        """
        if not self.folds:
            return 0.0
        codes = self.sample.codes
        races = [_Race.of(fold, codes) for fold in self.folds]
        gaps = np.concatenate([race.gap for race in races])
        biases = np.unique(np.quantile(gaps, np.linspace(0.0, 1.0, N_BIASES)))
        harmonic = np.mean([race.harmonic_means(biases) for race in races], axis=0)
        best = harmonic >= harmonic.max() - 1e-12
        return float(np.median(biases[best]))

    def temperature(self, table: AttributeTable) -> float:
        """Return what scores of these classes are divided by before the softmax."""
        seen = self.seen(table)
        if seen.all():
            return self._seen_temperature
        return self._mixed_temperature if seen.any() else self._unseen_temperature

    @cached_property
    def _seen_temperature(self) -> float:
        return _best_temperature([(self._left_out_scores, self.sample.codes)])

    @cached_property
    def _unseen_temperature(self) -> float:
        return _best_temperature(list(self._held_out_problems()))

    @cached_property
    def _mixed_temperature(self) -> float:
        problems = []
        for fold in self.folds:
            scores = fold.scores - self.bias
            scores[:, fold.held_out] += self.bias
            problems.append((scores, self.sample.codes))
        return _best_temperature(problems)

    def _held_out_problems(self) -> Iterator[tuple[Float64, Indices]]:
        """Yield scores (r, H) of classes that played unseen for their samples, and codes."""
        for fold in self.folds:
            rows = np.isin(self.sample.codes, fold.held_out)
            truth = np.searchsorted(fold.held_out, self.sample.codes[rows])
            yield fold.scores[np.ix_(rows, fold.held_out)], truth

    @cached_property
    def _left_out_scores(self) -> Float64:
        """Scores (s, C) of seen classes, of a sample's class by the mean of its other samples.

        Without the sample the mean is n/(n − 1) times as far away.
        """
        sample = self.sample
        scores = self.predictor.scores(sample.Z, self.predictor.table)
        return self._without_itself(scores, np.arange(len(self.predictor.means)))

    def _without_itself(self, scores: Float64, position: Indices) -> Float64:
        """Correct scores (s, U) of seen classes at these positions (U,) for the sample."""
        sample = self.sample
        counts = sample.counts[sample.codes]
        stretch = np.where(np.isinf(counts), 1.0, counts / np.maximum(counts - 1.0, 1.0)) ** 2
        constant = self.predictor.log_constant
        own_class = position == sample.codes[:, None]
        stretched = constant - stretch[:, None] * (constant - scores)
        return np.where(own_class, stretched, scores)

    # ---- refusals ----------------------------------------------------------------------

    def lowest_score(self, table: AttributeTable, rate: float) -> float:
        """Return the score of the best class below which a sample belongs to none of a table.

        Samples of seen classes of the table are refused at this rate; if it has none, samples
        of seen classes that play unseen.
        """
        position = self.predictor.seen_positions(table)
        seen = position >= 0
        if not seen.any():
            best = [scores.max(axis=1) for scores, _ in self._held_out_problems()]
            return float(np.quantile(np.concatenate(best), rate)) if best else -np.inf
        sample = self.sample
        scores = self.predictor.scores(sample.Z, table)
        scores = self._without_itself(scores, position)
        if not seen.all():
            scores[:, seen] -= self.bias
        # a class of one sample says nothing about distances from its mean
        usable = np.isin(sample.codes, position) & (sample.counts[sample.codes] > 1)
        if not usable.any():
            return -np.inf
        return float(np.quantile(scores[usable].max(axis=1), rate))

    # ---- samples that are predicted together -------------------------------------------

    @cached_property
    def gain_of_together(self) -> float:
        """Accuracy that predicting together gains on classes that play unseen; nan if unknown.

        Simulated samples are Gaussian, as the method assumes, and tell nothing.
        """
        if not self.folds or not self.sample.is_real:
            return float("nan")
        W = self.predictor.whiten(self.sample.Z)
        gains = []
        for fold, (scores, truth) in zip(self.folds, self._held_out_problems()):
            H = len(fold.held_out)
            rows = np.isin(self.sample.codes, fold.held_out)
            mixture = Mixture(np.zeros(H, dtype=bool), np.zeros((H, W.shape[1])))
            together = mixture.fit([(W[rows], scores)]).posterior(W[rows], scores)
            gains.append(_accuracy(together, truth, H) - _accuracy(scores, truth, H))
        return float(np.mean(gains))

    @property
    def helps_together(self) -> bool:
        """Whether samples should be predicted together, as far as folds can tell."""
        return not self.gain_of_together < -MOST_LOSS


def predicted_together(
    model: CalibratedPredictor, table: AttributeTable, blocks: Iterable[Float64]
) -> Iterator[tuple[Float64, Float64]]:
    """Yield probabilities and scores (r, U) of samples that help each other, block by block.

    ``blocks`` (r, k) of the samples are read once. Probabilities are those of each sample
    alone where folds say that the others would not help.
    """
    kept = KeptBlocks()
    for Z in blocks:
        for part in batches(len(Z), BLOCK_ROWS):
            kept.append(model.predictor.whiten(Z[part]), model.scores(Z[part], table))
    unseen = not model.seen(table).all()
    if not unseen or not model.helps_together:
        temperature = model.temperature(table)
        for _, scores in kept:
            yield softmax(scores / temperature, axis=1), scores
        return
    mixture = model.mixture(table).fit(kept)
    for W, scores in kept:
        yield mixture.posterior(W, scores), scores


@dataclass(frozen=True, eq=False)
class _Race:
    """The best seen and the best unseen class of each sample in a fold."""

    gap: Float64  # (s,), score of the best seen minus that of the best unseen class
    seen_right: Float64  # (s,), share of the accuracy of seen classes if the seen one wins
    unseen_right: Float64  # (s,), likewise

    @classmethod
    def of(cls, fold: Fold, codes: Indices) -> Self:
        """Compare the classes of a fold, which counts every class alike."""
        C = fold.scores.shape[1]
        unseen = np.isin(np.arange(C), fold.held_out)
        best_seen = np.where(unseen, -np.inf, fold.scores)
        best_unseen = np.where(unseen, fold.scores, -np.inf)
        counts = np.bincount(codes, minlength=C)
        n_unseen = np.count_nonzero(unseen & (counts > 0))
        n_seen = np.count_nonzero(~unseen & (counts > 0))
        is_unseen = unseen[codes]
        n_of_kind = np.where(is_unseen, n_unseen, n_seen)
        share = 1.0 / (counts[codes] * n_of_kind)
        return cls(
            gap=best_seen.max(axis=1) - best_unseen.max(axis=1),
            seen_right=share * (best_seen.argmax(axis=1) == codes),
            unseen_right=share * (best_unseen.argmax(axis=1) == codes),
        )

    def harmonic_means(self, biases: Float64) -> Float64:
        """Return the harmonic mean (b,) of the accuracies with each bias, ascending."""
        order = np.argsort(self.gap)
        # the unseen class wins if the gap is at most the bias
        n_unseen = np.searchsorted(self.gap[order], biases, side="right")
        unseen = np.concatenate([[0.0], np.cumsum(self.unseen_right[order])])[n_unseen]
        seen_before = np.concatenate([[0.0], np.cumsum(self.seen_right[order])])
        seen = seen_before[-1] - seen_before[n_unseen]
        total = np.maximum(seen + unseen, np.finfo(float).tiny)
        return 2.0 * seen * unseen / total


def _thirds(n_classes: int) -> Iterator[Indices]:
    """Yield the classes that play unseen together."""
    for partition in range(N_PARTITIONS):
        order = np.random.default_rng(partition).permutation(n_classes)
        for first in range(N_FOLDS):
            held_out = np.sort(order[first::N_FOLDS])
            if len(held_out):
                yield held_out


def _best_temperature(problems: list[tuple[Float64, Indices]]) -> float:
    """The temperature of largest likelihood of the true classes, all classes alike."""
    problems = [(scores, truth) for scores, truth in problems if scores.shape[1] > 1]
    if not problems:
        return 1.0
    weights = [1.0 / np.bincount(truth)[truth] for _, truth in problems]

    def loss(log_temperature: float) -> float:
        temperature = np.exp(log_temperature)
        total = 0.0
        for (scores, truth), weight in zip(problems, weights):
            likelihood = log_softmax(scores / temperature, axis=1)
            total -= float(weight @ likelihood[np.arange(len(truth)), truth])
        return total

    low, high = TEMPERATURES
    found = minimize_scalar(
        loss, bounds=(np.log(low), np.log(high)), method="bounded", options={"xatol": 0.02}
    )
    return float(np.exp(found.x))


def _accuracy(scores: Float64, truth: Indices, n_classes: int) -> float:
    """Share of samples whose best class is right, averaged over classes."""
    right = scores.argmax(axis=1) == truth
    counts = np.bincount(truth, minlength=n_classes)
    hits = np.bincount(truth, right, minlength=n_classes)
    return float(np.mean(hits[counts > 0] / counts[counts > 0]))
