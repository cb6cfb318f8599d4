"""What a user sees: one line of text, a table in a notebook, plain output in a pipe."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from semfs import SemFS
from semfs.baselines import L20ALM, VarianceSelector

EVIL = "<script>alert('gene & co')</script>"


def fitted(k=2, d=6, names=None):
    pd = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(60, d))
    y = np.arange(60) % 3
    X[:, 4] += 5.0 * y
    X[:, 1] += 2.0 * (y == 1)
    return SemFS(k).fit(pd.DataFrame(X, columns=names or [f"g{i}" for i in range(d)]), y)


def page_of(selector):
    if not hasattr(BaseEstimator, "_html_repr"):
        pytest.skip("this scikit-learn shows its own diagram only")
    return selector._repr_mimebundle_()["text/html"]


def test_a_notebook_shows_the_chosen_features_best_first():
    page = page_of(fitted())
    assert "2 of 6 features selected: g4, g1</summary>" in page
    diagram, ours = page.split("features selected")
    assert ours.index(">g4</td>") < ours.index(">g1</td>")
    assert "sk-estimator" in diagram  # scikit-learn's own is still there


def test_feature_names_are_escaped_in_notebooks():
    page = page_of(fitted(names=["a", "b", "c", "d", EVIL, "f"]))
    assert EVIL not in page
    assert "&lt;script&gt;alert(&#x27;gene &amp; co&#x27;)&lt;/script&gt;" in page


def test_long_lists_are_cut_in_notebooks():
    rng = np.random.default_rng(0)
    page = page_of(VarianceSelector(250).fit(rng.normal(size=(5, 300))))
    assert "250 of 300 features selected" in page
    assert page.count("<tr><td>") == 200


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (SemFS(), "SemFS()"),
        (SemFS(20), "SemFS(n_features_to_select=20)"),
        (SemFS(20, attributes=np.eye(3)), "attributes=<3 classes × 3 attributes>"),
        (SemFS(attributes={}), "attributes=<0 classes × 0 attributes>"),
        (SemFS(include=["a", "b"]), "include=['a', 'b']"),
        (SemFS(include=list(range(500))), "include=<list of 500>"),
        (SemFS(s_init=np.ones(5)), "s_init=<array of shape (5,)>"),
        (L20ALM(init=(np.zeros((50, 9)), np.zeros((9, 9)))), "init=<tuple of 2>"),
        (VarianceSelector(3), "VarianceSelector(n_features_to_select=3)"),
    ],
)
def test_repr_is_one_line_that_says_what_matters(selector, text):
    assert text in repr(selector)
    assert "\n" not in repr(selector)
    assert len(repr(selector)) < 200
