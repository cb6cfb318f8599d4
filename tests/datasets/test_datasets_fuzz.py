"""Fuzzing of what `tools/fuzz.py` leaves out: a parser returns, or raises a readable error."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from semfs.attributes import encode_class_names, read_names
from semfs.datasets import load_cifar10, load_xlsa17

pytest.importorskip("pandas")

#: All that may come out of a parser besides a result.
READABLE = (ValueError, FileNotFoundError)
EXAMPLES = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
    database=None,
)


@st.composite
def damaged(draw, data):
    """A real file with bytes changed, cut out, put in or cut off."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["change", "cut", "insert", "end"]))
        if kind == "change" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[place : place + draw(st.integers(1, 64))]
        elif kind == "insert":
            data[place:place] = draw(st.binary(max_size=16))
        elif kind == "end":
            del data[place:]
    return bytes(data)


def survives(read, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        message = ""
        try:
            read(path)
        except READABLE as error:
            message = str(error)
        assert "\n" not in message


TEXTS = {
    "names.tsv": ("a\ttext\n", lambda p: read_names(str(p))),
    "vectors.txt": ("a 1 2\nb 0.5 1\n", lambda p: encode_class_names(["a"], p)),
    "data_batch_1.bin": ("\1" + "x" * 3072, lambda p: load_cifar10(p.parent)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_files_never_raise_anything_else(tmp_path, name):
    original, read = TEXTS[name]

    @EXAMPLES
    @given(damaged(original.encode()))
    @example(b"\xff\xfe\x00")
    @example(b"")
    @example(b"[" * 100_000)
    def run(content):
        (tmp_path / name).write_bytes(content)
        survives(read, tmp_path / name)

    run()


shapes = st.tuples(st.integers(0, 5), st.integers(0, 5))


@EXAMPLES
@given(
    features=shapes,
    att=shapes,
    labels=st.lists(st.integers(-1, 5), max_size=5),
    unseen=st.lists(st.integers(-1, 7), max_size=4),
    names=st.lists(st.text("abc", max_size=3), max_size=4),
)
def test_arbitrary_benchmark_folders_never_raise_anything_else(
    tmp_path, features, att, labels, unseen, names
):
    folder = tmp_path / "ZOO"
    folder.mkdir(exist_ok=True)
    cells = np.empty((len(names), 1), dtype=object)
    cells[:, 0] = names
    savemat(folder / "res101.mat", {"features": np.zeros(features), "labels": labels})
    splits = {"att": np.ones(att), "allclasses_names": cells, "test_unseen_loc": unseen}
    savemat(folder / "att_splits.mat", splits)
    survives(lambda root: load_xlsa17(root, "ZOO"), tmp_path)
