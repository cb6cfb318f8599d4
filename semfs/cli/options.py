"""Options that several commands share, and helpers for their values.

Nothing heavy is imported here, so that `semfs --help` is quick.
"""

import csv
import shlex
import sys
from collections.abc import Iterable
from functools import partial
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
    "an array of the file (NPZ: y by default), or a file with one label per "
    "line or with sample names (barcodes) and labels."
)
ATTRIBUTES = (
    "What describes the classes: a table file (CSV, Parquet, Excel), an "
    "ontology file (OBO, OWL, JSON), 'cl' (Cell Ontology), 'names' (text "
    "of the class names), 'labels' (no description), or a column of the "
    "data that groups the classes. If you give several, separated by "
    "commas, all have the same weight; list columns from coarse to fine. "
    "A name with a comma needs double quotes inside the argument."
)
UNSEEN = "One class, or several separated by commas; repeatable."
DROP = "Columns to ignore: a name, comma-separated names, a file, or 're:PATTERN'; repeatable."
LAYER = (
    "Which matrix of the file to use: a layer or 'raw' (H5AD, Zarr), or "
    "the name of one of several matrices."
)
COUNTS = (
    "With 'log1p', each sample is scaled to 10,000 counts, and every "
    "value x is replaced by log(1 + x). Use it if the file holds counts."
)
SCALE = "Scale every feature to variance 1. Use this option if units differ."

NO_LABEL = (
    "Labels that mean 'no label', comma-separated; repeatable. "
    "Default: nan, NA, n/a, none, unknown and unassigned."
)

FIGURES = (
    "Also write the figures of the page in this format, to the folder of "
    "--latex or, without --latex, to a folder 'figures' beside the page."
)

IDS = (
    "Column with the id of each sample, such as its name or barcode (of "
    "obs in H5AD and Zarr; or an array of the file). It is not used as a "
    "feature, but is written to the output. Two samples must not have "
    "the same id."
)

JOBS = "Number of worker processes. Default: one per core."
SEED = "Seed of class splits, random draws and K-means starts."

# Groups of options, which the help of a command shows one after the other.
sample_option = partial(Option, rich_help_panel="Which samples and classes are used")
reading_option = partial(Option, rich_help_panel="How the data are read")
feature_option = partial(Option, rich_help_panel="Which features may be selected")
rule_option = partial(Option, rich_help_panel="Rules of the panel")
method_option = partial(Option, rich_help_panel="Method")

# Options: the type of their value, how they are spelled, and their help.
Names = list[str] | None
AsJson = Annotated[bool, Option("--json", help="Print JSON, for scripts.")]
Label = Annotated[str | None, Option("--label", "-l", help=LABEL)]
Drop = Annotated[Names, reading_option(help=DROP)]
Layer = Annotated[str | None, reading_option(help=LAYER)]
Normalize = Annotated[Literal["log1p"] | None, reading_option(help=COUNTS)]
Scale = Annotated[bool, reading_option("--scale", help=SCALE)]
Jobs = Annotated[int | None, Option("--jobs", "-j", help=JOBS)]
Seed = Annotated[int, Option(help=SEED)]
Figures = Annotated[Literal["pdf", "svg"] | None, Option(help=FIGURES)]

#: Words that --attributes understands besides files.
DESCRIPTIONS = ("labels", "names", "cl")


def given(options: object, *names: str) -> dict[str, Any]:
    """Return the options of these names that were given.

    The library knows the defaults of the others.
    """
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def words(text: str) -> list[str]:
    """Split a list at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def command_line() -> str:
    """Return the command that was called, as it can be typed again."""
    return shlex.join(["semfs", *sys.argv[1:]])


def existing(paths: Iterable[Path | None]) -> list[Path]:
    """Return the paths that exist already, which writing will replace."""
    return [path for path in paths if path is not None and path.exists()]


def is_page(path: Path) -> bool:
    """Return whether a path names an HTML page."""
    return path.suffix.lower() in (".html", ".htm")


def print_folder(page: Path | None, latex: Path | None) -> Path:
    """Return the folder of figures: that of --latex, or 'figures' beside the page."""
    if latex is not None:
        return latex
    beside = Path(".") if page is None else page.parent
    return beside / "figures"


def check_label_given(data: Path, label: str | None) -> None:
    """Raise if --label is missing, unless the format has a usual place for labels (NPZ)."""
    if label is None and data.exists() and data.suffix.lower() != ".npz":
        message = f"Which column of {data} holds the class labels? Give --label COLUMN."
        raise ValueError(message)


def description_sources(attributes: Path | None) -> list[str]:
    """Return the files, words and columns that --attributes lists, with commas."""
    if attributes is None:
        return []
    # A file may have a comma in its name.
    if attributes.exists():
        return [str(attributes)]
    # csv, because names of columns with commas are quoted
    lines = csv.reader([str(attributes)], skipinitialspace=True)
    return [name.strip() for line in lines for name in line if name.strip()]


def check_descriptions(
    attributes: Path | None, data: Path | None = None, layer: str | None = None
) -> None:
    """Raise for anything that is not a file, a word of --attributes, or a column of data."""
    for source in description_sources(attributes):
        if not _is_column_name(source):
            continue
        problem = _problem_of_column(source, data, layer)
        if problem is None:
            continue
        from semfs.validation import did_you_mean

        hint = did_you_mean(source.lower(), DESCRIPTIONS) or "."
        known = ", ".join(repr(known) for known in DESCRIPTIONS)
        raise ValueError(
            f"--attributes: {source} does not exist{hint} "
            f"Give a file, {known}, or a column of the data that groups the classes"
            f"{problem}"
        )


def _is_column_name(source: str) -> bool:
    """Return whether a source of descriptions can only be a column."""
    return source.lower() not in DESCRIPTIONS and not Path(source).exists()


def _problem_of_column(name: str, data: Path | None, layer: str | None) -> str | None:
    """Return the end of a message if data lack this column (of obs), else None."""
    if data is None or not data.exists():
        return "."
    from semfs.rows.opening import column_labels

    # formats list their columns in different ways; reading one is the common test
    try:
        column_labels(data, name, layer)
    except (ValueError, LookupError) as error:
        return f": {error}"
    return None


def level_columns(attributes: Path | None, data: Path, layer: str | None) -> list[str]:
    """Return the columns of a table that --attributes names, because they are not features."""
    from semfs.rows.opening import table_columns

    names = [name for name in description_sources(attributes) if _is_column_name(name)]
    return [column for name in names for column in table_columns(data, name, layer)]


def described_classes(
    attributes: Path | None, data: Path, label: str | None, layer: str | None
) -> Any:
    """Return the value of --attributes, or a table if it names several sources or columns.

    Columns of the data are levels of annotation, with the coarsest first.
    """
    sources = description_sources(attributes)
    levels = [name for name in sources if _is_column_name(name)]
    if len(sources) < 2 and not levels:
        return attributes
    from semfs.attributes import attributes_from_hierarchy, combine_attributes
    from semfs.rows.opening import column_labels
    from semfs.system import import_optional

    pandas = import_optional("pandas", "data", what="A hierarchy")
    # Without a name NPZ files have their labels in y.
    of_samples = column_labels(data, label or "y", layer)
    tables: list[Any] = [name for name in sources if name not in levels]
    if levels:
        columns = {name: column_labels(data, name, layer).array() for name in levels}
        for name, values in columns.items():
            if len(values) != len(of_samples):
                raise ValueError(
                    f"--attributes: {name} has {len(values)} values, but there are "
                    f"{len(of_samples)} samples. Give a column with one value per sample. "
                    "To use the attribute table of an NPZ file (array A), omit --attributes."
                )
        columns[label or "y"] = of_samples.array()
        tables.append(attributes_from_hierarchy(pandas.DataFrame(columns)))
    if len(tables) == 1:
        return tables[0]
    # ontologies and class names must know which classes to describe
    return combine_attributes(tables, of_samples.used().classes)


def expand_columns(
    data: Path, label: str | None, layer: str | None, values: list[str] | None
) -> list[str]:
    """Return the columns that --drop names by names, comma-separated lists, files or patterns.

    Single names are checked by the reader. Only for the others, the columns of the file are
    read first.
    """
    from semfs.feature_names import PATTERN_PREFIX, resolve_features
    from semfs.validation import is_file

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
