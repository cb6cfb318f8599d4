"""Class names: conversion to plain words, and reading from files."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from semfs.io.safety import FileError, file_errors, open_existing
from semfs.validation import check_distinct

#: Words that name a column: the header of a file of names has at least one in each cell.
_COLUMN_WORDS = {
    "annotation",
    "celltype",
    "class",
    "description",
    "id",
    "label",
    "name",
    "ontology",
    "suggestion",
    "term",
    "type",
}
_COLUMN_PLURALS = {
    "celltypes": "celltype",
    "classes": "class",
    "labels": "label",
    "names": "name",
    "types": "type",
}
#: Words that may stand beside these, as in ``cell_type``; alone they may be the name of a
#: class ("cell" is one of the Cell Ontology).
_OTHER_WORDS = {"author", "cell", "cl", "free", "of", "predicted", "text", "the", "your"}

#: The columns of `mapping_template`, which is read as a file of names once it is corrected.
TEMPLATE_COLUMNS = ["label", "suggestion", "id", "score"]


def clean_name(name: str) -> str:
    """Return a class name as plain words.

    >>> clean_name("002.Laysan_Albatross"), clean_name("pickUpTruck")
    ('Laysan Albatross', 'pick Up Truck')
    """
    # A number in front, as in "002.Laysan_Albatross".
    without_number = re.sub(r"^\d+[._\s-]+(?=\D)", "", str(name))
    # Between words of "pickUpTruck", but not before the letter of "typeB".
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", without_number)
    words = re.sub(r"[_+/\\|.:;,]+", " ", spaced).split()
    return " ".join(words) or str(name)


def read_names(source: str) -> list[str] | dict[str, str]:
    """Read class names, or a mapping of names to descriptions, from text or a file.

    If the text contains semicolons, they separate the names; otherwise, commas do. Commas
    inside quotes belong to a name.

    Each line of a file holds a name, or a name and a description separated by a tab (in
    ``.csv`` files, by a comma). A header line such as ``cell_type`` or ``label,ontology`` is
    skipped. In a ``.csv`` file without descriptions, names may contain ", ". If the file is a
    table written by `semfs.attributes.mapping_template`, the corrected class of each label is
    read.

    >>> read_names('B cell, "CD4-positive, alpha-beta T cell"')
    ['B cell', 'CD4-positive, alpha-beta T cell']
    """
    path = Path(source)
    if not path.suffix and not path.is_file():
        separator = ";" if ";" in source else ","
        return _split(source, separator)
    path = open_existing(path)
    with file_errors(path, "name"):
        try:
            text = path.read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise FileError(f"{path}: a text file of class names was expected.") from None
        separator = "," if path.suffix.lower() == ".csv" else "\t"
        lines = _cells_of_lines(text, separator)
    numbers = list(lines)
    if numbers and lines[numbers[0]] == TEMPLATE_COLUMNS:
        return _corrected_template(path, lines)
    if len(numbers) > 1 and _is_header(lines[numbers[0]]):
        del lines[numbers[0]]
    if not lines:
        raise FileError(f"{path} is empty; one class name per line was expected.")
    rows = list(lines.values())
    if all(len(row) == 1 for row in rows):
        return [row[0] for row in rows]
    if separator == "," and _commas_belong_to_names(text, rows):
        # The lines as they are written: csv has cut names at their commas.
        kept = set(lines)
        written = enumerate(text.splitlines(), start=1)
        return [line.strip().strip('"') for number, line in written if number in kept]
    return _descriptions(path, lines, separator)


def _split(line: str, separator: str) -> list[str]:
    """Split a line and strip blanks. Separators inside quotes do not count."""
    cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    return [cell.strip() for cell in cells if cell.strip()]


def _cells_of_lines(text: str, separator: str) -> dict[int, list[str]]:
    """Return the cells of each nonempty line, by line number (from 1)."""
    lines = {}
    reader = csv.reader(
        text.splitlines(),
        delimiter=separator,
        skipinitialspace=True,
    )
    for number, row in enumerate(reader, start=1):
        cells = [cell.strip() for cell in row]
        if any(cells):
            lines[number] = cells
    return lines


def _is_header(cells: list[str]) -> bool:
    """Return whether each cell consists of words that name a column, such as "cell_type"."""
    for cell in cells:
        words = set(re.split(r"[_\s.]+", cell.lower()))
        words = {_COLUMN_PLURALS.get(word, word) for word in words}
        is_known = words <= _COLUMN_WORDS | _OTHER_WORDS
        if not is_known or not words & _COLUMN_WORDS:
            return False
    return True


def _commas_belong_to_names(text: str, rows: list[list[str]]) -> bool:
    """Return whether commas belong to names instead of separating them from descriptions.

    They do if some lines have no comma and a blank follows each comma, as in "CD4-positive,
    alpha-beta T cell".
    """
    some_without = any(len(row) == 1 for row in rows)
    return some_without and re.search(r",(?! )", text) is None


def _descriptions(path: Path, lines: dict[int, list[str]], separator: str) -> dict[str, str]:
    """Return the description of each name, from lines of two cells."""
    word = "comma" if separator == "," else "tab"
    for number, row in lines.items():
        if len(row) != 2 or not all(row):
            raise FileError(
                f"{path}, line {number} must hold a name, a {word} and a description. Put text "
                f"that contains a {word} in quotes."
            )
    names = [row[0] for row in lines.values()]
    check_distinct(names, f"{path} names class {{}} twice.", FileError)
    return dict(row for row in lines.values())


def _corrected_template(path: Path, lines: dict[int, list[str]]) -> dict[str, str]:
    """Return the class of each label in a table that `mapping_template` wrote.

    The class is returned as "name (id)". If only one of the two was corrected, name and id are
    different classes, which is noticed later.
    """
    rows = list(lines.values())[1:]
    if not rows:
        raise FileError(f"{path} holds only a header; one label per line was expected.")
    found = {}
    without = []
    for row in rows:
        label, name, id_ = (row + [""] * 3)[:3]
        if not name and not id_:
            without.append(label)
        found[label] = f"{name} ({id_})" if name and id_ else name or id_
    if without:
        labels = ", ".join(repr(label) for label in without)
        raise FileError(
            f"{path} has no class for {labels}. Fill in a suggestion or an id, or delete "
            "these lines."
        )
    check_distinct([row[0] for row in rows], f"{path} names label {{}} twice.", FileError)
    return found
