"""ZeroShotDataset and the bundled sample."""

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from semfs.datasets import ZeroShotDataset, load_sample

pd = pytest.importorskip("pandas")

ROOT = Path(__file__).parents[2]
DATA = ROOT / "semfs" / "data"


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def farm(**changes):
    parts = {
        "name": "farm",
        "X": np.arange(12.0).reshape(6, 2),
        "y": ["cat", "ant", "hen", "cat", "cow", "ant"],
        "attributes": pd.DataFrame({"legs": [4, 6, 2, 4]}, index=["cat", "ant", "hen", "cow"]),
        "unseen": ["hen"],
    }
    return ZeroShotDataset(**(parts | changes))


# --- the container ---------------------------------------------------------------------


def test_split_parts_every_row_by_class():
    X_seen, y_seen, X_unseen, y_unseen = farm().split()
    assert_array_equal(y_seen, ["cat", "ant", "cat", "cow", "ant"])
    assert_array_equal(y_unseen, ["hen"])
    assert_array_equal(X_unseen, [[4.0, 5.0]])
    assert X_seen.shape == (5, 2)


def test_classes_seen_and_default_names():
    data = farm()
    assert_array_equal(data.classes, ["ant", "cat", "cow", "hen"])
    assert_array_equal(data.seen, ["ant", "cat", "cow"])
    assert data.feature_names.tolist() == ["x0", "x1"]


@pytest.mark.parametrize("form", ["csr_array", "csc_array", "coo_matrix"])
def test_sparse_x_stays_sparse_and_splits_like_dense(form):
    data = farm(X=getattr(sparse, form)(np.arange(12.0).reshape(6, 2)))
    for ours, dense in zip(data.split()[::2], farm().split()[::2]):
        assert sparse.issparse(ours)
        assert_array_equal(ours.toarray(), dense)


@pytest.mark.parametrize("labels", [[3, 1, 2], [(1, "a"), (1, "b"), (2, "a")], [True, False]])
def test_labels_of_any_hashable_type(labels):
    index = pd.Index(labels, tupleize_cols=False)
    table = pd.DataFrame({"a": range(len(labels))}, index=index)
    data = ZeroShotDataset("t", np.eye(len(labels)), labels, table, unseen=labels[1:2])
    assert data.unseen.tolist() == labels[1:2]
    assert data.split()[3].tolist() == labels[1:2]
    assert data.with_unseen(data.seen[:1]).unseen.tolist() == data.seen[:1].tolist()


def test_with_unseen_changes_only_the_split():
    data = farm()
    other = data.with_unseen(["cat", "cow"])
    assert other.X is data.X
    assert_array_equal(other.seen, ["ant", "hen"])
    assert_array_equal(data.unseen, ["hen"])


def test_no_unseen_class_is_allowed_for_data_without_a_split():
    X_seen, _, X_unseen, y_unseen = farm(unseen=()).split()
    assert (len(X_seen), len(X_unseen), len(y_unseen)) == (6, 0, 0)


def test_random_splits_are_reproducible_and_of_the_size_asked():
    def draw(seed):
        return [tuple(s.unseen) for s in farm().random_splits(6, 2, random_state=seed)]

    assert draw(0) == draw(0)
    assert draw(0) != draw(1)
    assert len(draw(0)) == 6
    assert all(len(set(unseen)) == 2 for unseen in draw(0))


@pytest.mark.parametrize("n_unseen", [0, 4, 9])
def test_random_splits_refuses_an_impossible_size_at_once(n_unseen):
    with pytest.raises(ValueError, match=r"n_unseen is .* from 1 to 3"):
        farm().random_splits(2, n_unseen)


def test_repr_names_sizes_and_stays_short():
    assert "6 samples × 2 features" in repr(farm())
    assert "unseen (1): hen [1]" in repr(farm())
    table = pd.DataFrame({"a": range(300)})
    many = ZeroShotDataset("many", np.zeros((300, 1)), range(300), table)
    assert len(repr(many)) < 300


def test_survives_pickling():
    again = pickle.loads(pickle.dumps(farm()))
    assert_array_equal(again.split()[3], ["hen"])


def test_cannot_be_changed():
    with pytest.raises(AttributeError):
        farm().y = []


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": np.zeros(6)}, r"X must have shape \(n_samples, n_features\), got shape \(6,\)"),
        ({"y": ["cat"]}, "X has 6 rows but y has 1 labels"),
        ({"y": ["cat", "ant", "hen", "cat", "cow", None]}, "missing labels"),
        ({"y": ["cat", "ant", "hen", "cat", "cow", "cwo"]}, "no row for class 'cwo'.*'cow'"),
        ({"attributes": {"cat": [1]}}, "attributes must be a pandas DataFrame.*got dict"),
        (
            {"attributes": pd.DataFrame({"a": [1, 2]}, index=["cat", "cat"])},
            "more than one row",
        ),
        ({"unseen": ["dog"]}, "unseen names class 'dog', which has no samples.*'ant'"),
        ({"unseen": ["hen", "hen"]}, "unseen names class 'hen' more than once"),
        ({"unseen": "hen"}, r"unseen must be a list of class labels; write \['hen'\]"),
        ({"unseen": ["cat", "ant", "hen", "cow"]}, "all 4 classes are unseen"),
        ({"feature_names": ["a"]}, "X has 2 columns but feature_names has 1 names"),
        ({"feature_names": ["a", "a"]}, "feature_names has 'a' more than once"),
    ],
)
def test_bad_parts_are_refused_with_advice(changes, message):
    with pytest.raises(ValueError, match=message):
        farm(**changes)


# --- the bundled sample ----------------------------------------------------------------


def test_sample_has_the_documented_shape(sample):
    assert sample.X.shape == (700, 765)
    assert sample.X.dtype == np.float32
    assert len(sample.classes) == 10
    assert (len(sample.seen), len(sample.unseen)) == (6, 4)
    assert len(set(sample.feature_names)) == 765


def test_sample_split_is_disjoint_and_complete(sample):
    X_seen, y_seen, X_unseen, y_unseen = sample.split()
    assert not set(y_seen) & set(y_unseen)
    assert (len(X_seen), len(X_unseen)) == (402, 298)
    assert set(y_unseen) == set(sample.unseen)


def test_sample_values_are_log_normalised_counts(sample):
    X = sample.X
    assert np.isfinite(X).all()
    assert 0 == X.min() < X.max() < np.log1p(1e4)
    # undoing the log gives whole multiples of one unit per cell: counts, scaled
    cell = np.expm1(X[0][X[0] > 0].astype(float))
    multiples = cell / cell.min()
    assert np.abs(multiples - np.rint(multiples)).max() < 0.05


def test_sample_attributes_tell_all_types_apart_and_none_is_constant(sample):
    table = sample.attributes
    assert set(table.index) == set(sample.classes)
    assert not table.duplicated().any()
    assert (table.nunique() > 1).all()
    assert not table.T.duplicated().any()  # no fact is said twice
    assert set(np.unique(table)) == {0.0, 0.5, 1.0}


def test_sample_attributes_agree_with_the_markers_in_the_names(sample):
    for cell_type, row in sample.attributes.iterrows():
        for marker in ("CD4", "CD8", "CD14", "CD19", "CD34", "CD45RA", "CD45RO", "CD56"):
            if f"{marker}+" in cell_type:
                assert row[marker] == 1, (cell_type, marker)
    assert sample.attributes.loc["CD4+/CD25 T Reg", "CD25"] == 1
    assert sample.attributes.loc["CD4+/CD45RA+/CD25- Naive T", "CD25"] == 0


def test_seen_types_can_be_told_apart_by_their_attributes(sample):
    assert not sample.attributes.loc[sample.seen].duplicated().any()


@pytest.mark.parametrize(
    "gene, cell_type",
    [
        ("MS4A1", "CD19+ B"),
        ("CD79A", "CD19+ B"),
        ("NKG7", "CD56+ NK"),
        ("GNLY", "CD56+ NK"),
        ("CD8B", "CD8+/CD45RA+ Naive Cytotoxic"),
        ("FCER1A", "Dendritic"),
        ("SOX4", "CD34+"),
    ],
)
def test_marker_genes_peak_in_their_cell_type(sample, gene, cell_type):
    expression = pd.Series(sample.X[:, sample.feature_names == gene].ravel())
    assert expression.groupby(sample.y).mean().idxmax() == cell_type


def test_lyz_is_high_in_both_myeloid_types_only(sample):
    lyz = pd.Series(sample.X[:, sample.feature_names == "LYZ"].ravel())
    means = lyz.groupby(sample.y).mean()
    myeloid = sample.attributes["myeloid"] == 1
    assert means[myeloid[means.index]].min() > 4 * means[~myeloid[means.index]].max()


def test_bundled_file_is_small_and_holds_no_pickles():
    path = DATA / "pbmc68k_reduced.npz"
    assert path.stat().st_size < 500_000
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "uiU" for name in arrays)


def test_import_works_without_pandas_and_load_sample_says_what_to_install():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from semfs.datasets import load_sample\n"
        "try:\n    load_sample()\n"
        "except ImportError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'semfs[data]'" in result.stdout, result.stderr


def test_import_needs_no_optional_package():
    optional = ("pandas", "h5py", "pyarrow", "polars", "pooch", "matplotlib", "anndata", "PIL")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({optional!r}))\n"
        "import semfs, semfs.attributes, semfs.datasets, semfs.selectors.files; print('fine')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "fine\n", result.stderr


def test_every_split_takes_each_choice_of_seen_classes_once():
    splits = list(farm().every_split(n_seen=2))
    assert len(splits) == 6
    assert len({tuple(split.seen) for split in splits}) == 6
    with pytest.raises(ValueError, match="n_seen is 4"):
        farm().every_split(4)


def test_row_groups_must_be_rows():
    assert farm(rows={"train": [0, 5]}).rows["train"].tolist() == [0, 5]
    with pytest.raises(ValueError, match="points at row 6, but X has rows 0 to 5"):
        farm(rows={"train": [0, 6]})
    with pytest.raises(ValueError, match="must be a list of row numbers"):
        farm(rows={"train": [0.5]})


def test_every_attribute_is_documented(sample):
    page = ROOT / "docs" / "sample-data.md"
    if not page.exists():
        pytest.skip("docs are not part of this copy")
    text = page.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in sample.attributes.columns)
    assert all(label in text for label in sample.classes)


@pytest.mark.network
def test_build_script_reproduces_the_bundled_file(tmp_path):
    pytest.importorskip("h5py")
    script = ROOT / "tools" / "build_sample.py"
    spec = importlib.util.spec_from_file_location("build_sample", script)
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    try:
        wheel = build.download_wheel(tmp_path)
    except subprocess.CalledProcessError:
        pytest.skip("the scanpy wheel cannot be downloaded here")
    build.write_npz(tmp_path / "again.npz", build.read_wheel(wheel))
    # values, not bytes: another zlib may compress the same arrays differently
    with np.load(tmp_path / "again.npz") as new, np.load(DATA / "pbmc68k_reduced.npz") as old:
        assert list(new) == list(old)
        for name in old:
            assert new[name].dtype == old[name].dtype
            assert_array_equal(new[name], old[name])
