"""The classes of an ontology, read from OBO, OWL and JSON files or from the Cell Ontology."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from semfs._typing import PathLike
from semfs.io.safety import FileError, file_errors, open_existing
from semfs.system import import_optional

#: The relation "part of" of the OBO Relation Ontology.
_PART_OF_ID = "BFO:0000050"
#: Properties of a class that OBO Graphs names by address; the end of the address tells.
_REPLACED_BY = "IAO:0100001"
_CONSIDER = "consider"
_ALTERNATE_ID = "hasAlternativeId"


@dataclass(frozen=True)
class Term:
    """One class of an ontology."""

    name: str
    other_names: list[str]  # exact synonyms and alternate ids
    parents: Iterable[str]  # ids of direct superclasses, or of all of them
    obsolete: bool
    replacements: list[str]  # ids to use instead of an obsolete class


#: The classes of an ontology by id.
Terms: TypeAlias = dict[str, Term]


def read_terms(ontology: PathLike, part_of: bool) -> Terms:
    """Return the classes of an ontology: "cl" for the Cell Ontology, or a file.

    With ``part_of``, the structures that a class is part of count among its parents.
    """
    if ontology == "cl":
        return _cell_ontology(part_of)
    path = open_existing(ontology)
    # The content decides, not the suffix; a byte order mark may come first.
    with path.open("rb") as file:
        start = file.read(100).removeprefix(b"\xef\xbb\xbf").lstrip()
    with file_errors(path, "ontology"):
        if start.startswith(b"{"):
            terms = _read_json(path, part_of)
        else:
            terms = _read_obo_or_owl(path, part_of)
    if not terms:
        raise FileError(f"{path} holds no classes; an ontology was expected.")
    return terms


def ancestors(id_: str, terms: Terms) -> set[str]:
    """Return the ids of a class and its ancestors. Each is visited once, even in a cycle."""
    found = {id_}
    waiting = [id_]
    while waiting:
        term = terms.get(waiting.pop())
        if term is None:  # the whole that a class is part of may be in another ontology
            continue
        new = set(term.parents) - found
        found |= new
        waiting += new
    return found


def _no_part_of(path: Path) -> FileError:
    return FileError(
        f"{path} has no part_of relations. Leave out part_of, or give another file."
    )


def _incomplete(path: Path, parent: str) -> FileError:
    return FileError(
        f"{path}: {parent!r} is the parent of a class, but is not in the "
        "file. Use the complete ontology; a file that imports other "
        "files is not enough."
    )


# --- the Cell Ontology in a package ----------------------------------------------------


def _cell_ontology(part_of: bool) -> Terms:
    """Return the Cell Ontology that the package cellxgene-ontology-guide contains."""
    if part_of:
        raise ValueError(
            "the packaged Cell Ontology ('cl') has no part_of relations. Give a file, such as "
            "cl.obo."
        )
    guide = import_optional(
        "cellxgene_ontology_guide.ontology_parser",
        "cl",
        what="The Cell Ontology without a file",
    )
    terms = {}
    for id_, entry in guide.OntologyParser().cxg_schema.ontology("CL").items():
        if "replaced_by" in entry:
            replacements = [entry["replaced_by"]]
        else:
            replacements = entry.get("consider", [])
        terms[id_] = Term(
            name=entry["label"],
            other_names=entry.get("synonyms", []),
            parents=entry["ancestors"],
            obsolete=entry["deprecated"],
            replacements=replacements,
        )
    return terms


# --- OBO and OWL -----------------------------------------------------------------------


def _read_obo_or_owl(path: Path, part_of: bool) -> Terms:
    """Return the classes of an OBO or OWL (RDF/XML) file."""
    pronto = import_optional("pronto", "ontology", what="A file of an ontology")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what pronto does not understand is not needed here
        try:
            # import_depth=0: other ontologies that it imports are not downloaded
            content = pronto.Ontology(
                str(path),
                import_depth=0,
                encoding="utf-8",
            )
        except KeyError as error:
            raise _incomplete(path, error.args[0]) from error
        wholes = []
        if part_of:
            wholes = [r for r in content.relationships() if _means_part_of(r.id, r.name)]
            if not wholes:
                raise _no_part_of(path)
        return {term.id: _pronto_term(term, wholes) for term in content.terms()}


def _means_part_of(id_: str, name: str | None) -> bool:
    return id_ == _PART_OF_ID or "part of" in (id_.replace("_", " "), name)


def _pronto_term(term: Any, wholes: list[Any]) -> Term:
    """Return a class from a ``pronto.Term``. Targets of these relations count as parents."""
    synonyms = [s.description for s in term.synonyms if s.scope == "EXACT"]
    parents = set(term.superclasses(1, with_self=False).to_set().ids)
    if wholes:
        related = term.relationships
        for whole in wholes:
            if whole in related:
                parents.update(related[whole].ids)
    return Term(
        name=term.name or term.id,
        other_names=[*synonyms, *term.alternate_ids],
        parents=parents,
        obsolete=term.obsolete,
        replacements=sorted(term.replaced_by.ids or term.consider.ids),
    )


# --- JSON (OBO Graphs) -----------------------------------------------------------------
# {"graphs": [{"nodes": [{"id", "lbl", "type", "meta"}], "edges": [{"sub", "pred", "obj"}]}]}
# https://github.com/geneontology/obographs. Ids are addresses: .../obo/CL_0000236.
# Read without pronto, which ends the interpreter on some broken files.


def _read_json(path: Path, part_of: bool) -> Terms:
    """Return the classes of an OBO Graphs file."""
    content = json.loads(path.read_text("utf-8-sig"))
    graphs = content.get("graphs")
    if not isinstance(graphs, list):
        raise FileError(
            f"{path} is a JSON file without graphs; an ontology in OBO Graphs format (or OBO "
            "or OWL) was expected."
        )
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[dict[str, str]] = []
    for graph in graphs:
        for node in graph.get("nodes", []):
            nodes[_short_id(node["id"])] = node
        edges += graph.get("edges", [])
    parents = _json_parents(path, nodes, edges, part_of)
    terms = {}
    for id_, node in nodes.items():
        # In some files "type" is left out; then classes are the nodes with a name.
        if node.get("type", "CLASS" if "lbl" in node else None) == "CLASS":
            terms[id_] = _json_term(id_, node, parents.get(id_, set()))
    for term in terms.values():
        for parent in term.parents:
            if parent not in nodes and not part_of:
                raise _incomplete(path, parent)
    return terms


def _json_parents(
    path: Path,
    nodes: dict[str, dict[str, Any]],
    edges: list[dict[str, str]],
    part_of: bool,
) -> dict[str, set[str]]:
    """Return the ids of the parents of each class that has parents."""
    relations = {"is_a"}
    if part_of:
        # The relation is a node of its own, but some files only use it.
        used = {_short_id(edge["pred"]): None for edge in edges}
        named = {id_: node.get("lbl") for id_, node in nodes.items()}
        wholes = {id_ for id_, name in (used | named).items() if _means_part_of(id_, name)}
        if not wholes:
            raise _no_part_of(path)
        relations |= wholes
    parents: dict[str, set[str]] = {}
    for edge in edges:
        if _short_id(edge["pred"]) in relations:
            child = _short_id(edge["sub"])
            parents.setdefault(child, set()).add(_short_id(edge["obj"]))
    return parents


def _json_term(id_: str, node: dict[str, Any], parents: set[str]) -> Term:
    """Return a class from its node in an OBO Graphs file."""
    meta = node.get("meta", {})
    synonyms = meta.get("synonyms", [])
    other_names = [s["val"] for s in synonyms if s["pred"] == "hasExactSynonym"]
    properties: dict[str, list[str]] = {}
    for item in meta.get("basicPropertyValues", []):
        properties.setdefault(_short_id(item["pred"]), []).append(item["val"])
    other_names += [_short_id(value) for value in properties.get(_ALTERNATE_ID, [])]
    instead = properties.get(_REPLACED_BY) or properties.get(_CONSIDER, [])
    return Term(
        name=node.get("lbl") or id_,
        other_names=other_names,
        parents=parents,
        obsolete=bool(meta.get("deprecated", False)),
        replacements=sorted(_short_id(value) for value in instead),
    )


def _short_id(address: str) -> str:
    """Return the id at the end of a URL: ``http://…/obo/CL_0000236`` is CL:0000236."""
    last = re.split(r"[/#]", address)[-1] or address
    return re.sub(r"^([A-Za-z]+)_(\d+)$", r"\1:\2", last)
