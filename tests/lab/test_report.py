"""The page of a run: what it says, that it needs nothing else, that names stay text."""

import base64
import csv
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from report_rows import EVIL, NASTY, all_rows, failures, info, row, rows_of

pytest.importorskip("jinja2")
pytest.importorskip("plotly")
from typer.testing import CliRunner

from semfs.cli import app
from semfs.lab import Job, Result, Store
from semfs.lab.claims.section import claims_section
from semfs.lab.report import render, write_csv, write_report
from semfs.lab.sections import RANDOM_DRAWS, Panel, Section, build_sections


class Page(HTMLParser):
    """Elements, text and script blocks of a page, as an HTML parser sees them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.scripts, self._inside = [], [], {}, None
        self.feed(text)
        self.shown = " ".join("".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self._inside = dict(attributes).get("id", "main")
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = None

    def handle_data(self, data):
        if self._inside is not None:
            self.scripts[self._inside] += data
        else:
            self.texts.append(data)

    def unpacked(self, name):
        return gzip.decompress(base64.b64decode(self.scripts[name])).decode()

    def csv_rows(self):
        return list(csv.DictReader(self.unpacked("csv").splitlines()))


def page_of(rows, *more):
    return Page(render(rows, *(more or ([], {}))))


@pytest.fixture(scope="module")
def page():
    return page_of(all_rows(), failures(), info())


def section_of(rows, title):
    return next(part for part in build_sections(rows) if part.title == title)


# --- what it says ----------------------------------------------------------------------


def test_every_experiment_has_a_section_and_pictures_come_before_tables(page):
    text = render(all_rows(), failures(), info())
    names = ("Objects (aPY)", "Animals", "Small images (CIFAR-10)")
    drawn = ["Labeled share of seen classes", "Attributes or labels as targets"]
    drawn += ["Effect of α", "Convergence", "Scaling"]
    tables = ["Standings", "Selected features", "Failures", "How this was made"]
    pictures = [*(f"Clustering: {name}" for name in names), *drawn]
    titles = ["Summary", "Leads", *pictures, *tables]
    assert re.findall(r"<h2[^>]*>(.*)</h2>", text) == titles
    for said in ("LinAlgError: singular matrix", "semfs reproduce clustering", "numpy 2.4.0"):
        assert said in page.shown


def test_a_quick_run_absent_data_and_findings_are_told():
    facts = {"protocol": {"fast": True}, "notes": ["Absent: SUN."]}
    text = render([row("SemFS", 0.5)], [], facts)
    assert text.index("Quick run (--fast)") < text.index("Absent: SUN.") < text.index("<h2")
    assert "What the paper says: SemFS and SemFS/c always beat" in text
    plain = render([row("SemFS", 0.5)], [], {})
    assert "Quick run" not in plain
    assert "What the paper says" not in plain  # one's own comparison


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"A": [0.50, 0.51, 0.53], "B": [0.40, 0.41, 0.42]}, "Clear: ahead of every other"),
        ({"A": [0.50, 0.51, 0.53], "B": [0.40, 0.41, 0.42]}, "A: 0.513+0.103 (+0.0"),
        ({"A": [0.5, 0.51], "C": [0.1, 0.9]}, "No clear winner. Not significantly different: "),
        ({"A": [0.9], "B": [0.1]}, "A: 0.900+0.800 over BOne split: differences cannot"),
        ({"A": [0.5, 0.6]}, "Fewer than two methods have finished: nothing to compare."),
        ({"A": [0.5, 0.6], "B": [0.4, 0.5], "C": [0.9]}, "results are missing: C (50% done)"),
        ({"A": [0.5, 0.6], "B (oracle)": [0.9, 0.9]}, "not ranked: B (oracle), 0.900"),
        ({"A": [0.5, 0.5], "B": [0.5, 0.5]}, "none, equal to B"),
        ({"A": [0.50001, 0.50003, 0.50002], "B": [0.5, 0.5, 0.5]}, "A: 0.500+2e-05 (−"),
        ({"A": [0.50099], "B": [0.5]}, "A: 0.501+0.001 over B"),
    ],
)
def test_who_wins_is_said_only_as_far_as_it_can_be_told(scores, said):
    shown = page_of(rows_of(scores)).shown
    assert said in shown
    assert "+0.000" not in shown


def test_the_title_names_the_data_and_scores_are_explained_before_they_are_used():
    text = render([row("A", 0.5), row("B", 0.4)], [], {"started": "2026-01-02T03:04:05+00:00"})
    assert "<title>Objects (aPY): features for unseen classes (2026-01-02)</title>" in text
    assert text.index("<strong>ACC</strong>") < text.index("<strong>NMI</strong>")
    assert text.index("<strong>NMI</strong>") < text.index("A: 0.500")


def test_leads_are_drawn_with_their_intervals_and_those_of_semfs_first():
    scores = {"B": [0.4, 0.5], "SemFS": [0.5, 0.52], "A": [0.6, 0.6], "A (oracle)": [0.9, 0.9]}
    (acc, nmi) = section_of(rows_of(scores), "Leads").panels
    assert acc.title == "Objects (aPY): lead of SemFS in ACC"
    assert (acc.kind, nmi.kind) == ("forest", "forest")
    assert set(acc.series) == {"A", "B"}
    ((mean, low, high, remark),) = acc.series["B"]
    assert mean == pytest.approx(0.06)
    assert low < mean < high
    assert remark == "undecided, 2 splits"


def verdict_on(claim, rows):
    table = claims_section(rows).table
    return next(line[2] for line in table.rows if claim in line[0])


@pytest.mark.parametrize(
    ("semfs", "n_splits", "verdict"),
    [
        ([0.50, 0.51, 0.52], 10, "confirmed"),
        ([0.50, 0.51, 0.52], 9, "undecided"),
        ([0.40, 0.41, 0.52], 9, "undecided"),
        ([0.40, 0.41, 0.52], 10, "undecided"),
        ([0.30, 0.31, 0.32], 10, "not confirmed"),
        ([0.50], 1, "undecided"),
    ],
)
def test_that_semfs_is_always_ahead_is_confirmed_only_beyond_the_interval(
    semfs, n_splits, verdict
):
    mcfs = [0.40, 0.41, 0.42]
    # some noise, so that intervals have a length
    scores = {
        "SemFS": [semfs[i % len(semfs)] + 0.01 * (i % 2) for i in range(n_splits)],
        "MCFS": [mcfs[i % 3] + 0.01 * (i % 4 == 1) for i in range(n_splits)],
    }
    rows = rows_of(scores)
    assert verdict_on("ahead of each baseline on every", rows) == verdict
    assert verdict_on("Proposition 1", rows) == "not tested"


@pytest.mark.parametrize(
    ("objective", "verdict"),
    [([3.0, 2.0, 2.0], "confirmed"), ([3.0, 2.0, 2.1], "in part")],
)
def test_that_the_objective_falls_is_judged_by_all_runs(objective, verdict):
    rows = [
        row(label, 0.0, experiment="convergence", extra={"objective": J})
        for label, J in (("one", [3.0, 2.0]), ("other", objective))
    ]
    assert verdict_on("Proposition 1", rows) == verdict


@pytest.mark.parametrize(("power", "verdict"), [(1, "confirmed"), (2, "not confirmed")])
def test_that_time_is_linear_is_judged_by_the_power(power, verdict):
    rows = [
        row("SemFS", 0.0, experiment="scaling", seconds=n**power, extra={"n": n, "d": 10})
        for n in (10, 30, 100, 300)
    ]
    assert verdict_on("linearly", rows) == verdict
    assert verdict_on("linearly", rows[:2]) == "undecided"


@pytest.mark.parametrize(("slope", "verdict"), [(0.001, "confirmed"), (0.1, "not confirmed")])
def test_that_alpha_hardly_matters_is_judged_in_the_range_of_the_paper(slope, verdict):
    rows = [
        row("SemFS", 0.5 + slope * alpha, experiment="alpha", params={"alpha": alpha})
        | {"split": str(split)}
        for alpha in (0.001, 0.1, 1.0)
        for split in range(10)
    ]
    far = [
        row("SemFS", 0.9, experiment="alpha", params={"alpha": alpha}, split=str(split))
        for alpha in (0.0001, 1000.0)
        for split in range(10)
    ]
    assert verdict_on("for α", rows + far) == verdict
    assert verdict_on("for α", rows[::10]) == "undecided"


def test_more_labels_and_attributes_are_claims_about_differences():
    rows = [
        row("SemFS", score, experiment="labeled-ratio", params={"ratio": ratio})
        | {"split": str(split)}
        for ratio, score in ((0.1, 0.4), (1.0, 0.5))
        for split in range(10)
    ]
    assert verdict_on("More labels", rows) == "confirmed"
    rows = [
        row(f"SemFS ({target})", score + 0.001 * split, split=str(split))
        | {"experiment": "attributes-vs-labels"}
        for target, score in (("attributes", 0.4), ("labels", 0.5))
        for split in range(10)
    ]
    assert verdict_on("Attributes generalize", rows) == "not confirmed"


def test_the_rules_of_the_verdicts_are_beside_them():
    text = " ".join(claims_section(rows_of({"SemFS": [0.5], "MCFS": [0.4]})).text)
    assert "fewer than 10 class splits" in text
    assert "Linear time: the time at the largest number of samples" in text


def test_the_page_of_a_run_of_the_paper_has_a_table_of_its_claims():
    text = render(all_rows(), [], {"protocol": {}})
    assert "What the paper says" in text
    shown = Page(text).shown
    assert "The paper's claims" in shown
    assert shown.index("The paper's claims") < shown.index("Clustering: ")
    assert "The paper's claims" not in Page(render(all_rows(), [], {})).shown


def test_unseen_classes_of_dot_plots_are_named_to_the_script():
    dots = Panel("t", "x", "y", {"a": [("g", 1.0, 0.5, "")]}, kind="dots", marked=["a"])
    page = Page(render([], [], {}, [Section("Dots", [], panels=[dots])]))
    assert json.loads(page.scripts["plots"])["panels"][0]["marked"] == ["a"]


def test_a_page_of_nothing_says_so_and_carries_no_plotting_library():
    text = render([], [], {})
    assert "No job of this run has finished yet." in text
    assert len(text) < 40_000


def test_at_most_eight_curves_are_shown_at_once_ours_and_the_best(page):
    boxes = [a for _, a in page.elements if "data-key" in a]
    first = {a["data-key"]: "checked" in a for a in boxes[:12]}
    assert sum(first.values()) == 8
    assert first["SemFS"]
    assert first["SemFS/c"]
    assert any("data-spread" in a for _, a in page.elements)
    assert not any("data-spread" in a and "checked" in a for _, a in page.elements)
    colors = json.loads(page.scripts["plots"])["colors"]
    assert len(set(colors.values())) == len(colors) > 12


def test_features_of_several_splits_are_counted():
    names = {"0": ["a", "b"], "1": ["b", "c"]}
    rows = [row("SemFS", 0.5, split=s, features=f) for s, f in names.items()]
    (line,) = section_of(rows, "Selected features").table.rows
    assert line[1:] == ["SemFS", [("b", "2/2"), ("a", "1/2"), ("c", "1/2")]]


def test_random_features_are_not_listed_because_every_run_draws_new_ones():
    rows = [
        row("Random", 0.5, split=split, extra={"random_draws": True}) for split in ("0", "1")
    ]
    rows.append(row("Random", 0.5, split="2", features=["a"]))  # of an earlier version
    (line,) = section_of(rows, "Selected features").table.rows
    assert line[1:] == ["Random", RANDOM_DRAWS]
    assert RANDOM_DRAWS in page_of(rows).shown


def test_rows_are_written_as_csv_only(tmp_path):
    with pytest.raises(ValueError, match=r"t.tex: rows are written as CSV"):
        write_csv([row("SemFS", 0.5)], tmp_path / "t.tex")
    assert list(tmp_path.iterdir()) == []


def test_convergence_says_whether_the_objective_ever_rises():
    rows = [
        row(label, 0.0, experiment="convergence", extra={"objective": objective})
        for label, objective in (("falls", [3.0, 2.0, 2.0]), ("rises", [3.0, 2.0, 2.1]))
    ]
    assert "never rises in 1 of 2 runs" in section_of(rows, "Convergence").text[0]


def test_attributes_lead_over_labels_is_paired_over_splits():
    rows = [
        row(f"LASSO ({target})", acc + 0.1 * split, split=str(split))
        | {"params": {"targets": target}, "experiment": "attributes-vs-labels"}
        for split in range(3)
        for target, acc in (("attributes", 0.5 + 0.01 * split), ("labels", 0.4))
    ]
    leads = section_of(rows, "Attributes or labels as targets").leads
    found = leads["apy", "ACC", "LASSO"]
    assert (found.verdict, found.mean) == ("ahead", pytest.approx(0.11))
    assert found.low < found.mean < found.high


# --- the page --------------------------------------------------------------------------


def test_the_page_needs_nothing_from_elsewhere_and_admits_our_two_scripts_only(page):
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    policy = next(a["content"] for t, a in page.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none'")
    (allowed,) = re.findall(r"script-src ([^;]*)", policy)
    scripts = [page.scripts["main"], page.unpacked("plotly")]
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert allowed.split() == [f"'sha256-{h}'" for h in hashes]


def test_tables_have_captions_and_headers_and_figures_have_words(page):
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == tags.count("caption") > 5
    assert all("scope" in a for t, a in page.elements if t == "th")
    plots = [a for _, a in page.elements if a.get("class") == "plot"]
    assert plots
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in plots)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        assert attributes.get("aria-labelledby", ids[0]) in ids


def test_the_csv_in_the_page_holds_all_rows_with_full_precision(page):
    found, rows = page.csv_rows(), all_rows()
    assert len(found) == len(rows)
    assert [float(line["acc"]) for line in found[:50]] == [r["acc"] for r in rows[:50]]
    assert json.loads(found[9]["features"]) == rows[9]["features"]


# --- untrusted text --------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile():
    rows = [
        row(name, 0.5, k=k, dataset=other, split=name, features=NASTY)
        for name, other in zip(NASTY, NASTY[1:] + NASTY[:1])
        for k in (5, 10)
    ]
    for experiment, extra in (
        ("alpha", {"alpha": 1.0}),
        ("labeled-ratio", {"ratio": 0.5}),
        ("attributes-vs-labels", {"targets": EVIL}),
        ("convergence", {"objective": [2.0, 1.0]}),
        ("scaling", {"n": 10, "d": 5}),
        ("scaling", {"n": 20, "d": 5}),
    ):
        rows += [row(n, 0.5, dataset=n, experiment=experiment, extra=extra) for n in NASTY]
    failed = [{**failures()[1], "method": n, "dataset": n, "error": n} for n in NASTY]
    facts = info(NASTY) | {"command": EVIL, "versions": {EVIL: EVIL}, "notes": [EVIL]}
    facts["datasets"] = dict.fromkeys(NASTY, facts["datasets"]["apy"])
    panel = Panel(EVIL, EVIL, EVIL, {EVIL: [(EVIL, 0.0, 1.0, EVIL)]}, kind="dots")
    return render(rows, failed, facts, [Section(EVIL, [EVIL], None, [panel])])


def test_hostile_names_make_no_element_and_show_as_text(hostile):
    page = Page(hostile)
    assert set(page.scripts) == {"plots", "csv", "plotly", "main"}
    assert not {tag for tag, _ in page.elements} & {"img", "b", "i"}
    assert not [n for _, attributes in page.elements for n in attributes if n.startswith("on")]
    shown = "".join(page.texts)
    assert all(name in shown for name in NASTY)


def test_hostile_names_cannot_end_the_data_block(hostile):
    pattern = r'<script type="application/json" id="plots">(.*)\n?</script>'
    (block,) = re.findall(pattern, hostile)
    assert not set("<>&\u2028\u2029") & set(block)
    json.loads(block)


def test_the_csv_of_a_run_is_safe_for_spreadsheets(tmp_path):
    rows = [row("=cmd()", -0.5, dataset="@x", split="-y", seed="\tz")]
    path = write_csv(rows, tmp_path / "rows.csv")
    (line,) = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    found = [line[n] for n in ("label", "dataset", "split", "acc", "seed")]
    assert found == ["'=cmd()", "'@x", "'-y", "-0.5", "'\tz"]


def test_lone_surrogates_do_not_break_the_page_and_a_failing_one_leaves_the_old(tmp_path):
    path = write_report([row("bad \ud800 name", 0.5)], tmp_path / "report.html")
    before = path.read_text(encoding="utf-8")
    assert "bad ? name" in before
    with pytest.raises(KeyError):
        write_report([{"experiment": "clustering"}], path)
    assert path.read_text(encoding="utf-8") == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_writes_a_page_or_csv_also_of_what_is_left_of_a_damaged_run(tmp_path):
    def invoke(*arguments):
        return CliRunner().invoke(app, ["report", str(run), *map(str, arguments)])

    run, table = tmp_path / "run", tmp_path / "rows.csv"
    store = Store(run)
    for method, label, acc in (("semfs", "SemFS", 0.6), ("mcfs", "MCFS", 0.5)):
        for split in ("0", "1", "2"):
            job = Job("clustering", "toy", split, method, label=label)
            scores = {k: {"acc": (acc + k / 1000, 0.1), "nmi": (acc, 0.1)} for k in (5, 10)}
            store.finish(job, Result(scores, 0.1, [EVIL, "b"]))
    store.fail(Job("clustering", "toy", "0", "wknn", label="WkNN"), "ValueError: no")
    result = invoke("--csv", table)
    assert result.exit_code == 0, result.output
    assert len(table.read_text(encoding="utf-8").splitlines()) == 1 + 12
    assert not (run / "report.html").exists()
    assert invoke().exit_code == 0
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    assert all(said in page.shown for said in ("Clear: ahead", "ValueError: no", EVIL))

    store._db.execute("UPDATE records SET value = '{}' WHERE rowid = 2")
    store.close()
    result = invoke()
    assert (result.exit_code, "is damaged" in result.output) == (2, True)
    result = invoke("--csv", table)
    assert result.exit_code == 0, result.output
    assert len(table.read_text(encoding="utf-8").splitlines()) == 1 + 10


def test_times_and_objectives_without_k_are_not_taken_for_rows_of_two_evaluations(tmp_path):
    page = write_report(all_rows(), tmp_path / "report.html")
    assert page.exists()
