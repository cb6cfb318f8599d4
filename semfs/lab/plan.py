"""From experiments, data sets and methods to the list of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from semfs.lab.compared_method import Method, Size
from semfs.lab.runner import SETTINGS, Runner
from semfs.lab.store import Job

#: Ending of the labels whose jobs are the points of a grid.
ORACLE = " (oracle)"

#: Settings that the label of a method names, as in "LASSO (attributes)".
LABEL_SETTINGS = ("targets", "preprocessing")

#: Random draws of the samples of a labeled share; fewer for a quick trial.
DRAWS = 5
FAST_DRAWS = 2

#: Classes of the synthetic data of timings.
SYNTHETIC_CLASSES = 20

#: One way to run a method: settings of the job and parameters of the selector.
Setting: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper: an entry of ``paper.toml``, which says what the fields mean."""

    name: str
    methods: Sequence[str]
    finding: str = ""
    settings: Sequence[Setting] = ({},)
    quick: Sequence[Setting] = ()
    oracle: bool = False
    draws: int = DRAWS
    needs_objective: bool = False

    def settings_for(self, fast: bool) -> Sequence[Setting]:
        """Return the settings, or those of a quick trial."""
        if fast and self.quick:
            return self.quick
        return self.settings


class _Place(NamedTuple):
    """A data set and split with the setting that is run there."""

    dataset: str
    split: str
    size: Size
    setting: Setting


def plan(
    experiments: Iterable[Experiment],
    runner: Runner,
    methods: Sequence[str] = (),
) -> tuple[list[Job], list[str]]:
    """Return the jobs of the experiments, and sentences about methods that are left out.

    ``methods`` replace those of the experiments. Left out are methods that lack a parameter
    which the experiment varies or the objective that it shows, and methods that need dense
    samples where there is not enough memory. Grid points come last, so that a run which is
    stopped early has the comparison at default parameters.
    """
    fast = runner.protocol.fast
    jobs: list[Job] = []
    grid_jobs: list[Job] = []
    notes: list[str] = []
    for experiment in experiments:
        settings = experiment.settings_for(fast)
        for name in methods or experiment.methods:
            method = runner.method(name)
            obstacle = _obstacle(method, experiment, settings)
            if obstacle:
                notes.append(obstacle)
                continue
            for place in _places(settings, runner):
                if not method.fits_in_memory(place.size):
                    notes.append(
                        f"{method.label} was left out, because it needs "
                        f"dense samples and {place.dataset} does not fit "
                        "into memory in dense form."
                    )
                    continue
                jobs += _jobs_at(place, method, experiment, runner)
                if experiment.oracle:
                    grid_jobs += _grid_jobs_at(place, method, experiment, runner)
    # Synthetic data are not in it, and are sorted as the first split.
    order = {place: i for i, place in enumerate(runner.sizes)}
    for part in (jobs, grid_jobs):
        # Jobs of one split follow each other: workers keep its samples in memory.
        part.sort(key=lambda job: order.get((job.dataset, job.split), 0))
    return jobs + grid_jobs, list(dict.fromkeys(notes))


def _obstacle(
    method: Method,
    experiment: Experiment,
    settings: Sequence[Setting],
) -> str:
    """Return why a method cannot take part in an experiment, or an empty text."""
    # Settings change the samples or targets and concern no parameter of the selector.
    varied = {name for setting in settings for name in setting if name not in SETTINGS}
    if not method.takes(varied):
        return (
            f"{method.label} was left out, because it has no parameter "
            f"that {experiment.name} varies."
        )
    if experiment.needs_objective and method.has_objective is False:
        return (
            f"{method.label} was left out, because {experiment.name} "
            "shows the objective and this method does not record it."
        )
    return ""


def _places(
    settings: Iterable[Setting],
    runner: Runner,
) -> Iterator[_Place]:
    """Each setting with the data sets and splits where it is run."""
    for setting in settings:
        if "n" in setting:
            size = Size(setting["n"], SYNTHETIC_CLASSES, runner.protocol.fast)
            name = f"n={setting['n']}, d={setting['d']}"
            yield _Place("synthetic", name, size, setting)
            continue
        for (dataset, split), size in runner.sizes.items():
            yield _Place(dataset, split, size, setting)


def _jobs_at(
    place: _Place, method: Method, experiment: Experiment, runner: Runner
) -> list[Job]:
    """Return the jobs of a method at one place: one, or one for each draw of the samples."""
    params = method.params(place.size)
    setting = {}
    for name, value in place.setting.items():
        if name in SETTINGS:
            setting[name] = value
        else:
            params[name] = value
    label = method.label
    for name in LABEL_SETTINGS:
        if name in setting:
            label = f"{label} ({setting[name]})"
    # All samples can be drawn in one way only.
    n_draws = 1
    if setting.get("ratio", 1.0) < 1.0:
        n_draws = FAST_DRAWS if runner.protocol.fast else experiment.draws
    seed = runner.protocol.seed
    return [
        Job(
            experiment.name,
            place.dataset,
            place.split,
            method.name,
            params=params,
            setting=setting,
            seed=seed + draw,
            label=label,
        )
        for draw in range(n_draws)
    ]


def _grid_jobs_at(
    place: _Place, method: Method, experiment: Experiment, runner: Runner
) -> list[Job]:
    """Return the jobs of the grid points of a method at one place."""
    params = method.params(place.size)
    return [
        Job(
            experiment.name,
            place.dataset,
            place.split,
            method.name,
            params=params | point,
            seed=runner.protocol.seed,
            label=method.label + ORACLE,
        )
        for point in method.grid(place.size)
    ]
