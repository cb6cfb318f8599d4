"""Sphinx configuration."""

import sys
from pathlib import Path

import semfs

sys.path.insert(0, str(Path(__file__).parent))
from benchmark_tables import write_tables

write_tables()

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
]
autosummary_generate = True
numpydoc_show_class_members = False
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "generated/core.md", "generated/baselines.md"]
templates_path: list[str] = []
html_theme = "pydata_sphinx_theme"
html_title = "semfs"
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
nitpicky = False
