"""Features by name, index, pattern or file, as users state them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import Indices
from semfs.feature_files import names_in_lines, split_names
from semfs.validation import (
    ParameterError,
    ParameterTypeError,
    ParameterWarning,
    counted,
    did_you_mean,
    is_file,
    listed,
    warn_user,
)

if TYPE_CHECKING:
    from semfs._typing import FeaturesLike


#: A feature that begins so is a regular expression, searched for in the feature names.
PATTERN_PREFIX = "re:"
#: Parameters that may name features that the data lack, in files or price lists, as a list of
#: all probes does: what is not there cannot be selected. What is included must be there.
OPEN_LISTS = ("candidates", "costs", "exclude")
#: Unknown names that a warning shows, and similar features.
MOST_UNKNOWN = 20
MOST_SIMILAR = 5
#: Ensembl ids of genes, such as ENSG00000168484 (human) and ENSMUSG00000056370.2 (mouse).
ENSEMBL_ID = re.compile(r"ENS[A-Z]*G\d{6,}")
#: Data go by Ensembl ids if at least this share of their features are such ids, and by other
#: names if at most 1 minus this share are: some genes have no symbol, and spike-ins no id.
MOSTLY_IDS = 0.7

#: The same with or without a version, which tells releases of one gene apart.
VERSIONED_ID = re.compile(r"(ENS[A-Z]*G\d{6,})(\.\d+)?")

#: Returns the columns of var of AnnData, where genes may have other names.
GeneColumns = Callable[[], Mapping[str, Sequence[object]]]


def gene_id(name: str) -> str | None:
    """Return an Ensembl id without its version; None for other names.

    >>> gene_id("ENSG00000119888.10"), gene_id("EPCAM")
    ('ENSG00000119888', None)
    """
    found = VERSIONED_ID.fullmatch(name)
    return None if found is None else found[1]


class NamePlaces:
    """Finds the places of names. Ensembl ids of different versions are the same gene.

    Examples
    --------
    >>> places = NamePlaces(["EPCAM", "ENSG00000119888.10"])
    >>> places.find("ENSG00000119888"), places.find("ENSG00000119888.9"), places.find("CD3D")
    (1, 1, None)
    """

    def __init__(self, names: Sequence[object]) -> None:
        """Look names up. Of several equal names, the first is meant."""
        self.names = [str(name) for name in names]
        self.place: dict[str, int] = {}
        self.places_of_id: dict[str, list[int]] = {}
        for index, name in enumerate(self.names):
            self.place.setdefault(name, index)
            # quicker than the pattern: most names are no ids
            found = gene_id(name) if name.startswith("ENS") else None
            if found is not None:
                self.places_of_id.setdefault(found, []).append(index)

    def find(self, name: str) -> int | None:
        """Return the place of a name; None if there is none, or if several are possible."""
        if name in self.place:
            return self.place[name]
        same = self.same_gene(name)
        return same[0] if len(same) == 1 else None

    def same_gene(self, name: str) -> list[int]:
        """Return the places of an Ensembl id in any version."""
        return self.places_of_id.get(gene_id(name) or "", [])


class WantedNames(set[str]):
    """Names of features that are wanted, among which Ensembl ids have any version."""

    def __init__(self, names: Iterable[str]) -> None:
        """Keep the names."""
        super().__init__(names)
        self.places = NamePlaces(list(self))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or bool(self.places.same_gene(str(name)))


def feature_name(feature: int, names: Sequence[str] | None) -> str:
    """Return the name of a feature as `get_feature_names_out` does."""
    return f"x{feature}" if names is None else str(names[feature])


def resolve_features(
    parameter: str,
    values: FeaturesLike | None,
    names: Sequence[object] | None = None,
    n_features: int | None = None,
    groups: Mapping[str, Sequence[int]] = MappingProxyType({}),
    gene_columns: GeneColumns | None = None,
) -> Indices:
    """Return the indices of features that a user means, each once, in the order given.

    Parameters
    ----------
    parameter : str
        Name of the parameter, for messages.
    values : sequence of int or str, or None
        An int is an index. Text is the first of these that applies: the name of a feature, or
        of a group; a pattern ``"re:^MT-"``, which means all features in whose name it is found;
        the path of a file with one name per line, or of a table with a column of names; names
        joined by commas.
    names : sequence of d names, optional
        Without names, features are called x0, x1, … as `get_feature_names_out` does.
    n_features : int, optional
        Number of features d, needed without names.
    groups : mapping from str to sequence of int, optional
        The features of each group. What is the name of both means the feature.
    gene_columns : function, optional
        Returns the columns of ``var`` of AnnData. If a name or pattern is not among the
        features but in one of these columns, the error names the column.

    Examples
    --------
    >>> resolve_features("include", ["re:^MT-", "ACTB"], ["MT-ND1", "ACTB", "MT-ND2"])
    array([0, 2, 1])
    """
    if values is None:
        return np.zeros(0, dtype=np.intp)
    if n_features is None:
        n_features = 0 if names is None else len(names)
    plain = _plain_indices(values, n_features)
    if plain is not None:
        return plain
    found: dict[int, None] = {}  # keeps the order, each once
    for indices in resolve_each(parameter, values, names, n_features, groups, gene_columns):
        found.update(dict.fromkeys(indices))
    return np.array(list(found), dtype=np.intp)


def _plain_indices(values: FeaturesLike, n_features: int) -> Indices | None:
    """Return indices from 0 to d − 1 in their order, each once; None for other features."""
    # what a list of thousands of candidates often is
    if isinstance(values, np.ndarray):
        is_plain = values.ndim == 1 and values.dtype.kind in "iu"
    else:
        is_plain = isinstance(values, (range, list)) and all(type(j) is int for j in values)
    if not is_plain or not len(values):
        return None
    indices = np.asarray(values)
    if indices.min() < 0 or indices.max() >= n_features:
        return None
    _, first = np.unique(indices, return_index=True)
    return indices[np.sort(first)].astype(np.intp)


def resolve_each(
    parameter: str,
    values: FeaturesLike,
    names: Sequence[object] | None = None,
    n_features: int | None = None,
    groups: Mapping[str, Sequence[int]] = MappingProxyType({}),
    gene_columns: GeneColumns | None = None,
) -> list[list[int]]:
    """Return the indices of the features that each value means; see `resolve_features`.

    Examples
    --------
    >>> resolve_each("costs", ["re:^MT-", "ACTB"], ["MT-ND1", "ACTB", "MT-ND2"])
    [[0, 2], [1]]
    """
    if isinstance(values, str):
        message = f"must be a list of features, got {values!r}. Write [{values!r}]."
        raise ParameterTypeError(parameter, message)
    known = _Known(names, groups, gene_columns)
    if n_features is None:
        n_features = 0 if names is None else len(names)
    found = []
    for value in values:
        if isinstance(value, str):
            indices = _indices_of_text(parameter, value, n_features, known)
        else:
            indices = [_checked_index(parameter, value, n_features)]
        found.append(indices)
    return found


class _Known:
    """The names of features and of groups, and the features that each means."""

    def __init__(
        self,
        names: Sequence[object] | None,
        groups: Mapping[str, Sequence[int]],
        gene_columns: GeneColumns | None = None,
    ) -> None:
        """Look names up; what is the name of a feature and of a group means the feature."""
        self.gene_columns = gene_columns
        self.features: dict[str, int] = {}
        # Of several features of one name the first is meant.
        for index, name in enumerate([] if names is None else names):
            self.features.setdefault(str(name), index)
        self.meant = _Meant({label: list(members) for label, members in groups.items()})
        self.meant.update({name: [index] for name, index in self.features.items()})
        self.meant.places = NamePlaces(list(self.features))


class _Meant(dict[str, list[int]]):
    """The features that each name means. Ensembl ids are found whatever their version."""

    places: NamePlaces

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self.places.find(str(name)) is not None

    def __missing__(self, name: str) -> list[int]:
        place = self.places.find(name)
        if place is None:
            raise KeyError(name)
        # the first feature of this name
        return self[self.places.names[place]]


def _indices_of_text(parameter: str, text: str, n_features: int, known: _Known) -> list[int]:
    """Return the features that one text means: a name, a pattern, a file or a list."""
    if text in known.meant:
        return known.meant[text]
    if text.startswith(PATTERN_PREFIX):
        return _matching(parameter, text, known)
    if is_file(text):
        wanted = _names_in_file(parameter, Path(text), known)
        if parameter in OPEN_LISTS:
            wanted = _without_unknown(parameter, text, wanted, known)
    else:
        wanted = split_names(text, known.meant)
    unknown = [name for name in wanted if known.meant and name not in known.meant]
    if len(unknown) > 1:
        shown = listed([repr(name) for name in unknown], MOST_UNKNOWN)
        first = _unknown_name(unknown[0], known)
        message = f": no features named {shown}. The first name is {unknown[0]!r}{first}"
        raise ParameterError(parameter, message)
    found = []
    for name in wanted:
        found += _indices_of_name(parameter, name, n_features, known)
    return found


def without_unknown(
    parameter: str, where: str, values: Sequence[Any], names: Sequence[object] | None
) -> list[Any]:
    """Return the values that may mean features of these names; a warning tells the others.

    If no value is known, all are returned, so that they are refused with advice.

    Parameters
    ----------
    parameter : str
        Name of the parameter, for the warning.
    where : str
        What holds the values, for the warning.
    values : sequence
        Names, patterns, files, lists with commas and indices, as in `resolve_each`.
    names : sequence of d names, optional

    Examples
    --------
    >>> without_unknown("costs", "the list", ["a", "re:b"], ["a", "b1"])
    ['a', 're:b']
    """
    if names is None:
        return list(values)
    return _without_unknown(parameter, where, values, _Known(names, {}))


def _without_unknown(
    parameter: str, where: str, values: Sequence[Any], known: _Known
) -> list[Any]:
    """Return the values of a list that are features or groups; a warning tells the others."""
    unknown = [value for value in values if _is_unknown(value, known)]
    # If none is known, the first one is refused with advice, as a single name is.
    if not unknown or len(unknown) == len(values):
        return list(values)
    message = (
        f": {len(unknown)} of {len(values)} names in {where} are not among the features "
        f"and were left out: {listed(unknown, MOST_UNKNOWN)}."
        f"{_similar_names(unknown, known)}"
    )
    warn_user(ParameterWarning(parameter, message))
    left_out = set(unknown)
    return [value for value in values if value not in left_out]


def _is_unknown(value: object, known: _Known) -> bool:
    """Return whether a value is text that means neither features nor a pattern nor a file."""
    if not isinstance(value, str) or value in known.meant:
        return False
    if value.startswith(PATTERN_PREFIX) or is_file(value):
        return False
    return not any(name.strip() in known.meant for name in value.split(","))


def _similar_names(unknown: list[str], known: _Known) -> str:
    """Return a sentence about features that unknown names may mean.

    These are spelled with other capitals (Sftpc in mouse, SFTPC in man), or have an id behind
    the name.
    """
    wanted = set(unknown)
    in_small_letters = {name.lower() for name in unknown}
    similar = [
        name
        for name in known.features
        if name.lower() in in_small_letters or name.partition("_")[0] in wanted
    ]
    if not similar:
        return ""
    return f" Similar features of the data: {listed(similar, MOST_SIMILAR)}."


def column_with_names(
    columns: Mapping[str, Sequence[object]], wanted: Sequence[str]
) -> tuple[str, int]:
    """Return the column of var with most of the names of genes, and how many of them it has.

    Ids and symbols are often both in var, and only one of them is its index.

    >>> column_with_names({"id": ["ENSG1", "ENSG2"], "symbol": ["A", "B"]}, ["B", "C"])
    ('symbol', 1)
    """
    n_found = {
        name: len({str(value) for value in values}.intersection(wanted))
        for name, values in columns.items()
    }
    best = max(n_found, key=lambda name: n_found[name], default="")
    return best, n_found.get(best, 0)


def _other_kind_of_name(name: str, known: _Known) -> str:
    """Return the end of a message if a name is an Ensembl id among symbols, or the reverse."""
    n_ids = sum(ENSEMBL_ID.match(feature) is not None for feature in known.features)
    share = n_ids / max(1, len(known.features))
    shown = listed(list(known.features), 3)
    if ENSEMBL_ID.match(name) and share <= 1 - MOSTLY_IDS:
        return f". It is an Ensembl id, but the data use other names ({shown})."
    if not ENSEMBL_ID.match(name) and share >= MOSTLY_IDS:
        return f". The data use Ensembl ids ({shown})."
    return ""


def _column_hint(wanted: Callable[[str], bool], known: _Known) -> str:
    """Return a sentence that names the first column of var with a wanted text; "" if none."""
    if known.gene_columns is None:
        return ""
    for column, values in known.gene_columns().items():
        if any(isinstance(value, str) and wanted(value) for value in values):
            return f' The column {column!r} of var contains it. Use gene_symbols="{column}".'
    return ""


def _no_column_hint(known: _Known) -> str:
    """Return what to do about a name of another kind that no known column of var has."""
    if known.gene_columns is not None:
        return " No column of var contains it. Use the names that appear in the data."
    return (
        " Use the names that appear in the data. For AnnData, you can "
        "also set gene_symbols to the column of var that holds your "
        "names."
    )


def _unknown_name(name: str, known: _Known) -> str:
    """Return the end of a message about a name that no feature and no group has."""
    if re.search(r"[*?\[]", name):
        return f". Write a pattern as a regular expression after {PATTERN_PREFIX!r}: 're:^MT-'."
    same = known.meant.places.same_gene(name)
    if same:
        shown = listed([repr(known.meant.places.names[place]) for place in same])
        return f"; the data have {shown}. Give one of them."
    kind = _other_kind_of_name(name, known)
    column = _column_hint(name.__eq__, known)
    if kind or column:
        # the most similar name would mislead: it is another gene
        return f"{kind or '.'}{column or _no_column_hint(known)}"
    # a similar id is that of another gene
    if gene_id(name) is not None:
        return ". Check the id."
    return did_you_mean(name, known.meant) or ". Check the spelling."


def _matching(parameter: str, text: str, known: _Known) -> list[int]:
    """Return the features in whose names a pattern ``"re:…"`` is found."""
    try:
        pattern = re.compile(text.removeprefix(PATTERN_PREFIX))
    except re.error as error:
        message = f": {text!r} is not a valid regular expression ({error})."
        raise ParameterError(parameter, message) from None
    found = [index for name, index in known.features.items() if pattern.search(name)]
    if not found:
        n_names = len(known.features)
        message = f": the pattern {text!r} matches none of the {n_names} feature names."
        message += _column_hint(lambda value: pattern.search(value) is not None, known)
        raise ParameterError(parameter, message)
    return found


def _names_in_file(parameter: str, path: Path, known: _Known) -> list[str]:
    """Return the names in a file; of a table, those of the column with most known names."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        message = f": {path} is not a text file in UTF-8. Give one feature name per line."
        raise ParameterError(parameter, message) from None
    except OSError as error:
        raise ParameterError(parameter, f": {path} cannot be read ({error}).") from None
    lines = [line for line in lines if line.strip()]
    if not lines:
        message = f": {path} is empty. Give one feature name per line."
        raise ParameterError(parameter, message)
    found = names_in_lines(lines, known.meant)
    if found.column:
        # Another column may be meant, which only the user knows.
        n_names = counted(len(found.names), "name")
        message = f": {path} is a table. The {n_names} in its {found.column} are used."
        warn_user(ParameterWarning(parameter, message))
    return found.names


def _indices_of_name(parameter: str, name: str, n_features: int, known: _Known) -> list[int]:
    """Return the feature of a whole name, or the features of a group of this name."""
    if name in known.meant:
        return known.meant[name]
    if not known.features and re.fullmatch(r"x\d+", name):
        # as get_feature_names_out calls it
        return [_checked_index(parameter, int(name[1:]), n_features)]
    if known.meant:
        message = f": no feature named {name!r}{_unknown_name(name, known)}"
        raise ParameterError(parameter, message)
    raise ParameterError(
        parameter,
        f": no feature named {name!r}, because X has no feature names. Pass a data frame (a "
        'pipeline keeps names with set_output(transform="pandas")), or give indices.',
    )


def _checked_index(parameter: str, value: object, n_features: int) -> int:
    """Return an index of a feature, counted from the end if it is negative."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ParameterTypeError(parameter, f"must hold indices or names, got {value!r}.")
    if not -n_features <= int(value) < n_features:
        message = f": index {value} is out of range for {n_features} features."
        raise ParameterError(parameter, message)
    return int(value) % n_features


def check_unique_names(columns: Sequence[object]) -> None:
    """Raise if two columns of a frame have one name: features are found by name."""
    names = [str(name) for name in columns]
    if len(set(names)) == len(names):
        return
    repeated = [name for name, count in Counter(names).items() if count > 1]
    shown = listed([repr(name) for name in repeated])
    raise ValueError(f"X has several columns with the same name: {shown}. Rename them.")
