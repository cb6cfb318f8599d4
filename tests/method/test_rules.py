"""Rules of a panel against all panels of small problems, and demands that are never broken."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from problems import fit_of, make_problem, paper_B, paper_gram
from semfs.method.demands import (
    Coverage,
    Demands,
    cheapest_panel,
    feasible_panel,
    largest_number,
    shortfalls,
    smallest_stretch,
)
from semfs.method.direct import solve_direct
from semfs.method.known_panel import KnownPanel
from semfs.method.markers import class_markers
from semfs.method.panel import Panel
from semfs.method.panel_search import N_BEST
from semfs.method.quadratic import FetchSizes, Quadratic
from semfs.method.rules import KeepFeasible, KeepWithinLimit, rule_of

GAMMA = 3.0


def make_quadratic(seed, d=12):
    X, y, A = make_problem(seed, n=80, d=d, C=5, m=4)
    G = paper_gram(X, y, 1.0)
    B = paper_B(X, y, A, 1.0)
    q = 2.0 * (A[y] ** 2).sum()
    return G, B, Quadratic(q, B, np.diag(G), GAMMA, lambda i: G[:, i], 1e-16)


def make_demands(U, count, *, usage=(), limits=(), supply=(), needs=(), forced=()):
    mask = np.zeros(U, dtype=bool)
    mask[list(forced)] = True
    return Demands(
        available=np.ones(U, dtype=bool),
        forced=mask,
        count=count,
        usage=np.array(usage, dtype=float).reshape(len(limits), U),
        limits=np.array(limits, dtype=float),
        supply=np.array(supply, dtype=float).reshape(len(needs), U),
        needs=np.array(needs, dtype=float),
    )


def select(quadratic, panel):
    solution = solve_direct([quadratic], 99, panel=panel)
    return np.flatnonzero(solution.s).tolist(), solution


def panel_of(demands, **options):
    feasible = feasible_panel(demands)
    assert feasible is not None
    assert demands.met_by(feasible)
    return Panel(demands.count, demands=demands, feasible=feasible, **options)


def all_panels(U, count):
    sizes = range(U + 1) if count is None else [count]
    for size in sizes:
        yield from itertools.combinations(range(U), size)


def best_fit(G, B, demands, members=None):
    """The largest F(S) of all panels that satisfy the demands; None if there is none."""
    U = len(demands.available)
    best = None
    for units in all_panels(U, demands.count):
        mask = np.zeros(U, dtype=bool)
        mask[list(units)] = True
        if demands.met_by(mask):
            columns = units if members is None else np.concatenate([members[u] for u in units])
            value = fit_of(G, B, columns, GAMMA) if len(columns) else 0.0
            best = value if best is None else max(best, value)
    return best


def random_demands(rng, U=12):
    """Random quotas, capacities and a budget, some of them loose, some tight."""
    count = int(rng.integers(2, 6)) if rng.random() < 0.7 else None
    usage = [rng.random(U)]
    limits = [float(rng.uniform(0.5, 3.0))]
    for _ in range(int(rng.integers(0, 3))):
        usage.append(rng.exponential(size=U))
        limits.append(float(rng.uniform(1.0, 6.0)))
    n_needs = int(rng.integers(0, 4))
    supply = (rng.random((n_needs, U)) < 0.3).astype(float)
    needs = rng.integers(0, 3, n_needs).astype(float)
    return make_demands(U, count, usage=usage, limits=limits, supply=supply, needs=needs)


# ---- off is off -----------------------------------------------------------------------


def test_panel_without_rules_is_todays_search():
    _, _, quadratic = make_quadratic(0)
    plain = solve_direct([quadratic], 5)
    loose = make_demands(12, 5, usage=np.ones((1, 12)), limits=[5.0])
    for panel in (Panel(5), panel_of(loose), Panel(5, unit_of=np.arange(12))):
        _, solution = select(quadratic, panel)
        assert solution.order[:5].tolist() == plain.order[:5].tolist()
        np.testing.assert_allclose(solution.objective, plain.objective, rtol=1e-12)
    _, solution = select(quadratic, panel_of(loose))
    np.testing.assert_array_equal(solution.objective, plain.objective)  # bit for bit


def test_unit_costs_and_a_budget_of_k_are_todays_answer():
    _, _, quadratic = make_quadratic(1)
    plain = solve_direct([quadratic], 4)
    demands = make_demands(12, None, usage=np.ones((1, 12)), limits=[4.0])
    _, solution = select(quadratic, panel_of(demands, costs=np.ones(12)))
    np.testing.assert_array_equal(solution.order[:4], plain.order[:4])
    np.testing.assert_array_equal(solution.objective, plain.objective)


# ---- against all panels ---------------------------------------------------------------


def shares_of_optimum(make, n=30):
    shares = []
    for seed in range(n):
        G, B, quadratic = make_quadratic(seed)
        rng = np.random.default_rng(seed)
        demands, options = make(rng)
        best = best_fit(G, B, demands)
        if best is None:
            assert feasible_panel(demands) is None
            continue
        chosen, _ = select(quadratic, panel_of(demands, **options))
        mask = np.isin(np.arange(12), chosen)
        assert demands.met_by(mask)
        shares.append(fit_of(G, B, chosen, GAMMA) / best)
    assert len(shares) > n / 2
    return np.array(shares)


@pytest.mark.slow
def test_budget_is_near_the_best_of_all_panels():
    def make(rng):
        costs = rng.uniform(0.2, 2.0, 12)
        demands = make_demands(12, None, usage=[costs], limits=[float(0.35 * costs.sum())])
        return demands, {"costs": costs}

    assert shares_of_optimum(make).mean() >= 0.9


def test_capacity_is_near_the_best_of_all_panels():
    def make(rng):
        signal = rng.exponential(size=(5, 12))
        limits = signal.sum(axis=1) * rng.uniform(0.3, 0.5, 5)
        return make_demands(12, 4, usage=signal, limits=limits), {}

    assert shares_of_optimum(make).mean() >= 0.9


def test_quota_is_near_the_best_of_all_panels():
    def make(rng):
        supply = rng.random((4, 12)) < 0.25
        return make_demands(12, 5, supply=supply, needs=[1, 2, 1, 1]), {}

    assert shares_of_optimum(make).mean() >= 0.9


@pytest.mark.slow
def test_all_demands_together_are_near_the_best_of_all_panels():
    def make(rng):
        return random_demands(rng), {}

    assert shares_of_optimum(make, n=60).mean() >= 0.9


def test_groups_are_near_the_best_of_all_groups():
    shares = []
    for seed in range(30):
        G, B, quadratic = make_quadratic(seed)
        unit_of = np.random.default_rng(seed).integers(0, 6, 12)
        unit_of = np.unique(unit_of, return_inverse=True)[1]
        U = int(unit_of.max()) + 1
        members = [np.flatnonzero(unit_of == u) for u in range(U)]
        best = best_fit(G, B, make_demands(U, 3), members)
        chosen, _ = select(quadratic, Panel(3, unit_of=unit_of))
        assert len(np.unique(unit_of[chosen])) == 3
        assert len(chosen) == sum(len(members[u]) for u in np.unique(unit_of[chosen]))
        shares.append(fit_of(G, B, chosen, GAMMA) / best)
    assert np.mean(shares) >= 0.9


def test_groups_are_selected_by_their_exact_gains():
    G, B, quadratic = make_quadratic(7)
    unit_of = np.array([0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4])
    chosen: list[int] = []
    for n in range(1, 4):
        rest = [u for u in range(5) if not np.isin(np.flatnonzero(unit_of == u), chosen).any()]
        fits = {u: fit_of(G, B, [*chosen, *np.flatnonzero(unit_of == u)], GAMMA) for u in rest}
        chosen += np.flatnonzero(unit_of == max(fits, key=fits.get)).tolist()
        found, solution = select(quadratic, Panel(n, unit_of=unit_of))
        assert sorted(found) == sorted(chosen)
        assert solution.objective[-1] == pytest.approx(
            quadratic.q - fit_of(G, B, chosen, GAMMA)
        )


def test_gains_of_orthogonal_groups_add_up():
    G = np.diag([2.0, 1.0, 3.0, 1.0])
    B = np.array([[1.0], [2.0], [3.0], [0.5]])
    quadratic = Quadratic(20.0, B, np.diag(G), 1.0, lambda i: G[:, i], 1e-16)
    found, solution = select(quadratic, Panel(1, unit_of=np.array([0, 0, 1, 1])))
    assert found == [2, 3]
    assert solution.objective[-1] == pytest.approx(20.0 - 9.0 / 4.0 - 0.25 / 2.0)


# ---- whatever was fetched -------------------------------------------------------------


FETCHING = {
    "one column at a time": FetchSizes(least=1, most=1, extra=0),
    "as usual": FetchSizes(),
    "all columns at once": FetchSizes(least=1000, most=1000, extra=1000),
}


def block_of(G, features):
    return G[np.ix_(features, features)].copy()


def selected_however_fetched(G, quadratic, panel):
    """The answer with each way of fetching columns; with estimates of G, bad ones too."""
    noise = np.random.default_rng(0).normal(size=G.shape) * np.diag(G).mean() / 5.0
    wrong = G + noise + noise.T
    answers = {}
    for name, sizes in FETCHING.items():
        for estimate in (None, G, wrong):
            known = replace(quadratic, fetch_sizes=sizes)
            if estimate is not None:
                known = replace(known, estimate=partial(block_of, estimate))
            order = select(known, panel)[1].order
            n_selected = len(select(known, panel)[0])
            kind = "none" if estimate is None else "exact" if estimate is G else "wrong"
            answers[name, kind] = order[:n_selected].tolist()
    return answers


@pytest.mark.parametrize("seed", range(12))
def test_the_answer_does_not_depend_on_the_columns_that_were_fetched(seed):
    rng = np.random.default_rng(seed)
    d = 40
    G, _, quadratic = make_quadratic(seed, d)
    demands = random_demands(rng, d)
    unit_of = np.sort(rng.integers(0, 15, d)) if seed % 3 == 0 else None
    if unit_of is not None:
        unit_of = np.unique(unit_of, return_inverse=True)[1]
        demands = random_demands(rng, int(unit_of.max()) + 1)
    if feasible_panel(demands) is None:
        demands = replace(demands, needs=np.zeros(len(demands.needs)))
    costs = demands.usage[0] if seed % 2 else None
    if feasible_panel(demands) is None:
        demands = replace(demands, count=None)
    panel = panel_of(demands, costs=costs, unit_of=unit_of)
    answers = selected_however_fetched(G, quadratic, panel)
    assert len(answers["as usual", "none"]) > 0
    assert all(answer == answers["as usual", "none"] for answer in answers.values())


def test_a_budget_gives_the_better_of_two_plain_searches():
    """Gain per cost among all; gain among those and the best alone, in plain formulas."""
    n_second = 0
    for seed in range(20):
        G, B, quadratic = make_quadratic(seed, 30)
        costs = np.random.default_rng(seed).lognormal(sigma=1.5, size=30)
        limit = 0.1 * costs.sum()

        def fit(features, G=G, B=B):
            return fit_of(G, B, features, GAMMA) if features else 0.0

        def greedy(among, score, costs=costs, limit=limit, fit=fit):
            chosen = []
            while True:
                spent = costs[chosen].sum()
                left = [j for j in among if j not in chosen and spent + costs[j] <= limit]
                if not left:
                    return chosen
                gains = {j: fit([*chosen, j]) - fit(chosen) for j in left}
                chosen.append(max(left, key=lambda j, gains=gains: score(gains[j], j)))

        first = greedy(range(30), lambda gain, j, costs=costs: gain / costs[j])
        affordable = np.flatnonzero(costs <= limit).tolist()
        best = sorted(affordable, key=lambda j, fit=fit: -fit([j]))[:N_BEST]
        second = greedy(sorted({*first, *best}), lambda gain, j: gain)
        expected = second if fit(second) > fit(first) * (1.0 + 1e-9) else first
        n_second += expected is second
        demands = make_demands(30, None, usage=[costs], limits=[limit])
        chosen, _ = select(quadratic, panel_of(demands, costs=costs))
        assert chosen == sorted(expected)
    assert 0 < n_second < 20


# ---- never broken ---------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), per_cost=st.booleans())
def test_demands_are_never_broken_and_feasibility_is_exact(seed, per_cost):
    rng = np.random.default_rng(seed)
    demands = random_demands(rng)
    masks = []
    for units in all_panels(12, demands.count):
        mask = np.zeros(12, dtype=bool)
        mask[list(units)] = True
        masks.append(mask)
    possible = any(demands.met_by(mask) for mask in masks)
    feasible = feasible_panel(demands)
    assert (feasible is not None) == possible
    if feasible is None:
        return
    _, _, quadratic = make_quadratic(seed % 50)
    costs = demands.usage[0] if per_cost else None
    chosen, _ = select(quadratic, panel_of(demands, costs=costs))
    assert demands.met_by(np.isin(np.arange(12), chosen))


def test_the_second_search_of_a_budget_does_not_select_fewer():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        _, _, quadratic = make_quadratic(seed % 20, 40)
        usage = rng.exponential(size=(2, 40))
        limits = np.sort(usage, axis=1)[:, :8].sum(axis=1) * rng.uniform(2.0, 4.0, 2)
        demands = make_demands(40, 6, usage=usage, limits=limits)
        if feasible_panel(demands) is None:
            continue
        chosen, _ = select(quadratic, panel_of(demands, costs=usage[0]))
        assert demands.met_by(np.isin(np.arange(40), chosen))


def test_greedy_avoids_the_corner():
    """The best feature leaves no room for the markers: it must not be taken."""
    G = np.eye(4)
    B = np.array([[10.0], [1.0], [1.0], [5.0]])
    quadratic = Quadratic(200.0, B, np.diag(G), 1.0, lambda i: G[:, i], 1e-16)
    supply = [[0, 1, 0, 0], [0, 0, 1, 0]]
    demands = make_demands(4, 2, supply=supply, needs=[1, 1])
    assert select(quadratic, panel_of(demands))[0] == [1, 2]
    costs = [[2.0, 2.0, 1.0, 3.0]]
    demands = make_demands(4, 2, usage=costs, limits=[3.0])
    assert select(quadratic, panel_of(demands))[0] == [0, 2]
    demands = make_demands(4, 2, usage=costs, limits=[3.0], supply=supply, needs=[1, 1])
    assert select(quadratic, panel_of(demands))[0] == [1, 2]


def test_forced_features_enter_first_and_count():
    _, _, quadratic = make_quadratic(2)
    forced = [3, 8]
    demands = make_demands(12, 4, usage=np.ones((1, 12)), limits=[4.0], forced=forced)
    solution = solve_direct([quadratic], 4, include=np.array(forced), panel=panel_of(demands))
    assert sorted(solution.order[:2].tolist()) == forced
    assert solution.s.sum() == 4


def test_exact_decisions_where_many_units_compete():
    """Hundreds of units, one panel: the pool of cheap units is not enough."""
    rng = np.random.default_rng(0)
    U = 400
    usage = rng.uniform(1.0, 2.0, (3, U))
    supply = np.zeros((1, U))
    supply[0, :3] = 1.0
    usage[:, :3] = [[1.0, 3.0, 3.0], [3.0, 1.0, 3.0], [3.0, 3.0, 1.0]]
    limits = usage[:, 2] + np.sort(usage, axis=1)[:, :2].sum(axis=1) + 0.6
    demands = make_demands(U, 3, usage=usage, limits=limits, supply=supply, needs=[1.0])
    found = feasible_panel(demands)
    assert found is not None
    assert demands.met_by(found)
    tight = make_demands(U, 3, usage=usage, limits=[2.9] * 3, supply=supply, needs=[1.0])
    assert feasible_panel(tight) is None


# ---- other rules and reports ----------------------------------------------------------


def test_cost_of_a_rule_is_what_a_search_without_it_finds():
    _, _, quadratic = make_quadratic(4)
    plain = solve_direct([quadratic], 4)
    weak = plain.order[-3:]
    supply = np.zeros((1, 12))
    supply[0, weak] = 1.0
    demands = make_demands(12, 4, supply=supply, needs=[2])
    panel = panel_of(demands, relaxed={"quota": Panel(4)})
    _, solution = select(quadratic, panel)
    assert solution.objective[-1] > plain.objective[-1]
    found = solution.relaxed()["quota"]
    assert found.decrease == pytest.approx(quadratic.q - plain.objective[-1])
    assert found.features.tolist() == plain.order[:4].tolist()


@pytest.mark.parametrize("n_limits", [1, 3])
def test_advice_is_quick_and_right_with_many_units(n_limits):
    """Integer programming with all of them took minutes, and its silence was read as a no."""
    rng = np.random.default_rng(0)
    U = 20_000
    usage = rng.uniform(1.0, 5.0, (n_limits, U))
    least = np.sort(usage[0])[:20].sum()
    demands = make_demands(U, 20, usage=usage, limits=[0.5 * least] * n_limits)
    assert feasible_panel(demands) is None
    free = demands.without(usage=np.ones(n_limits, dtype=bool))
    bought = cheapest_panel(free, usage[0])
    assert usage[0][bought].sum() == pytest.approx(least)
    most = largest_number(demands)
    if n_limits == 1:
        assert most == int((np.cumsum(np.sort(usage[0])) <= 0.5 * least).sum())
    else:
        assert most is None
    factor = smallest_stretch(demands, np.ones(n_limits, dtype=bool))
    enough = replace(demands, limits=demands.limits * factor)
    assert feasible_panel(enough) is not None
    assert 2.0 <= factor <= 2.05 * n_limits


def test_what_is_not_decided_in_time_is_not_called_impossible():
    rng = np.random.default_rng(0)
    usage = rng.uniform(1.0, 2.0, (3, 400))
    demands = make_demands(400, 3, usage=usage, limits=[3.2] * 3)
    with pytest.raises(ValueError, match="could not determine"):
        feasible_panel(demands, seconds=0.0)


def test_nearest_feasible():
    supply = [[1, 1, 0, 0], [0, 0, 1, 0]]
    demands = make_demands(4, 2, supply=supply, needs=[2, 1])
    np.testing.assert_allclose(shortfalls(demands).sum(), 1.0)
    free = make_demands(4, None, supply=supply, needs=[2, 1])
    assert cheapest_panel(free, np.ones(4)).tolist() == [True, True, True, False]
    lacking = make_demands(4, None, supply=supply, needs=[3, 1])
    assert cheapest_panel(lacking, np.ones(4)) is None


def test_markers_are_high_in_at_most_two_classes():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(6, 40)) * 2.0
    marks = class_markers(means, np.ones(40))
    assert marks.sum(axis=0).max() == 2
    for c, j in np.argwhere(marks).tolist():
        others = np.delete(means[:, j], c).mean()
        assert means[c, j] - others >= 1.0
        assert (means[:, j] > means[c, j]).sum() <= 1
    assert not class_markers(np.zeros((3, 2)), np.zeros(2)).any()


@pytest.mark.parametrize("seed", range(20))
def test_a_unit_takes_the_place_of_another_exactly_if_one_exchange_is_feasible(seed):
    rng = np.random.default_rng(seed)
    usage = rng.integers(0, 5, (2, 10)).astype(float)
    supply = rng.integers(0, 2, (2, 10)).astype(float)
    members = np.zeros(10, dtype=bool)
    members[rng.choice(10, 4, replace=False)] = True
    demands = make_demands(
        10,
        4,
        usage=usage,
        limits=(usage[:, members].sum(axis=1) + rng.integers(0, 2, 2)).tolist(),
        supply=supply,
        needs=(supply[:, members].sum(axis=1) - rng.integers(0, 2, 2)).tolist(),
    )
    for unit in np.flatnonzero(~members):
        known = KnownPanel(demands, members)
        known.fix(int(np.flatnonzero(members)[0]))
        possible = []
        for other in np.flatnonzero(members)[1:]:
            changed = members.copy()
            changed[[other, unit]] = False, True
            possible.append(demands.met_by(changed))
        assert known.members_to_be()[unit] == any(possible)
        assert known.take(int(unit)) == any(possible)
        assert demands.met_by(known.is_member)
        assert known.is_member[unit] == any(possible)


def test_markers_are_those_of_the_two_highest_classes():
    means = np.random.default_rng(0).integers(0, 4, (5, 300)).astype(float)  # many ties
    second = np.sort(means, axis=0)[-2]
    others = (means.sum(axis=0) - means) / 4
    expected = (means - others >= 1.0) & (means >= second)
    assert_array_equal(class_markers(means, np.ones(300)), expected)
    assert class_markers(means[:1], np.ones(300)).shape == (1, 300)


def can_be_completed(demands, units):
    """Whether some panel that satisfies the demands holds the units, by trying them all."""
    everything = np.flatnonzero(demands.available | demands.forced).tolist()
    others = [unit for unit in everything if unit not in units]
    sizes = range(len(others) + 1)
    if demands.count is not None:
        sizes = [demands.count - len(units)]
    for size in sizes:
        for more in itertools.combinations(others, max(size, 0)):
            panel = np.zeros(len(demands.available), dtype=bool)
            panel[[*units, *more]] = True
            if demands.met_by(panel):
                return True
    return False


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), counted=st.booleans())
def test_a_single_limit_permits_exactly_what_can_be_completed(seed, counted):
    rng = np.random.default_rng(seed)
    costs = rng.choice([0.0, 0.1, 0.7, 1.0, 2.5, 3.3], 8)
    count = int(rng.integers(1, 7)) if counted else None
    forced = [2] if rng.random() < 0.4 else []
    demands = make_demands(
        8, count, usage=[costs], limits=[rng.uniform(0.5, 8.0)], forced=forced
    )
    panel = feasible_panel(demands)
    if panel is None:
        return
    rule = rule_of(demands, panel)
    assert isinstance(rule, KeepWithinLimit)
    chosen = []
    for unit in forced:
        rule.entered(unit)
        chosen.append(unit)
    while count is None or len(chosen) < count:
        rest = [unit for unit in range(8) if unit not in chosen]
        wanted = [unit for unit in rest if can_be_completed(demands, [*chosen, unit])]
        assert [unit for unit in rest if rule.permits(unit)] == wanted
        # a prediction among a few features knows of the others that are needed
        some = np.array(rest[::2], dtype=np.intp)
        few = rule.among(some)
        assert [int(some[i]) for i in range(len(some)) if few.permits(i)] == [
            unit for unit in wanted if unit in some
        ]
        if not wanted:
            break
        chosen.append(int(rng.choice(wanted)))
        rule.entered(chosen[-1])


@pytest.mark.parametrize("seed", range(20))
def test_coverage_is_kept_up_to_date(seed):
    rng = np.random.default_rng(seed)
    supply = rng.integers(0, 4, (5, 12)).astype(float)
    missing = rng.integers(-1, 7, 5).astype(float)
    coverage = Coverage(supply, missing)
    for unit in rng.permutation(12):
        coverage.add(unit)
        missing = missing - supply[:, unit]
        wanted = np.maximum(missing, 0.0)
        assert_array_equal(coverage.wanted, wanted)
        assert_array_equal(coverage.covered, np.minimum(supply, wanted[:, None]).sum(axis=0))


@pytest.mark.parametrize("seed", range(10))
def test_what_would_enter_is_what_takes_the_place_of_another(seed):
    rng = np.random.default_rng(seed)
    supply = (rng.random((3, 14)) < 0.4).astype(float)
    usage = rng.uniform(0.0, 1.0, (seed % 3, 14))
    limits = usage.sum(axis=1) * 0.5
    demands = make_demands(
        14, 6, usage=usage, limits=limits, supply=supply, needs=[1, 1, 2], forced=[0]
    )
    panel = feasible_panel(demands)
    assert panel is not None
    expected = [KnownPanel(demands, panel).take(unit) or panel[unit] for unit in range(14)]
    assert_array_equal(KnownPanel(demands, panel).members_to_be(), expected)


def test_a_quick_rule_permits_no_more_than_the_exact_one():
    rng = np.random.default_rng(3)
    supply = (rng.random((4, 30)) < 0.2).astype(float)
    demands = make_demands(30, 5, supply=supply, needs=[1, 1, 1, 1])
    panel = feasible_panel(demands)
    rule = KeepFeasible(demands, panel)
    features = np.arange(0, 30, 2)
    quick, slow = rule.among(features, quick=True), rule.among(features)
    permitted = [(quick.permits(i), slow.permits(i)) for i in range(len(features))]
    assert all(exact for fast, exact in permitted if fast)
