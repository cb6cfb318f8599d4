"""Experiments: compare selectors on unseen classes, store the results, and report them.

`semfs.lab.evaluate` compares selectors on one data set, `semfs.lab.paper` runs the paper's
experiments, and `semfs.lab.report` creates a page of the results. They use the following
modules, listed from the bottom up:

- ``store``: a `Job` is one fit, a `Result` holds its scores, and a `Store` holds all results;
- ``parallel``: `run` computes jobs in worker processes and continues interrupted runs;
- ``data``, ``restricted``, ``splits``: data sets by name, the exclusion of features and
  classes, and splits into seen and unseen classes;
- ``methods``, ``hvg``, ``scoring``: selectors by name, and the scores of their features;
- ``plan``, ``runner``: the jobs of an experiment, and the computation of a job;
- ``comparison``, ``sections``, ``report``: leads and standings, sections, and pages.
"""

from semfs.lab.parallel import Summary, run, versions
from semfs.lab.store import Job, Result, Store

__all__ = ["Job", "Result", "Store", "Summary", "run", "versions"]
