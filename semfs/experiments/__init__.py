"""Experiments: a grid of cells, run in parallel, each stored as it ends, resumable."""

from semfs.experiments.cells import Cell
from semfs.experiments.runner import Display, Summary, merge, run, versions
from semfs.experiments.store import Store

__all__ = ["Cell", "Display", "Store", "Summary", "merge", "run", "versions"]
