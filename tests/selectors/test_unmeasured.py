"""Selected features that measure nothing: serial numbers, clocks, and the label as a number."""

import warnings

import numpy as np
import pytest

from semfs import SemFS
from semfs.selectors.training_checks import looks_serial

pd = pytest.importorskip("pandas")


def machine(n=120, n_classes=4, seed=0):
    """A frame of sensors whose samples are in the order of their states, and the states."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), n // n_classes)
    Z = rng.normal(size=(n_classes, 6))[y] + rng.normal(size=(n, 6))
    return pd.DataFrame(Z, columns=[f"s{j}" for j in range(6)]), y


def messages(X, y, k=4, **params):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        SemFS(k, **params).fit(X, y)
    return " ".join(str(warning.message) for warning in found)


@pytest.mark.parametrize(
    "values",
    [
        lambda n: np.arange(1, n + 1) / 30,  # standardized
        lambda n: 1.77e9 + 1020.0 * np.arange(n),  # a time in seconds
        lambda n: 5000 - 3.0 * np.arange(n),
        # samples of other classes were left out
        lambda n: np.cumsum(np.random.default_rng(0).integers(1, 4, n)) / 7,
    ],
)
def test_selected_serial_numbers_and_times_are_named(values):
    X, y = machine()
    X["when"] = values(len(X))
    text = messages(X / X.std(), y)
    assert "'when'" in text or "when:" in text
    assert "like a serial number or a clock" in text
    assert "--drop NAME" in text


def test_the_label_as_a_number_is_named():
    X, y = machine()
    X["state_code"] = np.array([3, 1, 4, 2])[y]
    text = messages(X / X.std(), y)
    assert "state_code: constant within every class and different in each" in text
    assert "--drop NAME" in text


def test_measurements_in_the_order_of_their_classes_are_not_named():
    X, y = machine()
    rng = np.random.default_rng(1)
    X["slow"] = np.arange(len(X)) / 30 + rng.normal(scale=0.05, size=len(X))
    X["counts"] = y + rng.integers(0, 2, len(X))
    X["setting"] = np.array([0.0, 0.0, 1.0, 2.0])[y]  # of two classes the same
    assert messages(X / X.std(), y, k=6) == ""


def test_few_samples_and_arrays_without_names_are_not_judged():
    X, y = machine(n=20)
    X["state_code"] = y
    assert messages(X, y) == ""
    X, y = machine()
    X["state_code"] = y
    assert messages((X / X.std()).to_numpy(), y) == ""


def test_ranks_are_measurements():
    X, y = machine()
    assert "clock" not in messages(X.rank() / 30, y, k=6)


def test_row_numbers_are_named_once():
    X, y = machine()
    X["row"] = np.arange(len(X))
    text = messages(X, y)
    assert "row: the values seem to be row numbers" in text
    assert "clock" not in text


def test_what_is_serial():
    steps = np.arange(60.0)
    rng = np.random.default_rng(0)
    assert looks_serial(rng.permutation(steps))
    assert looks_serial(np.where(steps == 7, np.nan, steps))
    assert not looks_serial(steps[:20])
    assert not looks_serial(np.sort(rng.normal(size=60)))
    assert not looks_serial(rng.normal(size=60))
    assert not looks_serial(np.repeat(steps[:30], 2))


def test_select_names_such_columns(tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = machine()
    X["epoch"] = 1.77e9 + 1020.0 * np.arange(len(X))
    X["state_code"] = y
    X.assign(state=[f"state {label}" for label in y]).to_csv("machine.csv", index=False)
    arguments = ("select", "machine.csv", "-l", "state", "-k", 4, "--scale", "--drop")
    done = invoke(*arguments, "epoch")
    assert "state_code: constant within every class" in done.stderr
    assert "--drop NAME" in done.stderr
    done = invoke(*arguments, "state_code", "-o", "timed")
    assert "epoch: rises or falls steadily" in done.stderr
    done = invoke(*arguments, "state_code,epoch", "-o", "measured")
    assert "--drop NAME" not in done.stderr
