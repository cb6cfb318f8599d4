"""The built site in a real browser: search works, pages fit a phone and are accessible."""

from importlib.resources import files
from pathlib import Path

import pytest
from browser import MARKS, open_chromium, resize, wait

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
pytestmark = [
    *MARKS,
    pytest.mark.skipif(not SITE.exists(), reason="needs the built site: make docs"),
]
PAGES = sorted(
    path.relative_to(SITE).with_suffix("").as_posix()
    for path in SITE.rglob("*.html")
    if "_static" not in path.parts
)
#: A phone and a desktop: both layouts, and the contrast of both themes.
PHONE = (390, "dark")
DESKTOP = (1280, "light")
#: The pages of the API have one template: they are shown once, the others in both windows.
VISITS = [
    (page, *window)
    for page in PAGES
    for window in (PHONE, DESKTOP)
    if window == PHONE or not page.startswith("generated/")
]
#: Faults that keep somebody from reading or using a page.
GRAVE = ("serious", "critical")
CHECK = """
const done = arguments[arguments.length - 1];
const rules = {runOnly: ["wcag2a", "wcag2aa"], resultTypes: ["violations"]};
// The drawing of a pipeline is scikit-learn's own.
axe.run({exclude: [[".sk-top-container"]]}, rules).then(found => done(
  found.violations.map(v => [v.impact, v.id, v.nodes.map(node => node.html.slice(0, 200))])
));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = open_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.mark.parametrize(
    ("words", "page"),
    [("gamma", "choosing"), ("save", "saving"), ("SemFS", "semfs.SemFS"), ("zarr", "big-data")],
)
def test_the_search_finds_the_page(words, page, browser):
    resize(browser, 1280)
    browser.get(f"{(SITE / 'search.html').as_uri()}?q={words}")
    links = "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
    assert wait(browser, f"{links}.some(link => link.includes(arguments[0]))", page)
    browser.get(f"{(SITE / 'search.html').as_uri()}?q=qxzvw")
    wait(browser, "return document.querySelector('#search-results .search-summary')")
    assert browser.execute_script(links) == []


def show(browser, page, width, theme):
    resize(browser, width)
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get((SITE / f"{page}.html").as_uri())


@pytest.mark.parametrize(("page", "width", "theme"), VISITS)
def test_a_page_fits_its_window_shows_its_pictures_and_is_accessible(
    page, width, theme, browser
):
    show(browser, page, width, theme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_script("for (const image of document.images) image.loading = 'eager'")
    assert wait(browser, "return [...document.images].every(image => image.complete)")
    broken = "return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
    assert browser.execute_script(broken) == []
    without_text = (
        "return [...document.images].filter(i => !i.hasAttribute('alt')).map(i => i.src)"
    )
    assert browser.execute_script(without_text) == []
    assert grave_faults(browser) == []


def grave_faults(browser):
    """What axe-core finds on the page that is shown: impact, rule and places."""
    pytest.importorskip("axe_core_python", reason="needs axe-core-python")
    axe = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    browser.execute_script(axe)
    return [fault for fault in browser.execute_async_script(CHECK) if fault[0] in GRAVE]


def test_faults_of_accessibility_are_found(browser, tmp_path):
    page = tmp_path / "fault.html"
    page.write_text("<html lang='en'><title>t</title><img src='x.png'><p>text</p></html>")
    browser.get(page.as_uri())
    assert [rule for _, rule, _ in grave_faults(browser)] == ["image-alt"]


def test_formulas_are_drawn_without_a_network(browser):
    browser.get((SITE / "method.html").as_uri())
    assert wait(browser, "return document.querySelectorAll('mjx-container').length > 20")
    assert browser.find_elements("css selector", "mjx-merror") == []
