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
    """Describe classes by their ancestors in an ontology, as a table of 0 and 1.

    Parameters
    ----------
    terms : sequence of str, or mapping of label to str
        Classes by name, by exact synonym, by id such as ``"CL:0000236"``, or by name and id as
        in ``"B cell (CL:0000236)"``. Upper and lower case are the same. Or a mapping from your
        own labels to such classes. Labels of the same class get the same description.
    ontology : path-like or "cl", default="cl"
        A file in OBO or OWL (RDF/XML) format, which needs ``semfs[ontology]``, or in JSON (OBO
        Graphs). ``"cl"`` is the Cell Ontology; it needs ``semfs[cl]`` (a large download) but no
        file.
    own : bool, default=False
        Whether to keep the columns of terms that are not an ancestor of any other given term.
        Such a column is 1 for that term only and says nothing about unseen classes.
    part_of : bool, default=False
        Whether to follow ``part_of`` relations as well, so that the structures a class is part
        of count among its ancestors. For files only.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Indexed by term or label in the given order. Columns are the names of ancestors, ordered
        by id. A class counts among its own ancestors. Ancestors that all classes have in common
        are left out. If two ancestors have the same name, the id is appended.

    See Also
    --------
    mapping_template : suggests an ontology class for each of your labels.

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
            f"{source}: the {len(labels)} classes have the same ancestors, which do not "
            "separate them. Give more classes, or add the term of each class: own=True."
        )
    return table.set_axis(labels, axis=0)


def mapping_template(labels: Iterable[Label], ontology: PathLike = "cl") -> pd.DataFrame:
    """Suggest, for each label, the class of an ontology that it most likely means.

    Somebody who knows the labels should check and correct the suggestions. Then
    ``attributes_from_ontology(dict(zip(table["label"], table["id"])))`` describes the labels.

    Parameters
    ----------
    labels : iterable of class labels
        Labels as they are in your data, such as "CD4+ T cells". Repeated labels are listed
        once.
    ontology : path-like or "cl", default="cl"
        As in `attributes_from_ontology`.

    Returns
    -------
    pandas.DataFrame
        The columns are ``label``, ``suggestion`` and ``id`` (name and id of a class, empty if
        none is similar) and ``score``. The score is 1 if the label is the name, an exact
        synonym or the id of the class. Otherwise it is the share of words (or letters) in
        common, and 0 without a suggestion.

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
                " mapping_template (semfs attributes --template) lists a class for each "
                "label, to be corrected."
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
