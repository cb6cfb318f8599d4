"""Lists of names and values in files, such as the prices of features (text, Excel, Parquet)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from semfs.io.excel import EXCEL, sheet_columns
from semfs.io.safety import file_errors, open_existing, unpacked
from semfs.io.tables import FEATHER, PARQUET, read_columns
from semfs.labels import is_missing
from semfs.validation import ParameterError, counted, listed

#: Words in the header of the column of values, for each parameter that a list can set.
HEADERS = {
    "costs": ("price", "prices", "cost", "costs", "preis", "preise", "kosten"),
    "groups": ("group", "groups", "device", "devices", "sensor", "sensors", "gruppe"),
    "capacity": ("capacity", "capacities", "limit", "limits"),
}
#: What the values of each parameter are called.
NOUNS = {"costs": "prices", "groups": "groups", "capacity": "limits"}
#: Numbers as people write them, with a point or a comma.
_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
#: One sign before three digits, which may separate thousands or decimals: 1.023 or 1,023.
_UNCLEAR = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
#: Signs between thousands that cannot be decimal signs: 1.022,91 or 1,234,567.
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,' ]\d{3})+([.,]\d*)?", re.ASCII)
#: A whole number beside numbers such as 1.023; of this size it suggests that 1.023 is 1023.
_HUNDREDS = re.compile(r"[+-]?[1-9]\d\d", re.ASCII)


@dataclass(frozen=True)
class ValueList:
    """What a file says of each name, and where it says so."""

    values: dict[str, object]  # text for groups, numbers otherwise; empty cells are left out
    column: str  # "column 'price'"
    n_rows: int
    n_empty: int  # rows without a value

    def summary(self, path: Path) -> str:
        """Return one line on the column that was read, its number of rows and its range."""
        found = list(self.values.values())
        numbers = [value for value in found if isinstance(value, float)]
        what = counted(len(set(found)), "group")
        if numbers:
            what = f"{min(numbers):g} to {max(numbers):g}"
        rows = counted(self.n_rows, "row")
        if self.n_empty:
            rows += f" ({self.n_empty} without a value)"
        return f"{self.column} of {path} is used: {rows}, {what}."


@dataclass(frozen=True)
class _Row:
    """The cells of a row, and how messages call it."""

    cells: list[object]
    place: str  # "line 3" of a text file

    def text(self, column: int) -> str:
        """Return a cell as text; cells beyond the end of the row are empty."""
        return _as_text(self.cells[column]) if column < len(self.cells) else ""


@dataclass(frozen=True)
class _Table:
    """The rows of a list below its header, if it has one."""

    path: Path
    header: list[str]  # [] if the first row is not one
    rows: list[_Row]
    delimiter: str  # "" for files that are not text

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.header) or max(len(row.cells) for row in self.rows)

    def column(self, place: int) -> str:
        """Return how messages call a column."""
        return f"column {self.header[place]!r}" if self.header else f"column {place + 1}"


def read_value_list(parameter: str, path: Path, known: Collection[str]) -> ValueList:
    """Return the values of names in a file.

    The column with most names that are ``known`` has the names. If there are several others,
    the header says which one has the values (`HEADERS`). Values of "groups" are text, and those
    of other parameters are numbers.

    Raises
    ------
    ParameterError
        If no name is known, if it is not clear which column has the values or what a number
        means, or if a name has two values.
    """
    path = open_existing(path)
    with file_errors(path, path.suffix.lower()):
        table = _table(path, known, has_numbers=parameter != "groups")
    if not table.rows or table.width < 2:
        raise ParameterError(parameter, f": {path} must have two columns, names and values.")
    _check_widths(parameter, table)
    names = _name_column(parameter, table, known)
    values = _value_column(parameter, table, names)
    found: list[object] = [row.text(values) for row in table.rows]
    if parameter != "groups":
        found = list(_numbers(parameter, table, values))
    by_name: dict[str, object] = {}
    for row, value in zip(table.rows, found):
        name = row.text(names)
        if value in ("", None):
            continue  # no price, or no group
        if by_name.setdefault(name, value) != value:
            message = (
                f": {path}, {row.place}: {name!r} has two values in "
                f"{table.column(values)}, {by_name[name]} and {value}. "
                "Keep one row for each name."
            )
            raise ParameterError(parameter, message)
    n_empty = sum(value in ("", None) for value in found)
    return ValueList(by_name, table.column(values), len(table.rows), n_empty)


# --- rows and columns ------------------------------------------------------------------


def _table(path: Path, known: Collection[str], *, has_numbers: bool) -> _Table:
    """Read the rows of a file. A first row without known names and numbers is a header."""
    delimiter = ""
    suffix = path.suffix.lower()
    if suffix in (*PARQUET, FEATHER):
        columns = read_columns(path)
        rows = [list(columns), *map(list, zip(*columns.values()))]
        numbered = [_Row(row, f"row {place}") for place, row in enumerate(rows)]
    elif suffix in EXCEL:
        # Empty rows are left out, so that a number of the row might be wrong.
        sheet = [list(row) for row in zip(*sheet_columns(path))]
        numbered = [_Row(row, f"the row of {_as_text(row[0])!r}") for row in sheet]
    else:
        delimiter, numbered = _text_rows(path)
    header: list[str] = []
    if numbered and _is_header(numbered[0], known, has_numbers=has_numbers):
        header = [_as_text(cell) for cell in numbered[0].cells]
        numbered = numbered[1:]
    return _Table(path, header, numbered, delimiter)


def _text_rows(path: Path) -> tuple[str, list[_Row]]:
    """Return the sign between the cells of a text file, and its rows that are not empty."""
    with unpacked(path) as file:
        text = file.read().decode("utf-8-sig")  # Excel writes a byte order mark
    lines = [line for line in text.splitlines() if line.strip()]
    in_all = [mark for mark in "\t;," if all(mark in line for line in lines)]
    # comma last: names and decimal numbers may contain one
    delimiter = next((mark for mark in [*in_all, *"\t;,"] if mark in text), ",")
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    rows = []
    for cells in reader:
        # spreadsheets write delimiters of empty columns
        while cells and not cells[-1].strip():
            cells.pop()
        if cells:
            rows.append(_Row(list(cells), f"line {reader.line_num}"))
    return delimiter, rows


def _as_text(cell: object) -> str:
    """Return a cell as text. Numbers of devices are whole, also if Excel stores 7 as 7.0."""
    if is_missing(cell):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip()


def _is_header(row: _Row, known: Collection[str], *, has_numbers: bool) -> bool:
    """Return whether a first row has no known name, and no number where one is expected."""
    texts = [_as_text(cell) for cell in row.cells]
    if any(text in known for text in texts):
        return False
    return not has_numbers or not any(_NUMBER.fullmatch(text) for text in texts[1:])


def _check_widths(parameter: str, table: _Table) -> None:
    """Raise if a row is longer than the header, as with decimal commas between commas."""
    for row in table.rows:
        if len(row.cells) <= table.width:
            continue
        message = (
            f": {table.path}, {row.place} has {len(row.cells)} cells, but "
            f"the header has {table.width}. If numbers have decimal "
            "commas, separate the cells with semicolons."
        )
        raise ParameterError(parameter, message)


def _name_column(parameter: str, table: _Table, known: Collection[str]) -> int:
    """Return the column with most known names; the first one if none are known at all."""
    columns = range(table.width)
    counts = [sum(row.text(column) in known for row in table.rows) for column in columns]
    place = counts.index(max(counts))
    if counts[place] or not known:
        return place
    names = [row.text(0) for row in table.rows]
    found = f": none of the {len(names)} names in {table.path} is known: {listed(names, 3)}."
    if parameter == "costs":
        found += " Use the names of features or, with --groups, of groups."
    raise ParameterError(parameter, f"{found} One column must hold these names.")


def _value_column(parameter: str, table: _Table, names: int) -> int:
    """Return the column of values: the only other one, or the one that its header names."""
    others = [column for column in range(table.width) if column != names]
    if len(others) == 1:
        return others[0]
    wanted = HEADERS[parameter]
    headers = [header.casefold() for header in table.header]
    exact = [column for column in others if table.header and headers[column] in wanted]
    worded = [
        column
        for column in others
        if table.header
        and not set(re.findall(r"[^\W\d_]+", headers[column])).isdisjoint(wanted)
    ]
    for found in (exact, worded):
        if len(found) == 1:
            return found[0]
    columns = listed([table.column(column) for column in others], 8)
    message = (
        f": {table.path} has several columns besides the names "
        f"({columns}), and it is not clear which one holds the "
        f"{NOUNS[parameter]}. Call it {wanted[0]!r} in the header, or "
        "leave out the others."
    )
    raise ParameterError(parameter, message)


# --- numbers ---------------------------------------------------------------------------


def _numbers(parameter: str, table: _Table, column: int) -> Iterable[float | None]:
    """Yield the number of each row, or None for an empty cell. Raise for unclear numbers."""
    texts = [row.text(column) for row in table.rows]
    decimal = _decimal_sign(parameter, table, texts)
    for row, text in zip(table.rows, texts):
        cell = row.cells[column] if column < len(row.cells) else None
        if text and isinstance(cell, (int, float)):
            yield float(cell)  # of Excel or Parquet
            continue
        if text.lower() in ("", "nan"):
            yield None
            continue
        other = "." if decimal == "," else ","
        if other in text or not _NUMBER.fullmatch(text):
            raise ParameterError(parameter, _broken_number(table, row, text))
        yield float(text.replace(",", "."))


def _decimal_sign(parameter: str, table: _Table, texts: Sequence[str]) -> str:
    """Return the decimal sign of numbers. Raise if 1.023 may be 1023 as well."""
    unclear = [text for text in texts if _UNCLEAR.fullmatch(text)]
    clear = [t for t in texts if _NUMBER.fullmatch(t) and t not in unclear]
    for sign in ",.":
        if any(sign in text for text in clear):
            return sign
    if any("," in text and "." in text for text in texts):
        return "."  # each of these is refused
    if not unclear:
        return "."
    # In a file with commas between cells decimals have points. Whole numbers beside them
    # suggest that the others are whole, too.
    is_suspicious = table.delimiter in (";", "") or any(map(_HUNDREDS.fullmatch, texts))
    if "," not in "".join(unclear) and not is_suspicious:
        return "."
    row = table.rows[texts.index(unclear[0])]
    whole = re.sub("[.,]", "", unclear[0])
    message = (
        f": {table.path}, {row.place}: {unclear[0]!r} may be {whole} or "
        f"{unclear[0].replace(',', '.')}0. Write the number without a "
        "thousands separator."
    )
    raise ParameterError(parameter, message)


def _broken_number(table: _Table, row: _Row, text: str) -> str:
    """Return the message about a cell that is not a number, or not like the others."""
    where = f": {table.path}, {row.place} ({row.text(0)!r})"
    if _THOUSANDS.fullmatch(text):
        return (
            f"{where}: {text!r} has a thousands separator, or its decimal "
            "separator differs from that of the other numbers. Write all "
            "numbers as 1022.91, or all as 1022,91."
        )
    if _NUMBER.fullmatch(text):
        return (
            f"{where}: {text!r} has a different decimal separator than "
            "the other numbers. Use the same one for all numbers."
        )
    return f"{where}: {text!r} must be a number, such as 1022.91, without a unit."
