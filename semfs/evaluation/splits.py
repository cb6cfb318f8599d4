"""Splits that hold out whole classes, wherever scikit-learn takes ``cv=``."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, KFold, ShuffleSplit

from semfs.labels import encode_labels
from semfs.validation import check_integer


class _ClassSplitter(BaseCrossValidator):
    """Splits the classes as another splitter would split rows: by ``_split_classes``, the
    positions of the training and of the test classes of each split."""

    n_splits: int

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits."""
        return self.n_splits

    def _iter_test_masks(self, X: Any, y: Any, groups: Any) -> Iterator[np.ndarray]:
        """Yield for each split which rows (n,) are of its test classes."""
        classes, codes = encode_labels(y)
        for _, test_classes in self._split_classes(classes):
            yield np.isin(codes, test_classes)


@dataclass(eq=False, repr=False)
class ClassKFold(_ClassSplitter):
    """Cross-validation that holds out whole classes: K folds of classes.

    Each class is in the test part once. Use it as ``cv=`` with a ``scoring=`` such as
    `cluster_scorer`: a classifier's own score is zero on classes it has never seen.

    Parameters
    ----------
    n_splits : int
    shuffle : bool
        Deal the classes at random; otherwise neighbors in sorted order share a fold.
    random_state : int, RandomState or None
        Used with ``shuffle=True``.

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
    random_state: Any = None

    def _split_classes(self, classes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        folds = KFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        if len(classes) < 2 * self.n_splits:
            raise ValueError(
                f"y has {len(classes)} classes, too few for n_splits={self.n_splits}: each "
                "fold needs at least 2 classes to tell apart. "
                f"Use n_splits={len(classes) // 2} or less."
            )
        return list(folds.split(classes))


@dataclass(eq=False, repr=False)
class ClassShuffleSplit(_ClassSplitter):
    """Random splits that hold out whole classes.

    Parameters
    ----------
    n_splits : int
    test_size : float or int
        Share of the classes (rounded up) or number of classes in the test part.
    random_state : int, RandomState or None

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
    random_state: Any = None

    def _split_classes(self, classes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        check_integer("n_splits", self.n_splits, 1)
        how = {"test_size": self.test_size, "random_state": self.random_state}
        found = list(ShuffleSplit(self.n_splits, **how).split(classes))
        n_train, n_test = map(len, found[0])
        if min(n_train, n_test) < 2:
            raise ValueError(
                f"test_size={self.test_size} of {len(classes)} classes leaves {n_train} for "
                f"training and {n_test} for testing; both parts need at least 2. "
                "Change test_size, or pass rows of more classes."
            )
        return found
