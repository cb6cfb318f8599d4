"""`semfs evaluate` and `semfs demo`: how well selected features separate unseen classes."""

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Exit, Option

from semfs.cli.console import complain, print_table, show, show_written
from semfs.cli.feature_options import (
    PER_CLASS_HELP,
    Candidates,
    Exclude,
    MinCells,
    group_table,
    refuse_rules,
)
from semfs.cli.options import (
    ATTRIBUTES,
    UNSEEN,
    AsJson,
    Drop,
    Figures,
    Jobs,
    Label,
    Layer,
    Names,
    Normalize,
    Scale,
    Seed,
    check_descriptions,
    check_label_given,
    command_line,
    described_classes,
    description_sources,
    existing,
    expand_columns,
    given,
    is_page,
    level_columns,
    print_folder,
    rule_option,
    sample_option,
    words,
)
from semfs.io.safety import check_apart

if TYPE_CHECKING:
    from semfs.lab.demo import Demo
    from semfs.lab.parallel import Summary

DATASET = (
    "The data: 'sample' (bundled), a name that 'semfs datasets' lists, or a file (h5ad, CSV, "
    "Excel, Parquet, NPZ, …)."
)
PAGE = "Write an HTML page with figures to this file."
BATCHES = (
    "Column with the batch of each sample, such as its donor or plate. "
    "Constant differences between batches are estimated from the samples "
    "of the seen classes and removed from all samples, for all methods."
)
MEDIANS = (
    "With 'median', fill missing values of a table with the median of "
    "the feature over the samples of the seen classes."
)
PANEL_HELP = (
    "Also evaluate this panel: a file with one feature per line, or a "
    "table with a column of features. List the best feature first. "
    "Repeatable."
)
LATEX = "Write the tables of the page to this folder as LaTeX files."
REPEATS = "Number of K-means runs per score."
METRIC = (
    "Also score the unseen classes with your own metric(X, y), given as "
    "module:function. Larger values must be better. Repeatable. The "
    "guide 'Your own selector and your own metric' has an example."
)
METHODS = (
    "Methods to compare (comma-separated), such as semfs, markers (from "
    "scanpy's rank_genes_groups) or hvg. An unknown name prints the list "
    "of all methods. Give your own as module:Class; the guide 'Your own "
    "selector and your own metric' has an example."
)
FAILING_GROUPS = (
    "A table of features and groups, such as channels and their sensors. "
    "In the part of the page that shows the effect of failing features, "
    "all features of a group fail together. Numbers of features that "
    "would split a group of a panel are skipped. The methods still "
    "select single features and ignore costs."
)
RUN = (
    "A folder in which finished jobs are stored. If the run is "
    "interrupted, repeat the same command to resume it."
)
SIZES = (
    "Numbers of features: a list, such as 10,20, or a range "
    "start:stop:step, such as 5:50:5 (stop included). Or shares, such "
    "as 0.1,0.2."
)
SPLITS = (
    "Number of random class splits. The split that comes with the data set is then ignored."
)
N_UNSEEN = (
    "Number of unseen classes in a random class split. Default: as many "
    "as in the split that comes with the data set, or 30 % of the "
    "classes."
)
SPLITS_FILE = (
    "A text file with your own class splits. Each line lists the unseen "
    "classes of one split, separated by commas."
)
USUAL_METHODS = "semfs-described,semfs,between,markers,variance,random"
#: Said of every comparison with given panels.
DESIGNED = (
    "Panels from files may have an unfair advantage: they could have "
    "been designed with samples of the classes that are hidden from the "
    "methods. If fewer features are compared than a panel has, only its "
    "first ones are used. If its order is arbitrary, compare it at its "
    "full size. Panels are compared at the same number of features, not "
    "at the same cost."
)
#: Said of every comparison on a file, for which somebody may have designed a panel.
UNRULED = (
    "The panel rules --candidates, --exclude and --min-cells apply to "
    "all methods; --include and --min-per-class apply to SemFS only. To "
    "compare a panel with other rules (such as --budget or --capacity), "
    "give its list of features with --panel."
)
#: Said if numbers of features are left out because of groups.
CUT = "-k {} left out because a panel of that size would split a group."
#: Help of the rules that other methods do not know.
SEMFS_INCLUDES = (
    "Features that SemFS must select; the other methods are not "
    "affected. Give names (comma-separated), a file with one name per "
    "line or a table with a column of names, or 're:PATTERN'; "
    "repeatable."
)
SEMFS_PER_CLASS = (
    f"{PER_CLASS_HELP} Applies to SemFS only, which is then refitted for "
    "each number of features. No score is given where the number of "
    "features is too small for the required markers."
)
#: Options of `select` that are refused with a reason.
NOT_APPLIED = Option(hidden=True)
#: Failed jobs that are printed one by one.
MOST_FAILURES = 10


@dataclass
class Evaluation:
    """Options of `evaluate`: the data, and those of `semfs.lab.evaluate.evaluate`."""

    data: Annotated[str, Argument(metavar="DATASET", help=DATASET)]
    methods: Annotated[str, Option("--method", "-m", help=METHODS)] = USUAL_METHODS
    panel: Annotated[list[Path] | None, Option(help=PANEL_HELP)] = None
    groups: Annotated[Path | None, Option(help=FAILING_GROUPS)] = None
    ks: Annotated[str, Option("-k", help=SIZES)] = "5:50:5"
    label: Label = None
    attributes: Annotated[Path | None, Option("--attributes", "-a", help=ATTRIBUTES)] = None
    layer: Layer = None
    normalize: Normalize = None
    scale: Scale = False
    impute: Annotated[Literal["median"] | None, Option(help=MEDIANS)] = None
    drop: Drop = None
    unseen: Annotated[Names, Option(help=f"Unseen classes. {UNSEEN}")] = None
    candidates: Candidates = None
    exclude: Exclude = None
    min_cells: MinCells = None
    include: Annotated[Names, rule_option(help=SEMFS_INCLUDES)] = None
    min_per_class: Annotated[int | None, rule_option(help=SEMFS_PER_CLASS)] = None
    batch: Annotated[str | None, sample_option(help=BATCHES)] = None
    costs: Annotated[str | None, NOT_APPLIED] = None
    budget: Annotated[str | None, NOT_APPLIED] = None
    capacity: Annotated[str | None, NOT_APPLIED] = None
    min_level: Annotated[str | None, NOT_APPLIED] = None
    max_level: Annotated[str | None, NOT_APPLIED] = None
    metrics: Annotated[Names, Option("--metric", help=METRIC)] = None
    n_repeats: Annotated[int, Option("--repeats", help=REPEATS)] = 20
    n_splits: Annotated[int | None, Option("--splits", help=SPLITS)] = None
    n_unseen: Annotated[int | None, Option(help=N_UNSEEN)] = None
    unseen_file: Annotated[Path | None, Option(help=SPLITS_FILE)] = None
    n_jobs: Jobs = None
    seed: Seed = 0
    run_folder: Annotated[Path | None, Option("--run", metavar="FOLDER", help=RUN)] = None
    out: Annotated[Path | None, Option("--out", "-o", help=PAGE)] = None
    latex: Annotated[Path | None, Option(metavar="FOLDER", help=LATEX)] = None
    figures: Figures = None
    as_json: AsJson = False


def evaluate(options: Evaluation) -> None:
    """Compare methods: how well do their features separate the unseen classes of a data set?

    Your own file needs `--label` and `--attributes`, except an `.npz` file that holds them as
    arrays y and A. `--unseen` names the unseen classes, `--unseen-file` lists several such
    splits, and `--splits` draws them at random. Without these options, the unseen classes
    are those that the data set names, or else are drawn five times.

    `--panel` adds a list of features in a file to the comparison. `--candidates`,
    `--exclude` and `--min-cells` hold for all methods, `--include` and `--min-per-class` for
    SemFS alone; other rules of `select` are refused. If there are class descriptions, they
    are also used to predict the classes of the unseen samples, once with only the unseen
    classes to choose from and once with all classes. The page (`--out`) shows the recall of
    each class, which classes are confused, and what is lost when features fail.

    Example: `semfs evaluate cells.h5ad --label cell_type --attributes cl --splits 5`
    """
    panels = options.panel or []
    _check_options(options, panels)
    sizes = parse_sizes(options.ks)
    _check_methods(options)
    replaced = existing([options.out])
    if options.latex is not None or options.figures is not None:
        replaced += print_folder(options.out, options.latex).glob("*")

    # Imported after the checks, so that a wrong option is refused at once.
    from semfs.lab.evaluate import evaluate as evaluate_methods
    from semfs.lab.panels import notes_on_sizes

    data = _open(options)
    given_panels, notes = _panels(panels, data)
    groups = {}
    if options.groups is not None:
        groups = group_table(options.groups, data.feature_names)
    wanted_ks = _numbers_of_features(sizes, data.X.shape[1])
    ks = _compared_sizes(wanted_ks, given_panels, groups)
    notes += _note_on_left_out(wanted_ks, ks)
    for name, features in given_panels.items():
        notes += notes_on_sizes(name, len(features), wanted_ks)
    with _interruption_explained(options.run_folder):
        rows, summary = evaluate_methods(
            data,
            [*words(options.methods), *_panel_methods(given_panels)],
            ks=ks,
            details=options.out is not None,
            metrics=options.metrics or (),
            groups=groups,
            rules=given(options, "include", "min_per_class"),
            verbose=True,
            splits=_listed_splits(options.unseen_file, data),
            **given(
                options, "n_splits", "n_unseen", "n_repeats", "n_jobs", "seed", "run_folder"
            ),
        )
    # Only who has designed a panel can mistake what is compared.
    if given_panels or groups:
        notes.append(UNRULED)
    # notes on panels come first: they concern every score below
    summary.notes[:0] = notes
    # `print`: rich would write escape codes or wrap lines that scripts parse
    if options.as_json:
        print(json.dumps(rows, indent=1))
    elif rows:
        show(_unseen_counts(summary))
        print_scores(rows)
    written = _write_page_and_tables(options, rows, summary, list(given_panels))
    if not options.as_json:
        show_written(written, replaced)
    for note in summary.notes:
        complain(note)
    report_failures(summary.failures, "failed jobs")


@contextmanager
def _interruption_explained(run_folder: Path | None) -> Iterator[None]:
    """Say after Ctrl-C what remains of the run."""
    try:
        yield
    except KeyboardInterrupt:
        if run_folder is None:
            message = (
                "interrupted. No results were kept. Use --run FOLDER to keep finished jobs."
            )
        else:
            message = (
                f"interrupted. Finished results are in {run_folder}. "
                "Repeat the same command to resume the run."
            )
        raise KeyboardInterrupt(message) from None


def _check_options(options: Evaluation, panels: list[Path]) -> None:
    """Raise if options exclude each other, or if the page cannot be written."""
    _check_one_kind_of_splits(options)
    refuse_rules(options)
    if options.out is not None and not is_page(options.out):
        message = "the name of the page must end in .html."
        raise ValueError(f"{options.out}: {message}")
    sources = description_sources(options.attributes)
    check_apart([options.out], [options.data, options.label, options.groups, *sources, *panels])


def _check_methods(options: Evaluation) -> None:
    """Raise for unknown methods and metrics before the data are read, which may take long."""
    from semfs.lab.figures import check_can_draw
    from semfs.lab.measures import check_metrics
    from semfs.lab.methods import find_method

    for name in words(options.methods):
        find_method(name)
    check_metrics(options.metrics or ())
    if options.figures is not None:
        check_can_draw()


def _check_one_kind_of_splits(options: Evaluation) -> None:
    """Raise if options name unseen classes in more than one way."""
    drawn = options.n_splits is not None or options.n_unseen is not None
    if options.unseen and drawn:
        drawing = "--n-unseen" if options.n_splits is None else "--splits"
        raise ValueError(
            f"--unseen names the unseen classes, but {drawing} draws them "
            "at random. Give one of these options, not both."
        )
    if options.unseen_file is not None and (options.unseen or drawn):
        raise ValueError(
            "--unseen-file already defines the class splits. Leave out "
            "--unseen, --splits and --n-unseen."
        )


def _note_on_left_out(wanted: list[int], compared: list[int]) -> list[str]:
    """Return a note on the numbers of features that are left out, if there are some."""
    left_out = sorted(set(wanted) - set(compared))
    return [CUT.format(", ".join(str(k) for k in left_out))] if left_out else []


def _listed_splits(path: Path | None, data: Any) -> list[list[Any]] | None:
    """Return the unseen classes of each split, from a file with one line for each."""
    from semfs.lab.splits import splits_in_file

    return None if path is None else splits_in_file(data, path)


def _write_page_and_tables(
    options: Evaluation,
    rows: list[dict[str, Any]],
    summary: "Summary",
    panels: list[str],
) -> list[Path]:
    """Write the page, tables and figures that were asked for, and return their paths."""
    from semfs.lab import versions
    from semfs.lab.detail_sections import detail_sections
    from semfs.lab.report import write_for_print, write_report

    written = []
    first = [row["label"] for row in rows][:1]
    sections = detail_sections(summary.details, [*first, *panels])
    if options.out is not None:
        facts = {
            **summary.info,
            "command": command_line(),
            "versions": versions(),
            "notes": summary.notes,
        }
        written.append(write_report(rows, options.out, info=facts, sections=sections))
    if options.latex is not None or options.figures is not None:
        written += write_for_print(
            rows,
            print_folder(options.out, options.latex),
            info=summary.info,
            figures=options.figures,
            tables=options.latex is not None,
            sections=sections,
        )
    return written


def _panels(paths: list[Path], data: Any) -> tuple[dict[str, list[str]], list[str]]:
    """Return the features of each panel by the name of its file, and notes on missing ones."""
    from semfs.lab.panels import note_on_missing, read_panel

    found: dict[str, list[str]] = {}
    notes = [DESIGNED] if paths else []
    for path in paths:
        features, missing = read_panel(path, data.feature_names)
        # files of one name in two folders are told by their paths
        label = path.stem if path.stem not in found else str(path)
        found[label] = features
        if missing:
            notes.append(note_on_missing(path, len(features), missing))
    return found, notes


def _compared_sizes(
    ks: list[int], panels: dict[str, list[str]], groups: dict[str, str]
) -> list[int]:
    """Return the numbers of features at which no panel is cut within a group."""
    whole = [k for k in ks if not _cuts_a_group(k, panels, groups)]
    # Each panel is also judged as a whole, and the methods with as many features.
    return sorted({*whole, *(len(features) for features in panels.values())})


def _cuts_a_group(k: int, panels: dict[str, list[str]], groups: dict[str, str]) -> bool:
    """Return whether the first k features of a panel hold some, but not all, of its group."""
    for features in panels.values():
        rest = {groups[name] for name in features[k:] if name in groups}
        if any(groups.get(name) in rest for name in features[:k]):
            return True
    return False


def _panel_methods(panels: dict[str, list[str]]) -> list[Any]:
    """Return the methods that select the features of panels."""
    from semfs.lab.methods import panel_method

    return [panel_method(label, features) for label, features in panels.items()]


def _open(options: Evaluation) -> Any:
    """Return the data set, a known one or a file."""
    from semfs.io.registry import is_data_path
    from semfs.lab.data import open_data
    from semfs.lab.restricted import restricted

    path = Path(options.data)
    reading = given(options, "label", "attributes", "unseen", "layer", "normalize", "batch")
    if is_data_path(path):
        check_label_given(path, options.label)
        check_descriptions(options.attributes, path, options.layer)
        drop = expand_columns(path, options.label, options.layer, options.drop)
        reading["drop"] = drop + level_columns(options.attributes, path, options.layer)
        reading["impute"] = options.impute is not None
        if options.attributes is not None:
            reading["attributes"] = described_classes(
                options.attributes, path, options.label, options.layer
            )
    else:
        # `open_data` refuses them with a reason: they are for files.
        reading |= given(options, "drop", "impute")
    data = replace(open_data(options.data, **reading), scale=options.scale)
    return restricted(data, **given(options, "candidates", "exclude", "min_cells"))


def parse_sizes(text: str) -> list[float]:
    """Read numbers of features, 5:50:5 (the end included), 10 or 5,10,20; or shares, 0.1.

    >>> parse_sizes("5:15:5,0.1")
    [0.1, 5, 10, 15]
    """
    sizes: set[float] = set()
    try:
        for word in words(text):
            if ":" in word:
                first, last, *step = (int(part) for part in word.split(":"))
                sizes.update(range(first, last + 1, *step))
            elif "." in word and 0 < float(word) < 1:
                sizes.add(float(word))
            else:
                sizes.add(int(word))
    except (ValueError, TypeError):  # not a number; 1:2:3:4 is not a range
        sizes = set()
    if not sizes or min(sizes) <= 0:
        raise ValueError(
            f"-k is {text!r}. Give whole numbers, such as 10,20 or "
            "5:50:5, or shares, such as 0.1."
        )
    return sorted(sizes)


def _numbers_of_features(sizes: list[float], n_features: int) -> list[int]:
    """Turn shares of the features into numbers as SemFS does: rounded down, at least one."""
    numbers = [int(k) if k >= 1 else max(1, int(k * n_features)) for k in sizes]
    if max(numbers) > n_features:
        complain(
            f"-k {max(numbers)} is greater than the number of features ({n_features}). "
            "All of them are kept."
        )
    return sorted({min(k, n_features) for k in numbers})


def _unseen_counts(summary: "Summary") -> str:
    """Return a sentence on how many classes are unseen in each class split."""
    (facts,) = summary.info["datasets"].values()
    splits = facts["splits"].values()
    n_unseen = sorted({len(split["unseen"]) for split in splits})
    n_classes = len(facts["seen"]) + len(facts["unseen"])
    ends = sorted({n_unseen[0], n_unseen[-1]})
    shown = " to ".join(str(n) for n in ends)
    shown = f"{shown} of {n_classes} classes are unseen"
    if len(splits) == 1:
        return f"One class split: {shown}."
    return f"{len(splits)} class splits: {shown} in each."


def print_scores(rows: list[dict[str, Any]]) -> None:
    """Print one line per method, best mean first, averaged over splits."""
    from semfs.lab.comparison import comparable_ks, curves, metrics_of

    ks = sorted({row["k"] for row in rows})
    n_splits = len({row["split"] for row in rows})
    for metric, name in metrics_of(rows).items():
        lines = []
        means = {}
        # a panel of few features has no score at larger k, which no mean may contain then
        compared = comparable_ks(rows, metric)
        for method, points in curves(rows, metric).items():
            score_at = {point.x: f"{point.mean:.3f}" for point in points}
            means[method] = fmean(
                [point.mean for point in points if point.x in compared] or [math.nan]
            )
            scores = [score_at.get(k, "") for k in ks]
            # no score where k is larger than the number of features
            lines.append([method, *scores, f"{means[method]:.3f}"])
        lines.sort(key=lambda line: -means[line[0]])
        # neighbors are of seen classes, the harmonic mean is of both, as their titles say
        title = name if metric in ("knn", "harmonic") else f"{name} on unseen classes"
        if n_splits > 1:
            title += f", {n_splits} class splits"
        mean = "mean" if compared == ks else f"mean of k ≤ {compared[-1]}"
        print_table(title, ["method", *(f">{k}" for k in ks), f">{mean}"], lines)


def report_failures(failures: list[tuple[Any, str]], advice: str) -> None:
    """Print what failed, and end with exit code 1."""
    for job, error in failures[:MOST_FAILURES]:
        place = f"{job.experiment}, {job.dataset}, {job.split}"
        complain(f"{job.method} failed ({place}): {error.splitlines()[0]}")
    if failures:
        complain(f"{advice} ({len(failures)} in all).")
        raise Exit(1)


# ---- the demo -------------------------------------------------------------------------


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Folder for the output files.")] = Path(
        "."
    ),
    genes: Annotated[int, Option(help="Number of genes to select.")] = 20,
    splits: Annotated[
        int, Option(help="Number of random splits into seen and unseen types.")
    ] = 20,
) -> None:
    """Select genes for lung cell types that were never labeled, and evaluate the selection.

    Prints the genes and a comparison with other selectors; writes `report.html`, which opens
    offline, and `demo.png`.

    Example: `semfs demo --out results`
    """
    from semfs.validation import check_integer

    check_integer("--genes", genes, 1)
    check_integer("--splits", splits, 1)
    page_path = out / "report.html"
    picture_path = out / "demo.png"
    check_apart([page_path, picture_path], [])
    replaced = existing([page_path, picture_path])
    # said before the run, while there is time to stop it
    for path in replaced:
        complain(f"{path} exists and will be replaced. Choose another folder with --out.")

    from semfs.lab import versions
    from semfs.lab.demo import draw, run_demo, sections
    from semfs.lab.report import write_report

    started = datetime.now(UTC).isoformat(timespec="seconds")
    found = run_demo(genes, splits, verbose=sys.stderr.isatty())
    _print_demo(found)
    info = {
        "started": started,
        "command": f"semfs demo --genes {genes} --splits {splits}",
        "versions": versions(),
        "datasets": {found.data.name: found.facts},
    }
    page = write_report(found.rows, page_path, info=info, sections=sections(found))
    show_written([page, draw(found, picture_path)], replaced)


def _print_demo(found: "Demo") -> None:
    """Print the task, the selected genes, the scores, and the lead over other selectors."""
    from semfs.lab.demo import OURS

    facts = found.facts
    data = found.data
    show(
        f"{facts['n_seen']} labeled lung cells of {len(facts['seen'])} types, "
        f"{data.X.shape[1]} genes; "
        f"each type is described by its {data.attributes.shape[1]} "
        "possible ancestors in the Cell Ontology.\n"
        f"Never labeled: {facts['n_unseen']} cells of {len(data.unseen)} other types "
        f"({'; '.join(map(str, data.unseen))}).\n"
        "SemFS selects genes on the labeled types; K-means then separates the others.\n"
    )
    genes = [
        (str(rank), name, f"{share:.0%}", attribute)
        for rank, (name, share, attribute) in enumerate(found.genes, start=1)
    ]
    print_table("Selected genes", [">", "gene", ">share of fit", "marks"], genes)
    print_scores(found.rows)
    leads = []
    for measure, other, lead in found.leads():
        limits = "" if lead.low is None else f"{lead.low:+.3f} to {lead.high:+.3f}"
        leads.append((measure, other, f"{lead.mean:+.3f}", limits, lead.verdict))
    columns = ["measure", "against", ">lead", "95 % interval", ""]
    print_table(f"Lead of {OURS}, paired over the splits", columns, leads)
