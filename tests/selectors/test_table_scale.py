"""Class descriptions in other units: within a table, and from the fit to a prediction."""

import warnings

import numpy as np
import pandas as pd
import pytest

from problems import make_problem
from semfs import SemFS
from semfs.attributes import AttributeTable
from semfs.datasets import load_sample
from semfs.selectors.table_scale import warn_of_other_scale, warn_of_uneven_attributes
from semfs.validation import ParameterWarning


def machines(n=24, seed=0):
    """Descriptions with units: yes and no, kilograms, revolutions, watts."""
    rng = np.random.default_rng(seed)
    flags = {f"flag{j}": np.arange(n) % (j + 2) == 0 for j in range(6)}
    table = pd.DataFrame(flags, dtype=float)
    table["weight"] = rng.uniform(0.5, 6.0, n)
    table["rooms"] = rng.integers(1, 5, n)
    table["rpm"] = rng.uniform(0, 9000, n)
    table["power"] = rng.uniform(100, 2400, n)
    return table


def standardized(table, by):
    return (table - by.mean()) / by.std()


def silent(check, *tables):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(*[AttributeTable.from_any(table) for table in tables])


def test_attributes_that_carry_the_spread_of_a_table_are_named_by_the_fit():
    X, y, _ = make_problem(n=240, C=24)
    table = machines()
    with pytest.warns(ParameterWarning) as seen:
        SemFS(5, attributes=table).fit(X, y)
    said = [str(warning.message) for warning in seen]
    assert any("2 of 10 attributes (rpm, power) carry 99.9 %" in text for text in said)
    assert any("one scale" in text for text in said)
    silent(warn_of_uneven_attributes, standardized(table, table))


def test_ordinary_tables_are_uneven_without_a_warning():
    rng = np.random.default_rng(1)
    yes_or_no = rng.random((1000, 8)) < [0.5, 0.001, 0.001, 0.001, 0.001, 0.002, 0.003, 0.001]
    percent = 100 * rng.beta(0.1, 1.0, size=(30, 20))
    silent(warn_of_uneven_attributes, yes_or_no.astype(float))
    silent(warn_of_uneven_attributes, percent)
    silent(warn_of_uneven_attributes, load_sample().attributes)
    silent(warn_of_uneven_attributes, np.eye(5))


@pytest.mark.parametrize("fit_on", ["raw", "standardized"])
def test_a_table_on_another_scale_is_noticed_by_every_prediction(fit_on):
    X, y, _ = make_problem(n=240, C=24)
    raw = machines()
    other = standardized(raw, raw)
    fitted, given = (raw, other) if fit_on == "raw" else (other, raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        selector = SemFS(5, attributes=fitted).fit(X, y)
    # a seen class that is described in another way is refused, so that these are others
    unseen = given.iloc[:8].set_axis(range(100, 108), axis=0)
    for question in ("predict", "predict_proba", "decision_function"):
        message = r"attributes are far outside the range .*same units"
        with pytest.warns(ParameterWarning, match=message):
            getattr(selector, question)(X, unseen)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ParameterWarning)
        selector.predict(X)
        selector.predict(X, fitted.iloc[:8])


def test_new_classes_of_ordinary_tables_are_not_out_of_range():
    lung = load_sample().attributes
    # terms that no fitted class has are constant there
    silent(warn_of_other_scale, lung.iloc[:9], lung.iloc[9:])
    rng = np.random.default_rng(2)
    percent = 100 * rng.beta(0.1, 1.0, size=(40, 30))
    for n_new in (1, 3, 6):
        for _ in range(50):
            order = rng.permutation(40)
            silent(warn_of_other_scale, percent[order[n_new:]], percent[order[:n_new]])
