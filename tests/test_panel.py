"""The page about a panel: what the object knows, what the page says, words, the command."""

import csv
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from report_rows import EVIL, NASTY
from scipy.stats import norm

from problems import make_problem
from semfs import SemFS, save
from semfs import load as load_selector
from semfs.datasets import load_sample
from semfs.lab.panels import read_panel
from semfs.panel import CELLS, panel_report

pd = pytest.importorskip("pandas")
pytest.importorskip("jinja2")
pytest.importorskip("plotly")
pytest.importorskip("typer")


@pytest.fixture(scope="module")
def lung():
    return load_sample()


@pytest.fixture(scope="module")
def panel(lung):
    X, y, *_ = lung.split()
    X = pd.DataFrame(X, columns=lung.feature_names)
    selector = SemFS(12, lung.attributes).fit(X, y)
    return panel_report(selector, words=CELLS, n_bootstraps=5, command="semfs panel …")


def planted():
    """Four classes; feature 0 marks class 0, feature 1 marks classes 2 and 3, others noise."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 50)
    X = rng.normal(size=(200, 6))
    X[y == 0, 0] += 6
    X[y >= 2, 1] += 6
    return X, y


def confused_naively(selector, X, y, first, second):
    """The share of samples nearer to the other mean, each of them left out of the moments."""
    Z = X[:, np.flatnonzero(selector.support_)]
    centered = Z - np.array([Z[y == label].mean(axis=0) for label in y])
    correlations = np.corrcoef(centered.T)
    deviations = centered.std(axis=0)
    k = Z.shape[1]

    def inverse_without(i):
        """The covariance without sample i: half of it, the diagonal, stays as it was."""
        n = (y == y[i]).sum()
        u = centered[i] / deviations
        without = 0.5 * (correlations - n / (n - 1) / len(y) * np.outer(u, u)) + 0.5 * np.eye(k)
        return np.linalg.inv(without)

    shares = []
    for own, other in ((first, second), (second, first)):
        hits = []
        for i in np.flatnonzero(y == own):
            others = (y == own) & (np.arange(len(y)) != i)
            inverse = inverse_without(i)
            to_own = (Z[i] - Z[others].mean(axis=0)) / deviations
            to_other = (Z[i] - Z[y == other].mean(axis=0)) / deviations
            hits.append(to_other @ inverse @ to_other < to_own @ inverse @ to_own)
        shares.append(np.mean(hits))
    return np.mean(shares)


# ---- explain() ------------------------------------------------------------------------


def test_coverage_counts_the_features_that_mark_each_class():
    X, y = planted()
    found = SemFS(2, None).fit(X, y).explain(n_bootstraps=0)
    assert found.coverage.to_dict() == {"0": 1, "1": 0, "2": 1, "3": 1}
    assert found.markers.loc["x0"].tolist() == [True, False, False, False]


def test_separation_is_the_mahalanobis_distance_of_class_means():
    X, y = planted()
    selector = SemFS(2, None).fit(X, y)
    found = selector.explain(n_bootstraps=0)
    means = np.array([X[y == c][:, :2].mean(axis=0) for c in range(4)])
    within = selector.within_.copy()
    within[0, 1] *= 0.5  # correlations are shrunk by half
    within[1, 0] *= 0.5
    difference = means[0] - means[2]
    expected = np.sqrt(difference @ np.linalg.solve(within, difference))
    assert_allclose(found.separation.iloc[0, 2], expected, rtol=1e-6)
    pairs = found.pairs
    assert (pairs["first"][0], pairs["second"][0]) == ("2", "3")  # nothing separates them
    assert (np.diff(pairs["distance"]) >= 0).all()
    assert_allclose(pairs["error"], norm.cdf(-pairs["distance"] / 2))


def test_the_expected_confusion_is_that_of_the_samples():
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 4000)
    X = rng.normal(size=(12000, 3))
    X[y == 1, 0] += 2.0
    X[y == 2, 1] += 9.0
    pairs = SemFS(2, None).fit(X, y).explain(n_bootstraps=0).pairs
    measured = np.mean(X[y == 0, 0] > 1.0) / 2 + np.mean(X[y == 1, 0] < 1.0) / 2
    assert pairs["error"][0] == pytest.approx(measured, abs=0.02)


def test_correlations_are_those_of_samples_with_classes_alike():
    X, y, A = make_problem(n=240, d=10, C=6)
    selector = SemFS(4, A).fit(X, y)
    found = selector.explain(n_bootstraps=0).correlation
    selected = selector.order_[:4]
    counts = np.bincount(y)
    Z = np.sqrt(1 / counts[y])[:, None] * (
        X[:, selected] - np.mean([X[y == c].mean(axis=0) for c in range(6)], 0)[selected]
    )
    covariance = Z.T @ Z
    deviations = np.sqrt(np.diag(covariance))
    assert_allclose(found, covariance / np.outer(deviations, deviations), atol=0.02)


def test_unseen_classes_are_there_by_predicted_means(lung, panel):
    found = panel.explanation
    assert set(found.unseen) == {str(label) for label in lung.unseen}
    assert found.means.shape == (12, 19)
    assert found.separation.shape == (19, 19)


def test_a_saved_selector_has_pairs_and_coverage_without_samples(lung, tmp_path):
    X, y, *_ = lung.split()
    selector = SemFS(5, lung.attributes).fit(X, y)
    loaded = load_selector(save(selector, tmp_path / "s.semfs"))
    ours = panel_report(loaded, n_bootstraps=0)
    assert ours.shares is None
    expected = selector.explain(n_bootstraps=0).separation
    assert_allclose(ours.explanation.separation, expected, rtol=1e-6)
    assert "Levels by class" in ours.render()


# ---- the object and the page ----------------------------------------------------------


def test_shares_count_the_samples_above_the_threshold(lung, panel):
    X, y, *_ = lung.split()
    column = list(lung.feature_names).index(panel.features[0])
    for label in panel.shares.columns:
        expected = (X[np.asarray(y) == label][:, column] > 0).mean()
        assert_allclose(panel.shares.loc[panel.features[0], label], expected)
    assert panel.n_samples == len(y)


def test_samples_given_as_arrays_and_remembered_ones_agree():
    X, y, A = make_problem(n=200, d=12, C=6)
    selector = SemFS(4, A).fit(X, y)
    given = panel_report(selector, X, y, n_bootstraps=0)
    remembered = panel_report(selector, n_bootstraps=0)
    assert_allclose(given.shares, remembered.shares)
    first = selector.order_[0]
    average = np.mean([X[y == c, first].mean() for c in range(6)])
    assert_allclose(given.shares.iloc[0, 0], (X[y == 0, first] > average).mean())


def test_the_page_shows_the_number_of_cells_and_names_types_of_few():
    X, y = planted()
    few = np.concatenate([np.arange(3), np.arange(50, 200)])  # three cells of the first type
    labels = np.array(["rare", "b", "c", "d"])[y]
    report = panel_report(SemFS(3).fit(X[few], labels[few]), n_bootstraps=0, words=CELLS)
    assert report.class_sizes.to_dict() == {"rare": 3, "b": 50, "c": 50, "d": 50}
    sections = {section.title: section for section in report.sections()}
    summary = " ".join(sections["Summary"].text)
    assert "1 cell type has fewer than 5 cells: rare (3)." in summary
    coverage = sections["Coverage of each cell type"].table
    column = coverage.columns.index("cells")
    sizes = {row[0]: row[column] for row in coverage.rows}
    assert sizes == {"rare": 3, "b": 50, "c": 50, "d": 50}


def test_the_summary_counts_the_features_that_could_be_selected():
    X, y = planted()
    for candidates, expected in [
        (None, "2 of 6 genes, selected on 200 cells"),
        ([0, 1, 4], "2 of 3 genes that could be selected (6 in all), selected on 200 cells"),
    ]:
        selector = SemFS(2, candidates=candidates).fit(X, y)
        report = panel_report(selector, n_bootstraps=0, words=CELLS)
        (summary, *_) = report.sections()
        assert summary.text[0].startswith(expected)


def test_a_line_of_the_command_does_not_end_within_an_option():
    X, y = planted()
    command = "semfs panel X.h5ad --min-per-class 2"
    page = panel_report(SemFS(2).fit(X, y), n_bootstraps=0, command=command).render()
    assert 'semfs panel X.h5ad <span class="short">--min-per-class</span> 2</p>' in page


def test_genes_that_vary_more_with_the_batch_are_named():
    X, y = planted()
    batch = np.arange(len(y)) % 2
    X[:, 3] += 20 * batch  # the feature of a batch
    selector = SemFS(3, include=[3]).fit(X, y, batch=batch)
    report = panel_report(selector, n_bootstraps=0, words=CELLS)
    assert report.explanation.features["more_batch"].sum() == 1
    (summary, *_) = report.sections()
    assert "Vary more with the batch than with the cell type: " in " ".join(summary.text)


def test_types_with_enough_cells_are_not_warned_of(panel):
    (summary, *_) = panel.sections()
    assert "fewer than" not in " ".join(summary.text)


def test_the_page_says_what_was_asked_for(panel, tmp_path):
    page, table = panel.write(tmp_path / "panel.html")
    text = page.read_text("utf-8")
    for title in (
        "Panel of 12 genes",
        "Levels by cell type",
        "Coverage of each cell type",
        "Expected separation of cell types",
        "Correlation between the genes",
        "Stability",
        "semfs panel …",
        "Each gene is divided by its standard deviation within cell types",
    ):
        assert title in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert list(rows[0]) == ["rank", "gene", "reason", "frequency", "substitutes"]
    assert [row["gene"] for row in rows] == panel.features
    assert all(0 <= float(row["frequency"]) <= 1 for row in rows)


def test_rules_have_a_section(panel):
    from dataclasses import replace

    told = replace(panel, rules=["min_per_class=2 cost 1.5 % of J."])
    assert "min_per_class=2 cost 1.5 % of J." in told.render()
    assert ">Rules</h2>" not in panel.render()


def test_names_stay_text(tmp_path):
    X, y, A = make_problem(n=120, d=len(NASTY), C=6, m=len(NASTY))
    labels = np.array([*NASTY, "a", "b", "c", "d", "e"])[:6]
    table = pd.DataFrame(A, index=labels, columns=NASTY)
    frame = pd.DataFrame(X, columns=NASTY)
    selector = SemFS(len(NASTY), table).fit(frame, labels[y])
    made = panel_report(selector, n_bootstraps=3)
    page, vendor = made.write(tmp_path / "panel.html")
    assert EVIL not in page.read_text("utf-8")
    assert "'=HYPERLINK(1)" in vendor.read_text("utf-8")


def test_another_ending_is_refused(panel, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.html"):
        panel.write(tmp_path / "panel.pdf")


# ---- the command ----------------------------------------------------------------------


@pytest.fixture
def table_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = planted()
    frame = pd.DataFrame(X * [1, 10, 1, 1, 1000, 1], columns=[f"s{j}" for j in range(6)])
    frame["state"] = np.array(["idle", "run", "hot", "fail"])[y]
    frame.to_csv("machine.csv", index=False)
    return tmp_path


def test_the_command_writes_the_page_and_the_list(table_file, invoke):
    options = ("--scale", "--bootstraps", 4, "--save", "p.semfs", "--reduced", "small.csv")
    done = invoke("panel", "machine.csv", "-l", "state", "-k", 2, *options)
    assert "Wrote panel.html" in done.stdout
    text = (table_file / "panel.html").read_text("utf-8")
    assert "Panel of 2 features" in text
    assert "gene" not in text.partition('<script type="application/json"')[0]
    vendor = pd.read_csv("panel.csv")
    assert set(vendor["feature"]) == {"s0", "s1"}
    assert set(pd.read_csv("small.csv").columns) == {"s0", "s1", "state"}
    assert set(load_selector("p.semfs").get_feature_names_out()) == {"s0", "s1"}


def test_means_and_thresholds_are_in_the_units_of_the_data(table_file, invoke):
    from semfs.rows import open_blocks
    from semfs.select.selection import fit_features

    source = open_blocks("machine.csv", "state")
    done = fit_features(source, SemFS(2), scale=True)
    made = panel_report(done.selector, done.samples, explanation=done.explanation)
    means = pd.read_csv("machine.csv").groupby("state")[made.features].mean()
    assert_allclose(made.explanation.means.T, means.loc[made.explanation.means.columns])
    assert (made.shares.loc["s1", ["hot", "fail"]] > 0.9).all()


def test_a_page_is_not_written_over_the_data(table_file, invoke):
    done = invoke("panel", "machine.csv", "-l", "state", "-o", "machine.html", code=2)
    assert "would overwrite" in done.stderr
    done = invoke("panel", "machine.csv", "-l", "state", "-o", "panel.csv", code=2)
    assert "must end in .html" in done.stderr


def test_what_may_not_be_selected_is_no_substitute():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    X = rng.normal(size=(120, 5))
    X[:, 0] += 3 * y
    X[:, 1] = X[:, 0] + 0.1 * rng.normal(size=120)
    X[:, 2] = X[:, 0] + 0.1 * rng.normal(size=120)
    free = panel_report(SemFS(1, None).fit(X, y), n_bootstraps=0)
    bound = panel_report(SemFS(1, None, exclude=[2]).fit(X, y), n_bootstraps=0)
    assert len(free.substitutes()[free.features[0]]) == 2
    assert "x2" not in bound.substitutes()[bound.features[0]]


@pytest.mark.parametrize("impute", ["median", "class-mean"])
def test_shares_are_those_of_the_values_that_are_there(table_file, invoke, impute):
    frame = pd.read_csv("machine.csv")
    frame.loc[frame.index[::5], "s0"] = np.nan
    frame.to_csv("gaps.csv", index=False)
    options = ("--impute", impute, "--bootstraps", 0, "--drop", "s2,s3,s4,s5")
    invoke("panel", "gaps.csv", "-l", "state", "-k", 2, "-o", "page.html", *options)
    from semfs.rows import open_blocks
    from semfs.select.selection import fit_features

    drop = ["s2", "s3", "s4", "s5"]
    source = open_blocks("gaps.csv", "state", drop=drop, missing_values="keep")
    done = fit_features(source, SemFS(2, missing_values="class-mean"))
    made = panel_report(done.selector, done.samples, explanation=done.explanation)
    threshold = done.selector.class_means_[:, 0].mean()
    observed = frame.dropna()
    expected = (observed["s0"] > threshold).groupby(observed["state"]).mean()
    assert_allclose(made.shares.loc["s0"], expected.loc[made.shares.columns])
    assert made.n_samples == len(frame)


def test_the_list_for_the_vendor_has_prices_and_groups(table_file, invoke):
    (table_file / "prices.csv").write_text("s0,3\ns1,4\ns2,5\ns3,6\ns4,7\ns5,8\n")
    options = ("--scale", "--bootstraps", 0, "--costs", "prices.csv", "--budget", 7)
    invoke("panel", "machine.csv", "-l", "state", *options)
    vendor = pd.read_csv("panel.csv").set_index("feature")
    assert vendor["cost"].to_dict() == {"s0": 3.0, "s1": 4.0}


def test_the_price_of_a_group_is_listed_once():
    X, y = planted()
    groups = ["a", "a", "b", "b", "c", "c"]
    selector = SemFS(None, groups=groups, costs={"a": 5, "b": 2, "c": 2}, budget=7).fit(X, y)
    listed = panel_report(selector, n_bootstraps=0).table()
    assert listed["cost"].sum() == 7.0
    bought = listed.set_index("group")["cost"].to_dict()
    assert bought["a"] == 5.0
    assert len(bought) == len(listed) == 2


def sensors():
    """Six sensors of three channels each, and prices; the first three sensors are good."""
    rng = np.random.default_rng(1)
    y = np.tile(np.arange(6), 30)
    levels = rng.normal(size=(6, 6)) * [3, 2, 1.5, 0.3, 0.2, 0.1]
    names = [f"s{j // 3}_ch{j % 3}" for j in range(18)]
    X = np.repeat(levels[y], 3, axis=1) + rng.normal(size=(180, 18))
    groups = {name: name.partition("_")[0] for name in names}
    return pd.DataFrame(X, columns=names), y, groups, {f"s{j}": 4.0 + j for j in range(6)}


def test_groups_have_a_row_each_with_price_and_worth(tmp_path):
    X, y, groups, costs = sensors()
    rules = {"groups": groups, "costs": costs, "budget": 20}
    selector = SemFS(None, **rules).fit(X, y)
    report = panel_report(selector, n_bootstraps=0)
    found = report.groups()
    gains = pd.Series(selector.scores_, X.columns)[selector.get_feature_names_out()]
    assert_allclose(found["gain"], gains.groupby(groups).sum()[found.index])
    assert found["cost"].to_dict() == {name: costs[name] for name in found.index}
    assert found["cost"].sum() <= 20
    assert found["share"].sum() == pytest.approx(1.0)
    for name, worth in found["worth"].items():
        without = SemFS(None, exclude=[name], **rules).fit(X, y)
        true = 1.0 - selector.objective_[-1] / without.objective_[-1]
        assert worth == pytest.approx(true, abs=1e-6)
    page, vendor = report.write(tmp_path / "sensors.html")
    text = page.read_text("utf-8")
    assert ">The groups</h2>" in text
    assert "% worse" in text
    rows = pd.read_csv(vendor)
    assert rows["group"].tolist() == found.index.tolist()
    # the list names the channels, so that it can be compared with other selections
    names, missing = read_panel(vendor, X.columns)
    assert sorted(names) == sorted(selector.get_feature_names_out())
    assert not missing


def test_the_only_group_that_fits_has_no_worth():
    X, y, groups, _ = sensors()
    costs = {f"s{j}": 3.0 if j == 0 else 9.0 for j in range(6)}
    for features in (X.columns[:6], X.columns):
        some = {name: groups[name] for name in features}
        prices = {name: costs[name] for name in some.values()}
        selector = SemFS(None, groups=some, costs=prices, budget=4).fit(X[features], y)
        assert selector.get_feature_names_out().tolist() == ["s0_ch0", "s0_ch1", "s0_ch2"]
        found = panel_report(selector, n_bootstraps=0).groups()
        assert found["worth"].isna().all()


def test_the_page_of_a_loaded_selector_does_not_say_what_groups_are_worth(tmp_path):
    X, y, groups, _ = sensors()
    fitted = SemFS(2, groups=groups).fit(X, y)
    loaded = load_selector(save(fitted, tmp_path / "s.npz"))
    assert panel_report(fitted, X, y, n_bootstraps=0).groups()["worth"].notna().all()
    report = panel_report(loaded, X, y, n_bootstraps=0)
    assert report.groups()["worth"].isna().all()
    assert "% worse" not in report.render()


def test_names_at_the_start_of_a_rule_stay_as_they_are(panel):
    from dataclasses import replace

    told = replace(panel, rules=["include: s03_rms_g, s11_kurt entered first."])
    page = told.render()
    assert "s03_rms_g, s11_kurt entered first" in page
    assert "S03_rms_g" not in page


def test_the_page_says_that_rules_held_on_every_bootstrap():
    X, y = planted()
    told = "All rules were met every time"
    free = panel_report(SemFS(2, exclude=[5]).fit(X, y), n_bootstraps=2)
    assert told not in free.render()
    grouped = panel_report(SemFS(1, groups=list("aabbcc")).fit(X, y), n_bootstraps=2)
    assert f"{told} (groups)." in grouped.render()


def overlapping(seed=0, sizes=(12, 40, 25, 3)):
    """Classes of some sizes whose means are close to each other."""
    rng = np.random.default_rng(seed)
    y = np.repeat([f"c{c}" for c in range(len(sizes))], sizes)
    X = rng.normal(size=(len(y), 8)) * rng.uniform(0.5, 3.0, 8)
    means = {label: rng.normal(size=8) for label in np.unique(y)}
    return X + np.array([means[label] for label in y]), y


def test_samples_are_confused_with_classes_to_whose_mean_they_are_nearer():
    X, y = overlapping()
    selector = SemFS(4).fit(X, y)
    report = panel_report(selector, X, y, n_bootstraps=0)
    for first, second in (("c0", "c1"), ("c0", "c2"), ("c1", "c2")):
        expected = confused_naively(selector, X, y, first, second)
        assert_allclose(report.confused.loc[first, second], expected)
    assert report.confused.loc["c3"].drop("c3").isna().all()
    pairs = report.pairs()
    assert pairs["basis"].tolist() == ["counted"] * 3 + ["too few"] * 3
    assert pairs["confused"][:3].is_monotonic_decreasing


def test_confused_shares_do_not_depend_on_how_samples_are_given(tmp_path):
    X, y = overlapping()
    selector = SemFS(4).fit(X, y)
    remembered = panel_report(selector, n_bootstraps=0).confused
    given = panel_report(selector, X, y, n_bootstraps=0).confused
    np.savez(tmp_path / "data.npz", X=X, y=y)
    stored = panel_report(selector, str(tmp_path / "data.npz"), "y", n_bootstraps=0).confused
    pd.testing.assert_frame_equal(remembered, given)
    pd.testing.assert_frame_equal(remembered, stored)


def test_the_share_confused_is_that_of_new_samples():
    """Normal distributions about the means of few samples promise a tenth of it."""
    expected = []
    promised = []
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        means = rng.normal(size=(6, 60)) * 0.6
        y = np.repeat([f"c{c}" for c in range(6)], 10)
        codes = np.repeat(np.arange(6), 10)
        X = means[codes] + rng.standard_t(3, size=(60, 60))
        # what the selection itself promises too much is another matter
        selector = SemFS(30, candidates=range(30)).fit(X, y)
        pairs = panel_report(selector, X, y, n_bootstraps=0).pairs()
        expected.append(pairs["confused"].mean())
        promised.append(selector.explain(n_bootstraps=0).pairs["error"].mean())
        new_codes = np.repeat(np.arange(6), 300)
        new = means[new_codes] + rng.standard_t(3, size=(1800, 60))
        selected = np.flatnonzero(selector.support_)
        whiten = selector._predictor().whiten
        centers = whiten(np.array([X[codes == c][:, selected].mean(axis=0) for c in range(6)]))
        distances = ((whiten(new[:, selected])[:, None] - centers) ** 2).sum(axis=2)
        own = distances[np.arange(1800), new_codes]
        nearer = (distances < own[:, None]).sum(axis=1) / 5.0
        found.append(nearer.mean())
    assert np.mean(expected) == pytest.approx(np.mean(found), rel=0.2)
    assert np.mean(promised) < 0.2 * np.mean(found)


def test_pairs_without_samples_are_predicted(panel, lung):
    pairs = panel.pairs()
    unseen = set(panel.explanation.unseen)
    has_unseen = pairs["first"].isin(unseen) | pairs["second"].isin(unseen)
    assert (pairs["basis"][has_unseen] == "predicted").all()
    assert (pairs["basis"][~has_unseen] != "predicted").all()
    assert len(pairs) == len(panel.explanation.pairs)


def test_rules_and_sources_are_in_the_words_of_the_data():
    X, y = planted()
    X[y == 1, 2] += 6
    rules = {"exclude": [5], "min_per_class": 1, "capacity": 60.0}
    selector = SemFS(3, **rules).fit(X - X.min(), y)
    cells = panel_report(selector, words=CELLS, n_bootstraps=0)
    text = cells.render()
    assert "1 gene ruled out" in text
    assert "Every seen cell type has 1 markers" in text
    assert re.search(r"Cell type \d uses most", text)
    assert "Seen cell types: 4 cell types" in text
    assert "features" not in " ".join(cells.words.put_into(rule) for rule in cells.rules)
    assert "1 feature ruled out" in panel_report(selector, n_bootstraps=0).render()


def test_a_marker_that_is_higher_in_another_class_names_it():
    X, y = planted()
    text = panel_report(SemFS(2).fit(X, y), n_bootstraps=0).render()
    assert "higher in" in text


def cells_of_a_weak_marker():
    """Return X and y; a fifth of the cells of class 0 express feature 5, and no others."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 4
    X = rng.uniform(0.1, 0.4, (80, 6))
    X[np.arange(80), y] += 2.0
    X[:, 5] = 0.0
    X[np.flatnonzero(y == 0)[:4], 5] = 20.0
    return X, y


def test_the_command_names_markers_that_few_cells_express(tmp_path, invoke, monkeypatch):
    anndata = pytest.importorskip("anndata")
    monkeypatch.chdir(tmp_path)
    X, y = cells_of_a_weak_marker()
    cells = anndata.AnnData(X, pd.DataFrame({"type": [f"type {c}" for c in y]}))
    cells.obs_names = [f"cell {i}" for i in range(80)]
    cells.var_names = [f"g{j}" for j in range(6)]
    cells.write_h5ad("cells.h5ad")
    options = ("-l", "type", "-k", 5, "--include", "g5", "--bootstraps", 0)
    note = "--min-per-class: Counted as markers"
    done = invoke("panel", "cells.h5ad", *options, "--min-per-class", 1)
    assert note in done.stderr
    assert "g5 of type 0 (20%)" in done.stderr
    assert note not in invoke("panel", "cells.h5ad", *options).stderr


def test_a_marker_that_few_cells_of_the_class_express_is_noted():
    X, y = cells_of_a_weak_marker()
    selector = SemFS(6, include=[5]).fit(X, y)
    report = panel_report(selector, n_bootstraps=0, words=CELLS)
    assert report.explanation.markers.loc["x5", "0"]
    page = report.render()
    assert "fewer than 25% of the cells of the cell type express them: x5 of 0 (20%)." in page
    assert "in 20% of the cells only" in page
    # of measurements there is no such zero
    assert "express" not in panel_report(selector, n_bootstraps=0).render()


def test_the_summary_says_how_many_markers_every_class_has():
    y = np.arange(40) % 2
    X = np.random.default_rng(0).uniform(0.0, 0.5, (40, 3))
    X[y == 0, :2] += 3.0
    X[y == 1, 2] += 3.0
    report = panel_report(SemFS(3, max_correlation=None).fit(X, y), n_bootstraps=0)
    assert "Every class has at least 1 marker. Exactly 1: 1." in report.render()


def test_a_prediction_that_nothing_is_confused_is_not_named(panel):
    """Normal distributions about predicted means promise too much."""
    text = panel.render()
    assert "(about 0%)" not in text
    pairs = panel.pairs()
    predicted = pairs[(pairs["basis"] == "predicted") & (pairs["confused"] >= 0.05)]
    named = text.count("% predicted)")
    assert (named > 0) == (predicted.index < 5).any()


# ---- ids of genes in the list ---------------------------------------------------------


@pytest.fixture
def genes_with_ids():
    """Cells of four types whose var has symbols as index, ids, and columns that are no ids."""
    anndata = pytest.importorskip("anndata")
    X, y = planted()
    X = X - X.min()
    var = pd.DataFrame(
        {
            "ensemblid": [f"ENSG{j:011d}" for j in range(6)],
            "symbol": [f"S{j}" for j in range(6)],
            "biotype": ["protein_coding"] * 6,
            "mean": X.mean(axis=0),
            "reason": [f"probe {j}" for j in range(6)],
        },
        index=[f"S{j}" for j in range(6)],
    )
    obs = pd.DataFrame({"type": np.array(["B", "NK", "T", "mast"])[y]})
    obs.index = [f"c{i}" for i in range(len(y))]
    return anndata.AnnData(X, obs, var)


def test_the_list_has_the_ids_of_genes_after_their_names(
    genes_with_ids, tmp_path, monkeypatch, invoke
):
    monkeypatch.chdir(tmp_path)
    genes_with_ids.write_h5ad("cells.h5ad")
    options = ["-l", "type", "-k", 2, "--bootstraps", 2]
    invoke("panel", "cells.h5ad", *options)
    vendor = pd.read_csv("panel.csv")
    ids = ["ensemblid", "reason of var"]
    assert vendor.columns[:4].tolist() == ["rank", "gene", *ids]
    assert vendor.columns[4:].tolist() == ["reason", "frequency", "substitutes"]
    expected = genes_with_ids.var.loc[vendor["gene"]]
    assert vendor["ensemblid"].tolist() == expected["ensemblid"].tolist()
    assert vendor["reason of var"].tolist() == expected["reason"].tolist()
    assert vendor["frequency"].between(0, 1).all()
    # named by another column, genes keep the names of the index
    invoke("panel", "cells.h5ad", *options, "--gene-symbols", "ensemblid")
    vendor = pd.read_csv("panel.csv")
    assert vendor["index"].tolist() == expected.index.tolist()
    assert "ensemblid" not in vendor


def test_lists_of_objects_and_of_groups_have_ids_too(genes_with_ids):
    groups = ["one", "one", "two", "two", "three", "three"]
    selector = SemFS(2, groups=groups).fit(genes_with_ids, "type")
    made = panel_report(selector, genes_with_ids, "type", n_bootstraps=0)
    table = made.table().set_index("group")
    id_of = genes_with_ids.var["ensemblid"]
    for group, names in made.groups()["features"].items():
        assert table.loc[group, "ensemblid"] == ", ".join(id_of[names])
    assert panel_report(selector, n_bootstraps=0).ids == {}
