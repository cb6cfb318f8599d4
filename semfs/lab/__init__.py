"""The paper, run and reported: a grid of cells, each stored as it ends, resumable."""

from semfs.lab.runner import Summary, run, versions
from semfs.lab.store import Cell, Result, Store

__all__ = ["Cell", "Result", "Store", "Summary", "run", "versions"]
