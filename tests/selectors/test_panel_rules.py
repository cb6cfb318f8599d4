"""Rules of a panel in SemFS: parameters, refusals, reports, and data in all forms."""

import pickle
import re

import numpy as np
import pytest

from problems import make_described_problem, make_problem
from semfs import SemFS, SemFSCV, load, save
from semfs.datasets import load_sample
from semfs.method.quadratic import Relaxed
from semfs.panel import panel_report
from semfs.panel.words import CELLS
from semfs.selectors.rules.feature_values import feature_costs
from semfs.selectors.rules.findings import Findings
from semfs.validation import ParameterError, ParameterWarning

FITTED = ("scores_", "order_", "support_", "coef_", "intercept_", "objective_", "within_")


@pytest.fixture(scope="module")
def lining():
    """Cells of six types and more, 800 genes with names, in memory."""
    data = load_sample("lining")
    X, y, _, _ = data.split()
    return np.asarray(X.todense()) if hasattr(X, "todense") else np.asarray(X), np.asarray(y)


@pytest.fixture
def planted():
    """Five classes; class 4 differs in two weak features only, 10 and 11."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 40)
    X = rng.normal(size=(200, 12))
    for c in range(4):
        for j in (2 * c, 2 * c + 1):
            X[y == c, j] += 6.0
    X[:, 8] = X[:, 0] + 0.1 * rng.normal(size=200)
    X[:, 9] = X[:, 2] + 0.1 * rng.normal(size=200)
    X[y == 4, 10] += 1.6
    X[y == 4, 11] += 1.5
    return X + 2.0, y


def selected(selector):
    return set(np.flatnonzero(selector.support_).tolist())


def test_features_that_are_included_against_the_candidates_are_named(planted):
    X, y = planted
    selector = SemFS(4, include=[0, 10], candidates=range(2, 12), max_level=8.5).fit(X, y)
    assert {0, 10} <= selected(selector)
    (sentence,) = [text for text in selector.rules_ if text.startswith("include: ")]
    assert "x0, x10 entered first; not among the candidates: x0" in sentence
    report = panel_report(selector, n_bootstraps=0)
    table = report.table().set_index("feature")
    assert table.loc["x0", "reason"].startswith("included, not among the candidates; varies")
    assert "included" not in table.loc["x10", "reason"]
    assert "not among the candidates: x0" in report.render()
    selector = SemFS(4, include=[10], candidates=range(2, 12)).fit(X, y)
    assert not any("not among" in text for text in selector.rules_)


# ---- off is off -----------------------------------------------------------------------

LOOSE = [
    {"candidates": range(12)},
    {"min_level": -100.0, "max_level": 100.0},
    {"groups": [None] * 12},
    {"costs": np.ones(12), "budget": 12.0},
    {"capacity": 1e6},
    {"min_per_class": 0},
]


@pytest.mark.parametrize("rule", LOOSE, ids=lambda rule: next(iter(rule)))
def test_a_rule_that_allows_everything_changes_nothing(rule, planted):
    X, y = planted
    plain = SemFS(5).fit(X, y)
    ruled = SemFS(5, **rule).fit(X, y)
    for name in FITTED:
        np.testing.assert_array_equal(getattr(ruled, name), getattr(plain, name))
    assert plain.rules_ == []


# ---- markers --------------------------------------------------------------------------


def test_a_weak_class_gets_its_markers(planted):
    X, y = planted
    plain = SemFS(7).fit(X, y)
    assert plain.coverage_[4] == 0
    ruled = SemFS(7, min_per_class=1).fit(X, y)
    assert ruled.coverage_.min() >= 1
    assert selected(ruled) & {10, 11}
    assert ruled.support_.sum() == 7
    assert "min_per_class: every seen class has 1 markers" in ruled.rules_[0]
    both = SemFS(10, min_per_class=2).fit(X, y)
    assert {10, 11} <= selected(both)
    assert both.coverage_.index.tolist() == [0, 1, 2, 3, 4]
    assert both.coverage_.name == "markers"


def test_too_many_markers_are_refused_by_name(planted):
    X, y = planted
    names = np.array(["ant", "bee", "cat", "dog", "elk"])[y]
    with pytest.raises(ParameterError, match=r"fewer features mark .*elk \(2\).*at most 2"):
        SemFS(10, min_per_class=3).fit(X, names)
    with pytest.raises(ParameterError, match=r"8 features cannot hold.*at most 1") as error:
        SemFS(8, min_per_class=2).fit(X, names)
    assert "Or select 10 features" in str(error.value)
    assert "(" in str(error.value).split("fewer:")[1]  # classes and what they reach


def test_described_unseen_classes_count():
    X, y, A = make_described_problem(1, C=24, U=4, d=600, m=12, noise=0.3)
    selector = SemFS(25, attributes=A, min_per_class=1).fit(X, y)
    assert ", used" in selector.knowledge_["unseen classes"]
    assert len(selector.coverage_) == 24
    assert selector.coverage_.iloc[:20].min() >= 1
    assert selector.marks_.shape == (24, 25)


def test_unseen_classes_without_enough_markers_are_named():
    X, y, A = make_described_problem(1, C=24, U=9, d=600, m=12, noise=0.3)
    selector = SemFS(24, attributes=A, min_per_class=1, max_correlation=None).fit(X[:, :60], y)
    (sentence,) = selector.rules_
    assert "2 unseen classes have fewer: 18, 23" in sentence
    assert (selector.coverage_[[18, 23]] == 0).all()
    assert "2 unseen cell types have fewer: 18, 23" in CELLS.put_into(sentence)


# ---- groups ---------------------------------------------------------------------------


def test_groups_are_selected_whole(planted):
    X, y = planted
    groups = np.repeat(["a", "b", "c", "d", "e", "f"], 2)
    selector = SemFS(2, groups=groups).fit(X, y)
    assert selector.support_.sum() == 4
    assert set(groups[selector.support_]) == {
        groups[selector.order_[0]],
        groups[selector.order_[2]],
    }
    assert selector.transform(X).shape == (200, 4)
    assert "groups: 2 groups of 4 features were selected" in selector.rules_[0]
    assert selector.predict(X).shape == (200,)


def test_groups_by_name_and_with_constant_columns(planted):
    pd = pytest.importorskip("pandas")
    X, y = planted
    X[:, 1] = 3.0  # a dead channel of the first sensor
    frame = pd.DataFrame(X, columns=[f"s{j // 3}c{j % 3}" for j in range(12)])
    by_name = {name: name[:2] for name in frame.columns}
    expected = SemFS(2, groups=[name[:2] for name in frame.columns]).fit(frame, y)
    for groups in (by_name, pd.Series(by_name)):
        found = SemFS(2, groups=groups).fit(frame, y)
        np.testing.assert_array_equal(found.support_, expected.support_)
    assert expected.support_.sum() == 6
    first = SemFS(1, groups=by_name, include=["s0c0"]).fit(frame, y)
    assert selected(first) == {0, 1, 2}
    without = SemFS(3, groups=by_name, exclude=["s0c0"]).fit(frame, y)
    assert not selected(without) & {0, 1, 2}  # a group that is not whole is not selected


def test_more_groups_than_there_are_is_refused(planted):
    X, y = planted
    with pytest.raises(ParameterError, match="is 9, but the rules leave 6 groups"):
        SemFS(9, groups=np.arange(12) // 2).fit(X, y)


# ---- costs ----------------------------------------------------------------------------


def test_a_budget_decides_the_number(planted):
    X, y = planted
    costs = np.linspace(1.0, 3.0, 12)
    selector = SemFS(None, costs=costs, budget=6.5).fit(X, y)
    spent = costs[selector.support_].sum()
    assert spent <= 6.5
    assert costs[~selector.support_].min() > 6.5 - spent  # nothing else is affordable
    assert f"of 6.5 spent on {selector.support_.sum()} features" in selector.rules_[0]
    both = SemFS(4, costs=costs, budget=6.5).fit(X, y)
    assert both.support_.sum() == 4
    assert costs[both.support_].sum() <= 6.5


def test_a_budget_that_is_too_small_is_refused(planted):
    X, y = planted
    with pytest.raises(
        ParameterError, match=r"too small for 4 features, which cost at least 8\. .*most 2 "
    ):
        SemFS(4, costs=np.full(12, 2.0), budget=5).fit(X, y)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"budget": 3.0}, "budget needs the price of each feature"),
        ({"costs": [1.0, 2.0], "budget": 3.0}, "one value for each of the 12 features"),
        (
            {"costs": {"x0": 1.0}, "budget": 3.0},
            "has no price for 11 of the 12 features .*: x1",
        ),
        ({"costs": [-1.0] * 12, "budget": 3.0}, "must be 0 or more, got -1 for 'x0'"),
        ({"groups": "sensor"}, "must be one value per feature"),
        ({"n_features_to_select": None}, "may be None only with a budget"),
        ({"min_level": 3.0, "max_level": 1.0}, "above max_level=1"),
        ({"min_level": "low"}, "must be a number"),
        ({"min_per_class": -1}, "min_per_class"),
        ({"capacity": {9: 1.0}}, "class 9 is not known"),
        ({"min_per_class": 1, "n_swaps": 3}, "n_swaps"),
        ({"min_per_class": 1, "solver": "alternating"}, 'needs solver="direct"'),
        ({"candidates": ["x99"]}, "candidates"),
        ({"max_level": -50.0}, "max_level leaves no feature"),
        ({"max_level": 5.0}, "max_level leaves . features, fewer than n_features_to_select=5"),
    ],
)
def test_rules_that_make_no_sense_are_refused(parameters, message, planted):
    X, y = planted
    with pytest.raises((ValueError, TypeError), match=message):
        SemFS(**({"n_features_to_select": 5} | parameters)).fit(X, y)


@pytest.mark.parametrize("prices", ["mapping", "list", "groups"])
def test_features_that_cannot_be_selected_need_no_price(planted, prices):
    X, y = planted
    X = X.copy()
    X[:, 3] = 1.0  # constant
    X[:, 7] = 1e-3 * X[:, 7]  # below the level
    rules = {"candidates": [0, 1, 2, 3, 4, 5, 7], "exclude": [1], "min_level": 0.1}
    priced = [0, 2, 4, 5]
    complete = np.arange(1.0, 13.0)
    costs = {f"x{j}": complete[j] for j in priced}
    if prices != "mapping":
        costs = [costs.get(f"x{j}") for j in range(12)]
    if prices == "groups":
        rules["groups"] = [0, 1, 0, 3, 4, 5, 6, 7, 8, 8, 10, 11]
    found = SemFS(None, costs=costs, budget=9.0, **rules).fit(X, y)
    expected = SemFS(None, costs=complete, budget=9.0, **rules).fit(X, y)
    assert found.order_.tolist() == expected.order_.tolist()
    assert selected(found) <= set(priced)
    # Without candidates more could be bought, but not what has no price.
    sentence = next(text for text in found.rules_ if text.startswith("candidates"))
    assert "with" not in sentence.replace("Without", "")
    costs[list(costs)[1] if prices == "mapping" else 2] = None
    refused = (
        r"has no price for 1 of the \d features that may be selected: x2\. Give prices, or"
    )
    with pytest.raises(ParameterError, match=refused):
        SemFS(None, costs=costs, budget=9.0, **rules).fit(X, y)


def test_a_price_list_may_name_features_that_the_data_lack(planted):
    pandas = pytest.importorskip("pandas")
    X, y = planted
    frame = pandas.DataFrame(X, columns=[f"G{j}" for j in range(12)])
    prices = {f"G{j}": 1.0 for j in range(12)}
    expected = SemFS(None, costs=prices, budget=3.0).fit(frame, y)
    more = {"g3": 9.0, **prices, "OTHER": 9.0}
    message = r"2 of 14 names in the price list .*: g3, OTHER\. Similar features.*: G3\."
    for costs in (more, pandas.Series(more)):
        with pytest.warns(ParameterWarning, match=message):
            found = SemFS(None, costs=costs, budget=3.0).fit(frame, y)
        assert found.order_.tolist() == expected.order_.tolist()
    with pytest.raises(ParameterError, match="no feature named 'OTHER'"):
        SemFS(None, costs={"OTHER": 1.0}, budget=3.0).fit(frame, y)


def test_a_group_that_may_be_selected_needs_a_price(planted):
    X, y = planted
    groups = ["a", "a", "b", "b", "c", "c", "d", "d", "e", "e", "f", "f"]
    prices = {"a": 1.0, "b": 1.0, "c": 1.0}
    with pytest.raises(ParameterError, match=r"no price for 3 of the 6 groups .*: d, e, f"):
        SemFS(None, groups=groups, costs=prices, budget=2.0).fit(X, y)
    rules = {"groups": groups, "candidates": ["a", "b", "c"]}
    found = SemFS(None, costs=prices, budget=2.0, **rules).fit(X, y)
    assert selected(found) <= set(range(6))
    assert "of the budget" not in found.rules_[0]  # the price of d, e and f is not known
    chosen = SemFSCV(None, costs=prices, budget=2.0, n_repeats=1, **rules).fit(X, y)
    assert selected(chosen) <= set(range(6))


def test_costs_of_groups_by_their_labels(planted):
    X, y = planted
    groups = np.repeat(["a", "b", "c", "d", "e", "f"], 2)
    prices = dict(zip("abcdef", [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    found = SemFS(None, groups=groups, costs=prices, budget=2.0).fit(X, y)
    assert found.support_.sum() == 4
    assert "a" not in groups[found.support_]
    assert "of 2 spent on 2 groups" in " ".join(found.rules_)


class CountedNames(list):
    """Names that count how often they are gone through."""

    n_passes = 0

    def __iter__(self):
        self.n_passes += 1
        return super().__iter__()


def test_feature_names_are_gone_through_once_for_all_prices():
    names = CountedNames([f"g{i}" for i in range(50)])
    prices = {f"g{i}": float(i) for i in range(50)}
    assert feature_costs(prices, 50, names).tolist() == list(prices.values())
    assert names.n_passes <= 2


def test_prices_in_a_series_are_saved(planted, tmp_path):
    X, y = planted
    pandas = pytest.importorskip("pandas")
    groups = pandas.Series(np.repeat(["a", "b", "c", "d", "e", "f"], 2))
    prices = pandas.Series(dict.fromkeys("abcdef", 2.0))
    selector = SemFS(None, groups=groups, costs=prices, budget=4.0).fit(X, y)
    loaded = load(save(selector, tmp_path / "s.semfs"))
    assert loaded.costs == prices.to_dict()
    # what was loaded can be fitted again
    assert loaded.fit(X, y).order_.tolist() == selector.order_.tolist()


def test_semfscv_takes_prices_of_groups(planted):
    X, y = planted
    groups = np.repeat(["a", "b", "c", "d", "e", "f"], 2)
    prices = dict.fromkeys("abcdef", 2.0)
    found = SemFSCV(None, groups=groups, costs=prices, budget=4.0, n_repeats=1).fit(X, y)
    assert found.support_.sum() == 4
    # folds select as many features: 4 of 12 whose groups cost 12 in all
    assert found._n_bought(12) == 4


def test_a_series_may_price_groups_or_features(planted):
    X, y = planted
    pandas = pytest.importorskip("pandas")
    groups = np.repeat(["a", "b", "c", "d", "e", "f"], 2)
    prices = dict(zip("abcdef", [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    by_mapping = SemFS(None, groups=groups, costs=prices, budget=2.0).fit(X, y)
    by_series = SemFS(None, groups=groups, costs=pandas.Series(prices), budget=2.0).fit(X, y)
    assert by_series.support_.tolist() == by_mapping.support_.tolist()
    # one value per feature, in order
    halves = pandas.Series([prices[label] / 2 for label in groups])
    in_order = SemFS(None, groups=groups, costs=halves, budget=2.0).fit(X, y)
    assert in_order.support_.tolist() == by_mapping.support_.tolist()
    with pytest.raises(TypeError, match="one value per feature"):
        SemFS(3, groups=pandas.DataFrame({"sensor": groups})).fit(X, y)


# ---- what is kept out -----------------------------------------------------------------


def make_sensors():
    """Channels of 16 sensors, and their prices: a sensor measures a mixture of attributes."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(8, 5)), [f"c{c}" for c in range(8)])
    y = np.tile(table.index, 40)
    mixture = rng.normal(size=(5, 16)) * rng.gamma(1.0, 0.6, 16)
    names = [f"s{j // 4}_ch{j % 4}" for j in range(64)]
    channels = np.repeat(table.loc[y].to_numpy() @ mixture, 4, axis=1)
    X = pd.DataFrame(channels + rng.normal(size=channels.shape), columns=names)
    groups = {name: name.partition("_")[0] for name in names}
    prices = {f"s{j}": float(rng.integers(10, 40)) for j in range(16)}
    return X, y, {"attributes": table, "groups": groups, "costs": prices}


def said_gain(sentence):
    """The percentage by which the fit would be better, as a sentence says."""
    return float(re.search(r"at least ([\d.]+) % better", sentence).group(1))


def test_what_is_said_of_a_forbidden_group_is_what_a_fit_without_the_rule_finds():
    X, y, sensors = make_sensors()
    free = SemFS(None, budget=150, **sensors).fit(X, y)
    groups = sensors["groups"]
    bought = dict.fromkeys(groups[name] for name in free.get_feature_names_out())
    assert len(bought) >= 5
    said = []
    true = []
    for sensor in bought:
        ruled = SemFS(None, budget=150, exclude=[f"{sensor}_ch1"], **sensors).fit(X, y)
        price = sensors["costs"][sensor]
        text = f"exclude: group {sensor} (4 features, {price:g} of the budget) ruled out. Wi"
        assert ruled.rules_[0].startswith(text)
        said.append(said_gain(ruled.rules_[0]))
        true.append(100.0 * (1.0 - free.objective_[-1] / ruled.objective_[-1]))
    np.testing.assert_allclose(said, true, rtol=0.05)
    assert np.ptp(true) > 1.0
    assert np.argsort(said).tolist() == np.argsort(true).tolist()


def test_rules_take_names_of_groups(tmp_path):
    X, y, sensors = make_sensors()
    rules = {"attributes": sensors["attributes"], "groups": sensors["groups"]}
    by_name = SemFS(3, exclude=["s7"], include=["s2"], **rules).fit(X, y)
    channels = [name for name in X.columns if name.startswith("s7_")]
    by_channel = SemFS(3, exclude=channels, include=["s2_ch0"], **rules).fit(X, y)
    np.testing.assert_array_equal(by_name.support_, by_channel.support_)
    assert by_name.rules_[0] == by_channel.rules_[0]
    owned = ["s1", "s4", "s5", "s9"]
    among = SemFS(3, candidates=owned, **rules).fit(X, y)
    assert {name.partition("_")[0] for name in among.get_feature_names_out()} < set(owned)
    assert load(save(among, tmp_path / "owned.npz")).candidates == owned
    grid = {"gamma": [1.0, 2.0]}
    folds = SemFSCV(3, param_grid=grid, cv=2, n_repeats=1, candidates=owned, **rules)
    chosen = folds.fit(X, y).get_feature_names_out()
    assert {name.partition("_")[0] for name in chosen} < set(owned)


@pytest.mark.parametrize("rule", ["exclude", "candidates"])
def test_what_is_said_of_forbidden_features_is_what_a_fit_without_the_rule_finds(rule):
    X, y, _ = make_sensors()
    free = SemFS(6).fit(X, y)
    best = free.order_[:3].tolist()
    others = np.setdiff1d(np.arange(64), best).tolist()
    ruled = SemFS(6, **{rule: best if rule == "exclude" else others}).fit(X, y)
    true = 100.0 * (1.0 - free.objective_[-1] / ruled.objective_[-1])
    assert ruled.rules_[0].startswith(f"{rule}: 3 features ruled out. Without this rule")
    assert said_gain(ruled.rules_[0]) == pytest.approx(true, rel=0.05)
    assert X.columns[best[0]] in ruled.rules_[0]
    useless = int(free.order_[-1])
    harmless = SemFS(6, exclude=[useless]).fit(X, y)
    assert harmless.rules_ == ["exclude: 1 feature ruled out; it cost nothing."]


def test_a_near_copy_of_a_selected_feature_is_not_counted_as_forbidden_gain():
    X, y, _ = make_sensors()
    # Only one of two twins can be selected, so the other one adds nothing if it may be.
    both = X.join(X.add_suffix("_twin"))
    free = SemFS(6).fit(both, y)
    twins = [(int(j) + 64) % 128 for j in free.order_[:3]]
    assert set(twins) <= set(free.skipped_)
    ruled = SemFS(6, exclude=twins).fit(both, y)
    np.testing.assert_array_equal(ruled.order_[:6], free.order_[:6])
    assert ruled.rules_ == ["exclude: 3 features ruled out; it cost nothing."]


# ---- levels ---------------------------------------------------------------------------


def test_windows_rule_features_out(planted):
    X, y = planted
    highest = np.stack([X[y == c].mean(axis=0) for c in range(5)]).max(axis=0)
    low, high = np.quantile(highest, [0.1, 0.6])
    selector = SemFS(3, max_level=high, min_level=low).fit(X, y)
    inside = np.flatnonzero((highest <= high) & (highest >= low))
    assert selected(selector) <= set(inside.tolist())
    texts = {text.split(":")[0]: text for text in selector.rules_}
    assert set(texts) == {"min_level", "max_level"}
    n_high = int((highest > high).sum())
    assert f"max_level: {n_high} features ruled out. Without" in texts["max_level"]


def test_capacity_is_kept_in_every_class(planted):
    X, y = planted
    means = np.stack([X[y == c].mean(axis=0) for c in range(5)])
    selector = SemFS(5, capacity=17.0).fit(X, y)
    assert means[:, selector.support_].sum(axis=1).max() <= 17.0
    assert selector.support_.sum() == 5
    one = SemFS(5, capacity={2: 12.0}).fit(X, y)
    assert means[2, one.support_].sum() <= 12.0
    with pytest.raises(
        ParameterError,
        match=r"is too small for 5 features. .* would suffice. At most . features are",
    ):
        SemFS(5, capacity=9.0).fit(X, y)
    with pytest.raises(ParameterError, match="signals of 0 or more"):
        SemFS(5, capacity=9.0).fit(X - 10.0, y)


def test_rules_together(planted):
    X, y = planted
    means = np.stack([X[y == c].mean(axis=0) for c in range(5)])
    costs = np.linspace(2.0, 1.0, 12)
    selector = SemFS(
        6, costs=costs, budget=9.5, capacity=30.0, min_per_class=1, exclude=[0], include=[9]
    ).fit(X, y)
    assert selector.support_.sum() == 6
    assert selector.order_[0] == 9
    assert 0 not in selected(selector)
    assert costs[selector.support_].sum() <= 9.5
    assert means[:, selector.support_].sum(axis=1).max() <= 30.0
    assert selector.coverage_.min() >= 1
    named = [text.split(":")[0] for text in selector.rules_]
    assert named == ["exclude", "include", "min_per_class", "budget", "capacity"]
    costs_said = [text for text in selector.rules_ if "better" in text or "nothing" in text]
    assert len(costs_said) == 5


# ---- data in other forms --------------------------------------------------------------

RULES = {
    "min_per_class": 1,
    "costs": np.linspace(2.0, 1.0, 12),
    "budget": 12.0,
    "capacity": 40.0,
    "max_level": 9.0,
}


def test_blocks_and_parts_give_the_same_panel(planted, tmp_path):
    X, y = planted
    whole = SemFS(7, **RULES).fit(X, y)
    parts = SemFS(7, **RULES).partial_fit(X[:100], y[:100])
    # not all classes are there yet: the rules hold for those that are
    parts.partial_fit(X[100:], y[100:])
    np.testing.assert_array_equal(parts.support_, whole.support_)
    blocks = [(X[i::4], y[i::4]) for i in range(4)]
    streamed = SemFS(7, **RULES).fit(iter(blocks))
    np.testing.assert_array_equal(streamed.support_, whole.support_)
    assert streamed.rules_ == whole.rules_
    again = load(save(whole, tmp_path / "panel.npz"))
    assert again.rules_ == whole.rules_
    np.testing.assert_array_equal(again.coverage_, whole.coverage_)


def test_cross_validation_passes_rules_on(lining):
    X, y = lining
    grid = {"gamma": [1.0, 10.0]}
    found = SemFSCV(20, param_grid=grid, cv=3, n_repeats=1, min_per_class=2).fit(X, y)
    assert found.coverage_.min() >= 2
    assert found.support_.sum() == 20
    costs = np.ones(X.shape[1])
    bought = SemFSCV(None, param_grid=grid, cv=3, n_repeats=1, costs=costs, budget=12.0)
    assert bought.fit(X, y).support_.sum() == 12
    only = SemFSCV(8, param_grid=grid, cv=3, n_repeats=1, candidates=range(40)).fit(X, y)
    assert max(selected(only)) < 40
    with pytest.raises(ParameterError, match="cannot be combined with groups"):
        SemFSCV("auto", groups=np.zeros(X.shape[1])).fit(X, y)


def test_top_features_keep_their_marks(planted):
    X, y = planted
    fitted = SemFS(6).fit(X, y)._get_fitted()
    top = fitted.top(3)
    assert top.marks.shape == (5, 3)
    kept = np.isin(fitted.selected, top.selected)
    np.testing.assert_array_equal(top.marks, fitted.marks[:, kept])


def test_candidates_by_name_and_pattern():
    pd = pytest.importorskip("pandas")
    X, y, _ = make_problem(0, d=12)
    frame = pd.DataFrame(
        X, columns=[*(f"g{j}" for j in range(6)), *(f"h{j}" for j in range(6))]
    )
    found = SemFS(3, candidates=["re:^h", "g1"]).fit(frame, y)
    assert all(name == "g1" or name[0] == "h" for name in found.get_feature_names_out())
    assert "candidates: 5 features ruled out" in found.rules_[0]
    assert np.isneginf(found.scores_[0])


def test_a_capacity_that_is_too_small_names_its_class():
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cow"], 20)
    X = rng.random((60, 8)) + 5.0
    with pytest.raises(ValueError, match="capacity of class cow is too small"):
        SemFS(4, capacity={"cow": 1.0}).fit(X, y)


def advised(error, pattern):
    """The number that a message names."""
    return float(re.search(pattern, str(error.value))[1])


@pytest.mark.parametrize("seed", range(6))
def test_the_limits_that_a_refusal_names_are_enough_and_hardly_less_is(seed, planted):
    X, y = planted
    X = np.abs(X)
    rng = np.random.default_rng(seed)
    costs = rng.uniform(1.0, 9.0, 12)
    budget = {"costs": costs, "budget": 1.0}
    include = {"include": [int(np.argmax(costs))]}
    with pytest.raises(ParameterError) as error:
        SemFS(4, **budget, **include).fit(X, y)
    enough = advised(error, r"cost at least ([\d.]*\d)")
    bought = SemFS(4, costs=costs, budget=enough, **include).fit(X, y)
    assert bought.support_.sum() == 4
    with pytest.raises(ParameterError, match="budget"):
        SemFS(4, costs=costs, budget=0.998 * enough, **include).fit(X, y)
    with pytest.raises(ParameterError) as error:
        SemFS(6, capacity=1.0, min_per_class=1).fit(X, y)
    enough = advised(error, r"([\d.]+) would suffice")
    assert SemFS(6, capacity=enough, min_per_class=1).fit(X, y).coverage_.min() >= 1
    with pytest.raises(ParameterError, match=r"capacity|min_per_class"):
        SemFS(6, capacity=0.98 * enough, min_per_class=1).fit(X, y)
    limits = {0: 1.0, 3: 2.0}
    with pytest.raises(ParameterError) as error:
        SemFS(5, capacity=limits).fit(X, y)
    factor = advised(error, r"([\d.]+) times as much would suffice")
    more = {label: factor * limit for label, limit in limits.items()}
    assert SemFS(5, capacity=more).fit(X, y).support_.sum() == 5


def test_a_budget_too_small_for_markers_names_one_that_is_enough(planted):
    X, y = planted
    costs = np.ones(12)
    costs[[10, 11]] = 20.0
    with pytest.raises(ParameterError, match="markers of every class") as error:
        SemFS(6, costs=costs, budget=10.0, min_per_class=1).fit(X, y)
    enough = advised(error, r"raise the budget to ([\d.]+)\.")
    found = SemFS(6, costs=costs, budget=enough, min_per_class=1).fit(X, y)
    assert found.coverage_.min() >= 1
    assert "It can be at most 0" not in str(error.value)


def test_one_group_that_is_left_is_one_group(planted):
    X, y = planted
    groups = np.arange(12) // 2
    with pytest.raises(ParameterError, match="is 2, but the rules leave 1 group to select"):
        SemFS(2, groups=groups, candidates=[0, 1]).fit(X, y)


def test_a_budget_that_buys_nothing_is_refused():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 10)
    X = 5.0 + y[:, None] + rng.normal(size=(30, 4))
    with pytest.raises(ValueError, match=r"budget of 1 is too small: the cheapest .* costs 2"):
        SemFS(None, costs=[2.0, 3.0, 4.0, 5.0], budget=1.0).fit(X, y)
    options = {"costs": [0.0, 0.0, 0.0, 0.0], "budget": 1.0, "capacity": 0.5}
    with pytest.raises(
        ValueError,
        match=r"capacity is smaller than the signal of every feature. In class 2, the "
        r"capacity is 0\.5, "
        r"but the closest feature has a signal of 6\.\d+\. Raise the capacity",
    ):
        SemFS(None, **options).fit(X, y)
    # what is forced needs no further feature
    chosen = SemFS(None, costs=[1.0, 3.0, 4.0, 5.0], budget=1.0, include=[0]).fit(X, y)
    assert chosen.get_support().tolist() == [True, False, False, False]


def test_a_group_half_included_and_half_excluded_is_refused(planted):
    X, y = planted[:2]
    devices = np.arange(X.shape[1]) // 2
    selector = SemFS(2, groups=devices, include=[0], exclude=[1])
    with pytest.raises(ValueError, match="which is in a group with"):
        selector.fit(X, y)


@pytest.mark.parametrize("rule", [{"exclude": [1]}, {"candidates": [0, *range(2, 12)]}])
def test_an_excluded_constant_feature_keeps_its_group_out(rule, planted):
    """It was selected in secret, and another group lost a feature for it."""
    X, y = planted
    X[:, 1] = 3.0
    groups = [j // 2 for j in range(12)]
    ruled = selected(SemFS(3, groups=groups, **rule).fit(X, y))
    assert not ruled & {0, 1}
    assert len(ruled) == 6
    with pytest.raises(ParameterError, match="whole group"):
        SemFS(3, groups=groups, include=[0], **rule).fit(X, y)


def test_a_list_of_probes_may_name_features_that_the_data_lack(planted, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = planted
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(12)])
    probes = tmp_path / "probes.txt"
    probes.write_text("gene\ng1\nnot there\ng3\ng5\nnor there\n")
    with pytest.warns(ParameterWarning, match="candidates: 2 of 5 names .* not there, nor"):
        chosen = SemFS(2, candidates=[str(probes)]).fit(frame, y)
    assert set(chosen.get_feature_names_out()) <= {"g1", "g3", "g5"}
    with pytest.raises(ParameterError, match="no features named 'not there', 'nor there'"):
        SemFS(3, include=[str(probes)]).fit(frame, y)
    frame = frame.rename(columns={"g7": "there_ENSG01"})
    probes.write_text("gene\ng1\nthere\ng3\n")
    with pytest.warns(ParameterWarning, match="there. Similar features .* there_ENSG01"):
        SemFS(2, candidates=[str(probes)]).fit(frame, y)
    probes.write_text("nothing\nof these\n")
    with pytest.raises(ParameterError, match="no features named 'nothing', 'of these'"):
        SemFS(2, candidates=[str(probes)]).fit(frame, y)


@pytest.mark.parametrize("rule", ["groups", "costs"])
def test_values_with_names_are_refused_for_samples_without(rule, planted):
    pd = pytest.importorskip("pandas")
    X, y = planted
    names = [f"s{j}" for j in range(12)]
    values = pd.Series(np.arange(12) // 3, index=names)
    rules = {rule: values, **({"budget": 5.0} if rule == "costs" else {})}
    with pytest.raises(ParameterError, match=rf"{rule} has names \(s0, .*set_output"):
        SemFS(2, **rules).fit(X, y)
    # in any order they are read by name, and numbers are places
    frame = pd.DataFrame(X, columns=names)
    shuffled = values.sample(frac=1.0, random_state=0)
    in_order = SemFS(2, **{**rules, rule: values.tolist()}).fit(X, y)
    by_name = SemFS(2, **{**rules, rule: shuffled}).fit(frame, y)
    by_place = SemFS(2, **{**rules, rule: values.reset_index(drop=True)}).fit(X, y)
    assert selected(by_name) == selected(in_order) == selected(by_place)


def test_prices_of_groups_need_groups(planted):
    X, y = planted
    with pytest.raises(
        ParameterError, match=r"got shape \(4,\). To give costs for groups, set groups"
    ):
        SemFS(2, costs=[1.0, 2.0, 3.0, 4.0], budget=3.0).fit(X, y)


def test_markers_of_classes_with_few_samples_are_called_uncertain(planted):
    X, y = planted
    kept = np.flatnonzero((y != 2) | (np.arange(200) % 20 == 0))  # two samples of class 2
    found = SemFS(8, min_per_class=1).fit(X[kept], y[kept])
    sentence = next(text for text in found.rules_ if text.startswith("min_per_class"))
    assert "(1 asked for), which is uncertain for classes with fewer than 5 samples: 2 (2)" in (
        sentence
    )
    found = SemFS(8, min_per_class=1).fit(X, y)
    assert not any("uncertain" in text for text in found.rules_)


def test_a_gain_that_nobody_would_notice_is_not_given_in_numbers():
    texts = {}
    nothing = np.zeros(0, dtype=int)
    for decrease in (5.0 + 1e-5, 5.5):
        relaxed = {"budget": Relaxed(decrease, nothing, nothing)}
        findings = Findings({"budget": "spent"}, J=5.0, J_start=10.0, relaxed=relaxed.copy)
        texts[decrease] = findings.sentences()[0]
    assert texts[5.0 + 1e-5].endswith("Without the limit the fit would be hardly any better.")
    assert texts[5.5].endswith("Without the limit the fit would be at least 10.0 % better.")


def test_what_rules_cost_is_found_when_it_is_read_and_is_saved(lining, tmp_path):
    """A search for each rule, and each group, would make a fit take twice as long."""
    X, y = lining
    costs = np.arange(1.0, X.shape[1] + 1.0)
    selector = SemFS(10, min_per_class=1, costs=costs, budget=2000.0).fit(X, y)
    assert "rules_" not in vars(selector)
    save(selector, tmp_path / "s.semfs")
    said = selector.rules_
    assert len(said) == 2
    assert all("better" in text or "nothing" in text for text in said)
    assert pickle.loads(pickle.dumps(selector)).rules_ == said
    assert load(tmp_path / "s.semfs").rules_ == said
    assert selector.set_params(costs=None, budget=None, min_per_class=0).fit(X, y).rules_ == []
    assert not hasattr(SemFS(10), "rules_")
