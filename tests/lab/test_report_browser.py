"""The report in a real browser: Chromium, from a file, with the network blocked."""

import time

import pytest
from browser import MARKS, open_chromium, resize, wait
from report_rows import EVIL, NASTY, all_rows, failures, info, row
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from semfs.lab.report import write_report
from semfs.lab.sections import Panel, Section

pytestmark = MARKS


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page with every kind of section and hostile names in all places."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    rows = all_rows([f"x{i}" for i in range(60)] + NASTY)
    rows += [row(EVIL, 0.7, dataset="cifar10", k=k, features=NASTY) for k in (5, 50)]
    dots = {EVIL: [(name, 1.0, 0.5, name) for name in NASTY]}
    sections = [
        Section("Why", ["Because."], None, [Panel("Genes", "g", "c", dots, kind="dots")])
    ]
    facts = info(["ant", "bee", *NASTY])
    return write_report(rows, path, failures=failures(), info=facts, sections=sections)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    driver = open_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium, report):
    """The page, freshly loaded and drawn, at desktop width in light colors."""
    resize(chromium, 1280)
    prefer(chromium, "light")
    chromium.get_log("browser")  # drop what earlier tests left
    chromium.get(report.as_uri())
    wait(chromium, "return document.documentElement.dataset.ready === 'yes'")
    return chromium


def prefer(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def curves_of(browser, plot=0):
    """Names of the curves that can be seen in a panel of curves, as plotly.js drew them."""
    script = """
        const has_curves = (box) => box.data.some(t => t.mode === 'lines+markers');
        const box = [...document.querySelectorAll('.plot')].filter(has_curves)[arguments[0]];
        const drawn = box.querySelectorAll('.scatterlayer .trace').length;
        const names = box._fullData.filter(t => t.visible === true).map(t => t.name);
        return [drawn, names];"""
    drawn, names = browser.execute_script(script, plot)
    assert drawn == len(names)
    return names


def checkbox(browser, name, number=0):
    labels = browser.find_elements(By.CSS_SELECTOR, "fieldset.methods label")
    return [label for label in labels if label.text == name][number].find_element(
        By.TAG_NAME, "input"
    )


def open_all(browser):
    for details in browser.find_elements(By.TAG_NAME, "details"):
        browser.execute_script("arguments[0].open = true", details)


def test_page_draws_all_figures_without_errors_or_requests(browser):
    boxes = browser.find_elements(By.CLASS_NAME, "plot")
    assert len(boxes) > 12
    assert all(box.find_elements(By.CLASS_NAME, "main-svg") for box in boxes)
    assert browser.get_log("browser") == []
    script = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert [
        n for n in browser.execute_script(script) if not n.startswith(("data:", "blob:"))
    ] == []


def test_toggling_a_method_hides_and_shows_its_curve_in_all_figures(browser):
    assert "MCFS" in curves_of(browser, 0)
    checkbox(browser, "MCFS").click()
    assert all("MCFS" not in curves_of(browser, plot) for plot in range(6))
    assert not checkbox(browser, "MCFS", number=1).is_selected()
    checkbox(browser, "MCFS", number=1).click()
    assert all("MCFS" in curves_of(browser, plot) for plot in range(6))


def test_eight_curves_are_drawn_at_first_and_all_after_a_click(browser):
    assert len(curves_of(browser)) <= 8
    assert "MCFS (oracle)" not in curves_of(browser)
    browser.find_element(By.CSS_SELECTOR, "button[data-all=show]").click()
    assert len(curves_of(browser)) == 12
    browser.find_element(By.CSS_SELECTOR, "button[data-all=hide]").click()
    assert curves_of(browser) == []


def test_wide_tables_say_so_on_a_phone(browser):
    hints = "return [...document.querySelectorAll('.hint')].filter(e => e.offsetHeight).length"
    resize(browser, 390)
    open_all(browser)
    wait(browser, hints)
    wide = "return [...document.querySelectorAll('.scroll')].filter("
    wide += "e => e.scrollWidth > e.clientWidth + 1).length"
    assert browser.execute_script(hints) == browser.execute_script(wide) > 0


def test_dots_are_apart_on_a_phone_and_the_page_says_that_it_scrolls(browser):
    resize(browser, 390)
    script = """
        const box = [...document.querySelectorAll('.scroll > .plot')].at(-1);
        const step = box._fullLayout.xaxis._length / (box._fullData[0].x.at(-1) + 2);
        return step > 12 && box.parentElement.previousElementSibling.matches('.hint.wide');"""
    assert wait(browser, script)


def test_the_printed_page_has_a_legend_and_cuts_nothing_off(browser):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    resize(browser, 700)
    swatches = browser.find_elements(By.CSS_SELECTOR, "fieldset.methods label svg")
    assert len([swatch for swatch in swatches if swatch.is_displayed()]) > 8
    assert not any(i.is_displayed() for i in browser.find_elements(By.TAG_NAME, "input"))
    open_all(browser)
    script = """
        return [...document.querySelectorAll('.plot, .methods, td')].filter(
            e => e.getBoundingClientRect().right > innerWidth).map(e => e.textContent);"""
    assert browser.execute_script(script) == []


def test_folds_are_open_on_paper_and_closed_again_afterwards(browser):
    closed = "return document.querySelectorAll('details:not([open])').length"
    before = browser.execute_script(closed)
    assert before > 3
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(closed) == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(closed) == before


def test_hostile_names_show_as_text(browser):
    open_all(browser)
    script = "return [...document.querySelectorAll('.chips bdi')].map(e => e.innerText)"
    chips = set(browser.execute_script(script))
    assert {EVIL, "<b>bold</b> & <i>co</i>", "a &lt; b", "{{ 7 * 7 }}"} <= chips
    assert checkbox(browser, EVIL).is_selected()
    script = "return [...document.querySelectorAll('.xtick text')].map(t => t.textContent)"
    ticks = set(browser.execute_script(script))
    assert {EVIL, "<b>bold</b> & <i>co</i>", "a &lt; b", "%{x} $x^2$"} <= ticks
    assert browser.execute_script("return document.querySelectorAll('script').length") == 5
    assert (
        browser.execute_script("return document.querySelector('main script, main img')") is None
    )


def test_hovering_shows_the_name_as_text(browser):
    script = """
        const box = [...document.querySelectorAll('.plot')].find(
            b => b._fullData.some(t => t.name.includes('alert')));
        box.scrollIntoView({block: 'center'});
        const trace = box._fullData.findIndex(t => t.name.includes('alert'));
        Plotly.Fx.hover(box, [{curveNumber: trace, pointNumber: 0}]);
        return box;"""
    box = browser.execute_script(script)
    time.sleep(0.3)
    text = "".join(e.text for e in box.find_elements(By.CSS_SELECTOR, ".hovertext"))
    assert EVIL in text
    assert "ACC: 0.700" in text


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_page_does_not_scroll_sideways(browser, width):
    resize(browser, width)
    open_all(browser)
    time.sleep(0.5)
    script = (
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    found, available = browser.execute_script(script)
    assert found == available <= width
    wait(
        browser,
        "return [...document.querySelectorAll('.panels > div > .plot .main-svg')].every("
        "s => s.getBoundingClientRect().right <= innerWidth)",
    )


def test_figures_follow_the_colour_scheme(browser):
    script = "return getComputedStyle(document.querySelector('.xtick text')).fill"
    assert browser.execute_script(script) == "rgb(27, 31, 36)"
    prefer(browser, "dark")
    wait(browser, script + " === 'rgb(231, 234, 238)'")


def test_csv_can_be_downloaded(browser, tmp_path):
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    buttons = browser.find_elements(By.CSS_SELECTOR, "button[data-csv]")
    next(b for b in buttons if b.text.startswith("All results")).click()
    path = tmp_path / "scores.csv"
    WebDriverWait(browser, 10).until(lambda _: path.exists() and path.stat().st_size)
    text = path.read_text(encoding="utf-8-sig")
    assert text.startswith("experiment,dataset,split")
    assert text.count("\n") == 1 + len(all_rows()) + 2


def test_injected_scripts_and_requests_are_blocked(browser):
    """Even if some text slipped through, the page's policy would not run it."""
    script = """
        const s = document.createElement('script');
        s.textContent = 'window.injected = true';
        document.body.append(s);
        const image = '<img src=x onerror="window.injected = true">';
        document.body.insertAdjacentHTML('beforeend', image);"""
    browser.execute_script(script)
    time.sleep(0.3)
    assert browser.execute_script("return window.injected") is None
