"""The paper's experiments, each as one entry: its methods, what it varies, what to check.

`plan` turns entries, data sets and methods into cells; a `Study` computes one of them;
`reproduce` and `evaluate` are what the commands call.

How numbers come about
----------------------
- One fit on the seen classes gives a ranking, which serves all numbers of features k; only
  L20ALM, whose solutions are not nested, is solved again for each k within its cell, each
  from the one before. MCFS, whose scores depend on k, is run at the largest one.
- Scores are those of single K-means runs on the unseen classes, averaged; all methods and
  all k start from the same rows (`semfs.evaluation.starting_rows`). Random draws another
  subset for each of these runs.
- Baselines use class labels, at their defaults and, labelled "(oracle)", at the best point
  of the paper's grid for every k and measure separately. Unsupervised ones are told the
  number of seen classes.
- Class splits are those of `semfs.lab.sources.class_splits`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from semfs.datasets import ZeroShotDataset
from semfs.lab import Display, Summary, run, versions
from semfs.lab.cells import Cell, Result
from semfs.lab.measures import Case, convergence, scaling_data, scores, with_ratio
from semfs.lab.methods import Method, Size, find_method, rank
from semfs.lab.sources import (
    Source,
    class_splits,
    find_source,
    find_sources,
    fingerprint,
    split_facts,
)
from semfs.lab.store import ORACLE, Store

__all__ = ["EXPERIMENTS", "Experiment", "Protocol", "Study", "evaluate", "plan", "reproduce"]

KS = tuple(range(5, 55, 5))
FAST_SPLITS = 2


# ---- the entries ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """One way to run a method: other parameters, a setting, a seed, a remark in its label."""

    params: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    remark: str = ""


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper: what is compared, over what, and the finding to check.

    ``variants(fast)`` are the ways to run each method; ``oracle`` adds the points of each
    method's grid; ``timed`` experiments run one cell at a time.
    """

    name: str
    finding: str
    methods: tuple[str, ...]
    variants: Callable[[bool], list[Variant]] = field(default=lambda fast: [Variant()])
    oracle: bool = False
    timed: bool = False


def _ratios(fast: bool) -> list[Variant]:
    ratios = (0.1, 0.5, 1.0) if fast else tuple(round(0.1 * i, 1) for i in range(1, 11))
    draws = {r: 1 if r == 1.0 else 2 if fast else 5 for r in ratios}  # all rows: one draw
    return [Variant(setting={"ratio": r}, seed=s) for r in ratios for s in range(draws[r])]


def _targets(fast: bool) -> list[Variant]:
    return [Variant(setting={"targets": t}, remark=f" ({t})") for t in ("attributes", "labels")]


def _alphas(fast: bool) -> list[Variant]:
    exponents = (-3, 0, 3) if fast else range(-3, 4)
    return [Variant({"alpha": float(10.0**e)}) for e in exponents]


def _long_runs(fast: bool) -> list[Variant]:
    return [Variant({"max_iter": 10 if fast else 30, "tol": 0.0})]


def _sizes(fast: bool) -> list[Variant]:
    ns, ds, n, d = (
        ((300, 600), (100, 200), 300, 200)
        if fast
        else ((1000, 3000, 10_000, 30_000), (300, 1000, 3000), 3000, 1000)
    )
    sizes = dict.fromkeys([*((i, d) for i in ns), *((n, j) for j in ds)])
    return [Variant(setting={"n": i, "d": j}) for i, j in sizes]


BASELINES = ("random", "variance", "anova", "mcfs", "fsasl", "lasso", "l20alm", "wknn")
OURS = ("semfs", "semfs-c", "semfs-labels", "semfs-published")

EXPERIMENTS: dict[str, Experiment] = {
    entry.name: entry
    for entry in [
        Experiment(
            "clustering",
            "SemFS and SemFS/c always beat all others clearly, in ACC and NMI.",
            (*BASELINES, *OURS),
            oracle=True,
        ),
        Experiment(
            "labeled-ratio",
            "A tenth of the labels is enough to generalise; more labels help more.",
            ("anova", "lasso", *OURS),
            _ratios,
        ),
        Experiment(
            "attributes-vs-labels",
            "Attributes as targets generalise far better than class labels.",
            ("lasso", "l20alm", "wknn", "semfs", "semfs-c"),
            _targets,
        ),
        Experiment(
            "alpha",
            "Results are almost the same for alpha from 1e-3 to 1.",
            ("semfs", "semfs-published"),
            _alphas,
        ),
        Experiment(
            "convergence",
            "The objective falls monotonically (Proposition 1).",
            ("semfs-published", "semfs-alternating"),
            _long_runs,
        ),
        Experiment(
            "scaling",
            "Time grows linearly with the number of samples.",
            ("variance", "anova", "mcfs", "lasso", "l20alm", "semfs", "semfs-published"),
            _sizes,
            timed=True,
        ),
    ]
}


def find_experiments(names: Iterable[str]) -> list[Experiment]:
    """Return the entries by name; "all" is all of them.

    Examples
    --------
    >>> [entry.name for entry in find_experiments(["alpha", "scaling"])]
    ['alpha', 'scaling']
    """
    names = list(dict.fromkeys(names))
    if "all" in names:
        return list(EXPERIMENTS.values())
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"There is no experiment {unknown[0]!r}. Known: {known}, all.")
    return [EXPERIMENTS[name] for name in names]


# ---- one cell -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Protocol:
    """What all cells of a run have in common."""

    ks: tuple[int, ...] = KS
    n_repeats: int = 20
    seed: int = 0
    fast: bool = False

    @classmethod
    def quick(cls, seed: int = 0) -> Protocol:
        """For demonstrations and tests: three k, five K-means runs, small grids."""
        return cls((5, 20, 50), 5, seed, True)


@dataclass(frozen=True)
class Study:
    """Computes cells: data sets, their class splits and the protocol. Picklable."""

    sources: Mapping[str, Source]
    splits: Mapping[str, Mapping[str, list]]
    protocol: Protocol

    def load(self, name: str) -> ZeroShotDataset | None:
        """Return a data set by name; the synthetic data of `scaling` need none."""
        return self.sources[name].load() if name in self.sources else None

    def __call__(self, cell: Cell, data: ZeroShotDataset | None = None) -> Result:
        """Compute one cell, with the data given or read."""
        method, ks = find_method(cell.method), self.protocol.ks
        if "n" in cell.setting:
            case = scaling_data(cell.setting["n"], cell.setting["d"], cell.seed)
            ks = (min(max(ks), case.n_features),)
        else:
            data = self.load(cell.dataset) if data is None else data
            assert data is not None
            unseen = tuple(self.splits[cell.dataset][cell.split])
            case = with_ratio(_case(data, unseen), cell.setting.get("ratio", 1.0), cell.seed)
            ks = tuple(k for k in ks if k <= case.n_features)
            if not ks:
                raise ValueError(
                    f"{cell.dataset} has only {case.n_features} features. Ask for fewer."
                )
        return self._measure(cell, method, case, ks)

    def _measure(self, cell: Cell, method: Method, case: Case, ks: tuple[int, ...]) -> Result:
        targets = cell.setting.get("targets", "attributes" if method.attributes else "labels")
        attributes = case.attributes if targets == "attributes" else None
        found, seconds = case.timed(
            lambda moments: rank(
                method,
                cell.params,
                case.X,
                case.y,
                attributes,
                ks,
                seed=self.protocol.seed,
                moments=moments,
            ),
            with_moments=cell.method.startswith("semfs"),
        )
        names = {k: case.names(found.features(k)) for k in ks}
        extra: dict[str, Any] = {"features_by_k": names} if found.by_k else {}
        if cell.experiment == "convergence":
            extra |= convergence(found.selector, case, attributes)
        draws = self.protocol.n_repeats if cell.method == "random" else None
        values = scores(case, found, ks, self.protocol.n_repeats, self.protocol.seed, draws)
        return Result(values, seconds, names[max(ks)], extra)


@lru_cache(maxsize=2)
def _case(data: ZeroShotDataset, unseen: tuple) -> Case:
    """Seen and unseen rows of a split; kept, with their moments, for the next cells."""
    return Case.of(data.with_unseen(list(unseen)))


# ---- the plan -------------------------------------------------------------------------------


def plan(
    experiments: Iterable[Experiment],
    study: Study,
    sizes: Mapping[tuple[str, str], Size],
    methods: Sequence[str] = (),
) -> list[Cell]:
    """Return the cells of the experiments: data set by data set, split by split; grids last.

    Parameters
    ----------
    experiments : iterable of Experiment
    study : Study
    sizes : mapping from (data set, split) to Size
    methods : sequence of str, optional
        These instead of the experiments' own; an experiment leaves out those that lack the
        parameter it varies.
    """
    cells: list[Cell] = []
    for entry in experiments:
        variants = entry.variants(study.protocol.fast)
        found = [find_method(name) for name in methods or entry.methods]
        found = [m for m in found if all(m.takes(v.params) for v in variants)]
        if entry.timed:
            cells += [_timed_cell(entry, m, v, study) for v in variants for m in found]
            continue
        each = [(entry.name, where, m, size) for where, size in sizes.items() for m in found]
        cells += [c for one in each for c in _cells(*one, variants, study.protocol.seed)]
        if entry.oracle:  # last: a run that is stopped early has the comparison at defaults
            cells += [c for one in each for c in _grid(*one, study.protocol.seed)]
    return cells


def _cells(
    experiment: str,
    where: tuple[str, str],
    method: Method,
    size: Size,
    variants: list[Variant],
    seed: int,
) -> Iterator[Cell]:
    for v in variants:
        params, labels = {**method.params(size), **v.params}, (method.label + v.remark,)
        yield Cell(experiment, *where, method.name, params, v.setting, seed + v.seed, labels)


def _grid(
    experiment: str, where: tuple[str, str], method: Method, size: Size, seed: int
) -> Iterator[Cell]:
    for point in method.grid(size):
        labels = (method.label + ORACLE,)
        yield Cell(experiment, *where, method.name, point, {}, seed, labels)


def _timed_cell(entry: Experiment, method: Method, variant: Variant, study: Study) -> Cell:
    n, d = variant.setting["n"], variant.setting["d"]
    params = {**method.params(Size(n, 20, study.protocol.fast)), **variant.params}
    split = f"n={n}, d={d}"
    labels = (method.label,)
    seed = study.protocol.seed
    return Cell(
        entry.name, "synthetic", split, method.name, params, variant.setting, seed, labels
    )


# ---- what the commands call -----------------------------------------------------------------


def reproduce(
    names: Sequence[str],
    run_folder: Any,
    *,
    data: Any = None,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    splits: int | None = None,
    n_jobs: int | None = None,
    force: Sequence[str] = (),
    fast: bool = False,
    seed: int = 0,
    scheduler: str | None = None,
    command: str | None = None,
    display: Display | None = None,
) -> Summary:
    """Run experiments of the paper into a run directory; continue what is there.

    Parameters
    ----------
    names : sequence of str
        Names of `EXPERIMENTS`, or "all".
    run_folder : path
        Results are in its ``results.sqlite``.
    data : path, optional
        Folder of ``.npz`` data sets; by default the bundled sample.
    datasets, methods : sequence of str, optional
        Restrict to these data sets (beginnings of names will do); run these methods instead
        of the experiment's own.
    splits : int, optional
        At most so many class splits per data set.
    n_jobs, scheduler, display
        See `semfs.lab.run`.
    force : sequence of str, optional
        Methods whose finished cells are computed again.
    fast : bool, default=False
        Fewer k, K-means runs, grid points and splits.
    seed : int, default=0
    command : str, optional
        Command line to record.

    Returns
    -------
    Summary
    """
    entries = find_experiments(names)
    for name in [*methods, *force]:
        find_method(name)
    protocol = Protocol.quick(seed) if fast else Protocol(seed=seed)
    sources = [] if all(e.timed for e in entries) else find_sources(data, datasets)
    store = Store(run_folder)
    try:
        limit = splits if splits is not None or not fast else FAST_SPLITS
        study, sizes = _prepare(store, sources, protocol, limit)
        _record(store, protocol, command)
        groups = [
            plan([e for e in entries if e.timed == timed], study, sizes, methods)
            for timed in (False, True)
        ]
        if not any(groups):
            raise ValueError(
                f"{', '.join(methods)} has no parameter that {', '.join(names)} varies. Name "
                "other methods, or none for the experiment's own."
            )
        store.force(cell for cells in groups for cell in cells if cell.method in force)
        total = Summary(0, 0)
        for cells, jobs in zip(groups, (n_jobs, 1)):  # timings are taken one at a time
            if cells:
                found = run(
                    cells, store, study, n_jobs=jobs, scheduler=scheduler, display=display
                )
                total = total + found
        return total
    finally:
        store.close()


def evaluate(
    source: Any,
    methods: Sequence[str],
    *,
    ks: Sequence[int] = KS,
    n_repeats: int = 20,
    splits: int | None = None,
    n_jobs: int | None = None,
    seed: int = 0,
    display: Display | None = None,
) -> tuple[list[dict[str, Any]], Summary]:
    """Return the rows of the clustering protocol for one data set.

    ``source`` is "sample", an ``.npz`` file or the name of a known benchmark.
    """
    ks = tuple(sorted(set(ks)))
    found = find_source(source)
    for name in methods:
        find_method(name)
    store = Store(None)
    study, sizes = _prepare(store, [found], Protocol(ks, n_repeats, seed), splits)
    entry = Experiment("clustering", "", tuple(methods))
    summary = run(plan([entry], study, sizes), store, study, n_jobs=n_jobs, display=display)
    return store.rows(), summary


def _prepare(
    store: Store, sources: Sequence[Source], protocol: Protocol, limit: int | None
) -> tuple[Study, dict[tuple[str, str], Size]]:
    """Read each data set once: its splits, its sizes, its facts for the report."""
    if limit is not None and limit < 1:
        raise ValueError(f"The number of splits must be at least 1, got {limit}.")
    splits, sizes = {}, {}
    for source in sources:
        data = source.load()
        splits[source.name] = class_splits(data, limit, protocol.seed)
        facts = {name: split_facts(data, u) for name, u in splits[source.name].items()}
        for name, fact in facts.items():
            key = source.name, name
            sizes[key] = Size(fact["n_seen"], len(fact["seen"]), protocol.fast)
        advice = "Its contents have changed; use another --out for the new data."
        store.pin(f"fingerprint of {source.name}", fingerprint(data), advice)
        first = next(iter(facts.values()))
        shape = {"n_features": data.X.shape[1], "n_attributes": data.attributes.shape[1]}
        store.set_info(
            f"dataset:{source.name}", {"name": source.name, **first, **shape, "splits": facts}
        )
    return Study({s.name: s for s in sources}, splits, protocol), sizes


def _record(store: Store, protocol: Protocol, command: str | None) -> None:
    advice = "Use another --out, or the same options as before (--fast, --seed)."
    store.pin("protocol", asdict(protocol), advice)
    if "started" not in store.info():
        store.set_info("started", datetime.now(UTC).isoformat(timespec="seconds"))
    store.set_info("command", command or " ".join(sys.argv))
    store.set_info("versions", versions())
