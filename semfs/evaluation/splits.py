"""Splitters that hold out whole classes, for the parameter ``cv=`` of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import BaseCrossValidator, KFold, ShuffleSplit

from semfs._typing import ArrayLike, Indices, LabelsLike, Mask, Matrix, RandomState
from semfs.labels import encode_labels
from semfs.validation import check_integer

#: Classes that a training or test part needs: one class alone cannot be separated.
MIN_CLASSES = 2

ClassSplits = list[tuple[Indices, Indices]]


class _ClassSplitter(BaseCrossValidator):
    """Base class: splits the classes as scikit-learn's splitters split rows."""

    n_splits: int

    def get_n_splits(
        self,
        X: ArrayLike | Matrix | None = None,
        y: LabelsLike | None = None,
        groups: LabelsLike | None = None,
    ) -> int:
        """Return the number of splits; all arguments are ignored, as in scikit-learn."""
        return self.n_splits

    def _iter_test_masks(
        self, X: ArrayLike | Matrix, y: LabelsLike, groups: LabelsLike | None
    ) -> Iterator[Mask]:
        """Yield, for each split, a mask (n,) of the samples of its test classes."""
        classes, codes = encode_labels(y)
        for _, test_classes in self._split_classes(classes):
            yield np.isin(codes, test_classes)

    def _split_classes(self, classes: npt.NDArray) -> ClassSplits:
        """Return the positions of the training classes and the test classes of each split."""
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class ClassKFold(_ClassSplitter):
    """K-fold cross-validation that holds out whole classes.

    Each class is in the test part of exactly one fold. Pass the splitter as ``cv=``, together
    with a ``scoring=`` such as `cluster_scorer`. The scores of classifiers are zero on classes
    that are not in the training part.

    Parameters
    ----------
    n_splits : int
        Number of folds. Each fold needs at least two classes.
    shuffle : bool
        Whether to assign classes to folds at random. If false, each fold consists of classes
        that are adjacent in sorted order.
    random_state : int, RandomState or None
        Seed of the random assignment. It is used only if ``shuffle=True``.

    Examples
    --------
    >>> y = ["ant", "bee", "cat", "dog", "ant", "bee"]
    >>> for train, test in ClassKFold(2).split(y, y):
    ...     print(train, test)
    [2 3] [0 1 4 5]
    [0 1 4 5] [2 3]
    """

    n_splits: int = 5
    _: KW_ONLY
    shuffle: bool = False
    random_state: RandomState = None

    def _split_classes(self, classes: npt.NDArray) -> ClassSplits:
        """Return K splits, whose test classes are the K folds."""
        check_integer("n_splits", self.n_splits, 2)
        folds = KFold(
            self.n_splits,
            shuffle=self.shuffle,
            random_state=self.random_state,
        )
        n_classes = len(classes)
        # KFold has at least 2 folds, so that fewer classes than this can never be split.
        fewest = 2 * MIN_CLASSES
        if n_classes < fewest:
            raise ValueError(
                f"ClassKFold needs at least {fewest} classes, but y has {n_classes}."
            )
        if n_classes < self.n_splits * MIN_CLASSES:
            raise ValueError(
                f"ClassKFold(n_splits={self.n_splits}) needs at least "
                f"{self.n_splits * MIN_CLASSES} classes, {MIN_CLASSES} in "
                f"each fold, but y has {n_classes}. Use "
                f"n_splits={n_classes // MIN_CLASSES} or less."
            )
        return list(folds.split(classes))


@dataclass(eq=False, repr=False)
class ClassShuffleSplit(_ClassSplitter):
    """Cross-validation with random splits that hold out whole classes.

    Parameters
    ----------
    n_splits : int
        Number of random splits.
    test_size : float or int
        Share (rounded up) or number of the classes in the test part.
    random_state : int, RandomState or None
        Seed of the random splits.

    Examples
    --------
    >>> y = np.array(["ant", "bee", "cat", "dog", "ant", "bee"])
    >>> for train, test in ClassShuffleSplit(2, test_size=2, random_state=0).split(y, y):
    ...     print(sorted(set(y[train].tolist())), sorted(set(y[test].tolist())))
    ['ant', 'bee'] ['cat', 'dog']
    ['bee', 'dog'] ['ant', 'cat']
    """

    n_splits: int = 10
    _: KW_ONLY
    test_size: float = 0.2
    random_state: RandomState = None

    def _split_classes(self, classes: npt.NDArray) -> ClassSplits:
        """Return splits with test classes drawn at random."""
        check_integer("n_splits", self.n_splits, 1)
        splitter = ShuffleSplit(
            self.n_splits, test_size=self.test_size, random_state=self.random_state
        )
        splits = list(splitter.split(classes))
        train, test = splits[0]  # all splits have these sizes
        if min(len(train), len(test)) < MIN_CLASSES:
            raise ValueError(
                f"test_size={self.test_size} of {len(classes)} classes "
                f"leaves {len(train)} for training and {len(test)} for "
                f"testing, but both parts need at least {MIN_CLASSES}. "
                "Change test_size, or pass samples of more classes."
            )
        return splits
