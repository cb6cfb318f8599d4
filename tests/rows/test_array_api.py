"""Arrays of other libraries: summed up where they are, results in the same place."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose

from problems import make_problem
from semfs import SemFS

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["torch", "array_api_strict"])
def xp(request):
    module = pytest.importorskip(request.param)
    if os.environ.get("SCIPY_ARRAY_API") != "1":
        pytest.skip("set SCIPY_ARRAY_API=1 before Python starts")
    with sklearn.config_context(array_api_dispatch=True):
        yield module


def to_numpy(array):
    return np.from_dlpack(array) if not hasattr(array, "numpy") else array.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"solver": "alternating"}, {"gamma": 1e-6}])
@pytest.mark.parametrize("n", [300, 15])
def test_a_fit_equals_that_of_numpy(xp, dtype, options, n):
    X, y, A = make_problem(n=n, d=20, offset=100.0)
    X = X.astype(dtype)
    w = np.random.default_rng(0).integers(0, 3, n).astype(float)
    expected = SemFS(6, attributes=A, **options).fit(X, y, w)
    found = SemFS(6, attributes=A, **options).fit(xp.asarray(X), xp.asarray(y), w)
    assert to_numpy(found.order_)[:6].tolist() == expected.order_[:6].tolist()
    assert_allclose(to_numpy(found.scores_), expected.scores_, rtol=1e-3)
    assert_allclose(to_numpy(found.coef_), expected.coef_, rtol=1e-2, atol=1e-3)


def test_results_stay_in_the_library_of_the_data(xp):
    X, y, _ = make_problem(n=100)
    data = xp.asarray(X)
    selector = SemFS(4).fit(data, y)
    kind = type(data)
    results = [selector.scores_, selector.coef_, selector.transform(data)]
    results += [selector.inverse_transform(results[-1]), selector.predict(data)]
    assert all(isinstance(found, kind) for found in results)
    numpy_selector = SemFS(4).fit(X, y)
    assert_allclose(to_numpy(selector.transform(data)), numpy_selector.transform(X))
    assert to_numpy(selector.predict(data)).tolist() == numpy_selector.predict(X).tolist()
    assert selector.get_support().tolist() == numpy_selector.get_support().tolist()


def test_rows_are_not_moved_to_numpy(xp, monkeypatch):
    """Only sums come back: nothing with as many rows as X is converted."""
    import semfs.rows.device as module

    original = module.convert_to_numpy
    sizes = []

    def watched(array):
        sizes.append(array.shape)
        return original(array)

    X, y, _ = make_problem(n=300, d=20)
    monkeypatch.setattr(module, "convert_to_numpy", watched)
    SemFS(4).fit(xp.asarray(X), y)
    assert sizes
    assert max(shape[0] for shape in sizes) <= 64


def test_the_tag_is_set_and_without_dispatch_torch_still_works():
    torch = pytest.importorskip("torch")
    assert SemFS().__sklearn_tags__().array_api_support
    X, y, _ = make_problem(n=100)
    selector = SemFS(4).fit(torch.asarray(X), torch.asarray(y))
    assert selector.order_.tolist() == SemFS(4).fit(X, y).order_.tolist()


@pytest.mark.slow
@pytest.mark.skipif("SCIPY_ARRAY_API" in os.environ, reason="already set: run above")
def test_this_file_passes_with_scipys_switch_on():
    pytest.importorskip("torch")
    pytest.importorskip("array_api_strict")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
    )
    assert done.returncode == 0, done.stdout
