"""Data sets and features out of files: right ones are read, broken ones explained."""

import struct
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.io import loadmat, savemat

from semfs.datasets import load_npz, load_table, read_features
from semfs.datasets.files import class_descriptions
from semfs.io.mat import names_in_mat, read_mat
from semfs.io.safety import FileError

h5py = pytest.importorskip("h5py")
pytest.importorskip("pandas")

X = np.arange(12.0).reshape(4, 3)


def save_farm(path, **changes):
    parts = {
        "X": X.astype(np.float16),
        "y": np.array([0, 1, 2, 0]),
        "A": np.array([[4.0, 0], [6, 0], [2, 1]]),
        "classes": np.array(["cat", "ant", "hen"]),
        "unseen": np.array([2]),
        "attributes": np.array(["legs", "wings"]),
    }
    np.savez(path, **{k: v for k, v in (parts | changes).items() if v is not None})
    return path


def write_mat73(path, arrays):
    """A version-7.3 file as MATLAB writes it: arrays turned."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = np.asarray(values).T
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def test_npz_gives_names_attributes_and_split(tmp_path):
    data = load_npz(save_farm(tmp_path / "farm.npz"))
    assert data.name == "farm"
    assert data.X.dtype == np.float32
    assert_array_equal(data.X, X)
    assert_array_equal(data.y, ["cat", "ant", "hen", "cat"])
    assert data.unseen.tolist() == ["hen"]
    assert data.attributes.loc["hen"].to_dict() == {"legs": 2.0, "wings": 1.0}


def test_rows_without_a_label_are_left_out_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="1 unlabeled samples were left out"):
        data = load_npz(save_farm(tmp_path / "farm.npz", y=np.array([0, -1, 2, 0])))
    assert_array_equal(data.X, X[[0, 2, 3]])


SPARSE = {"X_data": np.ones(2), "X_indices": np.array([0, 99]), "X_shape": np.array([4, 3])}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": None}, "has no array 'X'. Found: A"),
        ({"y": None}, r"has no array 'y'. Found: .* Expected arrays: X \(samples × features\)"),
        (
            {"y": np.array([1, 2, 3, 1]), "classes": None, "unseen": None},
            "no row for class 3.*start at 1, subtract 1",
        ),
        (
            {"y": np.array([0, 1, 2, 3]), "A": np.eye(2), "classes": None, "unseen": None},
            "no row for class 2.*transpose the array",
        ),
        ({"A": None}, "no class descriptions given. Pass attributes: .*array A"),
        ({"X": X.ravel()}, r"has shape \(12,\)"),
        ({"X": X.astype(str)}, "a matrix of numbers"),
        ({"A": np.eye(2)}, "classes has 3 names, but the attribute table has 2 rows"),
        ({"y": np.array([1, 2, 3, 1])}, "class id 3.*Ids start at 0"),
        ({"y": np.array([0, 1, -2, 1])}, "class id -2"),
        ({"y": np.array([{}] * 4, dtype=object)}, "pickled Python objects, which are refused"),
        ({"unseen": np.array([7])}, "unseen holds class id 7"),
        ({"classes": np.array(["cat", "cat", "hen"])}, "'cat' more than once"),
        ({"y": np.array([0, 1])}, "X has 4 rows but y has 2"),
        (
            {"X": None, "X_indptr": np.array([0, 1, 2, 2, 2])} | SPARSE,
            "column index 99 is out of range for 3 columns",
        ),
    ],
)
def test_wrong_content_of_npz_is_explained(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_npz(save_farm(tmp_path / "x.npz", **changes))
    assert "\n" not in str(caught.value)


# --- class descriptions of a file ------------------------------------------------------


def write_cells(path):
    path.write_text("kind,g1,g2\nB,0,1\nT,1,0\nB,0,2\n")
    return path


def test_without_descriptions_classes_are_described_by_their_labels_alone(tmp_path):
    path = write_cells(tmp_path / "cells.csv")
    assert class_descriptions(path, None, ["B", "T"]) == (None, [])
    assert class_descriptions(path, "labels", ["B", "T"]) == (None, [])
    farm = save_farm(tmp_path / "farm.npz", A=None)
    table, unseen = class_descriptions(farm, None, ["cat", "ant", "hen"])
    assert table is None
    assert unseen == ["hen"]


def test_a_data_set_needs_descriptions_or_the_word_labels(tmp_path):
    path = write_cells(tmp_path / "cells.csv")
    data = load_table(path, "kind", "labels")
    assert_array_equal(data.attributes, np.eye(2))
    assert data.attributes.index.tolist() == data.attributes.columns.tolist() == ["B", "T"]
    with pytest.raises(
        FileError, match=r"no class descriptions given\. Pass attributes"
    ) as caught:
        load_table(path, "kind")
    assert "--" not in str(caught.value)  # options of the command line are not the library's


def test_given_descriptions_go_before_those_of_the_file(tmp_path):
    farm = save_farm(tmp_path / "farm.npz")
    stored, unseen = class_descriptions(farm, None, ())
    assert stored.loc["ant"].tolist() == [6.0, 0.0]
    given, unseen_too = class_descriptions(farm, {"ant": [1.0], "cat": [2.0]}, ())
    assert given.loc["ant"].tolist() == [1.0]
    assert unseen == unseen_too == ["hen"]


# --- features --------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["npy", "npz", "mat", "73.mat", "h5", "csv"])
def test_features_are_read_from_every_format(tmp_path, ending):
    path = tmp_path / f"f.{ending}"
    if ending == "npy":
        np.save(path, X.astype(np.float16))
    elif ending == "npz":
        np.savez(path, X=X, other=np.zeros(2))
    elif ending == "mat":
        savemat(path, {"features": X.T, "other": 1})  # one column per sample
    elif ending == "73.mat":
        write_mat73(path, {"features": X.T})
    elif ending == "h5":
        with h5py.File(path, "w") as file:
            file["features"] = X
    else:
        path.write_text("a,b,c\n" + "".join(f"{a},{b},{c}\n" for a, b, c in X))
    assert_array_equal(read_features(path, 4), X)


def test_features_that_do_not_fit_say_what_was_expected(tmp_path):
    np.save(tmp_path / "f.npy", X)
    with pytest.raises(FileError, match="has 4 rows, expected 14340"):
        read_features(tmp_path / "f.npy", 14340)
    with pytest.raises(FileError, match=r"has 4 rows, expected 3.*seems transposed"):
        read_features(tmp_path / "f.npy", 3)
    savemat(tmp_path / "f.mat", {"a": X, "b": X + 1})
    with pytest.raises(FileError, match=r"holds 2 arrays \(a, b\)"):
        read_features(tmp_path / "f.mat", 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = h5py.ExternalLink("secret.h5", "X")
    with pytest.raises(FileError, match="holds nothing"):
        read_features(tmp_path / "a.h5")


# --- MATLAB ----------------------------------------------------------------------------


def test_big_endian_files_are_read(tmp_path):
    element = struct.pack(">6I", 6, 8, 6, 0, 5, 8) + struct.pack(">2i", 1, 2)
    element += struct.pack(">I", 1 << 16 | 1) + b"M\0\0\0"  # a small element: the name
    element += struct.pack(">2I2d", 9, 16, 1.5, -2)
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    (tmp_path / "b.mat").write_bytes(header + struct.pack(">2I", 14, len(element)) + element)
    assert_array_equal(read_mat(tmp_path / "b.mat", "M"), [[1.5, -2.0]])
    assert names_in_mat(tmp_path / "b.mat") == ["M"]


@pytest.mark.parametrize("compressed", [False, True])
def test_own_reader_agrees_with_scipy_on_every_type(tmp_path, compressed):
    rng = np.random.default_rng(0)
    kinds = ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
    content = {f"v{kind}": (rng.normal(size=(3, 4)) * 50).astype(kind) for kind in kinds}
    savemat(tmp_path / "x.mat", content | {"none": np.zeros((0, 3))}, do_compression=compressed)
    for name, theirs in loadmat(tmp_path / "x.mat").items():
        if not name.startswith("__"):
            ours = read_mat(tmp_path / "x.mat", name)
            assert_array_equal(ours, theirs)
            assert ours.dtype.kind == theirs.dtype.kind


def test_nested_and_empty_cells_of_text_keep_their_places(tmp_path):
    cells = np.empty((3, 1), dtype=object)
    for i, text in enumerate(["ünïcode", "", "c"]):
        inner = np.empty((1, 1), dtype=object)
        inner[0, 0] = text
        cells[i, 0] = inner
    savemat(tmp_path / "n.mat", {"names": cells})
    assert read_mat(tmp_path / "n.mat", "names", list) == ["ünïcode", "", "c"]


def write_bomb(path):
    """A compressed variable that says that it has 1 GB."""
    savemat(path, {"M": np.zeros((2, 3))}, do_compression=True)
    data = path.read_bytes()
    # the header of the file, then type and size of the variable, then zlib's stream
    variable = bytearray(zlib.decompress(data[136:]))
    variable[4:8] = (10**9).to_bytes(4, "little")
    stream = zlib.compress(bytes(variable))
    path.write_bytes(data[:132] + len(stream).to_bytes(4, "little") + stream)


def broken_mat(path, kind):
    savemat(path, {"M": np.arange(20_000.0)}, do_compression=True)
    data = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "version 4":
        savemat(path, {"M": X}, format="4")
    elif kind == "damaged":
        path.write_bytes(data[:300] + bytes(50) + data[350:])
    elif kind == "struct":
        savemat(path, {"M": {"a": 1}})
    elif kind == "cell of numbers":
        savemat(path, {"M": np.array([[1], [2]], dtype=object)})
    elif kind == "cube":
        savemat(path, {"M": np.zeros((2, 3, 4))})
    elif kind == "bomb":
        write_bomb(path)
    elif kind == "truncated 7.3":
        write_mat73(path, {"M": np.arange(20_000.0)[None]})
        path.write_bytes(path.read_bytes()[:3000])
    elif kind == "hdf5 bomb":
        with h5py.File(path, "w", userblock_size=512) as file:
            file.create_dataset("M", (2**20, 2**12), "f8", chunks=(1024, 1024))
    return path


@pytest.mark.parametrize(
    "kind, message",
    [
        ("truncated", "truncated"),
        ("version 4", "not a version 5 MATLAB file"),
        ("damaged", "not a readable .mat|is damaged"),
        ("struct", "M must be an array of"),
        ("cell of numbers", "M is a cell array of something other than text"),
        ("cube", "M must be a matrix of numbers"),
        ("bomb", r"claims 1\.0 GB"),
        ("truncated 7.3", "not a readable HDF5"),
        ("hdf5 bomb", "declares|claims"),
    ],
)
def test_broken_mat_is_one_line(tmp_path, kind, message):
    with pytest.raises(FileError, match=message) as caught:
        read_features(broken_mat(tmp_path / "x.mat", kind))
    assert "\n" not in str(caught.value)
