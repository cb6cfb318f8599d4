"""Saved selectors come back the same, and a file can never make us run code."""

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from problems import OLD_DEFAULTS, make_problem
from semfs import SemFS, SemFSCV, baselines, load, save
from semfs.attributes import AttributeTable
from semfs.datasets import load_sample
from semfs.io.safety import FileError
from semfs.selectors.persistence.format import FORMAT

STORED = Path(__file__).parents[1] / "data" / "selector_format1.npz"


def toy():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    X = rng.normal(size=(40, 7)) + 2.0 * np.eye(4, 7)[y]
    return X, np.array(["ant", "bee", "cat", "dog"])[y]


TABLE = {"ant": [0.0, 6.0], "bee": [1.0, 6.0], "cat": [0.0, 4.0], "dog": [0.5, 4.0]}


def assert_same(first, second):
    """Assert that two values are of one type and equal, in depth."""
    assert type(first) is type(second)
    if isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        assert_array_equal(first, second)
    elif isinstance(first, (AttributeTable, SemFS)):
        public = [key for key in vars(first) if not key.startswith("_")]
        assert_same(
            [getattr(first, key) for key in public], [getattr(second, key) for key in public]
        )
    elif isinstance(first, dict):
        assert_same(list(first.items()), list(second.items()))
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second)
        for one, other in zip(first, second):
            assert_same(one, other)
    elif hasattr(first, "equals"):
        assert first.equals(second)
        assert list(first.columns) == list(second.columns)
    else:
        assert first == second or (first != first and second != second)


def selectors():
    start = (np.zeros((7, 2)), np.zeros((40, 2)))
    return [
        SemFS(3, attributes=TABLE, include=[5], exclude=(1,)),
        SemFS(3, attributes=TABLE, solver="alternating", s_init=np.ones(7), step=1e-3),
        SemFS(3, class_weight={"ant": 2.0, "bee": 0.5}),
        SemFSCV(3, TABLE, param_grid={"gamma": [0.3, 1.0]}, n_repeats=1, random_state=0),
        baselines.RandomSelector(3, random_state=1),
        baselines.VarianceSelector(3),
        baselines.Markers(3),
        baselines.MCFS(3, n_components=2, random_state=0),
        baselines.FSASL(3, n_components=2, max_iter=2),
        baselines.LassoSelector(3, attributes=TABLE),
        baselines.L20ALM(3, attributes=TABLE, init=start, max_iter=5),
        baselines.WkNN(3, max_iter=5),
    ]


@pytest.mark.parametrize("selector", selectors(), ids=lambda s: type(s).__name__)
@pytest.mark.filterwarnings("ignore")
def test_every_selector_comes_back_the_same(selector, tmp_path):
    X, y = toy()
    selector.fit(X, y)
    back = load(save(selector, tmp_path / "it"))
    assert type(back) is type(selector)
    assert_same(selector.get_params(), back.get_params())
    kept = [key for key in vars(selector) if key.endswith("_")]
    assert_same([getattr(selector, key) for key in kept], [getattr(back, key) for key in kept])
    assert_array_equal(back.transform(X), selector.transform(X))
    assert back.fit(X, y).n_features_in_ == 7


def tables():
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    frame = pd.DataFrame.from_dict(TABLE, orient="index", columns=["flies", "legs"])
    frame["small"] = [True, True, False, False]
    frame.index.name = "kind"
    words = pl.DataFrame({"kind": list(TABLE), "legs": [6, 6, 4, 4], "flies": [0.0, 1, 0, 0.5]})
    return {"pandas": frame, "polars": words, "dict": TABLE, "array": np.eye(4)}


@pytest.mark.parametrize("kind", ["pandas", "polars", "dict", "array"])
def test_attribute_tables_of_all_kinds_come_back(kind, tmp_path):
    X, y = toy()
    y = y if kind != "array" else np.arange(40) % 4
    selector = SemFS(2, attributes=tables()[kind]).fit(X, y)
    back = load(save(selector, tmp_path / "it.npz"))
    assert_same(selector.attributes, back.attributes)
    assert_same(selector.classes_, back.classes_)
    assert_array_equal(back.predict(X), selector.predict(X))
    assert_array_equal(back.fit(X, y).order_, selector.order_)


def test_names_and_the_output_setting_come_back(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = toy()
    frame = pd.DataFrame(X, columns=[f"gene <{i}>" for i in range(7)])
    selector = SemFS(2).set_output(transform="pandas").fit(frame, y)
    back = load(save(selector, tmp_path / "it.npz"))
    assert list(back.transform(frame)) == list(selector.get_feature_names_out())


def test_partial_fit_goes_on_where_the_saved_selector_stopped(tmp_path):
    X, y = toy()
    selector = SemFS(3, attributes=TABLE).partial_fit(X[:20], y[:20])
    back = load(save(selector, tmp_path / "half.npz")).partial_fit(X[20:], y[20:])
    whole = SemFS(3, attributes=TABLE).fit(X, y)
    assert_array_equal(back.order_, whole.order_)
    assert_allclose(back.coef_, whole.coef_, rtol=1e-8)


def test_a_new_fitted_attribute_is_kept_without_further_code(tmp_path):
    selector = SemFS(3).fit(*toy())
    selector.preprocessing_ = {"normalize": "log1p", "scale": np.arange(7.0), "pair": (1, None)}
    back = load(save(selector, tmp_path / "it.npz"))
    assert_same(back.preprocessing_, selector.preprocessing_)


# ---- the promise to later versions ------------------------------------------------------


def stored_labels():
    """The labels that the stored selector was fitted to."""
    return load_sample("lining").split()[1]


def stored_selector():
    """What is in tests/data/selector_format1.npz: save(stored_selector()[0], STORED)."""
    data = load_sample("lining")
    X, y, _, _ = data.split()
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=data.feature_names)
    options = {**OLD_DEFAULTS, "gamma": 1.0}
    return SemFS(10, attributes=data.attributes, **options).fit(frame, y), frame


def test_a_file_of_format_1_loads_and_transforms_identically():
    fresh, frame = stored_selector()
    back = load(STORED)
    assert list(back.get_feature_names_out()) == list(fresh.get_feature_names_out())
    assert_array_equal(back.transform(frame), fresh.transform(frame))
    seen = fresh.attributes.loc[fresh.classes_]
    assert_array_equal(back.predict(frame, seen), fresh.predict(frame, seen))
    unseen = fresh.attributes.drop(fresh.classes_)
    assert_array_equal(back.predict(frame, unseen), fresh.predict(frame, unseen))
    # format 1 keeps no samples: seen and unseen classes are calibrated by simulated ones
    assert back.bias_ == pytest.approx(fresh.bias_, abs=3.0)
    assert (back.predict(frame) == fresh.predict(frame)).mean() > 0.8
    assert back.get_params().keys() >= {"alpha", "gamma", "solver", "attributes"}
    assert back.attributes.equals(fresh.attributes)
    # parameters that the file does not have are what they were when it was written
    for name in OLD_DEFAULTS:
        assert getattr(back, name) == getattr(fresh, name)
    assert list(back.fit(frame, stored_labels()).order_) == list(fresh.order_)


def as_format_1(path, **params):
    """Change the header of a saved selector to one of format 1, with other parameters."""
    with np.load(path) as stored:
        arrays = dict(stored)
    header = json.loads(arrays["header"].tobytes())
    header["format_version"] = 1
    del header["selector"]["params"]["max_correlation"]
    header["selector"]["params"].update(params)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)


def test_a_label_weight_of_format_1_becomes_relative(tmp_path):
    X, y, A = make_problem()
    selector = SemFS(3, A, label_weight=2.0).fit(X, y)
    path = save(selector, tmp_path / "it.npz")
    spread = ((A - A.mean(axis=0)) ** 2).sum() / (len(A) - 1)
    as_format_1(path, label_weight=2.0 * spread)  # it was absolute
    back = load(path)
    assert back.label_weight == pytest.approx(2.0)
    assert back.max_correlation is None

    path = save(SemFS(3, A), tmp_path / "unfitted.npz")
    as_format_1(path, label_weight=0.5)
    with pytest.warns(UserWarning, match="label_weight=0.5 has changed its meaning"):
        load(path)


# ---- refusals ---------------------------------------------------------------------------


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), **options)
    return buffer.getvalue()


def archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as out:
        for name, content in members.items():
            out.writestr(name, content)


def members_of(path):
    with zipfile.ZipFile(path) as stored:
        return {name: stored.read(name) for name in stored.namelist()}


def coef(shape):
    return {"is": "some_rows", "name": "a0", "rows": "a0", "shape": shape}


UNREADABLE = "not a readable semfs selector"
CHANGES = {  # where in the header, what is put there, what is said
    "later format": ("format_version", FORMAT + 1, "Upgrade semfs"),
    "format true": ("format_version", True, "has format version True"),
    "another program": ("format", "skops", "semfs.save did not write it"),
    "forbidden type": ("selector/type", "os.system", "holds a 'os.system'"),
    "type of another kind": ("selector/type", ["SemFS"], "this version of semfs loads"),
    "no selector": ("selector", [], "holds no selector"),
    "unknown parameter": ("selector/params/beta2", 1, "no parameter 'beta2'"),
    "unknown value": ("selector/params/gamma", {"is": "eval", "code": "1"}, "'eval'"),
    "unknown part": ("selector/params/gamma", {"is": "tuple", "code": "1"}, UNREADABLE),
    "tag of another kind": ("selector/params/gamma", {"is": []}, UNREADABLE),
    "method replaced": ("selector/state/transform", 1, "not a fitted attribute"),
    "dunder": ("selector/state/__class__", 1, "not a fitted attribute"),
    "property replaced": ("selector/state/attribute_names_in_", 1, "not a fitted attribute"),
    "missing array": ("selector/state/coef_", {"is": "array", "name": "a99"}, UNREADABLE),
    "wrong length": ("selector/state/n_features_in_", 3, "must have 3"),
    "huge shape": ("selector/state/coef_", coef([9**9, 9**9]), "this machine's memory"),
    "negative shape": ("selector/state/coef_", coef([-1, 2]), UNREADABLE),
    "rows out of range": ("selector/state/coef_", coef([1, 1]), UNREADABLE),
}


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 500
    return text


@pytest.fixture
def good(tmp_path):
    return save(SemFS(2, attributes=TABLE).fit(*toy()), tmp_path / "good.npz")


@pytest.mark.parametrize("where, value, message", CHANGES.values(), ids=CHANGES)
def test_changed_headers_are_refused_in_one_line(where, value, message, good, tmp_path):
    bad, members = tmp_path / "bad.npz", members_of(good)
    with np.load(good) as stored:
        part = header = json.loads(stored["header"].tobytes())
    *path, last = where.split("/")
    for key in path:
        part = part[key]
    part[last] = value
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    archive(bad, members | {"header.npy": npy(text)})
    with pytest.raises(FileError, match=message) as error:
        load(bad)
    assert "bad.npz" in one_line(error)


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"\xff\xfe\xfa",
        b"[]",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"",
    ],
    ids=["no JSON", "not UTF-8", "a list", "endless nesting", "endless number", "empty"],
)
def test_headers_that_are_no_header_are_refused(header, tmp_path):
    bad = tmp_path / "bad.npz"
    archive(bad, {"header.npy": npy(np.frombuffer(header, dtype=np.uint8))})
    with pytest.raises(FileError) as error:
        load(bad)
    one_line(error)


def test_a_renamed_pickle_is_refused_and_not_run(tmp_path):
    bad, trace = tmp_path / "selector.npz", tmp_path / "was_here"
    bad.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(FileError, match="Pickled selectors are refused") as error:
        load(bad)
    one_line(error)
    assert not trace.exists()


def test_object_arrays_are_refused_and_not_unpickled(good, tmp_path):
    bad, trace = tmp_path / "bad.npz", tmp_path / "was_here"
    bomb = np.array([Bomb(trace)], dtype=object)
    archive(bad, members_of(good) | {"a0.npy": npy(bomb, allow_pickle=True)})
    with pytest.raises(FileError, match="pickled Python objects"):
        load(bad)
    assert not trace.exists()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_truncated_files_are_refused(share, good, tmp_path):
    bad = tmp_path / "bad.npz"
    content = good.read_bytes()
    bad.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileError, match="truncated" if share else "empty") as error:
        load(bad)
    one_line(error)


def test_damaged_bytes_are_noticed(good, tmp_path):
    """Whatever changes: an error of ours, or the selector that was saved."""
    rng = np.random.default_rng(0)
    content, whole = good.read_bytes(), load(good)
    refused = 0
    for _ in range(60):
        changed = bytearray(content)
        changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
        (tmp_path / "bad.npz").write_bytes(changed)
        try:
            found = load(tmp_path / "bad.npz")
        except FileError:
            refused += 1
        else:  # a date or a flag of the archive, which nobody reads
            assert_array_equal(found.order_, whole.order_)
            assert_array_equal(found.scores_, whole.scores_)
            assert_array_equal(found.coef_, whole.coef_)
    assert refused > 30


@pytest.mark.parametrize("name", ["../evil.npy", "a0.npy/../../x", "code.py", "a-1.npy"])
def test_members_that_save_never_writes_are_refused(name, good, tmp_path):
    bad = tmp_path / "bad.npz"
    archive(bad, members_of(good) | {name: b"x"})
    with pytest.raises(FileError, match="never writes"):
        load(bad)
    archive(bad, members_of(good), zipfile.ZIP_DEFLATED)  # nothing that expands
    with pytest.raises(FileError, match="never writes"):
        load(bad)


def test_ordinary_npz_and_missing_files_are_told_apart(tmp_path):
    np.savez(tmp_path / "data.npz", X=np.eye(2))
    with pytest.raises(FileError, match=r"without the header that semfs\.save writes"):
        load(tmp_path / "data.npz")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "none.npz")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        load(tmp_path)


class Sub(SemFS):
    """A user's own selector, whose code we cannot know at loading time."""


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (Sub(2), "got Sub"),
        (object(), "got object"),
        (SemFS(2, attributes=lambda: 1), "attributes holds a builtins.function"),
        (baselines.RandomSelector(2, random_state=np.random.RandomState(0)), "random_state"),
        (SemFS(2, s_init=np.zeros(2, dtype=[("a", float)])), "save does not write"),
    ],
)
def test_what_cannot_be_saved_is_an_error_and_leaves_no_file(thing, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        save(thing, tmp_path / "it.npz")
    assert not list(tmp_path.iterdir())
