import base64
import csv
import gzip
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import pytest
from report_rows import EVIL, NASTY, all_rows, clustering_rows, failures, info, row

pytest.importorskip("jinja2")
pytest.importorskip("plotly")
from semfs.lab import Cell, Result, Store
from semfs.lab.page import dots, figure, heat_map, render_page, section, table
from semfs.lab.report import build_sections, render, write_csv, write_report


class Page(HTMLParser):
    """Elements, text and script blocks of a page, as an HTML parser sees them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.scripts, self._inside = [], [], {}, None
        self.feed(text)

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

    def csv_files(self):
        files = json.loads(self.unpacked("csv-files"))
        return {f["name"]: list(csv.reader(io.StringIO(f["text"]))) for f in files}


@pytest.fixture(scope="module")
def summary():
    return build_sections(all_rows(), failures(), info())


@pytest.fixture(scope="module")
def page(summary):
    return Page(render(summary))


def section_of(summary, title):
    return next(s for s in summary["sections"] if s["title"] == title)


def test_every_experiment_has_a_section_and_pictures_come_before_tables(summary):
    titles = [s["title"] for s in summary["sections"]]
    names = ("Objects (aPascal and aYahoo)", "Animals", "Small images (CIFAR-10)")
    assert titles == [
        "Summary",
        *(f"Clustering: {name}" for name in names),
        "Labelled share of seen classes",
        "Attributes or labels as targets",
        "Effect of α",
        "Convergence",
        "Scaling",
        "Standings",
        "Selected features",
        "Failures",
        "Data",
        "How this was made",
    ]
    drawn = [s["figure"] is not None for s in summary["sections"][1:]]
    assert drawn == sorted(drawn, reverse=True)


def test_a_quick_run_and_absent_data_are_told_at_the_top():
    notes = ["Data sets of the paper that are absent: SUN."]
    facts = {"protocol": {"fast": True}, "notes": notes}
    text = render(build_sections([row("SemFS", 0.5)], [], facts))
    assert text.index("Quick run (--fast)") < text.index("that are absent") < text.index("<h2")
    assert "Quick run" not in render(build_sections([row("SemFS", 0.5)], [], {}))


def test_a_small_lead_is_never_shown_as_zero():
    leads = {"SemFS": [0.50001, 0.50003, 0.50002], "MCFS": [0.5, 0.5, 0.5]}
    rows = [row(m, acc, split=str(i)) for m, v in leads.items() for i, acc in enumerate(v)]
    text = build_sections(rows)["sections"][0]["text"][1][0][1]
    assert "2e-05 above MCFS" in text
    assert "+0.000" not in text
    same = [row(m, 0.5, split=s) for m in ("A", "B") for s in "01"]
    assert "exactly as B" in build_sections(same)["sections"][0]["text"][1][0][1]


def test_at_most_eight_curves_are_shown_at_once_ours_and_the_best(page):
    boxes = [a for _, a in page.elements if "data-key" in a]
    shown = {a["data-key"] for a in boxes if "checked" in a}
    assert len({a["data-key"] for a in boxes}) > 8
    first = {a["data-key"]: "checked" in a for a in boxes[:12]}
    assert sum(first.values()) == 8
    assert shown >= {boxes[0]["data-key"], boxes[1]["data-key"]}  # SemFS and SemFS/c
    assert any("data-spread" in a and "checked" in a for _, a in page.elements)
    colours = {}
    for plot in json.loads(page.scripts["plots"]):
        for trace, key in zip(plot["traces"], plot["keys"]):
            colours.setdefault(trace["marker"]["color"], set()).add(key)
    assert all(len(keys) == 1 for keys in colours.values())


def test_summary_is_plain_values(summary):
    assert json.loads(json.dumps(summary))["title"] == summary["title"]


def test_summary_says_that_one_split_is_no_test(summary):
    headline, points, *_ = section_of(summary, "Summary")["text"]
    assert "4 have one split only" in headline
    verdicts = dict(points)
    assert verdicts["Objects (aPascal and aYahoo), ACC:"].startswith("No tested winner.")
    assert "5 splits" in verdicts["Small images (CIFAR-10), ACC:"]


def test_summary_names_a_clear_winner():
    rows = [
        row(label, acc + 0.01 * i, split=str(i))
        for label, acc in (("SemFS", 0.6), ("MCFS", 0.5))
        for i in range(4)
    ]
    text = build_sections(rows, [], {})["sections"][0]["text"]
    assert "2 have a clear winner, SemFS 2" in text[0]
    assert text[1][0][1].startswith("SemFS wins.")


def test_page_without_rows_says_so():
    text = render(build_sections([], [], {}))
    assert "No cell of this run has finished yet." in text


def test_page_of_an_unfinished_run_can_be_made():
    rows = [row("SemFS", 0.5), row("MCFS", 0.4, k=10)]
    assert "nothing to compare" in render(build_sections(rows, failures(), {}))


def test_features_of_several_splits_are_counted():
    names = {"0": ["a", "b"], "1": ["b", "c"]}
    rows = [row("SemFS", 0.5, split=s, features=f) for s, f in names.items()]
    (line,) = section_of(build_sections(rows, [], {}), "Selected features")["table"]["rows"]
    assert line == ["apy", "SemFS", [("b", "2/2"), ("a", "1/2"), ("c", "1/2")]]


def test_convergence_says_whether_the_objective_ever_rises():
    rows = [
        row(label, 0.0, experiment="convergence", extra={"objective": objective})
        for label, objective in (("falls", [3.0, 2.0, 2.0]), ("rises", [3.0, 2.0, 2.1]))
    ]
    part = section_of(build_sections(rows, [], {}), "Convergence")
    assert "never rises in 1 of 2 runs" in part["text"][0]


def test_attributes_lead_over_labels_is_paired_over_splits():
    rows = [
        row(f"LASSO ({target})", acc + 0.1 * split, split=str(split))
        | {"params": {"targets": target}, "experiment": "attributes-vs-labels"}
        for split in range(3)
        for target, acc in (("attributes", 0.5 + 0.01 * split), ("labels", 0.4))
    ]
    part = section_of(build_sections(rows, [], {}), "Attributes or labels as targets")
    name, measure, method, lead, low, high, verdict = part["table"]["rows"][0]
    assert (name, measure, method, verdict) == ("apy", "ACC", "LASSO", "ahead")
    assert lead == pytest.approx(0.11)
    assert low < lead < high


# --- the page --------------------------------------------------------------------------


def test_page_needs_nothing_from_elsewhere(page):
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    policy = next(a["content"] for t, a in page.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_policy_admits_our_two_scripts_and_no_other(page):
    policy = next(a["content"] for t, a in page.elements if "http-equiv" in a)
    (allowed,) = re.findall(r"script-src ([^;]*)", policy)
    scripts = [page.scripts["main"], page.unpacked("plotly")]
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert allowed.split() == [f"'sha256-{h}'" for h in hashes]


def test_page_without_figures_carries_no_plotting_library():
    assert len(render_page("Empty", [section("Text", ["Nothing."])])) < 30_000


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


def test_csv_files_hold_all_rows_with_full_precision(page):
    files = page.csv_files()
    header, *body = files["scores.csv"]
    rows = all_rows()
    assert len(body) == len(rows)
    assert [float(line[header.index("acc")]) for line in body[:50]] == [
        r["acc"] for r in rows[:50]
    ]
    header, *body = files["features.csv"]
    first = [line[header.index("feature")] for line in body[:50]]
    assert first == next(r for r in rows if r["k"] == 50)["features"]


def test_extra_sections_with_heat_map_and_dots_can_be_plugged_in():
    panels = [
        heat_map("Weights", [[1.0, -1.0], [0.0, float("nan")]], ["a", "b"], ["u", "v"]),
        dots("Genes", [[1.0, 2.0]], [[0.5, 1.0]], ["cell"], ["g", "h"]),
    ]
    extra = section("Why", ["Because."], table("T", ["a"], [["x"]], "t"), figure("alt", panels))
    page = Page(render(build_sections(clustering_rows(), [], info(), [extra])))
    assert "Why" in page.texts
    heat, genes = json.loads(page.scripts["plots"])[-2:]
    assert heat["traces"][0]["z"] == [[1.0, -1.0], [0.0, None]]
    assert genes["traces"][0]["marker"]["color"] == [1.0, 2.0]


# --- untrusted text --------------------------------------------------------------------


def hostile_page():
    more = {"features": NASTY}
    rows = [
        row(name, 0.5, k=k, dataset=other, split=name, **more)
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
    facts = info(NASTY) | {"command": EVIL, "versions": {EVIL: EVIL}}
    facts["datasets"] = dict.fromkeys(NASTY, facts["datasets"]["apy"])
    panel = dots(EVIL, [[0.0]], [[1.0]], [EVIL], [EVIL])
    extra = section(EVIL, [EVIL, [EVIL, (EVIL, EVIL)]], None, figure(EVIL, [panel]))
    return render(build_sections(rows, failed, facts, [extra]))


def test_hostile_names_make_no_element_and_show_as_text():
    page = Page(hostile_page())
    assert set(page.scripts) == {"plots", "csv-files", "plotly", "main"}
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "b", "i"}
    assert all(
        not name.startswith("on") for _, attributes in page.elements for name in attributes
    )
    shown = "".join(page.texts)
    for name in NASTY:
        assert name in shown


def test_hostile_names_cannot_end_the_data_block():
    text = hostile_page()
    (block,) = re.findall(r'<script type="application/json" id="plots">(.*)\n?</script>', text)
    assert not set("<>&\u2028\u2029") & set(block)
    json.loads(block)


def test_hostile_names_are_no_markup_to_plotly():
    """plotly.js reads tags and entities: only our own <b> and <br> may be left."""
    plots = json.loads(Page(hostile_page()).scripts["plots"])
    texts = []

    def collect(value):
        if isinstance(value, str):
            texts.append(value)
        inside = value.values() if isinstance(value, dict) else value
        for item in inside if isinstance(value, dict | list) else ():
            collect(item)

    collect(plots)
    assert any("&lt;script&gt;" in text for text in texts)
    for text in texts:
        assert set(re.findall(r"<[^>]*>", text)) <= {"<b>", "</b>", "<br>"}
        assert "&" not in re.sub(r"&(lt|gt|amp);", "", text)


def test_names_that_look_like_formulas_are_quoted_in_csv():
    rows = [["=1+1", -0.5, ["@a", "b"]], ["+x", None, [("-y", "1/2")]], ["-1e3", "\tz", "@"]]
    page = Page(render_page("T", [section("S", [], table("T", ["a", "b", "c"], rows, "t"))]))
    assert page.csv_files()["t.csv"][1:] == [
        ["'=1+1", "-0.5", "'@a; b"],
        ["'+x", "", "'-y (1/2)"],
        ["-1e3", "'\tz", "'@"],
    ]


def test_the_csv_of_a_run_is_safe_for_spreadsheets(tmp_path):
    path = write_csv([row("=cmd()", -0.5, dataset="@x")], tmp_path / "rows.csv")
    (line,) = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    assert (line["label"], line["dataset"], line["acc"]) == ("'=cmd()", "'@x", "-0.5")


def test_lone_surrogates_do_not_break_the_page(tmp_path):
    path = write_report([row("bad \ud800 name", 0.5)], tmp_path / "report.html")
    assert "bad ? name" in path.read_text(encoding="utf-8")


# --- the file --------------------------------------------------------------------------


def test_a_failing_report_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(KeyError):
        write_report([{"experiment": "clustering"}], path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# --- the command -----------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    store = Store(folder)
    for method, label, acc in (("semfs", "SemFS", 0.6), ("mcfs", "MCFS", 0.5)):
        for split in ("0", "1", "2"):
            cell = Cell("clustering", "toy", split, method, label=label)
            scores = {k: {"acc": (acc + k / 1000, 0.1), "nmi": (acc, 0.1)} for k in (5, 10)}
            store.finish(cell, Result(scores, 0.1, [EVIL, "b"]))
    broken = Cell("clustering", "toy", "0", "wknn", label="WkNN")
    store.fail(broken, "ValueError: no")
    store.close()
    return folder


def invoke(*arguments):
    from typer.testing import CliRunner

    from semfs.cli import app

    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_command_writes_the_page_of_a_run(run):
    result = invoke(run)
    assert result.exit_code == 0, result.output
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    shown = "".join(page.texts)
    assert "SemFS wins." in shown
    assert "ValueError: no" in shown
    assert EVIL in shown
    assert len(page.csv_files()["scores.csv"]) == 1 + 12


def test_command_writes_csv_instead(run, tmp_path):
    result = invoke(run, "--csv", tmp_path / "rows.csv")
    assert result.exit_code == 0, result.output
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 12
    assert not (run / "report.html").exists()


def test_the_undamaged_rows_of_a_damaged_run_can_be_saved(run, tmp_path):
    store = Store(run)
    store._db.execute("UPDATE records SET value = '{}' WHERE rowid = 2")
    store.close()
    result = invoke(run)
    assert (result.exit_code, "is damaged" in result.output) == (2, True)
    result = invoke(run, "--csv", tmp_path / "rows.csv")
    assert result.exit_code == 0, result.output
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 10


def test_command_refuses_what_is_no_run(tmp_path):
    result = invoke(tmp_path / "nothing")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert not (tmp_path / "nothing").exists()
