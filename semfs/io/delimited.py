"""Text tables (CSV, TSV, also .gz): delimiter, decimal sign, options of pyarrow's parser."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semfs.io import reader as readers
from semfs.io.safety import FileError, unpacked

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_TABLES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
#: Bytes of the longest header and line that are looked at to learn the delimiter.
LONGEST_HEADER = 2**24
LONGEST_LINE = 2**20
#: Lines after the header that are looked at to learn the decimal sign.
SAMPLE_LINES = 20
#: Bytes of the largest block that pyarrow's parser takes.
LARGEST_BLOCK = 2**30
#: Numbers as people write them, with a point or a comma.
_NUMBER = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?|nan|inf", re.I)
#: The same with signs between thousands, or with a short unit behind: 310.123,4 or 12.5 %.
_LIKE_NUMBER = re.compile(
    r"[+-]?([0-9]+[.,]?[0-9]*|[0-9]{1,3}([., '][0-9]{3})+([.,][0-9]*)?|[.,][0-9]+)"
    r"([eE][+-]?[0-9]+)?( [^\s0-9.,;:/-]{1,4}|[%°€$]C?)?"
)
#: Different numbers that a column of text must hold, so that its words seem to be errors.
FEWEST_NUMBERS = 5
#: Numbers with a comma that cannot separate thousands: 0,123 or 1234,5 or 1,5.
_COMMA = re.compile(r"[+-]?((0|[0-9]{4,}),[0-9]+|[0-9]*,([0-9]{1,2}|[0-9]{4,}))([eE].*)?")


def is_text_table(path: Path) -> bool:
    """Return whether the suffix is that of a CSV or TSV file."""
    return path.name.lower().endswith(TEXT_TABLES)


def find_delimiter(header: str) -> str:
    """Return the most frequent of comma, semicolon and tab in a line."""
    return max(",;\t", key=header.count)


def decimal_sign(cells: Iterable[str]) -> str:
    """Return "," if numbers in cells of a table are written like 1,5 instead of 1.5."""
    stripped = [cell.strip() for cell in cells]
    n_commas = sum(_COMMA.fullmatch(cell) is not None for cell in stripped)
    with_points = [cell for cell in stripped if "." in cell]
    n_points = sum(_NUMBER.fullmatch(cell) is not None for cell in with_points)
    return "," if n_commas > n_points else "."


def csv_options(path: Path, types: dict[str, pa.DataType] | None = None) -> dict[str, Any]:
    """Return pyarrow's options to read and parse a text table, with these types of columns."""
    import pyarrow.csv as pc

    with unpacked(path) as file:
        header = file.readline(LONGEST_HEADER).decode("utf-8-sig", "replace")
        lines = [file.readline(LONGEST_LINE) for _ in range(SAMPLE_LINES)]
    delimiter = find_delimiter(header)
    texts = [line.decode("utf-8", "replace") for line in lines]
    cells = [cell for row in csv.reader(texts, delimiter=delimiter) for cell in row]
    # a block must hold at least a row, which is about as long as the header or longer
    block_bytes = min(max(readers.BLOCK_BYTES, 64 * len(header)), LARGEST_BLOCK)
    return {
        "read_options": pc.ReadOptions(block_size=block_bytes, use_threads=False),
        "parse_options": pc.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": pc.ConvertOptions(
            column_types=types, strings_can_be_null=False, decimal_point=decimal_sign(cells)
        ),
    }


def text_rows(path: Path) -> list[list[str]]:
    """Return all cells of a small text table as text, including the header."""
    with unpacked(path) as file:
        text = file.read().decode("utf-8-sig")
    lines = text.splitlines(keepends=True)
    delimiter = find_delimiter(lines[0] if lines else "")
    return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))


def refuse_broken_numbers(path: Path, name: str, cells: list[str]) -> None:
    """Raise if a text column is mostly numbers, because then the others are errors."""
    wrong = [row for row, cell in enumerate(cells) if not _NUMBER.fullmatch(cell.strip())]
    mostly_numbers = len(wrong) < 0.5 * len(cells)
    mostly_different = len(set(cells)) > 0.5 * len(cells)  # unlike classes 1, 2, 3
    if not mostly_numbers or not mostly_different:
        return
    row = wrong[0] if wrong else _row_of_rarer_sign(cells)
    raise FileError(
        f"{path}: column {name!r} holds numbers, but row {row + 1} has "
        f"{cells[row]!r}. Correct this cell (write decimals as 1.5 or as "
        "1,5, but not both in one file), or drop the column."
    )


def first_broken_number(cells: list[str]) -> tuple[int, str] | None:
    """Return the row and text of the first bad cell of a text column that looks like numbers.

    Most cells are numbers but for signs between thousands or a unit, or some are numbers and
    the others are one or two words, such as "error". None for other columns.

    >>> first_broken_number(["310.123,4", "309.871,0", "311.002,9"])
    (0, '310.123,4')
    >>> first_broken_number(["M1", "M2", "2026-01-05"])
    """
    stripped = [cell.strip() for cell in cells]
    filled = [cell for cell in stripped if cell]
    plain = [cell for cell in filled if _NUMBER.fullmatch(cell)]
    alike = [cell for cell in filled if _LIKE_NUMBER.fullmatch(cell)]
    words = {cell for cell in filled if not _LIKE_NUMBER.fullmatch(cell)}
    mostly = len(alike) > 0.5 * len(filled) and len(set(alike)) > 0.5 * len(alike)
    # a few different numbers may be codes of classes
    partly = len(set(plain)) > max(0.5 * len(plain), FEWEST_NUMBERS) and len(words) <= 2
    bad = [row for row, cell in enumerate(stripped) if cell and not _NUMBER.fullmatch(cell)]
    if not bad:
        bad = [_row_of_rarer_sign(stripped)] if len(plain) == len(filled) else bad
    if not (mostly or partly) or not bad:
        return None
    return bad[0], cells[bad[0]]


def _row_of_rarer_sign(cells: list[str]) -> int:
    """Return the first row with the less frequent decimal sign."""
    rows_by_sign = []
    for sign in ",.":
        rows = [row for row, cell in enumerate(cells) if sign in cell]
        if rows:
            rows_by_sign.append(rows)
    if not rows_by_sign:
        return 0
    return min(rows_by_sign, key=len)[0]
