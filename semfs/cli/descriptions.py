"""`semfs attributes` and `semfs datasets`: class descriptions, and the known data sets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from semfs.cli.console import show, show_written
from semfs.cli.options import LABEL, Names, existing
from semfs.io.safety import check_apart

if TYPE_CHECKING:
    import pandas as pd

NAMES = (
    "Class names, such as a,b,c; or a text file with one name per line, "
    "optionally followed by a tab (in CSV, a comma) and a description; "
    "or a data file (with --label)."
)
ENCODER = (
    "Text encoder for the names: 'wordllama', a file of word vectors, "
    "model2vec:NAME, or the name of a sentence-transformers model."
)
ONTOLOGY = (
    "Describe classes by their ancestors in this OBO, OWL or JSON file, "
    "or in 'cl' (Cell Ontology)."
)
MARKERS = (
    "A table whose rows each hold a class, a marker and, optionally, a "
    "weight. Use it instead of NAMES."
)
PROMPT = "Text to put around each name, such as 'a photo of a {}'; repeatable."
PART_OF = "Also use 'part of' relations of the ontology."
OWN = "Also give each class its own term of the ontology as an attribute."
TEMPLATE = (
    "Write the best-matching term for each name to this file, so that "
    "you can correct it, and stop."
)
#: Findings about a table that are printed of each kind.
MOST_FINDINGS = 5


def attributes(
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            help="The output file for the table: .csv, .tsv, .parquet, .feather or .xlsx.",
        ),
    ] = None,
    names: Annotated[str | None, Argument(help=NAMES)] = None,
    encoder: Annotated[str, Option("--encoder", "-e", help=ENCODER)] = "wordllama",
    prompt: Annotated[Names, Option(help=PROMPT)] = None,
    ontology: Annotated[str | None, Option(help=ONTOLOGY)] = None,
    part_of: Annotated[bool, Option("--part-of", help=PART_OF)] = False,
    own_terms: Annotated[bool, Option("--own", help=OWN)] = False,
    markers: Annotated[Path | None, Option(help=MARKERS)] = None,
    label: Annotated[str | None, Option("--label", "-l", help=LABEL)] = None,
    template: Annotated[Path | None, Option(help=TEMPLATE)] = None,
) -> None:
    """Write a table that describes classes, from their names, an ontology or marker lists.

    If your labels are not terms of the ontology, you need a file that gives the term of each
    label. `--template` writes a first version of it.

    Example: `semfs attributes types.csv --ontology cl.obo -o table.csv`
    """
    if (names is None) == (markers is None):
        raise ValueError("Give either class names or --markers FILE.")
    if (out is None) == (template is None):
        raise ValueError("Nothing to write. Give --out FILE, or --template FILE.")
    written = out or template
    # any of these may be a file, which must not be replaced by the result
    check_apart([written], [names, markers, ontology, encoder])
    replaced = existing([written])

    from semfs.attributes.files import check_table_ending, write_table

    assert written is not None
    check_table_ending(written)

    # Imported after the checks, so that a wrong option is refused at once.
    from semfs import attributes as package

    if names is None:
        table = package.attributes_from_markers(markers)
    else:
        terms = _terms(names, label)
        if template is not None:
            _write_template(list(terms), ontology, template)
            show_written([template], replaced)
            return
        if ontology is not None:
            table = package.attributes_from_ontology(
                terms, ontology, own=own_terms, part_of=part_of
            )
        else:
            table = package.encode_class_names(terms, encoder, prompts=prompt or "{}")
    assert out is not None
    write_table(table, out)
    _show_findings(table, own_is_of_use=ontology is not None and not own_terms)
    show_written([out], replaced)


def _terms(names: str, label: str | None) -> dict[str, str] | list[str]:
    """Return class names as given, from a file of names, or the labels of a data file."""
    from semfs.attributes import read_names

    if label is None:
        if not names.strip(" ,"):
            raise ValueError("NAMES is empty. Give class names, such as 'cat,dog'.")
        return read_names(names)
    from semfs.io.registry import open_reader

    # Only labels are read: how the values are normalized does not matter here.
    _, labels = open_reader(Path(names), label)
    assert labels is not None
    return [str(name) for name in labels.classes]


def _write_template(labels: list[str], ontology: str | None, path: Path) -> None:
    """Write a table of label and best guess of its term in the ontology."""
    if ontology is None:
        raise ValueError("--template also needs --ontology FILE, or --ontology cl.")
    from semfs.attributes import mapping_template
    from semfs.attributes.files import write_table

    guesses = mapping_template(labels, ontology)
    # The labels become the index, which is written as the first column.
    first, *_ = guesses.columns
    write_table(guesses.set_index(first), path)


def _show_findings(table: "pd.DataFrame", own_is_of_use: bool) -> None:
    """Print what stands out in a table, such as classes described alike.

    ``own_is_of_use``: whether --own was not given and would make them differ.
    """
    from semfs.attributes import describe_attributes

    found = describe_attributes(table).groupby("finding", sort=False)["what"]
    for finding, items in found:
        shown = "; ".join(items[:MOST_FINDINGS])
        if len(items) > MOST_FINDINGS:
            shown += "; …"
        if finding == "identical classes" and own_is_of_use:
            shown += ". With --own, each also has its own term as an attribute"
        show(f"{finding}: {shown}")


def datasets() -> None:
    """List the known data sets: what they are, where they were found, how to get them.

    Example: `SEMFS_DATA=/data semfs datasets`
    """
    from semfs.datasets.catalog import CATALOG, data_folders, find_files

    for entry in CATALOG:
        path = find_files(entry)
        if not entry.files:  # nothing to look for
            place = "bundled"
        elif path is None:
            place = "not found"
        else:
            place = f"found in {path}"
        show(f"{entry.name}: {entry.what} [{place}]\n  {entry.loader}")
        if path is None and entry.files:
            show(f"  get it: {entry.source}\n  license: {entry.licence}")
    show("Looked in: " + ", ".join(str(folder.absolute()) for folder in data_folders()))
