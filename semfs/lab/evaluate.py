"""`evaluate`: compare selectors on the unseen classes of one data set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite

from semfs._typing import Label, PathLike
from semfs.datasets import ZeroShotDataset
from semfs.feature_names import resolve_features
from semfs.lab.compared_method import Method
from semfs.lab.data import open_data
from semfs.lab.details import details_of
from semfs.lab.fitting import SIZE_PARAMETERS
from semfs.lab.measures import MORE_MEASURES, ZERO_SHOT_MEASURES, check_metrics
from semfs.lab.methods import METHODS, find_method, with_rules
from semfs.lab.parallel import Summary, run
from semfs.lab.plan import Experiment, plan
from semfs.lab.runner import KS, Protocol, make_runner
from semfs.lab.sources import forget_outdated
from semfs.lab.splits import (
    RANDOM_SPLITS,
    Splits,
    class_splits,
    listed_splits,
    random_splits,
)
from semfs.lab.store import Job, Row, Store
from semfs.lab.zero_shot import is_described
from semfs.labels import FEW_SAMPLES, similar_labels
from semfs.validation import counted, listed

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

#: SemFS, and the rivals that are fast and that are often as good.
USUAL_METHODS = ("semfs", "between", "markers", "variance", "random")

#: A feature with more than this share of the total variance decides K-means nearly alone.
DOMINANT_SHARE = 0.95

#: Said in every report of a run with groups.
GROUPS_FAIL = (
    "Groups fail as a whole but have no other effect: the methods select "
    "single features and are compared at equal numbers of features, "
    "regardless of groups and costs."
)

#: Said in every report of a run with rules.
RULED = "{} of the panel apply only to these methods: {}. The other methods select freely."

#: Said in every report of a run with batches.
UNBATCHED = (
    "In each split, constant differences between {} batches were "
    "estimated from the samples of the seen classes and removed from all "
    "samples, for all methods. Samples of batches without seen classes "
    "were not changed."
)

#: Said in every report of a run with a method that uses unlabeled samples.
HALVED = (
    "Methods that use unlabeled samples ({}) may use half of the samples "
    "of each unseen class, without labels. For all methods, the other "
    "half is clustered."
)


def evaluate(
    data: ZeroShotDataset | PathLike,
    methods: Sequence[str | BaseEstimator | Method] = USUAL_METHODS,
    *,
    n_splits: int | None = None,
    n_unseen: int | None = None,
    splits: Sequence[Sequence[Label]] | None = None,
    ks: Sequence[int] = KS,
    n_repeats: int = 20,
    n_jobs: int | None = None,
    seed: int = 0,
    verbose: bool = False,
    details: bool = False,
    metrics: Sequence[str] = (),
    groups: Mapping[str, str] = MappingProxyType({}),
    rules: Mapping[str, Any] = MappingProxyType({}),
    run_folder: PathLike | None = None,
) -> tuple[list[Row], Summary]:
    """Compare selectors by how well K-means finds the unseen classes on their features.

    Each method selects features on the seen classes. If classes have descriptions, samples of
    unseen classes are also classified by these descriptions (`semfs.lab.zero_shot`), with the
    same predictor for all methods.

    Parameters
    ----------
    data : ZeroShotDataset or str
        A data set, or a name or file for `semfs.lab.data.open_data`. The ``unseen`` classes of
        the data set are clustered. If it names no unseen classes, or if ``n_splits`` is given,
        random classes are treated as unseen.
    methods : sequence of str or selectors
        Names in `semfs.lab.methods.METHODS`, names of the form ``module:Selector``, or
        scikit-learn selectors. A selector is labeled by its class and its non-default
        parameters. If one of the methods uses unlabeled samples ("semfs-unlabeled"), it gets
        half of the samples of each unseen class. For all methods, only the other half is then
        clustered.
    n_splits : int, optional
        Number of random class splits. They are used even if the data set names unseen classes.
    n_unseen : int, optional
        Number of unseen classes in a random split. By default, it is the number of unseen
        classes that the data set names, or 30 % of the classes if it names none.
    splits : sequence of sequences of class labels, optional
        Your own class splits, each as a list of unseen classes. Evaluate all splits in one
        call, because a report computes intervals over splits from the rows of a single call.
    ks, n_repeats : sequence of int, int
        Numbers of features to evaluate, and the number of K-means runs per score.
    n_jobs, verbose
        See `semfs.lab.run`.
    details : bool, default=False
        Whether ``summary.details`` shows which classes are recognized and how scores decrease
        if features fail (see `semfs.lab.details`).
    metrics : sequence of str
        Further measures, each given as ``module:function`` (see `semfs.lab.measures`).
    run_folder : path, optional
        Directory in which finished jobs are stored. If a run was interrupted, repeating the
        call continues it. By default, results are returned but not stored.
    groups : mapping of str to str
        The group of each feature. In the details, all features of a group fail together. Scores
        are still shown by number of features.
    rules : mapping
        The rules ``include`` and ``min_per_class`` of `semfs.SemFS`. They apply only to methods
        that are SemFS with the direct solver, because other methods do not support rules.

    Returns
    -------
    rows : list of dict
        Results for `write_report`, with one row per split, method and k (see
        `semfs.lab.Store.rows`).
    summary : Summary
        Failures and notes. ``info`` holds the facts that `write_report` shows.

    Examples
    --------
    >>> rows, _ = evaluate("sample", ["variance"], ks=[5], n_repeats=2, n_jobs=1)
    >>> rows[0]["split"], rows[0]["k"], len(rows[0]["features"])
    ('given', 5, 5)
    """
    chosen = _named_methods(methods)
    check_metrics(metrics)
    if not isinstance(data, ZeroShotDataset):
        data = open_data(data)
    unseen_by_split = _splits(data, splits, n_splits, n_unseen, seed)
    ks = sorted(set(ks))
    _check_data(data, ks)
    chosen, ruled = with_rules(chosen, _by_index(rules, data))
    uses_unlabeled = [method.label for method in chosen if method.uses_unlabeled]
    protocol = Protocol(
        tuple(ks),
        n_repeats,
        seed,
        unlabeled_half=bool(uses_unlabeled),
        measures=(*_measures(data), *metrics),
    )
    if run_folder is not None and Path(run_folder).is_file():
        raise ValueError(f"{run_folder} is a file, but a folder for the results was expected.")
    with closing(Store(run_folder)) as store:
        rows, summary = _compare(
            store, data, unseen_by_split, protocol, chosen, n_jobs, verbose
        )
    summary.notes += _notes_on_options(uses_unlabeled, groups)
    summary.notes += _notes_on_rules(rules, ruled)
    summary.notes += [*_notes_on_knowledge(rows), *_notes_on_data(data)]
    # First, because it says what is missing from the tables.
    summary.notes[:0] = _notes_on_sizes(data, ks)
    if details:
        summary.details = details_of(
            data,
            unseen_by_split,
            rows,
            n_repeats=n_repeats,
            seed=seed,
            unlabeled_half=protocol.unlabeled_half,
            groups=groups,
        )
    return rows, summary


def _compare(
    store: Store,
    data: ZeroShotDataset,
    splits: Splits,
    protocol: Protocol,
    methods: list[Method],
    n_jobs: int | None,
    verbose: bool,
) -> tuple[list[Row], Summary]:
    """Return the scores of methods on all class splits, and the facts about the run."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    _pin_what_jobs_depend_on(store, data, splits, protocol, methods)
    runner = make_runner(
        store,
        {data.name: lambda: data},
        {data.name: splits},
        protocol,
        {method.name: method for method in methods},
    )
    names = [method.name for method in _without_repetition(methods, data)]
    jobs, notes = plan([Experiment("clustering", names)], runner)
    changed = forget_outdated(store, jobs)
    summary = run(jobs, store, runner.compute, n_jobs=n_jobs, verbose=verbose)
    summary.notes += notes + changed
    started = store.info().get("started", started)
    store.set_info("started", started)
    summary.info = {
        "started": started,
        "datasets": {data.name: store.info()["datasets"][data.name]},
    }
    return _rows_of_jobs(store, jobs), summary


def _pin_what_jobs_depend_on(
    store: Store,
    data: ZeroShotDataset,
    splits: Splits,
    protocol: Protocol,
    methods: Sequence[Method],
) -> None:
    """Refuse a run directory with results of other data, splits, options or selectors."""
    advice = "Use another folder for the run, or the same options as before."
    store.pin("protocol", protocol.as_stored(), advice)
    prepared: dict[str, Any] = {"scale": data.scale, "impute": data.impute}
    if data.batch is not None:
        prepared["batch"] = joblib.hash(data.batch)
    store.pin(f"preparation of {data.name}", prepared, advice)
    for name, unseen in splits.items():
        classes = sorted(str(label) for label in unseen)
        store.pin(f"unseen classes of {data.name}, {name}", classes, advice)
    for method in methods:
        # The source of other methods is recorded with each job.
        is_instance = not isinstance(method.selector, type)
        if is_instance and method.name not in METHODS:
            contents = joblib.hash(method.selector)
            store.pin(f"selector {method.name}", contents, advice)


def _rows_of_jobs(store: Store, jobs: Sequence[Job]) -> list[Row]:
    """Return the rows of these jobs, with the methods in their order.

    A run directory may have other rows.
    """
    place: dict[str, int] = {}
    for job in jobs:
        place.setdefault(job.method, len(place))
    wanted = {_identity(job.columns) for job in jobs}
    rows = [row for row in store.rows() if _identity(row) in wanted]
    return sorted(rows, key=lambda row: place[row["method"]])


def _identity(columns: Row) -> tuple[str, ...]:
    """What tells a job of this comparison from others, as it is stored."""
    params = json.dumps(columns["params"], sort_keys=True)
    return columns["dataset"], columns["split"], columns["method"], params


def _notes_on_rules(rules: Mapping[str, Any], ruled: Sequence[str]) -> list[str]:
    """Return a note on the methods that rules hold for, if there are any."""
    return [RULED.format(" and ".join(rules), ", ".join(ruled))] if ruled else []


def _by_index(rules: Mapping[str, Any], data: ZeroShotDataset) -> dict[str, Any]:
    """Return the rules with included features by number: methods get X without names."""
    found = dict(rules)
    if "include" in found:
        names = data.feature_names.tolist()
        found["include"] = resolve_features("include", found["include"], names).tolist()
    return found


def _measures(data: ZeroShotDataset) -> tuple[str, ...]:
    """Return the measures besides ACC and NMI."""
    # Labels alone do not say what unseen classes are like.
    predicted = ZERO_SHOT_MEASURES if is_described(data.attributes) else ()
    return (*MORE_MEASURES, *predicted)


def _splits(
    data: ZeroShotDataset,
    listed: Sequence[Sequence[Label]] | None,
    n_splits: int | None,
    n_unseen: int | None,
    seed: int,
) -> Splits:
    """The class splits that are listed, or random ones, or those of the data set."""
    if listed is not None:
        if n_splits is not None or n_unseen is not None:
            raise ValueError(
                "splits lists class splits, but n_splits and n_unseen "
                "draw them at random. Give either splits or the other "
                "two, not both."
            )
        return listed_splits(data, listed)
    # A number asks for random splits, also of a data set that names one.
    if n_splits is None and n_unseen is None:
        return class_splits(data, seed=seed)
    if n_splits is None:
        n_splits = RANDOM_SPLITS
    return random_splits(data, n_splits, seed, n_unseen)


def _named_methods(methods: Sequence[str | BaseEstimator | Method]) -> list[Method]:
    """Return the methods. Each selector of the user gets a distinct label."""
    found: list[Method] = []
    n_selectors = 0
    for given in methods:
        method = find_method(given)
        if not isinstance(given, str | Method):
            n_selectors += 1
            label = _with_changed_parameters(method.label, given)
            # Two selectors of one class need two names.
            if any(label in (other.name, other.label) for other in found):
                label = f"{label} #{n_selectors}"
            method = replace(method, name=label, label=label)
        found.append(method)
    return found


def _with_changed_parameters(label: str, selector: BaseEstimator) -> str:
    """Return a label with the parameters that are not the defaults, if they are short.

    >>> from semfs import SemFS
    >>> _with_changed_parameters("SemFS", SemFS(20, gamma=1.0))
    'SemFS(gamma=1.0)'
    """
    defaults = {
        name: parameter.default
        for name, parameter in signature(type(selector)).parameters.items()
    }
    changed = [
        f"{name}={value!r}"
        for name, value in selector.get_params(deep=False).items()
        if isinstance(value, bool | int | float | str | None)
        and name not in SIZE_PARAMETERS
        and value != defaults.get(name)
    ]
    return f"{label}({', '.join(changed)})" if changed else label


def _check_data(data: ZeroShotDataset, ks: Sequence[int]) -> None:
    """Raise if data have fewer features than the smallest k, or missing values."""
    n_features = data.X.shape[1]
    if ks[0] > n_features:
        raise ValueError(
            f"{data.name} has {n_features} features, fewer than the "
            f"{ks[0]} to be selected. Select fewer features."
        )
    assert_all_finite(data.X, input_name=data.name, allow_nan=data.impute)


def _without_repetition(
    methods: list[Method],
    data: ZeroShotDataset,
) -> list[Method]:
    """Return the methods, without "semfs-described" if the table has only labels.

    Such a table says nothing about unseen classes, so the scores would be those of "semfs".
    """
    # Asked for alone, it is run all the same: no other method has its numbers.
    if len(methods) == 1 or is_described(data.attributes):
        return methods
    return [method for method in methods if method is not METHODS["semfs-described"]]


def _notes_on_options(
    uses_unlabeled: Sequence[str],
    groups: Mapping[str, str],
) -> list[str]:
    """Return what methods with unlabeled samples, and groups, mean for the comparison."""
    notes = []
    if uses_unlabeled:
        notes.append(HALVED.format(", ".join(uses_unlabeled)))
    if groups:
        notes.append(GROUPS_FAIL)
    return notes


def _notes_on_knowledge(rows: Sequence[Row]) -> list[str]:
    """Return why selectors did not use a source of information, once per method and source."""
    reasons: dict[tuple[str, str], str] = {}
    for row in rows:
        for source, text in row["extra"].get("not_used", {}).items():
            reasons[row["label"], source] = text
    return [f"{label}: {source}: {text}." for (label, source), text in reasons.items()]


def _notes_on_sizes(data: ZeroShotDataset, ks: Sequence[int]) -> list[str]:
    """Return a note on the numbers of features that are larger than that of the data."""
    n_features = data.X.shape[1]
    too_large = [str(k) for k in ks if k > n_features]
    if not too_large:
        return []
    ks_left_out = ", ".join(too_large)
    return [f"k = {ks_left_out} left out, because {data.name} has only {n_features} features."]


def _notes_on_data(data: ZeroShotDataset) -> list[str]:
    """Return warnings about a dominant feature, and about labels and sizes of classes."""
    notes = [] if data.batch is None else [UNBATCHED.format(len(data.batch.classes))]
    # StandardScaler computes the variances of sparse matrices, too.
    variances = StandardScaler(with_mean=False).fit(data.X).var_
    # A constant matrix has no variance to share.
    share = variances.max() / max(variances.sum(), np.finfo(np.float64).tiny)
    if not data.scale and share > DOMINANT_SHARE:
        name = data.feature_names[variances.argmax()]
        notes.append(f"{name} has {share:.0%} of the variance. If units differ, use --scale.")
    sizes = {label: int((data.y == label).sum()) for label in data.classes.tolist()}
    similar = similar_labels(sizes)
    if similar:
        notes.append(similar[0].upper() + similar[1:])
    rare = [f"{label} ({size})" for label, size in sizes.items() if size < FEW_SAMPLES]
    if rare:
        notes.append(
            f"{counted(len(rare), 'class', 'classes')} with fewer than "
            f"{FEW_SAMPLES} samples: {listed(rare)}. If such a class is "
            "unseen, its recall is mostly chance but counts as much as "
            "that of a large class. To leave out such classes, use "
            f"--min-cells {FEW_SAMPLES}."
        )
    return notes
