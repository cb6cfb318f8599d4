"""Commands on your own data: choose features, describe classes, list known data sets."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from semfs.cli.console import AsJson, Scheduler, given, print_json, say

__all__ = ["attributes", "datasets", "select"]

Names = list[str] | None
LABEL = "Column (tables), obs column (H5AD), array (NPZ: default y), file of labels (NPY)."
TABLE = "Class table (CSV, Parquet, Excel, JSON), `names` to encode these, or `labels` alone."
NAMES = "A file with a class name per line, or name, tab (CSV: comma), description; or a,b,c."
ENCODER = "wordllama, a file of word vectors, model2vec:NAME, or a sentence-transformers model."
ONTOLOGY = (
    "Describe by the ancestors in this OBO, OWL or JSON file, or in `cl` (Cell Ontology)."
)
MARKERS = "A table of class, marker and, if you like, weight, instead of NAMES."
REDUCED = "Reduced data (.csv .parquet .npy .npz .h5ad), or a folder."


@dataclass
class Selection:
    """Options of `select`: the file, the selector, and what is written."""

    data: Annotated[Path, Argument(help="CSV, Parquet, Feather, NPY, NPZ, HDF5, Zarr, H5AD.")]
    label: Annotated[str | None, Option("--label", "-l", help=LABEL)] = None
    attributes: Annotated[Path | None, Option("--attributes", "-a", help=TABLE)] = None
    n_features_to_select: Annotated[int, Option("-k", help="Number of features to keep.")] = 50
    out: Annotated[Path, Option("--out", "-o", help=REDUCED)] = Path("selected")
    unseen: Annotated[
        Names, Option(help="A class whose rows must not be used; repeatable.")
    ] = None
    drop: Annotated[Names, Option(help="A column that is no feature; repeatable.")] = None
    include: Annotated[Names, Option(help="A feature to keep in any case; repeatable.")] = None
    exclude: Annotated[Names, Option(help="A feature never to keep; repeatable.")] = None
    layer: Annotated[str | None, Option(help="Layer of an H5AD file, or `raw`.")] = None
    subset: Annotated[bool, Option("--subset", help="H5AD: write only the chosen genes.")] = (
        False
    )
    alpha: Annotated[float, Option(help="Weight of the class-centre loss.")] = 1.0
    gamma: Annotated[float | None, Option(help="Ridge penalty; by default that of SemFS.")] = (
        None
    )
    scheduler: Scheduler = None
    save: Annotated[Path | None, Option(help="Keep the selector here, for semfs.load.")] = None
    as_json: AsJson = False


def select(options: Selection) -> None:
    """Select features in a data file: a ranked feature table and the reduced data come out.

    Rows without a label count as unlabelled (`SemFS.fit`), and are in the reduced data.

    Example: `semfs select cells.csv --label type --attributes types.csv -k 50 -o out.csv`
    """
    import semfs
    from semfs.datasets.files import class_table
    from semfs.rows import open_blocks
    from semfs.selectors.files import select_features

    values = given(options)
    source = open_blocks(
        options.data, options.label, key=options.layer, drop=options.drop or ()
    )
    assert source.labels is not None
    table, hidden = class_table(options.data, options.attributes, source.labels.classes)
    own = ("n_features_to_select", "alpha", "gamma", "include", "exclude")
    parameters = {name: values[name] for name in own if name in values}
    selector = semfs.SemFS(attributes=table, verbose=int(sys.stderr.isatty()), **parameters)
    done = select_features(
        source,
        selector,
        options.out,
        unseen=[*(options.unseen or ()), *hidden],
        subset=options.subset,
        scheduler=options.scheduler,
    )
    if options.save is not None:
        done.files.append(semfs.save(selector, options.save))
    if options.as_json:
        print_json(done.as_dict())
        return
    chosen = done.features["feature"][done.features["selected"]]
    say(
        f"{len(chosen)} of {len(done.features)} features chosen on {done.n_rows} rows of "
        f"{len(done.selector.classes_)} classes; best: {', '.join(chosen[:5])}"
    )
    for path in done.files:
        say(f"Wrote {path}")


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
    from semfs.attributes import (
        attributes_from_markers,
        attributes_from_ontology,
        describe_attributes,
        encode_class_names,
        read_names,
    )
    from semfs.attributes.files import write_table

    if (names is None) == (markers is None):
        raise ValueError("give class names, or --markers FILE instead of them.")
    if names is None:
        table = attributes_from_markers(markers)
    elif ontology is not None:
        table = attributes_from_ontology(read_names(names), ontology, own=own, part_of=part_of)
    else:
        table = encode_class_names(read_names(names), encoder, prompts=prompt or "{}")
    write_table(table, out)
    for finding, what in describe_attributes(table).head(12).to_numpy():
        say(f"{finding}: {what}")
    say(f"Wrote {out}")


def datasets(as_json: AsJson = False) -> None:
    """List the known data sets: what they are, where they were found, how to get them.

    Example: `SEMFS_DATA=/data semfs datasets`
    """
    from semfs.datasets.catalog import CATALOG, data_folders, find_files

    found = {entry.name: find_files(entry) for entry in CATALOG}
    if as_json:
        places = {name: None if path is None else str(path) for name, path in found.items()}
        print_json([asdict(entry) | {"found": places[entry.name]} for entry in CATALOG])
        return
    for entry in CATALOG:
        path = found[entry.name]
        where = "bundled" if not entry.files else f"found in {path}" if path else "not found"
        say(f"{entry.name}: {entry.what} [{where}]\n  {entry.loader}")
        if path is None and entry.files:
            say(f"  get it: {entry.source}\n  licence: {entry.licence}")
    say("Looked in: " + ", ".join(str(folder.absolute()) for folder in data_folders()))
