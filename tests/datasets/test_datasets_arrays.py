"""Arrays, matrices and features out of files: right ones are read, broken ones explained."""

import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.io import loadmat, savemat

import semfs.files
from semfs.datasets import load_npz, read_features
from semfs.datasets.matlab import names_in_mat, read_h5, read_mat
from semfs.files import FileError
from semfs.rows.readers import read_npy, read_npz

h5py = pytest.importorskip("h5py")
pytest.importorskip("pandas")

SHARED = Path(__file__).parents[3] / "shared" / "data"
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
    parts = {k: v for k, v in (parts | changes).items() if v is not None}
    np.savez(path, **parts)
    return path


def write_mat73(path, arrays, cells):
    """A version-7.3 file as MATLAB writes it: arrays turned, text as cells of references."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = np.asarray(values).T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
        for name, texts in cells.items():
            references = np.empty((1, len(texts)), dtype=h5py.ref_dtype)
            for i, text in enumerate(texts):
                item = file.create_dataset(f"#refs#/{name}{i}", data=[[ord(c)] for c in text])
                references[0, i] = item.ref
            file.create_dataset(name, data=references, dtype=h5py.ref_dtype)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


# --- npz data sets ---------------------------------------------------------------------


def test_npz_gives_names_attributes_and_split(tmp_path):
    data = load_npz(save_farm(tmp_path / "farm.npz"))
    assert data.name == "farm"
    assert data.X.dtype == np.float32
    assert_array_equal(data.X, X)
    assert_array_equal(data.y, ["cat", "ant", "hen", "cat"])
    assert data.unseen.tolist() == ["hen"]
    assert data.attributes.loc["hen"].to_dict() == {"legs": 2.0, "wings": 1.0}


def test_npz_without_names_uses_ids_as_labels(tmp_path):
    data = load_npz(save_farm(tmp_path / "a.npz", classes=None, unseen=None, attributes=None))
    assert data.y.tolist() == [0, 1, 2, 0]
    assert list(data.attributes.columns) == ["a0", "a1"]


def test_npz_labels_may_be_names_and_another_table_may_be_chosen(tmp_path):
    path = save_farm(tmp_path / "a.npz", y=np.array(["hen", "hen", "cat", "ant"]), A2=np.eye(3))
    data = load_npz(path, table="A2")
    assert data.y.tolist() == ["hen", "hen", "cat", "ant"]
    assert data.attributes.shape == (3, 3)


def test_sparse_npz_stays_sparse(tmp_path):
    S = sparse.csr_array(X)
    path = save_farm(
        tmp_path / "a.npz",
        X=None,
        X_data=S.data,
        X_indices=S.indices,
        X_indptr=S.indptr,
        X_shape=np.array(S.shape),
    )
    data = load_npz(path)
    assert sparse.issparse(data.X)
    assert_array_equal(data.X.toarray(), X)


def test_uncompressed_arrays_are_memory_mapped_and_compressed_ones_are_not(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, F=np.asfortranarray(X))
    np.savez_compressed(tmp_path / "b.npz", X=X)
    found = read_npz(tmp_path / "a.npz")
    assert isinstance(found["X"], np.memmap)
    assert_array_equal(found["X"], X)
    assert_array_equal(found["F"], X)
    assert not isinstance(read_npz(tmp_path / "b.npz")["X"], np.memmap)


def test_npy_is_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert isinstance(read_npy(tmp_path / "x.npy"), np.memmap)


# --- features --------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["npy", "npz", "mat", "73.mat", "h5"])
def test_features_are_read_from_every_format(tmp_path, ending):
    path = tmp_path / f"f.{ending}"
    if ending == "npy":
        np.save(path, X)
    elif ending == "npz":
        np.savez(path, features=X, other=np.zeros(2))
    elif ending == "mat":
        savemat(path, {"features": X.T})  # one column per sample, as MATLAB users do
    elif ending == "73.mat":
        write_mat73(path, {"features": X.T}, {})
    else:
        with h5py.File(path, "w") as file:
            file["features"] = X
    assert_array_equal(read_features(path, 4), X)


def test_wrong_number_of_rows_says_which_was_expected(tmp_path):
    np.save(tmp_path / "f.npy", X)
    with pytest.raises(FileError, match="has 4 rows, expected 14340"):
        read_features(tmp_path / "f.npy", 14340)
    with pytest.raises(FileError, match=r"has 4 rows, expected 3.*seems transposed"):
        read_features(tmp_path / "f.npy", 3)


def test_features_by_key_and_ambiguous_files(tmp_path):
    np.savez(tmp_path / "f.npz", a=X, b=X + 1)
    assert_array_equal(read_features(tmp_path / "f.npz", 4, key="b"), X + 1)
    with pytest.raises(FileError, match=r"holds 2 arrays \(a, b\)"):
        read_features(tmp_path / "f.npz", 4)
    with pytest.raises(FileError, match="has no array 'c'"):
        read_features(tmp_path / "f.npz", 4, key="c")


# --- MATLAB ----------------------------------------------------------------------------


def test_both_mat_versions_give_the_same(tmp_path):
    names = ["abbey", "tea room", "ünïcode"]
    cells = np.empty((3, 1), dtype=object)
    cells[:, 0] = names
    savemat(tmp_path / "5.mat", {"M": X, "names": cells}, do_compression=True)
    write_mat73(tmp_path / "73.mat", {"M": X}, {"names": names})
    for version in ("5", "73"):
        found = read_mat(tmp_path / f"{version}.mat", ["M", "names", "absent"])
        assert_array_equal(found["M"], X)
        assert found["names"] == names
        assert set(found) == {"M", "names"}
        assert {"M", "names"} <= set(names_in_mat(tmp_path / f"{version}.mat"))


def test_own_reader_agrees_with_scipy_on_every_type(tmp_path):
    rng = np.random.default_rng(0)
    kinds = ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
    content = {f"v{kind}": (rng.normal(size=(3, 4)) * 50).astype(kind) for kind in kinds}
    content |= {"cube": np.arange(24.0).reshape(2, 3, 4), "text": "hello ü"}
    content |= {"rows": np.array(["ab", "cd"]), "none": np.zeros((0, 3))}
    for compressed in (False, True):
        savemat(tmp_path / "x.mat", content, do_compression=compressed)
        theirs, ours = loadmat(tmp_path / "x.mat"), read_mat(tmp_path / "x.mat", list(content))
        for name in content:
            assert_array_equal(ours[name], theirs[name])
            assert ours[name].dtype.kind == theirs[name].dtype.kind


def test_sparse_matrices_and_big_endian_files(tmp_path):
    savemat(tmp_path / "s.mat", {"S": sparse.csc_array(np.eye(4))})
    assert_array_equal(read_mat(tmp_path / "s.mat", ["S"])["S"].toarray(), np.eye(4))
    element = struct.pack(">6I", 6, 8, 6, 0, 5, 8) + struct.pack(">2i", 1, 2)
    element += struct.pack(">I", 1 << 16 | 1) + b"M\0\0\0"  # a small element: the name
    element += struct.pack(">2I2d", 9, 16, 1.5, -2)
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    (tmp_path / "b.mat").write_bytes(header + struct.pack(">2I", 14, len(element)) + element)
    assert_array_equal(read_mat(tmp_path / "b.mat", ["M"])["M"], [[1.5, -2.0]])


def test_nested_and_empty_cells_of_text_keep_their_places(tmp_path):
    cells = np.empty((3, 1), dtype=object)
    for i, text in enumerate(["a", "", "c"]):
        inner = np.empty((1, 1), dtype=object)
        inner[0, 0] = text
        cells[i, 0] = inner
    savemat(tmp_path / "n.mat", {"names": cells})
    assert read_mat(tmp_path / "n.mat", ["names"])["names"] == ["a", "", "c"]


def test_external_links_in_hdf5_are_not_followed(tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["X"] = X
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = h5py.ExternalLink("secret.h5", "X")
        file.create_dataset("raw", (4,), "u1", external=[(str(tmp_path / "secret.h5"), 0, 4)])
    for name in ("X", "raw"):
        with pytest.raises(FileError, match=r"another file|other files"):
            read_h5(tmp_path / "a.h5", name)


# --- hostile and broken files ------------------------------------------------------------


class Boom:
    def __reduce__(self):
        return (Path.touch, (Path("/nonexistent/boom"),))


def broken_npz(path, kind):
    if kind == "truncated":
        save_farm(path)
        path.write_bytes(path.read_bytes()[:-300])
    elif kind == "not a zip":
        path.write_bytes(b"hello" * 100)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "object array":
        np.savez(path, X=X, y=np.array([Boom()] * 4, dtype=object), A=np.eye(3))
    elif kind == "pickle":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", pickle.dumps(Boom()))
    elif kind == "declared larger":
        header = b"\x93NUMPY\x01\x00v\x00"
        text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999, 99), }"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", header + text.ljust(117) + b"\n" + b"\0" * 800)
    elif kind == "zip bomb":
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("X.npy", "w") as file,
        ):
            for _ in range(4):
                file.write(bytes(2**20))
    elif kind == "crc":
        save_farm(path)
        data = bytearray(path.read_bytes())
        data[data.find(b"classes.npy") + 150] ^= 0xFF
        path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "kind, message",
    [
        ("truncated", "not a readable .npz"),
        ("not a zip", "not a readable .npz"),
        ("empty", "not a readable .npz"),
        ("object array", "pickled Python objects, which are refused"),
        ("pickle", "not a readable .npz"),
        ("declared larger", "says it has"),
        ("zip bomb", "would expand from .* to 4.2 MB, as a zip bomb does"),
        ("crc", "not a readable .npz"),
    ],
)
def test_broken_npz_is_one_line(tmp_path, monkeypatch, kind, message):
    monkeypatch.setattr(semfs.files, "LARGE", 2**20)  # a small bomb will do
    with pytest.raises(FileError, match=message) as caught:
        read_npz(broken_npz(tmp_path / "x.npz", kind))
    assert "\n" not in str(caught.value)
    assert "x.npz" in str(caught.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": None}, "has no array 'X'; found A, attributes, classes, unseen, y"),
        ({"y": None}, "has no array 'y'"),
        ({"A": None}, "has no array 'A'"),
        ({"X": X.ravel()}, "X has shape"),
        ({"X": X.astype(str)}, "a matrix of numbers"),
        ({"A": np.eye(2)}, "classes has 3 names but the attribute table has 2 rows"),
        ({"y": np.array([1, 2, 3, 1])}, "class id 3.*Ids start at 0"),
        ({"y": np.array([0, 1, -2, 1])}, "class id -2"),
        ({"unseen": np.array([7])}, "unseen holds class id 7"),
        ({"classes": np.array(["cat", "cat", "hen"])}, "'cat' more than once"),
        ({"y": np.array([0, 1])}, "X has 4 rows but y has 2"),
        (
            {
                "X": None,
                "X_data": np.ones(2),
                "X_indices": np.array([0, 99]),
                "X_indptr": np.array([0, 1, 2, 2, 2]),
                "X_shape": np.array([4, 3]),
            },
            "not a readable data set",
        ),
    ],
)
def test_wrong_content_of_npz_is_explained(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_npz(save_farm(tmp_path / "x.npz", **changes))
    assert "\n" not in str(caught.value)


def broken_mat(path, kind):
    savemat(path, {"M": np.arange(20_000.0)}, do_compression=True)
    data = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "version 4":
        savemat(path, {"M": X}, format="4")
    elif kind == "not a mat":
        path.write_bytes(b"hello" * 100)
    elif kind == "damaged":
        path.write_bytes(data[:300] + bytes(50) + data[350:])
    elif kind == "struct":
        savemat(path, {"M": {"a": 1}})
    elif kind == "cell of numbers":
        savemat(path, {"M": np.array([[1], [2]], dtype=object)})
    elif kind == "truncated 7.3":
        write_mat73(path, {"M": np.arange(20_000.0)[None]}, {})
        path.write_bytes(path.read_bytes()[:3000])
    elif kind == "hdf5 bomb":
        with h5py.File(path, "w", userblock_size=512) as file:
            file.create_dataset("M", (2**20, 2**12), "f8", chunks=(1024, 1024))
    return path


@pytest.mark.parametrize(
    "kind, message",
    [
        ("truncated", "truncated"),
        ("version 4", "not a MATLAB file of version 5 or 7.3"),
        ("not a mat", "not a MATLAB file of version 5 or 7.3"),
        ("damaged", "not a readable .mat|is damaged"),
        ("struct", "M is a struct, an object"),
        ("cell of numbers", "M is a cell array of something other than text"),
        ("truncated 7.3", "not a readable .mat"),
        ("hdf5 bomb", "declares|would expand"),
    ],
)
def test_broken_mat_is_one_line(tmp_path, kind, message):
    with pytest.raises(FileError, match=message) as caught:
        read_mat(broken_mat(tmp_path / "x.mat", kind), ["M"])
    assert "\n" not in str(caught.value)


def test_compressed_mat_bomb_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(semfs.files, "LARGE", 2**20)
    savemat(tmp_path / "x.mat", {"M": np.zeros((2**9, 2**11))}, do_compression=True)
    with pytest.raises(FileError, match="would expand"):
        read_mat(tmp_path / "x.mat", ["M"])


def test_missing_files_suggest_their_neighbours(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(FileNotFoundError, match=r"Did you mean x\.npy\?"):
        load_npz(tmp_path / "x.npz")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        load_npz(tmp_path)


# --- the real files --------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.exists(), reason="measuring data are not here")
@pytest.mark.parametrize(
    "name, shape, n_attributes, n_classes",
    [
        ("apy_lite0_head1280", (12924, 1280), 64, 24),
        ("animals31_awa85_lite0_head1280", (1860, 1280), 85, 31),
        ("clinc150", (22500, 1975), 384, 150),
        ("clinc150_minilm384", (9000, 384), 384, 150),
    ],
)
def test_measuring_data_load(name, shape, n_attributes, n_classes):
    data = load_npz(SHARED / f"{name}.npz")
    assert data.X.shape == shape
    assert data.X.dtype == np.float32
    assert data.attributes.shape[1] == n_attributes
    assert len(data.classes) == n_classes
