"""Experiments: compare selectors on unseen classes, store the results, report them.

`semfs.lab.evaluate` compares selectors on one data set, `semfs.lab.paper` runs the paper's
experiments, `semfs.lab.report` makes a page of either. Below them, from the bottom up:

- ``store``: a `Job` is one fit, a `Result` what it gives, a `Store` the results of a run
- ``parallel``: `run` computes jobs in worker processes and can be continued
- ``data``, ``restricted``, ``splits``: data sets by name, without what no method may use, and
  their splits into seen and unseen classes
- ``methods``, ``hvg``, ``scoring``: selectors by name, and the scores of their features
- ``plan``, ``runner``: the jobs of an experiment, and what computes one of them
- ``comparison``, ``sections``, ``report``: from rows to numbers, to figures, to a page
"""

from semfs.lab.parallel import Summary, run, versions
from semfs.lab.store import Job, Result, Store

__all__ = ["Job", "Result", "Store", "Summary", "run", "versions"]
