"""Commands of the paper's lab: the demo, a comparison, the experiments, their report."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from typer import Argument, Exit, Option

from semfs.cli.console import AsJson, complain, given, print_json, print_table, say
from semfs.progress import Progress

__all__ = ["demo", "evaluate", "report", "reproduce"]

Jobs = Annotated[int | None, Option("--jobs", "-j", help="Worker processes; one per core.")]
Seed = Annotated[int, Option(help="Seed of class splits, draws and K-means starts.")]
Splits = Annotated[int | None, Option("--splits", help="At most so many class splits.")]
DATA = "sample, a name of `semfs datasets`, or a file: h5ad, CSV, Parquet, Feather, NPZ."
LABEL = "Column (tables), obs column (H5AD) or array (NPZ: default y) with the labels."
TABLE = (
    "For a file of yours: class table (NPZ: default A), ontology (OBO, OWL; `cl`: Cell "
    "Ontology), or `names` to encode these."
)
WHICH = "clustering, labeled-ratio, attributes-vs-labels, alpha, convergence, scaling, all"
ONLY = "Only these data sets: beginnings of names, with commas."
INSTEAD = "These methods instead of all, with commas; or module:Selector."


def demo(
    out: Annotated[Path, Option("--out", "-o", help="Where the files go.")] = Path("."),
    genes: Annotated[int, Option(help="Number of genes to choose.")] = 20,
    splits: Annotated[int, Option(help="Random splits into seen and unseen.")] = 20,
) -> None:
    """Choose genes for lung cell types that were never labelled, and judge the choice.

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
    out.mkdir(parents=True, exist_ok=True)
    with Progress("Clustering unseen cell types", splits, sys.stderr.isatty()) as progress:
        found = run_demo(genes, splits, on_step=progress.step)
    _print_demo(found)
    info = {"command": f"semfs demo --genes {genes} --splits {splits}", "versions": versions()}
    info["datasets"] = {found.data.name: found.facts}
    path = out / "report.html"
    page = write_report(found.rows, path, info=info, sections=sections(found))
    say(f"Wrote {page} and {draw(found, out / 'demo.png')}")


def _print_demo(found: Any) -> None:
    """What the demo does in three lines, the genes, the scores, the leads."""
    facts, data = found.facts, found.data
    say(
        f"{facts['n_seen']} labelled lung cells of {len(facts['seen'])} types, "
        f"{data.X.shape[1]} genes; each type is described by its {data.attributes.shape[1]} "
        "possible ancestors in the Cell Ontology.\n"
        f"Never labelled: {facts['n_unseen']} cells of {len(data.unseen)} other types "
        f"({'; '.join(map(str, data.unseen))}).\n"
        "SemFS chooses genes on the labelled types; K-means then tells the others apart.\n"
    )
    genes = [
        (str(number), gene.name, f"{gene.share:.0%}", gene.attribute)
        for number, gene in enumerate(found.genes, start=1)
    ]
    print_table("Genes chosen", [">", "gene", ">share of fit", "speaks of"], genes)
    _print_scores(found.rows)
    leads = [
        (measure, other, f"{lead.mean:+.3f}", _limits(lead), lead.verdict)
        for measure, other, lead in found.leads()
    ]
    columns = ["measure", "against", ">lead", "95 % interval", ""]
    print_table("Lead of SemFS + descriptions, paired over the splits", columns, leads)


def _limits(lead: Any) -> str:
    return "" if lead.low is None else f"{lead.low:+.3f} to {lead.high:+.3f}"


@dataclass
class Evaluation:
    """Options of `evaluate`: the data, and those of `semfs.lab.paper.evaluate`."""

    data: Annotated[str, Argument(metavar="DATASET", help=DATA)]
    methods: Annotated[
        str, Option("--method", "-m", help="With commas; or module:Selector.")
    ] = "semfs-described,semfs,markers,variance,random"
    ks: Annotated[str, Option("-k", help="Numbers of features: 10,20 or 5:50:5.")] = "5:50:5"
    label: Annotated[str | None, Option("--label", "-l", help=LABEL)] = None
    attributes: Annotated[Path | None, Option("--attributes", "-a", help=TABLE)] = None
    unseen: Annotated[
        list[str] | None, Option(help="Unseen classes, with commas; repeatable.")
    ] = None
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

    own = ("data", "label", "attributes", "unseen", "out", "as_json")
    arguments = given(options, *own)
    arguments |= {"methods": _words(options.methods), "ks": _numbers(options.ks)}
    data = open_data(options.data, options.label, options.attributes, options.unseen or ())
    rows, summary = evaluate_methods(data, **arguments, verbose=sys.stderr.isatty())
    if options.as_json:
        print_json(rows)
    elif rows:
        _print_scores(rows)
    if options.out is not None:
        info = {"command": shlex.join(["semfs", *sys.argv[1:]]), "versions": versions()}
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
    methods: Annotated[str, Option("--method", "-m", help=INSTEAD)] = ""
    splits: Splits = None
    n_jobs: Jobs = None
    force: Annotated[str, Option(help="Methods to compute again, with commas.")] = ""
    fast: Annotated[bool, Option("--fast", help="Fewer k, runs, splits, grids.")] = False
    seed: Seed = 0


def reproduce(options: Reproduction) -> None:
    """Run the paper's experiments; the same command continues a run that was stopped.

    Example: `semfs reproduce clustering alpha --data DATA --out RUN --splits 5`
    """
    from semfs.lab.paper import Study
    from semfs.lab.paper import reproduce as reproduce_experiments

    arguments = given(options)
    arguments |= {name: _words(arguments[name]) for name in ("datasets", "methods", "force")}
    study = Study(**{f.name: arguments.pop(f.name, None) for f in fields(Study)})
    try:
        command = shlex.join(["semfs", *sys.argv[1:]])
        done = reproduce_experiments(study, **arguments, command=command, verbose=True)
    except KeyboardInterrupt:
        how = " (without --force)" if options.force else ""
        raise KeyboardInterrupt(
            f"interrupted. What is finished is safe in {options.run_folder}; the same "
            f"command{how} continues."
        ) from None
    say(
        f"{done.n_cells} cells: {done.n_before} finished before, {done.n_computed} computed in "
        f"{done.seconds:.0f} s, {len(done.failures)} failed.\n"
        f"Look at them with: semfs report {shlex.quote(str(options.run_folder))}"
    )
    for note in done.notes:
        say(note)
    _report_failures(done.failures, "failed cells are tried again by the same command")


def report(
    run: Annotated[Path, Argument(help="Run directory of `semfs reproduce`.")],
    out: Annotated[
        Path | None, Option("--out", "-o", help="By default RUN/report.html.")
    ] = None,
    csv: Annotated[Path | None, Option(help="Write the finished rows here instead.")] = None,
) -> None:
    """Make one self-contained HTML page of a run, or a CSV file of its finished rows.

    Example: `semfs report RUN --out results.html`
    """
    from semfs.lab.paper import EXPERIMENTS
    from semfs.lab.report import write_csv, write_report
    from semfs.lab.store import DamagedStore, Store

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
            findings = {name: entry.finding for name, entry in EXPERIMENTS.items()}
            info = store.info() | {"findings": findings}
            page = out or run / "report.html"
            say(f"Wrote {write_report(rows, page, failures=store.failures(), info=info)}")


def _print_scores(rows: list[dict[str, Any]]) -> None:
    """One line per method, best mean first, averaged over splits."""
    ks = sorted({row["k"] for row in rows})
    n_splits = len({row["split"] for row in rows})
    for metric in ("acc", "nmi"):
        values: dict[str, dict[int, list[float]]] = {}
        for row in rows:
            values.setdefault(row["label"], {}).setdefault(row["k"], []).append(row[metric])
        means = {m: {k: fmean(v) for k, v in found.items()} for m, found in values.items()}
        best = sorted(means, key=lambda m: -fmean(means[m].values()))
        lines = [
            [m, *(f"{means[m][k]:.3f}" if k in means[m] else "" for k in ks)]
            + [f"{fmean(means[m].values()):.3f}"]
            for m in best
        ]
        title = f"{metric.upper()} on unseen classes" + f", {n_splits} splits" * (n_splits > 1)
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


def _report_failures(failures: list[tuple[Any, str]], advice: str = "failed cells") -> None:
    """Say what failed, and end with exit code 1."""
    for cell, error in failures[:10]:
        where = f"{cell.experiment}, {cell.dataset}, {cell.split}"
        complain(f"{cell.method} failed ({where}): {error.splitlines()[0]}")
    if failures:
        complain(f"{advice} ({len(failures)} in all).")
        raise Exit(1)
