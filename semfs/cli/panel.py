"""`semfs panel`: select features, and write a page about them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Option

from semfs.cli.console import complain, show_written
from semfs.cli.options import Seed, command_line, is_page
from semfs.cli.selection import Selection, prepare, print_selection
from semfs.cli.selection_data import open_source, warn_if_clusters_are_batches

PANEL_PAGE = (
    "The HTML page to write. The list for the vendor is written beside it as a .csv file."
)
REDUCED = "Also write the reduced data to this file, as 'semfs select' does."
BOOTSTRAPS = (
    "Number of bootstrap samples of the classes, which show how stable "
    "the selection is. Use 0 for none."
)


@dataclass
class PanelOptions(Selection):
    """Options of `panel`: those of `select`, and the page."""

    out: Annotated[Path, Option("--out", "-o", help=PANEL_PAGE)] = Path("panel.html")
    reduced: Annotated[Path | None, Option(help=REDUCED)] = None
    n_bootstraps: Annotated[int, Option("--bootstraps", help=BOOTSTRAPS)] = 100
    seed: Seed = 0


def panel(options: PanelOptions) -> None:
    """Select features as `select` does; write a page about them and a list to order.

    The page opens without a network. It names the features with reasons and substitutes, and
    shows their levels by class, coverage, stability, and which classes are hard to separate.

    Example: `semfs panel cells.h5ad --label cell_type --attributes cl -k 50 -o panel.html`
    """
    if not is_page(options.out):
        message = "the name of the page must end in .html."
        raise ValueError(f"{options.out}: {message}")
    import semfs
    from semfs.panel import panel_report
    from semfs.panel.page.summary import weak_marker_note
    from semfs.select.outputs import check_file_or_folder, check_outputs
    from semfs.select.selection import fit_features, write_selection

    if options.reduced is not None:
        check_file_or_folder(options.reduced, "reduced")
    source = open_source(options)
    outputs = [options.out, options.out.with_suffix(".csv"), options.save]
    if options.reduced is not None:
        outputs += check_outputs(source, options.reduced, options.subset)
    # all files that will be written are checked before the fit
    task = prepare(options, source, outputs)
    done = fit_features(
        task.source,
        task.selector,
        n_bootstraps=options.n_bootstraps,
        random_state=options.seed,
        **task.fitting,
    )
    warn_if_clusters_are_batches(options, done)
    report = panel_report(
        task.selector,
        done.samples,
        explanation=done.explanation,
        settings=task.settings,
        command=command_line(),
    )
    files = report.write(options.out)
    if options.reduced is not None:
        files += write_selection(done, options.reduced, options.subset, task.settings)
    if options.save is not None:
        files.append(semfs.save(task.selector, options.save))
    if options.as_json:
        print(json.dumps(replace(done, files=files).as_dict(), indent=1))
        return
    print_selection(done)
    # the rule counts such markers; the user must not have to find that on the page
    weak = weak_marker_note(report)
    if task.selector.min_per_class and weak:
        complain(f"--min-per-class: {weak}")
    show_written(files, task.replaced)
