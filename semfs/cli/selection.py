"""`semfs select`: select features in a data file."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from semfs.cli.console import complain, show, show_written
from semfs.cli.feature_options import (
    Batch,
    Budget,
    Candidates,
    Capacity,
    Costs,
    Exclude,
    Groups,
    Include,
    MaxLevel,
    MinCells,
    MinLevel,
    MinPerClass,
    capacity_values,
    feature_lists,
    feature_values,
)
from semfs.cli.options import (
    ATTRIBUTES,
    DATA,
    IDS,
    NO_LABEL,
    UNSEEN,
    AsJson,
    Drop,
    Label,
    Layer,
    Names,
    Normalize,
    Scale,
    command_line,
    description_sources,
    existing,
    given,
    method_option,
    reading_option,
    sample_option,
)
from semfs.cli.selection_data import (
    descriptions_of,
    open_source,
    unlabeled_samples,
    unseen_classes,
    warn_if_clusters_are_batches,
    with_unlabeled_names,
    with_usable_labels,
)
from semfs.io.safety import check_apart

if TYPE_CHECKING:
    from semfs import SemFS
    from semfs.rows import BlockSource
    from semfs.select.selection import FileSelection

#: Features to select without -k, as SemFS does.
DEFAULT_SIZE = 50
SIZE = (
    "Number of features to select, or their share, such as 0.1; with --groups, number of "
    "groups. Default: 50, or as many as the budget allows."
)
OUT = (
    "The file for the reduced data (.csv .tsv .parquet .feather .npy "
    ".npz .xlsx .h5ad), or a folder. In .h5ad, all genes are kept and "
    "the selected genes are marked, unless you give --subset."
)
HIDDEN = f"Classes whose samples are not used. {UNSEEN}"
DESCRIPTIONS = f"{ATTRIBUTES} Default: labels."
SYMBOLS = "Column of var that holds the gene names. Default: the index of var (H5AD, Zarr)."
UNLABELED = (
    "Whether samples without a label are ignored ('drop', the default) "
    "or used as examples of unseen classes ('use')."
)
UNLABELED_FILE = (
    "Another file with unlabeled samples, which are also used for the "
    "selection. Features are matched by name. If the file lacks a "
    "feature, only the labeled samples are used for it."
)
LABEL_WEIGHT = (
    "Weight of the class labels relative to the descriptions. "
    "With 1, the default, both count the same; with 0, only the descriptions count."
)
COPIES = (
    "Skip features whose correlation with a selected feature exceeds "
    "this value. With 1, no feature is skipped. Default: 0.95."
)
IMPUTE = (
    "Fill missing values of a table with the median of the feature "
    "('median') or with its mean in the class ('class-mean', which does "
    "not change class means). In new samples, predict and transform fill "
    "them with the median or mean of the feature in the training "
    "samples."
)
SUBSET = "Write only the selected genes (H5AD)."
ALPHA = "Weight of the class-center loss."
GAMMA = (
    "Ridge penalty. Larger values favor features with a large variance. "
    "Default: the default of SemFS."
)
SAVE = "Save the fitted selector to this .npz file, for `semfs predict` or semfs.load."
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
    sample_id: Annotated[str | None, sample_option("--id", help=IDS)] = None
    unseen: Annotated[Names, sample_option(help=HIDDEN)] = None
    drop: Drop = None
    include: Include = None
    exclude: Exclude = None
    candidates: Candidates = None
    min_per_class: MinPerClass = None
    groups: Groups = None
    costs: Costs = None
    budget: Budget = None
    min_level: MinLevel = None
    max_level: MaxLevel = None
    capacity: Capacity = None
    layer: Layer = None
    gene_symbols: Annotated[str | None, reading_option(help=SYMBOLS)] = None
    normalize: Normalize = None
    scale: Scale = False
    impute: Annotated[
        Literal["median", "class-mean"] | None,
        reading_option(help=IMPUTE),
    ] = None
    min_cells: MinCells = None
    unlabeled: Annotated[Literal["use", "drop"] | None, sample_option(help=UNLABELED)] = None
    unlabeled_file: Annotated[Path | None, sample_option(help=UNLABELED_FILE)] = None
    unlabeled_names: Annotated[Names, sample_option(help=NO_LABEL)] = None
    batch: Batch = None
    subset: Annotated[bool, Option("--subset", help=SUBSET)] = False
    alpha: Annotated[float, method_option(help=ALPHA)] = 1.0
    label_weight: Annotated[float | None, method_option(help=LABEL_WEIGHT)] = None
    gamma: Annotated[float | None, method_option(help=GAMMA)] = None
    max_correlation: Annotated[float | None, method_option(help=COPIES)] = None
    scheduler: Annotated[str | None, method_option(help=CLUSTER)] = None
    save: Annotated[Path | None, Option(help=SAVE)] = None
    as_json: AsJson = False


def select(options: Selection) -> None:
    """Select features in a data file; write a ranked feature table and the reduced data.

    For .h5ad, the reduced data are the whole file, in which var marks the selected genes;
    with `--subset`, they have only the selected genes. Samples without a label are not used
    unless you give `--unlabeled use`. They are always in the reduced data.

    Example: `semfs select cells.csv --label type --attributes types.csv -k 50 -o out.csv`
    """
    import semfs
    from semfs.select.outputs import check_file_or_folder, check_outputs
    from semfs.select.selection import select_features

    check_file_or_folder(options.out)
    source = open_source(options)
    outputs = (*check_outputs(source, options.out, options.subset), options.save)
    task = prepare(options, source, outputs)
    done = select_features(
        task.source,
        task.selector,
        options.out,
        settings=task.settings,
        **task.fitting,
        **given(options, "subset"),
    )
    warn_if_clusters_are_batches(options, done)
    if options.save is not None:
        done.files.append(semfs.save(task.selector, options.save))
    if options.as_json:
        print(json.dumps(done.as_dict(), indent=1))
        return
    print_selection(done)
    show_written(done.files, task.replaced)


@dataclass
class Task:
    """The selector, the samples, and the files that will be replaced."""

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
    """Return the selector and the samples for the options.

    All errors that can be found before the fit are raised here.
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

    unseen = unseen_classes(options.unseen, source)
    assert source.labels is not None
    before = set(source.labels.classes)
    # Labels that mean "no label" need no description.
    source = with_unlabeled_names(options, source)
    # names of features first, because to read an ontology takes seconds
    groups = feature_values("groups", options.groups, source)
    features = feature_lists(options, source, groups)
    table, stored_unseen = descriptions_of(options, source)
    source, table = with_usable_labels(options, source, table, [*unseen, *stored_unseen])
    assert source.labels is not None
    # A class that is gone, or left out as too rare, cannot be left out once more.
    removed = before - set(source.labels.classes)
    unseen = [label for label in [*unseen, *stored_unseen] if label not in removed]
    selector = semfs.SemFS(
        _number_of_features(options, source.n_features),
        attributes=table,
        # progress is for people, not for log files
        verbose=int(sys.stderr.isatty()),
        include=features["include"] or None,
        exclude=features["exclude"] or None,
        # a list that matches nothing leaves no candidate; None leaves all
        candidates=None if options.candidates is None else features["candidates"],
        groups=groups,
        costs=feature_values("costs", options.costs, source, groups),
        capacity=capacity_values(options.capacity, source),
        missing_values="class-mean" if options.impute == "class-mean" else "error",
        **given(options, "alpha", "gamma", "label_weight", "max_correlation"),
        **given(options, "min_per_class", "budget", "min_level", "max_level"),
    )
    fitting: dict[str, Any] = given(options, "scale", "scheduler")
    fitting["unseen"] = unseen
    fitting |= unlabeled_samples(options)
    if options.impute == "median":
        fitting["impute"] = "median"
    return Task(source, selector, fitting, _settings(options, features), replaced)


def _number_of_features(options: Selection, n_features: int) -> float | None:
    """Return -k, as an int if it is whole, and at most the number of features.

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


#: Options that say how the data were read, and which features and samples were used.
KEPT_OPTIONS = (
    "label",
    "sample_id",
    "layer",
    "gene_symbols",
    "normalize",
    "scale",
    "impute",
    "unseen",
    "drop",
    "min_cells",
    "unlabeled",
    "unlabeled_names",
    "include",
    "exclude",
    "candidates",
    "batch",
)


def _settings(options: Selection, features: dict[str, list[int]]) -> dict[str, object]:
    """Return what is needed to repeat the run, for uns of an .h5ad file."""
    from semfs.selectors.rules.parameters import RULE_PARAMETERS

    settings: dict[str, object] = given(options, *KEPT_OPTIONS, *RULE_PARAMETERS)
    settings |= given(options, "label_weight", "gamma", "max_correlation")
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
