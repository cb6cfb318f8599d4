"""What makes a claim of the paper confirmed, from rows of a store or of a results file."""

import random
from statistics import fmean

import pytest
from claim_rows import made_rows

from semfs.lab.claims import all_claims, comparisons, sweeps
from semfs.lab.claims.best_baseline import relative_lead
from semfs.lab.claims.measured import TUNED_BASELINES, flat, scores_of, times
from semfs.lab.claims.rules import settled_at, stopped_at
from semfs.lab.comparison import paired_interval


def test_a_baseline_with_too_few_splits_is_not_the_best_one_but_nothing_is_confirmed():
    # MCFS has one split only, where it is ahead of LASSO.
    rows = made_rows({"SemFS": 0.65, "LASSO": 0.5, "Random": 0.4})
    assert comparisons.headline(scores_of(rows)).verdict == "confirmed"
    rows += made_rows({"MCFS": 0.55}, 1)
    claim = comparisons.headline(scores_of(rows))
    assert claim.rows[0][1] == "LASSO (too few splits: MCFS)"
    assert claim.verdict == "undecided"
    # A lead that is too small stays so, whatever MCFS would do.
    rows = made_rows({"SemFS": 0.55, "LASSO": 0.5}) + made_rows({"MCFS": 0.1}, 1)
    assert comparisons.headline(scores_of(rows)).verdict == "not confirmed"


def test_another_baseline_never_makes_the_lead_over_the_best_one_larger():
    # Which of the two is better differs between the splits, and both are equal on average.
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5, "MCFS": 0.5})
    for i, (lasso, mcfs) in enumerate(zip(rows[10:20], rows[20:])):
        lasso["acc"] += 0.1 * (-1) ** i
        mcfs["acc"] -= 0.1 * (-1) ** i
    both = comparisons.headline(scores_of(rows))
    alone = comparisons.headline(scores_of(rows[:20]))
    assert both.rows[0][2] == alone.rows[0][2]
    assert both.rows[0][2].startswith("+20 % (")


def test_the_lead_over_each_baseline_must_be_large():
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.45, "MCFS": 0.55, "Random": 0.2})
    claim = comparisons.headline(scores_of(rows))
    assert (claim.rows[0][1], claim.verdict) == ("MCFS", "not confirmed")
    assert comparisons.headline(scores_of(rows[:20] + rows[30:])).verdict == "confirmed"


def test_a_relative_lead_is_that_of_the_means():
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5})
    rows[0]["acc"] = 0.9
    methods = scores_of(rows)["toy"]
    found = relative_lead(methods, "SemFS", "LASSO", 20)
    means = [fmean(row["acc"] for row in rows if row["method"] == m) for m in methods]
    assert found.mean == pytest.approx(means[0] / means[1] - 1)
    # The interval is close to that of the linearized ratio.
    a, b = (methods[m]["acc"].values() for m in ("SemFS", "LASSO"))
    linear = [x / means[1] - y * means[0] / means[1] ** 2 for x, y in zip(a, b)]
    expected = paired_interval(linear)
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.02)


def test_a_claim_that_holds_on_some_data_sets_is_confirmed_in_part():
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5})
    assert comparisons.first_everywhere(scores_of(rows)).verdict == "confirmed"
    rows += made_rows({"SemFS": 0.6, "LASSO": 0.7}, dataset="other")
    claim = comparisons.first_everywhere(scores_of(rows))
    assert claim.verdict == "in part"
    assert claim.sentence == "Confirmed on 1 of 2 pairs of data set and method, refuted on 1."
    assert claim.rows[1] == ["other", "SemFS", "–", "–", "LASSO", "–", "refuted"]


def test_selectors_that_the_paper_did_not_compare_with_are_named_and_refute_nothing():
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5, "Variance": 0.7, "WkNN (oracle)": 0.8})
    claim = comparisons.first_everywhere(scores_of(rows))
    assert claim.rows == [["toy", "SemFS", "LASSO", "–", "–", "Variance", "confirmed"]]


def test_the_headline_is_judged_with_tuned_baselines_too():
    rows = made_rows({"SemFS": 0.65, "LASSO": 0.5, "LASSO (oracle)": 0.6})
    fair, tuned = comparisons.comparison_claims(rows)[:2]
    assert (fair.verdict, tuned.verdict) == ("confirmed", "not confirmed")
    best, lead = tuned.rows[0][1:3]
    assert best.startswith("LASSO (oracle) (not run: MCFS (oracle), FSASL (oracle)")
    assert lead == "+8 % (+8 to +8)"


def test_baselines_count_at_their_defaults_beside_tuned_ones():
    rows = made_rows({"SemFS": 0.65, "WkNN": 0.6, "LASSO (oracle)": 0.5})
    tuned = comparisons.headline_tuned(scores_of(rows))
    assert tuned.verdict == "not confirmed"
    assert tuned.rows[0][1].startswith("WkNN (")
    # Without any grid nothing was tuned.
    assert not comparisons.headline_tuned(scores_of(rows[:20])).is_run


@pytest.mark.parametrize("claim", [comparisons.headline_tuned, comparisons.tuned_baselines])
def test_a_claim_about_tuned_baselines_is_confirmed_only_if_all_of_them_are_tuned(claim):
    rows = made_rows({"SemFS": 0.65} | dict.fromkeys(TUNED_BASELINES, 0.5))
    assert claim(scores_of(rows)).verdict == "confirmed"
    assert claim(scores_of(rows[:-10])).verdict == "undecided"


def test_grids_on_few_splits_are_shown_in_place_of_the_same_baseline_at_its_defaults():
    rows = made_rows({"SemFS": 0.65, "LASSO": 0.5, "WkNN": 0.4})
    rows += made_rows({"LASSO (oracle)": 0.6, "MCFS (oracle)": 0.3}, 3)
    claim = comparisons.headline_tuned(scores_of(rows))
    _, best, lead, *_, n, verdict = claim.rows[0]
    assert best.startswith("LASSO (oracle) (too few splits: LASSO (oracle), MCFS (oracle)")
    assert (lead, n, verdict) == ("+8 % (+8 to +8)", "3", "undecided")
    # The default of another baseline may be the best one still.
    rows += made_rows({"FSASL": 0.63})
    assert comparisons.headline_tuned(scores_of(rows)).rows[0][1].startswith("FSASL (")
    # Grids on enough splits come before those on few.
    rows += made_rows({"L20ALM (oracle)": 0.55})
    assert comparisons.headline_tuned(scores_of(rows)).rows[0][1].startswith("FSASL (")
    rows = [row for row in rows if row["method"] != "FSASL"]
    best = comparisons.headline_tuned(scores_of(rows)).rows[0][1]
    assert best.startswith("L20ALM (oracle) (too few splits")


def test_the_sentence_says_that_a_lead_is_from_few_splits():
    rows = made_rows({"SemFS": 0.65, "LASSO (oracle)": 0.6}, 3, dataset="cub")
    assert (
        "CUB: +8 % (+8 to +8) on 3 splits;"
        in comparisons.headline_tuned(scores_of(rows)).sentence
    )
    rows = made_rows({"SemFS": 0.65, "LASSO (oracle)": 0.6}, dataset="cub")
    assert "splits" not in comparisons.headline_tuned(scores_of(rows)).sentence


def test_comparisons_with_tuned_baselines_are_counted():
    rows = made_rows({"SemFS": 0.65, "LASSO (oracle)": 0.6, "MCFS (oracle)": 0.7})
    rows += made_rows({"WkNN (oracle)": 0.9}, 3)
    claim = comparisons.tuned_baselines(scores_of(rows))
    assert claim.sentence.startswith(
        "Ahead in 1 of 2 comparisons on 10 splits or more, behind in 1; "
    )


@pytest.mark.parametrize(
    ("mcfs", "verdict"), [(0.495, "confirmed"), (0.7, "confirmed"), (0.45, "not confirmed")]
)
def test_mcfs_is_comparable_if_it_is_a_little_worse_at_most(mcfs, verdict):
    rows = made_rows({"MCFS": mcfs, "LASSO": 0.5})
    assert comparisons.mcfs_against_supervised(scores_of(rows)).verdict == verdict
    few = made_rows({"MCFS": mcfs, "LASSO": 0.5}, 4)
    assert comparisons.mcfs_against_supervised(scores_of(few)).verdict == "undecided"


def test_a_method_is_steadier_if_its_scores_spread_less_over_the_splits():
    rows = made_rows({"SemFS": 0.5, "SemFS/c": 0.5})
    rng = random.Random(0)
    for ours, other in zip(rows[:10], rows[10:]):
        luck = rng.gauss(0, 0.01)
        ours["acc"], other["acc"] = 0.5 + luck, 0.5 + 4 * luck
    claim = comparisons.steadier_than_variant(scores_of(rows))
    assert claim.verdict == "confirmed"
    assert claim.rows[0][1] == "4.00 (4.00 to 4.00)"
    swapped = [
        row | {"method": {"SemFS": "SemFS/c", "SemFS/c": "SemFS"}[row["method"]]}
        for row in rows
    ]
    assert comparisons.steadier_than_variant(scores_of(swapped)).verdict == "not confirmed"
    assert not comparisons.steadier_than_variant(scores_of(rows[:1] + rows[10:11])).is_run


def test_few_pairs_of_seen_classes_have_a_spread_without_an_interval():
    rows = made_rows({"SemFS": 0.5, "SemFS/c": 0.5}, 3)
    for row, split in zip(rows, ["a+b", "a+c", "d+e"] * 2):
        row["split"] = split
    # Without class a one pair is left.
    claim = comparisons.steadier_than_variant(scores_of(rows))
    assert claim.rows == [["toy", "1.00", "3", "undecided"]]


def test_each_row_of_a_table_has_its_own_verdict():
    rows = made_rows({"MCFS": 0.5, "LASSO": 0.4, "WkNN": 0.6})
    claim = comparisons.mcfs_against_supervised(scores_of(rows))
    assert [row[-1] for row in claim.rows] == ["confirmed", "refuted"]
    assert claim.verdict == "not confirmed"


def test_baselines_tuned_on_the_test_count_with_their_best_point():
    rows = made_rows({"SemFS": 0.5, "MCFS (oracle)": 0.3})
    rows += made_rows({"MCFS (oracle)": 0.45}) + made_rows({"MCFS (oracle)": 0.2})
    claim = comparisons.tuned_baselines(scores_of(rows))
    assert claim.rows[0][1] == "MCFS (oracle)"
    assert claim.rows[0][2].startswith("+0.050 (")
    assert claim.rows[0][-1] == "confirmed"


def test_the_growth_of_the_lead_is_its_slope_over_the_labeled_share():
    rows = []
    for ratio in (0.1, 0.5, 1.0):
        scores = {"SemFS": 0.3 + 0.2 * ratio, "ANOVA F": 0.3, "SemFS (labels)": 0.3}
        rows += made_rows(scores, experiment="labeled-ratio", ratio=ratio)
    claim = sweeps.labeled_share(rows)
    assert claim.rows[0][2].startswith("+0.200")
    assert claim.verdict == "confirmed"
    # one share only: no slope
    assert sweeps.labeled_share(rows[:30]).verdict == "undecided"


@pytest.mark.parametrize(("markers", "verdict"), [(0.3, "confirmed"), (0.4, "refuted")])
def test_the_lead_with_few_labels_is_that_of_the_smallest_share(markers, verdict):
    scores = {"SemFS": 0.35, "ANOVA F": 0.3, "Markers per class": markers}
    scores["SemFS (labels)"] = 0.5
    rows = made_rows(scores, experiment="labeled-ratio", ratio=0.1)
    rows += made_rows(scores | {"SemFS": 0.1}, experiment="labeled-ratio", ratio=1.0)
    claim = sweeps.few_labels(rows)
    assert claim.verdict == verdict.replace("refuted", "not confirmed")
    # SemFS with labels is shown for reference.
    assert [row[-1] for row in claim.rows] == ["confirmed", verdict, "–"]
    only_labels = [row for row in rows if row["method"].startswith("SemFS")]
    assert not sweeps.few_labels(only_labels).is_run


def test_attributes_are_judged_for_each_method_of_the_paper():
    scores = {"SemFS": 0.5, "SemFS (labels)": 0.4}
    rows = made_rows(scores)
    scores = {"LASSO (attributes)": 0.3, "LASSO (labels)": 0.4}
    rows += made_rows(scores, experiment="attributes-vs-labels")
    claim = sweeps.attributes_against_labels(rows)
    assert claim.verdict == "in part"
    assert [(row[1], row[-1]) for row in claim.rows] == [
        ("SemFS", "confirmed"),
        ("LASSO", "refuted"),
    ]
    for name in ("one", "two"):
        rows += made_rows({"SemFS": 0.6, "SemFS (labels)": 0.4}, dataset=name)
    sentence = sweeps.attributes_against_labels(rows).sentence
    # Two methods on three and one data sets: a mean needs three.
    assert sentence.startswith("Mean lead in ACC: SemFS +0.167 (")
    assert "LASSO" not in sentence


@pytest.mark.parametrize(("low", "verdict"), [(0.499, "confirmed"), (0.4, "not confirmed")])
def test_equal_results_for_all_alpha_are_within_a_margin(low, verdict):
    rows = made_rows({"SemFS": low}, experiment="alpha", alpha=0.001)
    rows += made_rows({"SemFS": 0.5}, experiment="alpha", alpha=0.1)
    rows += made_rows({"SemFS": 0.5}, experiment="alpha", alpha=1.0)
    rows += made_rows({"SemFS": 0.1}, experiment="alpha", alpha=10.0)  # beyond the paper's
    claim = sweeps.alpha(rows)
    assert claim.verdict == verdict
    assert f"in ACC: {0.5 - low:.3f};" in claim.sentence


def test_an_objective_has_converged_when_it_falls_by_less_than_a_hundredth():
    # The first value is that after the first iteration.
    assert settled_at([8.0, 4.0, 3.99, 3.989]) == 3
    # Equal small steps have not converged, however small they are.
    assert settled_at([8.0 - 1e-7 * i for i in range(30)]) is None
    row = {"experiment": "convergence", "dataset": "toy", "method": "SemFS as published"}
    slow = row | {"objective": [8.0 - 1e-7 * i for i in range(30)]}
    fast = row | {"split": "1"} | {"objective": [1.0 + 0.1**i for i in range(30)]}
    assert sweeps.iterations([slow]).verdict == "not confirmed"
    assert sweeps.iterations([fast, slow]).verdict == "in part"
    assert "1 of 2 runs" in sweeps.iterations([fast, slow]).sentence
    # A program stops at once where the steps are very small, too.
    assert stopped_at(slow["objective"]) == 2
    assert "stops by then in 1 of 1" in sweeps.iterations([slow]).sentence


@pytest.mark.parametrize(("power", "verdict"), [(1.0, "confirmed"), (2.0, "not confirmed")])
def test_the_growth_of_time_is_that_of_the_last_step(power, verdict):
    timed = {"experiment": "scaling", "dataset": "synthetic", "method": "SemFS", "k": 5}
    rows = [
        timed | {"n": n, "d": 1000, "seconds": (n / 1000) ** power}
        for n in (1000, 10_000, 100_000)
    ]
    rows.append(timed | {"n": 1000, "d": 10, "seconds": 1e-9})
    claim = sweeps.linear_time(rows)
    assert claim.verdict == verdict
    assert claim.rows[0][2] == f"{power:.2f}"


def test_algorithm_1_is_compared_with_random_for_each_preprocessing():
    rows = []
    for kind, score in {"raw": 0.1, "standardized": 0.5}.items():
        scores = {f"Random ({kind})": 0.3, f"SemFS as published ({kind})": score}
        rows += made_rows(scores, experiment="preprocessing", preprocessing=kind)
    claim = sweeps.preprocessing(rows)
    assert claim.verdict == "in part"
    assert [list(row[1:3]) for row in claim.rows] == [
        ["raw", "−0.200 (−0.200 to −0.200)"],
        ["standardized", "+0.200 (+0.200 to +0.200)"],
    ]


def test_algorithm_1_is_compared_with_random_on_all_splits_of_the_main_comparison():
    scores = {"Random": 0.3, "SemFS as published": 0.2, "SemFS": 0.4}
    rows = made_rows(scores) + made_rows(scores, dataset="other")
    few = {f"{name} (raw)": 0.5 for name in scores} | {"Random (raw)": 0.1}
    rows += made_rows(few, 3, experiment="preprocessing", preprocessing="raw")
    few = {f"{name} (min-max)": 0.5 for name in scores} | {"Random (min-max)": 0.1}
    rows += made_rows(few, 3, experiment="preprocessing", preprocessing="min-max")
    claim = sweeps.preprocessing(rows)
    assert [(row[0], row[1], row[2][:6], row[3][:6], row[4]) for row in claim.rows] == [
        ("toy", "raw", "−0.100", "+0.100", "10"),
        ("toy", "min-max", "+0.400", "+0.400", "3"),
        ("other", "raw", "−0.100", "+0.100", "10"),
    ]
    assert claim.columns[3] == "SemFS at its defaults − Random"


def test_the_sentence_names_the_selectors_that_were_run_at_several_shares():
    rows = []
    for dataset, scores in {
        "one": {"SemFS": 0.5, "Random": 0.3, "LASSO": 0.4},
        "two": {"SemFS": 0.5, "Random": 0.6},
    }.items():
        for ratio in (0.1, 1.0):
            more = {"experiment": "labeled-ratio", "ratio": ratio}
            rows += made_rows(scores, dataset=dataset, **more)
    for claim in (sweeps.few_labels(rows), sweeps.labeled_share(rows)):
        assert claim.sentence.startswith("Over Random, LASSO (1 data set); ")
    # A baseline of the paper is judged where it was run.
    assert sweeps.few_labels(rows).verdict == "in part"


def test_more_labels_are_compared_on_the_same_split():
    rows = made_rows({"SemFS": 0.4}, experiment="labeled-ratio", ratio=0.1)
    rows += made_rows({"SemFS": 0.45}, experiment="labeled-ratio", ratio=0.5)
    better = made_rows({"SemFS": 0.5}, experiment="labeled-ratio", ratio=1.0)
    claim = sweeps.more_labels(rows + better)
    assert claim.verdict == "confirmed"
    assert claim.rows[0][2].startswith("+0.100")
    worse = made_rows({"SemFS": 0.3}, experiment="labeled-ratio", ratio=1.0)
    assert sweeps.more_labels(rows + worse).verdict == "not confirmed"
    assert sweeps.more_labels(better).verdict == "undecided"


@pytest.mark.parametrize(
    ("objective", "verdict"),
    [
        ([3.0, 2.0, 2.0], "confirmed"),
        ([3.0, 2.0, 2.0 + 1e-12], "confirmed"),  # rounding
        ([3.0, 2.0, 2.1], "not confirmed"),
    ],
)
def test_an_objective_that_rises_once_refutes_proposition_1(objective, verdict):
    row = {"experiment": "convergence", "dataset": "toy", "method": "SemFS as published"}
    claim = sweeps.objective_falls([row | {"objective": objective}])
    assert claim.verdict == verdict


@pytest.mark.parametrize("sizes", [(1000, 30_000), (10_000, 20_000, 30_000)])
def test_few_or_similar_numbers_of_samples_do_not_show_how_time_grows(sizes):
    timed = {"experiment": "scaling", "dataset": "synthetic", "method": "SemFS", "d": 10}
    claim = sweeps.linear_time([timed | {"n": n, "seconds": n / 1000} for n in sizes])
    assert claim.is_run
    assert claim.verdict == "undecided"


def test_times_of_one_number_of_samples_are_averaged():
    timed = {"experiment": "scaling", "dataset": "synthetic", "method": "SemFS", "d": 10}
    rows = [
        timed | {"n": n, "seconds": seconds} for n, seconds in ((5, 1.0), (5, 3.0), (50, 4.0))
    ]
    assert times(rows) == {"SemFS": [(5, 2.0), (50, 4.0)]}


def test_a_method_that_sees_a_sample_says_so_beside_its_times():
    timed = {"experiment": "scaling", "dataset": "synthetic", "method": "L20ALM", "d": 10}
    rows = [timed | {"n": 5, "seconds": 1.0}, timed | {"n": 50, "seconds": 1.0, "max_rows": 20}]
    assert times(rows) == {"L20ALM (at most 20 samples)": [(5, 1.0), (50, 1.0)]}


def of_store(row):
    """The same row as a store has it: settings in params, the method by its short name."""
    names = ("ratio", "alpha", "preprocessing")
    params = {name: row[name] for name in names if name in row}
    kept = {name: value for name, value in row.items() if name not in params}
    return kept | {"method": "m", "label": row["method"], "params": params, "extra": {}}


def test_rows_of_a_store_are_judged_as_those_of_a_results_file():
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5, "MCFS": 0.4, "MCFS (oracle)": 0.7})
    for low, high, experiment, x in (
        (0.1, 1.0, "labeled-ratio", "ratio"),
        (0.1, 1.0, "alpha", "alpha"),
    ):
        rows += made_rows({"SemFS": 0.4, "ANOVA F": 0.4}, experiment=experiment, **{x: low})
        rows += made_rows({"SemFS": 0.5, "ANOVA F": 0.3}, experiment=experiment, **{x: high})
    scores = {"Random (raw)": 0.3, "SemFS as published (raw)": 0.5}
    rows += made_rows(scores, experiment="preprocessing", preprocessing="raw")
    claims = all_claims(rows)
    assert all_claims([of_store(row) for row in rows]) == claims
    assert sum(claim.is_run for claim in claims) == 10
    assert [flat(row) for row in rows] == rows


def test_two_data_sets_with_one_title_stay_apart():
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5}, dataset="cub_one")
    rows += made_rows({"SemFS": 0.4, "LASSO": 0.5}, dataset="cub_two")
    assert set(scores_of(rows)) == {"cub_one", "cub_two"}
    assert comparisons.first_everywhere(scores_of(rows)).verdict == "in part"


def test_a_split_without_a_score_at_some_k_is_left_out_there():
    rows = made_rows({"SemFS": 0.65, "LASSO": 0.5})
    rows += [row | {"k": 5} for row in rows if row["split"] != "0"]
    rows.append(made_rows({"LASSO": 0.5}, 1)[0] | {"k": 5, "acc": None, "nmi": None})
    assert comparisons.headline(scores_of(rows)).verdict == "confirmed"


def test_claims_without_rows_are_not_run():
    claims = all_claims([])
    assert {claim.verdict for claim in claims} == {"undecided"}
    assert not any(claim.is_run for claim in claims)
