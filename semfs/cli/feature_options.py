"""Options that state which features a panel may have and must satisfy, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from semfs.cli.console import complain
from semfs.cli.options import Names, feature_option, rule_option, sample_option

if TYPE_CHECKING:
    from semfs.cli.selection import Selection
    from semfs.rows import BlockSource

LIST = (
    "names of features or groups (comma-separated), a file with one name per line or a table "
    "with a column of names, or 're:PATTERN'; repeatable."
)
INCLUDE = f"Features that must be selected: {LIST}"
EXCLUDE = f"Features that must not be selected: {LIST}"
CANDIDATES = f"Select only among these features: {LIST}"
PER_CLASS_HELP = "Select at least this many markers of each class."
GROUPS = (
    "Groups of features that are selected together, so that -k counts "
    "groups. Give a column of var (H5AD, Zarr) or a table of features "
    "and groups."
)
COSTS = (
    "Cost of each feature: a column of var (H5AD, Zarr), or a table of "
    "features and costs; with --groups, the table may also hold groups "
    "and costs. Without --budget, costs do not affect the selection; "
    "they are only shown on the panel page."
)
BUDGET = (
    "Limit on the total cost. Without -k, it also determines how many features are selected."
)
MIN_LEVEL = "Leave out features whose highest class mean is below this value."
MAX_LEVEL = "Leave out features whose highest class mean is above this value."
CAPACITY = (
    "Upper limit, for each class, on the sum of the class means of the "
    "selected features. Give a number, or a table of classes and numbers."
)
RARE = (
    "Leave out classes with fewer samples than this number, and their "
    "descriptions, so that 'predict' does not assign them."
)
BATCH_COLUMN = (
    "Column with the batch of each sample, such as its donor or plate. "
    "The constant differences between batches are removed before features are "
    "selected."
)

Include = Annotated[Names, feature_option(help=INCLUDE)]
Exclude = Annotated[Names, feature_option(help=EXCLUDE)]
Candidates = Annotated[Names, feature_option(help=CANDIDATES)]
MinPerClass = Annotated[int | None, rule_option(help=PER_CLASS_HELP)]
Groups = Annotated[str | None, rule_option(help=GROUPS)]
Costs = Annotated[str | None, rule_option(help=COSTS)]
Budget = Annotated[float | None, rule_option(help=BUDGET)]
MinLevel = Annotated[float | None, rule_option(help=MIN_LEVEL)]
MaxLevel = Annotated[float | None, rule_option(help=MAX_LEVEL)]
Capacity = Annotated[str | None, rule_option(help=CAPACITY)]
MinCells = Annotated[int | None, sample_option(help=RARE)]
Batch = Annotated[str | None, sample_option(help=BATCH_COLUMN)]


#: Rules that a comparison does not apply, and why.
NOT_COMPARED = {
    "costs": "methods are compared at equal numbers of features, not at equal costs",
    "budget": "methods are compared at equal numbers of features, not at equal costs",
    "capacity": "only SemFS supports it",
    "min_level": "it refers to values as 'semfs select' reads them, not as they are compared",
    "max_level": "it refers to values as 'semfs select' reads them, not as they are compared",
}


def refuse_rules(options: object) -> None:
    """Refuse rules that a comparison does not apply, and say how to compare such a panel."""
    for name, reason in NOT_COMPARED.items():
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{option} is not applied in a comparison: {reason}. Make "
                f"the panel with 'semfs panel {option} …' and give its "
                "list with --panel."
            )


def feature_lists(
    options: Selection, source: BlockSource, groups: Any = None
) -> dict[str, list[int]]:
    """Return the indices that --include, --exclude and --candidates mean.

    They may name ``groups``, the value of --groups.
    """
    from semfs.feature_names import resolve_features
    from semfs.selectors.rules.feature_values import group_members

    names = source.feature_names
    d = source.n_features
    columns = source.reader.gene_columns
    members = group_members(groups, d, names)
    found = {}
    for parameter in ("include", "exclude", "candidates"):
        values = getattr(options, parameter)
        indices = resolve_features(parameter, values, names, d, members, columns)
        found[parameter] = indices.tolist()
    both = set(found["include"]) & set(found["exclude"])
    if both:
        feature = min(both)
        name = feature if names is None else names[feature]
        raise ValueError(
            f"{name!r} is in both --include and --exclude. Remove it from one of them."
        )
    return found


def feature_values(
    parameter: str, text: str | None, source: BlockSource, groups: Any = None
) -> dict[str, Any] | list[Any] | None:
    """Return what --groups or --costs names: a column of var, or a table of two columns.

    A table of costs may name ``groups``, the value of --groups, instead of features. Columns
    that --drop leaves out of the data may be in a table, and are ignored.
    """
    from semfs.io.anndata import frame_column
    from semfs.validation import ParameterError, is_file

    if text is None:
        return None
    if is_file(text):
        known = set(source.feature_names or ())
        if groups is not None and parameter == "costs":
            labels = groups.values() if isinstance(groups, dict) else groups
            known |= {str(label) for label in labels}
        values = _listed_values(parameter, Path(text), known)
        dropped = set(source.reader.dropped) - known
        return {name: value for name, value in values.items() if name not in dropped}
    reader = source.reader
    if reader.path is None or not reader.of_cells:
        message = (
            f"is {text!r}, which is not a file. Columns of var can be "
            "used only if the data are in an .h5ad or .zarr file."
        )
        raise ParameterError(parameter, message)
    return list(frame_column(reader.path, reader.frame, text))


def group_table(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the group of each feature, from a table of features and groups."""
    return _listed_values("groups", path, {str(name) for name in names})


def capacity_values(
    text: str | None,
    source: BlockSource,
) -> float | dict[Any, float] | None:
    """Return the number that --capacity is, or those of a table of classes."""
    from semfs.validation import is_file

    if text is None:
        return None
    if not is_file(text):
        return _as_number("capacity", "every class", text)
    assert source.labels is not None
    # the table has text, while labels of the data may be numbers
    label_of = {str(label): label for label in source.labels.classes}
    table = _listed_values("capacity", Path(text), set(label_of))
    return {label_of.get(name, name): value for name, value in table.items()}


def _listed_values(parameter: str, path: Path, known: set[str]) -> dict[str, Any]:
    """Return the values of names in a file, and print which column they are from."""
    from semfs.io.value_lists import read_value_list

    found = read_value_list(parameter, path, known)
    complain(f"--{parameter}: {found.summary(path)}")
    return dict(found.values)


def _as_number(parameter: str, name: str, text: str) -> float:
    from semfs.validation import ParameterError

    try:
        return float(text)
    except ValueError:
        raise ParameterError(
            parameter, f"of {name!r} must be a number, got {text!r}."
        ) from None
