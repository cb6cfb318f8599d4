"""Class-attribute tables: reading, aligning, scaling, checking."""

import json
import re
import warnings
from functools import partial

import numpy as np
import pytest

from semfs import SemFS
from semfs.attributes import (
    align_attributes,
    as_attribute_table,
    constant_attributes,
    describe_attributes,
    read_attributes,
)
from semfs.attributes.files import write_table
from semfs.files import FileError

pd = pytest.importorskip("pandas")

ZOO = pd.DataFrame(
    {"legs": [4.0, 2.0, 0.0], "größe": [3.0, 0.5, 2.5], "can fly": [0.0, 1.0, 0.0]},
    index=["polar+bear", "hen", "NA"],
)


# --- files -----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "xlsx"])
def test_tables_survive_every_format(tmp_path, ending):
    pytest.importorskip({"parquet": "pyarrow", "xlsx": "openpyxl"}.get(ending, "pandas"))
    write = ZOO.to_excel if ending == "xlsx" else partial(write_table, ZOO)
    write(tmp_path / f"zoo.{ending}")
    assert [p.name for p in tmp_path.iterdir()] == [f"zoo.{ending}"]
    found = read_attributes(tmp_path / f"zoo.{ending}")
    pd.testing.assert_frame_equal(found, ZOO, check_names=False)
    with pytest.raises(ValueError, match=r"a table is written as \.csv"):
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
    "content",
    [
        {"cat": {"legs": 4, "fur": True}, "hen": {"legs": 2, "fur": False}},
        {"cat": [4, 1], "hen": [2, 0]},
    ],
)
def test_json_of_records_and_of_lists(tmp_path, content):
    (tmp_path / "t.json").write_text(json.dumps(content))
    table = read_attributes(tmp_path / "t.json")
    assert table.index.tolist() == ["cat", "hen"]
    assert table.to_numpy().tolist() == [[4.0, 1.0], [2.0, 0.0]]


@pytest.mark.parametrize(
    "ending, content, message",
    [
        ("csv", "c,x\ncat,1\ncat,2\n", "class 'cat' has more than one row"),
        ("csv", "c,x\ncat,1\nhen,many\n", "'many' in column 'x', row 2; a number was expected"),
        ("csv", "c,x\ncat,1\nhen,1e9993547034516\n", "row 2; a number was expected"),
        ("csv", "c,x\ncat,1\nhen,\n", "nothing in column 'x', row 2"),
        ("csv", "c,x\ncat,1\nhen,-inf\n", "'-inf' in column 'x', row 2; a number"),
        ("csv", "c,x\n,1\n", "row 1 has no class label"),
        ("csv", "c,x,x\ncat,1,2\n", "two columns named 'x'"),
        ("csv", "c\ncat\n", "holds 1 classes and 0 attributes"),
        ("csv", "", "it is empty"),
        ("csv", "c,x\n", "holds 0 classes and 1 attributes"),
        ("json", "[1, 2]", "expected"),
        ("json", "{", "not a readable"),
        ("json", '{"a": [1], "b": [1, 2]}', "'a1', row 1; a number was expected"),
        ("parquet", "PAR1 no", "not a readable"),
        ("xlsx", "PK no", "not a readable"),
        ("docx", "hello", "not .docx"),
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
        (ZOO, "xylophone", r"class 'xylophone'\. Add it"),
        ({"3": [1.0]}, 3, "class 3.*y holds int, the table str"),
        (ZOO.to_numpy(), "hen", r"class 'hen'.*integer label r; 3 rows"),
        (ZOO.to_numpy(), -1, "class -1"),
    ],
)
def test_a_class_without_a_row_is_named_with_the_nearest_label(table, label, message):
    with pytest.raises(ValueError, match=f"no row for {message}"):
        align_attributes(table, np.array([label]))


@pytest.mark.parametrize(
    "table, message",
    [
        ({"cat": [1.0, np.inf]}, "holds inf for class 'cat' in column 'a1'"),
        ({}, "got ragged or no rows"),
        (np.zeros((0, 2)), "attributes is empty: 0 classes and 2 attributes"),
        ({"a": [1], "b": [1, 2]}, "ragged"),
        ({"a": ["much"]}, "must be numeric"),
        ([1.0, 2.0], r"shape \(2,\)"),
    ],
)
def test_what_is_no_table_of_numbers_is_explained(table, message):
    with pytest.raises(ValueError, match=message):
        as_attribute_table(table)


def test_polars_tables_are_read():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"class": ["cat", "hen"], "legs": [4, 2]})
    table = as_attribute_table(frame)
    assert (table.classes.tolist(), table.names.tolist()) == (["cat", "hen"], ["legs"])


# --- checks ----------------------------------------------------------------------------


def test_findings_are_constants_copies_twins_and_neighbours():
    table = pd.DataFrame(
        {"one": [1, 1, 1, 1], "a": [0, 1, 0, 1], "b": [0, 1, 0, 1], "c": [2, 3, 2, 9]},
        index=["p", "q", "r", "s"],
    )
    found = describe_attributes(table).groupby("finding")["what"].agg(list).to_dict()
    assert found["constant attribute"] == ["one"]
    assert found["equal attributes"] == ["a = b"]
    assert found["identical classes"] == ["p = r"]
    assert found["rank"] == ["2 of at most 3"]
    assert found["nearest classes"][:2] == ["p – r (1.00)", "r – p (1.00)"]
    assert len(describe_attributes({"only": [1.0, 2.0]})) == 4


def test_attributes_that_are_constant_over_some_classes_are_named():
    assert constant_attributes(ZOO) == []
    assert constant_attributes(ZOO, np.array(["polar+bear", "NA"])) == ["can fly"]
    with pytest.raises(ValueError, match="no row for class 'cow'"):
        constant_attributes(ZOO, ["cow"])


@pytest.mark.parametrize(
    "rows, message",
    [
        ([[0, 5.0, 1, 2, 3], [0, 5.0, 1, 2, 4]], "4 of 5 .* teach nothing: a0, a1, a2, …$"),
        ([[0, 0.5], [0, 2]], "1 of 2 .* teach nothing: a0$"),
        ([[0, 1, 0, 1], [1, 0, 0, 1]], None),  # half of 0 and 1: that is usual
        ([[0, 0, 0, 1], [1, 0, 0, 1]], "3 of 4 .* teach nothing: a1, a2, a3$"),
    ],
)
def test_fit_warns_of_constant_attributes_unless_they_are_usual(rows, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SemFS(1, attributes=rows).fit([[0.0, 1], [1, 0], [1, 1]], [0, 1, 1])
    assert len(caught) == (message is not None)
    assert all(re.search(message, str(w.message).rstrip(".")) for w in caught)
