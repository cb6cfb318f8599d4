"""The paper's experiments: ``paper.toml`` says what is compared, over what.

`plan` turns its entries, data sets and methods into cells; a `Bench` computes one of them;
`reproduce` and `evaluate` are what the commands call. One fit on the seen classes gives a
ranking for all numbers of features k. Scores are means over single K-means runs on the unseen
classes, from the same starting rows for all. Baselines use class labels, at their defaults
and, labeled "(oracle)", at the best point of the paper's grid for every k and measure.
"""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite

from semfs.datasets import ZeroShotDataset, load_npz, load_sample, load_table, load_xlsa17
from semfs.datasets.catalog import CATALOG, data_folders, find_files
from semfs.io.npz import names_in_npz
from semfs.lab.methods import Case, Method, Size, find_method, rank, scaling_data, scores
from semfs.lab.report import PAPER
from semfs.lab.runner import Summary, run, versions
from semfs.lab.store import Cell, Result, Store
from semfs.labels import classes_in
from semfs.selectors.semfs import MOST_VARIANCE
from semfs.validation import check_integer, did_you_mean

ORACLE = " (oracle)"  # ending of the labels whose cells are the points of a grid
KS = tuple(range(5, 55, 5))
FAST_SPLITS = 2
RANDOM_SPLITS = 5
UNSEEN_SHARE = 0.3
DRAWS, FAST_DRAWS = 5, 2  # of the rows of a labeled share
SETTINGS = ("ratio", "targets", "n", "d")  # what changes the case, not the selector


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper: an entry of ``paper.toml``, which says what the fields mean."""

    name: str
    methods: Sequence[str]
    finding: str = ""
    settings: Sequence[dict[str, Any]] = ({},)
    quick: Sequence[dict[str, Any]] = ()
    oracle: bool = False


EXPERIMENTS = {name: Experiment(name, **entry) for name, entry in PAPER["experiments"].items()}


def find_experiments(names: Iterable[str]) -> list[Experiment]:
    """Return the entries by name; "all" is all of them."""
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in (*EXPERIMENTS, "all"):
            known = ", ".join(EXPERIMENTS)
            raise ValueError(f"There is no experiment {name!r}. Known: {known}, all.")
    return [EXPERIMENTS[name] for name in (EXPERIMENTS if "all" in names else names)]


Loader = Callable[[], ZeroShotDataset]
Place = tuple[str, str]  # data set and split
BUNDLED: dict[str, Loader] = {"sample": load_sample, "blood": partial(load_sample, "blood")}


@lru_cache(maxsize=2)
def _loaded(loader: Loader) -> ZeroShotDataset:
    return loader()


def open_data(
    name: Any, label: str | None = None, attributes: Any = None, unseen: Any = (), **how: Any
) -> ZeroShotDataset:
    """Return a data set by name, or from a file of one's own.

    Parameters
    ----------
    name : str or path
        "sample", "blood", a benchmark of `semfs datasets`; an h5ad, table or ``.npz`` file.
    label : str, optional
        Where a file has its class labels: a column, a column of ``obs``, an array.
    attributes : path, "names" or "cl", optional
        Class table; an ``.npz`` file may have its own (array A).
    unseen : sequence of str, optional
        The unseen classes, as text; several may be joined by commas, as in a CSV file.
    **how
        ``layer``, ``drop`` and ``normalize`` of `semfs.datasets.load_table`.
    """
    if not Path(str(name)).is_file():
        if label is not None or attributes is not None or how:
            raise ValueError(f"There is no file {name}; options of files need one.")
        data = _known(str(name))()
    else:
        data = load_table(name, label, attributes, **how)
    return data.with_unseen(classes_in(unseen, data.classes.tolist())) if unseen else data


def _known(name: str) -> Loader:
    """The bundled data or the benchmark of that name, whatever the case."""
    found = BUNDLED | _xlsa17(data_folders())
    for known, loader in found.items():
        if known.lower() == name.lower():
            return loader
    entry = next((entry for entry in CATALOG if entry.name.lower() == name.lower()), None)
    if entry is None:
        hint = did_you_mean(name, found) or "."
        raise ValueError(
            f"There is no data set {name!r}{hint} Give sample, a file of yours (.h5ad, .csv, "
            ".parquet, .npz), or a name that `semfs datasets` lists as found."
        )
    if (place := find_files(entry)) is None:
        raise ValueError(f"{entry.name} was not found. To get it: {entry.source}")
    raise ValueError(
        f"{entry.name} was found in {place}; features must be computed from it first: load it "
        f"with {entry.loader}, give it to semfs.lab.paper.evaluate."
    )


def find_data(folder: Any, wanted: Sequence[str] = ()) -> dict[str, Loader]:
    """Return the data sets of a folder, or the sample without a folder, by name.

    They are its ``.npz`` files with X, y and A, and folders of the xlsa17 benchmark.
    ``wanted`` are names or beginnings of names; "sample" and "blood" are bundled.
    """
    found: dict[str, Loader] = {"sample": BUNDLED["sample"]}
    if folder is not None:
        if not Path(folder).is_dir():
            raise ValueError(f"{folder} is not a directory. Give the one with your data sets.")
        files = [file for file in sorted(Path(folder).glob("*.npz")) if _is_dataset(file)]
        found = {file.stem: partial(load_npz, file) for file in files}
        found |= _xlsa17([Path(folder)])
    if not found:
        raise ValueError(
            f"{folder} holds no data set: no .npz file with X, y and A, and no folder with "
            "res101.mat and att_splits.mat. See: semfs datasets"
        )
    chosen: dict[str, Loader] = {}
    for start in wanted:
        if not (named := _named(BUNDLED | found, start)):
            raise ValueError(f"There is no data set {start!r}. Found: {', '.join(found)}.")
        chosen |= named
    return chosen or found


def _named(data: Mapping[str, Loader], start: str) -> dict[str, Loader]:
    return {name: data[name] for name in data if name.lower().startswith(start.lower())}


def _xlsa17(folders: list[Path]) -> dict[str, Loader]:
    entries = [entry for entry in CATALOG if entry.loader.startswith("load_xlsa17")]
    places = {entry.name: find_files(entry, folders) for entry in entries}
    return {n: partial(load_xlsa17, p.parent, p.name) for n, p in places.items() if p}


def _is_dataset(file: Path) -> bool:
    try:
        names = set(names_in_npz(file))
    except zipfile.BadZipFile:
        return False
    return {"y", "A"} <= names and bool({"X", "X_data"} & names)


def class_splits(data: ZeroShotDataset, limit: int | None, seed: int) -> dict[str, list]:
    """Return the unseen classes of each split of a data set, by the name of the split.

    The data set's own ``unseen`` if it has any; pairs of seen classes for CIFAR10, in random
    order; else random splits. With a larger ``limit`` the first splits stay the same.
    """
    if limit is not None:
        check_integer("n_splits", limit, 1)
    if len(data.unseen):
        n, m = len(data.seen), len(data.unseen)
        if min(n, m) < 2:
            raise ValueError(f"{data.name} has {n} seen and {m} unseen classes; 2 are needed.")
        return {"given": data.unseen.tolist()}
    if data.name.lower().startswith("cifar10") and len(data.classes) == 10:
        pairs = list(data.every_split(n_seen=2))
        order = np.random.RandomState(seed).permutation(len(pairs))[:limit]
        return {"+".join(map(str, pairs[i].seen)): pairs[i].unseen.tolist() for i in order}
    return random_splits(data, limit or RANDOM_SPLITS, seed)


def random_splits(data: ZeroShotDataset, n_splits: int, seed: int) -> dict[str, list]:
    """Return random splits with as many unseen classes as the data set has, or 30 %."""
    check_integer("n_splits", n_splits, 1)
    if (n := len(data.classes)) < 4:
        raise ValueError(f"{data.name} has {n} classes; a split needs 2 seen and 2 unseen.")
    n_unseen = min(max(2, len(data.unseen) or round(UNSEEN_SHARE * n)), n - 2)
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


@dataclass(frozen=True)
class Protocol:
    """What all cells of a run have in common."""

    ks: tuple[int, ...] = KS
    n_repeats: int = 20
    seed: int = 0
    fast: bool = False


@dataclass(frozen=True)
class Bench:
    """Computes cells, in worker processes; ``own`` are methods of the user's."""

    data: Mapping[str, Loader]
    splits: Mapping[str, Mapping[str, list]]
    protocol: Protocol
    sizes: Mapping[Place, Size] = field(default_factory=dict)
    own: Mapping[str, Method] = field(default_factory=dict)

    def method(self, name: str) -> Method:
        """Return a method by name."""
        return self.own[name] if name in self.own else find_method(name)

    def __call__(self, cell: Cell) -> Result:
        """Compute one cell."""
        protocol, setting, method = self.protocol, cell.setting, self.method(cell.method)
        if "n" in setting:
            case = scaling_data(setting["n"], setting["d"], cell.seed)
            ks: tuple[int, ...] = (min(max(protocol.ks), case.X.shape[1]),)
        else:
            unseen = tuple(self.splits[cell.dataset][cell.split])
            case = case_of(_loaded(self.data[cell.dataset]), unseen)
            case = case.with_ratio(setting.get("ratio", 1.0), cell.seed)
            ks = tuple(k for k in protocol.ks if k <= case.X.shape[1])
        if not ks:
            n_features = case.X.shape[1]
            raise ValueError(f"{cell.dataset} has only {n_features} features. Ask for fewer.")
        if "targets" in setting:
            method = replace(method, attributes=setting["targets"] == "attributes")
        seed, found = protocol.seed, rank(method, cell.params, case, ks, protocol.seed)
        names = {str(k): case.names(features) for k, features in found.by_k.items()}
        most = names[str(max(ks))]
        nested = all(chosen == most[: len(chosen)] for chosen in names.values())
        extra: dict[str, Any] = {} if nested else {"features_by_k": names}
        if cell.experiment == "convergence":
            extra["objective"] = np.asarray(found.selector.objective_).tolist()
        said = getattr(found.selector, "knowledge_", {}).get("unseen classes", "")
        extra |= {"unseen classes": said} if "not used" in said else {}
        return Result(scores(case, found, protocol.n_repeats, seed), found.seconds, most, extra)


@lru_cache(maxsize=2)  # the next cells need the same rows
def case_of(data: ZeroShotDataset, unseen: tuple) -> Case:
    """Return seen and unseen rows of a split."""
    return Case.of(data.with_unseen(list(unseen)))


def plan(
    experiments: Iterable[Experiment], bench: Bench, methods: Sequence[str] = ()
) -> tuple[list[Cell], list[str]]:
    """Return the cells of the experiments, and what was left out, in words.

    Grids come last: a run that is stopped early has the comparison at defaults. ``methods``
    replace the experiments' own; those that lack the parameter it varies, or need dense rows
    where there is no room, are left out.
    """
    cells: list[Cell] = []
    grids: list[Cell] = []
    notes: dict[str, None] = {}
    fast, seed = bench.protocol.fast, bench.protocol.seed
    for entry in experiments:
        ways = (fast and entry.quick) or entry.settings
        for m in map(bench.method, methods or entry.methods):
            if not all(m.takes(way.keys() - SETTINGS) for way in ways):
                notes[f"{m.label} has no parameter that {entry.name} varies: left out."] = None
                continue
            for where, size, way in _places(ways, bench):
                if not m.fits(size):
                    text = f"{m.label} needs dense rows, too many of them in {where[0]}"
                    notes[f"{text}: left out."] = None
                    continue
                place, params = (entry.name, *where, m.name), m.params(size)
                setting = {name: value for name, value in way.items() if name in SETTINGS}
                own = params | {name: way[name] for name in way if name not in SETTINGS}
                label = m.label + (f" ({way['targets']})" if "targets" in way else "")
                draws = (FAST_DRAWS if fast else DRAWS) if way.get("ratio", 1.0) < 1.0 else 1
                cells += [Cell(*place, own, setting, seed + i, label) for i in range(draws)]
                points = m.grid(size) if entry.oracle else []
                grids += [Cell(*place, params | p, {}, seed, m.label + ORACLE) for p in points]
    order = {where: i for i, where in enumerate(bench.sizes)}
    for part in (cells, grids):
        part.sort(key=lambda cell: order.get((cell.dataset, cell.split), 0))
    return [*cells, *grids], list(notes)


def _places(ways: Iterable[dict[str, Any]], bench: Bench) -> Iterator[tuple[Place, Size, dict]]:
    """Each way with the data sets and splits where it is run, and their sizes."""
    for way in ways:
        if "n" in way:
            size = Size(way["n"], 20, bench.protocol.fast)
            yield ("synthetic", f"n={way['n']}, d={way['d']}"), size, way
        else:
            yield from ((where, size, way) for where, size in bench.sizes.items())


@dataclass(frozen=True)
class Study:
    """What is to be run: experiments of the paper, on which data, with which methods.

    Parameters
    ----------
    experiments : sequence of str
        Names of `EXPERIMENTS`, or "all".
    data : path, optional
        Folder of data sets; by default the bundled sample.
    datasets, methods : sequence of str, optional
        Only these data sets (beginnings of names will do); these methods instead of all.
    splits : int, optional
        At most so many class splits per data set.
    fast : bool, default=False
        Fewer k, K-means runs, grid points and splits.
    """

    experiments: Sequence[str]
    data: Any = None
    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    splits: int | None = None
    fast: bool = False
    seed: int = 0


def reproduce(
    study: Study,
    run_folder: Any,
    *,
    n_jobs: int | None = None,
    command: str = "",
    verbose: bool = False,
) -> Summary:
    """Run experiments of the paper into a run directory; continue what is there.

    Parameters
    ----------
    study : Study
    run_folder : path
        Results are in its ``results.sqlite``.
    n_jobs, verbose
        See `semfs.lab.run`.
    command : str, optional
        How this was called, for the report.
    """
    if Path(run_folder).is_file():
        raise ValueError(f"{run_folder} is a file; a folder for the results was expected.")
    entries = find_experiments(study.experiments)
    for name in study.methods:
        find_method(name)
    made_up = all("n" in entry.settings[0] for entry in entries)
    data = {} if made_up else find_data(study.data, study.datasets)
    with closing(Store(run_folder)) as store:
        limit = FAST_SPLITS if study.fast and study.splits is None else study.splits
        splits = {n: class_splits(_loaded(load), limit, study.seed) for n, load in data.items()}
        quick = Protocol((5, 20, 50), 5, study.seed, True)
        protocol = quick if study.fast else Protocol(seed=study.seed)
        bench = _prepare(store, data, splits, protocol)
        advice = "Use another --out, or the same options as before (--fast, --seed)."
        store.pin("protocol", asdict(protocol), advice)
        cells, notes = plan(entries, bench, study.methods)
        if not cells:
            raise ValueError(f"{' '.join(notes)} Name other methods, or none for its own.")
        if missing := [p for p in PAPER["datasets"] if data and not _named(data, p)]:
            notes.insert(0, f"Data sets of the paper that are absent: {', '.join(missing)}.")
        total, now = Summary(notes=notes), datetime.now(UTC).isoformat(timespec="seconds")
        facts = {"started": store.info().get("started", now), "command": command}
        for name, value in (facts | {"versions": versions(), "notes": notes}).items():
            store.set_info(name, value)
        for timed, jobs in ((False, n_jobs), (True, 1)):  # timings are taken one at a time
            part = [cell for cell in cells if ("n" in cell.setting) == timed]
            total += run(part, store, bench, n_jobs=jobs, verbose=verbose)
        return total


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
    ks, n_repeats : sequence of int, int
        Numbers of features; K-means runs per score.
    n_jobs, verbose
        See `semfs.lab.run`.

    Returns
    -------
    rows : list of dict
        One per split, method and k (see `semfs.lab.Store.rows`), for `write_report`.
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
    draw: Any = class_splits if n_splits is None else random_splits
    splits = draw(data, n_splits, seed)
    d, ks = data.X.shape[1], sorted(set(ks))
    if ks[0] > d:
        raise ValueError(f"{data.name} has {d} features, {ks[0]} were asked for (-k).")
    assert_all_finite(data.X, input_name=data.name)
    store, protocol = Store(None), Protocol(tuple(ks), n_repeats, seed)
    bench = _prepare(store, {data.name: lambda: data}, {data.name: splits}, protocol, own)
    if len(names) > 1 and np.array_equal(data.attributes, np.eye(len(data.attributes))):
        names = [name for name in names if name != "semfs-described"]  # labels describe none
    cells, notes = plan([Experiment("clustering", names)], bench)
    summary = run(cells, store, bench, n_jobs=n_jobs, verbose=verbose)
    rows, said = store.rows(), "unseen classes"
    reasons = {r["label"]: r["extra"][said] for r in rows if said in r["extra"]}
    summary.notes += [*notes, *(f"{who}: {said}: {why}." for who, why in reasons.items())]
    spread = StandardScaler(with_mean=False).fit(data.X).var_
    if not data.scale and (share := spread.max() / max(spread.sum(), 1e-300)) > MOST_VARIANCE:
        most = f"{data.feature_names[spread.argmax()]} has {share:.0%} of the variance"
        summary.notes.append(f"{most}. If units differ, use --scale.")
    if ks[-1] > d:
        summary.notes.append(f"{data.name} has {d} features; a larger -k was left out.")
    return rows, summary


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
        X, is_sparse = data.X, sparse.issparse(data.X)
        by_split = {s: split_facts(data, unseen) for s, unseen in splits[name].items()}
        for split, fact in by_split.items():
            room = fact["n_seen"] * X.shape[1] * 8 * is_sparse
            sizes[name, split] = Size(fact["n_seen"], len(fact["seen"]), protocol.fast, room)
        parts = [X.data, X.indices, X.indptr, X.shape] if is_sparse else [X]
        found = joblib.hash([*parts, data.y.tolist(), data.attributes.to_numpy()])
        advice = "Its contents have changed; use another --out for the new data."
        store.pin(f"fingerprint of {name}", found, advice)
        facts[name] = {"name": name, **next(iter(by_split.values())), "splits": by_split}
    store.set_info("datasets", facts)
    return Bench(loaders, splits, protocol, sizes, own or {})
