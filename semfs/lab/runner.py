"""`Runner`: computes one job of a comparison of methods on class splits.

One fit on the seen classes gives the features for all numbers of features k. Scores are means
over single K-means runs on the unseen classes, from the same starting samples for all methods.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import joblib
import numpy as np
from scipy import sparse

from semfs._typing import Indices
from semfs.baselines import RandomSelector
from semfs.lab.compared_method import Method, Size
from semfs.lab.data import Loader, load
from semfs.lab.fitting import fit_selector, prepare
from semfs.lab.measures import ZERO_SHOT
from semfs.lab.methods import find_method
from semfs.lab.scoring import score_features, score_random_draws
from semfs.lab.sources import Sources, sources_of
from semfs.lab.splits import (
    SplitData,
    Splits,
    dataset_facts,
    preprocessed_split,
    synthetic_data,
)
from semfs.lab.store import Job, Result, Store
from semfs.lab.zero_shot import zero_shot

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from semfs.datasets import ZeroShotDataset

#: Numbers of selected features, as in the paper: 5, 10, …, 50.
KS = tuple(range(5, 55, 5))

#: Settings of a job that change its samples or targets; others are selector parameters.
SETTINGS = ("ratio", "targets", "preprocessing", "n", "d")

#: Bytes of a float64, to which methods convert sparse samples that they cannot take.
FLOAT_BYTES = 8

#: A data set and a split.
Place: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Protocol:
    """Settings that all jobs of a run have in common.

    Parameters
    ----------
    ks : tuple of int
        Numbers of selected features.
    n_repeats : int
        K-means runs per score.
    seed : int
    fast : bool
        Whether this is a quick trial.
    unlabeled_half : bool
        Whether methods that use unlabeled samples get half of each unseen class without labels.
        For all methods, only the other half is then clustered.
    measures : tuple of str
        Measures in addition to ACC and NMI (see `semfs.lab.measures`).
    """

    ks: tuple[int, ...] = KS
    n_repeats: int = 20
    seed: int = 0
    fast: bool = False
    unlabeled_half: bool = False
    measures: tuple[str, ...] = ()

    def as_stored(self) -> dict[str, Any]:
        """Return the protocol as runs store it, without fields that earlier versions lacked."""
        stored = asdict(self)
        for later in ("unlabeled_half", "measures"):
            if not stored[later]:
                del stored[later]
        return stored


@dataclass(frozen=True)
class Runner:
    """Compute jobs in worker processes.

    Parameters
    ----------
    loaders : mapping
        Data sets by name.
    splits : mapping
        Unseen classes by data set and split.
    protocol : Protocol
    sizes : mapping
        Size of the seen part by data set and split.
    user_methods : mapping
        Methods that `find_method` does not know, by name.
    """

    loaders: Mapping[str, Loader]
    splits: Mapping[str, Splits]
    protocol: Protocol
    sizes: Mapping[Place, Size] = field(default_factory=dict)
    user_methods: Mapping[str, Method] = field(default_factory=dict)

    def method(self, name: str) -> Method:
        """Return a method by name."""
        if name in self.user_methods:
            return self.user_methods[name]
        return find_method(name)

    def compute(self, job: Job) -> Result:
        """Compute one job."""
        split = self.samples(job)
        ks = self._possible_ks(job, split)
        method = self.method(job.method)
        if "targets" in job.setting:
            method = replace(method, attributes=job.setting["targets"] == "attributes")
        # Preparation, such as making samples dense, is not part of the time of a method.
        seed = self.protocol.seed
        selector, samples = prepare(method, dict(job.params), split, ks, seed)
        start = time.perf_counter()
        cpu_start = time.process_time()
        features_by_k, fitted = fit_selector(
            selector,
            samples,
            ks,
            method.uses_unlabeled,
        )
        seconds = time.perf_counter() - start
        # Unlike the time on the clock, it does not depend on what else the machine does.
        cpu_seconds = time.process_time() - cpu_start
        extra = {"cpu_seconds": cpu_seconds, **_facts_of_fit(job, fitted)}
        sources = _imported_sources(job.method)
        if sources:
            extra["sources"] = sources
        options = (self.protocol.n_repeats, seed, self.protocol.measures)
        if isinstance(fitted, RandomSelector):
            extra["random_draws"] = True
            scores = score_random_draws(split, fitted, ks, *options)
            return Result(scores, seconds, extra=extra)
        scores = score_features(split, features_by_k, *options)
        features, by_k = _feature_names(split, features_by_k)
        if by_k:
            extra["features_by_k"] = by_k
        if ZERO_SHOT in self.protocol.measures and len(split.y_unseen):
            extra["recalls"] = _recalls(split, features_by_k, seed)
        return Result(scores, seconds, features, extra)

    def samples(self, job: Job) -> SplitData:
        """Return the samples of a job."""
        setting = job.setting
        if "n" in setting:
            return synthetic_data(setting["n"], setting["d"], job.seed)
        data = load(self.loaders[job.dataset])
        unseen = tuple(self.splits[job.dataset][job.split])
        split = preprocessed_split(
            data,
            unseen,
            job.split,
            setting.get("preprocessing", "raw"),
        )
        # For all methods of the run, so that they are scored on the same samples.
        if self.protocol.unlabeled_half:
            split = split.with_unlabeled_half(self.protocol.seed)
        return split.with_ratio(setting.get("ratio", 1.0), job.seed)

    def _possible_ks(self, job: Job, split: SplitData) -> tuple[int, ...]:
        """Return the numbers of features for which there are enough; one for timings."""
        n_features = split.X.shape[1]
        if "n" in job.setting:
            return (min(max(self.protocol.ks), n_features),)
        ks = tuple(k for k in self.protocol.ks if k <= n_features)
        if not ks:
            raise ValueError(
                f"{job.dataset} has only {n_features} features. Select fewer features."
            )
        return ks


@cache  # a process goes on with the source that it imported first
def _imported_sources(method: str) -> Sources:
    """Digests of the files that define a method of the user's, as this process uses them."""
    return sources_of(method)


def _facts_of_fit(job: Job, fitted: BaseEstimator) -> dict[str, Any]:
    """Return what the report says of a fit: its objective, and what it could not use."""
    facts: dict[str, Any] = {}
    if job.experiment == "convergence":
        if not hasattr(fitted, "objective_"):
            raise ValueError(
                f"{type(fitted).__name__} has no objective_ after fit, "
                "but the experiment 'convergence' needs it. Leave out "
                "this selector, or store the objective of each "
                "iteration."
            )
        facts["objective"] = np.asarray(fitted.objective_).tolist()
    # baselines have no such attribute
    not_used = {source: fitted.knowledge_[source] for source in getattr(fitted, "unused_", ())}
    if not_used:
        facts["not_used"] = not_used
    return facts


def _recalls(
    split: SplitData, features_by_k: Mapping[int, Indices], seed: int
) -> dict[str, Any]:
    """Recalls of each class by zero-shot prediction with the largest number of features."""
    k = max(features_by_k)
    return {"k": int(k), **zero_shot(split, features_by_k[k], seed).recalls()}


def _feature_names(
    split: SplitData, features_by_k: Mapping[int, Indices]
) -> tuple[list[str], dict[str, list[str]]]:
    """Names for the largest k, and by k if these do not begin with those for a smaller k."""
    names = {str(k): split.names_of(features) for k, features in features_by_k.items()}
    # Most methods rank features: one list says it for all k.
    longest = max(names.values(), key=len, default=[])
    is_nested = all(chosen == longest[: len(chosen)] for chosen in names.values())
    return longest, {} if is_nested else names


def make_runner(
    store: Store,
    loaders: Mapping[str, Loader],
    splits: Mapping[str, Splits],
    protocol: Protocol,
    user_methods: Mapping[str, Method] | None = None,
) -> Runner:
    """Return a runner, after checking that the data are those of earlier jobs in the store."""
    sizes: dict[Place, Size] = {}
    # A continued run may have other data sets than before; keep the facts of both.
    facts = store.info().get("datasets", {})
    for name, loader in loaders.items():
        data = load(loader)
        store.pin(
            f"fingerprint of {name}",
            _fingerprint(data),
            "The contents of the data have changed. Use another --out for the new data.",
        )
        facts[name] = {**dataset_facts(data, splits[name]), "name": name}
        for split, of_split in facts[name]["splits"].items():
            sizes[name, split] = _size(data, of_split, protocol.fast)
    store.set_info("datasets", facts)
    return Runner(loaders, splits, protocol, sizes, user_methods or {})


def _fingerprint(data: ZeroShotDataset) -> str:
    """Hash of everything that results depend on."""
    X = data.X
    # joblib hashes arrays by their contents, but sparse matrices by their pickle.
    parts = [X.data, X.indices, X.indptr, X.shape] if sparse.issparse(X) else [X]
    fingerprint: str = joblib.hash([*parts, data.y.tolist(), data.attributes.to_numpy()])
    return fingerprint


def _size(
    data: ZeroShotDataset,
    facts: Mapping[str, Any],
    fast: bool,
) -> Size:
    """Return the size of the seen part of a split."""
    dense_bytes = 0
    if sparse.issparse(data.X):
        dense_bytes = facts["n_seen"] * facts["n_features"] * FLOAT_BYTES
    return Size(facts["n_seen"], len(facts["seen"]), fast, dense_bytes)
