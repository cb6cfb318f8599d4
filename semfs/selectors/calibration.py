"""Calibrated predictions: seen against unseen classes, probabilities, and refusals.

Samples of unseen classes lie far from means that were only predicted, so that seen classes win
too often. What a seen class must be handicapped by is learned where the truth is known: a
third of the seen classes plays unseen, predicted from the descriptions of the others, in turn.
The same folds tell how certain scores are, and whether predicting samples together helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from semfs._typing import Float64, Indices, Mask, Matrix
from semfs.arrays import batches
from semfs.attributes import AttributeTable
from semfs.rows import MemoryRows
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
#: Features were selected for the classes that play unseen, too. Where these are few, unseen
#: ones are less certain than they: the temperature is up to twice as large with 20 classes or
#: fewer, and hardly larger with 100.
FEW_CLASSES = 20
#: Together, a sample is also compared with the means that moved, and seen classes are
#: handicapped by this many biases more.
MORE_BIAS = 0.5
#: Predicting together is not used if it loses more than this accuracy on seen classes that
#: play unseen (the standard error of six folds of ten classes).
MOST_LOSS = 0.01


#: Scores (r, H) of classes for samples, the true classes (r,), and weights (r,) that sum up to
#: 1 in each class.
_Problem: TypeAlias = tuple[Float64, Indices, Float64]


@dataclass(frozen=True, eq=False)
class CalibrationSample:
    """Selected features of a few distinct samples of each seen class."""

    Z: Float64  # (s, k)
    codes: Indices  # (s,), their classes
    weights: Float64  # (s,), how often each occurs
    counts: Float64  # (C,), samples of each class that the means are those of; inf: simulated

    @classmethod
    def drawn(cls, rows: MemoryRows, features: Indices, n_classes: int) -> Self:
        """Return features of random samples in memory, the same in any order of the rows.

        Samples are taken in the order of a hash of their numbers, so that one that occurs
        twice counts as one of weight 2.
        """
        weights = np.ones(len(rows.codes))
        if rows.weights is not None:
            weights = np.asarray(rows.weights, dtype=np.float64)
        hashes = [_hashes(_part(rows.X, part, features)) for part in _parts(len(weights))]
        used = np.flatnonzero(weights > 0)
        codes = rows.codes[used]
        key = np.concatenate(hashes)[used]
        order = np.lexsort((key, codes))
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = (np.diff(codes[order]) != 0) | (np.diff(key[order]) != 0)
        totals = np.add.reduceat(weights[used][order], np.flatnonzero(is_first))
        distinct = order[is_first]
        place = _places_in_groups(codes[distinct])
        drawn = np.flatnonzero(place < samples_per_class(n_classes))
        found = distinct[drawn]
        Z = _part(rows.X, used[found], features)
        counts = np.bincount(codes, weights[used], minlength=n_classes).astype(np.float64)
        return cls(Z, codes[found], totals[drawn], counts)

    @classmethod
    def simulated(cls, means: Float64, within: Float64) -> Self:
        """Return samples of Gaussians about class means (C, k), where no others are known."""
        C, k = means.shape
        codes = np.repeat(np.arange(C), samples_per_class(C))
        values, vectors = np.linalg.eigh(within)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = np.random.default_rng(0).standard_normal((len(codes), k))
        ones = np.ones(len(codes))
        return cls(means[codes] + noise @ root.T, codes, ones, np.full(C, np.inf))

    @property
    def is_real(self) -> bool:
        """Whether these are samples of the data."""
        return bool(np.isfinite(self.counts).all())

    def keep_features(self, kept: Mask) -> CalibrationSample:
        """Return the same samples with some of the features, a mask (k,)."""
        return replace(self, Z=self.Z[:, kept])

    @property
    def shares(self) -> Float64:
        """Weights (s,) that sum up to 1 in each class."""
        totals = np.bincount(self.codes, self.weights, minlength=len(self.counts))
        return self.weights / totals[self.codes]


def samples_per_class(n_classes: int) -> int:
    """Return how many samples of each class are kept."""
    return max(2, min(SAMPLES_PER_CLASS, MOST_SAMPLES // n_classes))


def _parts(n: int) -> Iterator[slice]:
    """Parts of n rows, a few megabytes each when only selected features are taken."""
    return batches(n, BLOCK_ROWS)


def _part(X: Matrix, rows: slice | Indices, features: Indices) -> Float64:
    """Some rows and features of a matrix, dense."""
    found: Any = X[rows][:, features]
    if sp.issparse(found):
        found = found.toarray()
    return np.asarray(found, dtype=np.float64)


def _hashes(Z: Float64) -> npt.NDArray[np.uint64]:
    """A pseudo-random number (n,) of each row of Z (n, k), the same for rows that are equal."""
    bits = (Z + 0.0).view(np.uint64)  # + 0.0: there are two zeros
    rng = np.random.default_rng(0)
    odd = rng.integers(0, 2**63, Z.shape[1], dtype=np.uint64) * 2 + 1
    mixed = (bits ^ (bits >> np.uint64(31))) * odd
    total = (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64)
    total *= np.uint64(0x9E3779B97F4A7C15)
    return total ^ (total >> np.uint64(32))


def _places_in_groups(groups: Indices) -> Indices:
    """The place (n,) of each entry among those of its group; groups are sorted."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(groups) != 0]))
    lengths = np.diff(np.append(starts, len(groups)))
    return np.arange(len(groups)) - np.repeat(starts, lengths)


def _quantile(values: list[Float64], weights: list[Float64], rate: float) -> float:
    """The number below which this share of the weight lies; -inf without values."""
    if not values or not sum(len(part) for part in values):
        return -np.inf
    joined = np.concatenate(values)
    order = np.argsort(joined)
    reached = np.cumsum(np.concatenate(weights)[order])
    place = int(np.searchsorted(reached, rate * reached[-1], side="right"))
    return float(joined[order][min(place, len(order) - 1)])


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

    def predictions(
        self, blocks: Iterable[Float64], table: AttributeTable, *, together: bool
    ) -> Iterator[tuple[Float64, Float64]]:
        """Yield probabilities and scores (r, U) of samples (r, k), block by block.

        Together, samples help each other: all are read before the first is predicted. Where
        folds say that this would not help, each is predicted alone.
        """
        if together and not self.seen(table).all() and self.helps_together:
            yield from self._predictions_together(blocks, table)
            return
        temperature = self.temperature(table)
        for Z in blocks:
            scores = self.scores(Z, table)
            yield softmax(scores / temperature, axis=1), scores

    def _predictions_together(
        self, blocks: Iterable[Float64], table: AttributeTable
    ) -> Iterator[tuple[Float64, Float64]]:
        """As `predictions`, by a mixture that all samples belong to."""
        kept = KeptBlocks()
        for Z in blocks:
            for part in batches(len(Z), BLOCK_ROWS):
                kept.append(self.predictor.whiten(Z[part]), self.scores(Z[part], table))
        mixture = self.mixture(table).fit(kept)
        temperature = self.temperature_together(table)
        for W, scores in kept:
            yield softmax(mixture.scores(W, scores) / temperature, axis=1), scores

    def seen(self, table: AttributeTable) -> Mask:
        """Which classes (U,) of a table are seen ones."""
        return self.predictor.seen_positions(table) >= 0

    def mixture(self, table: AttributeTable) -> Mixture:
        """Return what predicts samples together, not yet fitted to any."""
        position = self.predictor.seen_positions(table)
        seen = position >= 0
        fixed = np.zeros((len(position), self.predictor.means.shape[1]))
        fixed[seen] = self.predictor.whiten(self.predictor.means[position[seen]])
        correction = np.zeros(len(position))
        if not seen.all():
            correction[seen] = -MORE_BIAS * self.bias if seen.any() else 0.0
        return Mixture(seen, fixed, correction)

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
        races = [_Race.of(fold, codes, self.sample.shares) for fold in self.folds]
        gaps = np.concatenate([race.gap for race in races])
        biases = np.unique(np.quantile(gaps, np.linspace(0.0, 1.0, N_BIASES)))
        harmonic = np.mean([race.harmonic_means(biases) for race in races], axis=0)
        best = harmonic >= harmonic.max() - 1e-12
        return float(np.median(biases[best]))

    def temperature(self, table: AttributeTable) -> float:
        """Return what scores of these classes are divided by before the softmax."""
        found = self._fold_temperature(table)
        if self.seen(table).all():
            return found
        return found * (1.0 + min(1.0, (FEW_CLASSES / len(self.predictor.means)) ** 2))

    def _fold_temperature(self, table: AttributeTable) -> float:
        """The temperature of seen classes, those that play unseen, or both."""
        seen = self.seen(table)
        if seen.all():
            return self._seen_temperature
        return self._mixed_temperature if seen.any() else self._unseen_temperature

    @cached_property
    def _seen_temperature(self) -> float:
        sample = self.sample
        return _best_temperature([(self._left_out_scores, sample.codes, sample.shares)])

    @cached_property
    def _unseen_temperature(self) -> float:
        return _best_temperature(list(self._held_out_problems()))

    @cached_property
    def _mixed_temperature(self) -> float:
        problems = []
        for fold in self.folds:
            scores = fold.scores - self.bias
            scores[:, fold.held_out] += self.bias
            problems.append((scores, self.sample.codes, self.sample.shares))
        return _best_temperature(problems)

    def _held_out_problems(self) -> Iterator[_Problem]:
        """Yield scores (r, H) of classes that played unseen, for their samples."""
        for fold in self.folds:
            rows = np.isin(self.sample.codes, fold.held_out)
            truth = np.searchsorted(fold.held_out, self.sample.codes[rows])
            scores = fold.scores[np.ix_(rows, fold.held_out)]
            yield scores, truth, self.sample.shares[rows]

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
            problems = list(self._held_out_problems())
            best = [scores.max(axis=1) for scores, _, _ in problems]
            shares = [share for _, _, share in problems]
            return _quantile(best, shares, rate)
        sample = self.sample
        scores = self.predictor.scores(sample.Z, table)
        scores = self._without_itself(scores, position)
        if not seen.all():
            scores[:, seen] -= self.bias
        # a class of one sample says nothing about distances from its mean
        usable = np.isin(sample.codes, position) & (sample.counts[sample.codes] > 1)
        # classes as frequent as in the fit; simulated ones all alike
        counts = np.where(np.isinf(sample.counts), 1.0, sample.counts)
        weights = sample.shares * counts[sample.codes]
        return _quantile([scores[usable].max(axis=1)], [weights[usable]], rate)

    # ---- samples that are predicted together -------------------------------------------

    @cached_property
    def _together_problems(self) -> list[_Problem]:
        """Scores of classes that played unseen for their samples, predicted together.

        Simulated samples are Gaussian, as the method assumes, and would tell nothing.
        """
        if not self.sample.is_real:
            return []
        W = self.predictor.whiten(self.sample.Z)
        found = []
        for fold, (scores, truth, shares) in zip(self.folds, self._held_out_problems()):
            group = W[np.isin(self.sample.codes, fold.held_out)]
            mixture = Mixture.of_unseen(len(fold.held_out), W.shape[1])
            together = mixture.fit([(group, scores)]).scores(group, scores)
            found.append((together, truth, shares))
        return found

    @cached_property
    def gain_of_together(self) -> float:
        """Accuracy that predicting together gains when classes play unseen; nan if unknown."""
        together = [_accuracy(problem) for problem in self._together_problems]
        alone = [_accuracy(problem) for problem in self._held_out_problems()]
        return float(np.mean(together) - np.mean(alone)) if together else float("nan")

    @cached_property
    def _together_stretch(self) -> float:
        """How much larger the temperature must be if samples are predicted together."""
        if not self._together_problems:
            return 2.0  # two likelihoods are added, and right together only once
        return _best_temperature(self._together_problems) / self._unseen_temperature

    def temperature_together(self, table: AttributeTable) -> float:
        """Return what scores of samples that are predicted together are divided by."""
        return self._together_stretch * self._fold_temperature(table)

    @property
    def helps_together(self) -> bool:
        """Whether samples should be predicted together, as far as folds can tell."""
        return not self.gain_of_together < -MOST_LOSS


@dataclass(frozen=True, eq=False)
class _Race:
    """The best seen and the best unseen class of each sample in a fold."""

    gap: Float64  # (s,), score of the best seen minus that of the best unseen class
    seen_right: Float64  # (s,), share of the accuracy of seen classes if the seen one wins
    unseen_right: Float64  # (s,), likewise

    @classmethod
    def of(cls, fold: Fold, codes: Indices, shares: Float64) -> Self:
        """Compare the classes of a fold, which counts every class alike."""
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


def _best_temperature(problems: list[_Problem]) -> float:
    """The temperature of largest likelihood of the true classes, all classes alike."""
    problems = [problem for problem in problems if problem[0].shape[1] > 1]
    if not problems:
        return 1.0

    def loss(log_temperature: float) -> float:
        temperature = np.exp(log_temperature)
        total = 0.0
        for scores, truth, share in problems:
            likelihood = log_softmax(scores / temperature, axis=1)
            total -= float(share @ likelihood[np.arange(len(truth)), truth])
        return total

    low, high = TEMPERATURES
    found = minimize_scalar(
        loss, bounds=(np.log(low), np.log(high)), method="bounded", options={"xatol": 0.02}
    )
    return float(np.exp(found.x))


def _accuracy(problem: _Problem) -> float:
    """Share of samples whose best class is right, averaged over classes."""
    scores, truth, shares = problem
    return float(shares @ (scores.argmax(axis=1) == truth)) / scores.shape[1]
