"""Experiments: compare selectors on unseen classes, store the results, and report them.

`semfs.lab.evaluate` compares selectors on one data set, `semfs.lab.paper` runs the paper's
experiments, and `semfs.lab.report` makes a page of the results. The modules below these, from
the bottom up:

- ``store``: a `Job` is one fit, a `Result` has its scores, and a `Store` all results of a run
- ``parallel``: `run` computes jobs in worker processes, and continues interrupted runs
- ``data``, ``restricted``, ``splits``: data sets by name, without excluded features and
  classes, and their splits into seen and unseen classes
- ``methods``, ``hvg``, ``scoring``: selectors by name, and the scores of their features
- ``plan``, ``runner``: the jobs of an experiment, and the computation of one job
- ``comparison``, ``sections``, ``report``: leads and standings, the sections of a page, the
  page
"""

from semfs.lab.parallel import Summary, run, versions
from semfs.lab.store import Job, Result, Store

__all__ = ["Job", "Result", "Store", "Summary", "run", "versions"]
