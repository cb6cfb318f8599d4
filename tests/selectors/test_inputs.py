"""What users hand over is understood once, and preprocessed alike in fit and predict."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from problems import make_problem
from semfs import SemFS, load, save
from semfs.labels import Labels
from semfs.method.class_means import MeanModel
from semfs.rows import open_blocks
from semfs.scverse import view
from semfs.selectors.inputs import batches, fit_input, labeled, unlabeled
from semfs.selectors.inputs.kind import Kind, classify

pd = pytest.importorskip("pandas")


def cells(n=240, d=20, C=4, seed=0):
    """Counts whose sums differ from cell to cell, and the types of the cells."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    rates = rng.gamma(1.0, 1.0, size=(C, d))
    depth = rng.uniform(1.0, 30.0, size=(n, 1))
    counts = rng.poisson(depth * rates[y]).astype(np.float32)
    return counts, np.array(["ant", "bee", "cat", "dog"])[y]


def as_h5ad(folder, X, y):
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"cell_type": pd.Categorical(y)}, index=[f"c{i}" for i in range(len(y))])
    var = pd.DataFrame(index=[f"g{j}" for j in range(X.shape[1])])
    path = folder / "a.h5ad"
    anndata.AnnData(sp.csr_matrix(X), obs, var).write_h5ad(path)
    return path


def log_normalized(X):
    return np.log1p(1e4 * X / np.maximum(X.sum(axis=1, keepdims=True), 1.0))


class Counter:
    """Counts the calls of a function, which it passes on."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *args, **options):
        self.calls += 1
        return self.function(*args, **options)


@pytest.mark.parametrize(
    ("data", "y", "kind"),
    [
        (np.eye(3), None, Kind.MATRIX),
        ([[1.0, 2.0]], None, Kind.MATRIX),
        (sp.eye_array(3), None, Kind.MATRIX),
        (pd.DataFrame({"a": [1.0]}), [0], Kind.MATRIX),
        (pd.DataFrame({"a": [1.0]}), "a", Kind.LABELED_FRAME),
        ("a.csv", "label", Kind.STORED),
        ([(np.eye(2), [0, 1])], None, Kind.PAIRS),
        (iter([]), None, Kind.PAIRS),
    ],
)
def test_data_are_classified(data, y, kind):
    assert classify(data, y) is kind


def test_a_file_is_classified_once_and_its_labels_are_encoded_once(tmp_path, monkeypatch):
    X, y = cells()
    path = as_h5ad(tmp_path, log_normalized(X), y)
    classified = Counter(classify)
    for module in (batches, fit_input, labeled, unlabeled):
        monkeypatch.setattr(module, "classify", classified)
    encoded = {name: Counter(getattr(Labels, name)) for name in ("_of_array", "_of_objects")}
    for name, counter in encoded.items():
        monkeypatch.setattr(Labels, name, counter)
    checked = Counter(Labels.from_target)
    monkeypatch.setattr(Labels, "from_target", checked)
    SemFS(5).fit(path, "cell_type")
    assert classified.calls == 1
    # a category column has codes already
    assert sum(counter.calls for counter in encoded.values()) <= 1
    assert checked.calls == 0


def test_predictions_are_preprocessed_as_the_fit_was(tmp_path):
    X, y = cells()
    path = as_h5ad(tmp_path, X, y)
    selector = SemFS(5).fit(open_blocks(path, "cell_type", normalize="log1p"))
    assert selector.preprocessing_ == {"normalize": "log1p"}
    expected = SemFS(5).fit(log_normalized(X), y)
    assert_array_equal(selector.order_, expected.order_)
    scores = expected.decision_function(log_normalized(X))
    restored = load(save(selector, tmp_path / "selector.npz"))
    for fitted in (selector, restored):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing is said about raw counts
            assert_allclose(fitted.decision_function(path), scores, rtol=1e-3)
        normalized = log_normalized(X)[:, selector.get_support()]
        assert_allclose(fitted.transform(path).toarray(), normalized, rtol=1e-5)
        # an array is taken as it is, and so is a source that was opened
        assert_allclose(fitted.decision_function(log_normalized(X)), scores, rtol=1e-3)
        opened = open_blocks(path, "cell_type", normalize="log1p")
        assert_allclose(fitted.decision_function(opened), scores, rtol=1e-3)


def test_transform_of_a_file_keeps_the_selected_columns_only(tmp_path, monkeypatch):
    X, y, _ = make_problem(n=300, d=40)
    np.save(tmp_path / "x.npy", X)
    selector = SemFS(3).fit(X, y)
    widths = []

    def stacked(blocks):
        widths.extend(block.shape[1] for block in blocks)
        return np.concatenate(blocks)

    monkeypatch.setattr("semfs.selectors.ranking.stacked", stacked)
    assert_array_equal(selector.transform(str(tmp_path / "x.npy")), selector.transform(X))
    assert set(widths) == {3}


def test_the_prediction_model_is_fitted_once_for_all_blocks(tmp_path, monkeypatch):
    X, y, A = make_problem(n=400, C=9)
    table = dict(enumerate(np.vstack([A, A[:2] + A[3:5]])))
    np.save(tmp_path / "x.npy", X)
    selector = SemFS(5, table).fit(X, y)
    source = open_blocks(tmp_path / "x.npy", y, block_rows=10)
    fits = Counter(MeanModel.fit)
    monkeypatch.setattr(MeanModel, "fit", fits)
    assert_allclose(selector.decision_function(source), selector.decision_function(X))
    selector.predict(X[:5])
    assert fits.calls <= 1


def test_a_fit_in_units_of_one_deviation_is_given_in_the_units_of_the_data():
    X, y, A = make_problem()
    scale = np.linspace(0.1, 3.0, X.shape[1])
    scaled = SemFS(5, A).fit(X * scale, y)._fitted.scaled(scale)
    plain = scaled.attributes()
    fitted = SemFS(5, A).fit(X * scale, y)
    assert_allclose(plain["coef_"], fitted.coef_ * scale[:, None])
    chosen = scaled.selected
    means = np.stack([X[y == c].mean(axis=0) for c in range(4)])
    assert_allclose(plain["class_means_"], means[:, chosen])
    W = scaled.top(2).full_coef()
    assert_allclose(W, SemFS(2, A).fit(X * scale, y).coef_ * scale[:, None], atol=1e-10)


def test_the_layer_of_the_fit_is_used_for_predictions(tmp_path):
    anndata = pytest.importorskip("anndata")
    X, y = cells()
    adata = anndata.AnnData(np.zeros_like(X), obs={"cell_type": y.astype(str)})
    adata.layers["log"] = log_normalized(X)
    path = tmp_path / "layers.h5ad"
    adata.write_h5ad(path)
    expected = SemFS(5).fit(log_normalized(X), y.astype(str))
    by_file = SemFS(5).fit(open_blocks(path, "cell_type", key="log"))
    by_view = SemFS(5).fit(view(adata, "log"), "cell_type")
    for selector in (by_file, load(save(by_file, tmp_path / "s.npz")), by_view):
        assert selector.preprocessing_ == {"layer": "log"}
        for data in (path, str(path), adata):
            assert_array_equal(selector.predict(data), expected.predict(log_normalized(X)))
        # a matrix that was chosen by the user is taken as it is
        zeros = expected.predict(np.zeros_like(X))
        assert_array_equal(selector.predict(view(adata)), zeros)


def test_dask_collections_are_transformed_and_predicted_lazily():
    array = pytest.importorskip("dask.array")
    X, y, A = make_problem(n=120, d=15)
    selector = SemFS(4, A).fit(X, y)
    computed = []

    def watched(chunk):
        computed.append(chunk)
        return chunk

    lazy = array.from_array(X, chunks=(50, 15)).map_blocks(watched, dtype=X.dtype, meta=X[:0])
    results = {
        name: getattr(selector, name)(lazy)
        for name in ("transform", "predict", "decision_function", "predict_attributes")
    }
    assert not computed
    for name, result in results.items():
        assert isinstance(result, array.Array)
        assert_allclose(result.compute(), getattr(selector, name)(X))
    with pytest.raises(ValueError, match="3 features"):
        selector.transform(lazy[:, :3])


def test_refused_samples_of_dask_arrays_are_named_in_one_type():
    array = pytest.importorskip("dask.array")
    X, y, A = make_problem(n=120, d=15)
    selector = SemFS(4, A).fit(X, y)
    Z = X.copy()
    Z[:3] += 1e3  # far from all classes, in the first chunk only
    lazy = array.from_array(Z, chunks=(50, 15))
    named = selector.predict(lazy, unknown="none of them", unknown_rate=0.01).compute()
    expected = selector.predict(Z, unknown="none of them", unknown_rate=0.01)
    assert named.tolist() == expected.tolist()
    assert named[:3].tolist() == ["none of them"] * 3
