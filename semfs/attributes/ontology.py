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
    """Return which ancestors each class has in an ontology, as a table of 0 and 1.

    Parameters
    ----------
    terms : sequence of str, or mapping of label to str
        Classes by name, exact synonym (in upper or lower case), id such as ``"CL:0000236"``,
        or both as in ``"B cell (CL:0000236)"``; or for each of your own labels one of these.
        Several may mean the same class; they are then described alike.
    ontology : path-like or "cl", default="cl"
        A file in OBO or OWL (RDF/XML) format, which needs ``semfs[ontology]``, or in JSON
        (OBO Graphs). ``"cl"`` is the Cell Ontology without a file, which needs ``semfs[cl]``
        (a large download).
    own : bool, default=False
        Whether to keep the columns of terms that are an ancestor of no other given term.
        Such a column is 1 for that term alone and says nothing about an unseen class.
    part_of : bool, default=False
        Whether what a class is part of (``part_of`` relations) counts among its ancestors;
        for files only.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Indexed by term or label in the order given; a class counts among its own ancestors.
        Columns are names of ancestors ordered by their ids, without those that all
        classes or none have. A name that occurs twice is followed by its id.

    See Also
    --------
    mapping_template : a table of your labels and the classes they may stand for.

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
    """Return for each label the class of an ontology that it most likely stands for.

    A guess to be checked and corrected by somebody who knows the labels; then
    ``attributes_from_ontology(dict(zip(table["label"], table["id"])))`` describes them.

    Parameters
    ----------
    labels : iterable of class labels
        Names as your data have them, such as "CD4+ T cells"; repeated ones are listed once.
    ontology : path-like or "cl", default="cl"
        As in `attributes_from_ontology`.

    Returns
    -------
    pandas.DataFrame
        ``label``; ``suggestion`` and ``id``, the name and id of a class, empty where nothing
        is near; ``score``, 1 if the label is the name, exact synonym or id of the class, less
        by the share of words (or letters) in common, 0 without a suggestion.

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
    """Return the id of each class, or raise one error about all that were not found."""
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
    """Return which ancestors (columns) the classes of these ids (rows) have, 0 or 1.

    Columns that are the same for all classes are left out, and, unless ``keep_given``, the
    given classes that are an ancestor of no other given class.
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
