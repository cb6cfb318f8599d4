"""Measures beside ACC and NMI: ARI, neighbors, zero-shot prediction, and the user's own.

A measure of the user's is a function ``metric(X, y)`` that returns a number, larger is better:
X (n, k) are samples of the unseen classes, restricted to the selected features, and y (n,)
their classes. It is named as ``module:function``.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from semfs._typing import Indices, LabelsLike, Matrix
from semfs.lab.confusion import seen_confusion
from semfs.lab.splits import SplitData
from semfs.lab.zero_shot import zero_shot

#: Names of the measures that `evaluate` adds to ACC and NMI.
ARI = "ari"
KNN = "knn"
MORE_MEASURES = (ARI, KNN)
#: Those that it adds if classes are described: accuracy on the unseen classes, and harmonic
#: mean of the accuracies on seen and unseen classes when all compete.
ZERO_SHOT = "zero_shot"
HARMONIC = "harmonic"
ZERO_SHOT_MEASURES = (ZERO_SHOT, HARMONIC)

#: Names that a measure of the user's cannot have: they are columns of a row.
RESERVED = {"acc", "nmi", "k", "seconds", "seed", *MORE_MEASURES, *ZERO_SHOT_MEASURES}

#: A measure of the user's.
Metric: TypeAlias = Callable[[Matrix, LabelsLike], float]


def metric_name(measure: str) -> str:
    """Return the name of a measure in rows and tables.

    >>> metric_name("my_module:silhouette")
    'silhouette'
    """
    return measure.rpartition(":")[2]


def find_metric(measure: str) -> Metric:
    """Return the function named by ``module:function``.

    The module must be installed or located in the working directory.
    """
    if not isinstance(measure, str):
        name = getattr(measure, "__name__", type(measure).__name__)
        raise ValueError(
            f"metrics holds the object {name!r}, but metrics must be "
            "given as text so that other processes can import them. Save "
            "the function in a file my_metrics.py, and pass "
            f"'my_metrics:{name}'."
        )
    module_name, _, name = measure.rpartition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; workers get the same path
    try:
        found: Metric = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The metric {measure!r} could not be loaded ({error}). Give module:function, with "
            "a module in this directory or an installed one."
        ) from error
    if not callable(found):
        raise ValueError(f"The metric {measure!r} is not a function.")
    _check_arguments(measure, found)
    return found


def _check_arguments(measure: str, metric: Metric) -> None:
    """Raise if a metric cannot be called as ``metric(X, y)``."""
    try:
        signature = inspect.signature(metric)
    except ValueError:
        return  # some functions in C do not tell
    try:
        signature.bind("X", "y")
    except TypeError as error:
        raise ValueError(
            f"The metric {measure!r} takes {signature}, but it is called as metric(X, y), with "
            "the samples of the unseen classes and their labels. Write a function of two "
            f"arguments that returns a number ({error})."
        ) from error


def check_metrics(measures: Sequence[str]) -> None:
    """Raise an error if a metric does not exist or if two metrics have the same name."""
    for measure in measures:
        find_metric(measure)
    names = [metric_name(measure) for measure in measures]
    for measure, name in zip(measures, names):
        if name in RESERVED or name.endswith("_sd"):
            raise ValueError(
                f"The metric {measure!r} has the same name as a column of "
                "the results. Rename the metric."
            )
        if names.count(name) > 1:
            raise ValueError(f"Two metrics are named {name!r}. Rename one of them.")


def single_scores(
    split: SplitData,
    features: Indices,
    measures: Sequence[str],
    seed: int,
) -> dict[str, float]:
    """Return the measures of features that do not depend on a K-means run."""
    found = {}
    if ZERO_SHOT in measures:
        # Both come from one fit.
        predicted = zero_shot(split, features, seed)
        found[ZERO_SHOT] = predicted.accuracy
        found[HARMONIC] = predicted.harmonic_mean
    for measure in measures:
        if measure == KNN:
            found[KNN] = _seen_accuracy(split, features, seed)
        elif measure != ARI and measure not in ZERO_SHOT_MEASURES:
            returned = find_metric(measure)(split.X_unseen[:, features], split.y_unseen)
            found[metric_name(measure)] = _as_number(measure, returned)
    return found


def _as_number(measure: str, returned: object) -> float:
    """Return what a metric returned as a number. Raise if it is none, or not finite."""
    try:
        value = float(returned)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"The metric {measure} returned {returned!r:.80}. It must return a finite number."
        )
    return value


def _seen_accuracy(split: SplitData, features: Indices, seed: int) -> float:
    """Balanced accuracy of nearest neighbors on held-out samples of the seen classes."""
    return seen_confusion(split.X[:, features], split.y, split.seed(seed)).accuracy()
