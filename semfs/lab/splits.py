"""Splits of a data set into seen and unseen classes, and the samples of one split."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from semfs._typing import AttributesLike, Indices, Label, Matrix, PathLike
from semfs.io.safety import file_errors
from semfs.labels import classes_in
from semfs.validation import (
    ParameterError,
    check_distinct,
    check_integer,
    did_you_mean,
    listed,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semfs.datasets import ZeroShotDataset

#: Class splits of a data set that names none: enough for an interval, and for `--fast`.
RANDOM_SPLITS = 5
FAST_SPLITS = 2

#: Share of the classes that a random split leaves unseen, if the data set names none.
UNSEEN_SHARE = 0.3

#: Fewest seen and fewest unseen classes of a split: one class cannot be clustered.
FEWEST_CLASSES = 2

#: Fewest samples that remain of a seen class: one has no spread.
FEWEST_SAMPLES = 2

#: Name of the split that a data set itself defines.
GIVEN = "given"

#: How splits are called that a caller lists, with a number; and random ones.
LISTED = "listed"
RANDOM = "random"

#: Stands between the seen classes in the name of a split that is a pair of them.
PAIR = "+"

#: What `SplitData.with_preprocessing` can do to the samples.
PREPROCESSINGS = ("raw", "standardized", "min-max", "unit rows")

#: The unseen classes of each split, by the name of the split.
Splits: TypeAlias = dict[str, list[Label]]


@dataclass(frozen=True, eq=False)
class SplitData:
    """The samples of one class split.

    Parameters
    ----------
    X, y : matrix (n, d), array (n,)
        Samples of the seen classes and their labels.
    attributes : class descriptions
        Descriptions of all classes, in any form that `SemFS` accepts.
    X_unseen, y_unseen : matrix (n_unseen, d), array (n_unseen,)
        Samples of the unseen classes, which are clustered, and their labels.
    feature_names : array (d,)
    name : str
        Name of the split.
    X_unlabeled : matrix (n_unlabeled, d), optional
        Further samples of the unseen classes, which selectors can use without labels.
    """

    X: Matrix
    y: NDArray[Any]
    attributes: AttributesLike
    X_unseen: Matrix
    y_unseen: NDArray[Any]
    feature_names: NDArray[Any]
    name: str = GIVEN
    X_unlabeled: Matrix | None = None

    @classmethod
    def of(cls, data: ZeroShotDataset, name: str = GIVEN) -> Self:
        """Return the samples of a data set, split into its seen and unseen classes."""
        X, y, X_unseen, y_unseen = data.split()
        return cls(
            X,
            y,
            data.attributes,
            X_unseen,
            y_unseen,
            data.feature_names,
            name,
        )

    def names_of(self, features: Indices) -> list[str]:
        """Return the names of the features with the given indices."""
        return [str(name) for name in self.feature_names[features]]

    def keep_samples(self, samples: Indices) -> Self:
        """Return the split with only the given seen samples, in their original order."""
        samples = np.sort(samples)
        return replace(self, X=self.X[samples], y=self.y[samples])

    def with_ratio(self, ratio: float, seed: int) -> Self:
        """Return the split with a random share of the samples of each seen class."""
        if ratio >= 1.0:
            return self
        rng = np.random.RandomState(seed)
        kept = []
        for label in np.unique(self.y):
            samples = np.flatnonzero(self.y == label)
            # 0.1 * 30 is 3.0000000000000004: three samples are meant, not four.
            n_kept = int(np.ceil(ratio * len(samples) - 1e-9))
            kept.append(rng.permutation(samples)[: max(FEWEST_SAMPLES, n_kept)])
        return self.keep_samples(np.concatenate(kept))

    def with_preprocessing(self, kind: str) -> Self:
        """Return the split with samples transformed by one of `PREPROCESSINGS`.

        Offsets and scales of the features are computed from the seen samples and applied to the
        unseen samples as well. "unit rows" divides every sample by its length.
        """
        if kind not in PREPROCESSINGS:
            raise ValueError(
                f"There is no preprocessing {kind!r}. Known: {', '.join(PREPROCESSINGS)}."
            )
        if kind == "raw":
            return self
        scalers = {
            "standardized": StandardScaler(),
            "min-max": MinMaxScaler(),
            "unit rows": Normalizer(),
        }
        seen = _dense(self.X)
        scaler = scalers[kind].fit(seen)
        return replace(
            self,
            X=scaler.transform(seen),
            X_unseen=scaler.transform(_dense(self.X_unseen)),
        )

    def with_unlabeled_half(self, seed: int) -> Self:
        """Return the split with half of each unseen class moved to ``X_unlabeled``.

        The halves depend only on the name of the split and on the seed, so all methods are
        compared on the same samples. If the number of samples is odd, the clustered half gets
        one more.
        """
        rng = np.random.RandomState(self.seed(seed))
        clustered = np.zeros(len(self.y_unseen), dtype=bool)
        for label in np.unique(self.y_unseen):
            samples = np.flatnonzero(self.y_unseen == label)
            n_clustered = (len(samples) + 1) // 2
            clustered[rng.permutation(samples)[:n_clustered]] = True
        return replace(
            self,
            X_unseen=self.X_unseen[clustered],
            y_unseen=self.y_unseen[clustered],
            X_unlabeled=self.X_unseen[~clustered],
        )

    def seed(self, seed: int) -> int:
        """Return a seed for random draws that differ between splits."""
        # Not hash(), which differs between processes.
        return zlib.crc32(f"{seed} {self.name}".encode("utf-8", "replace"))


def _dense(X: Matrix) -> Matrix:
    """X as a dense array: offsets leave no zeros."""
    return sparse.csr_array(X).toarray() if sparse.issparse(X) else X


@lru_cache(maxsize=2)  # jobs come sorted by split: the next ones need the same samples
def split_data(
    data: ZeroShotDataset,
    unseen: tuple[Label, ...],
    name: str,
) -> SplitData:
    """Return the samples of a split given by its unseen classes."""
    return SplitData.of(data.with_unseen(list(unseen)), name)


@lru_cache(maxsize=2)  # as above: the jobs of one preprocessing follow each other
def preprocessed_split(
    data: ZeroShotDataset,
    unseen: tuple[Label, ...],
    name: str,
    preprocessing: str,
) -> SplitData:
    """Return the samples of a split, transformed by `SplitData.with_preprocessing`."""
    return split_data(data, unseen, name).with_preprocessing(preprocessing)


def synthetic_data(
    n: int,
    d: int,
    seed: int,
    n_classes: int = 20,
) -> SplitData:
    """Return n seen samples of d features made from class attributes plus noise, in float32.

    A fifth of the features depend on the 50 attributes. There are no unseen samples.
    """
    n_attributes = 50
    rng = np.random.RandomState(seed)
    # Each class has about a third of the attributes; the noise has twice their strength.
    A = (rng.uniform(size=(n_classes, n_attributes)) < 0.3).astype(np.float64)
    mixing = rng.standard_normal((n_attributes, d)) * (rng.uniform(size=d) < 0.2)
    y = np.arange(n) % n_classes
    X = (A[y] @ mixing + 2.0 * rng.standard_normal((n, d))).astype(np.float32)
    names = np.array([f"x{j}" for j in range(d)], dtype=object)
    return SplitData(X, y, dict(enumerate(A)), X[:0], y[:0], names)


def class_splits(
    data: ZeroShotDataset,
    n_splits: int | None = None,
    seed: int = 0,
    *,
    fast: bool = False,
) -> Splits:
    """Return the class splits on which methods are compared.

    - A data set that names its unseen classes has that split, called "given"; with
      ``n_splits`` > 1 it is followed by ``n_splits`` - 1 random ones.
    - CIFAR10 has its 45 pairs of seen classes, as in the paper, in random order; ``n_splits``
      (by default 2 if ``fast``) are the first of them.
    - Others have ``n_splits`` random splits, by default 5, or 2 if ``fast``.

    With a larger ``n_splits`` the first splits stay the same.
    """
    if n_splits is not None:
        check_integer("n_splits", n_splits, 1)
    # A comparison with the literature needs the split that comes with the data.
    if len(data.unseen):
        return _given_and_random(data, n_splits or 1, seed)
    if data.name.lower().startswith("cifar10") and len(data.classes) == 10:
        return _pairs_of_seen_classes(data, n_splits or (FAST_SPLITS if fast else None), seed)
    return random_splits(data, n_splits or (FAST_SPLITS if fast else RANDOM_SPLITS), seed)


def _given_and_random(
    data: ZeroShotDataset,
    n_splits: int,
    seed: int,
) -> Splits:
    """Return the split that the data set names, then random ones."""
    n_seen = len(data.seen)
    n_unseen = len(data.unseen)
    if min(n_seen, n_unseen) < FEWEST_CLASSES:
        raise ValueError(
            f"{data.name} has {n_seen} seen and {n_unseen} unseen "
            f"classes, but at least {FEWEST_CLASSES} of each are needed."
        )
    splits: Splits = {GIVEN: data.unseen.tolist()}
    if n_splits > 1:
        splits |= random_splits(data, n_splits - 1, seed)
    return splits


def _pairs_of_seen_classes(
    data: ZeroShotDataset,
    n_splits: int | None,
    seed: int,
) -> Splits:
    """Return the first splits with two seen classes, in random order; None: all of them."""
    pairs = list(data.every_split(n_seen=2))
    # Random order, because the first pairs in alphabetic order share their first class.
    order = np.random.RandomState(seed).permutation(len(pairs))[:n_splits]
    splits: Splits = {}
    for i in order:
        name = PAIR.join(str(label) for label in pairs[i].seen)
        splits[name] = pairs[i].unseen.tolist()
    return splits


def seen_pair(name: str) -> tuple[str, str] | None:
    """Return the seen classes of a split that is named by a pair of them, otherwise None.

    >>> seen_pair("cat+dog"), seen_pair("random-0")
    (('cat', 'dog'), None)
    """
    first, _, second = name.partition(PAIR)
    return (first, second) if second and PAIR not in second else None


def listed_splits(
    data: ZeroShotDataset,
    splits: Sequence[Sequence[Label]],
    places: Sequence[str] = (),
) -> Splits:
    """Return the splits given by lists of unseen classes, called "listed-0", "listed-1", …

    Error messages refer to a list as "splits[0]", or by its entry in ``places``.

    >>> from semfs.datasets import load_sample
    >>> data = load_sample()
    >>> list(listed_splits(data, [data.classes[:2], data.classes[2:5]]))
    ['listed-0', 'listed-1']
    """
    if isinstance(splits, str | bytes) or not len(splits):
        raise ValueError("splits must be a list of lists of unseen classes.")
    found: Splits = {}
    place_of: dict[frozenset[Label], str] = {}
    for number, unseen in enumerate(splits):
        place = places[number] if places else f"splits[{number}]"
        classes = _listed_classes(data, unseen, place)
        same = place_of.setdefault(frozenset(classes), place)
        if same != place:
            raise ValueError(
                f"{place} has the same unseen classes as {same}. A split "
                "that is listed twice would count twice. Leave out one "
                "of them."
            )
        found[f"{LISTED}-{number}"] = classes
    return found


def _listed_classes(data: ZeroShotDataset, unseen: Sequence[Label], place: str) -> list[Label]:
    """Return the unseen classes of a listed split, after a check that it can be evaluated."""
    known = data.classes.tolist()
    unknown = [label for label in unseen if label not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known) or "."
        raise ValueError(
            f"{place} names class {unknown[0]!r}, which has no samples{hint} "
            f"Known classes: {listed([str(label) for label in known])}."
        )
    check_distinct(list(unseen), f"{place} names class {{}} more than once.")
    n_unseen = len(unseen)
    n_seen = len(known) - n_unseen
    if min(n_seen, n_unseen) < FEWEST_CLASSES:
        raise ValueError(
            f"{place} has {n_seen} seen and {n_unseen} unseen classes, but at least "
            f"{FEWEST_CLASSES} of each are needed."
        )
    return data.with_unseen(list(unseen)).unseen.tolist()


def splits_in_file(data: ZeroShotDataset, path: PathLike) -> list[list[Label]]:
    """Return the unseen classes of each split in a text file with one line per split."""
    with file_errors(Path(path), "text file"):
        lines = Path(path).read_text("utf-8-sig").splitlines()
    known = data.classes.tolist()
    found = {
        f"{path}, line {number},": classes_in([line.strip()], known)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    }
    if not found:
        raise ValueError(
            f"{path} is empty. For each split, write one line with its "
            "unseen classes, separated by commas."
        )
    # The file and the line of a mistake are known here only.
    listed_splits(data, list(found.values()), list(found))
    return list(found.values())


def random_splits(
    data: ZeroShotDataset,
    n_splits: int,
    seed: int,
    n_unseen: int | None = None,
) -> Splits:
    """Return random splits with ``n_unseen`` unseen classes.

    By default, their number is the number of unseen classes that the data set names, or 30 % of
    the classes if it names none.
    """
    check_integer("n_splits", n_splits, 1)
    n_classes = len(data.classes)
    if n_classes < 2 * FEWEST_CLASSES:
        raise ValueError(
            f"{data.name} has {n_classes} classes, but a split needs "
            f"{FEWEST_CLASSES} seen and {FEWEST_CLASSES} unseen."
        )
    most = n_classes - FEWEST_CLASSES
    if n_unseen is None:
        # At least two of each kind, whatever the share says.
        n_wanted = len(data.unseen) or round(UNSEEN_SHARE * n_classes)
        n_unseen = min(max(FEWEST_CLASSES, n_wanted), most)
    check_integer("n_unseen", n_unseen, FEWEST_CLASSES)
    if n_unseen > most:
        raise ParameterError(
            "n_unseen",
            f"is {n_unseen}, but {data.name} has {n_classes} classes, of "
            f"which at least {FEWEST_CLASSES} must be seen. Use {most} or "
            "less.",
        )
    draws = data.random_splits(n_splits, n_unseen, random_state=seed)
    return {f"{RANDOM}-{i}": draw.unseen.tolist() for i, draw in enumerate(draws)}


def split_facts(
    data: ZeroShotDataset,
    unseen: Sequence[Label],
) -> dict[str, Any]:
    """Return the sizes and classes of a split for reports."""
    unseen_classes = set(unseen)
    is_unseen = np.array([label in unseen_classes for label in data.y.tolist()])
    return {
        "n_seen": int((~is_unseen).sum()),
        "n_unseen": int(is_unseen.sum()),
        "seen": [label for label in data.classes.tolist() if label not in unseen],
        "unseen": list(unseen),
        "n_features": data.X.shape[1],
        "n_attributes": data.attributes.shape[1],
    }


def dataset_facts(
    data: ZeroShotDataset, splits: Mapping[str, Sequence[Label]]
) -> dict[str, Any]:
    """Return the facts of the first split of a data set, and of every split by name."""
    by_split = {name: split_facts(data, unseen) for name, unseen in splits.items()}
    first = next(iter(by_split.values()))
    return {"name": data.name, **first, "splits": by_split}
