"""Sphinx configuration."""

import os
import sys
import tomllib
from pathlib import Path

import semfs

sys.path.insert(0, str(Path(__file__).parent))
import concept
import demo_picture
import evidence
import reliability
import reproduced
from benchmark_tables import write_tables

write_tables()
evidence.write_picture()
reliability.write_picture()
concept.write_picture()
demo_picture.write_picture()
reproduced.write_pages()

project = "semfs"
author = "The semfs developers"
copyright = "2026, the semfs developers"
version = release = semfs.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "examples", "**sg_execution_times.rst"]
nitpicky = True  # a reference to something that does not exist is an error
# … but `this` in a docstring is a link only if it can be one
nitpick_ignore_regex = [("py:obj", ".*")]

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings have types, with shapes
default_role = "autolink"  # `SemFS` links to it, `gamma` does not have to
numpydoc_show_class_members = False
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def scrape_figures(block: tuple, block_vars: dict, gallery_conf: dict) -> str:
    """Show figures that were made without pyplot, as those of semfs are."""
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    shown = []
    titles = []
    for name, value in list(block_vars["example_globals"].items()):
        if isinstance(value, Figure) and not hasattr(value, "number"):
            path = next(block_vars["image_path_iterator"])
            value.savefig(path, dpi=100, bbox_inches="tight")
            shown.append(path)
            titles.append(value.get_label() or value.axes[0].get_ylabel())
            del block_vars["example_globals"][name]
    return figure_rst(shown, gallery_conf["src_dir"], ", ".join(titles))


sphinx_gallery_conf = {
    "image_scrapers": ("matplotlib", scrape_figures),
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "download_all_examples": False,
    "copyfile_regex": r".*\.rst",
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "doc_module": ("semfs",),  # "Examples using …" on the pages of the API
    "backreferences_dir": "generated/backreferences",
}
os.environ.setdefault("OMP_NUM_THREADS", "1")
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions

# Addresses of the project are in pyproject.toml alone; there are none before it is public.
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
URLS = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"].get("urls", {})

LOGO = "_static/logo.svg"
html_theme = "pydata_sphinx_theme"
html_title = "semfs"
html_static_path = ["_static"]
html_favicon = LOGO
html_css_files = ["semfs.css"]
html_js_files = ["semfs.js"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_start": ["navbar-logo", "release"],
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["links"],
    "external_links": [{"name": name, "url": url} for name, url in URLS.items()],
    "logo": {"text": "semfs", "image_light": LOGO, "image_dark": LOGO},
}
html_sidebars = {"index": [], "gallery/index": []}
