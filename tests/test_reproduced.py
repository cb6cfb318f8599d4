"""The pages about the paper: verdicts, figures, and how runs are merged."""

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from claim_rows import made_rows

from problems import make_described_problem
from semfs.lab import grids
from semfs.lab.claims import comparisons, measured
from semfs.lab.compared_method import Size
from semfs.lab.runner import Protocol

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the sdist has no docs")


def load_module(name, folder="docs"):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / folder)
        return importlib.import_module(name)


@pytest.fixture(scope="module")
def claims():
    return load_module("paper_claims")


@pytest.mark.parametrize(
    ("semfs", "n_splits", "verdict"),
    [(0.65, 10, "confirmed"), (0.55, 10, "refuted"), (0.65, 3, "undecided")],
)
def test_the_headline_is_confirmed_refuted_or_undecided(semfs, n_splits, verdict):
    rows = made_rows({"SemFS": semfs, "LASSO": 0.5, "Random": 0.1}, n_splits)
    claim = comparisons.headline(measured.scores_of(rows))
    assert claim.verdict == verdict.replace("refuted", "not confirmed")
    _, best, lead, of_variant, told, n, shown = claim.rows[0]
    assert (best, of_variant, told, n, shown) == ("LASSO", "–", "–", str(n_splits), verdict)
    assert lead.startswith(f"+{100 * (semfs / 0.5 - 1):.0f} %")
    page = load_module("reproduced")
    answers = {
        "confirmed": "was confirmed on 1 of 1 data set.",
        "refuted": "was confirmed on 0 of 1 data set and refuted on 1.",
        "undecided": "was confirmed on 0 of 1 data set.",
    }
    found = {"rows": rows, "command": "c", "date": "d", "versions": {}}
    assert answers[verdict] in page.reproduced(found).splitlines()[0]


def test_relative_leads_are_given_at_each_k(claims):
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5})
    rows += [row | {"k": 5, "acc": row["acc"] + 0.1} for row in rows]
    head, (line,) = claims.leads_by_k(measured.scores_of(rows))
    assert head == "data set | k = 5: | k = 20: | splits:"
    name, at_5, at_20, n = line.split(" | ")
    assert (name, n) == ("toy", "10")
    assert at_5.startswith("+17 % (")
    assert at_20.startswith("+20 % (")


def test_a_lead_from_other_splits_at_one_k_says_so(claims):
    rows = [row | {"k": k} for row in made_rows({"SemFS": 0.6, "LASSO": 0.5}) for k in (5, 50)]
    rows += made_rows({"SemFS": 0.6}) + made_rows({"LASSO": 0.5}, 4)
    _, (line,) = claims.leads_by_k(measured.scores_of(rows))
    assert line.split(" | ")[-1] == "10 (4 at k = 20)"


def test_settings_and_solver_are_compared_one_at_a_time(claims):
    scores = {
        "Random": 0.3,
        "SemFS as published": 0.2,
        "SemFS as published, direct solver": 0.3,
        "SemFS alternating": 0.5,
        "SemFS": 0.55,
    }
    rows = made_rows(scores)
    assert claims.settings_or_solver(measured.scores_of(rows[:40])) == ""
    text = claims.settings_or_solver(measured.scores_of(rows))
    means, effects = (part.splitlines()[2] for part in text.split("\n\n")[2:])
    assert means == "| toy | 0.301 | 0.201 | 0.301 | 0.501 | 0.551 | 10 |"
    leads = [cell[:6] for cell in effects.split(" | ")[1:5]]
    assert leads == ["+0.100", "+0.050", "+0.300", "+0.250"]
    rows += [row | {"dataset": name} for row in rows for name in ("two", "three")]
    last = claims.settings_or_solver(measured.scores_of(rows)).splitlines()[-1]
    assert last.startswith("| mean of 3 data sets | +0.100 (+0.100 to +0.100) |")
    text = claims.settings_or_solver_in_words(measured.scores_of(rows)).replace("\n", " ")
    assert "solver, our settings: +0.050 (+0.050 to +0.050); settings, Algorithm 1" in text
    assert claims.settings_or_solver_in_words(measured.scores_of(rows[:50])) == ""


def test_the_best_baseline_may_be_another_one_at_each_k(claims):
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5, "MCFS": 0.4})
    rows += [row | {"k": 5} for row in made_rows({"SemFS": 0.6, "LASSO": 0.4, "MCFS": 0.5})]
    _, (line,) = claims.leads_by_k(measured.scores_of(rows))
    assert line.count("+20 % (") == 2


def test_the_first_line_names_the_papers_own_comparison_if_it_was_run():
    page = load_module("reproduced")
    rows = made_rows({"SemFS": 0.65, "LASSO": 0.5})
    found = {"command": "c", "date": "d", "versions": {}}
    assert "tuned" not in page.reproduced(found | {"rows": rows}).splitlines()[0]
    rows += made_rows({"LASSO (oracle)": 0.62})
    first = page.reproduced(found | {"rows": rows}).splitlines()[0]
    assert "as in the paper, it was confirmed on 0 of 1 data set and refuted on 1." in first


def test_the_first_line_says_how_large_the_lead_is_on_features_of_the_papers_kind(claims):
    name = comparisons.HEADLINE_DATA
    rows = made_rows({"SemFS": 0.61, "LASSO": 0.5, measured.DESCRIBED: 0.7}, dataset="cub")
    rows += [row | {"k": 5, "acc": 2 * row["acc"]} for row in rows]
    text = claims.lead_in_words(measured.scores_of(rows), name)
    assert text.startswith(f"On {name}")
    for words in ("ahead of LASSO", "+22 % (", "on 10 class splits.", "agrees with the paper"):
        assert words in text
    assert claims.leads_with_few_and_many(measured.scores_of(rows), name) == (
        "The lead is +22 % (+22 to +22) at k = 5."
    )
    rows = made_rows({"SemFS": 0.55, "LASSO": 0.5}, dataset="cub")
    assert "less than the 20 %" in claims.lead_in_words(measured.scores_of(rows), name)
    assert claims.lead_in_words({}, name) == ""
    assert claims.leads_with_few_and_many({}, name) == ""


def test_the_page_says_what_to_take_away_from_features_of_the_papers_kind(claims):
    name = comparisons.HEADLINE_DATA
    rows = made_rows({"SemFS": 0.58, "LASSO": 0.5}, dataset="cub")
    assert claims.take_away(measured.scores_of(rows), name) == ""
    assert claims.take_away({}, name) == ""
    at_5 = made_rows({"SemFS": 0.7, "LASSO": 0.5}, dataset="cub")
    rows += [row | {"k": 5} for row in at_5]
    text = claims.take_away(measured.scores_of(rows), name)
    assert text.startswith("## The lead with features of the paper's kind")
    assert text.split("\n\n")[2].splitlines() == [
        "| features | relative lead in ACC | more than 20 %? |",
        "|---|---:|---|",
        "| k = 5 | +40 % (+40 to +40) | yes |",
        "| k = 20 | +16 % (+16 to +16) | no |",
    ]
    assert text.endswith("the lead exceeds 20 % at k = 5 and stays below 20 % at k = 20.")
    rows += made_rows({"SemFS (labels)": 0.6}, dataset="cub")
    text = claims.take_away(measured.scores_of(rows), name)
    assert "The lead does not come from the attributes: at k = 20, SemFS leads LASSO" in text
    assert text.endswith("and with labels as its only targets by +20 % (+20 to +20).")


def test_the_lead_is_given_by_split_and_with_other_targets(claims):
    name = comparisons.HEADLINE_DATA
    assert claims.other_comparisons({}, name) == ""
    rows = made_rows({"SemFS": 0.58, "LASSO": 0.5, measured.DESCRIBED: 0.7}, dataset="cub")
    rows += made_rows({measured.ATTRIBUTES_ALONE: 0.55}, dataset="cub")
    lines = claims.other_comparisons(measured.scores_of(rows), name).splitlines()[4:]
    attributes, described = "attributes as the only targets", "descriptions of the unseen"
    assert lines == [
        "| default targets | LASSO | +16 % (+16 to +16) | 10 |",
        f"| {attributes}, as in the paper | LASSO | +10 % (+10 to +10) | 10 |",
        f"| {described} classes, unlike in the paper | LASSO | +40 % (+40 to +40) | 10 |",
    ]
    for row in rows:
        row["split"] = "given" if row["split"] == "0" else f"random-{row['split']}"
    rows[0]["acc"] = 0.75
    text = claims.other_comparisons(measured.scores_of(rows), name)
    assert "| the split that the data set names | LASSO | +50 % | 1 |" in text
    assert "| the random splits, lowest to highest | LASSO | +16 to +16 % | 9 |" in text


def test_tuned_baselines_on_few_splits_are_compared_with_their_defaults_there(claims):
    name = comparisons.HEADLINE_DATA
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.4}, dataset="cub")
    for row in rows[10:13]:
        row["acc"] = 0.5
    rows += made_rows({"LASSO (oracle)": 0.55}, 3, dataset="cub")
    text = claims.other_comparisons(measured.scores_of(rows), name)
    assert "| LASSO (oracle), the best baseline tuned on the test, as in the paper |" in text
    assert "| +9 % (+9 to +9) | 3 |" in text
    assert text.endswith(
        "| default targets, the same splits | LASSO at its defaults | +20 % | 3 |"
    )
    # A grid of another baseline says nothing while the best one was not tuned.
    rows = [row | {"method": row["method"].replace("LASSO (", "MCFS (")} for row in rows]
    rows = [row | {"acc": 0.2} if "oracle" in row["method"] else row for row in rows]
    assert "tuned" not in claims.other_comparisons(measured.scores_of(rows), name)


def test_names_are_one_cell_of_a_table_whatever_they_are(claims):
    rows = made_rows({"SemFS": 0.6, "MCFS": 0.5, "LASSO": 0.5}, dataset="a|b")
    claim = comparisons.first_everywhere(measured.scores_of(rows))
    heading, _, head, rule, line = claims.numbers(claim).splitlines()
    assert heading == f"### {claim.claim}"
    assert head.startswith(
        "| data set | method | ahead of | undecided | behind, in ACC or NMI |"
    )
    assert rule == "|---|---|---|---|---|---|---|"
    assert line == "| a\\|b | SemFS | MCFS, LASSO | – | – | – | confirmed |"


def test_columns_of_numbers_are_set_to_the_right(claims):
    rows = made_rows({"MCFS": 0.6, "LASSO": 0.5})
    claim = comparisons.mcfs_against_supervised(measured.scores_of(rows))
    assert claims.numbers(claim).splitlines()[3] == "|---|---|---:|---:|---|"


def test_results_without_the_main_comparison_make_no_empty_page():
    with pytest.raises(ValueError, match="no table"):
        load_module("reproduced").reproduced({"rows": []})


def test_the_pages_about_the_paper_are_those_of_the_stored_rows():
    for path, fresh in load_module("reproduced").pages_with_results().items():
        assert path.read_text("utf-8") == fresh, "run: python docs/reproduced.py"


def test_what_the_readme_says_of_the_paper_is_that_of_the_stored_rows():
    fresh = load_module("reproduced").readme_with_paragraph()
    assert (ROOT / "README.md").read_text("utf-8") == fresh, "run: python docs/reproduced.py"


def test_the_figures_of_the_paper_are_those_of_the_stored_rows():
    rows = load_module("reproduced").stored()["rows"]
    figures = load_module("paper_figures").all_figures(rows)
    drawn = {f"{figure.name}.svg": figure.svg for figure in figures}
    on_disk = {path.name: path.read_text("utf-8") for path in DOCS.glob("images/paper-*.svg")}
    assert on_disk == drawn, "run: python docs/reproduced.py"
    pattern = re.compile(r"!\[[^\]]{40,}\]\(images/(paper-\w+\.svg)\)")
    on_first, on_second = (
        pattern.findall((DOCS / name).read_text("utf-8"))
        for name in ("reproducing.md", "reproducing-numbers.md")
    )
    assert len(on_first) == 3
    assert sorted(on_first + on_second) == sorted(drawn)


def test_every_figure_is_drawn_where_there_are_rows():
    rows = made_rows({"SemFS": 0.6, "SemFS (labels)": 0.5, "LASSO": 0.5})
    rows += made_rows({"SemFS": 0.5}, experiment="alpha", alpha=0.1)
    rows += made_rows({"SemFS": 0.4}, experiment="alpha", alpha=1.0)
    rows += made_rows({"SemFS": 0.4}, experiment="labeled-ratio", ratio=0.1)
    rows += made_rows({"SemFS": 0.6}, experiment="labeled-ratio", ratio=1.0)
    place = {"dataset": "toy", "method": "SemFS", "k": 5}
    rows.append(place | {"experiment": "convergence", "objective": [3.0, 2.0, 1.5]})
    for n in (100, 1000):
        rows.append(place | {"experiment": "scaling", "n": n, "d": 10, "seconds": n / 500})
    figures = load_module("paper_figures").all_figures(rows)
    names = ["acc", "nmi", "ratio", "attributes", "alpha", "convergence", "time"]
    assert [figure.name for figure in figures] == [f"paper-{name}" for name in names]
    for figure in figures:
        picture = ElementTree.fromstring(figure.svg)
        assert picture.get("role") == "img"
        assert picture.get("aria-label") == picture.findtext("{*}title")
        assert "nan" not in figure.svg


def test_a_panel_shows_means_over_the_splits_that_all_lines_have():
    rows = made_rows({"SemFS": 0.6}, 10, experiment="alpha", alpha=0.1)
    rows += made_rows(
        {"SemFS": 0.4, "SemFS as published": 0.3}, 4, experiment="alpha", alpha=1.0
    )
    rows += made_rows({"SemFS as published": 0.2}, 2, experiment="alpha", alpha=0.1)
    sweeps = measured.swept(rows, "alpha", "alpha", "acc")
    labels = ("SemFS", "SemFS as published")
    panels = load_module("paper_figures")._sweep_panels(sweeps, labels)
    (title, lines) = next(iter(panels.items()))
    assert title == "toy, 2 splits"
    assert [y for _, y, _ in lines["SemFS"]] == pytest.approx([0.6005, 0.4005])


def test_a_method_with_few_splits_does_not_take_them_from_the_other_lines():
    rows = made_rows({"SemFS": 0.6, "LASSO": 0.5}) + made_rows({"WkNN": 0.55}, 2)
    figure = load_module("paper_figures").all_figures(rows)[0]
    assert "toy, 10 splits" in figure.svg
    assert "WkNN" not in figure.svg + figure.alt
    rows = made_rows({"SemFS": 0.6, "WkNN": 0.55}, 2)
    assert "WkNN" in load_module("paper_figures").all_figures(rows)[0].svg


def test_marks_of_a_chart_are_where_the_values_are():
    charts = load_module("line_charts")
    points = [(0.0, 1.0, 0.0), (10.0, 3.0, 0.0)]
    axes = charts.Axis("x", [0.0, 10.0]), charts.Axis("y", [0.0, 4.0])
    chart = charts.Chart("title", *axes, {"p": {"a": points}})
    svg = ElementTree.fromstring(charts.line_chart(chart))
    path = svg.find("{*}polyline").get("points").split()
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in path)
    assert x1 - x0 == pytest.approx(charts.PANEL_WIDTH - 16)
    assert y0 - y1 == pytest.approx((charts.PANEL_HEIGHT - 12) * 2 / 4, abs=0.2)


def test_the_limits_that_the_page_names_are_those_of_the_code():
    text = " ".join((DOCS / "reproducing-numbers.md").read_text("utf-8").split())
    n_steps = grids.lasso_params(Size(1, 2))["max_iter"]
    for words in (
        f"L20ALM sees at most {grids.L20ALM_SAMPLES:,} samples",
        f"and FSASL {grids.FSASL_SAMPLES}.",
        f"Above {grids.WKNN_FULL_BATCH:,} samples",
        f"WkNN takes mini-batches of {grids.WKNN_BATCH},",
        f"MCFS with a narrow kernel sees {grids.MCFS_NARROW_SAMPLES:,}.",
        f"LASSO stops after {n_steps:,} steps",
        f"the mean of {Protocol().n_repeats} runs of K-means",
    ):
        assert words in text
    plan = load_module("bench_reproduce", "benchmarks").PLAN
    *first, last = plan["ks"]
    assert f"**k** is {', '.join(map(str, first))} and {last}," in text
    assert f"Of CIFAR-10, {plan['data']['cifar10']['n_features']:,} features" in text


# ---- merging runs ----------------------------------------------------------------------------


def of_run(rows, started):
    versions = {"semfs": "1"}
    return {
        "datasets": {"toy": {"n_seen": 3}},
        "parts": [{"started": started, "versions": versions}],
        "rows": [row | {"part": 0} for row in rows],
    }


def test_a_run_replaces_what_it_has_computed_and_keeps_the_rest():
    bench = load_module("bench_reproduce", "benchmarks")
    old = {"date": "day 1", "versions": {"semfs": "0"}, "datasets": {"other": {}}}
    old["rows"] = made_rows({"SemFS": 0.5, "LASSO": 0.4, "MCFS (oracle)": 0.1}, 2)
    old["rows"] += made_rows({"SemFS": 0.5}, 1, experiment="alpha", alpha=0.1)
    new = of_run(made_rows({"LASSO": 0.45}, 1), "day 2")
    new["rows"] += [
        row | {"part": 0} for row in made_rows({"SemFS": 0.6}, 1, experiment="alpha", alpha=1.0)
    ]
    merged = bench.merged(old, new)
    scores = {
        (row["experiment"], row["method"], row["split"], row.get("alpha")): row["acc"]
        for row in merged["rows"]
    }
    assert scores["clustering", "LASSO", "0", None] == 0.45  # replaced
    assert scores["clustering", "LASSO", "1", None] == pytest.approx(0.401)  # kept
    assert scores["alpha", "SemFS", "0", 0.1] == 0.5
    assert scores["alpha", "SemFS", "0", 1.0] == 0.6
    assert len(merged["rows"]) == len(scores) == 8
    assert merged["datasets"].keys() == {"other", "toy"}
    first, second = merged["parts"]
    assert (first["exported"], first["rows"]) == ("day 1", 6)
    assert (second["started"], second["rows"]) == ("day 2", 2)
    # The same again: nothing is doubled, and no part is left without rows.
    again = bench.merged(merged, new)
    assert again["rows"] == merged["rows"]
    assert again["parts"] == merged["parts"]


def test_the_first_export_is_the_run_itself():
    bench = load_module("bench_reproduce", "benchmarks")
    new = of_run(made_rows({"LASSO": 0.45}, 1), "day 2")
    assert bench.merged({}, new) == new


def test_every_stored_row_names_its_part_and_every_part_is_counted():
    found = load_module("reproduced").stored()
    assert {"started", "equal", "rows", "largest"} <= found["check"].keys()
    parts = [row.get("part", 0) for row in found["rows"]]
    assert set(parts) == set(range(len(found["parts"])))
    for number, part in enumerate(found["parts"]):
        assert part.get("rows", len(parts)) == parts.count(number)


def test_a_grid_that_is_not_finished_is_not_exported():
    bench = load_module("bench_reproduce", "benchmarks")
    row = {"experiment": "clustering", "dataset": "toy", "split": "0", "method": "lasso"}
    row |= {"k": 5, "seed": 0}
    default = row | {"label": "LASSO", "params": {"lam": 1.0}}
    grid = [row | {"label": "LASSO (oracle)", "params": {"lam": lam}} for lam in range(5)]
    assert bench.with_whole_grids([default, *grid]) == [default, *grid]
    assert bench.with_whole_grids([default, *grid[:4]]) == [default]
    # The same point at another k is not another point.
    twice = [*grid[:4], grid[0] | {"k": 10}]
    assert bench.with_whole_grids(twice) == []


@pytest.mark.slow  # six runs, each with workers of its own
def test_jobs_whose_rows_are_stored_are_not_run_again(tmp_path, capsys):
    bench = load_module("bench_reproduce", "benchmarks")
    stages = [
        {"experiment": "clustering", "methods": ["variance", "semfs"]},
        {"experiment": "attributes-vs-labels", "methods": ["semfs"]},
        {
            "experiment": "labeled-ratio",
            "methods": ["variance"],
            "settings": [{"ratio": 0.5}, {"ratio": 1.0}],
            "draws": 2,
        },
    ]
    names = {"datasets": ["toy"], "splits": 1}
    plan = {"ks": [2, 3], "stages": [stage | names for stage in stages]}
    X, y, A = make_described_problem(C=8, U=0)
    classes = [f"class {i}" for i in range(len(A))]
    np.savez(tmp_path / "toy.npz", X=X, y=y, A=A, classes=classes)

    def numbers_computed(run, old, again=(), numbers=()):
        bench.run_stages(tmp_path, tmp_path / run, 1, old, again, plan, numbers)
        printed = capsys.readouterr().out
        return [int(found) for found in re.findall(r"(\d+) computed, 0 failed", printed)]

    assert numbers_computed("first", {}) == [2, 2, 3]
    found = bench.exported(tmp_path / "first")
    assert numbers_computed("second", found) == [0, 0, 0]
    # One of the two draws of a share, and a k of another method, are missing.
    found["rows"] = [
        row
        for row in found["rows"]
        if row.get("draw") != 1 and (row["method"], row["k"]) != ("SemFS", 3)
    ]
    assert numbers_computed("third", found) == [1, 0, 1]
    found = bench.exported(tmp_path / "first")
    assert numbers_computed("fourth", found, ["semfs"]) == [1, 2, 0]
    assert numbers_computed("fifth", {}, numbers=[1]) == [2]
