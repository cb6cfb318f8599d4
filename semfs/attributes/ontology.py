"""Class attributes from an ontology: the ancestors of each class."""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semfs.files import FileError, need, open_existing, reading
from semfs.validation import check_distinct

__all__ = ["attributes_from_ontology"]


def attributes_from_ontology(
    terms: Sequence[str] | Mapping[Any, str],
    ontology: Any = "cl",
    *,
    own: bool = False,
    part_of: bool = False,
) -> Any:
    """Return which ancestors each class has in an ontology, as a table of 0 and 1.

    Parameters
    ----------
    terms : sequence of str, or mapping of label to str
        Classes by name, exact synonym (in upper or lower case) or id such as
        ``"CL:0000236"``; or for each of your own labels one of these.
    ontology : path-like or "cl", default="cl"
        A file in OBO, OWL (RDF/XML) or OBO-JSON format, which needs ``semfs[ontology]``.
        ``"cl"`` is the Cell Ontology without a file, which needs ``semfs[cl]`` (98 MB).
    own : bool, default=False
        Whether to keep the columns of terms that are an ancestor of no other given term.
        Such a column is 1 for that term alone and says nothing about a new class.
    part_of : bool, default=False
        Whether ancestors are also the wholes that a class is part of; files only.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Indexed by term or label in the order given; a class counts among its own ancestors.
        Columns are names of ancestors ordered by their ids, without those that all
        classes or none have. A name that occurs twice is followed by its id.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "farm.obo")
    >>> with open(path, "w") as file:
    ...     _ = file.write(
    ...         "format-version: 1.2\\n\\n[Term]\\nid: F:1\\nname: bird\\n"
    ...         "\\n[Term]\\nid: F:2\\nname: hen\\nis_a: F:1\\n"
    ...         "\\n[Term]\\nid: F:3\\nname: cow\\n"
    ...     )
    >>> attributes_from_ontology(["Hen", "F:3"], path)
         bird
    Hen   1.0
    F:3   0.0
    """
    labels, wanted = _labels_and_terms(terms)
    pandas = need("pandas", "data", what="A table")
    known = _cell_ontology(part_of) if ontology == "cl" else _read_file(ontology, part_of)
    ids = _find_all(wanted, known)
    again = [repr(term) for term, id_ in zip(wanted, ids) if ids.count(id_) > 1]
    if again and not isinstance(terms, Mapping):
        raise ValueError(
            f"{', '.join(again[:4])} are the same class in {known.source}. Name it once, or "
            "map labels of your own to it."
        )
    above = {id_: _ancestors(id_, known.parents) for id_ in ids}
    columns = set().union(*above.values())
    if not own:
        inner = set().union(*(found - {id_} for id_, found in above.items()))
        columns -= set(ids) - inner
    table = pandas.DataFrame(
        {c: [float(c in above[id_]) for id_ in ids] for c in sorted(columns)}
    )
    table = table.loc[:, table.nunique() > 1].set_index([labels])
    if table.empty:
        raise ValueError(
            f"no ancestor in {known.source} tells the {len(labels)} classes apart. Give more "
            "classes, or keep their own terms: own=True."
        )
    names = table.columns.map(lambda id_: known.names.get(id_, id_))
    twice = names.duplicated(keep=False)
    return table.set_axis(names.where(~twice, names + " (" + table.columns + ")"), axis=1)


def _labels_and_terms(terms: Any) -> tuple[list, list[str]]:
    if isinstance(terms, str) or not isinstance(terms, Iterable):
        raise TypeError(f"terms must be a list of classes, such as ['B cell']; got {terms!r}.")
    wanted = [str(term) for term in (terms.values() if isinstance(terms, Mapping) else terms)]
    labels = list(terms) if isinstance(terms, Mapping) else wanted
    if not labels:
        raise ValueError("terms is empty. Give the names or ids of at least two classes.")
    check_distinct(labels, "class {} is given more than once.")
    return labels, wanted


def _ancestors(id_: str, parents: Callable[[str], Iterable[str]]) -> set[str]:
    """The class itself and all above it; each is visited once, so cycles do no harm."""
    found, waiting = {id_}, [id_]
    while waiting:
        new = set(parents(waiting.pop())) - found
        found |= new
        waiting += new
    return found


# ---- ontologies -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Ontology:
    """Classes by id: names, other names and ids, what replaces obsolete ones, parents."""

    source: str
    names: dict[str, str]
    synonyms: dict[str, list[str]]
    obsolete: dict[str, list[str]]
    parents: Callable[[str], Iterable[str]]


def _cell_ontology(part_of: bool) -> _Ontology:
    """The Cell Ontology that cellxgene-ontology-guide brings along."""
    if part_of:
        raise ValueError('ontology="cl" knows no part_of. Give a file: ontology="cl.obo".')
    what = "The Cell Ontology without a file"
    guide = need("cellxgene_ontology_guide.ontology_parser", "cl", what=what)
    terms = guide.OntologyParser().cxg_schema.ontology("CL")
    return _Ontology(
        source="the Cell Ontology",
        names={id_: term["label"] for id_, term in terms.items()},
        synonyms={id_: term.get("synonyms", []) for id_, term in terms.items()},
        obsolete={
            id_: [term["replaced_by"]] if "replaced_by" in term else term.get("consider", [])
            for id_, term in terms.items()
            if term["deprecated"]
        },
        parents=lambda id_: terms[id_]["ancestors"],
    )


def _read_file(path: Any, part_of: bool) -> _Ontology:
    pronto = need("pronto", "ontology", what="A file of an ontology")
    path = open_existing(path)
    with reading(path, "ontology"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what pronto does not understand is not needed here
        content = _parse(path, pronto)
        terms = {term.id: term for term in content.terms()}
        if not terms:
            raise FileError(f"{path} holds no classes; an ontology was expected.")
        relations = content.relationships() if part_of else []
        wholes = [r for r in relations if r.id == "part_of" or r.name == "part of"]
        if part_of and not wholes:
            raise FileError(f"{path} declares no relation part_of. Leave part_of=False.")

        def parents(id_: str) -> set[str]:
            if id_ not in terms:  # the whole of a part may live in another ontology
                return set()
            found = set(terms[id_].superclasses(1, with_self=False).to_set().ids)
            related = terms[id_].relationships if wholes else {}
            return found.union(*(related[r].ids for r in wholes if r in related))

        return _Ontology(
            source=str(path),
            names={id_: term.name or id_ for id_, term in terms.items()},
            synonyms={id_: _other_names(term) for id_, term in terms.items()},
            obsolete={
                id_: sorted(term.replaced_by.ids or term.consider.ids)
                for id_, term in terms.items()
                if term.obsolete
            },
            parents=parents,
        )


def _parse(path: Path, pronto: Any) -> Any:
    """The ontology in a file; what it imports from elsewhere is not fetched."""
    if path.suffix.lower() == ".json" and not json.loads(path.read_bytes()).get("graphs"):
        raise FileError(f"{path} is not OBO-JSON: it has no graphs.")
    try:
        return pronto.Ontology(str(path), import_depth=0, encoding="utf-8")
    except KeyError as error:
        raise FileError(
            f"{path}: {error} is the parent of a class, but is not in the file. Take the "
            "complete file of the ontology, not one that imports others."
        ) from error


def _other_names(term: Any) -> list[str]:
    exact = [s.description for s in term.synonyms if s.scope == "EXACT"]
    return exact + list(term.alternate_ids)


# ---- names to ids ---------------------------------------------------------------------


def _find_all(wanted: list[str], known: _Ontology) -> list[str]:
    """The id of each class, or one error about all that were not found."""
    spellings, ids, problems = _spellings(known), [], []
    for term in wanted:
        try:
            ids.append(_find(term, spellings, known))
        except LookupError as error:
            problems.append(str(error.args[0]))
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise ValueError(" ".join(problems[:5]) + more)
    return ids


def _find(term: str, spellings: list[dict[str, list[str]]], known: _Ontology) -> str:
    found = next((s[_key(term)] for s in spellings if _key(term) in s), [])
    if not found:
        names = {key: ids[0] for s in reversed(spellings[:3]) for key, ids in s.items()}
        near = difflib.get_close_matches(_key(term), names, n=1, cutoff=0.75)
        hint = f"did you mean {_shown(names[near[0]], known)}?" if near else "give its id."
        raise LookupError(f"{term!r} is not in {known.source}; {hint}")
    if len(found) > 1:
        choice = " or ".join(_shown(id_, known) for id_ in found)
        raise LookupError(f"{term!r} may be {choice} in {known.source}. Give the id.")
    if found[0] in known.obsolete:
        instead = " or ".join(_shown(id_, known) for id_ in known.obsolete[found[0]])
        use = instead or "another class"
        raise LookupError(f"{term!r} is obsolete in {known.source}; use {use}.")
    return found[0]


def _spellings(known: _Ontology) -> list[dict[str, list[str]]]:
    """Ids by what they may be called: ids, names, other names, names of obsolete classes."""
    tiers: list[dict[str, dict[str, None]]] = [{}, {}, {}, {}]
    for id_, name in known.names.items():
        gone = id_ in known.obsolete
        calls = [(0, id_), (3 if gone else 1, name)]
        calls += [(3 if gone else 2, other) for other in known.synonyms[id_]]
        for tier, spelling in calls:
            tiers[tier].setdefault(_key(spelling), {})[id_] = None  # each once, in order
    return [{key: list(ids) for key, ids in tier.items()} for tier in tiers]


def _key(name: str) -> str:
    """A name without regard to case and spaces; CL_0000236 is CL:0000236."""
    text = " ".join(name.split()).casefold().removeprefix("obsolete ")
    return re.sub(r"^([a-z]+)_(\d+)$", r"\1:\2", text)


def _shown(id_: str, known: _Ontology) -> str:
    return f"{known.names[id_]!r} ({id_})" if id_ in known.names else id_
