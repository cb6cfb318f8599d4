"""`ZeroShotDataset`: rows, labels, class descriptions and a class split."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from semfs.attributes import align_attributes
from semfs.labels import encode_labels, label_array
from semfs.validation import check_distinct, did_you_mean


@dataclass(frozen=True, eq=False, repr=False)
class ZeroShotDataset:
    """Samples, their labels, a description of each class, and which classes are unseen.

    Parameters
    ----------
    name : str
        Short name, used in tables and figures.
    X : array or sparse matrix of shape (n, d)
        One row per sample. Sparse input is kept sparse, as CSR.
    y : array-like of shape (n,)
        Class label of each row; of any one hashable type.
    attributes : pandas.DataFrame of shape (C', m)
        One row per class, indexed by class label. Rows for classes without samples are
        kept and do no harm; a class in ``y`` without a row is an error.
    unseen : array-like of class labels, default=()
        Classes whose labels must not be used for selection. The others are seen.
    feature_names : array-like of shape (d,), default=None
        Distinct names; ``x0 … x(d-1)`` if not given.
    info : mapping, default=None
        What else the source tells, such as groups of rows; not used for selection.
    scale : bool, default=False
        `split` divides columns by their standard deviation in the seen rows.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"legs": [4, 6, 2]}, index=["cat", "ant", "hen"])
    >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]
    >>> data = ZeroShotDataset("farm", X, ["cat", "ant", "hen", "cat"], table, unseen=["hen"])
    >>> data
    ZeroShotDataset 'farm': 4 samples × 2 features, 3 classes × 1 attributes
      seen (2): ant [1], cat [2]
      unseen (1): hen [1]
    >>> X_seen, y_seen, X_unseen, y_unseen = data.split()
    >>> y_seen
    array(['cat', 'ant', 'cat'], dtype='<U3')
    >>> data.with_unseen(["cat"]).seen
    array(['ant', 'hen'], dtype='<U3')
    """

    name: str
    X: Any
    y: Any
    attributes: Any
    unseen: Any = ()
    feature_names: Any = None
    info: Any = None
    scale: bool = False
    classes: np.ndarray = field(init=False)  # (C,), the labels that have samples, sorted
    _codes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        # CSR: its rows can be taken out cheaply; a memmap is an ndarray and stays on disk
        X = self.X.tocsr() if sparse.issparse(self.X) else np.asanyarray(self.X)
        if X.ndim != 2:
            raise ValueError(f"X must have shape (n_samples, n_features), got shape {X.shape}.")
        if not hasattr(self.attributes, "columns"):
            raise ValueError(
                "attributes must be a pandas DataFrame with one row per class, indexed by "
                f"class label, got {type(self.attributes).__name__}."
            )
        classes, codes = encode_labels(self.y, n_samples=X.shape[0])
        align_attributes(self.attributes, classes)  # names a class without a row, a bad entry
        checked = {"X": X, "y": classes[codes], "classes": classes, "_codes": codes}
        checked["unseen"] = _as_unseen(self.unseen, classes)
        checked["feature_names"] = _as_feature_names(self.feature_names, X.shape[1])
        checked["info"] = dict(self.info or {})
        for key, value in checked.items():
            object.__setattr__(self, key, value)  # the way into a frozen dataclass

    @property
    def seen(self) -> np.ndarray:
        """Labels of the classes that are not unseen, sorted."""
        return self.classes[~self._is_unseen()]

    def split(self) -> tuple[Any, np.ndarray, Any, np.ndarray]:
        """Return ``X_seen, y_seen, X_unseen, y_unseen``, rows in their original order."""
        rows = self._is_unseen()[self._codes]
        X, X_unseen = self.X[~rows], self.X[rows]
        if self.scale:
            scaler = StandardScaler(with_mean=False).fit(X)
            X, X_unseen = scaler.transform(X), scaler.transform(X_unseen)
        return X, self.y[~rows], X_unseen, self.y[rows]

    def with_unseen(self, classes: Any) -> Self:
        """Return the same data with other unseen classes."""
        return replace(self, unseen=classes)

    def random_splits(
        self, n_splits: int, n_unseen: int, random_state: Any = None
    ) -> Iterator[Self]:
        """Iterate over ``n_splits`` data sets with ``n_unseen`` random classes unseen in each.

        Two may be equal when there are few classes; ``random_state`` is an int for the same
        splits every time.
        """
        rng, n = check_random_state(random_state), len(self.classes)
        draws = (np.sort(rng.permutation(n)[:n_unseen]) for _ in range(n_splits))
        return (self.with_unseen(self.classes[draw]) for draw in draws)

    def every_split(self, n_seen: int = 2) -> Iterator[Self]:
        """Iterate over all choices of ``n_seen`` seen classes; the others are unseen.

        Ten classes with two seen give the 45 splits of the paper's CIFAR10 experiment.
        """
        choices = itertools.combinations(range(len(self.classes)), n_seen)
        return (self.with_unseen(np.delete(self.classes, seen)) for seen in choices)

    def __repr__(self) -> str:
        (n, d), m = self.X.shape, self.attributes.shape[1]
        unseen, times = self._is_unseen(), np.bincount(self._codes)
        sized = np.array([f"{label} [{k}]" for label, k in zip(self.classes.tolist(), times)])
        return (
            f"ZeroShotDataset {self.name!r}: {n} samples × {d} features, {len(sized)} classes "
            f"× {m} attributes\n  seen ({(~unseen).sum()}): {_shorten(sized[~unseen])}\n"
            f"  unseen ({unseen.sum()}): {_shorten(sized[unseen])}"
        ).rstrip()

    def _is_unseen(self) -> np.ndarray:
        unseen = set(self.unseen.tolist())
        return np.array([label in unseen for label in self.classes.tolist()])


def _as_unseen(unseen: Any, classes: np.ndarray) -> np.ndarray:
    if isinstance(unseen, str):
        raise ValueError(f"unseen must be a list of class labels; write [{unseen!r}].")
    labels = [v.item() if isinstance(v, np.generic) else v for v in unseen]
    known = classes.tolist()
    if unknown := [label for label in labels if label not in known]:
        hint = did_you_mean(unknown[0], known) or "."
        raise ValueError(
            f"unseen names class {unknown[0]!r}, which has no samples in y{hint} "
            f"Known classes: {_shorten([repr(k) for k in known], limit=12)}."
        )
    check_distinct(labels, "unseen names class {} more than once.")
    if len(labels) == len(known):
        raise ValueError(f"all {len(known)} classes are unseen. Leave at least one class seen.")
    return label_array(labels)


def _as_feature_names(names: Any, n_features: int) -> np.ndarray:
    names = [f"x{j}" for j in range(n_features)] if names is None else names
    names = np.asarray(names, dtype=object).reshape(-1)
    if len(names) != n_features:
        raise ValueError(f"X has {n_features} columns but {len(names)} names. Name each one.")
    check_distinct(names.tolist(), "feature_names has {} more than once. Make them distinct.")
    return names


def _shorten(words: Any, limit: int = 8) -> str:
    return ", ".join(words[:limit]) + (", …" if len(words) > limit else "")
