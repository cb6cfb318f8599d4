"""The commands: each parses, calls one library function and prints.

The docstring of a command is its help and ends with "Example: ..."; a command may take one
dataclass, whose fields are its options. Imports are inside, so that `--help` is quick.
"""

import json
import shlex
import sys
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from typer import Argument, Exit, Option

from semfs.cli.console import complain, print_table, say
from semfs.io.safety import check_apart

AsJson = Annotated[bool, Option("--json", help="Print JSON, for scripts.")]
Names = list[str] | None
Drop = Annotated[Names, Option(help="A column that is no feature; repeatable.")]
Layer = Annotated[str | None, Option(help="Layer of an H5AD file, or 'raw'; or an array.")]
COUNTS = "The file holds counts: take log(1 + per 10⁴)."
Normalize = Annotated[Literal["log1p"] | None, Option(help=COUNTS)]
Scale = Annotated[bool, Option("--scale", help="Units differ: give columns one variance.")]
LABEL = "Column (tables, obs of H5AD and Zarr), array (NPZ: y), file of one label a line (MTX)."
TABLE = (
    "Class table (CSV, Parquet, Excel; NPZ: default A), an ontology (OBO, OWL, JSON; 'cl': "
    "Cell Ontology), 'names' to encode these, or 'labels' alone."
)
NAMES = "A file with a class name per line, or name, tab (CSV: comma), description; or a,b,c."
ENCODER = "wordllama, a file of word vectors, model2vec:NAME, or a sentence-transformers model."
ONTOLOGY = "Describe by ancestors in this OBO, OWL or JSON file, or in 'cl' (Cell Ontology)."
MARKERS = "A table of class, marker and, if you like, weight, instead of NAMES."
SIZE = "Number of features to keep, or their share: 0.1."
CLUSTER = "Address of a Dask cluster, such as tcp://host:8786."
REDUCED = "Reduced data (.csv .parquet .npy .npz .h5ad), or a folder."
Jobs = Annotated[int | None, Option("--jobs", "-j", help="Worker processes; one per core.")]
Seed = Annotated[int, Option(help="Seed of class splits, draws and K-means starts.")]
DATA = "CSV, Excel, Parquet, Feather, NPY, NPZ, HDF5, H5AD, Zarr, MTX"
DATASET = "sample, a name of 'semfs datasets', or a file: h5ad, CSV, Excel, Parquet, NPZ, …"
WHICH = "clustering, labeled-ratio, attributes-vs-labels, alpha, convergence, scaling, all"
ONLY = "Only these data sets: beginnings of names, with commas."
METHOD = "With commas; or module:Selector."
USUAL = "semfs-described,semfs,markers,variance,random"


def _given(options: Any, *names: str) -> dict[str, Any]:
    """Options of these names that were given; the library knows the defaults of the others."""
    return {n: value for n in names if (value := getattr(options, n)) is not None}


@dataclass
class Selection:
    """Options of `select`: the file, the selector, and what is written."""

    data: Annotated[Path, Argument(help=DATA)]
    label: Annotated[str | None, Option("--label", "-l", help=LABEL)] = None
    attributes: Annotated[Path | None, Option("--attributes", "-a", help=TABLE)] = None
    n_features_to_select: Annotated[float, Option("-k", help=SIZE)] = 50
    out: Annotated[Path, Option("--out", "-o", help=REDUCED)] = Path("selected")
    unseen: Annotated[Names, Option(help="Classes not to use, with commas; repeatable.")] = None
    drop: Drop = None
    include: Annotated[Names, Option(help="A feature to keep in any case; repeatable.")] = None
    exclude: Annotated[Names, Option(help="A feature never to keep; repeatable.")] = None
    layer: Layer = None
    normalize: Normalize = None
    scale: Scale = False
    subset: Annotated[bool, Option("--subset", help="H5AD: the chosen genes only.")] = False
    alpha: Annotated[float, Option(help="Weight of the class-center loss.")] = 1.0
    gamma: Annotated[float | None, Option(help="Ridge penalty; default: SemFS's.")] = None
    scheduler: Annotated[str | None, Option(help=CLUSTER)] = None
    save: Annotated[Path | None, Option(help="Keep the selector here, for semfs.load.")] = None
    as_json: AsJson = False


def select(options: Selection) -> None:
    """Select features in a data file: a ranked feature table and the reduced data come out.

    Rows without a label count as unlabeled (`SemFS.fit`), and are in the reduced data.

    Example: `semfs select cells.csv --label type --attributes types.csv -k 50 -o out.csv`
    """
    import semfs
    from semfs.datasets.files import class_table
    from semfs.labels import classes_in
    from semfs.rows import open_blocks
    from semfs.selectors.files import select_features, targets

    read = _given(options, "drop", "normalize")
    source: Any = open_blocks(options.data, options.label, key=options.layer, **read)
    inputs = (options.data, options.label, options.attributes)
    check_apart((*targets(source, options.out), options.save), inputs)
    about = (options.data, options.attributes, source.labels.classes)
    table, hidden = class_table(*about, needed=False)
    parameters = _given(options, "alpha", "gamma", "include", "exclude")
    k, verbose = options.n_features_to_select, int(sys.stderr.isatty())
    k = int(k) if float(k).is_integer() else k
    selector = semfs.SemFS(k, attributes=table, verbose=verbose, **parameters)
    how = _given(options, "subset", "scale", "scheduler")
    unseen = [*classes_in(options.unseen or (), source.labels.classes), *hidden]
    done = select_features(source, selector, options.out, unseen=unseen, **how)
    if options.save is not None:
        done.files.append(semfs.save(selector, options.save))
    if options.as_json:
        print(json.dumps(done.as_dict(), indent=1))
        return
    chosen = done.features["feature"][done.features["selected"]]
    n_more, n_new = len(selector.unlabeled_labels_), selector.n_new_classes_
    more = f" and {n_more} unlabeled rows, taken as {n_new} new classes" if n_new else ""
    say(
        f"{len(chosen)} of {len(done.features)} features chosen on {done.n_rows} rows of "
        f"{len(done.selector.classes_)} classes{more}; best: {', '.join(chosen[:5])}"
    )
    say("\n".join(f"Wrote {path}" for path in done.files))


def attributes(
    out: Annotated[Path, Option("--out", "-o", help="A .csv, .tsv or .parquet.")],
    names: Annotated[str | None, Argument(help=NAMES)] = None,
    encoder: Annotated[str, Option("--encoder", "-e", help=ENCODER)] = "wordllama",
    prompt: Annotated[Names, Option(help="Such as 'a photo of a {}'; repeatable.")] = None,
    ontology: Annotated[str | None, Option(help=ONTOLOGY)] = None,
    part_of: Annotated[bool, Option("--part-of", help="Ontology: and their wholes.")] = False,
    own: Annotated[bool, Option("--own", help="Ontology: keep each class's own term.")] = False,
    markers: Annotated[Path | None, Option(help=MARKERS)] = None,
) -> None:
    """Describe classes: by a text encoder, an ontology or their markers; a table comes out.

    Example: `semfs attributes types.csv --ontology cl.obo -o table.csv`
    """
    from semfs import attributes as room
    from semfs.attributes.files import write_table

    check_apart([out], [names, markers, ontology, encoder])
    if (names is None) == (markers is None):
        raise ValueError("give class names, or --markers FILE instead of them.")
    words = room.read_names(names or "")
    if names is None:
        table = room.attributes_from_markers(markers)
    elif ontology is not None:
        table = room.attributes_from_ontology(words, ontology, own=own, part_of=part_of)
    else:
        table = room.encode_class_names(words, encoder, prompts=prompt or "{}")
    write_table(table, out)
    found = room.describe_attributes(table).groupby("finding", sort=False)["what"]
    for finding, those in found:
        say(f"{finding}: {'; '.join(those[:5])}" + "; …" * (len(those) > 5))
    say(f"Wrote {out}")


def datasets() -> None:
    """List the known data sets: what they are, where they were found, how to get them.

    Example: `SEMFS_DATA=/data semfs datasets`
    """
    from semfs.datasets.catalog import CATALOG, data_folders, find_files

    for entry in CATALOG:
        path = find_files(entry)
        where = "bundled" if not entry.files else f"found in {path}" if path else "not found"
        say(f"{entry.name}: {entry.what} [{where}]\n  {entry.loader}")
        if path is None and entry.files:
            say(f"  get it: {entry.source}\n  licence: {entry.licence}")
    say("Looked in: " + ", ".join(str(folder.absolute()) for folder in data_folders()))


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Where the files go.")] = Path("."),
    genes: Annotated[int, Option(help="Number of genes to choose.")] = 20,
    splits: Annotated[int, Option(help="Random splits into seen and unseen.")] = 20,
) -> None:
    """Choose genes for lung cell types that were never labeled, and judge the choice.

    Prints the genes and a comparison with other selectors; writes `report.html`, which opens
    offline, and `demo.png`.

    Example: `semfs demo --out results`
    """
    from semfs.lab import versions
    from semfs.lab.demo import draw, run_demo, sections
    from semfs.lab.report import write_report
    from semfs.validation import check_integer

    check_integer("--genes", genes, 1)
    check_integer("--splits", splits, 1)
    check_apart([out / "report.html", out / "demo.png"], [])
    found = run_demo(genes, splits, verbose=sys.stderr.isatty())
    _print_demo(found)
    info = {"command": f"semfs demo --genes {genes} --splits {splits}", "versions": versions()}
    info["datasets"] = {found.data.name: found.facts}
    path = out / "report.html"
    page = write_report(found.rows, path, info=info, sections=sections(found))
    say(f"Wrote {page} and {draw(found, out / 'demo.png')}")


def _print_demo(found: Any) -> None:
    from semfs.lab.demo import OURS

    facts, data = found.facts, found.data
    say(
        f"{facts['n_seen']} labeled lung cells of {len(facts['seen'])} types, "
        f"{data.X.shape[1]} genes; each type is described by its {data.attributes.shape[1]} "
        "possible ancestors in the Cell Ontology.\n"
        f"Never labeled: {facts['n_unseen']} cells of {len(data.unseen)} other types "
        f"({'; '.join(map(str, data.unseen))}).\n"
        "SemFS chooses genes on the labeled types; K-means then tells the others apart.\n"
    )
    numbered = enumerate(found.genes, start=1)
    genes = [(str(i), name, f"{share:.0%}", words) for i, (name, share, words) in numbered]
    print_table("Genes chosen", [">", "gene", ">share of fit", "speaks of"], genes)
    _print_scores(found.rows)
    leads = []
    for measure, other, lead in found.leads():
        limits = "" if lead.low is None else f"{lead.low:+.3f} to {lead.high:+.3f}"
        leads.append((measure, other, f"{lead.mean:+.3f}", limits, lead.verdict))
    columns = ["measure", "against", ">lead", "95 % interval", ""]
    print_table(f"Lead of {OURS}, paired over the splits", columns, leads)


@dataclass
class Evaluation:
    """Options of `evaluate`: the data, and those of `semfs.lab.paper.evaluate`."""

    data: Annotated[str, Argument(metavar="DATASET", help=DATASET)]
    methods: Annotated[str, Option("--method", "-m", help=METHOD)] = USUAL
    ks: Annotated[str, Option("-k", help="Numbers of features: 10,20 or 5:50:5.")] = "5:50:5"
    label: Annotated[str | None, Option("--label", "-l", help=LABEL)] = None
    attributes: Annotated[Path | None, Option("--attributes", "-a", help=TABLE)] = None
    layer: Layer = None
    normalize: Normalize = None
    scale: Scale = False
    drop: Drop = None
    unseen: Annotated[Names, Option(help="Unseen classes, with commas; repeatable.")] = None
    n_repeats: Annotated[int, Option("--repeats", help="K-means runs per score.")] = 20
    n_splits: Annotated[int | None, Option("--splits", help="Random class splits.")] = None
    n_jobs: Jobs = None
    seed: Seed = 0
    out: Annotated[Path | None, Option("--out", "-o", help="Page with figures, .html.")] = None
    as_json: AsJson = False


def evaluate(options: Evaluation) -> None:
    """Cluster the unseen classes of a data set with the features each method selects.

    Your own file needs `--label` and `--attributes`. Without `--unseen` the unseen classes
    are those the data set names, or random ones, `--splits` times.

    Example: `semfs evaluate cells.h5ad --label cell_type --attributes cl --splits 5`
    """
    from semfs.lab import versions
    from semfs.lab.paper import evaluate as evaluate_methods
    from semfs.lab.paper import open_data
    from semfs.lab.report import write_report

    if options.unseen and options.n_splits is not None:
        raise ValueError("--unseen names classes and --splits draws them: give one of the two.")
    if options.out is not None and options.out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{options.out}: the page is written as .html; choose such a name.")
    check_apart([options.out], [options.data, options.label, options.attributes])
    how: dict[str, Any] = {"ks": _numbers(options.ks), "verbose": sys.stderr.isatty()}
    how |= _given(options, "n_splits", "n_repeats", "n_jobs", "seed")
    read = _given(options, "label", "attributes", "unseen", "layer", "normalize", "drop")
    data = replace(open_data(options.data, **read), scale=options.scale)
    rows, summary = evaluate_methods(data, _words(options.methods), **how)
    if options.as_json:
        print(json.dumps(rows, indent=1))
    elif rows:
        _print_scores(rows)
    if options.out is not None:
        info = {"command": shlex.join(["semfs", *sys.argv[1:]]), "versions": versions()}
        info |= summary.info
        page = write_report(rows, options.out, info=info | {"notes": summary.notes})
        if not options.as_json:
            say(f"Wrote {page}")
    for note in summary.notes:
        complain(note)
    _report_failures(summary.failures)


@dataclass
class Reproduction:
    """Options of `reproduce`: a `semfs.lab.paper.Study`, and how to run it."""

    experiments: Annotated[list[str], Argument(metavar="NAMES", help=WHICH)]
    run_folder: Annotated[Path, Option("--out", "-o", help="Run directory.")]
    data: Annotated[Path | None, Option(help="Folder of data sets; else the sample.")] = None
    datasets: Annotated[str, Option("--dataset", help=ONLY)] = ""
    methods: Annotated[str, Option("--method", "-m", help=METHOD)] = ""
    splits: Annotated[int | None, Option(help="At most so many class splits.")] = None
    n_jobs: Jobs = None
    fast: Annotated[bool, Option("--fast", help="Fewer k, runs, splits, grids.")] = False
    seed: Seed = 0


def reproduce(options: Reproduction) -> None:
    """Run the paper's experiments; the same command continues a run that was stopped.

    Example: `semfs reproduce clustering alpha --data DATA --out RUN --splits 5`
    """
    from semfs.lab.paper import Study
    from semfs.lab.paper import reproduce as reproduce_experiments

    given = _given(options, *(field.name for field in fields(Study)))
    given |= {name: _words(given[name]) for name in ("datasets", "methods")}
    command = shlex.join(["semfs", *sys.argv[1:]])
    how: dict[str, Any] = {"n_jobs": options.n_jobs, "command": command, "verbose": True}
    try:
        done = reproduce_experiments(Study(**given), options.run_folder, **how)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted. What is finished is safe in {options.run_folder}; the same command "
            "continues."
        ) from None
    say(
        f"{done.n_total} jobs: {done.n_before} finished before, {done.n_computed} computed in "
        f"{done.seconds:.0f} s, {len(done.failures)} failed.\n"
        f"Look at them with: semfs report {shlex.quote(str(options.run_folder))}"
    )
    for note in done.notes:
        say(note)
    _report_failures(done.failures, "failed jobs are tried again by the same command")


def report(
    run: Annotated[Path, Argument(help="Run directory of 'semfs reproduce'.")],
    out: Annotated[Path | None, Option("--out", "-o", help="Else RUN/report.html.")] = None,
    csv: Annotated[Path | None, Option(help="Write the finished rows here instead.")] = None,
) -> None:
    """Make one self-contained HTML page of a run, or a CSV file of its finished rows.

    Example: `semfs report RUN --out results.html`
    """
    from semfs.lab.report import write_csv, write_report
    from semfs.lab.store import DamagedStore, Store

    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{out}: the page is written as .html; for rows there is --csv.")
    try:
        store = Store(run, create=False)
        rows = store.rows()
    except DamagedStore as error:
        if csv is None:
            raise
        complain(str(error))
        store = Store.salvage(run)
        rows = store.rows()
    with closing(store):
        if csv is not None:
            say(f"Wrote {write_csv(rows, csv)}")
        if csv is None or out is not None:
            more: dict[str, Any] = {"failures": store.failures(), "info": store.info()}
            say(f"Wrote {write_report(rows, out or run / 'report.html', **more)}")


def _print_scores(rows: list[dict[str, Any]]) -> None:
    """One line per method, best mean first, averaged over splits."""
    from semfs.lab.report import METRICS, curves

    ks = sorted({row["k"] for row in rows})
    n_splits = len({row["split"] for row in rows})
    for metric, name in METRICS.items():
        lines, means = [], {}
        for method, points in curves(rows, metric).items():
            at = {point.x: f"{point.mean:.3f}" for point in points}
            means[method] = fmean(point.mean for point in points)
            lines.append([method, *(at.get(k, "") for k in ks), f"{means[method]:.3f}"])
        lines.sort(key=lambda line: -means[line[0]])
        title = f"{name} on unseen classes" + f", {n_splits} splits" * (n_splits > 1)
        print_table(title, ["method", *(f">{k}" for k in ks), ">mean"], lines)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    """Read 5:50:5 (the end included), 10 or 5,10,20."""
    try:
        parts = [[int(n) for n in word.split(":")] for word in _words(text)]
        ranges = [p if len(p) == 1 else range(p[0], p[1] + 1, *p[2:]) for p in parts]
        numbers = sorted({n for numbers in ranges for n in numbers})
    except (ValueError, TypeError):
        numbers = []
    if not numbers or numbers[0] < 1:
        raise ValueError(f"-k is {text!r}; give whole numbers such as 10,20 or 5:50:5.")
    return numbers


def _report_failures(failures: list[tuple[Any, str]], advice: str = "failed jobs") -> None:
    """Say what failed, and end with exit code 1."""
    for cell, error in failures[:10]:
        where = f"{cell.experiment}, {cell.dataset}, {cell.split}"
        complain(f"{cell.method} failed ({where}): {error.splitlines()[0]}")
    if failures:
        complain(f"{advice} ({len(failures)} in all).")
        raise Exit(1)
