"""Class attributes from ontologies."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from semfs.attributes import attributes_from_ontology
from semfs.io.safety import FileError

pd = pytest.importorskip("pandas")
pronto = pytest.importorskip("pronto")

CELLS = Path(__file__).parents[3] / "shared" / "data" / "cells"


def term(number, name, *lines):
    return "\n".join(["\n[Term]", f"id: F:{number}", f"name: {name}", *lines, ""])


HEN = ["alt_id: F:33", 'synonym: "chicken" EXACT []', 'synonym: "fowl" BROAD []', "is_a: F:2"]
OBO = (
    "format-version: 1.2\ndefault-namespace: farm\nontology: farm\n"
    + term(1, "animal")
    + term(2, "bird", "is_a: F:1")
    + term(3, "hen", *HEN, "relationship: part_of F:9")
    + term(4, "Duck", "is_a: F:2")
    + term(5, "cow", "is_a: F:1", "relationship: part_of F:10")
    + term(6, "obsolete aurochs", "is_obsolete: true", "replaced_by: F:5")
    + term(7, "obsolete dodo", "is_obsolete: true")
    + term(9, "group")
    + term(10, "group")
    + term(11, "snake", "is_a: F:12")
    + term(12, "tail eater", "is_a: F:11")
    + "\n[Typedef]\nid: part_of\nname: part of\n"
)


@pytest.fixture
def farm(tmp_path):
    path = tmp_path / "farm.obo"
    path.write_text(OBO)
    return path


def test_a_table_says_which_ancestors_tell_the_given_classes_apart(farm):
    table = attributes_from_ontology(["hen", "Duck", "cow"], farm)
    expected = pd.DataFrame({"bird": [1.0, 1.0, 0.0]}, index=["hen", "Duck", "cow"])
    pd.testing.assert_frame_equal(table, expected)  # animal is constant, the others are own
    whole = attributes_from_ontology(["hen", "Duck", "cow"], farm, own=True)
    assert whole.columns.tolist() == ["bird", "hen", "Duck", "cow"]
    assert_array_equal(whole.iloc[:, 1:], np.eye(3))


def test_names_ids_and_exact_synonyms_in_any_case_mean_the_same(farm):
    for hen in ("HEN", " hen ", "F:3", "f_3", "F:33", "Chicken"):
        table = attributes_from_ontology({7: hen, "x": "cow"}, farm)
        assert table.index.tolist() == [7, "x"]
        assert table["bird"].tolist() == [1, 0]


def test_wholes_join_on_request_and_equal_names_carry_their_ids(farm):
    table = attributes_from_ontology(["hen", "cow", "Duck"], farm, part_of=True)
    assert table.columns.tolist() == ["group (F:10)", "bird", "group (F:9)"]
    farm.write_text(OBO.replace("part_of", "near").replace("part of", "near"))
    with pytest.raises(FileError, match="declares no relation part_of"):
        attributes_from_ontology(["hen", "cow"], farm, part_of=True)


def test_cycles_do_no_harm(farm):
    table = attributes_from_ontology(["snake", "tail eater", "cow"], farm)
    assert table["snake"].tolist() == table["tail eater"].tolist() == [1, 1, 0]


@pytest.mark.parametrize("ending, form", [("owl", "rdf"), ("obo", "obo")])
def test_formats_of_ontologies_agree(farm, tmp_path, ending, form):
    written = io.BytesIO()
    pronto.Ontology(str(farm)).dump(written, format=form)
    path = tmp_path / f"again.{ending}"
    path.write_bytes(written.getvalue())
    for part_of in (False, True):
        tables = [
            attributes_from_ontology(["hen", "Duck", "cow"], p, part_of=part_of, own=True)
            for p in (farm, path)
        ]
        pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize(
    "terms, message",
    [
        (["henn", "cow"], r"'henn' is unknown; did you mean 'hen' \(F:3\)\?"),
        (["henn", "zebra"], r"did you mean .* 'zebra' is unknown; give its id"),
        (list("uvwxyz"), r"\(and 1 more\)"),
        (["aurochs", "hen"], r"'aurochs' is obsolete; use 'cow' \(F:5\)\."),
        (["group", "hen"], r"may be 'group' \(F:9\) or 'group' \(F:10\); give the id"),
        (["hen", "Duck"], "no ancestor tells the 2 classes apart.*own=True"),
        (["hen", "hen"], "class 'hen' is given more than once"),
        (["hen", "chicken", "cow"], "'hen', 'chicken' are the same class.*map labels"),
        (["F:03", "cow"], r"'F:03' is unknown; did you mean 'hen' \(F:3\)"),
        ([None, "cow"], "'None' is unknown"),
        ([], "terms is empty"),
    ],
)
def test_classes_that_cannot_be_described_are_refused_with_advice(farm, terms, message):
    with pytest.raises(ValueError, match=message):
        attributes_from_ontology(terms, farm)


@pytest.mark.parametrize("terms", ["hen", None, 3])
def test_what_is_no_list_of_classes_is_refused(farm, terms):
    with pytest.raises(TypeError, match=f"terms must be a list of classes.*got {terms!r}"):
        attributes_from_ontology(terms, farm)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.obo", b"", "not a readable ontology"),
        ("a.obo", b"format-version: 1.2\n", "holds no classes"),
        ("a.obo", OBO[:-300].encode() + b"\nis_a F:1", "not a readable ontology"),
        ("a.obo", OBO.replace("is_a: F:1\n", "is_a: F:99\n").encode(), "'F:99' is the parent"),
        ("a.obo", OBO.replace("hen", "h\xe9n").encode("latin-1"), "UTF-8"),
        ("a.owl", b"<html><body>404</body></html>", "not a readable ontology"),
        ("a.json", b'{"graphs": []}', "OBO or OWL was expected"),
    ],
)
def test_a_garbled_file_is_one_clear_error(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        attributes_from_ontology(["hen", "cow"], tmp_path / name)


def test_missing_files_and_packages_are_named(farm, monkeypatch):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        attributes_from_ontology(["hen", "cow"], farm.parent / "none.obo")
    with pytest.raises(ValueError, match="knows no part_of"):
        attributes_from_ontology(["hen", "cow"], part_of=True)
    for package in ("pronto", "cellxgene_ontology_guide.ontology_parser"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'semfs\[ontology\]'"):
        attributes_from_ontology(["hen", "cow"], farm)
    with pytest.raises(ImportError, match=r"pip install 'semfs\[cl\]'"):
        attributes_from_ontology(["hen", "cow"])


@pytest.fixture
def lung():
    if not CELLS.exists():
        pytest.skip("no ../shared/data/cells")
    with np.load(CELLS / "human_lung.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays if name != "X"}


@pytest.mark.parametrize("given", ["classes", "cl_ids"])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("source", [CELLS / "cl_basic.obo", "cl"])
def test_the_table_of_the_lung_cells_is_reproduced(lung, given, own, source):
    if source == "cl":
        pytest.importorskip("cellxgene_ontology_guide")
    kept = own | ~lung["own_term_only"]
    table = attributes_from_ontology(lung[given], source, own=own)
    assert table.index.tolist() == lung[given].tolist()
    names = [name.split(" ", 1)[1] for name in lung["attribute_names"][kept]]
    assert table.columns.tolist() == names
    assert_array_equal(table, lung["A"][:, kept])


def test_the_cell_ontology_without_a_file_knows_synonyms_and_obsolete_classes():
    pytest.importorskip("cellxgene_ontology_guide")
    table = attributes_from_ontology(["b lymphocyte", "monocyte", "T cell"])
    assert table["lymphocyte"].tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"the Cell Ontology: .* is obsolete; use 'cell' \(CL"):
        attributes_from_ontology(["native cell", "monocyte"])
