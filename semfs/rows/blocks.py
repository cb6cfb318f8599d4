"""Base classes of sources beyond memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from semfs.arrays import draw_rows
from semfs.io.reader import Reader
from semfs.labels import LEFT_OUT, UNLABELED, Labels, encode_labels, label_array
from semfs.progress import Progress
from semfs.rows.memory import N_SAMPLED_SPARSE, MemoryRows
from semfs.rows.plan import ReadPlan
from semfs.rows.preprocess import Preprocessing
from semfs.rows.sums import Accumulator, check_matrix_fits, used_mask
from semfs.rows.threads import prefetch

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from semfs._typing import Float64, Floats, Indices, Label, Mask, Matrix
    from semfs.rows.centering import Centering
    from semfs.rows.source import ClusterModel, SampledColumns

# A sample takes at most this share of the memory, but has so many rows in any case.
SAMPLE_SHARE = 1 / 4
MIN_SAMPLE_ROWS = 2000
# Bytes of samples that are read once more for a few of them: of more data, none are kept.
MOST_READ_AGAIN = 2 * 2**30
# Standard deviations below this share of the mean are rounding errors of a constant.
CONSTANT_SPREAD = 1e-7
MATRIX_NEEDED = (
    'solver="alternating" needs this matrix, and so do blocks that can '
    'be read only once. Use solver="direct" on data that can be read '
    "repeatedly (a file, a list of blocks or a function that returns a "
    "fresh iterator), or raise memory."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class OutOfCoreRows(ABC):
    """Base class of sources that are read in parts and never held whole in memory."""

    labels: Labels | None = None  # None: they come with the blocks
    batches: Labels | None = None  # batch of each sample; None: all are of one batch
    plan: ReadPlan = field(default_factory=ReadPlan)
    column_sample: MemoryRows | None = None  # what `sample_columns` returns features of
    verbose: int = 0

    in_memory = False
    nbytes = 0

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features d."""

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Number of samples, or None if it is unknown until all are read."""

    @property
    @abstractmethod
    def eps(self) -> float:
        """Rounding unit of the data: that of float32 or float64."""

    @property
    @abstractmethod
    def fits_in_memory(self) -> bool:
        """Whether the data are so small that it takes less time to load them."""

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a sample in memory, on average."""

    @property
    @abstractmethod
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""

    @abstractmethod
    def load(self) -> tuple[Matrix, Labels, Floats | None]:
        """Return X, labels and weights in memory, without the samples that are left out."""

    @abstractmethod
    def forms_matrix(self, n_select: int | None) -> bool:
        """Return whether to form the d × d matrix in order to select ``n_select`` features."""

    @abstractmethod
    def labels_known(self) -> Self:
        """Return the source with its labels, which are read if they come with the blocks."""

    @abstractmethod
    def with_labels(self, labels: Labels) -> Self:
        """Return the source with other labels (n,)."""

    @abstractmethod
    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return the sums over all samples, with ``n_sampled`` samples if they are sparse."""

    @abstractmethod
    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""

    @abstractmethod
    def rows_at(self, rows: Indices) -> Matrix:
        """Return samples by their row numbers, which ascend."""

    @abstractmethod
    def clusters_at(
        self, rows: Indices, model: ClusterModel, batches: Indices | None = None
    ) -> Indices:
        """Return the cluster of each sample, by row numbers that ascend, and their batches."""

    @abstractmethod
    def sample_weights(self) -> Floats | None:
        """Return the weights (n,) of the samples, None if all weigh the same."""

    def in_use(self) -> Self:
        """Return the source with its labels, samples of weight 0 left out."""
        known = self.labels_known()
        weights = self.sample_weights()
        if weights is None or (weights > 0).all():
            return known
        assert known.labels is not None
        codes = np.where(weights > 0, known.labels.codes, LEFT_OUT)
        return known.with_labels(Labels(known.labels.classes, codes))

    def keep_classes(self, mask: Mask) -> Self:
        """Return the same samples: those of empty classes have no weight."""
        return self

    def copy(self) -> Self:
        """Return the same source: it is read, never changed."""
        return self

    def sample_columns(self, features: Indices) -> SampledColumns | None:
        """Return features of the samples that `sums` has kept, or None."""
        if self.column_sample is None:
            return None
        return self.column_sample.sample_columns(features)

    def sums(
        self,
        *,
        n_select: int | None,
        precise: bool = False,
        verbose: int = 0,
    ) -> tuple[Accumulator, Self | None]:
        """Return the sums, and the source if it must be read again for Gram columns.

        ``n_select`` is the number of features to select. None means that the solver needs the d
        × d scatter matrix.
        """
        # later passes report their progress too
        source = replace(self, verbose=verbose)
        matrix = self.forms_matrix(n_select)
        sums = source.checked_sums(matrix=matrix, precise=precise)
        if matrix:
            return sums, None
        # dense sources keep no sample: their columns are fetched without a prediction
        sample = sums.sample()
        if sample is None:
            return sums, source
        return sums, replace(source, column_sample=MemoryRows(*sample))

    def scatter(self, centering: Centering) -> Float64:
        """Return the scatter matrix (d, d) about the mean, in one pass."""
        out = self.checked_sums(matrix=True, precise=centering.precise).result().matrix
        assert out is not None
        return out

    def checked_sums(self, *, matrix: bool, precise: bool) -> Accumulator:
        """Return the sums. Raise if the matrix does not fit, or if there are no samples."""
        if matrix:
            check_matrix_fits(self.n_features, self.plan.memory, MATRIX_NEEDED)
        # labels that come with the blocks are checked when all of them have been read
        if self.labels is not None:
            check_classes(self.labels)
        sums = self.accumulate(matrix=matrix, precise=precise)
        if not sums.total:
            raise ValueError("there are no labeled samples, or all their weights are zero.")
        return sums

    def sample(self, n: int, *, labeled: bool) -> tuple[Matrix, Labels]:
        """Draw at most ``n`` random labeled or unlabeled samples, and return their labels, too.

        Fewer are drawn if they would take more than a quarter of the memory.
        """
        known = self.labels_known()
        assert known.labels is not None
        codes = known.labels.codes
        mask = codes >= 0 if labeled else codes == UNLABELED
        # the samples that a fit in memory draws, unless there is too little memory for n
        affordable = int(SAMPLE_SHARE * self.plan.memory / max(1, self.row_bytes))
        rows = draw_rows(mask, min(n, max(MIN_SAMPLE_ROWS, affordable)))
        return known.rows_at(rows), Labels(known.labels.classes, codes[rows])

    def labeled_columns(self, features: Indices) -> Iterator[Block] | None:
        """Return blocks of labeled samples with some features only, dense and in float64.

        This is one more pass. None if it is impossible, or would take long.
        """
        return None

    def assign(self, model: ClusterModel) -> Self:
        """Return a source of the unlabeled samples, labeled by their clusters.

        All other samples are left out.
        """
        known = self.labels_known()
        assert known.labels is not None
        rows = np.flatnonzero(known.labels.codes == UNLABELED)
        batches = None if self.batches is None else self.batches.codes[rows]
        clusters = known.clusters_at(rows, model, batches)
        names = range(len(model.centers))
        return known.with_labels(labels_at(len(known.labels), rows, clusters, names))


class Block(NamedTuple):
    """A block of samples with a label and a positive weight."""

    rows: slice  # row numbers of the block in its source, samples not used included
    X: Any  # (r, d), dense or CSR
    codes: Indices  # (r,), positions in classes
    classes: list[Label]
    weights: Floats | None  # (r,)
    n_unlabeled: int  # samples of the block without a label


@dataclass(frozen=True, eq=False)
class BlockSource(OutOfCoreRows):
    """Base class of sources that are read by a `Reader`. Make one with `open_blocks`."""

    reader: Reader
    weights: np.ndarray | None = None  # (n,)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    start: int = 0  # the first row of the reader that belongs to the source
    stop: int | None = None  # after the last one; None: to the end

    @property
    def n_rows(self) -> int | None:
        """Number of samples, or None if it is unknown until all are read."""
        stop = self.reader.n_rows if self.stop is None else self.stop
        return None if stop is None else stop - self.start

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.reader.n_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample in memory, on average."""
        return self.reader.row_bytes

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return self.reader.feature_names

    @property
    def eps(self) -> float:
        """Rounding unit of the data."""
        return float(np.finfo(self.reader.dtype).eps)

    @property
    def fits_in_memory(self) -> bool:
        """Whether the data are so small that it takes less time to load them."""
        return self.plan.loads(self.n_rows, self.reader.row_bytes)

    def forms_matrix(self, n_select: int | None) -> bool:
        """Return whether to form the d × d matrix in order to select ``n_select`` features."""
        return self.plan.forms_matrix(
            self.n_features,
            n_rows=self.n_rows,
            n_select=n_select,
            sparse=self.reader.sparse,
            rereadable=self.reader.rereadable,
        )

    # ---- labels and ranges --------------------------------------------------------------

    def sample_weights(self) -> Floats | None:
        """Return the weights (n,) of the samples, None if all weigh the same."""
        return self.weights

    def with_labels(self, labels: Labels) -> Self:
        """Return the source with other labels (n,)."""
        return replace(self, labels=labels)

    def labels_known(self) -> Self:
        """Return the source with its labels, which are read if they come with the blocks."""
        if self.labels is not None:
            return self
        if not self.reader.rereadable:
            raise ValueError(
                "unlabeled samples are used in several passes, but these blocks can be read "
                "only once. Pass a list of them, or a function that returns a fresh iterator."
            )
        # blocks of unlabeled samples may come with None in place of labels
        values: list[Label | None] = []
        for _, X, y in self.reader.blocks(0, None, self.rows_per_block()):
            n = X.shape[0]
            values += [None] * n if y is None else Labels.of(y).array().tolist()
        return self.with_labels(Labels.of(values))

    def part(self, start: int, stop: int) -> Self:
        """Return rows ``start`` to ``stop`` - 1 of the source as a source."""
        rows = slice(start, stop)
        return replace(
            self,
            labels=None if self.labels is None else self.labels[rows],
            batches=None if self.batches is None else self.batches[rows],
            weights=None if self.weights is None else self.weights[rows],
            start=self.start + start,
            stop=self.start + stop,
        )

    def only(self, rows: Indices) -> Self:
        """Return the source without weights and with only one class: samples at ``rows``."""
        known = self.labels_known()
        assert known.labels is not None
        labels = labels_at(len(known.labels), rows, np.zeros(len(rows), np.int32), [0])
        return replace(known, labels=labels, weights=None)

    # ---- reading ------------------------------------------------------------------------

    def rows_per_block(self, *, matrix: bool = False) -> int:
        """Return the rows of a block, with or without a scatter matrix beside it."""
        return self.plan.rows_per_block(
            self.n_features,
            row_bytes=self.reader.row_bytes,
            chunk_rows=self.reader.chunk_rows,
            matrix=matrix,
        )

    def matrices(self) -> Iterator[Matrix]:
        """Yield all samples (r, d) in order, preprocessed, whether they have labels or not."""
        for _, X, _ in self.reader.blocks(self.start, self.stop, self.rows_per_block()):
            yield self.preprocessing.apply(X)

    def blocks(self, *, matrix: bool = False) -> Iterator[Block]:
        """Yield blocks of the samples that are used, while the next block is read."""
        # preprocessing runs in the thread that reads
        yield from prefetch(self._blocks(self.rows_per_block(matrix=matrix)))

    def _blocks(self, step: int) -> Iterator[Block]:
        for first, X, y in self.reader.blocks(self.start, self.stop, step):
            first_row = first - self.start
            rows = slice(first_row, first_row + X.shape[0])
            block = self._used_block(rows, self.preprocessing.apply(X), y)
            # a block without samples is of interest only for the unlabeled ones it counts
            if block.X.shape[0] or block.n_unlabeled:
                yield block

    def _used_block(self, rows: slice, X: Any, y: Any) -> Block:
        """Return the samples of a block that are used, with their labels and weights."""
        labels = Labels.of(y) if self.labels is None else self.labels[rows]
        if len(labels) != X.shape[0]:
            raise ValueError(f"a block has {X.shape[0]} rows but {len(labels)} labels.")
        codes = labels.codes
        weights = None if self.weights is None else self.weights[rows]
        used = used_mask(codes, weights)
        # most blocks are used whole, and need no copy
        if not used.all():
            X = X[used]
            codes = codes[used]
            weights = None if weights is None else weights[used]
        return Block(rows, X, codes, labels.classes, weights, labels.n_unlabeled)

    def labeled_columns(self, features: Indices) -> Iterator[Block] | None:
        """Return blocks of labeled samples with some features only, dense and in float64."""
        n_rows = self.n_rows
        if n_rows is None or not self.reader.rereadable:
            return None
        if n_rows * self.row_bytes > MOST_READ_AGAIN:
            return None
        return self._labeled_columns(features)

    def _labeled_columns(self, features: Indices) -> Iterator[Block]:
        for block in self.watched_blocks("calibration sample"):
            Z = block.X[:, features]
            dense = Z.toarray() if sp.issparse(Z) else Z
            yield block._replace(X=np.asarray(dense, dtype=np.float64))

    def watched_blocks(self, title: str, *, matrix: bool = False) -> Iterator[Block]:
        """Yield the blocks and report the progress in rows."""
        with Progress(title, self.n_rows, self.verbose, unit="rows") as progress:
            for block in self.blocks(matrix=matrix):
                yield block
                # blocks that were skipped count as done
                done = block.rows.stop
                megabytes = 1e-6 * done * self.reader.row_bytes
                speed = megabytes / progress.seconds
                progress.step(f"{speed:,.0f} MB/s", done - progress.done)

    def load(self) -> tuple[Matrix, Labels, Floats | None]:
        """Return X, labels and weights in memory, without the samples that are left out."""
        known = self.labels_known()
        labels = known.labels
        assert labels is not None
        # a reader loads all of its rows, and only if it knows how many there are
        if self.n_rows is None or self.start or self.stop is not None:
            X: Any = stacked(list(self.matrices()), self.n_features)
        else:
            X = self.preprocessing.apply(self.reader.load())
        kept = labels.codes != LEFT_OUT
        if kept.all():
            return X, labels, self.weights
        weights = None if self.weights is None else self.weights[kept]
        return X[kept], Labels(labels.classes, labels.codes[kept]), weights

    # ---- sums ---------------------------------------------------------------------------

    def accumulate_blocks(self, *, matrix: bool, precise: bool) -> Accumulator:
        """Return the sums over all blocks. Errors name the rows that caused them."""
        sums = Accumulator(self.n_features, matrix=matrix, precise=precise)
        title = "scatter matrix" if matrix else "class means"
        for block in self.watched_blocks(title, matrix=matrix):
            sums.n_unlabeled += block.n_unlabeled
            if not block.X.shape[0]:
                continue
            # sums of the classes that occur in the block: it may have few of many
            present, codes = np.unique(block.codes, return_inverse=True)
            classes = [block.classes[code] for code in present]
            with named_rows(block.rows):
                sums.add_coded(block.X, classes, codes, block.weights)
        return sums

    def standardized(self) -> Self:
        """Return the source with features of standard deviation 1 among labeled samples."""
        sums = self.checked_sums(matrix=False, precise=True)
        spread = np.sqrt(np.maximum(sums.diag, 0.0) / sums.total)
        # constant features stay as they are
        constant = spread <= CONSTANT_SPREAD * np.abs(sums.mean)
        scale = 1.0 / np.where(constant, 1.0, spread)
        return replace(self, preprocessing=replace(self.preprocessing, scale=scale))


def beyond_memory(rows: object) -> TypeIs[OutOfCoreRows]:
    """Return whether samples are read in parts, from a file or on a cluster."""
    return isinstance(rows, OutOfCoreRows)


def in_blocks(rows: object) -> TypeIs[BlockSource]:
    """Return whether samples are read block by block in this process."""
    return isinstance(rows, BlockSource)


# ---- helpers --------------------------------------------------------------------------


def check_classes(labels: Labels) -> None:
    """Raise, before any reading, if labels have mixed types or are measurements."""
    present = np.unique(labels.codes[labels.codes >= 0])
    if len(present):
        encode_labels(label_array([labels.classes[code] for code in present]))


def labels_at(n: int, rows: Indices, codes: Indices, classes: Sequence[Label]) -> Labels:
    """Return labels of n samples: ``classes[codes]`` at ``rows``. Others are left out."""
    all_codes = np.full(n, LEFT_OUT, dtype=np.int32)
    all_codes[rows] = codes
    return Labels(list(classes), all_codes)


def stacked(parts: list[Matrix], n_features: int) -> Matrix:
    """Stack parts (r, d), which are all dense or all sparse."""
    if not parts:
        return np.zeros((0, n_features))
    if sp.issparse(parts[0]):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts)


@contextmanager
def named_rows(rows: slice) -> Iterator[None]:
    """Add the row numbers of a block to the message of an error that it causes."""
    try:
        yield
    except ValueError as error:
        place = f"rows {rows.start} to {rows.stop - 1}"
        raise ValueError(f"{error} (in {place})") from error
