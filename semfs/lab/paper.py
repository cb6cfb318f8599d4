"""The paper's experiments, as defined in ``paper.toml``.

`reproduce` runs them, stores results in a run directory, and continues a run that was stopped.
Baselines use class labels. They are run with their default parameters and, labeled "(oracle)",
with the best point of the paper's grid for each k and measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from semfs._typing import PathLike
from semfs.lab.data import Loader, find_data, load, starting_with
from semfs.lab.evaluate import HALVED
from semfs.lab.measures import check_metrics
from semfs.lab.methods import find_method
from semfs.lab.parallel import Summary, run, versions
from semfs.lab.plan import Experiment, plan
from semfs.lab.runner import KS, Protocol, make_runner
from semfs.lab.sections import PAPER
from semfs.lab.sources import forget_outdated
from semfs.lab.splits import Splits, class_splits
from semfs.lab.store import Job, Store

EXPERIMENTS = {name: Experiment(name, **entry) for name, entry in PAPER["experiments"].items()}

#: Numbers of features and K-means runs of a quick trial (`--fast`).
FAST_KS = (5, 20, 50)
FAST_REPEATS = 5
#: K-means runs of a score.
FULL_REPEATS = 20


@dataclass(frozen=True)
class Study:
    """Choice of the paper's experiments to run, with their data and methods.

    Parameters
    ----------
    experiments : sequence of str or Experiment
        Names in `EXPERIMENTS`, "all", or modified copies of these experiments.
    data : path, optional
        Folder of data sets. A data set is an ``.npz`` file with the arrays X (samples ×
        features), y (0-based class id of each sample) and A (classes × attributes), or a folder
        in the format of the xlsa17 benchmark. By default, the bundled sample is used.
    datasets, methods : sequence of str, optional
        Beginnings of the names of data sets, and names of methods, to which the run is
        restricted.
    splits : int, optional
        Number of class splits per data set. If a data set names its unseen classes, this split
        is the first, and all others are random. The splits of CIFAR10 are pairs of seen
        classes. By default, the split named by the data set is used, or all 45 pairs for
        CIFAR10, or 5 random splits for other data sets.
    fast : bool, default=False
        Whether to use fewer values of k, K-means runs, grid points and splits.
    defaults_only : bool, default=False
        Whether to leave out the points of the paper's grids.
    seed : int, default=0
        Seed of all random draws.
    ks : tuple of int, optional
        Numbers of selected features. By default, the values of the paper are used, or fewer
        values if ``fast`` is true.
    metrics : sequence of str, optional
        Further measures, each given as ``module:function`` (see `semfs.lab.measures`).
    """

    experiments: Sequence[str | Experiment]
    data: PathLike | None = None
    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    splits: int | None = None
    fast: bool = False
    defaults_only: bool = False
    seed: int = 0
    ks: tuple[int, ...] = ()
    metrics: Sequence[str] = ()

    def protocol(self) -> Protocol:
        """Return the settings that all jobs have in common."""
        unlabeled = any(find_method(name).uses_unlabeled for name in self.methods)
        check_metrics(self.metrics)
        return Protocol(
            self.ks or (FAST_KS if self.fast else KS),
            FAST_REPEATS if self.fast else FULL_REPEATS,
            self.seed,
            self.fast,
            unlabeled,
            tuple(self.metrics),
        )


def find_experiments(names: Iterable[str | Experiment]) -> list[Experiment]:
    """Return the experiments with the given names; "all" stands for all experiments."""
    found: dict[str, Experiment] = {}
    for name in names:
        if isinstance(name, Experiment):
            found[name.name] = name
        elif name == "all":
            found |= EXPERIMENTS
        elif name in EXPERIMENTS:
            found[name] = EXPERIMENTS[name]
        else:
            known = ", ".join(EXPERIMENTS)
            raise ValueError(f"There is no experiment {name!r}. Known: {known}, all.")
    return list(found.values())


def reproduce(
    study: Study,
    run_folder: PathLike,
    *,
    n_jobs: int | None = None,
    command: str = "",
    verbose: bool = False,
    is_known: Callable[[Job], bool] | None = None,
) -> Summary:
    """Run experiments of the paper, or continue an earlier run in the same directory.

    Parameters
    ----------
    study : Study
        The experiments to run, with their data and methods.
    run_folder : path
        Directory of the run. Results are stored in its ``results.sqlite``.
    n_jobs, verbose
        See `semfs.lab.run`.
    command : str, optional
        The command to show in the report.
    is_known : callable, optional
        Function of a job. Jobs for which it returns true are skipped because their results are
        already known.
    """
    if Path(run_folder).is_file():
        raise ValueError(f"{run_folder} is a file, but a folder for the results was expected.")
    experiments = find_experiments(study.experiments)
    if study.defaults_only:
        experiments = [replace(experiment, oracle=False) for experiment in experiments]
    protocol = study.protocol()  # also checks the names of the methods
    # Timings use synthetic data and need no data set.
    is_synthetic = all("n" in experiment.settings[0] for experiment in experiments)
    loaders = {} if is_synthetic else find_data(study.data, study.datasets)
    with closing(Store(run_folder)) as store:
        splits, unreadable = _readable(loaders, study)
        loaders = {name: loaders[name] for name in splits}
        # Refuses data or a protocol that differ from those of earlier jobs of this run.
        runner = make_runner(store, loaders, splits, protocol)
        store.pin(
            "protocol",
            protocol.as_stored(),
            "Use another --out, or the same options as before (--fast, --seed, -k, --metric).",
        )
        jobs, left_out = plan(experiments, runner, study.methods)
        if not jobs:
            raise ValueError(_nothing_to_run(experiments, left_out))
        if is_known is not None:
            jobs = [job for job in jobs if not is_known(job)]
        notes = _notes(study, loaders) + left_out
        notes += [f"{name} was left out: {error}" for name, error in unreadable.items()]
        changed = forget_outdated(store, jobs)
        _store_facts(store, command, notes)
        failures = [
            (Job(experiments[0].name, name, "all splits", "reading the data"), error)
            for name, error in unreadable.items()
        ]
        summary = Summary(failures=failures, notes=notes + changed)
        # Timings are taken one at a time, after everything else.
        compared = [job for job in jobs if not _is_timed(job)]
        timed = [job for job in jobs if _is_timed(job)]
        summary += run(
            compared,
            store,
            runner.compute,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        summary += run(
            timed,
            store,
            runner.compute,
            n_jobs=1,
            verbose=verbose,
        )
        return summary


def _readable(
    loaders: Mapping[str, Loader], study: Study
) -> tuple[dict[str, Splits], dict[str, str]]:
    """Class splits of the data sets that can be read, and errors of those that cannot.

    One bad file does not stop a run of many data sets; if none can be read, that is an error.
    """
    splits: dict[str, Splits] = {}
    unreadable: dict[str, str] = {}
    for name, loader in loaders.items():
        try:
            splits[name] = class_splits(load(loader), study.splits, study.seed, fast=study.fast)
        except (ValueError, OSError) as error:
            if len(loaders) == 1:
                raise
            unreadable[name] = str(error)
    if unreadable and not splits:
        raise ValueError(f"No data set could be read. {' '.join(unreadable.values())}")
    return splits, unreadable


def _is_timed(job: Job) -> bool:
    return "n" in job.setting


def _nothing_to_run(
    experiments: Sequence[Experiment],
    left_out: Sequence[str],
) -> str:
    """Return the error of methods that are all left out."""
    defaults = dict.fromkeys(name for entry in experiments for name in entry.methods)
    return (
        "None of the given methods can run this experiment: "
        f"{' '.join(left_out)} Omit --method to use its defaults: "
        f"{', '.join(defaults)}."
    )


def _notes(study: Study, loaders: Mapping[str, Loader]) -> list[str]:
    """Remarks for the top of the report."""
    notes = []
    missing = [name for name in PAPER["datasets"] if not starting_with(loaders, name)]
    # Who runs the experiments on own data knows that these are not those of the paper.
    if loaders and 0 < len(missing) < len(PAPER["datasets"]):
        notes.append(f"Data sets of the paper that are absent: {', '.join(missing)}.")
    methods = [find_method(name) for name in study.methods]
    users = [method.label for method in methods if method.uses_unlabeled]
    if users:
        notes.append(HALVED.format(", ".join(users)))
    return notes


def _store_facts(store: Store, command: str, notes: list[str]) -> None:
    """Store what the report says of the run."""
    # A continued run keeps the time at which it was started first.
    now = datetime.now(UTC).isoformat(timespec="seconds")
    store.set_info("started", store.info().get("started", now))
    store.set_info("command", command)
    store.set_info("versions", versions())
    store.set_info("notes", notes)
