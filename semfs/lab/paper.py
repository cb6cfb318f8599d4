"""The paper's experiments, each as one entry: its methods, what it varies, what to check.

`plan` turns entries, data sets and methods into cells; a `Bench` computes one of them;
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
- Class splits are those of `semfs.lab.cases.class_splits`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse

from semfs.attributes import align_attributes
from semfs.datasets import ZeroShotDataset
from semfs.lab.cases import (
    Case,
    Source,
    absent_from_the_paper,
    as_source,
    class_splits,
    find_sources,
    fingerprint,
    random_splits,
    scaling_data,
    split_facts,
)
from semfs.lab.methods import Method, Size, find_method, rank, scores
from semfs.lab.runner import Summary, run, versions
from semfs.lab.store import Cell, Result, Store
from semfs.method.objective import Objective, reduce_rank
from semfs.selectors.semfs import SemFS

__all__ = ["EXPERIMENTS", "Bench", "Protocol", "Study", "evaluate", "plan", "reproduce"]

ORACLE = " (oracle)"  # ending of the labels whose cells are the points of a grid
KS = tuple(range(5, 55, 5))
FAST_SPLITS = 2
SCALES = (1.0, 2.0, 5.0, 20.0, 100.0)  # τ at which the scale degeneracy is shown


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


@dataclass(frozen=True)
class Study:
    """What is to be run: experiments of the paper, on which data, with which methods.

    Parameters
    ----------
    experiments : sequence of str
        Names of `EXPERIMENTS`, or "all".
    data : path, optional
        Folder of ``.npz`` data sets; by default the bundled sample.
    datasets, methods : sequence of str, optional
        Restrict to these data sets (beginnings of names will do); run these methods instead
        of the experiments' own.
    splits : int, optional
        At most so many class splits per data set.
    fast : bool, default=False
        Fewer k, K-means runs, grid points and splits.
    seed : int, default=0

    Examples
    --------
    >>> Study(["alpha"], methods=["semfs"], fast=True).command("run")
    'semfs reproduce alpha --method semfs --fast --out run'
    """

    experiments: Sequence[str]
    data: Any = None
    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    splits: int | None = None
    fast: bool = False
    seed: int = 0

    @property
    def protocol(self) -> Protocol:
        """What all cells have in common; `fast`: three k, five K-means runs, small grids."""
        return (
            Protocol((5, 20, 50), 5, self.seed, True) if self.fast else Protocol(seed=self.seed)
        )

    def command(self, run_folder: Any) -> str:
        """Return the command that does the same."""
        options = {
            "--data": self.data,
            "--dataset": ",".join(self.datasets),
            "--method": ",".join(self.methods),
            "--splits": self.splits,
            "--seed": self.seed,
        }
        words = [word for name, value in options.items() if value for word in (name, value)]
        words += ["--fast"] if self.fast else []
        words = ["semfs", "reproduce", *self.experiments, *words, "--out", run_folder]
        return shlex.join(map(str, words))


# ---- one cell -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Protocol:
    """What all cells of a run have in common."""

    ks: tuple[int, ...] = KS
    n_repeats: int = 20
    seed: int = 0
    fast: bool = False


@dataclass(frozen=True)
class Bench:
    """Computes cells: data sets, their class splits, the protocol, methods of the user's own.

    It is sent to worker processes; ``sizes`` says how large each split is.
    """

    sources: Mapping[str, Source]
    splits: Mapping[str, Mapping[str, list]]
    protocol: Protocol
    sizes: Mapping[tuple[str, str], Size] = field(default_factory=dict)
    own: Mapping[str, Method] = field(default_factory=dict)

    def load(self, name: str) -> ZeroShotDataset | None:
        """Return a data set by name; the synthetic data of `scaling` need none."""
        return self.sources[name].load() if name in self.sources else None

    def method(self, name: str) -> Method:
        """Return a method by name."""
        return self.own[name] if name in self.own else find_method(name)

    def __call__(self, cell: Cell, data: ZeroShotDataset | None = None) -> Result:
        """Compute one cell, with the data given or read."""
        ks, setting = self.protocol.ks, cell.setting
        if "n" in setting:
            case = scaling_data(setting["n"], setting["d"], cell.seed)
            ks = (min(max(ks), case.n_features),)
        else:
            data = self.load(cell.dataset) if data is None else data
            assert data is not None
            unseen = tuple(self.splits[cell.dataset][cell.split])
            case = _case(data, unseen).with_ratio(setting.get("ratio", 1.0), cell.seed)
            ks = tuple(k for k in ks if k <= case.n_features)
            if not ks:
                raise ValueError(
                    f"{cell.dataset} has only {case.n_features} features. Ask for fewer."
                )
        return self._measure(cell, case, ks)

    def _measure(self, cell: Cell, case: Case, ks: tuple[int, ...]) -> Result:
        method, protocol = self.method(cell.method), self.protocol
        targets = cell.setting.get("targets", "attributes" if method.attributes else "labels")
        attributes = targets == "attributes"
        found = rank(method, cell.params, case, ks, attributes=attributes, seed=protocol.seed)
        names = {str(k): case.names(found.features(k)) for k in ks}
        extra: dict[str, Any] = {"features_by_k": names} if found.by_k else {}
        if cell.experiment == "convergence":
            extra |= convergence(found.selector, case)
        draws = protocol.n_repeats if cell.method == "random" else None
        values = scores(case, found, ks, protocol.n_repeats, protocol.seed, draws)
        return Result(values, found.seconds, names[str(max(ks))], extra)


@lru_cache(maxsize=2)
def _case(data: ZeroShotDataset, unseen: tuple) -> Case:
    """Seen and unseen rows of a split; kept, with their moments, for the next cells."""
    return Case.of(data.with_unseen(list(unseen)))


# ---- convergence of Algorithm 1 -------------------------------------------------------------


def convergence(selector: SemFS, case: Case, k: int = 50) -> dict[str, Any]:
    """Return how Algorithm 1 went, and the two ways in which it degenerates.

    ``objective`` J after each round and whether it is ``monotone`` (Proposition 1);
    ``ridge_overlap``: how many of the top k are the largest rows of plain ridge regression
    (s = 1), to which the ranking reduces; ``n_shrunk``: how many s_i ever fell below their
    start; ``scale_objective``: the least J for s = τ·1, which falls for ever as τ
    (``scale_tau``) grows, so that no minimum is attained.
    """
    history = np.asarray(selector.objective_, dtype=np.float64)
    W, values = _ridge(_objective(selector, case))
    k = min(k, case.n_features)
    ridge = np.argsort(-np.linalg.norm(W, axis=1), kind="stable")
    return {
        "objective": history.tolist(),
        "monotone": bool((np.diff(history) <= 1e-9 * np.abs(history[:-1])).all()),
        "n_iter": int(selector.n_iter_),
        "ridge_overlap": len(np.intersect1d(selector.order_[:k], ridge[:k])),
        "ridge_overlap_of": k,
        "n_shrunk": int((selector.selection_ < 1.0).sum()),
        "s_range": [float(selector.selection_.min()), float(selector.selection_.max())],
        "scale_tau": list(SCALES),
        "scale_objective": values,
    }


def _objective(selector: SemFS, case: Case) -> Objective:
    moments, _ = case.moments
    A = align_attributes(selector.attributes, moments.classes).values
    if selector.fit_intercept:
        A = A - moments.counts @ A / moments.total
    return Objective.from_moments(
        moments,
        reduce_rank(A)[0],
        alpha=selector.alpha,
        gamma=selector.gamma,
        penalty_scale=selector.penalty_scale,
        fit_intercept=selector.fit_intercept,
    )


def _ridge(objective: Objective) -> tuple[np.ndarray, list[float]]:
    """W (d, r) for s = 1, and the least J for s = τ·1, by one eigendecomposition.

    With s = τ·1 the penalty counts γ/τ². In the smaller of the two forms, d × d or n × n.
    """
    factor, gamma = objective.factor(), objective.gamma
    if factor is None:
        values, V = np.linalg.eigh(objective.gram())
        share = V.T @ objective.B
        squares = np.sum(share**2, axis=1)
    else:
        values, V = np.linalg.eigh(factor.dual_gram(np.ones(objective.n_features)))
        share = V.T @ factor.targets
        squares = np.maximum(values, 0.0) * np.sum(share**2, axis=1)
    values = np.maximum(values, 0.0)
    W = V @ (share / (values + gamma)[:, None])
    fits = [float(np.sum(squares / (values + gamma / tau**2))) for tau in SCALES]
    return W if factor is None else factor.adjoint(W), [objective.q - fit for fit in fits]


# ---- the plan -------------------------------------------------------------------------------


def plan(
    experiments: Iterable[Experiment], bench: Bench, methods: Sequence[str] = ()
) -> tuple[list[Cell], list[str]]:
    """Return the cells of the experiments, and what was left out, in words.

    Data set by data set, split by split; grids last: a run that is stopped early has the
    comparison at defaults. ``methods`` replace the experiments' own; an experiment leaves out
    those that lack the parameter it varies, or need dense rows where there is no room.
    """
    cells: list[Cell] = []
    notes: dict[str, None] = {}
    for entry in experiments:
        variants = entry.variants(bench.protocol.fast)
        found = []
        for m in map(bench.method, methods or entry.methods):
            if all(m.takes(v.params) for v in variants):
                found.append(m)
            else:
                notes[f"{m.label} has no parameter that {entry.name} varies: left out."] = None
        if entry.timed:
            for v in variants:
                where = "synthetic", "n={n}, d={d}".format(**v.setting)
                size = Size(v.setting["n"], 20, bench.protocol.fast)
                cells += [_cell(entry, where, m, m.params(size), v, bench) for m in found]
            continue
        grid: list[Cell] = []
        for (where, size), m in product(bench.sizes.items(), found):
            if m.fits(size):
                cells += [_cell(entry, where, m, m.params(size), v, bench) for v in variants]
                point = Variant(remark=ORACLE)
                grid += [_cell(entry, where, m, p, point, bench) for p in m.grid(size)]
            else:
                text = f"{m.label} needs dense rows, too many of them in {where[0]}: left out."
                notes[text] = None
        cells += grid if entry.oracle else []
    return cells, list(notes)


def _cell(
    entry: Experiment,
    where: tuple[str, str],
    method: Method,
    params: Mapping[str, Any],
    variant: Variant,
    bench: Bench,
) -> Cell:
    seed, labels = bench.protocol.seed + variant.seed, (method.label + variant.remark,)
    params = {**params, **variant.params}
    return Cell(entry.name, *where, method.name, params, variant.setting, seed, labels)


# ---- what the commands call -----------------------------------------------------------------


def reproduce(
    study: Study,
    run_folder: Any,
    *,
    n_jobs: int | None = None,
    scheduler: str | None = None,
    force: Sequence[str] = (),
    verbose: bool = False,
) -> Summary:
    """Run experiments of the paper into a run directory; continue what is there.

    Parameters
    ----------
    study : Study
        What to run.
    run_folder : path
        Results are in its ``results.sqlite``.
    n_jobs, scheduler, verbose
        See `semfs.lab.run`.
    force : sequence of str, optional
        Methods whose finished cells are computed again.

    Returns
    -------
    Summary
        Its ``notes`` name the paper's data sets that are absent and what was left out.
    """
    entries = find_experiments(study.experiments)
    for name in [*study.methods, *force]:
        find_method(name)
    sources = [] if all(e.timed for e in entries) else find_sources(study.data, study.datasets)
    absent = absent_from_the_paper(sources) if sources else []
    store = Store(run_folder)
    try:
        limit = FAST_SPLITS if study.fast and study.splits is None else study.splits
        splits = {s.name: class_splits(s.load(), _checked(limit), study.seed) for s in sources}
        bench = _prepare(store, sources, splits, study.protocol)
        _record(store, study, run_folder)
        total = Summary()
        if absent:
            total.notes.append(f"Data sets of the paper that are absent: {', '.join(absent)}.")
        groups = []
        for timed in (False, True):
            cells, notes = plan([e for e in entries if e.timed == timed], bench, study.methods)
            groups.append(cells)
            total.notes += notes
        if not any(groups):
            raise ValueError(
                f"{' '.join(total.notes)} Name other methods, or none for the experiment's own."
            )
        store.set_info("notes", total.notes)
        store.force(cell for cells in groups for cell in cells if cell.method in force)
        for cells, jobs in zip(groups, (n_jobs, 1)):  # timings are taken one at a time
            total += run(cells, store, bench, n_jobs=jobs, scheduler=scheduler, verbose=verbose)
        return total
    finally:
        store.close()


def evaluate(
    data: Any,
    methods: Sequence[Any] = ("semfs", "anova", "variance", "random"),
    *,
    unseen: Sequence[Any] | None = None,
    n_splits: int | None = None,
    ks: Sequence[int] = KS,
    n_repeats: int = 20,
    n_jobs: int | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> tuple[list[dict[str, Any]], Summary]:
    """Cluster unseen classes with the features that selectors choose on seen ones.

    Parameters
    ----------
    data : ZeroShotDataset, tuple or str
        A data set; ``(X, y, attributes)``, attributes as `SemFS` takes them; or "sample", an
        ``.npz`` file, the name of a known benchmark.
    methods : sequence of str or selectors
        Names of `semfs.lab.methods.METHODS`, ``module:Selector``, or scikit-learn selectors;
        those of a notebook need ``n_jobs=1``.
    unseen : sequence of class labels, optional
        The classes to be told apart. By default those of the data set; if it names none, or
        with ``n_splits``, random ones.
    n_splits : int, optional
        Number of random class splits.
    ks : sequence of int
        Numbers of features.
    n_repeats : int, default=20
        K-means runs per score.
    n_jobs, verbose
        See `semfs.lab.run`.
    seed : int, default=0

    Returns
    -------
    rows : list of dict
        One per split, method and k (see `semfs.lab.store.result_rows`), for `write_report`.
    summary : Summary

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(120, 6, centers=6, random_state=0)
    >>> rows, _ = evaluate((X, y, None), ["variance"], unseen=[4, 5], ks=[2], n_jobs=1)
    >>> rows[0]["split"], rows[0]["k"], len(rows[0]["features"])
    ('given', 2, 2)
    """
    source, (names, own) = as_source(data), _named(methods, n_jobs)
    loaded = source.load()
    if unseen is not None:
        splits = {"given": loaded.with_unseen(list(unseen)).unseen.tolist()}
    elif n_splits is not None:
        splits = random_splits(loaded, _checked(n_splits), seed)
    else:
        splits = class_splits(loaded, None, seed)
    store, protocol = Store(None), Protocol(tuple(sorted(set(ks))), n_repeats, seed)
    bench = _prepare(store, [source], {source.name: splits}, protocol, own)
    cells, notes = plan([Experiment("clustering", "", tuple(names))], bench)
    summary = run(cells, store, bench, n_jobs=n_jobs, verbose=verbose)
    summary.notes += notes
    return store.rows(), summary


def _named(methods: Sequence[Any], n_jobs: int | None) -> tuple[list[str], dict[str, Method]]:
    """The names of the methods, and those among them that are the user's objects."""
    names, own = [], dict[str, Method]()
    for given in methods:
        method = find_method(given)
        if not isinstance(given, str):
            if type(given).__module__ == "__main__" and n_jobs != 1:
                raise ValueError(
                    f"{method.label} is defined in the script that runs; worker processes "
                    "cannot import it there. Put it into a module of its own, or use n_jobs=1."
                )
            n = sum(label.split(" #")[0] == method.label for label in own) + 1
            label = f"{method.label} #{n}" if n > 1 else method.label
            method = own[label] = replace(method, name=label, label=label)
        names.append(method.name)
    return names, own


def _checked(n_splits: int | None) -> Any:
    if n_splits is not None and n_splits < 1:
        raise ValueError(f"The number of splits must be at least 1, got {n_splits}.")
    return n_splits


def _prepare(
    store: Store,
    sources: Sequence[Source],
    splits: Mapping[str, Mapping[str, list]],
    protocol: Protocol,
    own: Mapping[str, Method] | None = None,
) -> Bench:
    """Note sizes and facts of every split, and that the data are those of earlier cells."""
    sizes, facts = {}, store.info().get("datasets", {})
    for source in sources:
        data, name = source.load(), source.name
        itemsize = 8 if sparse.issparse(data.X) else 0
        by_split = {s: split_facts(data, unseen) for s, unseen in splits[name].items()}
        for split, fact in by_split.items():
            n, n_classes = fact["n_seen"], len(fact["seen"])
            room = n * data.X.shape[1] * itemsize
            sizes[name, split] = Size(n, n_classes, protocol.fast, room)
        advice = "Its contents have changed; use another --out for the new data."
        store.pin(f"fingerprint of {name}", fingerprint(data), advice)
        first = next(iter(by_split.values()))
        facts |= {name: {"name": name, **first, "splits": by_split}}
    store.set_info("datasets", facts)
    return Bench({s.name: s for s in sources}, splits, protocol, sizes, own or {})


def _record(store: Store, study: Study, run_folder: Any) -> None:
    advice = "Use another --out, or the same options as before (--fast, --seed)."
    store.pin("protocol", asdict(study.protocol), advice)
    if "started" not in store.info():
        store.set_info("started", datetime.now(UTC).isoformat(timespec="seconds"))
    store.set_info("command", study.command(run_folder))
    store.set_info("versions", versions())
