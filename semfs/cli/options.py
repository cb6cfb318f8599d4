"""Options that several commands share, and helpers for their values.

Nothing heavy is imported here, so that `semfs --help` is quick.
"""

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

# Help texts. They are whole sentences: a condition first, then what happens.
DATA = (
    "The data, one row per sample: CSV, TSV, Excel, Parquet, Feather, "
    "NPY, NPZ, HDF5, H5AD, Zarr, MTX or a 10x folder."
)
LABEL = (
    "Where the class labels are: a column (of obs in H5AD and Zarr), "
    "an array of the file (NPZ: y by default), or a file: one label per "
    "line, or names of the samples (barcodes) and labels."
)
ATTRIBUTES = (
    "What describes the classes: a table file (CSV, Parquet, Excel), an "
    "ontology file (OBO, OWL, JSON), 'cl' (Cell Ontology), 'names' (text of "
    "the class names) or 'labels' (no description)."
)
UNSEEN = "A class, or several with commas; repeatable."
DROP = (
    "Column to ignore; repeatable. Also a list with commas, a file of names, or 're:PATTERN'."
)
LAYER = "Layer of an H5AD file, or 'raw'; or the name of the matrix in a file with several."
COUNTS = "The file holds counts: use log(1 + counts per 10⁴ of their row)."
SCALE = "Scale every feature to variance 1 (use it when units differ)."

JOBS = "Worker processes; one per core."
SEED = "Seed of class splits, random draws and K-means starts."

# Options: the type of their value, how they are spelled, and their help.
Names = list[str] | None
AsJson = Annotated[bool, Option("--json", help="Print JSON, for scripts.")]
Label = Annotated[str | None, Option("--label", "-l", help=LABEL)]
Drop = Annotated[Names, Option(help=DROP)]
Layer = Annotated[str | None, Option(help=LAYER)]
Normalize = Annotated[Literal["log1p"] | None, Option(help=COUNTS)]
Scale = Annotated[bool, Option("--scale", help=SCALE)]
Jobs = Annotated[int | None, Option("--jobs", "-j", help=JOBS)]
Seed = Annotated[int, Option(help=SEED)]

#: Words that --attributes understands besides files.
DESCRIPTIONS = ("labels", "names", "cl")


def given(options: object, *names: str) -> dict[str, Any]:
    """Return the options of these names that were given.

    The library knows the defaults of the others.
    """
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def words(text: str) -> list[str]:
    """Split a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def command_line() -> str:
    """Return the command that was called, as it can be typed again."""
    return shlex.join(["semfs", *sys.argv[1:]])


def existing(paths: Iterable[Path | None]) -> list[Path]:
    """Return the paths that exist: what is written there replaces them."""
    return [path for path in paths if path is not None and path.exists()]


def is_page(path: Path) -> bool:
    """Whether a path names an HTML page."""
    return path.suffix.lower() in (".html", ".htm")


def check_label_given(data: Path, label: str | None) -> None:
    """Refuse a file without --label, unless its format has a usual place for labels (NPZ)."""
    if label is None and data.exists() and data.suffix.lower() != ".npz":
        message = f"Which column of {data} holds the class labels? Give --label COLUMN."
        raise ValueError(message)


def check_descriptions(attributes: Path | None) -> None:
    """Refuse what is neither a file nor a word that --attributes understands."""
    if attributes is None or attributes.exists():
        return
    word = str(attributes)
    if word.lower() in DESCRIPTIONS:
        return
    from semfs.validation import did_you_mean

    hint = did_you_mean(word.lower(), DESCRIPTIONS) or "."
    known = ", ".join(repr(known) for known in DESCRIPTIONS)
    raise ValueError(f"--attributes: {word} does not exist{hint} Give a file, or {known}.")


def expand_columns(
    data: Path, label: str | None, layer: str | None, values: list[str] | None
) -> list[str]:
    """Return the columns that --drop means: names, lists with commas, files, patterns.

    Single names are left to the reader, which knows them. Only for the others the columns of
    the file are looked up first.
    """
    from semfs.validation import PATTERN_PREFIX, is_file, resolve_features

    if not values:
        return []
    simple = all(
        "," not in value and not value.startswith(PATTERN_PREFIX) and not is_file(value)
        for value in values
    )
    if simple:
        return values
    import warnings

    from semfs.rows import open_blocks

    # The file is opened once more later, and then its warnings are shown.
    with warnings.catch_warnings(action="ignore"):
        reader = open_blocks(data, label, key=layer).reader
    # Of a table also columns that are not numbers can be dropped.
    columns = list(getattr(reader, "order", None) or reader.feature_names or [])
    return [columns[index] for index in resolve_features("drop", values, columns)]
