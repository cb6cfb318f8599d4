"""The built site in a real browser: search works, nothing is wider than a phone."""

from pathlib import Path

import pytest
from browser import MARKS, open_chromium, resize, wait

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
pytestmark = [
    *MARKS,
    pytest.mark.skipif(not SITE.exists(), reason="needs the built site: make docs"),
]
PAGES = [
    *(
        "index",
        "get-started",
        "expect",
        "problem",
        "attributes",
        "knowledge",
        "choosing",
        "method",
    ),
    *("saving", "explaining", "inside", "reproducing", "benchmarks", "baselines", "data"),
    *(
        "big-data",
        "dask",
        "cli",
        "api",
        "generated/semfs.SemFS",
        "formats",
        "faq",
        "glossary",
        "how-we-compare",
    ),
    *("gallery/index", "gallery/plot_0_lung_cells"),
]


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


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window_and_all_pictures_load(page, width, browser):
    resize(browser, width)
    browser.get((SITE / f"{page}.html").as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_script("for (const image of document.images) image.loading = 'eager'")
    assert wait(browser, "return [...document.images].every(image => image.complete)")
    broken = "return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
    assert browser.execute_script(broken) == []


def test_formulas_are_drawn_without_a_network(browser):
    browser.get((SITE / "method.html").as_uri())
    assert wait(browser, "return document.querySelectorAll('mjx-container').length > 20")
    assert browser.find_elements("css selector", "mjx-merror") == []
