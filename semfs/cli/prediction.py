"""`semfs predict` and `semfs transform`: a saved selector applied to another file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from semfs.cli.console import show, show_written
from semfs.cli.options import DATA, IDS, NO_LABEL, Layer, Names, existing, given, words
from semfs.io.safety import check_apart

SELECTOR = "A selector that was saved by `semfs select --save` or semfs.save."
TABLE = (
    "Attribute table of the possible classes. Default: all classes that "
    "the selector knows, both seen classes and classes that are only "
    "described."
)
TOGETHER = (
    "Predict all samples together instead of one by one. Use this option "
    "if there are many samples of each class and they either come from "
    "the same source as the training samples or can only belong to "
    "unseen classes (--table). If some samples already have labels, also "
    "use --label."
)
EXISTING_LABELS = (
    "Predict only samples without a label; labeled samples keep their "
    "labels. The labels are in a column (of obs in H5AD and Zarr), an "
    "array of the file, or a label file."
)
FOUND_IDS = (
    "Default: the sample names in the file, such as obs_names, the index "
    "of a data frame or text in the first column."
)
BATCH_TO_REMOVE = (
    "Column with the batch of each sample, such as its donor. If the "
    "selector was fitted with a batch, the offset of this batch is "
    "removed."
)
UNKNOWN = (
    "Assign the label 'unknown' to samples that are far from all "
    "classes. The value is the share of samples of seen classes that get "
    "this label by mistake. It holds for samples like the training "
    "samples; among others, such as samples from another laboratory, "
    "many more may get this label."
)
NORMALIZE = (
    "'log1p' normalizes counts, and 'none' uses the values as they are. "
    "'auto' does the same as in the fit; if that was 'log1p', values "
    "that are clearly not counts cause an error."
)
GENE_SYMBOLS = (
    "Column of var (H5AD, Zarr) that holds the feature names used in the "
    "fit. For example, use the column of gene symbols if the index of "
    "var holds Ensembl ids."
)
MISSING = (
    "What to do if the data lack selected features: stop ('error'), or "
    "predict from the remaining features ('ignore')."
)
KEPT_LABEL = (
    "Labels to copy to the output: a column, an array of the file, or a "
    "label file. Text columns of a table are always copied."
)
TRANSFORMED = "The reduced data (.csv .tsv .parquet .feather .npy .npz .xlsx .h5ad)."
PREDICTED = (
    "The output: a table (.csv .tsv .parquet .feather .xlsx), or a copy of the data with "
    "annotations (.h5ad)."
)

#: Printed if samples were named among all classes of the fit.
SHIFTED = (
    "If the samples are not from the same laboratory as the training "
    "samples, too many of them may be assigned to a few classes. Use "
    "--table to restrict predictions to the possible classes."
)

GeneSymbols = Annotated[str | None, Option(help=GENE_SYMBOLS)]


@dataclass
class Prediction:
    """Options of `predict`."""

    selector: Annotated[Path, Argument(help=SELECTOR)]
    data: Annotated[Path, Argument(help=DATA)]
    table: Annotated[Path | None, Option("--table", "-t", help=TABLE)] = None
    label: Annotated[str | None, Option("--label", "-l", help=EXISTING_LABELS)] = None
    unlabeled_names: Annotated[Names, Option(help=NO_LABEL)] = None
    batch: Annotated[str | None, Option(help=BATCH_TO_REMOVE)] = None
    sample_id: Annotated[str | None, Option("--id", help=f"{IDS} {FOUND_IDS}")] = None
    together: Annotated[bool, Option("--together", help=TOGETHER)] = False
    unknown: Annotated[float | None, Option(help=UNKNOWN)] = None
    missing_features: Annotated[Literal["error", "ignore"], Option(help=MISSING)] = "error"
    layer: Layer = None
    gene_symbols: GeneSymbols = None
    normalize: Annotated[Literal["auto", "log1p", "none"], Option(help=NORMALIZE)] = "auto"
    out: Annotated[Path, Option("--out", "-o", help=PREDICTED)] = Path("predicted.csv")


def predict(options: Prediction) -> None:
    """For each sample of a file, predict the class, its probability and the second-best class.

    Probabilities are calibrated for samples like those of the fit. Which classes compete
    matters most, so restrict them with `--table` if you can.

    The data are normalized in the same way as those of the fit. If they are already
    normalized, give `--normalize none`. With `--label COLUMN`, only samples without a label
    in this column are predicted; the others keep their labels.

    Example: `semfs predict panel.npz cells.h5ad --label cell_type -o annotated.h5ad`
    """
    import semfs
    from semfs.annotation import check_prediction_path, predict_file
    from semfs.attributes import read_attributes
    from semfs.io.reader import NO_LABEL_TEXTS
    from semfs.selectors.annotated import UNKNOWN_CLASS, Competitors

    check_prediction_path(options.data, options.out)
    check_apart((options.out,), (options.selector, options.table, options.label))
    replaced = existing([options.out])
    selector = semfs.load(options.selector)
    # files of semfs.save may also hold a baseline, which only selects
    if not hasattr(selector, "predict_top"):
        found = type(selector).__name__
        raise ValueError(f"{options.selector} holds a {found}, which cannot predict classes.")
    table = None if options.table is None else read_attributes(options.table)
    # A label may contain commas itself.
    names = [name for text in options.unlabeled_names or () for name in (text, *words(text))]
    frame = predict_file(
        selector,
        options.data,
        options.out,
        class_table=table,
        no_label=names or NO_LABEL_TEXTS,
        **given(options, "label", "batch", "sample_id"),
        together=options.together,
        unknown_rate=options.unknown,
        missing_features=options.missing_features,
        layer=options.layer,
        gene_symbols=options.gene_symbols,
        normalize=options.normalize,
    )
    # labels that samples had already come without a probability
    named = frame.loc[frame["probability"].notna(), "class"]
    classes = Competitors.of(selector, table)
    counts = named[named != UNKNOWN_CLASS].value_counts()
    shown = ", ".join(f"{name} {count}" for name, count in counts.head(5).items())
    show(f"Possible classes: {_kinds_of_classes(len(classes.seen), len(classes.unseen))}.")
    show(f"Assigned {counts.sum()} samples to {len(counts)} classes. Most frequent: {shown}")
    if classes.seen and table is None:
        show(SHIFTED)
    if classes.seen and classes.unseen:
        n_unseen = counts[counts.index.isin(classes.unseen)].sum()
        show(f"{n_unseen} of them were assigned to classes that are only described.")
    if options.unknown is not None:
        n_unknown = int((named == UNKNOWN_CLASS).sum())
        show(f"{n_unknown} samples are {UNKNOWN_CLASS}.")
    if len(named) < len(frame):
        show(f"{len(frame) - len(named)} samples kept their labels.")
    show_written([options.out], replaced)


def _kinds_of_classes(n_seen: int, n_unseen: int) -> str:
    """Return how many classes of each kind compete, and how to change that."""
    seen = f"{n_seen} with samples in the fit"
    unseen = f"{n_unseen} that are only described"
    if not n_seen:
        return unseen
    return f"{seen} and {unseen} (--table restricts them)" if n_unseen else seen


def transform(
    selector: Annotated[Path, Argument(help=SELECTOR)],
    data: Annotated[Path, Argument(help=DATA)],
    label: Annotated[str | None, Option("--label", "-l", help=KEPT_LABEL)] = None,
    layer: Layer = None,
    gene_symbols: GeneSymbols = None,
    sample_id: Annotated[str | None, Option("--id", help=IDS)] = None,
    out: Annotated[Path, Option("--out", "-o", help=TRANSFORMED)] = Path("reduced.csv"),
) -> None:
    """Apply a saved selector to another data file, and write the selected features.

    Features are found by name, and only the selected ones are needed. Values are written as
    they are in the file, without normalization or scaling, as `semfs select` does. Missing
    values are filled if the selector was fitted with `--impute`.

    Example: `semfs transform panel.npz new_cells.parquet -o new_reduced.parquet`
    """
    from semfs.select.outputs import check_file_ending

    check_file_ending(out)
    check_apart((out,), (selector, data, label))
    replaced = existing([out])

    import semfs
    from semfs.select.applied import transform_file

    fitted = semfs.load(selector)
    n_samples, n_features = transform_file(
        fitted,
        data,
        out,
        label=label,
        layer=layer,
        gene_symbols=gene_symbols,
        sample_id=sample_id,
    )
    show(f"Kept {n_features} of {fitted.n_features_in_} features of {n_samples} samples.")
    show_written([out], replaced)
