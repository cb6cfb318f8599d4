"""Experiments: a grid of cells, run in parallel, each stored as it ends, resumable."""

from semfs.lab.cells import Cell
from semfs.lab.runner import Display, Summary, merge, run, versions
from semfs.lab.store import Store

__all__ = ["Cell", "Display", "Store", "Summary", "merge", "run", "versions"]
