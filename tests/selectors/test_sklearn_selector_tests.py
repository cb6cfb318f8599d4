"""scikit-learn's own tests of selectors (`sklearn.feature_selection.tests.test_base`)."""

import inspect

import numpy as np
import pytest
from sklearn.feature_selection.tests import test_base

from semfs import SemFS


class EvenColumns(SemFS):
    """SemFS that must take every ``step``-th feature, as the selector of these tests does."""

    def __init__(self, step=2):
        super().__init__()
        self.step = step

    def fit(self, X, y=None):
        columns = np.arange(0, X.shape[1], self.step)
        self.n_features_to_select = len(columns)
        self.include = columns
        # Some tests pass no labels; these features are selected whatever they are.
        return super().fit(X, np.arange(X.shape[0]) if y is None else y)


#: Selects columns of text, which SemFS does not take as features.
LEFT_OUT = {"test_output_dataframe"}
THEIRS = {
    name: function
    for name, function in vars(test_base).items()
    if name.startswith("test_")
    and name not in LEFT_OUT
    and "StepSelector" in inspect.getsource(function)
}
CASES = []
for name, function in THEIRS.items():
    marks = [m for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]
    values = marks[0].args[1] if marks else [None]
    names = marks[0].args[0] if marks else None
    CASES += [pytest.param(function, names, value, id=f"{name}-{value}") for value in values]


@pytest.mark.filterwarnings("ignore")  # ten samples at most, with equal columns
@pytest.mark.parametrize(("function", "argument", "value"), CASES)
def test_semfs_passes_the_tests_of_scikit_learns_selectors(
    function, argument, value, monkeypatch
):
    assert len(THEIRS) >= 5
    monkeypatch.setattr(test_base, "StepSelector", EvenColumns)
    function(**({} if argument is None else {argument: value}))
