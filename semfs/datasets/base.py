"""`ZeroShotDataset`: samples, labels, class descriptions and a class split."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from semfs._typing import Indices, Label, Mask, Matrix, RandomState
from semfs.attributes import align_attributes
from semfs.labels import Labels, encode_labels, label_array
from semfs.method.batches import batch_labels, offsets_of_samples
from semfs.system import memory_limit, size_text
from semfs.validation import ParameterError, check_distinct, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

#: Share of the memory that sparse samples may take when they are made dense.
DENSE_SHARE = 1 / 8


@dataclass(frozen=True, eq=False, repr=False)
class ZeroShotDataset:
    """Data set of samples, class labels, class descriptions and unseen classes.

    Parameters
    ----------
    name : str
        Short name that is used in tables and figures.
    X : array or sparse matrix of shape (n, d)
        Samples, one per row. Sparse input stays sparse, in CSR format.
    y : array-like of shape (n,)
        Class label of each sample. All labels must have the same hashable type.
    attributes : pandas.DataFrame of shape (C', m)
        Class descriptions, indexed by class label. Every class in ``y`` needs a row. Rows of
        classes without samples are allowed.
    unseen : array-like of class labels, default=()
        Classes whose labels must not be used for selection. All other classes are seen.
    feature_names : array-like of shape (d,), default=None
        Distinct names of the features. By default, they are named ``x0 … x(d-1)``.
    info : mapping, default=None
        Further data from the source, such as groups of samples. They are not used for
        selection.
    scale : bool, default=False
        Whether `split` divides each feature by its standard deviation over the samples of seen
        classes.
    impute : bool, default=False
        Whether `split` replaces missing values by the median of the feature over the samples of
        seen classes.
    batch : array-like of shape (n,), default=None
        Batch of each sample, such as its donor, plate or site. If batches are given, `split`
        subtracts from each sample the offset of its batch, and sparse X becomes dense. As in
        `semfs.SemFS`, offsets are estimated from the samples of seen classes. Samples of
        batches that contain no such sample do not change.

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

    # Any: given as any array-like, arrays after __post_init__.
    name: str
    X: Any
    y: Any
    attributes: pd.DataFrame
    unseen: Any = ()
    feature_names: Any = None
    info: Any = None
    scale: bool = False
    impute: bool = False
    batch: Any = None
    classes: npt.NDArray = field(init=False)  # (C,), the labels that have samples, sorted
    _codes: Indices = field(init=False)  # (n,), of each sample's class among them

    def __post_init__(self) -> None:
        """Check all fields and convert them to arrays."""
        if sparse.issparse(self.X):
            X = self.X.tocsr()  # of which some rows are taken cheaply
        else:
            X = np.asanyarray(self.X)  # a memmap is an ndarray, and stays on disk
        if X.ndim != 2:
            raise ValueError(f"X must have shape (n_samples, n_features), got shape {X.shape}.")
        if not hasattr(self.attributes, "columns"):
            raise ValueError(
                "attributes must be a pandas DataFrame with one row per class, indexed by "
                f"class label, got {type(self.attributes).__name__}."
            )
        classes, codes = encode_labels(self.y, n_samples=X.shape[0])
        align_attributes(self.attributes, classes)  # refuses a class without a row, a bad entry
        checked = {
            "X": X,
            "y": classes[codes],
            "unseen": _as_unseen(self.unseen, classes),
            "feature_names": _as_feature_names(self.feature_names, X.shape[1]),
            "info": dict(self.info or {}),
            "classes": classes,
            "_codes": codes,
        }
        if self.batch is not None:
            checked["batch"] = batch_labels(self.batch, X.shape[0])
        for key, value in checked.items():
            object.__setattr__(self, key, value)  # a frozen dataclass has no other way

    @property
    def seen(self) -> npt.NDArray:
        """Sorted labels of the seen classes."""
        return self.classes[~self._is_unseen()]

    def split(self) -> tuple[Matrix, npt.NDArray, Matrix, npt.NDArray]:
        """Return ``X_seen, y_seen, X_unseen, y_unseen`` with samples in the original order."""
        unseen = self._is_unseen()[self._codes]
        X_seen = self.X[~unseen]
        X_unseen = self.X[unseen]
        if self.impute:
            # As for the scale below, unseen samples must not decide.
            imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(X_seen)
            X_seen = imputer.transform(X_seen)
            X_unseen = imputer.transform(X_unseen)
        if self.scale:
            # Not centered, so that sparse samples stay sparse. Unseen samples must not decide
            # on the scale: they are not there when features are selected.
            scaler = StandardScaler(with_mean=False).fit(X_seen)
            X_seen = scaler.transform(X_seen)
            X_unseen = scaler.transform(X_unseen)
        if self.batch is not None:
            X_seen, X_unseen = self._without_batches(X_seen, X_unseen, unseen)
        return X_seen, self.y[~unseen], X_unseen, self.y[unseen]

    def _without_batches(
        self, X_seen: Matrix, X_unseen: Matrix, unseen: Mask
    ) -> tuple[Matrix, Matrix]:
        """Return the samples minus the offsets of their batches; ``unseen`` (n,) is a mask."""
        names = self.batch.class_array()
        of_seen = Labels.of(names[self.batch.codes[~unseen]]).sorted()
        if len(of_seen.classes) == 1:
            return X_seen, X_unseen
        labels = Labels.of(self.y[~unseen])
        found = offsets_of_samples(X_seen, labels, of_seen)
        # a row of zeros for batches without samples of seen classes
        offsets = np.zeros((len(names), found.shape[1]))
        place_of = {name: place for place, name in enumerate(self.batch.classes)}
        offsets[[place_of[name] for name in of_seen.classes]] = found
        codes = self.batch.codes
        return (
            _dense(X_seen) - offsets[codes[~unseen]],
            _dense(X_unseen) - offsets[codes[unseen]],
        )

    def with_unseen(self, classes: Iterable[Label]) -> Self:
        """Return the same data with other unseen classes."""
        return replace(self, unseen=classes)

    def random_splits(
        self, n_splits: int, n_unseen: int, random_state: RandomState = None
    ) -> Iterator[Self]:
        """Iterate over ``n_splits`` data sets, each with ``n_unseen`` random unseen classes.

        If there are few classes, some splits may be identical. Pass an int as ``random_state``
        to get the same splits every time.
        """
        rng = check_random_state(random_state)
        for _ in range(n_splits):
            drawn = rng.permutation(len(self.classes))[:n_unseen]
            # Sorted, so that the same set of classes is always the same split.
            yield self.with_unseen(self.classes[np.sort(drawn)])

    def every_split(self, n_seen: int = 2) -> Iterator[Self]:
        """Iterate over all choices of ``n_seen`` seen classes, with all other classes unseen.

        With two seen classes out of ten, these are the 45 splits of the paper's CIFAR10
        experiment.
        """
        for seen in itertools.combinations(range(len(self.classes)), n_seen):
            yield self.with_unseen(np.delete(self.classes, seen))

    def __repr__(self) -> str:
        """Return a text with the sizes, and the first classes with their numbers of samples."""
        n_samples, n_features = self.X.shape
        n_attributes = self.attributes.shape[1]
        sizes = np.bincount(self._codes).tolist()
        seen_texts: list[str] = []
        unseen_texts: list[str] = []
        for label, size, unseen in zip(self.classes.tolist(), sizes, self._is_unseen()):
            texts = unseen_texts if unseen else seen_texts
            texts.append(f"{label} [{size}]")
        lines = [
            f"ZeroShotDataset {self.name!r}: {n_samples} samples × {n_features} features, "
            f"{len(sizes)} classes × {n_attributes} attributes",
            f"  seen ({len(seen_texts)}): {_shorten(seen_texts)}",
            f"  unseen ({len(unseen_texts)}): {_shorten(unseen_texts)}",
        ]
        return "\n".join(lines).rstrip()

    def _is_unseen(self) -> Mask:
        """Return a mask (C,) of the unseen classes."""
        unseen = set(self.unseen.tolist())
        return np.array([label in unseen for label in self.classes.tolist()])


def _dense(X: Matrix) -> npt.NDArray[Any]:
    """Return X as a dense array, from which offsets are subtracted."""
    if not sparse.issparse(X):
        return np.asarray(X)
    n_bytes = X.shape[0] * X.shape[1] * np.dtype(np.float64).itemsize
    if n_bytes > DENSE_SHARE * memory_limit():
        raise ParameterError(
            "batch",
            ": removing the offsets of batches makes the samples dense, "
            f"which takes {size_text(n_bytes)}, more than this machine "
            "can hold. Compare fewer features (candidates).",
        )
    rows: Any = X
    dense: npt.NDArray[Any] = rows.toarray()
    return dense


def _as_unseen(unseen: Iterable[Label], classes: npt.NDArray) -> npt.NDArray:
    """Return the labels of the unseen classes; each must be one of ``classes`` (C,)."""
    if isinstance(unseen, str):
        raise ValueError(
            f"unseen must be a list of class labels, got text. Write [{unseen!r}] for one "
            "class."
        )
    labels = [label.item() if isinstance(label, np.generic) else label for label in unseen]
    known = classes.tolist()
    unknown = [label for label in labels if label not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known) or "."
        raise ValueError(
            f"unseen names class {unknown[0]!r}, which has no samples in y{hint} "
            f"Known classes: {_shorten([repr(k) for k in known], limit=12)}."
        )
    check_distinct(labels, "unseen names class {} more than once.")
    if len(labels) == len(known):
        raise ValueError(f"all {len(known)} classes are unseen. Leave at least one seen class.")
    return label_array(labels)


def _as_feature_names(names: npt.ArrayLike | None, n_features: int) -> npt.NDArray[np.object_]:
    """Return the name of each feature (d,), which is x0, x1, … by default."""
    if names is None:
        names = [f"x{j}" for j in range(n_features)]
    found = np.asarray(names, dtype=object).reshape(-1)
    if len(found) != n_features:
        raise ValueError(
            f"X has {n_features} columns, but there are {len(found)} "
            "feature names. Give one name for each column."
        )
    check_distinct(
        found.tolist(), "feature_names has {} more than once. Make the names distinct."
    )
    return found


def _shorten(words: Sequence[str], limit: int = 8) -> str:
    shown = ", ".join(words[:limit])
    return f"{shown}, …" if len(words) > limit else shown
