"""The built site in a real browser: search works, nothing is wider than a phone."""

import shutil
from pathlib import Path

import pytest

try:
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    pytest.skip("needs selenium", allow_module_level=True)

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.skipif(not SITE.exists(), reason="needs the built site: make docs"),
]
PAGES = ["index", "get-started", "problem", "attributes", "choosing", "method", "saving"] + [
    "explaining", "inside", "reproducing", "benchmarks", "baselines", "data", "big-data", "cli"
] + ["api", "generated/semfs.SemFS", "gallery/index", "gallery/plot_1_gene_panel"]  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument("--allow-file-access-from-files")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def resize(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize(
    ("words", "page"),
    [("gamma", "choosing"), ("save", "saving"), ("SemFS", "semfs.SemFS"), ("zarr", "big-data")],
)
def test_the_search_finds_the_page(words, page, browser):
    resize(browser, 1280)
    browser.get(f"{(SITE / 'search.html').as_uri()}?q={words}")
    links = "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
    WebDriverWait(browser, 30).until(
        lambda b: any(page in link for link in b.execute_script(links))
    )


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window_and_all_pictures_load(page, width, browser):
    resize(browser, width)
    browser.get((SITE / f"{page}.html").as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    broken = "return [...document.images].filter(i => i.complete && !i.naturalWidth).length"
    assert browser.execute_script(broken) == 0


def test_formulas_are_drawn_without_a_network(browser):
    browser.get((SITE / "method.html").as_uri())
    drawn = "return document.querySelectorAll('mjx-container').length"
    WebDriverWait(browser, 30).until(lambda b: b.execute_script(drawn) > 20)
