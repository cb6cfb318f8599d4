"""Class attributes from marker lists."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from semfs import SemFS
from semfs.attributes import attributes_from_markers
from semfs.files import FileError

pd = pytest.importorskip("pandas")

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
        ([], "0 rows of 0 cells"),
        ([("T",), ("B",)], "2 rows of 1 cells; a class, a marker"),
        (["CD19", "CD3D"], "holds 'CD19'; a class, a marker"),
        ([3, 4], "holds 3; a class"),
        ({"T": ["CD3D"]}, "holds 'T'; a class"),
        ([("T", "CD3D"), ("T", None)], r"empty class or marker \(T, None\)"),
        ([(" ", "CD3D")], "empty class or marker"),
        ([("T", "CD3D", 1), ("T", "CD3D", 2)], r"two weights \(T, CD3D, 2\)"),
        ([("T", "CD3D", "high")], "weight that is no number .*high"),
        ([("T", "CD3D", "1e9993547034516")], "weight that is no number"),
        ([("T", "CD3D", np.inf)], "weight that is no number.*inf"),
        ([("T", "CD3D", 1.0), ("T", "IL7R")], "weight that is no number"),
    ],
)
def test_lists_that_are_no_markers_are_refused(markers, message):
    with pytest.raises(ValueError, match=message):
        attributes_from_markers(markers)


def test_files_that_are_no_markers_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"read from \.csv"):
        attributes_from_markers(write(tmp_path / "m.xlsx", PAIRS))
    with pytest.raises(FileError, match="starts with class 'T'; a header line was expected"):
        attributes_from_markers(write(tmp_path / "m.csv", PAIRS))
    with pytest.raises(FileError, match="rows of 2 and of 3 cells"):
        attributes_from_markers(write(tmp_path / "m.csv", ["cg", "ab", "abc"]))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        attributes_from_markers(tmp_path / "none.csv")
