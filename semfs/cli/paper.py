"""`semfs reproduce` and `semfs report`: the paper's experiments, and a page about a run."""

import shlex
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from semfs.cli.console import complain, show, show_written
from semfs.cli.evaluation import METHODS, METRIC, parse_sizes, report_failures
from semfs.cli.options import (
    Figures,
    Jobs,
    Names,
    Seed,
    command_line,
    existing,
    given,
    is_page,
    print_folder,
    words,
)

EXPERIMENTS = (
    "Experiments: clustering, labeled-ratio, attributes-vs-labels, alpha, convergence, "
    "preprocessing, scaling, or all."
)
FOLDER = "Folder of data sets. Default: the bundled sample."
ONLY = "Use only data sets whose names start with one of these (comma-separated)."
OWN_SPLITS = (
    "Number of class splits. Splits that belong to the data set are used "
    "first, followed by random splits."
)
WHOLE_SIZES = (
    "Numbers of features: a list, such as 10,20, or a range start:stop:step, such as 5:50:5 "
    "(stop included). Default: the numbers used in the paper."
)
FAST = "Run faster, with fewer values of k, runs, splits and grid points."
NO_GRIDS = (
    "Run the baselines with their default parameters only. Without this "
    "option, they also run on the paper's grids, where the best "
    "parameters are chosen by test results."
)


@dataclass
class Reproduction:
    """Options of `reproduce`: a `semfs.lab.paper.Study`, and how to run it."""

    experiments: Annotated[list[str], Argument(metavar="NAMES", help=EXPERIMENTS)]
    run_folder: Annotated[Path, Option("--out", "-o", help="Run directory.")]
    data: Annotated[Path | None, Option(help=FOLDER)] = None
    datasets: Annotated[str, Option("--dataset", help=ONLY)] = ""
    methods: Annotated[str, Option("--method", "-m", help=METHODS)] = ""
    splits: Annotated[int | None, Option(help=OWN_SPLITS)] = None
    ks: Annotated[str, Option("-k", help=WHOLE_SIZES)] = ""
    metrics: Annotated[Names, Option("--metric", help=METRIC)] = None
    n_jobs: Jobs = None
    fast: Annotated[bool, Option("--fast", help=FAST)] = False
    defaults_only: Annotated[bool, Option("--no-grids", help=NO_GRIDS)] = False
    seed: Seed = 0


def reproduce(options: Reproduction) -> None:
    """Run the paper's experiments. The same command continues a run that was stopped.

    If you changed the module of your own method, its finished jobs are computed again.

    Example: `semfs reproduce clustering alpha --data DATA --out RUN --splits 5`
    """
    from semfs.lab.paper import Study
    from semfs.lab.paper import reproduce as reproduce_experiments

    study = given(options, *(field.name for field in fields(Study)))
    if options.ks:
        study["ks"] = _whole_numbers(options.ks)
    else:
        study.pop("ks", None)
    study["datasets"] = words(options.datasets)
    study["methods"] = words(options.methods)
    try:
        done = reproduce_experiments(
            Study(**study),
            options.run_folder,
            n_jobs=options.n_jobs,
            command=command_line(),
            verbose=True,
        )
    except KeyboardInterrupt:
        # who stops a long run must know that nothing is lost
        message = f"interrupted. Finished results are in {options.run_folder}"
        raise KeyboardInterrupt(
            f"{message}. Repeat the same command to resume the run."
        ) from None
    show(
        f"{done.n_total} jobs: {done.n_before} finished before, "
        f"{done.n_computed} computed in {done.seconds:.0f} s, "
        f"{len(done.failures)} failed.\n"
        "View them with: semfs report "
        f"{shlex.quote(str(options.run_folder))}"
    )
    for note in done.notes:
        show(note)
    report_failures(done.failures, "failed jobs are retried if you repeat the command")


def _whole_numbers(text: str) -> tuple[int, ...]:
    """Read numbers of features; the data sets of a run differ, so shares are refused."""
    sizes = parse_sizes(text)
    if any(size < 1 for size in sizes):
        raise ValueError(f"-k is {text!r}. Give whole numbers, such as 10,20 or 5:50:5.")
    return tuple(int(size) for size in sizes)


def report(
    run: Annotated[Path, Argument(help="Run directory of 'semfs reproduce'.")],
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="The HTML page. Default: RUN/report.html."),
    ] = None,
    csv: Annotated[
        Path | None,
        Option(help="Write the results to this .csv file instead of a page."),
    ] = None,
    latex: Annotated[
        Path | None,
        Option(
            metavar="FOLDER", help="Write the tables of the page to this folder as LaTeX files."
        ),
    ] = None,
    figures: Figures = None,
) -> None:
    """Write the results of a run as one HTML page, which opens offline, or as a CSV file.

    With `--latex`, the tables are written for the LaTeX package booktabs, and with `--figures`
    the figures as PDF or SVG files. With one of these options or `--csv`, the page is written
    only if `--out` names it.

    Example: `semfs report RUN --latex paper --figures pdf`
    """
    from semfs.lab.figures import check_can_draw
    from semfs.lab.report import check_csv_ending, write_csv, write_for_print, write_report
    from semfs.lab.store import DamagedStore, Store

    if out is not None and not is_page(out):
        message = (
            "the name of the page must end in .html. To write the "
            "results as a table, use --csv FILE."
        )
        raise ValueError(f"{out}: {message}")
    if csv is not None:
        check_csv_ending(csv)
    if figures is not None:
        check_can_draw()
    page = out or run / "report.html"
    replaced = existing([page, csv])
    try:
        store = Store(run, create=False)
        rows = store.rows()
    except DamagedStore as error:
        if csv is None:
            raise
        # The intact records of a damaged store still make a CSV file.
        store = Store.salvage(run)
        rows = store.rows()
        complain(str(error))
    with closing(store):
        if csv is not None:
            show_written([write_csv(rows, csv)], replaced)
        for_print = latex is not None or figures is not None
        if for_print:
            folder = print_folder(page, latex)
            present = list(folder.glob("*"))
            paths = write_for_print(
                rows, folder, info=store.info(), figures=figures, tables=latex is not None
            )
            show_written(paths, present)
        if out is not None or (csv is None and not for_print):
            failures = store.failures()
            written = write_report(rows, page, failures=failures, info=store.info())
            show_written([written], replaced)
