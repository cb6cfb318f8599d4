"""Labels in files: label columns, and label files by sample name or in sample order."""

from __future__ import annotations

import csv
import io
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

from semfs._typing import LabelsLike
from semfs.io.npy import read_npy
from semfs.io.reader import NO_LABEL_TEXTS, Reader, Request
from semfs.io.safety import FileError, file_errors, open_existing, unpacked
from semfs.labels import Labels
from semfs.validation import warn_user

#: Lines of a label file as lists of cells.
Table = list[list[str]]
#: More different cells than this, in more than half of the lines, are names of samples.
FEWEST_NAMES = 20


def given_labels(request: Request, reader: Reader, where: object) -> Labels:
    """Return labels that were passed as an array or as the path of a label file."""
    if request.y is None:
        raise ValueError(
            f"{where}: no labels given. Pass y, an array with one label "
            "per sample, or the path of a file with one label per line "
            "or with sample names and labels."
        )
    if request.name is None:
        return Labels.of(request.y)
    if not Path(request.name).exists():
        raise FileError(
            f"{request.name} does not exist, "
            f"and {where} has no columns that could hold labels. "
            "Give a label file: one label per line, "
            "or sample names (barcodes) and labels."
        )
    return read_label_file(request.name, reader, request.no_label)


def labels_in_file(
    values: LabelsLike | Labels, where: object, no_label: Iterable[str] = NO_LABEL_TEXTS
) -> Labels:
    """Return labels that were read from a file, with text such as "unknown" as no label.

    Programs write missing labels as text ("nan", "Unknown", …). A warning names such text
    and how many samples have it. Blank text is the usual way to leave a label out of a
    text file and needs no warning.

    Parameters
    ----------
    values : labels as read
    where : object
        Name of the file and column, for the warning.
    no_label : iterable of str
        Text that means "no label", in upper or lower case.
    """
    labels = Labels.of(values).strip_blank()
    # classes are few, samples may be millions: compare classes
    no_label = {text.strip().casefold() for text in no_label}
    masked = []
    for code, label in enumerate(labels.classes):
        if isinstance(label, str) and label.casefold() in no_label:
            masked.append((label, int((labels.codes == code).sum())))
    for label, _ in masked:
        labels = labels.mask_label(label)
    if masked:
        shown = ", ".join(f"{label!r} ({count} samples)" for label, count in masked)
        warn_user(
            f"{where} has text that means 'no label': {shown}. These "
            "samples are treated as unlabeled. If they are a class, "
            "specify which other text means 'no label' (no_label in "
            "Python, --unlabeled-names on the command line)."
        )
    return labels


def read_label_file(
    path: str | Path, reader: Reader, no_label: Iterable[str] = NO_LABEL_TEXTS
) -> Labels:
    """Return the labels of the samples of a reader, from a separate file.

    A ``.npy`` file holds them in the order of the samples. A text file has one label per line
    in the order of the samples. If the reader knows sample names, the file may instead have
    sample names in the first column and labels in the second, in any order, with or without a
    header. Samples that are not in the file are unlabeled.
    """
    path = open_existing(path)
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.ndim != 1:
            raise FileError(f"{path} has shape {values.shape}; one label per row was expected.")
        labels = labels_in_file(values, path, no_label)
        _check_repeated(path, labels)
        return labels
    with file_errors(path, "label"):
        # spreadsheets write a byte order mark
        with unpacked(path) as file:
            text = file.read().decode("utf-8-sig")
        table = _name_table(text, reader.row_names)
    if table is not None and reader.row_names is not None:
        joined = _joined(path, table, reader.row_names)
        return labels_in_file(joined, path, no_label).as_int()
    _check_other_names(path, text, reader.row_names)
    # no names: the whole line is the label, with the commas in it
    lines = [_without_quotes(line) for line in text.splitlines()]
    labels = labels_in_file(lines, path, no_label).as_int()
    _check_repeated(path, labels)
    return labels


def _without_quotes(line: str) -> str:
    """Return a line without the quotes that spreadsheets put around text with commas.

    >>> _without_quotes('"CD4-positive, alpha-beta T cell"')
    'CD4-positive, alpha-beta T cell'
    """
    inside = line.strip()[1:-1]
    if line.strip() == f'"{inside}"' and '"' not in inside:
        return inside
    return line


def _check_repeated(path: Path, labels: Labels) -> None:
    """Raise if all labels are different, because then they are not class labels."""
    # one sample, or none, says nothing
    n_labeled = int((labels.codes >= 0).sum())
    if n_labeled < 2 or len(labels.classes) < n_labeled:
        return
    raise FileError(
        f"{path} was read as one label per line, which gives {n_labeled} "
        f"classes for {n_labeled} samples, such as "
        f"{str(labels.classes[0])!r}. Give the class label of each sample "
        "or, in a .csv or .tsv file, sample names exactly as they appear "
        "in the data and their labels."
    )


def _name_table(text: str, row_names: Sequence[str] | None) -> Table | None:
    """Return the cells of a text if its first column holds names of samples, else None."""
    if row_names is None:
        return None
    known = set(row_names)
    # class names may contain commas, so that tabs are tried first; a delimiter
    # is right if cells before it are names of samples
    for delimiter in "\t,;":
        lines = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
        table = [[cell.strip() for cell in cells] for cells in lines if cells]
        named = [cells for cells in table if len(cells) > 1 and cells[0] in known]
        if named:
            return table
    return None


def _check_other_names(path: Path, text: str, row_names: Sequence[str] | None) -> None:
    """Raise if lines seem to hold names and labels, but of samples that the data lack.

    ``row_names`` are those of the data, none of which is in the text; None if it has none.
    """
    for delimiter in "\t,;":
        lines = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
        table = [[cell.strip() for cell in cells] for cells in lines if cells]
        if not _holds_names(table):
            continue
        columns = {2: "two columns"}.get(len(table[0]), f"{len(table[0])} columns")
        if _has_header(table, set()):
            del table[0]
        if row_names is None:
            raise FileError(
                f"{path} has {columns}, with {len(table)} "
                f"names such as {table[-1][0]!r}, but "
                "the samples of the data have no names. Give "
                "one label per line, in the order "
                "of the samples, without names."
            )
        raise FileError(
            f"{path} has {columns}, but none of its {len(table)} names is "
            f"a sample name. The file has names such as {table[-1][0]!r}, "
            f"but the data have names such as {str(row_names[-1])!r}. Write "
            "the names exactly as they appear in the data."
        )


def _holds_names(table: Table) -> bool:
    """Return whether the first column holds names of samples rather than parts of labels.

    A class whose name contains the delimiter occurs many times, while names of samples
    differ. A few may be repeated, such as barcodes of several donors.
    """
    widths = {len(cells) for cells in table}
    if len(table) < 2 or len(widths) > 1 or widths == {1}:
        return False
    n_names = len({cells[0] for cells in table})
    return n_names == len(table) or n_names > max(FEWEST_NAMES, len(table) / 2)


def _joined(path: Path, table: Table, row_names: Sequence[str]) -> list[Hashable]:
    """Return the label of each named sample, or None for samples not in the table."""
    known = set(row_names)
    label_of: dict[str, str] = {}
    for number, cells in enumerate(table, 1):
        if len(cells) != 2:
            raise FileError(
                f"{path}: line {number} has {len(cells)} cells, but each "
                "line must hold two: the name of a sample and its label."
            )
        name, label = cells
        # the same line twice does no harm
        if label_of.setdefault(name, label) != label:
            raise FileError(
                f"{path}: {name!r} has two labels, {label_of[name]!r} and "
                f"{label!r}. Keep only one of them."
            )
    if _has_header(table, known):
        del label_of[table[0][0]]
    missing = [name for name in row_names if name not in label_of]
    extra = [name for name in label_of if name not in known]
    if missing or extra:
        warn_user(_join_report(path, len(row_names), missing, extra))
    return [label_of.get(name) for name in row_names]


def _has_header(table: Table, known: set[str]) -> bool:
    """Return whether the first line is a header: no sample name, and a unique label."""
    name, label = table[0]
    others = {cells[1] for cells in table[1:]}
    return name not in known and label not in others


def _join_report(
    path: Path, n_samples: int, missing: Sequence[str], extra: Sequence[str]
) -> str:
    """Return one line on samples without a label and lines without a sample."""
    parts = []
    if missing:
        parts.append(
            f"{len(missing)} of {n_samples} samples are not in the file "
            f"(such as {missing[0]!r}) and are unlabeled"
        )
    if extra:
        parts.append(
            f"{len(extra)} lines name samples that are not in the data (such as {extra[0]!r})"
        )
    return f"{path}: labels were joined by name; {'; '.join(parts)}."
