"""Class-attribute tables: reading, aligning, checking, and lists of markers."""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from semfs import SemFS, attributes
from semfs.attributes import AttributeTable, attributes_from_markers, read_attributes
from semfs.attributes.files import write_table
from semfs.cli.errors import message_of
from semfs.io.safety import FileError

pd = pytest.importorskip("pandas")

ZOO = pd.DataFrame(
    {"legs": [4.0, 2.0, 0.0], "größe": [3.0, 0.5, 2.5], "can fly": [0.0, 1.0, 0.0]},
    index=["polar+bear", "hen", "NA"],
)


# --- files -----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "feather", "xlsx"])
def test_tables_survive_every_format(tmp_path, ending):
    packages = {"parquet": "pyarrow", "feather": "pyarrow", "xlsx": "openpyxl"}
    pytest.importorskip(packages.get(ending, "pandas"))
    write_table(ZOO, tmp_path / f"zoo.{ending}")
    assert [p.name for p in tmp_path.iterdir()] == [f"zoo.{ending}"]
    found = read_attributes(tmp_path / f"zoo.{ending}")
    pd.testing.assert_frame_equal(found, ZOO, check_names=False)
    with pytest.raises(ValueError, match=r"must end in \.csv"):
        write_table(ZOO, tmp_path / "zoo.json")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separator_is_found_and_words_become_numbers(tmp_path, separator):
    rows = [["class", "legs", "fur"], ["cat", "4", "yes"], ["hen", " 2", "No"]]
    text = "\ufeff" + "\r\n".join(separator.join(row) for row in rows)
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    table = read_attributes(tmp_path / "t.csv")
    assert table.loc["cat"].tolist() == [4.0, 1.0]
    assert table.loc["hen"].tolist() == [2.0, 0.0]


def test_whole_number_labels_become_numbers_but_007_stays_text(tmp_path):
    (tmp_path / "a.csv").write_text("c,x\n0,1\n12,2\n-3,4\n")
    (tmp_path / "b.csv").write_text("c,x\n007,1\n12,2\n")
    assert read_attributes(tmp_path / "a.csv").index.tolist() == [0, 12, -3]
    assert read_attributes(tmp_path / "b.csv").index.tolist() == ["007", "12"]


@pytest.mark.parametrize(
    "ending, content, message",
    [
        ("csv", "c,x\ncat,1\ncat,2\n", "class 'cat' has more than one row"),
        ("csv", "c,x\ncat,1\nhen,many\n", "'many' in column 'x', row 2; a number was expected"),
        ("csv", "c,x\ncat,1\nhen,1e9993547034516\n", "row 2; a number was expected"),
        (
            "csv",
            "c,x\ncat,a small pet\n",
            "convert descriptions in words .* encode_class_names",
        ),
        ("csv", "c,x\ncat,1\nhen,\n", "nothing in column 'x', row 2"),
        ("csv", "c,x\n,1\n", "row 1 has no class label"),
        ("csv", "c,x,x\ncat,1,2\n", "two columns named 'x'"),
        ("csv", "c\ncat\n", "holds only names of classes .1.;"),
        ("csv", "", "it is empty"),
        ("csv", "c,x\n", "holds 0 classes and 1 attributes"),
        ("parquet", "PAR1 no", "not a readable"),
        ("xlsx", "PK no", "not a readable"),
        ("docx", "hello", "read from .csv"),
    ],
)
def test_broken_tables_are_one_line(tmp_path, ending, content, message):
    path = tmp_path / f"t.{ending}"
    path.write_text(content)
    with pytest.raises(FileError, match=message) as caught:
        read_attributes(path)
    assert "\n" not in str(caught.value)
    assert f"t.{ending}" in str(caught.value)


# --- alignment -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table, label, message",
    [
        (ZOO, "polar bear", r"class 'polar bear'; did you mean 'polar\+bear'\?"),
        (ZOO, "HEN", "class 'HEN'; did you mean 'hen'?"),
        (ZOO, "xylophone", r"class 'xylophone'\. Add the row"),
        ({"3": [1.0]}, 3, "class 3; did you mean '3'?"),
        (ZOO.to_numpy(), "hen", r"class 'hen'.*integer label r; 3 rows"),
        (ZOO.to_numpy(), -1, "class -1"),
        (ZOO, "Unknown", "class 'Unknown'.*None or NaN in y marks"),
    ],
)
def test_a_class_without_a_row_is_named_with_the_nearest_label(table, label, message):
    with pytest.raises(ValueError, match=f"no row for {message}"):
        attributes.align_attributes(table, np.array([label]))


@pytest.mark.parametrize(
    "table, message",
    [
        ({"cat": [1.0, np.inf]}, "is infinite for class 'cat' in column 'a1'"),
        ({}, r"one row of numbers per class, got shape \(0,\)"),
        (np.zeros((0, 2)), r"one row of numbers per class, got shape \(0, 2\)"),
        ({"a": [1], "b": [1, 2]}, "one row of the same length per class"),
        ({"a": ["much"]}, "must hold numbers"),
        ([1.0, 2.0], r"one row of numbers per class, got shape \(2,\)"),
    ],
)
def test_what_is_no_table_of_numbers_is_explained(table, message):
    with pytest.raises(ValueError, match=message):
        AttributeTable.from_any(table)


def test_polars_tables_are_read():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"class": ["cat", "hen"], "legs": [4, 2]})
    table = AttributeTable.from_any(frame)
    assert (table.classes.tolist(), table.names.tolist()) == (["cat", "hen"], ["legs"])


# --- one reading of all forms ----------------------------------------------------------


@pytest.mark.parametrize("form", ["frame", "mapping", "array", "file", "table", "polars"])
def test_every_form_of_a_table_is_read_alike(tmp_path, form):
    frame = pd.DataFrame({"a0": [4.0, 2.0], "a1": [0.0, 1.0]}, index=[0, 1])
    frame.to_csv(tmp_path / "t.csv")
    forms = {
        "frame": frame,
        "mapping": dict(zip(frame.index, frame.to_numpy())),
        "array": frame.to_numpy().tolist(),
        "file": tmp_path / "t.csv",
        "table": AttributeTable.from_any(frame),
    }
    if form == "polars":
        polars = pytest.importorskip("polars")
        forms["polars"] = polars.DataFrame({"class": [0, 1], "a0": [4, 2], "a1": [0, 1]})
    found = AttributeTable.from_any(forms[form], classes=[1])  # a table keeps all its rows
    pd.testing.assert_frame_equal(found.to_frame(), frame, check_column_type=False)


@pytest.mark.parametrize("source", [None, "labels", "Labels"])
def test_labels_alone_are_one_attribute_per_class(source):
    found = AttributeTable.from_any(source, classes=["hen", "cow"])
    expected = pd.DataFrame(np.eye(2), index=["hen", "cow"], columns=["hen", "cow"])
    pd.testing.assert_frame_equal(found.to_frame(), expected, check_column_type=False)


@pytest.mark.parametrize("source", [None, "cl", "labels", "table.csv"])
def test_text_and_labels_alone_need_the_classes_to_describe(source):
    with pytest.raises(TypeError, match=f"attributes must be a table, got {source!r}"):
        AttributeTable.from_any(source)


def test_names_are_encoded_and_tuples_stay_labels():
    pytest.importorskip("wordllama")
    labels = [("big", "cat"), "dog "]
    frame = attributes.attributes_of(labels, "names")
    assert frame.index.tolist() == labels
    assert frame.shape == (2, 256)


# --- checks ----------------------------------------------------------------------------


def test_findings_are_constants_copies_twins_and_neighbours():
    table = pd.DataFrame(
        {"one": [1, 1, 1, 1], "a": [0, 1, 0, 1], "b": [0, 1, 0, 1], "c": [2, 3, 2, 9]},
        index=["p", "q", "r", "s"],
    )
    found = attributes.describe_attributes(table).groupby("finding")["what"].agg(list).to_dict()
    assert found["constant attribute"] == ["one"]
    assert found["equal attributes"] == ["a = b"]
    assert found["identical classes"] == ["p = r"]
    assert found["rank"] == ["2 of at most 3"]
    assert [text[:5] for text in found["nearest classes"]] == ["p – r", "q – p", "s – q"]
    assert len(attributes.describe_attributes({"only": [1.0, 2.0]})) == 4


@pytest.mark.parametrize(
    "rows, message",
    [
        ([[0, 5.0, 1, 2, 3], [0, 5.0, 1, 2, 4]], "4 of 5 .* have no effect: a0, a1, a2, …$"),
        ([[0, 0.5], [0, 2]], "1 of 2 .* have no effect: a0$"),
        ([[0, 1, 0, 1], [0.5, 0, 0, 1]], None),  # half of no, partly, yes: that is usual
        ([[0, 0, 0, 1], [1, 0, 0, 1]], "3 of 4 .* have no effect: a1, a2, a3$"),
    ],
)
def test_fit_warns_of_constant_attributes_unless_they_are_usual(rows, message):
    with warnings.catch_warnings(record=True, action="always") as caught:
        SemFS(1, attributes=rows).fit([[0.0, 1], [1, 0], [1, 1]], [0, 1, 1])
    assert len(caught) == (message is not None)
    assert all(re.search(message, str(w.message).rstrip(".")) for w in caught)


# --- marker lists ----------------------------------------------------------------------

PAIRS = [("T", "CD3D"), ("T", "IL7R"), ("B", "CD19"), ("mono", "IL7R"), ("T", "CD3D")]


def write(path, rows, separator=","):
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))
    return path


def test_pairs_frames_and_files_give_the_same_table(tmp_path):
    table = attributes_from_markers(PAIRS)
    assert table.index.tolist() == ["T", "B", "mono"]
    assert table.columns.tolist() == ["CD3D", "IL7R", "CD19"]
    assert_array_equal(table, [[1, 1, 0], [0, 0, 1], [0, 1, 0]])
    frame = pd.DataFrame(PAIRS, columns=["type", "gene"])
    rows = [("type", "gene"), *PAIRS]
    files = [write(tmp_path / "m.csv", rows), write(tmp_path / "m.tsv", rows, "\t")]
    others = [frame, frame.astype("category"), iter(PAIRS), *files, str(files[0])]
    for other in others:
        pd.testing.assert_frame_equal(attributes_from_markers(other), table)
    polars = pytest.importorskip("polars").DataFrame(PAIRS, orient="row")
    pd.testing.assert_frame_equal(attributes_from_markers(polars), table)


def test_a_third_column_holds_weights_and_integer_classes_stay_integers(tmp_path):
    path = write(tmp_path / "m.csv", ["cgwx", (2, "a", 0.5, "?"), (1, "b", -3, "!")])
    table = attributes_from_markers(path)
    assert table.index.tolist() == [2, 1]
    assert_array_equal(table, [[0.5, 0], [0, -3]])
    SemFS(1, attributes=table).fit([[0.0, 1], [1, 0], [1, 1]], [1, 2, 2])


@pytest.mark.parametrize(
    "markers, message",
    [
        ([], "rows of 0 cells"),
        ([("T",), ("B",)], "rows of 1 cells; each row must hold a class, a marker"),
        (["CD19", "CD3D"], "holds 'CD19'; each row must hold a class, a marker"),
        ({"T": ["CD3D"]}, "holds 'T'; each row must hold a class"),
        ([("T", "CD3D"), ("T", None)], r"empty class or marker \(T, None\)"),
        ([("T", "CD3D", 1), ("T", "CD3D", 2)], r"two weights \(T, CD3D, 2\)"),
        ([("T", "CD3D", "high")], "weight that is not a number .*high"),
        ([("T", "CD3D", 1.0), ("T", "IL7R")], "weight that is not a number"),
    ],
)
def test_lists_that_are_no_markers_are_refused(markers, message):
    with pytest.raises(ValueError, match=message):
        attributes_from_markers(markers)


def test_files_that_are_no_markers_are_refused(tmp_path):
    for name, rows, message in (
        ("m.xlsx", PAIRS, r"read from \.csv"),
        ("m.csv", [], "it is empty"),
        ("m.csv", PAIRS, "starts with class 'T'; a header line was expected"),
        ("m.csv", ["cg", "a4", "b2"], "numbers in its second column"),
        ("m.csv", ["cg", "ab", "abc"], "a row has 3 cells, but the header has 2"),
    ):
        with pytest.raises(FileError, match=message):
            attributes_from_markers(write(tmp_path / name, rows))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        attributes_from_markers(tmp_path / "none.csv")


def test_a_file_of_names_alone_is_answered_with_the_command_that_describes_them(tmp_path):
    path = tmp_path / "intents.txt"
    path.write_text("intent\nbook a flight\ncancel\n", encoding="utf-8")
    with pytest.raises(
        FileError, match=r"only names of classes \(2\);.*semfs attributes .*intents\.txt -o"
    ):
        read_attributes(path)


def test_a_class_without_a_row_is_reported_with_the_options_of_the_command():
    with pytest.raises(ValueError, match="attributes has no row for class 'iron'") as error:
        AttributeTable.from_any(ZOO).rows_of(["hen", "iron"])
    said = message_of(error.value)
    assert said.startswith("--attributes has no row for class 'iron'")
    assert "on the command line, --unseen" in said
