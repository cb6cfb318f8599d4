"""Fuzzing: whatever a file holds, a parser returns or raises an error a user can read."""

import io
import os
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from semfs.attributes.encoders import encode_class_names, read_names
from semfs.attributes.files import read_attributes
from semfs.datasets import load_h5ad, load_npz, load_table, load_xlsa17, read_features
from semfs.datasets.originals import _read_batch

pd = pytest.importorskip("pandas")
h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")

#: All that may come out of a parser besides a result.
READABLE = (ValueError, FileNotFoundError)
TABLE = {"a": [0.0], "b": [1.0], "1": [2.0]}
#: SEMFS_FUZZ=5000 looks longer, and elsewhere every time.
LONGER = os.environ.get("SEMFS_FUZZ")
EXAMPLES = settings(
    max_examples=int(LONGER or 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=LONGER is None,
    database=None,
)


def npz_bytes():
    out = io.BytesIO()
    np.savez_compressed(out, X=np.eye(3), y=[0, 1, 1], A=np.eye(2), classes=["a", "b"])
    return out.getvalue()


def plain_npz_bytes():
    out = io.BytesIO()
    np.savez(out, X=np.eye(3), y=[0, 1, 1], A=np.eye(2), classes=["a", "b"])
    return out.getvalue()


def npy_bytes():
    out = io.BytesIO()
    np.save(out, np.eye(4))
    return out.getvalue()


def mat_bytes(compressed):
    out = io.BytesIO()
    names = np.empty((2, 1), dtype=object)
    names[:, 0] = ["a", "b"]
    content = {"features": np.eye(3), "labels": [[1], [2], [2]], "allclasses_names": names}
    savemat(out, content, do_compression=compressed)
    return out.getvalue()


def h5_bytes():
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file["X"] = np.eye(3)
        obs = file.create_group("obs")
        obs["label"] = np.array(["a", "b", "b"], dtype=h5py.string_dtype())
        var = file.create_group("var")
        var["_index"] = np.array(["x", "y", "z"], dtype=h5py.string_dtype())
    return out.getvalue()


def parquet_bytes():
    out = io.BytesIO()
    pd.DataFrame({"label": ["a", "b"], "x": [1.0, 2.0]}).to_parquet(out)
    return out.getvalue()


def excel_bytes():
    pytest.importorskip("openpyxl")
    out = io.BytesIO()
    pd.DataFrame({"label": ["a", "b"], "x": [1.0, 2.0]}).to_excel(out, index=False)
    return out.getvalue()


@st.composite
def damaged(draw, data):
    """A real file with bytes changed, cut out, put in or cut off."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["change", "cut", "insert", "end", "zero"]))
        if kind == "change" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[place : place + draw(st.integers(1, 64))]
        elif kind == "insert":
            data[place:place] = draw(st.binary(max_size=16))
        elif kind == "end":
            del data[place:]
        elif kind == "zero":
            data[place : place + 8] = bytes(8)
    return bytes(data)


def survives(path, content, read):
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        message = ""
        try:
            read(path)
        except READABLE as error:
            message = str(error)
        assert "\n" not in message


PARSERS = {
    "npz": (npz_bytes, load_npz),
    "plain.npz": (plain_npz_bytes, load_npz),
    "npy": (npy_bytes, read_features),
    "mat": (lambda: mat_bytes(False), read_features),
    "packed.mat": (lambda: mat_bytes(True), read_features),
    "h5": (h5_bytes, read_features),
    "h5ad": (h5_bytes, lambda p: load_h5ad(p, "label", TABLE)),
    "parquet": (parquet_bytes, lambda p: load_table(p, "label", TABLE)),
    "table.parquet": (parquet_bytes, read_attributes),
    "xlsx": (excel_bytes, read_attributes),
}


@pytest.mark.parametrize("ending", PARSERS)
def test_damaged_binary_files_never_raise_anything_else(tmp_path, ending):
    make, read = PARSERS[ending]
    original = make()
    read(_written(tmp_path / f"good.{ending}", original))  # the undamaged file loads

    @EXAMPLES
    @given(damaged(original))
    def run(content):
        survives(tmp_path / f"x.{ending}", content, read)

    run()


def _written(path, content):
    path.write_bytes(content)
    return path


TEXTS = {
    "csv": ("label,x,y\na,1,2\nb,0.5,NA\n", lambda p: load_table(p, "label", TABLE)),
    "attributes.csv": ("c,x\na,1\nb,yes\n", read_attributes),
    "json": ('{"a": {"x": 1}, "b": {"x": 2}}', read_attributes),
    "names.tsv": ("a\ttext\n", lambda p: read_names(str(p))),
    "vectors.txt": ("a 1 2\nb 0.5 1\n", lambda p: encode_class_names(["a"], p)),
    "batch.bin": ("\1" + "x" * 3072, _read_batch),
}


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_text_files_never_raise_anything_else(tmp_path, name):
    original, read = TEXTS[name]

    @EXAMPLES
    @given(damaged(original.encode()))
    @example(b"\xff\xfe\x00")
    @example(b"")
    @example(b"[" * 100_000)
    def run(content):
        survives(tmp_path / f"x.{name}", content, read)

    run()


shapes = st.tuples(st.integers(0, 5), st.integers(0, 5))


@EXAMPLES
@given(
    features=shapes,
    att=shapes,
    labels=st.lists(st.integers(-1, 5), max_size=5),
    unseen=st.lists(st.integers(-1, 7), max_size=4),
    names=st.lists(st.text(max_size=3), max_size=4),
)
def test_arbitrary_benchmark_folders_never_raise_anything_else(
    tmp_path, features, att, labels, unseen, names
):
    folder = tmp_path / "ZOO"
    folder.mkdir(exist_ok=True)
    cells = np.empty((len(names), 1), dtype=object)
    cells[:, 0] = [n.encode("ascii", "ignore").decode() for n in names]
    savemat(folder / "res101.mat", {"features": np.zeros(features), "labels": labels})
    savemat(
        folder / "att_splits.mat",
        {"att": np.ones(att), "allclasses_names": cells, "test_unseen_loc": unseen},
    )
    message = ""
    try:
        load_xlsa17(tmp_path, "ZOO")
    except READABLE as error:
        message = str(error)
    assert "\n" not in message
