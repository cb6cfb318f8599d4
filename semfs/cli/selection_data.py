"""Converts options of `semfs select` to samples and classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semfs.cli.console import complain
from semfs.cli.options import (
    check_descriptions,
    check_label_given,
    described_classes,
    expand_columns,
    given,
    level_columns,
)

#: From this many different labels on they are taken for names of samples: a small table may
#: hold one sample of each class.
FEWEST_NAMES = 20

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from semfs.cli.selection import Selection
    from semfs.labels import Labels
    from semfs.rows import BlockSource
    from semfs.select.selection import FileSelection


def open_source(options: Selection) -> BlockSource:
    """Return the file as a source of samples, genes named as --gene-symbols says."""
    from semfs.io.anndata import warn_if_scaled
    from semfs.rows import open_blocks
    from semfs.select.opening import gene_names

    check_label_given(options.data, options.label)
    check_descriptions(options.attributes, options.data, options.layer)
    drop = expand_columns(options.data, options.label, options.layer, options.drop)
    drop += level_columns(options.attributes, options.data, options.layer)
    reading = given(options, "normalize", "batch", "sample_id")
    if options.impute is not None:
        reading["missing_values"] = "keep"
    if options.unlabeled_names is not None:
        # Then all labels are read as they are: these names may have commas.
        reading["no_label"] = ()
    source = open_blocks(
        options.data,
        options.label,
        key=options.layer,
        drop=drop,
        **reading,
    )
    if options.gene_symbols is not None:
        source.reader.feature_names = gene_names(source.reader, options.gene_symbols)
    if options.normalize is None:
        warn_if_scaled(source.reader)
    return source


def with_unlabeled_names(options: Selection, source: BlockSource) -> BlockSource:
    """Return the source without the labels that --unlabeled-names lists."""
    from semfs.cli.options import words

    assert source.labels is not None
    labels = source.labels
    for text in options.unlabeled_names or ():
        # A label may contain commas itself.
        names = [text] if text in labels.classes else words(text)
        wanted = {name.casefold() for name in names}
        for label in labels.classes:
            if str(label).casefold() in wanted:
                labels = labels.mask_label(label)
    return source.with_labels(labels)


def with_usable_labels(
    options: Selection,
    source: BlockSource,
    table: pd.DataFrame | None,
    unseen: Sequence[Any] = (),
) -> tuple[BlockSource, pd.DataFrame | None]:
    """Return the source with labels, and descriptions, as the options say.

    Labels may be missing, and classes may be too rare. Classes in ``unseen`` stay described.
    """
    from semfs.cli.errors import message_of
    from semfs.labels import unlabeled_note
    from semfs.scverse import without_descriptions, without_rare_classes
    from semfs.validation import ParameterWarning

    assert source.labels is not None
    labels = source.labels
    _check_shared_classes(options, labels)
    # -1 is scikit-learn's mark of a missing label, unless a class has this name.
    labels = labels.mark_unlabeled(() if table is None else table.index)
    if labels.n_unlabeled and options.unlabeled != "use":
        if options.unlabeled is None:
            note = ParameterWarning("label", unlabeled_note(labels, used=False))
            complain(message_of(note))
        # Left out of the fit; the rows are still written.
        labels = labels.without_unlabeled()
    common = without_rare_classes(labels, "min_cells", options.min_cells, unseen)
    if table is not None:
        table = without_descriptions(table, labels, common)
    return source.with_labels(common), table


def _check_shared_classes(options: Selection, labels: Labels) -> None:
    """Raise if most labels are different, because they then are no names of classes."""
    n_labeled = int((labels.codes >= 0).sum())
    n_classes = len(labels.used().classes)
    if n_classes < FEWEST_NAMES:
        return
    if n_classes < n_labeled:
        _check_not_measured(options, n_classes, n_labeled)
        return
    raise ValueError(
        f"--label {options.label or 'y'}: all {n_labeled} labels differ, "
        "as if they were serial numbers. Give the column that holds the "
        "classes."
    )


def _check_not_measured(options: Selection, n_classes: int, n_labeled: int) -> None:
    """Raise if more than half of the labels are different, as those of a measurement are."""
    if n_classes <= FEWEST_NAMES or 2 * n_classes <= n_labeled:
        return
    # who leaves out small classes knows them
    if options.min_cells is not None:
        return
    raise ValueError(
        f"--label {options.label or 'y'}: {n_labeled} labels have {n_classes} "
        "different values, as if they were measurements or names of samples. "
        "Give the column that holds the classes. If these are classes, leave "
        "out those with few samples (--min-cells 3)."
    )


def unlabeled_samples(options: Selection) -> dict[str, Any]:
    """Return the samples of --unlabeled-file, and their batches, for `select_features`."""
    from semfs.rows.opening import column_labels
    from semfs.select.opening import open_unlabeled_file

    if options.unlabeled_file is None:
        return {}
    reading = given(options, "layer", "normalize", "gene_symbols")
    keep = options.impute is not None
    samples = open_unlabeled_file(options.unlabeled_file, keep_missing=keep, **reading)
    found: dict[str, Any] = {"X_unlabeled": samples}
    if options.batch is not None:
        # The column has the same name in both files.
        found["batch_unlabeled"] = column_labels(
            options.unlabeled_file, options.batch, options.layer
        )
    return found


def warn_if_clusters_are_batches(options: Selection, done: FileSelection) -> None:
    """Warn if clusters of unlabeled cells follow a column of the files such as the donor."""
    import numpy as np

    from semfs.labels import UNLABELED, Labels
    from semfs.selectors.batch_like import warn_of_batch_like_clusters

    clusters = done.selector.unlabeled_labels_
    if options.batch is not None or not len(clusters):
        return
    assert done.samples.labels is not None
    unlabeled = np.flatnonzero(done.samples.labels.codes == UNLABELED)
    parts = []
    if len(unlabeled):
        parts.append(_batch_like_columns(options.data))
        parts[0] = {name: values[unlabeled] for name, values in parts[0].items()}
    if options.unlabeled_file is not None:
        parts.append(_batch_like_columns(options.unlabeled_file))
    columns = {}
    for name in parts[0]:
        if all(name in part for part in parts):
            values = np.concatenate([part[name] for part in parts])
            columns[name] = Labels.of(values).codes
    warn_of_batch_like_clusters("batch", clusters, columns)


def _batch_like_columns(data: Path) -> dict[str, np.ndarray]:
    """Values of the cells in the columns of ``obs`` that look like batches."""
    import numpy as np

    from semfs.io.anndata import frame_column, frame_columns, is_anndata_file
    from semfs.selectors.batch_like import looks_like_batches

    if not is_anndata_file(data):
        return {}
    names = [name for name in frame_columns(data, "obs") if looks_like_batches(name)]
    return {name: np.asarray(frame_column(data, "obs", name), object) for name in names}


def descriptions_of(
    options: Selection, source: BlockSource
) -> tuple[pd.DataFrame | None, list[Any]]:
    """Return class descriptions (None for labels alone), and unseen classes of the file.

    An NPZ file may contain both.
    """
    from semfs.datasets.files import class_descriptions

    assert source.labels is not None
    described = described_classes(
        options.attributes, options.data, options.label, options.layer
    )
    return class_descriptions(options.data, described, source.labels.classes)


def unseen_classes(texts: Sequence[str] | None, source: BlockSource) -> list[Any]:
    """Return the classes that --unseen names."""
    from semfs.scverse import named_classes

    assert source.labels is not None
    return named_classes("unseen", texts or (), source.labels)
