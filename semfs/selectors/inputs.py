"""What users hand to `fit`, `transform` and `predict`, understood once.

`classify` is the only place that asks what an object is. `FitInput.from_user` turns what it
finds into row sources with encoded labels; from there on, samples in memory, in files and on a
cluster go the same way. `selected_blocks` does the same for samples to predict or transform.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from semfs._typing import (
    ArrayLike,
    AttributesLike,
    DataLike,
    Float64,
    Indices,
    Label,
    LabelsLike,
    Mask,
    Matrix,
    Sparse,
)
from semfs.attributes import as_attribute_table
from semfs.io import reader as readers
from semfs.io.anndata import as_genes
from semfs.io.pairs import is_pairs
from semfs.io.registry import is_frame, is_stored
from semfs.labels import LEFT_OUT, UNLABELED, LabelArray, Labels
from semfs.method.batches import Pairs, batch_labels, pair_labels, remove_batches
from semfs.method.moments import Moments
from semfs.rows import (
    BlockSource,
    DeviceRows,
    MemoryRows,
    OutOfCoreRows,
    Preprocessing,
    beyond_memory,
    column_places,
    in_blocks,
    in_memory,
    is_foreign,
    open_blocks,
    open_unlabeled,
)
from semfs.rows.blocks import check_classes
from semfs.rows.cluster import dask_blocks, dask_rows, is_dask, unlabeled_dask_rows
from semfs.rows.device import floating_dtypes, to_numpy
from semfs.rows.opening import column_labels, table_columns
from semfs.selectors.missing import fill_with_class_means, fill_with_means
from semfs.system import memory_limit, size_text
from semfs.validation import (
    ParameterError,
    ParameterWarning,
    check_all_finite,
    check_unique_names,
    check_weights,
    did_you_mean,
    listed,
)

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

#: Labeled samples in memory, or on a device.
InMemory: TypeAlias = MemoryRows | DeviceRows

_Unlabeled = TypeVar("_Unlabeled", bound=MemoryRows)

#: Largest and smallest numbers whose squares, and products of these, are float64.
LARGEST = 1e100
#: The same for products of X and the attributes: B = X'A enters the gains squared.
LARGEST_PRODUCT = 1e140
#: float32 data beyond this, or below its inverse, are taken as float64: sums of their squares
#: leave the range of float32 (3e38).
LARGEST_FLOAT32 = 1e15
#: What to do about numbers of unusual size.
RESCALE = "Rescale X and the attributes, for example to unit variance: squares lose digits."
#: scikit-learn's warning about data without names; we compare the names of files ourselves.
NO_NAMES = "X does not have valid feature names"
#: Types that a validated matrix may have.
FLOATS = [np.float64, np.float32]
#: The preprocessing of data that are taken as they are.
NOTHING = Preprocessing()


class Kind(enum.Enum):
    """What a user may hand over as samples."""

    MATRIX = "an array, list, sparse matrix, frame or device array, in memory"
    LABELED_FRAME = "a frame that holds the labels in one of its columns"
    STORED = "a path, AnnData or lazy frame, to be opened"
    MAPPED = "a large memory-mapped array, to be read in blocks"
    PAIRS = "(X, y) blocks"
    SOURCE = "a row source, opened already"
    DASK = "a Dask collection"


def classify(data: DataLike, y: Any = None) -> Kind:
    """Return what the data are; ``y`` tells frames with a label column and (X, y) blocks."""
    if beyond_memory(data):
        return Kind.SOURCE
    if is_dask(data):
        return Kind.DASK
    if is_stored(data):
        return Kind.STORED
    # a name in y is a column of the frame, unless y is a label for each row
    if is_frame(data) and isinstance(y, str):
        return Kind.LABELED_FRAME
    if isinstance(data, np.memmap):
        numeric = data.ndim == 2 and data.dtype.kind in "fiub"
        large = data.nbytes > readers.MEMORY // 2
        return Kind.MAPPED if numeric and large else Kind.MATRIX
    if y is None and is_pairs(data):
        return Kind.PAIRS
    return Kind.MATRIX


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples in memory as they were passed or loaded, before they are validated."""

    X: Any
    labels: Labels | None
    weights: ArrayLike | None = None
    names: Sequence[str] | None = None  # of the features, where they are not in X
    preprocessing: Preprocessing = NOTHING
    batches: Labels | None = None

    @classmethod
    def load(cls, source: OutOfCoreRows) -> Samples:
        """Return all samples of a source, with sorted classes."""
        X, labels, weights = source.load()
        names = source.feature_names
        batches = source.batches
        if batches is not None and len(batches) > len(labels):
            # samples that are left out were not loaded
            known = source.labels_known().labels
            assert known is not None
            batches = Labels(batches.classes, batches.codes[known.codes != LEFT_OUT])
        return cls(
            X,
            labels.checked(),
            weights,
            names,
            preprocessing_of(source),
            batches,
        )

    @classmethod
    def from_user(cls, X: DataLike, y: LabelsLike | str | None) -> Samples:
        """Return samples of any kind in memory; labels are None without y."""
        kind = classify(X, y)
        # these are in memory, or look as if they were
        if kind in (Kind.MATRIX, Kind.MAPPED, Kind.PAIRS):
            return cls(X, None if y is None else Labels.from_target(to_numpy(y)))
        # a file without labels has no source of labeled samples
        if y is None and kind is Kind.STORED:
            unlabeled = open_unlabeled(X)
            return cls(unlabeled.reader.load(), None, None, unlabeled.feature_names)
        return cls.load(_open(kind, X, y, None))


@dataclass(frozen=True, eq=False)
class UnlabeledRows(MemoryRows):
    """Unlabeled samples in memory. Features that some of them lack are zero in all."""

    present: Mask | None = None  # (d,), whether all samples have a feature; None: they do


@dataclass(frozen=True)
class UnlabeledStream:
    """Unlabeled samples beyond memory."""

    rows: OutOfCoreRows  # has the unlabeled samples among others, labels known
    seen: OutOfCoreRows | None  # has samples of the seen classes; None if these are in memory
    options: dict[str, Any]  # that sums over samples take

    @property
    def labels(self) -> Labels:
        """Labels of the rows."""
        assert self.rows.labels is not None
        return self.rows.labels


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Sums over labeled samples, and unlabeled samples: what a problem is built from."""

    moments: Moments
    unlabeled: MemoryRows | UnlabeledStream | None = None
    X: Matrix | None = None  # labeled samples as validated, None beyond memory
    preprocessing: Preprocessing = NOTHING
    batched: bool = False  # whether the moments are those of pairs (class, batch)

    @property
    def classes(self) -> LabelArray:
        """The seen classes (C,)."""
        classes = self.moments.classes
        return Pairs.from_labels(classes).classes if self.batched else classes

    def corrected(self, *, refuse: bool = True) -> TrainingData:
        """Return the data with moments of classes, from which batches are removed.

        ``refuse`` classes that are the batches; otherwise these are named in a warning.
        """
        if not self.batched:
            return self
        moments = remove_batches(self.moments, check=True, refuse=refuse)
        return replace(self, moments=moments, batched=False)


@dataclass(frozen=True, eq=False)
class FitInput:
    """What a user handed to `fit`, labels encoded."""

    rows: InMemory | OutOfCoreRows  # labeled samples; beyond memory also unlabeled ones
    classes: LabelArray | None  # sorted labels of samples in memory
    n_features: int
    feature_names: Sequence[str] | None
    unlabeled: MemoryRows | OutOfCoreRows | None  # unlabeled samples beside the rows
    described: Sequence[Label]  # classes of the attribute table
    preprocessing: Preprocessing
    original: Any = None  # X before it was validated, whose rows and columns errors name
    batched: bool = False  # whether labels of the rows are pairs (class, batch)

    @classmethod
    def from_user(
        cls,
        estimator: BaseEstimator,
        X: DataLike,
        y: LabelsLike | str | None,
        sample_weight: ArrayLike | None = None,
        X_unlabeled: DataLike = None,
        *,
        batch: LabelsLike | str | None = None,
        batch_unlabeled: LabelsLike | str | None = None,
        reset: bool = True,
    ) -> FitInput:
        """Return the input of a fit, validated.

        The estimator learns the number and the names of the features; with ``reset=False``
        they must be those it knows.
        """
        described = described_classes(getattr(estimator, "attributes", None))
        gaps = fills_gaps(estimator)
        X_unlabeled, beside_batch = batch_of(X_unlabeled, batch_unlabeled, "batch_unlabeled")
        kind = classify(X, y)
        has_batches = batch is not None
        if beyond_memory(X):
            has_batches |= X.batches is not None
        if X_unlabeled is not None and has_batches != (batch_unlabeled is not None):
            raise ValueError(_BOTH_BATCHES)
        X, found_batch = batch_of(X, batch, "batch")
        if kind is Kind.MATRIX:
            labels = Labels.from_target(to_numpy(y), described=described)
            batches = None
            if found_batch is not None:
                batches = batch_labels(found_batch, len(labels))
            samples = Samples(X, labels, to_numpy(sample_weight), batches=batches)
        else:
            drop = table_columns(X, batch) if kind is Kind.STORED else []
            opened = _open(kind, X, y, sample_weight, drop, gaps)
            source = _with_marks(_with_batches(opened, found_batch), described)
            if gaps and not source.fits_in_memory:
                raise ParameterError("missing_values", _NEED_MEMORY)
            # small files are loaded: passes over memory take less time
            if not source.fits_in_memory:
                return cls._beyond_memory(
                    estimator, source, X_unlabeled, beside_batch, described, reset
                )
            samples = Samples.load(source)
        return cls._of_samples(
            estimator,
            samples,
            X_unlabeled,
            beside_batch,
            described,
            reset,
        )

    @classmethod
    def _of_samples(
        cls,
        estimator: BaseEstimator,
        samples: Samples,
        X_unlabeled: DataLike,
        batch_unlabeled: Any,
        described: Sequence[Label],
        reset: bool,
    ) -> FitInput:
        """The input of a fit in memory."""
        assert samples.labels is not None
        original = without_text_columns(samples.X, warn=reset)
        X = training_matrix(estimator, original, samples.names, reset=reset)
        # validation may have dropped columns; errors count those of the user
        with place_of_nan(original, samples.names):
            rows, hidden, classes = _split(
                X,
                samples.labels,
                samples.weights,
                samples.batches,
            )
            if fills_gaps(estimator):
                names = getattr(estimator, "feature_names_in_", None)
                rows, hidden = _without_gaps(rows, hidden, classes, names)
            if hidden is not None and _has_nonfinite(hidden.X):
                check_all_finite(hidden.X)
        beside = _unlabeled_source(estimator, X_unlabeled, samples.preprocessing)
        beside = _with_unlabeled_batches(beside, batch_unlabeled, samples.batches)
        unlabeled: MemoryRows | OutOfCoreRows | None
        if beyond_memory(beside):
            if hidden is not None:
                raise ValueError(_TWO_KINDS)
            unlabeled = beside
        else:
            # clusters are found by scikit-learn, in numpy
            if is_foreign(X) and beside is not None:
                raise ValueError(_NEED_NUMPY)
            if fills_gaps(estimator) and in_memory(rows):
                beside = _filled_unlabeled(beside, rows)
            unlabeled = _joined(hidden, beside)
        return cls(
            rows=rows,
            classes=classes,
            n_features=X.shape[1],
            feature_names=getattr(estimator, "feature_names_in_", None),
            unlabeled=unlabeled,
            described=described,
            preprocessing=samples.preprocessing,
            original=original,
            batched=samples.batches is not None,
        )

    @classmethod
    def _beyond_memory(
        cls,
        estimator: BaseEstimator,
        source: OutOfCoreRows,
        X_unlabeled: DataLike,
        batch_unlabeled: Any,
        described: Sequence[Label],
        reset: bool,
    ) -> FitInput:
        """The input of a fit to a source that is read in blocks."""
        _check_features(estimator, source, reset=reset)
        beside = _unlabeled_source(estimator, X_unlabeled, preprocessing_of(source))
        if in_memory(beside):
            if getattr(beside, "present", None) is not None:
                raise ParameterError("X_unlabeled", _NEED_FEATURES)
            beside = open_blocks(beside.X, np.full(len(beside.codes), np.nan))
        beside = _with_unlabeled_batches(beside, batch_unlabeled, source.batches)
        batched = source.batches is not None
        if source.batches is not None:
            assert source.labels is not None
            # class labels are checked now, because pairs of them could be anything
            check_classes(source.labels)
            source = source.with_labels(pair_labels(source.labels, source.batches))
        return cls(
            source,
            None,
            source.n_features,
            source.feature_names,
            beside,
            described,
            preprocessing_of(source),
            batched=batched,
        )

    def summed(self, options: dict[str, Any]) -> TrainingData:
        """Return the sums that a fit needs; ``options`` are those of sums beyond memory.

        With batches they are those of pairs (class, batch): see `TrainingData.corrected`.
        """
        source = self.rows
        if not beyond_memory(source):
            moments = self._memory_moments
            unlabeled: MemoryRows | UnlabeledStream | None
            if beyond_memory(self.unlabeled):
                unlabeled = UnlabeledStream(self.unlabeled.labels_known(), None, options)
            else:
                unlabeled = self.unlabeled
            return TrainingData(
                moments,
                unlabeled,
                source.X,
                self.preprocessing,
                self.batched,
            )
        # the pass over the data that every fit needs
        sums, reread = source.sums(**options)
        if UNLABELED in sums.classes and UNLABELED not in self.described:
            # the blocks brought their labels along, and some are marks
            source = _with_marks(source.labels_known(), self.described)
            sums, reread = source.sums(**options)
        moments = Moments.from_sums(sums, reread)
        check_range(moments)
        return TrainingData(
            moments,
            self._stream(source, sums.n_unlabeled > 0, options),
            None,
            self.preprocessing,
            self.batched,
        )

    def sample(self, n: int) -> Moments:
        """Return moments of labeled samples in memory: all, or n at random beyond memory.

        Batches are removed from them.
        """
        moments = self._sampled_moments(n)
        return remove_batches(moments) if self.batched else moments

    def _sampled_moments(self, n: int) -> Moments:
        """The same before batches are removed."""
        if not beyond_memory(self.rows):
            return self._memory_moments
        # a search tries many settings, each of which would read the file
        X, found = self.rows.labels_known().sample(n, labeled=True)
        labels = found.checked()
        codes = labels.codes.astype(np.intp)
        return range_checked_moments(X, codes, labels.class_array(), None)

    @cached_property
    def _memory_moments(self) -> Moments:
        """Moments of the labeled samples, summed up once for all fits to this input."""
        rows = self.rows
        assert self.classes is not None
        assert not beyond_memory(rows)
        with place_of_nan(self.original, self.feature_names):
            return range_checked_moments(
                rows.X,
                rows.codes,
                self.classes,
                rows.weights,
            )

    def _stream(
        self, source: OutOfCoreRows, has_unlabeled: bool, options: dict[str, Any]
    ) -> UnlabeledStream | None:
        """Unlabeled samples of a fit beyond memory, from X or from X_unlabeled."""
        beside = self.unlabeled
        if has_unlabeled and beside is not None:
            raise ValueError(_TWO_KINDS)
        if beside is None and not has_unlabeled:
            return None
        rows = source
        if beyond_memory(beside):
            rows = beside
        return UnlabeledStream(rows.labels_known(), source.labels_known(), options)


_BOTH_BATCHES = (
    "batch and batch_unlabeled belong together: unlabeled samples are corrected by the means "
    "of their batches. Pass both (the same value for all samples if they are of one batch)."
)
_NEED_NUMPY = "unlabeled rows need numpy or sparse X. Convert X, or drop them."
_TWO_KINDS = (
    "some rows of X have no label and X_unlabeled is given as well. Beyond memory "
    "only one of them can be used: put these rows together."
)
_NEED_MEMORY = (
    ': "class-mean" needs samples that fit into memory. Fill the gaps of larger files first.'
)
_NEED_FEATURES = (
    "lacks features of X. With X beyond memory that is not possible: give both the same "
    "features."
)


def fills_gaps(estimator: BaseEstimator) -> bool:
    """Whether the estimator fills missing values of X instead of refusing them."""
    return getattr(estimator, "missing_values", "error") != "error"


def described_classes(attributes: AttributesLike | None) -> Sequence[Label]:
    """Return the labels an attribute table has rows for; an array has none but 0, 1, …"""
    # row r of an array describes label r, so that -1 cannot be described
    if attributes is None or isinstance(attributes, (np.ndarray, list, tuple)):
        return ()
    return as_attribute_table(attributes).classes.tolist()


# ---- samples in memory ----------------------------------------------------------------


def training_matrix(
    estimator: BaseEstimator,
    X: DataLike,
    names: Sequence[str] | None = None,
    *,
    accept_sparse: Any = ("csr", "csc"),
    finite: bool = False,
    reset: bool = True,
) -> Matrix:
    """Return X (n, d) as scikit-learn's `validate_data` does, in float32 or float64.

    Columns of a frame that hold no numbers are left out, and named in a warning. Whether
    numbers are finite is checked only if ``finite``: sums over them show it as well.
    """
    X = without_text_columns(X, warn=reset)
    known = getattr(estimator, "feature_names_in_", None)
    # files may have more columns, or the same in another order
    if not reset and names is not None and known is not None:
        X = X[:, column_places(names, known)]
    if str(getattr(X, "dtype", "")) == "float16":
        X = X.astype(np.float32)  # half precision is for storage, not for sums
    if sp.issparse(X) and not accept_sparse and names is not None:
        X = _dense(X, type(estimator).__name__)
    options = {
        "accept_sparse": accept_sparse,
        "dtype": floating_dtypes(X) or FLOATS,
        "ensure_all_finite": finite,
    }
    # scikit-learn adds up all numbers, of which some may be huge
    quiet = np.errstate(invalid="ignore")
    with warnings.catch_warnings(), quiet, place_of_nan(X, names):
        if names is not None:  # they were compared when the file was read
            warnings.filterwarnings("ignore", NO_NAMES)
        checked = validate_data(estimator, X, reset=reset, **options)
    if reset and names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return checked


def without_text_columns(X: DataLike, *, warn: bool = False) -> Any:
    """Return a frame without its columns of text; anything else as it is."""
    if not is_frame(X):
        return X
    frame: Any = X  # of pandas or polars, which share no base class
    check_unique_names(frame.columns)
    # of pandas by place, because two columns may have one name
    by_place = getattr(frame, "iloc", frame)
    columns = [by_place[:, j] for j in range(frame.shape[1])]
    numeric = [j for j, column in enumerate(columns) if _is_numeric(column)]
    if len(numeric) == len(columns):
        return frame
    names = [str(name) for name in frame.columns]
    texts = [repr(name) for j, name in enumerate(names) if j not in numeric]
    if not numeric:
        raise ValueError(f"X has no column of numbers, only {listed(texts)}.")
    if warn:
        message = f"ignored non-numeric columns of X: {listed(texts)}."
        warnings.warn(message, stacklevel=2)
    return by_place[:, numeric]


def _is_numeric(column: Any) -> bool:
    """Whether a column of a frame holds numbers; of objects, whether all are."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf":
        return True
    # times are no measurements
    if kind in "Mm":
        return False
    try:
        np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        # a missing value is refused later, in words of its own
        return bool(len(column)) and all(_is_number(value) for value in column)
    return True


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, (int, float)) or type(value).__name__ == "NAType"


def _dense(X: Sparse, name: str) -> Float64:
    """A sparse matrix of a file as a dense one, if there is room for it."""
    size = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if size > memory_limit() // 4:
        raise ValueError(
            f"{name} needs dense data, which would take {size_text(size)}. Choose fewer genes "
            "or cells, or another selector."
        )
    return X.toarray()


@contextmanager
def place_of_nan(
    X: DataLike, names: Sequence[str] | None = None, what: str = "X"
) -> Iterator[None]:
    """If the block raises because of a NaN or an infinity in X, say where it is."""
    try:
        yield
    except ParameterError:  # which knows better what is wrong
        raise
    except ValueError:
        if _has_nonfinite(X):
            check_all_finite(to_numpy(X), names, what)
        raise


def _has_nonfinite(X: DataLike) -> bool:
    """Whether X is a matrix of numbers with a NaN or infinity among them."""
    try:
        matrix: Any = X
        if sp.issparse(X):
            values = matrix.data
        else:
            values = np.asarray(to_numpy(matrix), dtype=np.float64)
        # an empty matrix has neither
        return values.size > 0 and not np.isfinite(values).all()
    except (TypeError, ValueError):
        return False


def _split(
    X: Matrix, labels: Labels, weights: ArrayLike | None, batches: Labels | None = None
) -> tuple[InMemory, MemoryRows | None, LabelArray]:
    """Labeled samples, unlabeled samples or None, and the classes.

    With batches, the classes are pairs (class, batch), and codes of unlabeled samples batches.
    """
    n = X.shape[0]
    labels.check_length(n)
    checked = check_weights(weights, n)
    if not labels.classes:
        raise ValueError(
            f"no row has a label: all {n} values of y are -1, None, NaN or NA. Pass those of "
            "the seen classes."
        )
    if batches is not None:
        labels = pair_labels(labels, batches)
    make_rows = DeviceRows if is_foreign(X) else MemoryRows
    # codes are class numbers from 0; UNLABELED and LEFT_OUT are negative
    hidden = labels.codes == UNLABELED
    if not hidden.any():
        rows = make_rows(X, labels.codes.astype(np.intp), checked)
        return rows, None, labels.class_array()
    if is_foreign(X):
        raise ValueError(_NEED_NUMPY)
    # LEFT_OUT samples are in neither part
    seen = np.flatnonzero(labels.codes >= 0)
    seen_weights = None if checked is None else checked[seen]
    rows = MemoryRows(X[seen], labels.codes[seen].astype(np.intp), seen_weights)
    unlabeled = _unlabeled_rows(X, np.flatnonzero(hidden), checked, batches)
    return rows, unlabeled, labels.class_array()


def _unlabeled_rows(
    X: Matrix, places: Indices, weights: Float64 | None, batches: Labels | None
) -> MemoryRows:
    """The samples of X at some places, without those of weight 0: they must not matter."""
    if weights is not None:
        places = places[weights[places] > 0]
        weights = weights[places]
    codes = np.zeros(len(places), dtype=np.intp)
    if batches is not None:
        codes = batches.codes[places].astype(np.intp)
    return MemoryRows(X[places], codes, weights)


def _without_gaps(
    rows: InMemory, hidden: MemoryRows | None, classes: LabelArray, names: Sequence[str] | None
) -> tuple[MemoryRows, MemoryRows | None]:
    """Labeled samples, and unlabeled ones of X, with their missing values filled."""
    if not in_memory(rows) or sp.issparse(rows.X):
        message = ': "class-mean" needs dense numpy data. Convert X, or fill its gaps first.'
        raise ParameterError("missing_values", message)
    X = fill_with_class_means(rows.X, rows.codes, classes, rows.weights, names)
    filled = replace(rows, X=X)
    return filled, _filled_unlabeled(hidden, filled)


def _filled_unlabeled(unlabeled: _Unlabeled | None, rows: MemoryRows) -> _Unlabeled | None:
    """Unlabeled samples whose missing values are filled; ``rows`` are the labeled ones."""
    if unlabeled is None or sp.issparse(unlabeled.X):
        return unlabeled
    return replace(unlabeled, X=fill_with_means(unlabeled.X, rows.X.mean(axis=0)))


def _joined(first: MemoryRows | None, second: UnlabeledRows | None) -> MemoryRows | None:
    """Unlabeled samples of X, then those of X_unlabeled."""
    if first is None or second is None:
        return second if first is None else first
    if sp.issparse(first.X):
        X = sp.vstack([first.X, sp.csr_array(second.X)], format="csr")
    else:
        X_second = second.X.toarray() if sp.issparse(second.X) else second.X
        X = np.concatenate([first.X, X_second])
    weights = first.weights
    if weights is not None:
        # X_unlabeled has no weights: each of its samples counts once
        weights = np.append(weights, np.ones(len(second.codes)))
    if second.present is not None:
        # the same for all of them, so that it cannot separate one part from the other
        X = Preprocessing(scale=second.present.astype(np.float64)).apply(X)
    codes = np.append(first.codes, second.codes)
    return UnlabeledRows(X, codes, weights, second.present)


def _with_unlabeled_batches(
    rows: MemoryRows | OutOfCoreRows | None, values: Any, known: Labels | None
) -> Any:
    """Samples of X_unlabeled with their batches, numbered as those of X where they are known.

    In memory the codes of unlabeled samples are their batches.
    """
    if rows is None or values is None:
        return rows
    n = len(rows.codes) if in_memory(rows) else len(_labels_of(rows))
    found = batch_labels(values, n, "batch_unlabeled")
    names = list(found.classes if known is None else known.classes)
    names += [batch for batch in found.classes if batch not in names]
    # one numbering for unlabeled samples of X and of X_unlabeled, which are joined
    place = np.array([names.index(batch) for batch in found.classes], dtype=np.int32)
    codes = place[found.codes]
    if in_memory(rows):
        return replace(rows, codes=codes.astype(np.intp))
    return replace(rows, batches=Labels(names, codes))


def _labels_of(source: OutOfCoreRows) -> Labels:
    """The labels of a source, which may have to be read."""
    labels = source.labels_known().labels
    assert labels is not None
    return labels


def _unlabeled_source(
    estimator: Any, X_unlabeled: DataLike, preprocessing: Preprocessing
) -> UnlabeledRows | OutOfCoreRows | None:
    """X_unlabeled as samples in memory, or as a source beyond memory."""
    if X_unlabeled is None:
        return None
    kind = classify(X_unlabeled)
    if kind is Kind.MATRIX:
        X = without_text_columns(X_unlabeled)
        names = [str(name) for name in X.columns] if is_frame(X) else None
        return _unlabeled_in_memory(estimator, X, names, fills_gaps(estimator))
    source: OutOfCoreRows
    if kind is Kind.DASK:
        source = unlabeled_dask_rows(X_unlabeled)
    elif beyond_memory(X_unlabeled) and not in_blocks(X_unlabeled):
        # labels that it may have must not be used
        source = _without_labels(X_unlabeled)
    else:
        opened = X_unlabeled
        if in_blocks(opened):
            given = opened.preprocessing
            if given.scale is not None or given.fill is not None:
                preprocessing = given
        else:
            gaps = fills_gaps(estimator)
            opened = open_unlabeled(X_unlabeled, preprocessing, keep_missing=gaps)
        # as for X: what is small is loaded
        if opened.fits_in_memory and opened.n_rows is not None:
            return _loaded_unlabeled(estimator, opened, preprocessing)
        source = _without_labels(_preprocessed_as(opened, preprocessing))
    _check_unlabeled_features(estimator, source.n_features, source.feature_names)
    return source


def _loaded_unlabeled(
    estimator: Any, source: BlockSource, preprocessing: Preprocessing
) -> UnlabeledRows:
    """The samples of X_unlabeled, a file that fits into memory; preprocessed as X was."""
    # counts are normalized by all features of their file; other steps are for those of X
    counts = Preprocessing(normalize=source.preprocessing.normalize)
    keep_missing = fills_gaps(estimator) or preprocessing.fill is not None
    found = _unlabeled_in_memory(
        estimator, counts.apply(source.reader.load()), source.feature_names, keep_missing
    )
    return replace(found, X=replace(preprocessing, normalize=None).apply(found.X))


def _preprocessed_as(source: BlockSource, preprocessing: Preprocessing) -> BlockSource:
    """The source, treated as the samples of the fit but for the normalization of counts."""
    steps = replace(preprocessing, normalize=source.preprocessing.normalize)
    return replace(source, preprocessing=steps)


def _unlabeled_in_memory(
    estimator: Any, X: DataLike, names: Sequence[str] | None, keep_missing: bool
) -> UnlabeledRows:
    """Unlabeled samples with the features of X in their order, found by name.

    Features that they lack are zero, and named in a warning.
    """
    what = "X_unlabeled"
    with place_of_nan(X, names, what), np.errstate(invalid="ignore"):
        finite: Any = "allow-nan" if keep_missing else True
        checked = check_array(
            X, accept_sparse="csr", dtype=FLOATS, input_name=what, ensure_all_finite=finite
        )
    codes = np.zeros(checked.shape[0], dtype=np.intp)
    known = getattr(estimator, "feature_names_in_", None)
    if names is None or known is None or list(names) == list(known):
        _check_unlabeled_features(estimator, checked.shape[1], names)
        return UnlabeledRows(checked, codes, None)
    place_of = {name: place for place, name in enumerate(names)}
    places = np.array([place_of.get(name, -1) for name in known], dtype=np.intp)
    present = places >= 0
    if not present.any():
        message = f"has none of the {len(known)} features of X, such as {known[0]!r}."
        raise ParameterError(what, message)
    if present.all():
        return UnlabeledRows(checked[:, places], codes, None)
    lacking = [str(name) for name in np.asarray(known)[~present]]
    warnings.warn(
        ParameterWarning(
            what,
            f"lacks {len(lacking)} of {len(known)} features: {listed(lacking)}. They are "
            "judged by the labeled samples alone.",
        ),
        stacklevel=2,
    )
    return UnlabeledRows(
        _spread(checked[:, places[present]], present),
        codes,
        None,
        present,
    )


def _spread(X: Any, present: Mask) -> Matrix:
    """X (n, g) as (n, d): its columns where ``present`` (d,) is true, zeros elsewhere."""
    if sp.issparse(X):
        # column g of X becomes the g-th column that is present; values and rows stay
        indices = np.flatnonzero(present)[X.indices]  # X is CSR
        return sp.csr_array((X.data, indices, X.indptr), shape=(X.shape[0], len(present)))
    out = np.zeros((len(X), len(present)), dtype=X.dtype)
    out[:, present] = X
    return out


def _without_labels(source: OutOfCoreRows) -> OutOfCoreRows:
    """The same samples, none of which has a label."""
    n = source.n_rows
    if n is None:
        known = source.labels_known().labels
        assert known is not None
        n = len(known)
    return source.with_labels(Labels([], np.full(n, UNLABELED, dtype=np.int32)))


def _check_unlabeled_features(
    estimator: Any, n_features: int, names: Sequence[str] | None
) -> None:
    """Raise unless X_unlabeled has the features of X, in their order."""
    known = getattr(estimator, "feature_names_in_", None)
    d = estimator.n_features_in_
    # without names only their number can be compared
    same_names = names is None or known is None or list(names) == list(known)
    if n_features != d or not same_names:
        raise ValueError(
            f"X_unlabeled has {n_features} features that are not the {d} of X in their order. "
            "Give both the same features; features of frames, AnnData and files in memory are "
            "found by name."
        )


# ---- samples beyond memory ------------------------------------------------------------


def _open(
    kind: Kind,
    X: DataLike,
    y: Any,
    sample_weight: Any,
    drop: Sequence[str] = (),
    keep_missing: bool = False,
) -> OutOfCoreRows:
    """A source of labeled samples."""
    if beyond_memory(X):
        if y is not None or sample_weight is not None:
            raise ValueError("Pass labels and weights to open_blocks, not to fit.")
        return X
    if kind is Kind.DASK:
        return dask_rows(X, y, sample_weight)
    missing = "keep" if keep_missing else "error"
    return open_blocks(
        X,
        y,
        sample_weight=sample_weight,
        drop=drop,
        missing_values=missing,
    )


def batch_of(X: Any, batch: Any, parameter: str) -> tuple[Any, Any]:
    """Return X without its column of batches, and the batches (n,), None without any.

    ``batch`` holds them, or names a column of a frame, of ``obs`` of AnnData, or of a file.
    """
    if batch is None:
        return X, None
    if not isinstance(batch, str):
        # one value per sample: little beside X
        if is_dask(batch):
            batch = batch.compute()
        return X, to_numpy(batch)
    kind = classify(X)
    if kind is Kind.STORED and not isinstance(X, (str, Path)):
        genes = as_genes(X)
        if genes is not None:
            return X, genes.labels(batch)
    if kind is Kind.STORED:
        return X, column_labels(X, batch)
    columns = [str(name) for name in getattr(X, "columns", ())]
    if batch not in columns:
        hint = did_you_mean(batch, columns) or "."
        raise ValueError(f"{parameter}: X has no column {batch!r}{hint} Pass the batches.")
    values = X[batch]
    if is_dask(X):
        return X.drop(columns=batch), values.compute()
    return X.drop(columns=batch) if hasattr(X, "iloc") else X.drop(batch), values


def _with_batches(source: OutOfCoreRows, values: Any) -> OutOfCoreRows:
    """A source with the batches of its samples, its labels known if there are any."""
    if values is None and source.batches is None:
        return source
    # pairs of class and batch need the classes, also where blocks bring them
    known = source.labels_known()
    n = len(_labels_of(known))
    return replace(known, batches=batch_labels(source.batches if values is None else values, n))


def preprocessing_of(source: OutOfCoreRows) -> Preprocessing:
    """Return what a source does to the numbers it reads."""
    found: Preprocessing = getattr(source, "preprocessing", NOTHING)
    return found


def _with_marks(source: OutOfCoreRows, described: Sequence[Label]) -> OutOfCoreRows:
    """The source with labels of the attribute table's type, and marks as no label."""
    # a table of classes 3 and 4 describes "3" and "4" of a text file too
    labels = source.labels
    if labels is None:  # they come with the blocks
        return source
    return source.with_labels(labels.align_to(described).mark_unlabeled(described))


def _check_features(estimator: Any, source: OutOfCoreRows, *, reset: bool) -> None:
    """Let the estimator learn, or compare, the features of a source."""
    d = source.n_features
    if not reset:
        if d != estimator.n_features_in_:
            known = estimator.n_features_in_
            raise ValueError(f"X has {d} features, those before had {known}.")
        return
    set_features(estimator, d, source.feature_names)


def set_features(estimator: Any, n_features: int, names: Sequence[str] | None) -> None:
    """Set the number of features, and their names if they have some."""
    estimator.n_features_in_ = n_features
    # names of an earlier fit must not stay beside a new number
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


# ---- the range of numbers -------------------------------------------------------------


def range_checked_moments(
    X: Matrix, codes: Indices, classes: LabelArray, weights: Float64 | None
) -> Moments:
    """Return the moments of samples in memory; float32 out of range is taken as float64."""
    single = getattr(X, "dtype", None) == np.float32
    moments = None
    try:
        moments = Moments.from_checked(X, codes, classes, weights)
    except ValueError:
        # NaN, infinity, or squares beyond float32
        if not single or _has_nonfinite(X):
            raise
    if moments is None or (single and not _fits_float32(moments)):
        moments = Moments.from_checked(X.astype(np.float64), codes, classes, weights)
    check_range(moments)
    return moments


def _largest_number(moments: Moments) -> float:
    """The largest class mean or standard deviation."""
    spread = np.sqrt(moments.scatter_diag.max() / moments.total)
    return float(max(moments.means.max(), -moments.means.min(), spread))


def _fits_float32(moments: Moments) -> bool:
    size = _largest_number(moments)
    return size == 0 or 1.0 / LARGEST_FLOAT32 < size < LARGEST_FLOAT32


def check_range(moments: Moments) -> None:
    """Raise if numbers of X are so large or small that their squares lose digits."""
    size = _largest_number(moments)
    single = moments.eps > np.finfo(np.float64).eps
    limit = LARGEST_FLOAT32 if single else LARGEST
    if size and not 1.0 / limit < size < limit:
        raise ValueError(f"X has numbers as large as {size:.0e}. {RESCALE}")


def check_range_of_attributes(moments: Moments, attributes: Float64) -> None:
    """Raise if attributes (C, m), or their products with X, are out of range."""
    largest = float(np.abs(attributes).max())
    if not largest:
        return
    if not 1.0 / LARGEST < largest < LARGEST:
        raise ValueError(f"attributes go up to {largest:.0e}. {RESCALE}")
    # all numbers of X may be zero
    size = _largest_number(moments) or 1.0
    # B = X'A has the size of the product; coefficients have that of the ratio A / X
    for number in (size * largest, size / largest):
        if not 1.0 / LARGEST_PRODUCT < number < LARGEST_PRODUCT:
            raise ValueError(
                f"X has numbers as large as {size:.0e} and attributes go up to {largest:.0e}. "
                f"{RESCALE}"
            )


# ---- samples to transform or predict --------------------------------------------------


def selected_blocks(
    X: DataLike,
    support: Mask,
    names: Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None,
) -> Iterator[Matrix] | None:
    """Return the selected columns (r, k) of samples in files or Dask, block by block.

    None for samples in memory. Columns are found by their names where X and the selector
    have some, so that others may be missing or in another order. Files and AnnData are
    preprocessed as those of the fit; a source that was opened already is taken as it is.
    """
    kind = classify(X)
    source: BlockSource
    if kind is Kind.DASK:
        return dask_blocks(X, np.flatnonzero(support), len(support), names)
    if kind is Kind.STORED:
        source = open_unlabeled(X, preprocessing)
    elif kind is Kind.SOURCE and in_blocks(X):
        source = X
    else:
        return None
    # columns are cut block by block: the whole matrix may not fit
    places = _places(source, support, names)
    return (block[:, places] for block in source.matrices())


def present_features(
    X: DataLike,
    support: Mask,
    names: Sequence[str] | None,
    preprocessing: Preprocessing | None = None,
) -> tuple[DataLike, Mask] | None:
    """Return X, opened if it was a file, and which selected features (k,) it has, by name.

    None if X or the selector has no names.
    """
    if names is None:
        return None
    kind = classify(X)
    samples: Any = X
    if kind is Kind.STORED:
        samples = open_unlabeled(X, preprocessing)
        kind = Kind.SOURCE
    if kind is Kind.SOURCE:
        found = samples.feature_names
    else:
        found = list(samples.columns) if hasattr(samples, "columns") else None
    if found is None:
        return None
    check_unique_names(found)
    known = {str(name) for name in found}
    selected = [str(names[j]) for j in np.flatnonzero(support).tolist()]
    return samples, np.array([name in known for name in selected])


def _places(source: BlockSource, support: Mask, names: Sequence[str] | None) -> Indices:
    """Where the selected features are among the columns of a source."""
    selected = np.flatnonzero(support)
    found = source.feature_names
    if found is not None and names is not None:
        return column_places(found, [names[j] for j in selected.tolist()])
    if source.n_features != len(support):
        raise ValueError(
            f"X has {source.n_features} features, but the selector was fitted with "
            f"{len(support)}."
        )
    return selected


def genes_of(X: DataLike) -> Any:
    """Return the gene matrix of AnnData, None of other data."""
    return as_genes(X)
