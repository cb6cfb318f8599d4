"""`semfs predict`: name the samples of a data file by a saved selector."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from semfs.cli.console import show, show_written
from semfs.cli.options import DATA, Layer, existing
from semfs.io.safety import check_apart

SELECTOR = "A selector that `semfs select --save` or semfs.save wrote."
TABLE = "Attribute table of the possible classes. Default: all classes that the selector knows."
TOGETHER = "Predict all samples together, which helps with many samples of each class."
UNKNOWN = (
    "Label samples that are far from all classes 'unknown'. "
    "The value is the share of samples of seen classes that get this label by mistake."
)
MISSING = "Whether to stop if the data lack selected features, or to predict from the others."
PREDICTED = "A table (.csv .tsv .parquet .feather .xlsx), or .h5ad: a copy with annotations."


@dataclass
class Prediction:
    """Options of `predict`."""

    selector: Annotated[Path, Argument(help=SELECTOR)]
    data: Annotated[Path, Argument(help=DATA)]
    table: Annotated[Path | None, Option("--table", "-t", help=TABLE)] = None
    together: Annotated[bool, Option("--together", help=TOGETHER)] = False
    unknown: Annotated[float | None, Option(help=UNKNOWN)] = None
    missing_features: Annotated[Literal["error", "ignore"], Option(help=MISSING)] = "error"
    layer: Layer = None
    out: Annotated[Path, Option("--out", "-o", help=PREDICTED)] = Path("predicted.csv")


def predict(options: Prediction) -> None:
    """Name the samples of a data file: class, probability and the next best class.

    The data are normalized like those that the selector was fitted to.

    Example: `semfs predict panel.npz new_cells.h5ad --together -o annotated.h5ad`
    """
    import semfs
    from semfs.annotation import predict_file
    from semfs.attributes import read_attributes

    check_apart((options.out,), (options.selector, options.table))
    replaced = existing([options.out])
    selector = semfs.load(options.selector)
    # files of semfs.save may also hold a baseline, which only selects
    if not hasattr(selector, "predict_top"):
        found = type(selector).__name__
        raise ValueError(f"{options.selector} holds a {found}, which cannot predict classes.")
    table = None if options.table is None else read_attributes(options.table)
    frame = predict_file(
        selector,
        options.data,
        options.out,
        class_table=table,
        together=options.together,
        unknown_rate=options.unknown,
        missing_features=options.missing_features,
        layer=options.layer,
    )
    counts = frame["class"].value_counts()
    shown = ", ".join(f"{name} {count}" for name, count in counts.head(5).items())
    show(f"Assigned {len(frame)} samples to {len(counts)} classes. Most frequent: {shown}")
    show_written([options.out], replaced)
