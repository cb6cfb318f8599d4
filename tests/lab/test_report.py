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
    assert re.findall(r"<h2[^>]*>(.*)</h2>", text) == ["Summary", *pictures, *tables]
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
        ({"A": [0.50, 0.51, 0.53], "B": [0.40, 0.41, 0.42]}, "A wins. A is highest: 0.513"),
        ({"A": [0.5, 0.51], "C": [0.1, 0.9]}, "No clear winner. A is highest"),
        ({"A": [0.9], "B": [0.1]}, "cannot be tested. A is highest: 0.900, 0.800 above B."),
        ({"A": [0.5, 0.6]}, "Fewer than two methods have finished: nothing to compare."),
        ({"A": [0.5, 0.6], "B": [0.4, 0.5], "C": [0.9]}, "results are missing: C (50% done)"),
        ({"A": [0.5, 0.6], "B (oracle)": [0.9, 0.9]}, "for reference: B (oracle), 0.900"),
        ({"A": [0.5, 0.5], "B": [0.5, 0.5]}, "exactly as B"),
        ({"A": [0.50001, 0.50003, 0.50002], "B": [0.5, 0.5, 0.5]}, "2e-05 above B"),
        ({"A": [0.50099], "B": [0.5]}, "A is highest: 0.501, 0.001 above B."),
    ],
)
def test_who_wins_is_said_only_as_far_as_it_can_be_told(scores, said):
    shown = page_of(rows_of(scores)).shown
    assert said in shown
    assert "+0.000" not in shown


def test_the_title_names_the_data_and_scores_are_explained_before_they_are_used():
    text = render([row("A", 0.5), row("B", 0.4)], [], {"started": "2026-01-02T03:04:05+00:00"})
    assert "<title>Objects (aPY): features for unseen classes</title>" in text
    assert text.index("<p>2026-01-02</p>") < text.index("<strong>ACC</strong>")
    assert text.index("<strong>NMI</strong>") < text.index("A is highest")


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
    assert any("data-spread" in a and "checked" in a for _, a in page.elements)
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
    assert all(said in page.shown for said in ("SemFS wins.", "ValueError: no", EVIL))

    store._db.execute("UPDATE records SET value = '{}' WHERE rowid = 2")
    store.close()
    result = invoke()
    assert (result.exit_code, "is damaged" in result.output) == (2, True)
    result = invoke("--csv", table)
    assert result.exit_code == 0, result.output
    assert len(table.read_text(encoding="utf-8").splitlines()) == 1 + 10
