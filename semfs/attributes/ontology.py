"""Class attributes from an ontology: the ancestors of each class."""

import difflib
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semfs.io.safety import FileError, file_errors, open_existing
from semfs.system import import_optional
from semfs.validation import check_distinct


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
        A file in OBO or OWL (RDF/XML) format, which needs ``semfs[ontology]``.
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
    if isinstance(terms, str) or not isinstance(terms, Iterable):
        raise TypeError(f"terms must be a list of classes, such as ['B cell']; got {terms!r}.")
    mapped = terms if isinstance(terms, Mapping) else None
    wanted = [str(term) for term in (terms if mapped is None else mapped.values())]
    labels = wanted if mapped is None else list(mapped)
    if not labels:
        raise ValueError("terms is empty. Give the names or ids of at least two classes.")
    check_distinct(labels, "class {} is given more than once.")
    pandas = import_optional("pandas", "data", what="A table")
    source = "the Cell Ontology" if ontology == "cl" else str(ontology)
    known = _cell_ontology(part_of) if ontology == "cl" else _read_file(ontology, part_of)
    ids = _find_all(wanted, known, source)
    again = [repr(term) for term, id_ in zip(wanted, ids) if ids.count(id_) > 1]
    if again and mapped is None:
        same = f"{', '.join(again[:4])} are the same class"
        raise ValueError(f"{source}: {same}. Name it once, or map labels of your own to it.")
    above = {id_: _ancestors(id_, known) for id_ in ids}
    columns = set().union(*above.values())
    if not own:
        columns -= set(ids).difference(*(above[id_] - {id_} for id_ in ids))
    table = pandas.DataFrame({c: [float(c in above[i]) for i in ids] for c in sorted(columns)})
    table = table.loc[:, table.nunique() > 1].set_index([labels])
    if table.empty:
        message = f"{source}: no ancestor tells the {len(labels)} classes apart. Give more, or "
        raise ValueError(message + "keep their own terms: own=True.")
    names = table.columns.map(lambda id_: known[id_].name if id_ in known else id_)
    twice = names.duplicated(keep=False)
    return table.set_axis(names.where(~twice, names + " (" + table.columns + ")"), axis=1)


@dataclass(frozen=True)
class _Term:
    name: str
    other_names: list[str]
    parents: Iterable[str]  # or all ancestors
    gone: bool  # obsolete
    instead: list[str]


def _cell_ontology(part_of: bool) -> dict[str, _Term]:
    """The Cell Ontology that cellxgene-ontology-guide brings along."""
    if part_of:
        raise ValueError('ontology="cl" knows no part_of. Give a file: ontology="cl.obo".')
    what = "The Cell Ontology without a file"
    guide = import_optional("cellxgene_ontology_guide.ontology_parser", "cl", what=what)
    found = {}
    for id_, term in guide.OntologyParser().cxg_schema.ontology("CL").items():
        new = [term["replaced_by"]] if "replaced_by" in term else term.get("consider", [])
        calls, above = (term["label"], term.get("synonyms", [])), term["ancestors"]
        found[id_] = _Term(*calls, above, term["deprecated"], new)
    return found


def _read_file(path: Any, part_of: bool) -> dict[str, _Term]:
    pronto = import_optional("pronto", "ontology", what="A file of an ontology")
    path = open_existing(path)
    if path.read_bytes()[:99].lstrip().startswith(b"{"):  # JSON may end the interpreter
        raise FileError(f"{path} is a JSON file; an ontology in OBO or OWL was expected.")
    with file_errors(path, "ontology"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what pronto does not understand is not needed here
        try:  # what it imports from elsewhere is not fetched
            content = pronto.Ontology(str(path), import_depth=0, encoding="utf-8")
        except KeyError as error:
            lost = f"{path}: {error} is the parent of a class, but is not in the file"
            advice = "Take the complete file, not one that imports others"
            raise FileError(f"{lost}. {advice}.") from error
        kinds = content.relationships() if part_of else []
        wholes = [kind for kind in kinds if "part of" in (kind.id.replace("_", " "), kind.name)]
        if part_of and not wholes:
            raise FileError(f"{path} declares no relation part_of. Leave part_of=False.")
        found = {term.id: _term(term, wholes) for term in content.terms()}
    if not found:
        raise FileError(f"{path} holds no classes; an ontology was expected.")
    return found


def _term(term: Any, wholes: list) -> _Term:
    exact = [s.description for s in term.synonyms if s.scope == "EXACT"]
    parents = set(term.superclasses(1, with_self=False).to_set().ids)
    related = term.relationships if wholes else {}
    parents.update(*(related[whole].ids for whole in wholes if whole in related))
    calls, instead = [*exact, *term.alternate_ids], term.replaced_by.ids or term.consider.ids
    return _Term(term.name or term.id, calls, parents, term.obsolete, sorted(instead))


def _ancestors(id_: str, known: dict[str, _Term]) -> set[str]:
    """The class itself and all above it; each is visited once, so cycles do no harm."""
    found, waiting = {id_}, [id_]
    while waiting:
        term = known.get(waiting.pop())  # the whole of a part may live in another ontology
        new = set(term.parents if term else ()) - found
        found |= new
        waiting += new
    return found


def _find_all(wanted: list[str], known: dict[str, _Term], source: str) -> list[str]:
    """The id of each class, or one error about all that were not found."""
    spellings = _spellings(known)
    found = [spellings.get(_key(term), []) for term in wanted]
    texts = [_problem(term, ids, known, spellings) for term, ids in zip(wanted, found)]
    if problems := [text for text in texts if text]:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise ValueError(f"{source}: {' '.join(problems[:5])}{more}")
    return [ids[0] for ids in found]


def _problem(term: str, ids: list[str], known: dict, spellings: dict) -> str:
    """Why a term does not stand for one class of today, and what to do; empty if it does."""

    def shown(ids: list[str]) -> str:
        return " or ".join(f"{known[i].name!r} ({i})" if i in known else i for i in ids)

    if not ids:
        in_use = {key: ids[:1] for key, ids in spellings.items() if not known[ids[0]].gone}
        near = difflib.get_close_matches(_key(term), in_use, n=1, cutoff=0.75)
        hint = f"did you mean {shown(in_use[near[0]])}?" if near else "give its id."
        return f"{term!r} is unknown; {hint}"
    if len(ids) > 1:
        return f"{term!r} may be {shown(ids)}; give the id."
    if known[ids[0]].gone:
        return f"{term!r} is obsolete; use {shown(known[ids[0]].instead) or 'another class'}."
    return ""


def _spellings(known: dict[str, _Term]) -> dict[str, list[str]]:
    """Ids by what they may be called: ids go before names, other names, obsolete classes."""
    tiers: list[dict[str, list[str]]] = [defaultdict(list) for _ in range(4)]
    for id_, term in known.items():
        old = 3 if term.gone else 0
        calls = [(0, id_), (old or 1, term.name), *((old or 2, n) for n in term.other_names)]
        for tier, spelling in calls:
            ids = tiers[tier][_key(spelling)]
            if id_ not in ids:
                ids.append(id_)
    return tiers[3] | tiers[2] | tiers[1] | tiers[0]


def _key(name: str) -> str:
    """A name without regard to case and spaces; CL_0000236 is CL:0000236."""
    text = " ".join(name.split()).casefold().removeprefix("obsolete ")
    return re.sub(r"^([a-z]+)_(\d+)$", r"\1:\2", text)
