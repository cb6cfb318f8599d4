"""The files that a selection writes: their paths and formats."""

from __future__ import annotations

from pathlib import Path

from semfs.io.reader import Reader
from semfs.io.safety import check_apart
from semfs.io.tables import TableReader
from semfs.io.write import WRITTEN
from semfs.rows import BlockSource
from semfs.system import import_optional
from semfs.validation import ParameterError

#: Endings of the files that can be written.
ENDINGS = (*WRITTEN, ".xlsx")
#: Rows that a sheet of Excel can hold, its header among them.
EXCEL_ROWS = 2**20


def output_paths(source: BlockSource, out: Path) -> tuple[Path, Path]:
    """Return the paths of the reduced data and of the feature table.

    Raise if a format cannot be written, or if a path is that of the data.
    """
    data = source.reader.path
    ending = out.suffix.lower()
    if not ending or out.is_dir():
        target = out / f"reduced{_ending_of_reduced(data)}"
        table = out / "features.csv"
    elif ending in ENDINGS:
        target = out
        table = out.with_name(f"{out.stem}.features.csv")
    else:
        raise _wrong_ending(out)
    check_format(source, target)
    check_apart((target, table), (data,))
    return target, table


def check_file_or_folder(out: Path, parameter: str = "out") -> None:
    """Raise if a path is neither a file in one of the formats nor a folder.

    The data need not be opened for this check, which may take long. ``parameter`` is the name
    of the parameter that gives the path.
    """
    if out.suffix and out.suffix.lower() not in ENDINGS and not out.is_dir():
        raise _wrong_ending(out, parameter)


def _wrong_ending(out: Path, parameter: str = "out") -> ParameterError:
    endings = ", ".join(ENDINGS)
    return ParameterError(
        parameter, f": {out} must end in {endings}, or have no ending (a folder)."
    )


def check_file_ending(out: Path) -> None:
    """Raise if a path is not a file in one of the formats, without opening the data."""
    if out.suffix.lower() not in ENDINGS or out.is_dir():
        raise ParameterError("out", f": {out} must end in {', '.join(ENDINGS)}.")


def check_format(source: BlockSource, target: Path) -> None:
    """Raise if the format cannot hold these data."""
    if target.suffix.lower() == ".npy" and source.reader.id_column is not None:
        message = (
            f": {target} holds only the matrix, without ids. Choose .npz, .csv or .parquet."
        )
        raise ParameterError("sample_id", message)
    if target.suffix.lower() == ".h5ad":
        _check_can_be_h5ad(source.reader, target)
    if target.suffix.lower() == ".xlsx" and (source.n_rows or 0) >= EXCEL_ROWS:
        message = (
            f": {target} can hold {EXCEL_ROWS - 1} rows, but the data "
            f"have {source.n_rows}. Choose .csv or .parquet."
        )
        raise ParameterError("out", message)


def _ending_of_reduced(data: Path | None) -> str:
    """Return the ending of the reduced data, which is that of the data or .csv."""
    ending = "" if data is None else data.suffix.lower()
    if ending in ENDINGS:
        return ending
    return ".parquet" if ending == ".pq" else ".csv"


def _check_can_be_h5ad(reader: Reader, target: Path) -> None:
    """Raise if a table is to be written as .h5ad, because text columns would be lost."""
    if reader.path is None or isinstance(reader, TableReader):
        others = ", ".join(ending for ending in ENDINGS if ending != ".h5ad")
        message = f": {target}: a table cannot be written as .h5ad. Choose one of {others}."
        raise ParameterError("out", message)
    # a missing package is reported now, not after the fit
    import_optional("anndata", "data", what="An .h5ad file")


def check_outputs(source: BlockSource, out: Path, subset: bool) -> tuple[Path, Path]:
    """Check and return the paths of the reduced data and of the feature table."""
    target, table_path = output_paths(source, out)
    if subset and target.suffix.lower() != ".h5ad":
        message = f"applies only to .h5ad files, not to {target}. Leave it out."
        raise ParameterError("subset", message)
    return target, table_path
