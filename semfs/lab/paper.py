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
- Class splits are those of `class_splits`.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets import (
    CATALOG,
    ZeroShotDataset,
    find_files,
    load_npz,
    load_sample,
    load_table,
    load_xlsa17,
)
from semfs.datasets.catalog import data_folders
from semfs.lab.methods import Case, Method, Size, find_method, rank, scaling_data, scores
from semfs.lab.runner import Summary, run, versions
from semfs.lab.store import Cell, Result, Store

__all__ = ["EXPERIMENTS", "Bench", "Protocol", "Study", "evaluate", "open_data", "plan"]
__all__ += ["reproduce"]

ORACLE = " (oracle)"  # ending of the labels whose cells are the points of a grid
KS = tuple(range(5, 55, 5))
FAST_SPLITS = 2
PAPER_DATASETS = ("SUN", "aPY", "CIFAR10")
RANDOM_SPLITS = 5
UNSEEN_SHARE = 0.3


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
    small = ((300, 200), (600, 200), (300, 100))
    large = [(n, 1000) for n in (1000, 3000, 10_000, 30_000)] + [(3000, 300), (3000, 3000)]
    return [Variant(setting={"n": n, "d": d}) for n, d in (small if fast else large)]


BASELINES = ("random", "variance", "anova", "mcfs", "fsasl", "lasso", "l20alm", "wknn")
OURS = ("semfs", "semfs-c", "semfs-labels", "semfs-published")

EXPERIMENTS: dict[str, Experiment] = {
    entry.name: entry
    for entry in [
        Experiment(
            "clustering",
            "SemFS and SemFS/c always beat all others clearly, in ACC and NMI.",
            (*BASELINES, "markers", *OURS),
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
    """Return the entries by name; "all" is all of them."""
    names = list(dict.fromkeys(names))
    unknown = [name for name in names if name not in (*EXPERIMENTS, "all")]
    if unknown:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"There is no experiment {unknown[0]!r}. Known: {known}, all.")
    return [EXPERIMENTS[name] for name in (EXPERIMENTS if "all" in names else names)]


# ---- where data come from -------------------------------------------------------------------


Loader = Callable[[], ZeroShotDataset]


@lru_cache(maxsize=2)
def _loaded(loader: Loader) -> ZeroShotDataset:
    """The last two data sets that were read stay in memory."""
    return loader()


def open_data(
    name: Any, label: str | None = None, attributes: Any = None, unseen: Sequence[str] = ()
) -> ZeroShotDataset:
    """Return a data set by name (see CATALOG), or from a file of one's own.

    Parameters
    ----------
    name : str or path
        "sample", "blood", a benchmark of `semfs datasets`, an ``.h5ad`` file, a table (CSV,
        Parquet, Feather), or an ``.npz`` file.
    label : str, optional
        Where a file has its class labels: a column, a column of ``obs``, an array.
    attributes : path, optional
        Class table; an ``.npz`` file may have its own (array A).
    unseen : sequence of str, optional
        The unseen classes, as text; several may be joined by commas.
    """
    if not Path(str(name)).is_file():
        if label is not None or attributes is not None:
            raise ValueError(f"There is no file {name}; label and attributes are for files.")
        data = _known(str(name))()
    elif attributes is not None and label is not None:
        data = load_table(name, label, attributes)
    elif Path(name).suffix == ".npz" and attributes is None:
        data = load_npz(name)
    else:
        raise ValueError(
            f"{name}: say where the class labels are (--label) and which file describes the "
            "classes (--attributes)."
        )
    return data.with_unseen(_labels(unseen, data.classes.tolist())) if unseen else data


def _labels(texts: Sequence[str], classes: Sequence[Any]) -> list[Any]:
    """Class labels from text: names that may have commas in them, or several with commas."""
    known = {str(label): label for label in classes}
    words = [w for t in texts for w in ([t] if t in known else t.split(","))]
    return [known.get(word.strip(), word.strip()) for word in words]


def _known(name: str) -> Loader:
    """The bundled data or the benchmark of that name, whatever the case."""
    found = _bundled() | _xlsa17(data_folders())
    entries = [entry for entry in CATALOG if entry.name.lower() == name.lower()]
    for known, loader in found.items():
        if known.lower() == name.lower():
            return loader
    if not entries:
        near = difflib.get_close_matches(name, [*found, *(e.name for e in CATALOG)], n=1)
        raise ValueError(
            f"There is no data set {name!r}"
            + (f"; did you mean {near[0]!r}?" if near else ".")
            + " Give sample, a file of yours (.h5ad, .csv, .parquet, .npz), or a name that "
            "`semfs datasets` lists as found."
        )
    entry = next(filter(find_files, entries), entries[0])
    place = find_files(entry)
    if place is None:
        raise ValueError(
            f"{entry.name} was not found on this machine. To get it: {entry.source}"
        )
    raise ValueError(
        f"{entry.name} was found in {place}, but features must be computed from it first: load "
        f"it with {entry.loader} and pass the data set to semfs.lab.paper.evaluate."
    )


def find_data(folder: Any, wanted: Sequence[str] = ()) -> dict[str, Loader]:
    """Return the data sets of a folder, or the sample without a folder, by name.

    They are its ``.npz`` files with X, y and A (`semfs.datasets.load_npz`), and folders of
    the xlsa17 benchmark (``CUB/res101.mat`` and ``CUB/att_splits.mat``, say). ``wanted`` are
    names or beginnings of names; "sample" and "blood" are bundled.
    """
    found = {"sample": _bundled()["sample"]}
    if folder is not None:
        if not Path(folder).is_dir():
            raise ValueError(f"{folder} is not a directory. Give the one with your data sets.")
        files = [file for file in sorted(Path(folder).glob("*.npz")) if _is_dataset(file)]
        found = {file.stem: partial(load_npz, file.resolve()) for file in files}
        found |= _xlsa17([Path(folder)])
    if not found:
        raise ValueError(
            f"{folder} holds no data set: no .npz file with arrays X, y and A, and no folder "
            "with res101.mat and att_splits.mat. See: semfs datasets"
        )
    chosen: dict[str, Loader] = {}
    for start in wanted:
        known = _bundled() | found
        named = {n: known[n] for n in known if n.lower().startswith(start.lower())}
        if not named:
            raise ValueError(f"There is no data set {start!r}. Found: {', '.join(found)}.")
        chosen |= named
    return chosen or found


def _bundled() -> dict[str, Loader]:
    return {"sample": load_sample, "blood": partial(load_sample, "blood")}


def _xlsa17(folders: list[Path]) -> dict[str, Loader]:
    entries = [entry for entry in CATALOG if entry.loader.startswith("load_xlsa17")]
    places = {entry.name: find_files(entry, folders) for entry in entries}
    return {n: partial(load_xlsa17, p.resolve().parent, p.name) for n, p in places.items() if p}


def _is_dataset(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except zipfile.BadZipFile:
        return False
    return {"y", "A"} <= names and bool({"X", "X_data"} & names)


def class_splits(data: ZeroShotDataset, limit: int | None, seed: int) -> dict[str, list]:
    """Return the unseen classes of each split of a data set, by the name of the split.

    The data set's own ``unseen`` if it has any; all pairs of seen classes for CIFAR10, in
    random order; else random splits with 30 % of the classes unseen. ``limit`` bounds their
    number; with a larger one the first splits stay the same.

    Examples
    --------
    >>> splits = class_splits(load_sample(), None, 0)
    >>> {name: len(unseen) for name, unseen in splits.items()}
    {'given': 7}
    """
    classes = data.classes.tolist()
    if len(data.unseen):
        return {"given": data.unseen.tolist()}
    if data.name.lower().startswith("cifar10") and len(classes) == 10:
        pairs = list(itertools.combinations(classes, 2))
        order = np.random.RandomState(seed).permutation(len(pairs))[:limit]
        chosen = [pairs[i] for i in order]
        return {f"{a}+{b}": [c for c in classes if c not in (a, b)] for a, b in chosen}
    return random_splits(data, limit or RANDOM_SPLITS, seed)


def random_splits(data: ZeroShotDataset, n_splits: int, seed: int) -> dict[str, list]:
    """Return random splits with as many unseen classes as the data set has, or 30 %."""
    n_classes = len(data.classes)
    if n_classes < 4:
        raise ValueError(
            f"{data.name} has {n_classes} classes; a split needs 2 seen and 2 unseen ones."
        )
    wanted = len(data.unseen) or round(UNSEEN_SHARE * n_classes)
    n_unseen = min(max(2, wanted), n_classes - 2)
    draws = data.random_splits(n_splits, n_unseen, random_state=seed)
    return {f"random-{i}": draw.unseen.tolist() for i, draw in enumerate(draws)}


def split_facts(data: ZeroShotDataset, unseen: list) -> dict[str, Any]:
    """Return sizes and classes of a split."""
    rows = np.isin(data.y, unseen)
    return {
        "n_seen": int((~rows).sum()),
        "n_unseen": int(rows.sum()),
        "seen": [label for label in data.classes.tolist() if label not in unseen],
        "unseen": list(unseen),
        "n_features": data.X.shape[1],
        "n_attributes": data.attributes.shape[1],
    }


def _fingerprint(data: ZeroShotDataset) -> str:
    """Hash of the numbers and labels: other data under the same name must not be mixed."""
    X = data.X
    parts = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    digest = hashlib.sha256(repr((X.shape, data.y.tolist())).encode())
    for part in [*parts, data.attributes.to_numpy()]:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


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

    data: Mapping[str, Loader]
    splits: Mapping[str, Mapping[str, list]]
    protocol: Protocol
    sizes: Mapping[tuple[str, str], Size] = field(default_factory=dict)
    own: Mapping[str, Method] = field(default_factory=dict)

    def method(self, name: str) -> Method:
        """Return a method by name."""
        return self.own[name] if name in self.own else find_method(name)

    def __call__(self, cell: Cell) -> Result:
        """Compute one cell."""
        protocol, setting, method = self.protocol, cell.setting, self.method(cell.method)
        if "n" in setting:
            case = scaling_data(setting["n"], setting["d"], cell.seed)
            ks: tuple[int, ...] = (min(max(protocol.ks), case.n_features),)
        else:
            unseen = tuple(self.splits[cell.dataset][cell.split])
            case = _case(_loaded(self.data[cell.dataset]), unseen)
            case = case.with_ratio(setting.get("ratio", 1.0), cell.seed)
            ks = tuple(k for k in protocol.ks if k <= case.n_features)
        if not ks:
            raise ValueError(
                f"{cell.dataset} has only {case.n_features} features. Ask for fewer."
            )
        targets = setting.get("targets", "attributes" if method.attributes else "labels")
        attributes, seed = targets == "attributes", protocol.seed
        found = rank(method, cell.params, case, ks, attributes=attributes, seed=seed)
        names = {str(k): case.names(found.features(k)) for k in ks}
        extra: dict[str, Any] = {"features_by_k": names} if found.by_k else {}
        if cell.experiment == "convergence":
            extra["objective"] = np.asarray(found.selector.objective_).tolist()
        values = scores(case, found, ks, protocol.n_repeats, seed)
        return Result(values, found.seconds, names[str(max(ks))], extra)


@lru_cache(maxsize=2)
def _case(data: ZeroShotDataset, unseen: tuple) -> Case:
    """Seen and unseen rows of a split; kept for the next cells."""
    return Case.of(data.with_unseen(list(unseen)))


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
    grids: list[Cell] = []
    notes: dict[str, None] = {}
    for entry in experiments:
        variants = entry.variants(bench.protocol.fast)
        for m in map(bench.method, methods or entry.methods):
            if not all(m.takes(v.params) for v in variants):
                notes[f"{m.label} has no parameter that {entry.name} varies: left out."] = None
                continue
            for where, size, ways in _places(entry, variants, bench):
                if not m.fits(size):
                    text = f"{m.label} needs dense rows, too many of them in {where[0]}"
                    notes[f"{text}: left out."] = None
                    continue
                cells += [_cell(entry, where, m, m.params(size), v, bench) for v in ways]
                point, points = Variant(remark=ORACLE), m.grid(size) if entry.oracle else []
                grids += [_cell(entry, where, m, p, point, bench) for p in points]
    order = {where: i for i, where in enumerate(bench.sizes)}
    for part in (cells, grids):
        part.sort(key=lambda cell: order.get((cell.dataset, cell.split), 0))
    return [*cells, *grids], list(notes)


def _places(
    entry: Experiment, variants: list[Variant], bench: Bench
) -> list[tuple[tuple[str, str], Size, list[Variant]]]:
    """Data set and split, their size, and the variants to run there."""
    if not entry.timed:
        return [(where, size, variants) for where, size in bench.sizes.items()]
    name = "n={n}, d={d}".format
    fast = bench.protocol.fast
    return [
        (("synthetic", name(**v.setting)), Size(v.setting["n"], 20, fast), [v])
        for v in variants
    ]


def _cell(
    entry: Experiment,
    where: tuple[str, str],
    method: Method,
    params: Mapping[str, Any],
    variant: Variant,
    bench: Bench,
) -> Cell:
    seed, label = bench.protocol.seed + variant.seed, method.label + variant.remark
    params = {**params, **variant.params}
    return Cell(entry.name, *where, method.name, params, variant.setting, seed, label)


# ---- what the commands call -----------------------------------------------------------------


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
        quick = Protocol((5, 20, 50), 5, self.seed, True)
        return quick if self.fast else Protocol(seed=self.seed)


def reproduce(
    study: Study,
    run_folder: Any,
    *,
    n_jobs: int | None = None,
    force: Sequence[str] = (),
    command: str = "",
    verbose: bool = False,
) -> Summary:
    """Run experiments of the paper into a run directory; continue what is there.

    Parameters
    ----------
    study : Study
        What to run.
    run_folder : path
        Results are in its ``results.sqlite``.
    n_jobs, verbose
        See `semfs.lab.run`.
    force : sequence of str, optional
        Methods whose finished cells are computed again.
    command : str, optional
        How this was called, for the report.

    Returns
    -------
    Summary
        Its ``notes`` name the paper's data sets that are absent and what was left out.
    """
    entries = find_experiments(study.experiments)
    for name in [*study.methods, *force]:
        find_method(name)
    data = {} if all(e.timed for e in entries) else find_data(study.data, study.datasets)
    wanted = PAPER_DATASETS if data else ()
    absent = [p for p in wanted if not any(n.lower().startswith(p.lower()) for n in data)]
    store = Store(run_folder)
    try:
        limit = FAST_SPLITS if study.fast and study.splits is None else study.splits
        splits = {
            name: class_splits(_loaded(loader), _checked(limit), study.seed)
            for name, loader in data.items()
        }
        bench = _prepare(store, data, splits, study.protocol)
        advice = "Use another --out, or the same options as before (--fast, --seed)."
        store.pin("protocol", asdict(study.protocol), advice)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        store.set_info("started", store.info().get("started", now))
        store.set_info("command", command)
        store.set_info("versions", versions())
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
            total += run(cells, store, bench, n_jobs=jobs, verbose=verbose)
        return total
    finally:
        store.close()


def evaluate(
    data: Any,
    methods: Sequence[Any] = ("semfs", "anova", "variance", "random"),
    *,
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
    data : ZeroShotDataset or str
        A data set (its ``unseen`` classes are told apart; if it names none, or with
        ``n_splits``, random ones), or what `open_data` finds by name.
    methods : sequence of str or selectors
        Names of `semfs.lab.methods.METHODS`, ``module:Selector``, or scikit-learn selectors.
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
    >>> rows, _ = evaluate("sample", ["variance"], ks=[5], n_repeats=2, n_jobs=1)
    >>> rows[0]["split"], rows[0]["k"], len(rows[0]["features"])
    ('given', 5, 5)
    """
    names, own = [], dict[str, Method]()
    for given in methods:
        method = find_method(given)
        if not isinstance(given, str):
            label = method.label + f" #{len(own) + 1}" * (method.label in own)
            method = own[label] = replace(method, name=label, label=label)
        names.append(method.name)
    if not isinstance(data, ZeroShotDataset):
        data = open_data(data)
    splits = (
        class_splits(data, None, seed)
        if n_splits is None
        else random_splits(data, _checked(n_splits), seed)
    )
    store, protocol = Store(None), Protocol(tuple(sorted(set(ks))), n_repeats, seed)
    loader = partial(_itself, data)
    bench = _prepare(store, {data.name: loader}, {data.name: splits}, protocol, own)
    cells, notes = plan([Experiment("clustering", "", tuple(names))], bench)
    summary = run(cells, store, bench, n_jobs=n_jobs, verbose=verbose)
    summary.notes += notes
    return store.rows(), summary


def _itself(data: ZeroShotDataset) -> ZeroShotDataset:
    return data


def _checked(n_splits: int | None) -> Any:
    if n_splits is not None and n_splits < 1:
        raise ValueError(f"The number of splits must be at least 1, got {n_splits}.")
    return n_splits


def _prepare(
    store: Store,
    loaders: Mapping[str, Loader],
    splits: Mapping[str, Mapping[str, list]],
    protocol: Protocol,
    own: Mapping[str, Method] | None = None,
) -> Bench:
    """Note sizes and facts of every split, and that the data are those of earlier cells."""
    sizes, facts = {}, store.info().get("datasets", {})
    for name, loader in loaders.items():
        data = _loaded(loader)
        itemsize = 8 if sparse.issparse(data.X) else 0
        by_split = {s: split_facts(data, unseen) for s, unseen in splits[name].items()}
        for split, fact in by_split.items():
            room = fact["n_seen"] * data.X.shape[1] * itemsize
            sizes[name, split] = Size(fact["n_seen"], len(fact["seen"]), protocol.fast, room)
        advice = "Its contents have changed; use another --out for the new data."
        store.pin(f"fingerprint of {name}", _fingerprint(data), advice)
        first = next(iter(by_split.values()))
        facts |= {name: {"name": name, **first, "splits": by_split}}
    store.set_info("datasets", facts)
    return Bench(loaders, splits, protocol, sizes, own or {})
