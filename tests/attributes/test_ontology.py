"""Class attributes from ontologies."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from semfs import attributes
from semfs.attributes import attributes_from_ontology, mapping_template, read_names
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


def test_a_table_says_which_ancestors_separate_the_given_classes(farm):
    table = attributes_from_ontology(["hen", "Duck", "cow"], farm)
    expected = pd.DataFrame({"bird": [1.0, 1.0, 0.0]}, index=["hen", "Duck", "cow"])
    pd.testing.assert_frame_equal(table, expected)  # animal is constant, the others are own
    whole = attributes_from_ontology(["hen", "Duck", "cow"], farm, own=True)
    assert whole.columns.tolist() == ["bird", "hen", "Duck", "cow"]
    assert_array_equal(whole.iloc[:, 1:], np.eye(3))


def test_names_ids_and_exact_synonyms_in_any_case_mean_the_same(farm):
    for hen in ("HEN", " hen ", "F:3", "f_3", "F:33", "Chicken", "hen (F:3)", "chicken (F:33)"):
        table = attributes_from_ontology({7: hen, "x": "cow"}, farm)
        assert table.index.tolist() == [7, "x"]
        assert table["bird"].tolist() == [1, 0]


def test_two_spellings_of_one_class_are_described_alike(farm):
    table = attributes_from_ontology(["hen", "chicken", "Duck", "cow"], farm)
    mapped = attributes_from_ontology(
        {"hen": "hen", "chicken": "hen", "Duck": "Duck", "cow": "cow"}, farm
    )
    pd.testing.assert_frame_equal(table, mapped)
    assert_array_equal(table.loc["hen"], table.loc["chicken"])


def test_wholes_join_on_request_and_equal_names_carry_their_ids(farm):
    table = attributes_from_ontology(["hen", "cow", "Duck"], farm, part_of=True)
    assert table.columns.tolist() == ["group (F:10)", "bird", "group (F:9)"]
    farm.write_text(OBO.replace("part_of", "near").replace("part of", "near"))
    with pytest.raises(FileError, match="has no part_of relations"):
        attributes_from_ontology(["hen", "cow"], farm, part_of=True)


def test_cycles_do_no_harm(farm):
    table = attributes_from_ontology(["snake", "tail eater", "cow"], farm)
    assert table["snake"].tolist() == table["tail eater"].tolist() == [1, 1, 0]


@pytest.mark.parametrize("ending, form", [("owl", "rdf"), ("obo", "obo"), ("json", "json")])
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


GRAPH = {
    "nodes": [
        {"id": "http://purl.obolibrary.org/obo/F_1", "lbl": "animal", "type": "CLASS"},
        {"id": "http://purl.obolibrary.org/obo/F_2", "lbl": "bird", "type": "CLASS"},
        {
            "id": "http://purl.obolibrary.org/obo/F_3",
            "lbl": "hen",
            "type": "CLASS",
            "meta": {
                "synonyms": [
                    {"pred": "hasExactSynonym", "val": "chicken"},
                    {"pred": "hasBroadSynonym", "val": "fowl"},
                ]
            },
        },
        {"id": "http://purl.obolibrary.org/obo/F_4", "lbl": "cow"},
        {
            "id": "http://purl.obolibrary.org/obo/F_6",
            "lbl": "obsolete aurochs",
            "type": "CLASS",
            "meta": {
                "deprecated": True,
                "basicPropertyValues": [
                    {
                        "pred": "http://purl.obolibrary.org/obo/IAO_0100001",
                        "val": "http://purl.obolibrary.org/obo/F_4",
                    }
                ],
            },
        },
        {"id": "http://purl.obolibrary.org/obo/F_9", "lbl": "herd", "type": "CLASS"},
        {
            "id": "http://purl.obolibrary.org/obo/BFO_0000050",
            "lbl": "part of",
            "type": "PROPERTY",
        },
    ],
    "edges": [
        {"sub": f"http://purl.obolibrary.org/obo/{sub}", "pred": pred, "obj": obj}
        for sub, pred, obj in [
            ("F_2", "is_a", "http://purl.obolibrary.org/obo/F_1"),
            ("F_3", "is_a", "http://purl.obolibrary.org/obo/F_2"),
            ("F_4", "is_a", "http://purl.obolibrary.org/obo/F_1"),
            (
                "F_4",
                "http://purl.obolibrary.org/obo/BFO_0000050",
                "http://purl.obolibrary.org/obo/F_9",
            ),
        ]
    ],
}


@pytest.fixture
def farm_json(tmp_path):
    path = tmp_path / "farm.json"
    path.write_text(json.dumps({"graphs": [GRAPH]}))
    return path


def test_json_ontologies_are_read_as_published_in_obo_graphs(farm_json, monkeypatch):
    monkeypatch.setitem(sys.modules, "pronto", None)  # is not needed
    table = attributes_from_ontology({"h": "Chicken", "c": "F:4"}, farm_json)
    pd.testing.assert_frame_equal(table, pd.DataFrame({"bird": [1.0, 0.0]}, index=["h", "c"]))
    wholes = attributes_from_ontology(["hen", "cow"], farm_json, part_of=True)
    assert wholes.columns.tolist() == ["bird", "herd"]
    with pytest.raises(ValueError, match=r"'aurochs' is obsolete; use 'cow' \(F:4\)"):
        attributes_from_ontology(["aurochs", "hen"], farm_json)
    with pytest.raises(ValueError, match="'fowl' is unknown"):
        attributes_from_ontology(["fowl", "cow"], farm_json)


def test_json_ontologies_with_a_parent_elsewhere_or_without_part_of_are_refused(farm_json):
    edges = [{"sub": "F_2", "pred": "is_a", "obj": "F_99"}]
    farm_json.write_text(json.dumps({"graphs": [GRAPH | {"edges": edges}]}))
    with pytest.raises(FileError, match="'F:99' is the parent of a class, but is not in"):
        attributes_from_ontology(["hen", "cow"], farm_json)
    nodes = GRAPH["nodes"][:4]
    farm_json.write_text(json.dumps({"graphs": [{"nodes": nodes}]}))
    with pytest.raises(FileError, match="has no part_of relations"):
        attributes_from_ontology(["hen", "cow"], farm_json, part_of=True)


def test_the_json_file_of_an_ontology_describes_classes_of_data(farm_json):
    frame = attributes.attributes_of(["hen", "cow"], str(farm_json))
    assert frame["bird"].tolist() == [1.0, 0.0]


# --- which class a label may stand for -------------------------------------------------

CL = (
    "format-version: 1.2\n"
    + term(1, "cell")
    + term(2, "fibroblast", "is_a: F:1")
    + term(3, "gallbladder fibroblast", "is_a: F:2")
    + term(4, "alveolar adventitial fibroblast", "is_a: F:2")
    + term(5, "T cell", 'synonym: "T lymphocyte" EXACT []', "is_a: F:1")
    + term(
        6,
        "CD8-positive, CD25-positive, alpha-beta regulatory T cell",
        'synonym: "CD8+CD25+ T(reg)" EXACT []',
        "is_a: F:5",
    )
    + term(7, "CD4-positive, CD25-positive, alpha-beta regulatory T cell", "is_a: F:5")
    + term(8, "CD4-positive, CD25-negative memory T cell", "is_a: F:5")
    + term(9, "macrophage", "is_a: F:1")
    + term(10, "pericyte", "is_a: F:1")
    + term(11, "natural killer cell", "is_a: F:1")
    + term(13, "myofibroblast cell", 'synonym: "MFB" EXACT []', "is_a: F:2")
    + term(14, "CD8-positive, alpha-beta T cell", "is_a: F:5")
    + term(15, "CD4-positive, alpha-beta T cell", "is_a: F:5")
    + term(16, "CD8-positive, alpha-beta regulatory T cell", "is_a: F:14")
    + term(17, "double negative thymocyte", 'synonym: "CD4-CD8- T cell" EXACT []')
    + term(18, "naive T cell", "is_a: F:5")
    + term(19, "naive thymus-derived CD4-positive, alpha-beta T cell", "is_a: F:15")
    + term(20, "gamma-delta T cell", "is_a: F:5")
    + term(21, "gamma-delta thymocyte", "is_a: F:20")
    + term(22, "classical monocyte", "is_a: F:1")
    + term(23, "non-classical monocyte", "is_a: F:1")
    + term(24, "endothelial cell", "is_a: F:1")
    + term(25, "endo-epithelial cell", "is_a: F:1")
    + term(27, "CD14-positive, CD16-low monocyte", "is_a: F:1")
    + term(28, "CD14-low, CD16-positive monocyte", "is_a: F:1")
    + term(26, "pH receptor cell", "is_a: F:1")
    + term(12, "obsolete alveolar fibroblast", "is_obsolete: true", "replaced_by: F:4")
)


@pytest.fixture
def small_cl(tmp_path):
    path = tmp_path / "cl.obo"
    path.write_text(CL)
    return path


@pytest.mark.parametrize(
    "label, expected",
    [
        ("T lymphocyte", "T cell"),
        ("CD4+/CD25 T Reg", "CD4-positive, CD25-positive, alpha-beta regulatory T cell"),
        ("CD4+ CD25- memory T cells", "CD4-positive, CD25-negative memory T cell"),
        ("alveolar fibroblasts (lung)", "alveolar adventitial fibroblast"),
        ("alveolar fibroblast", "alveolar adventitial fibroblast"),  # replaces an obsolete one
        ("pericyte cell", "pericyte"),
        ("Macrofage", "macrophage"),
        ("NK cells", "natural killer cell"),
        ("FB", "fibroblast"),  # not myofibroblast, although its synonym MFB is spelled so
        ("Mph", "macrophage"),
        ("Endo", "endothelial cell"),
        ("CD8 T", "CD8-positive, alpha-beta T cell"),
        ("CD8+ T cells", "CD8-positive, alpha-beta T cell"),
        ("CD4 T", "CD4-positive, alpha-beta T cell"),
        ("CD4-CD8- T", "double negative thymocyte"),
        ("Naive CD4 T", "naive thymus-derived CD4-positive, alpha-beta T cell"),
        ("gdT", "gamma-delta T cell"),
        ("CD14-low CD16+ monocyte", "CD14-low, CD16-positive monocyte"),
        ("CD16+ CD14low monocytes", "CD14-low, CD16-positive monocyte"),
        ("Nonclassical Monocyte", "non-classical monocyte"),
        ("zebra", ""),
        ("Unknown", ""),
        ("nan", ""),
    ],
)
def test_suggestions_share_words_before_letters(small_cl, label, expected):
    table = mapping_template([label, label], small_cl)
    assert table.columns.tolist() == ["label", "suggestion", "id", "score"]
    assert len(table) == 1
    row = table.iloc[0]
    assert (row["label"], row["suggestion"]) == (label, expected)
    assert (row["id"] != "") == (row["score"] > 0) == (expected != "")


def test_exact_names_have_score_one_and_guesses_less(small_cl):
    table = mapping_template(["t cell", "F:9", "cell T", "macrofage"], small_cl)
    assert table["score"].tolist()[:2] == [1.0, 1.0]
    assert (table["score"][2:] < 1).all()


def test_a_corrected_template_is_a_mapping(small_cl, tmp_path):
    path = tmp_path / "map.csv"
    table = mapping_template(["T lymphocyte", "macrofage", "my cell, type 7"], small_cl)
    table.loc[2, "suggestion"] = "natural killer cell"
    table.loc[2, "id"] = ""
    table.to_csv(path, index=False)
    names = read_names(str(path))
    assert list(names) == ["T lymphocyte", "macrofage", "my cell, type 7"]
    described = attributes_from_ontology(names, small_cl, own=True)
    assert described.loc["my cell, type 7", "natural killer cell"] == 1
    table.loc[1, "suggestion"] = "pericyte"  # but its id is still that of macrophage
    table.to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"may be 'pericyte' \(F:10\) or 'macrophage' \(F:9\)"):
        attributes_from_ontology(read_names(str(path)), small_cl)


# --- what is refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    "terms, message",
    [
        (["henn", "cow"], r"'henn' is unknown; did you mean 'hen' \(F:3\)\?"),
        (["henn", "zebra"], r"did you mean .* 'zebra' is unknown; give its id"),
        (
            list("uvwxyz"),
            "'u' is .*'v' is .*'w' is .*'x' is .*'y' is .*'z' is .*mapping_template",
        ),
        (["aurochs", "hen"], r"'aurochs' is obsolete; use 'cow' \(F:5\)\."),
        (["group", "hen"], r"may be 'group' \(F:9\) or 'group' \(F:10\); give the id"),
        (["hen", "Duck"], "the 2 classes have the same ancestors.*own=True"),
        (["hen", "hen"], "class 'hen' is given more than once"),
        (["F:03", "cow"], r"'F:03' is unknown; did you mean 'hen' \(F:3\)"),
        ([None, "cow"], "'None' is unknown; if it marks samples without a label, leave it out"),
        (["hen", "Unknown"], "'Unknown' is unknown; if it marks samples without a label"),
        (["hen (F:5)", "Duck"], r"'hen \(F:5\)' may be 'hen' \(F:3\) or 'cow' \(F:5\)"),
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
        ("a.json", b'{"graphs": []}', "holds no classes"),
        ("a.json", b'{"nodes": []}', "without graphs; .*OBO or OWL. was expected"),
        ("a.json", b'{"graphs": [{"nodes": [1]}]}', "not a readable ontology"),
        ("a.json", b'{"graphs": [', "not a readable ontology"),
        ("a.json", b'{"graphs": ' + b"[" * 100_000, "not a readable ontology"),
    ],
)
def test_a_garbled_file_is_one_clear_error(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        attributes_from_ontology(["hen", "cow"], tmp_path / name)


def test_missing_files_and_packages_are_named(farm, monkeypatch):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        attributes_from_ontology(["hen", "cow"], farm.parent / "none.obo")
    with pytest.raises(ValueError, match="has no part_of relations"):
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
