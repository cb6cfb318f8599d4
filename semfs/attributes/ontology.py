"""Class descriptions from an ontology: the ancestors of each class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from semfs._typing import Label, PathLike
from semfs.attributes.names import TEMPLATE_COLUMNS
from semfs.attributes.term_names import TermIndex
from semfs.attributes.terms import Terms, ancestors, read_terms
from semfs.system import import_optional
from semfs.validation import check_distinct

if TYPE_CHECKING:
    import pandas as pd


def attributes_from_ontology(
    terms: Sequence[str] | Mapping[Any, str],
    ontology: PathLike = "cl",
    *,
    own: bool = False,
    part_of: bool = False,
) -> pd.DataFrame:
    """Describe classes by their ancestors in an ontology, as a table of zeros and ones.

    Parameters
    ----------
    terms : sequence of str, or mapping of label to str
        Classes of the ontology, or a mapping from your own labels to such classes. Each class
        is given by its name, an exact synonym, its id (``"CL:0000236"``), or its name and id
        (``"B cell (CL:0000236)"``). Case is ignored. Labels that are mapped to the same class
        get the same description.
    ontology : path-like or "cl", default="cl"
        A file in JSON (OBO Graphs), OBO or OWL (RDF/XML) format. OBO and OWL files need
        ``semfs[ontology]``. ``"cl"`` is the Cell Ontology, which needs ``semfs[cl]`` (a large
        download) but no file.
    own : bool, default=False
        Whether to keep the columns of terms that are not an ancestor of any other given term.
        Such a column is 1 for that term only and says nothing about unseen classes.
    part_of : bool, default=False
        Whether to follow ``part_of`` relations as well, so that the structures that a class is
        part of count as its ancestors. This applies to files only.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        One row per term or label, in the given order, and one column per ancestor, ordered by
        id. A class counts as its own ancestor. Ancestors that all classes share are left out.
        Columns are named after the ancestors. If two ancestors have the same name, their ids
        are appended.

    See Also
    --------
    mapping_template : Suggest an ontology class for each of your labels.

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
        raise TypeError(f"terms must be a list of classes, such as ['B cell'], got {terms!r}.")
    if isinstance(terms, Mapping):
        names = [str(term) for term in terms.values()]
        labels = list(terms)
    else:
        names = [str(term) for term in terms]
        labels = names
    if not labels:
        raise ValueError("terms is empty. Give the names or ids of at least two classes.")
    check_distinct(labels, "class {} is given more than once.")
    source = "the Cell Ontology" if ontology == "cl" else str(ontology)
    known = read_terms(ontology, part_of)
    ids = _find_all(names, known, source)
    table = _ancestor_table(ids, known, keep_given=own)
    if table.empty:
        raise ValueError(
            f"{source}: the {len(labels)} classes have the same "
            "ancestors, which do not separate them. Give more classes, "
            "or use own=True to add the term of each class itself."
        )
    return table.set_axis(labels, axis=0)


def mapping_template(labels: Iterable[Label], ontology: PathLike = "cl") -> pd.DataFrame:
    """Suggest the ontology class that each label most likely means.

    Have someone who knows the labels check and correct the suggestions. To describe the labels,
    call ``attributes_from_ontology(dict(zip(table["label"], table["id"])))`` afterward.

    Parameters
    ----------
    labels : iterable of class labels
        Labels exactly as they appear in your data, such as "CD4+ T cells". Repeated labels are
        listed once.
    ontology : path-like or "cl", default="cl"
        See `attributes_from_ontology`.

    Returns
    -------
    pandas.DataFrame
        A table with the columns ``label``, ``suggestion``, ``id`` and ``score``. ``suggestion``
        and ``id`` are the name and id of a class, and are empty if no class is similar. The
        score is 1 if the label is the name, an exact synonym or the id of the class. It is 0 if
        there is no suggestion. Otherwise, it is the share of words (or letters) that label and
        class have in common.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "farm.obo")
    >>> with open(path, "w") as file:
    ...     _ = file.write(
    ...         "format-version: 1.2\\n\\n[Term]\\nid: F:1\\nname: laying hen\\n"
    ...         "\\n[Term]\\nid: F:2\\nname: dairy cow\\n"
    ...     )
    >>> mapping_template(["Dairy cow", "hens, laying", "unknown"], path)
              label  suggestion   id  score
    0     Dairy cow   dairy cow  F:2   1.00
    1  hens, laying  laying hen  F:1   0.99
    2       unknown                    0.00
    """
    pandas = import_optional("pandas", "data", what="A table")
    known = read_terms(ontology, part_of=False)
    index = TermIndex(known)
    rows = []
    for label in dict.fromkeys(labels):
        suggestion = index.suggest(str(label))
        if suggestion is None:
            rows.append((label, "", "", 0.0))
        else:
            name = known[suggestion.id].name
            rows.append((label, name, suggestion.id, suggestion.score))
    return pandas.DataFrame(rows, columns=TEMPLATE_COLUMNS)


def _find_all(names: list[str], terms: Terms, source: str) -> list[str]:
    """Return the id of each class, or raise one error that names all classes not found."""
    index = TermIndex(terms)
    problems = []
    for name in names:
        problem = index.problem(name)
        if problem:
            problems.append(problem)
    if problems:
        advice = ""
        if len(problems) > 1:
            advice = (
                " mapping_template (semfs attributes --template) writes "
                "a list of suggested classes that you can correct."
            )
        raise ValueError(f"{source}: {' '.join(problems)}{advice}")
    return [index.find(name)[0] for name in names]


def _ancestor_table(ids: list[str], terms: Terms, *, keep_given: bool) -> pd.DataFrame:
    """Return the ancestors (columns, 0 or 1) of the classes with these ids (rows).

    Columns that are the same for all classes are left out. Unless ``keep_given`` is true, so
    are given classes that are not an ancestor of any other given class.
    """
    pandas = import_optional("pandas", "data", what="A table")
    above = {id_: ancestors(id_, terms) for id_ in ids}
    columns = set().union(*above.values())
    if not keep_given:
        # Classes above a given one, itself excepted.
        shared = set().union(*(found - {id_} for id_, found in above.items()))
        columns -= set(ids) - shared
    indicators = {
        column: [float(column in above[id_]) for id_ in ids] for column in sorted(columns)
    }
    table = pandas.DataFrame(indicators)
    table = table.loc[:, table.nunique() > 1]
    names = [terms[id_].name if id_ in terms else id_ for id_ in table.columns]
    titles = []
    for id_, name in zip(table.columns, names):
        titles.append(f"{name} ({id_})" if names.count(name) > 1 else name)
    return table.set_axis(titles, axis=1)
