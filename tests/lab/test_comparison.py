import math
from statistics import fmean, stdev

import pytest
from numpy.testing import assert_allclose
from report_rows import KS, QUALITY, clustering_rows, row, rows_of
from scipy import stats

from semfs.lab.comparison import curves, lead, paired_interval
from semfs.lab.sections import PAPER


def test_interval_is_that_of_scipys_one_sample_t_test():
    differences = [0.03, -0.01, 0.02, 0.05, 0.0]
    found = paired_interval(differences)
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-12)
    assert found.mean == pytest.approx(fmean(differences))


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
    with pytest.raises(ValueError, match="share no finished split"):
        lead(rows, "acc", "SemFS", "LASSO")


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
