import math
from itertools import combinations
from statistics import fmean, stdev

import numpy as np
import pytest
from numpy.testing import assert_allclose
from report_rows import KS, QUALITY, clustering_rows, row, rows_of
from scipy import stats

from semfs.lab.comparison import (
    comparable_ks,
    curves,
    lead,
    mean_over_splits,
    paired_interval,
    standings,
)
from semfs.lab.sections import PAPER


def test_interval_is_that_of_scipys_one_sample_t_test():
    differences = [0.03, -0.01, 0.02, 0.05, 0.0]
    found = paired_interval(differences)
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-12)
    assert found.mean == pytest.approx(fmean(differences))


def test_the_interval_over_splits_is_that_of_the_paired_t_test():
    values = {"given": 0.03, "random-0": -0.01, "random-1": 0.02, "random-2": 0.05}
    found = mean_over_splits(values)
    expected = paired_interval(list(values.values()))
    assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-12)
    assert (found.n, found.verdict) == (4, expected.verdict)
    assert mean_over_splits({"given": 0.1}).verdict == "not tested"


def test_pairs_of_seen_classes_count_as_many_classes_not_as_many_splits():
    # The score of a pair is the sum of those of its classes: ten numbers, not 45.
    of_class = dict(zip("abcdefghij", np.random.default_rng(0).normal(0.02, 0.05, 10)))
    values = {f"{a}+{b}": of_class[a] + of_class[b] for a, b in combinations(of_class, 2)}
    found = mean_over_splits(values)
    assert found.n == 45
    expected = paired_interval([2 * score for score in of_class.values()])
    assert_allclose([found.mean, found.low], [expected.mean, expected.low], rtol=1e-9)
    naive = paired_interval(list(values.values()))
    assert found.high - found.low > 1.8 * (naive.high - naive.low)


def test_intervals_of_pairs_hold_the_true_mean_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    pairs = list(combinations(range(10), 2))
    n_held = 0
    n_trials = 400
    for _ in range(n_trials):
        of_class = rng.normal(size=10)
        values = {f"{a}+{b}": of_class[a] + of_class[b] + rng.normal() for a, b in pairs}
        found = mean_over_splits(values)
        n_held += found.low <= 0.0 <= found.high
    assert 0.92 < n_held / n_trials < 0.99


@pytest.mark.parametrize("n_pairs", [2, 3, 5])
def test_intervals_of_few_pairs_are_not_too_narrow(n_pairs):
    # Two disjoint pairs have four classes, but only two independent numbers.
    rng = np.random.default_rng(0)
    pairs = list(combinations(range(10), 2))
    n_held = 0
    n_tested = 0
    for _ in range(400):
        of_class = rng.normal(size=10)
        drawn = [pairs[i] for i in rng.permutation(len(pairs))[:n_pairs]]
        values = {f"{a}+{b}": of_class[a] + of_class[b] for a, b in drawn}
        found = mean_over_splits(values)
        if found.low is not None and found.high is not None:
            n_tested += 1
            n_held += found.low <= 0.0 <= found.high
    assert n_held / n_tested > 0.93


def test_pairs_that_all_share_a_class_give_no_interval():
    assert mean_over_splits({"a+b": 0.1, "a+c": 0.2}).verdict == "not tested"


def test_curves_are_naive_means_over_splits():
    rows = [r for r in clustering_rows() if r["dataset"] == "cifar10"]
    found = curves(rows, "acc")
    assert set(found) == set(QUALITY)
    for point in found["MCFS"]:
        values = [r["acc"] for r in rows if r["label"] == "MCFS" and r["k"] == point.x]
        assert point.n == len(values) == 5
        assert_allclose([point.mean, point.sd], [fmean(values), stdev(values)])
    assert [point.x for point in found["MCFS"]] == list(KS)


def test_spread_of_one_split_is_that_of_the_runs_of_k_means():
    (point,) = curves([row("SemFS", 0.5, acc_sd=0.07)], "acc")["SemFS"]
    assert (point.sd, point.n) == (0.07, 1)


def test_draws_of_a_sweep_are_repetitions():
    rows = [
        row("SemFS", acc, seed=seed, k=k, params={"ratio": 0.1})
        for seed, acc in ((0, 0.3), (1, 0.5))
        for k in (5, 10)
    ]
    (point,) = curves(rows, "acc", "ratio")["SemFS"]
    assert (point.x, point.n) == (0.1, 2)
    assert_allclose([point.mean, point.sd], [0.4, stdev([0.3, 0.5])])


def test_several_parameters_of_an_oracle_count_with_the_best_for_each_k():
    rows = [
        row("MCFS (oracle)", acc, k=k) for k, acc in ((5, 0.1), (5, 0.4), (10, 0.3), (10, 0.2))
    ]
    assert [p.mean for p in curves(rows, "acc")["MCFS (oracle)"]] == [0.4, 0.3]


def test_rows_without_a_score_are_no_points():
    rows = [row("SemFS", 0.5), row("SemFS", math.nan, k=10), row("SemFS", 0.0, k=15, acc=None)]
    assert [p.x for p in curves(rows, "acc")["SemFS"]] == [5]


def test_a_lead_is_paired_over_splits_and_needs_something_in_common():
    rows = rows_of({"SemFS": [0.5, 0.7, 0.6], "MCFS": [0.4, 0.5, 0.5]})
    expected = stats.ttest_1samp([0.1, 0.2, 0.1], 0.0).confidence_interval(0.95)
    found = lead(rows, "acc", "SemFS", "MCFS")
    assert_allclose([found.low, found.high], [expected.low, expected.high])
    verdicts = {0.1: "ahead", -0.1: "behind", 0.0: "undecided"}
    for gain, verdict in verdicts.items():
        assert paired_interval([gain - 0.01, gain, gain + 0.01]).verdict == verdict
    with pytest.raises(ValueError, match="no finished split and k in common"):
        lead(rows, "acc", "SemFS", "LASSO")


def rows_at(label, ks, scores):
    """Rows on as many splits as there are scores, the same for each k but for its size."""
    return [
        row(label, acc + k / 1000, split=str(split), k=k)
        for split, acc in enumerate(scores)
        for k in ks
    ]


def test_a_panel_of_fewer_features_is_compared_with_all_up_to_its_size():
    rows = rows_at("SemFS", [10, 48, 50], [0.5, 0.6]) + rows_at("vendor", [10, 48], [0.7, 0.7])
    found = standings(rows, "acc")
    assert (found.smaller, found.incomplete) == ({"vendor": 48}, {})
    means = {standing.label: standing.mean for standing in found.ranked}
    assert means == pytest.approx({"vendor": 0.7 + 0.029, "SemFS": 0.55 + 0.029})
    assert comparable_ks(rows, "acc") == [10, 48]


def test_a_method_that_is_not_finished_is_no_smaller_panel():
    # The job of the second split is missing, with all of its k.
    rows = rows_at("SemFS", [10, 50], [0.5, 0.6]) + rows_at("MCFS", [10, 50], [0.4])
    found = standings(rows, "acc")
    assert (found.smaller, found.incomplete) == ({}, {"MCFS": 0.5})
    assert comparable_ks(rows, "acc") == [10, 50]


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("background", ["#ffffff", "#14171c"])
def test_colours_have_the_contrast_that_graphics_need(background):
    """WCAG 2: at least 3:1, on the light and on the dark page."""
    for color in PAPER["colors"]:
        low, high = sorted([luminance(color), luminance(background)])
        assert (high + 0.05) / (low + 0.05) >= 3
