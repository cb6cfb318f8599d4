"""Reads the selected columns of samples for a fitted selector, block by block.

Samples are matrices, frames, AnnData, files or Dask collections. If columns have names, they
are found by name. Samples are preprocessed as those of the fit were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from semfs._typing import DataLike, Float64, Indices, Mask, Matrix
from semfs.feature_names import (
    NamePlaces,
    WantedNames,
    check_unique_names,
    column_with_names,
)
from semfs.io.anndata import kind_of_values, warn_if_scaled
from semfs.labels import LabelArray, Labels
from semfs.rows import (
    BlockSource,
    Preprocessing,
    column_places,
    device,
    in_blocks,
    open_unlabeled,
)
from semfs.rows.dask_data import dask_blocks, lazy_rows
from semfs.rows.device import to_numpy
from semfs.selectors.filling import Filling, fill_values_of, filled_result
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.inputs.matrix import training_matrix
from semfs.selectors.inputs.nonfinite import has_nonfinite, with_zeros_elsewhere
from semfs.validation import (
    FILL_TO_PREDICT,
    ParameterError,
    check_all_finite,
    check_option,
    listed,
    warn_user,
)

if TYPE_CHECKING:
    from semfs.selectors.ranking import RankingSelector


@dataclass(frozen=True, eq=False)
class PresentColumns:
    """The selected columns that are present in samples, block by block."""

    blocks: Iterator[Float64]  # (r, j) each
    present: Mask  # (k,), which of the selected features they are

    @property
    def are_all(self) -> bool:
        """Return whether no selected feature is missing."""
        return bool(self.present.all())

    def without_offsets(
        self, batches: Labels, known: list[Any], offsets: Float64
    ) -> Iterator[Float64]:
        """Yield blocks minus the offsets of the batches of their samples, if known.

        ``offsets`` (B, k) are those of the ``known`` batches.
        """
        place = {batch: b for b, batch in enumerate(known)}
        # the last row stays 0: the code -1 of samples without a batch finds it
        of_code = np.zeros((len(batches.classes) + 1, int(self.present.sum())))
        for code, batch in enumerate(batches.classes):
            if batch in place:
                of_code[code] = offsets[place[batch], self.present]
        n_done = 0
        for Z in self.blocks:
            codes = batches.codes[n_done : n_done + len(Z)]
            n_done += len(Z)
            # X is read in blocks, so that its length is known only at the end
            if len(codes) < len(Z):
                raise ValueError(
                    f"X has {n_done} samples or more, but batch has {len(batches)} values."
                )
            yield Z - of_code[codes]
        if n_done != len(batches):
            raise ValueError(f"X has {n_done} samples but batch has {len(batches)} values.")


#: Class means of log(1 + counts per 10⁴ counts) do not reach it.
LARGEST_MEAN = float(np.log1p(1e4))


def selected_columns(
    selector: RankingSelector, X: DataLike, method: str, *, allow_gaps: bool = False
) -> Iterator[Float64]:
    """Yield the selected columns (r, k) of X in float64; one block if X is in memory.

    Gaps are filled with the values that the fit learned. If it learned none, raise if there is
    NaN. With ``allow_gaps``, NaN stays.
    """
    names = getattr(selector, "feature_names_in_", None)
    support = selector._get_support_mask()
    fill = fill_values_of(selector)
    keep = fill is not None
    blocks = selected_blocks(X, support, names, selector._preprocessing(), keep_missing=keep)
    if blocks is None:
        finite = not allow_gaps and fill is None
        blocks = iter([_columns_in_memory(selector, X, method, finite=finite)])
    blocks = map(dense, blocks)
    if allow_gaps:
        yield from blocks
        return
    if fill is not None:
        blocks = Filling(fill).blocks(blocks)
    selected_names = None if names is None else names[support]
    yield from _finite_blocks(blocks, selected_names)


def present_columns(
    selector: RankingSelector, X: DataLike, missing_features: str, method: str
) -> PresentColumns:
    """Return the selected columns of X. With "ignore", some may be missing."""
    check_option("missing_features", missing_features, ("error", "ignore"))
    names = getattr(selector, "feature_names_in_", None)
    support = selector._get_support_mask()
    every = np.ones(int(support.sum()), dtype=bool)
    keep = fill_values_of(selector) is not None
    steps = replace(selector._preprocessing(), of_logs=fitted_to_logs(selector))
    found = present_features(X, support, names, steps, keep_missing=keep)
    if found is None:  # X has no names, so that no feature may be missing
        return PresentColumns(selected_columns(selector, X, method), every)
    X, present = found
    assert names is not None
    if not present.any():
        raise ParameterError("gene_symbols", no_selected(names[support], X))
    _warn_if_scaled(selector, X)
    if missing_features == "error":
        if present.all():
            return PresentColumns(selected_columns(selector, X, method), every)
        raise ParameterError("missing_features", _lacking(names[support], present))
    if not present.all():
        _warn_of_missing(names[support], present)
    # `present` (k,) counts selected features, `kept` (d,) all of them
    kept = support.copy()
    kept[np.flatnonzero(support)[~present]] = False
    return PresentColumns(_named_columns(selector, X, kept), present)


def map_lazily(selector: RankingSelector, X: Any, function: Callable[[Float64], Any]) -> Any:
    """Apply a function lazily to the selected columns (n, k) of a Dask collection."""
    selected = selector._lazily_selected(X)
    fill = fill_values_of(selector)

    def of_chunk(chunk: Matrix) -> Any:
        Z = dense(chunk)
        if fill is not None:
            Z = filled_result(Z, fill)
        if not np.isfinite(Z).all():
            check_all_finite(Z, advice=FILL_TO_PREDICT)
        return function(Z)

    # one sample tells type and width of the results
    example = function(np.zeros((1, int(selector._get_support_mask().sum()))))
    width = None if example.ndim == 1 else example.shape[1]
    return lazy_rows(selected, of_chunk, dtype=example.dtype, width=width)


def only_rows(blocks: Iterator[Float64], rows: Mask) -> Iterator[Float64]:
    """Yield, from blocks (r, k), the samples that a mask (n,) selects."""
    n_done = 0
    for Z in blocks:
        kept = rows[n_done : n_done + len(Z)]
        n_done += len(Z)
        # X is read in blocks, so that its length is known only at the end
        if len(kept) < len(Z):
            break
        if kept.any():
            yield Z[kept]
    if n_done != len(rows):
        raise ParameterError(
            "rows", f"has {len(rows)} values, which is not the number of rows of X."
        )


def dense(Z: Matrix) -> Float64:
    """Return a matrix as a dense array in float64."""
    found: Any = Z
    if sp.issparse(found):
        found = found.toarray()
    return np.asarray(found, dtype=np.float64)


def _named_columns(selector: RankingSelector, X: DataLike, kept: Mask) -> Iterator[Float64]:
    """Yield columns (r, j) of X, found by name."""
    names = selector.feature_names_in_
    blocks = selected_blocks(X, kept, names, selector._preprocessing())
    if blocks is None:
        # only frames in memory have names and are not read in blocks
        frame: Any = X
        columns = list(frame.columns)
        places = column_places(columns, names[kept])
        blocks = iter([frame[[columns[j] for j in places]].to_numpy()])
    fill = fill_values_of(selector)
    if fill is not None:
        present = kept[np.flatnonzero(selector._get_support_mask())]
        blocks = Filling(fill[present]).blocks(map(dense, blocks))
    return _finite_blocks(blocks, names[kept])


def _finite_blocks(blocks: Iterator[Matrix], names: LabelArray | None) -> Iterator[Float64]:
    """Yield blocks (r, k) in float64. For NaN or infinity, raise with the feature's name."""
    for block in blocks:
        Z = dense(block)
        # check_all_finite looks for the place, and raises in any case
        if not np.isfinite(Z).all():
            names = None if names is None else names.tolist()
            check_all_finite(Z, names, advice=FILL_TO_PREDICT)
        yield Z


def _columns_in_memory(
    selector: RankingSelector, X: DataLike, method: str, finite: bool = True
) -> Matrix:
    """Return the selected columns (n, k) of a matrix, checking that they are finite.

    The values of other columns do not matter.
    """
    device.check_same_namespace(X, selector, attribute="coef_", method=method)
    X = training_matrix(selector, X, accept_sparse="csr", reset=False)
    support = selector._get_support_mask()
    selected = np.flatnonzero(support)
    # only the selected columns leave the device
    if device.is_foreign(X):
        Z = to_numpy(device.take_columns(X, selected))
    else:
        Z = X[:, selected]
    if finite and has_nonfinite(Z):
        names = getattr(selector, "feature_names_in_", None)
        # columns keep the numbers that they have in X
        shown = with_zeros_elsewhere(to_numpy(X), support)
        check_all_finite(
            shown, names, row_numbers=np.arange(X.shape[0]), advice=FILL_TO_PREDICT
        )
    return Z


def _lacking(names: LabelArray, present: Mask) -> str:
    """Return a message about features (k,) that X lacks, with advice."""
    missing = [str(name) for name in names[~present]]
    return (
        f": X lacks {len(missing)} of {len(names)} selected features: "
        f"{listed(missing)}. Use data that contain them (for AnnData, "
        "perhaps another layer, raw or other gene names), or set this "
        'parameter to "ignore" to predict from the remaining features.'
    )


def no_selected(names: LabelArray, X: Any) -> str:
    """Return a message that X has none of the selected features (k,), with advice."""
    wanted = [str(name) for name in names]
    message = f": X has none of the {len(wanted)} selected features: {listed(wanted)}."
    reader = getattr(X, "reader", None)
    # frames in memory have no reader
    if reader is None:
        found = list(getattr(X, "columns", ()))
    else:
        found = reader.feature_names or []
    message += f" The features of X are {listed([str(name) for name in found])}."
    if reader is None or reader.gene_columns is None:
        return f"{message} Use the same names as in the fit."
    best, n_found = column_with_names(reader.gene_columns(), wanted)
    if not n_found:
        return f"{message} No column of var contains these names."
    message += f" The column {best!r} of var contains {n_found} of the selected features."
    where = "(in Python, a parameter of `annotate` and `view`)"
    return f'{message} Use gene_symbols="{best}" {where}.'


def _warn_if_scaled(selector: RankingSelector, X: Any) -> None:
    """Warn if cells look standardized, but those of the fit were not."""
    if classify(X) is not Kind.SOURCE or not in_blocks(X):
        return
    means = np.asarray(to_numpy(getattr(selector, "class_means_", np.zeros(0))))
    # levels of standardized genes have a mean of 0, so that some classes are below
    if means.min(initial=0.0) < 0:
        return
    reason = " but the training samples were not, so predictions are wrong"
    warn_if_scaled(X.reader, reason)


def fitted_to_logs(selector: RankingSelector) -> bool:
    """Return whether the values of the fit were logarithms, as far as the selector knows.

    Values of a few samples show it, else the class means: those of logarithms of at most 10⁴
    counts are small, while the genes that are selected on raw counts have large ones.
    """
    unit = selector._preprocessing().scale
    scale = 1.0 if unit is None else unit[selector._get_support_mask()]
    sample = getattr(selector, "calibration_sample_", None)
    batches = to_numpy(getattr(selector, "batches_", np.zeros(0)))
    has_offsets = len(batches) > 0
    # Values without the offsets of their batches are not those that were measured.
    if sample and not has_offsets:
        values = np.asarray(to_numpy(sample["features"]), dtype=np.float64) / scale
        return kind_of_values(values[values != 0]) == "logs"
    means = getattr(selector, "measured_means_", None)
    if means is None:
        # selectors of earlier releases have these only
        means = getattr(selector, "class_means_", None)
    if means is None:
        return False
    found = np.asarray(to_numpy(means)) / scale
    lowest = found.min(initial=0.0)
    return bool(lowest >= 0.0 and 0.0 < found.max(initial=0.0) < LARGEST_MEAN)


def _warn_of_missing(names: LabelArray, present: Mask) -> None:
    """Warn and name the selected features (k,) that X lacks."""
    missing = [str(name) for name in names[~present]]
    warn_user(
        f"X lacks {len(missing)} of {len(names)} selected features, "
        f"which predictions ignore: {listed(missing)}."
    )


def selected_blocks(
    X: DataLike,
    support: Mask,
    names: Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None,
    *,
    keep_missing: bool = False,
) -> Iterator[Matrix] | None:
    """Return the selected columns (r, k) of samples in files or Dask, block by block.

    For samples in memory, return None. If X and the selector have feature names, columns are
    found by name, so other columns may be missing, and their order does not matter. Files and
    AnnData are preprocessed as those of the fit. A source that was opened already is used
    unchanged. With ``keep_missing``, empty cells of files are NaN.
    """
    kind = classify(X)
    source: BlockSource
    if kind is Kind.DASK:
        return dask_blocks(X, np.flatnonzero(support), len(support), names)
    if kind is Kind.STORED:
        only = names_of_selected(support, names)
        source = open_unlabeled(X, preprocessing, keep_missing=keep_missing, only=only)
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
    *,
    keep_missing: bool = False,
) -> tuple[DataLike, Mask] | None:
    """Return X (opened if it is a file) and which selected features (k,) it has, by name.

    The second is None if X or the selector has no names.
    """
    if names is None:
        return None
    kind = classify(X)
    samples: Any = X
    if kind is Kind.STORED:
        only = names_of_selected(support, names)
        samples = open_unlabeled(X, preprocessing, keep_missing=keep_missing, only=only)
        kind = Kind.SOURCE
    if kind is Kind.SOURCE:
        found = samples.feature_names
    else:
        found = list(samples.columns) if hasattr(samples, "columns") else None
    if found is None:
        return None
    check_unique_names(found)
    known = NamePlaces(found)
    selected = [str(names[j]) for j in np.flatnonzero(support).tolist()]
    return samples, np.array([known.find(name) is not None for name in selected])


def names_of_selected(support: Mask, names: Sequence[str] | None) -> set[str] | None:
    """Return the names of the selected features, or None without names."""
    if names is None:
        return None
    return WantedNames(str(names[j]) for j in np.flatnonzero(support).tolist())


def _places(source: BlockSource, support: Mask, names: Sequence[str] | None) -> Indices:
    """Return the positions of the selected features among the columns of a source."""
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
