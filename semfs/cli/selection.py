"""`semfs select`: select features in a data file."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from semfs.cli.console import complain, show, show_written
from semfs.cli.options import (
    ATTRIBUTES,
    DATA,
    UNSEEN,
    AsJson,
    Drop,
    Label,
    Layer,
    Names,
    Normalize,
    Scale,
    check_descriptions,
    check_label_given,
    command_line,
    described_classes,
    description_sources,
    existing,
    expand_columns,
    given,
    level_columns,
)
from semfs.io.safety import check_apart

if TYPE_CHECKING:
    import pandas as pd

    from semfs import SemFS
    from semfs.rows import BlockSource
    from semfs.select.selection import FileSelection

#: Features to select without -k, as SemFS does.
DEFAULT_SIZE = 50
SIZE = "Number of features to select, or their share, such as 0.1. Default: 50."
OUT = "The reduced data (.csv .tsv .parquet .feather .npy .npz .xlsx .h5ad), or a folder."
LIST = (
    "a name, comma-separated names, a file with one name per line, or 're:PATTERN'; repeatable."
)
INCLUDE = f"Features to select in any case: {LIST}"
EXCLUDE = f"Features never to select: {LIST}"
CANDIDATES = f"Select only among these: {LIST}"
PER_CLASS_HELP = "Select at least this many markers of each class."
GROUPS = (
    "Features selected together; -k then counts groups: "
    "a column of var (H5AD, Zarr), or a table of features and groups."
)
COSTS = "Cost of each feature: a column of var (H5AD, Zarr), or a table of features and costs."
BUDGET = "Limit of the total cost. Without -k, it also decides how many features are selected."
MIN_LEVEL = "Leave out features whose highest class mean is below this."
MAX_LEVEL = "Leave out features whose highest class mean is above this."
CAPACITY = (
    "Limit of the sum of the means of the selected features, in every class: "
    "a number, or a table of classes and numbers."
)
HIDDEN = f"Classes not to use. {UNSEEN}"
DESCRIPTIONS = f"{ATTRIBUTES} Default: labels."
SYMBOLS = "Column of var with gene names, instead of the index (H5AD, Zarr)."
RARE = "Leave out classes with fewer samples."
UNLABELED = (
    "Whether samples without a label are dropped (the default), "
    "or used as examples of unseen classes."
)
UNLABELED_FILE = (
    "Another file of unlabeled samples, to be used as well. "
    "Features are found by name; those it lacks are judged by the labeled "
    "samples alone."
)
LABEL_WEIGHT = (
    "Weight of the class labels beside the descriptions. "
    "With 1, the default, both count the same; with 0, only the descriptions count."
)
COPIES = (
    "Skip features whose correlation with a selected one exceeds this. "
    "1 skips nothing; default: 0.95."
)
IMPUTE = (
    "Fill missing values of a table: with the median of the feature, "
    "or with the mean of the class (class means do not change)."
)
BATCH_COLUMN = (
    "Column with the batch of each sample, such as its donor or plate. "
    "The constant differences between batches are removed before features are "
    "selected."
)
SUBSET = "H5AD: write the selected genes only."
SAVE = "Save the selector here, for semfs.load."
NO_LABEL = (
    "Labels that mean 'no label', comma-separated; repeatable. Used "
    "instead of nan, NA, n/a, none, unknown and unassigned."
)
CLUSTER = "Address of a Dask cluster, such as tcp://host:8786."


@dataclass
class Selection:
    """Options of `select`: the file, the selector, and what is written."""

    data: Annotated[Path, Argument(help=DATA)]
    label: Label = None
    attributes: Annotated[
        Path | None,
        Option("--attributes", "-a", help=DESCRIPTIONS),
    ] = None
    n_features_to_select: Annotated[float | None, Option("-k", help=SIZE)] = None
    out: Annotated[Path, Option("--out", "-o", help=OUT)] = Path("selected")
    unseen: Annotated[Names, Option(help=HIDDEN)] = None
    drop: Drop = None
    include: Annotated[Names, Option(help=INCLUDE)] = None
    exclude: Annotated[Names, Option(help=EXCLUDE)] = None
    candidates: Annotated[Names, Option(help=CANDIDATES)] = None
    min_per_class: Annotated[int | None, Option(help=PER_CLASS_HELP)] = None
    groups: Annotated[str | None, Option(help=GROUPS)] = None
    costs: Annotated[str | None, Option(help=COSTS)] = None
    budget: Annotated[float | None, Option(help=BUDGET)] = None
    min_level: Annotated[float | None, Option(help=MIN_LEVEL)] = None
    max_level: Annotated[float | None, Option(help=MAX_LEVEL)] = None
    capacity: Annotated[str | None, Option(help=CAPACITY)] = None
    layer: Layer = None
    gene_symbols: Annotated[str | None, Option(help=SYMBOLS)] = None
    normalize: Normalize = None
    scale: Scale = False
    impute: Annotated[Literal["median", "class-mean"] | None, Option(help=IMPUTE)] = None
    min_cells: Annotated[int | None, Option(help=RARE)] = None
    unlabeled: Annotated[Literal["use", "drop"] | None, Option(help=UNLABELED)] = None
    unlabeled_file: Annotated[Path | None, Option(help=UNLABELED_FILE)] = None
    unlabeled_names: Annotated[Names, Option(help=NO_LABEL)] = None
    batch: Annotated[str | None, Option(help=BATCH_COLUMN)] = None
    subset: Annotated[bool, Option("--subset", help=SUBSET)] = False
    alpha: Annotated[float, Option(help="Weight of the class-center loss.")] = 1.0
    label_weight: Annotated[float | None, Option(help=LABEL_WEIGHT)] = None
    gamma: Annotated[float | None, Option(help="Ridge penalty; default: SemFS's.")] = None
    max_correlation: Annotated[float | None, Option(help=COPIES)] = None
    scheduler: Annotated[str | None, Option(help=CLUSTER)] = None
    save: Annotated[Path | None, Option(help=SAVE)] = None
    as_json: AsJson = False


def select(options: Selection) -> None:
    """Select features in a data file. Writes a ranked feature table and the reduced data.

    Samples without a label are not used unless you say `--unlabeled use`; they are always in
    the reduced data.

    Example: `semfs select cells.csv --label type --attributes types.csv -k 50 -o out.csv`
    """
    import semfs
    from semfs.select.outputs import output_paths
    from semfs.select.selection import select_features

    source = open_source(options)
    outputs = (*output_paths(source, options.out), options.save)
    task = prepare(options, source, outputs)
    done = select_features(
        task.source,
        task.selector,
        options.out,
        settings=task.settings,
        **task.fitting,
        **given(options, "subset"),
    )
    if options.save is not None:
        done.files.append(semfs.save(task.selector, options.save))
    if options.as_json:
        print(json.dumps(done.as_dict(), indent=1))
        return
    print_selection(done)
    show_written(done.files, task.replaced)


@dataclass
class Task:
    """What is fitted to what, and the files that will be replaced."""

    source: "BlockSource"
    selector: "SemFS"
    fitting: dict[str, Any]  # further arguments of `fit_features`
    settings: dict[str, object]  # to repeat the run
    replaced: list[Path]


def prepare(
    options: Selection,
    source: "BlockSource",
    outputs: Sequence[Path | None],
) -> Task:
    """Return the selector and the samples that the options mean.

    What can be refused is refused here, before anything long begins.
    """
    import semfs

    inputs = (
        options.data,
        options.label,
        *description_sources(options.attributes),
        options.unlabeled_file,
    )
    check_apart(outputs, inputs)
    replaced = existing(outputs)

    unseen = _unseen_classes(options.unseen, source)
    assert source.labels is not None
    before = set(source.labels.classes)
    # Labels that mean "no label" need no description.
    source = _with_unlabeled_names(options, source)
    table, stored_unseen = _descriptions(options, source)
    source = _with_usable_labels(options, source, table)
    assert source.labels is not None
    # A class that is gone, or left out as too rare, cannot be left out once more.
    removed = before - set(source.labels.classes)
    unseen = [label for label in [*unseen, *stored_unseen] if label not in removed]
    features = _feature_lists(options, source)
    selector = semfs.SemFS(
        _number_of_features(options, source.n_features),
        attributes=table,
        # progress is for people, not for log files
        verbose=int(sys.stderr.isatty()),
        include=features["include"] or None,
        exclude=features["exclude"] or None,
        # a list that matches nothing leaves no candidate; None leaves all
        candidates=None if options.candidates is None else features["candidates"],
        groups=_feature_values("groups", options.groups, source),
        costs=_feature_values("costs", options.costs, source),
        capacity=_capacity(options.capacity, source),
        missing_values="class-mean" if options.impute == "class-mean" else "error",
        **given(options, "alpha", "gamma", "label_weight", "max_correlation"),
        **given(options, "min_per_class", "budget", "min_level", "max_level"),
    )
    fitting: dict[str, Any] = given(options, "scale", "scheduler")
    fitting["unseen"] = unseen
    fitting |= _unlabeled_samples(options)
    if options.impute == "median":
        fitting["impute"] = "median"
    return Task(source, selector, fitting, _settings(options, features), replaced)


# ---- the data -------------------------------------------------------------------------


def open_source(options: Selection) -> "BlockSource":
    """Return the file as a source of samples, genes named as --gene-symbols says."""
    from semfs.rows import open_blocks
    from semfs.scverse import warn_if_scaled
    from semfs.select.opening import gene_names

    check_label_given(options.data, options.label)
    check_descriptions(options.attributes, options.data, options.layer)
    drop = expand_columns(options.data, options.label, options.layer, options.drop)
    drop += level_columns(options.attributes, options.data, options.layer)
    reading = given(options, "normalize", "batch")
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
        warn_if_scaled(source.reader, _other_matrices(options.data, options.layer))
    return source


def _other_matrices(data: Path, used: str | None) -> list[str]:
    """Return the layers of an AnnData file, and raw, without the one in use."""
    from semfs.io.anndata import is_anndata_file, matrix_names

    if not is_anndata_file(data):
        return []
    return [name for name in matrix_names(data) if name != used]


def _with_unlabeled_names(options: Selection, source: "BlockSource") -> "BlockSource":
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


def _with_usable_labels(
    options: Selection, source: "BlockSource", table: "pd.DataFrame | None"
) -> "BlockSource":
    """Return the source with labels as the options say.

    Labels may be missing, and classes may be too rare.
    """
    import numpy as np

    from semfs.labels import LEFT_OUT, UNLABELED, Labels
    from semfs.scverse import without_rare_classes

    assert source.labels is not None
    labels = source.labels
    # -1 is scikit-learn's mark of a missing label, unless a class has this name.
    labels = labels.mark_unlabeled(() if table is None else table.index)
    if labels.n_unlabeled and options.unlabeled != "use":
        if options.unlabeled is None:
            complain(
                f"{labels.n_unlabeled} samples without a label are not used. "
                "Use them as examples of unseen classes with --unlabeled use."
            )
        # Left out of the fit; the rows are still written.
        codes = np.where(labels.codes == UNLABELED, LEFT_OUT, labels.codes)
        labels = Labels(labels.classes, codes.astype(np.int32))
    labels = without_rare_classes(labels, "min_cells", options.min_cells)
    return source.with_labels(labels)


def _unlabeled_samples(options: Selection) -> dict[str, Any]:
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


# ---- classes --------------------------------------------------------------------------


def _descriptions(
    options: Selection, source: "BlockSource"
) -> tuple["pd.DataFrame | None", list[Any]]:
    """Return the class descriptions, None for labels alone, and unseen classes of the file.

    An NPZ file may bring both.
    """
    from semfs.datasets.files import class_descriptions

    assert source.labels is not None
    described = described_classes(
        options.attributes, options.data, options.label, options.layer
    )
    return class_descriptions(options.data, described, source.labels.classes)


def _unseen_classes(texts: Sequence[str] | None, source: "BlockSource") -> list[Any]:
    """Return the classes that --unseen names."""
    from semfs.labels import classes_in
    from semfs.validation import ParameterError, did_you_mean, listed

    assert source.labels is not None
    classes = source.labels.classes
    found = classes_in(texts or (), classes)
    unknown = [label for label in found if label not in classes]
    if unknown:
        known = f". Classes: {listed(classes, 8)}. Repeat --unseen if names have commas."
        hint = did_you_mean(unknown[0], classes) or known
        message = f": class {unknown[0]!r} does not occur in the data{hint}"
        raise ParameterError("unseen", message)
    return found


# ---- features -------------------------------------------------------------------------


def _feature_lists(options: Selection, source: "BlockSource") -> dict[str, list[int]]:
    """Return the indices that --include, --exclude and --candidates mean."""
    from semfs.feature_names import resolve_features

    names = source.feature_names
    found = {}
    for parameter in ("include", "exclude", "candidates"):
        values = getattr(options, parameter)
        found[parameter] = resolve_features(
            parameter, values, names, source.n_features
        ).tolist()
    both = set(found["include"]) & set(found["exclude"])
    if both:
        feature = min(both)
        name = feature if names is None else names[feature]
        raise ValueError(
            f"{name!r} is in --include and in --exclude. Take it out of one of them."
        )
    return found


def _feature_values(
    parameter: str, text: str | None, source: "BlockSource"
) -> dict[str, Any] | list[Any] | None:
    """Return what --groups or --costs names: a column of var, or a table of two columns."""
    from semfs.io.anndata import frame_column
    from semfs.validation import ParameterError, is_file

    if text is None:
        return None
    if is_file(text):
        table = _two_columns(parameter, Path(text), set(source.feature_names or ()))
        if parameter == "costs":
            return {name: _as_number(parameter, name, value) for name, value in table.items()}
        return dict(table)
    reader = source.reader
    if reader.path is None or not reader.of_cells:
        message = (
            f"is {text!r}, which is not a file; only .h5ad and .zarr files have such columns."
        )
        raise ParameterError(parameter, message)
    return list(frame_column(reader.path, reader.frame, text))


def _capacity(
    text: str | None,
    source: "BlockSource",
) -> float | dict[Any, float] | None:
    """Return the number that --capacity is, or those of a table of classes."""
    from semfs.validation import is_file

    if text is None:
        return None
    if not is_file(text):
        return _as_number("capacity", "every class", text)
    assert source.labels is not None
    # the table has text, while labels of the data may be numbers
    label_of = {str(label): label for label in source.labels.classes}
    table = _two_columns("capacity", Path(text), set(label_of))
    return {
        label_of.get(name, name): _as_number("capacity", name, value)
        for name, value in table.items()
    }


def _two_columns(parameter: str, path: Path, known: set[str]) -> dict[str, str]:
    """Return a table of names and values; a first line that names no known one is a header."""
    import csv

    from semfs.validation import ParameterError

    # utf-8-sig, because Excel begins CSV files with a byte order mark
    with path.open(newline="", encoding="utf-8-sig") as file:
        text = file.read()
    # comma last: names and decimal numbers may contain one
    delimiter = next((mark for mark in "\t;," if mark in text), ",")
    lines = csv.reader(text.splitlines(), delimiter=delimiter)
    rows = [row for row in lines if any(row)]
    if rows and rows[0][0].strip() not in known:
        rows = rows[1:]
    if not rows or min(len(row) for row in rows) < 2:
        message = f": {path} needs two columns, names and values."
        raise ParameterError(parameter, message)
    return {row[0].strip(): row[1].strip() for row in rows}


def _as_number(parameter: str, name: str, text: str) -> float:
    from semfs.validation import ParameterError

    try:
        return float(text)
    except ValueError:
        raise ParameterError(
            parameter, f"of {name!r} must be a number, got {text!r}."
        ) from None


def _number_of_features(options: Selection, n_features: int) -> float | None:
    """Return -k as a whole number if it is one; it is lowered to the number of features.

    None if there is a budget instead.
    """
    wanted = options.n_features_to_select
    if wanted is None and options.budget is not None:
        return None
    if wanted is None:
        wanted = DEFAULT_SIZE
    if wanted > n_features:
        complain(
            f"-k {wanted:g} is greater than the number of features ({n_features}). "
            "All of them are kept."
        )
        return n_features
    # -k is a float for typer, and SemFS takes floats for shares
    return int(wanted) if float(wanted).is_integer() else wanted


# ---- results --------------------------------------------------------------------------


def _settings(options: Selection, features: dict[str, list[int]]) -> dict[str, object]:
    """Return what is needed to repeat the run, for uns of an .h5ad file."""
    settings: dict[str, object] = given(
        options,
        *(
            "label",
            "layer",
            "gene_symbols",
            "normalize",
            "scale",
            "impute",
            "unseen",
            "drop",
        ),
        *(
            "min_cells",
            "unlabeled",
            "unlabeled_names",
            "include",
            "exclude",
            "candidates",
            "batch",
        ),
        *(
            "min_per_class",
            "groups",
            "costs",
            "budget",
            "min_level",
            "max_level",
            "capacity",
        ),
    )
    # What a file or pattern meant, too, because the file may change.
    for name, indices in features.items():
        if indices and name != "candidates":
            settings[f"{name}_indices"] = indices
    settings["data"] = str(options.data)
    settings["attributes_from"] = str(options.attributes or "labels")
    if options.unlabeled_file is not None:
        settings["unlabeled_file"] = str(options.unlabeled_file)
    settings["command"] = command_line()
    return settings


def print_selection(done: "FileSelection") -> None:
    """Print how many features were selected, the best ones, and what information was used."""
    selector: SemFS = done.selector
    selected = done.features["feature"][done.features["selected"]].tolist()
    show(
        f"Selected {len(selected)} of {len(done.features)} features "
        f"on {done.n_rows} samples of {len(selector.classes_)} classes. "
        f"Best: {', '.join(selected[:5])}"
    )
    for name, text in selector.knowledge_.items():
        show(f"  {name}: {text}")
    for sentence in selector.rules_:
        show(f"  {sentence}")
