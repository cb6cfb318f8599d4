"""Random calls of the public functions with hostile arrays: right answers, or clear refusals.

    python tools/fuzz_api.py --count 2000 --seed 1
    python tools/fuzz_api.py --only 1234 --seed 1        # call 1234 alone, with its traceback

Call i depends on the seed and i alone. A call may be refused with a ValueError or TypeError
(or a subclass) of semfs or scikit-learn. Anything else is reported: other exceptions, messages
of numpy and scipy, NaN in results, a RuntimeWarning, or more than a minute.
"""

from __future__ import annotations

import argparse
import collections
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

SECONDS = 60
#: What numpy and scipy say where we should have said something.
FOREIGN = (
    "array must not contain",
    "operands could not",
    "shapes ",
    "setting an array element",
    "zero-size array",
    "cannot convert float NaN",
    "singular",
    "did not converge",
    "truth value",
    "index ",
    "all the input arrays",
)
HARMLESS = ("Singular", "singular matrix (")


# ---- hostile data ----------------------------------------------------------------------


def matrix(rng: np.random.Generator, n: int, d: int) -> Any:
    """A matrix (n, d), ordinary or with something unusual."""
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(1, d))
    if rng.random() < 0.6:
        return X
    spoil = rng.choice(
        ["", "", "", "nan", "inf", "constant", "tiny", "huge", "copies", "far", "zeros", "ints"]
    )
    if spoil in ("nan", "inf") and X.size:
        X[rng.integers(n), rng.integers(d)] = np.nan if spoil == "nan" else np.inf
    elif spoil == "constant":
        X[:, rng.integers(d) :] = rng.normal()
    elif spoil == "tiny":
        X *= 10.0 ** -rng.integers(5, 320)
    elif spoil == "huge":
        X *= 10.0 ** rng.integers(5, 305)
    elif spoil == "copies":
        X = X[:, rng.integers(d, size=d)]
    elif spoil == "far":
        X += 10.0 ** rng.integers(3, 12)
    elif spoil == "zeros":
        X[rng.random(X.shape) < 0.9] = 0.0
    elif spoil == "ints":
        X = np.rint(X).astype(int)
    form = rng.choice(["", "", "", "float32", "csr", "csc", "object", "frame", "list"])
    if form == "float32":
        with np.errstate(over="ignore"):
            return X.astype(np.float32)
    if form in ("csr", "csc"):
        return sp.csr_array(X).asformat(form)
    if form == "object":
        return X.astype(object)
    if form == "frame":
        import pandas

        return pandas.DataFrame(X, columns=[f"g{j}" for j in range(d)])
    return X.tolist() if form == "list" else X


def labels(rng: np.random.Generator, n: int) -> Any:
    """Labels (n,), of few or many classes, of several types, some missing."""
    n_classes = int(rng.choice([1, 2, 3, 5, 9, max(1, n)]))
    codes = rng.integers(0, n_classes, n)
    if rng.random() < 0.5:
        return rng.integers(0, int(rng.integers(2, 8)), n)
    form = rng.choice(["", "", "text", "float", "marks", "none", "object"])
    if form == "text":
        return np.array([f"class {c}" for c in codes])
    if form == "float":
        return codes.astype(float)
    if form == "marks":
        return np.where(rng.random(n) < 0.4, -1, codes)
    if form == "none":
        return np.array([None if c == 0 else f"class {c}" for c in codes], dtype=object)
    if form == "object":
        return codes.astype(object)
    return codes


def table(rng: np.random.Generator, y: Any) -> Any:
    """Descriptions of the classes, and of some that do not occur; sometimes all alike."""
    found = [label for label in dict.fromkeys(np.asarray(y).tolist()) if label is not None]
    found = [label for label in found if label != -1]
    m = int(rng.integers(1, 6))
    rows = {label: rng.integers(0, 2, m).astype(float) for label in found}
    if rng.random() < 0.5 and found:
        new = [99, 98] if not isinstance(found[0], str) else ["new", "newer"]
        rows |= {label: rng.normal(size=m) for label in new}
    if rng.random() < 0.15:
        rows = {label: np.ones(m) for label in rows}
    if rng.random() < 0.1:
        unit = 10.0 ** rng.integers(-200, 200)
        rows = {label: unit * values for label, values in rows.items()}
    return rows


def weights(rng: np.random.Generator, n: int) -> Any:
    kind = rng.choice(["none"] * 5 + ["ordinary", "zeros", "all zero", "negative", "huge"])
    found: dict[str, Any] = {
        "none": None,
        "ordinary": rng.random(n),
        "zeros": rng.integers(0, 2, n).astype(float),
        "all zero": np.zeros(n),
        "negative": rng.normal(size=n),
        "huge": rng.random(n) * 1e200,
    }
    return found[str(kind)]


# ---- calls -----------------------------------------------------------------------------


def check(*results: Any) -> None:
    """Raise if a result holds NaN."""
    for result in results:
        array = result.toarray() if sp.issparse(result) else np.asarray(result)
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise AssertionError("NaN in a result")


def call_semfs(rng: np.random.Generator, folder: Path) -> None:
    """Fit, use, save and load a SemFS or SemFSCV."""
    from semfs import SemFS, SemFSCV, load, save

    n = int(rng.choice([1, 2, 5, 12, 40, 40, 90, 90]))
    d = int(rng.choice([1, 2, 6, 20]))
    X = matrix(rng, n, d)
    y = labels(rng, n)
    options: dict[str, Any] = {
        "n_features_to_select": [1, 3, d, 0.5, d + 3][rng.integers(5)],
        "attributes": table(rng, y) if rng.random() < 0.6 else None,
        "gamma": float(rng.choice([0.0, 1e-8, 1.0, 1.0, 10.0, 10.0, 1e8, 1e300])),
        "alpha": float(rng.choice([0.0, 1.0, 1.0, 1.0, 1e40, 1e300])),
        "label_weight": float(rng.choice([0.0, 0.0, 0.0, 1.0, 1.0, 1e40, 1e300])),
        "class_weight": [None, "balanced"][rng.integers(2)],
        "fit_intercept": bool(rng.integers(2)),
        "missing_values": str(rng.choice(["error", "error", "class-mean"])),
    }
    if rng.random() < 0.2:
        options["include"] = [int(rng.integers(d))]
    if rng.random() < 0.2:
        options["exclude"] = [int(rng.integers(d))]
    cv = rng.random() < 0.15
    if cv:
        selector: Any = SemFSCV(cv=2, n_repeats=1, param_grid={"gamma": [1.0, 10.0]}, **options)
    else:
        if rng.random() < 0.3:
            options["solver"] = "alternating"
        options["n_swaps"] = int(rng.choice([0, 3]))
        options["penalty_scale"] = str(rng.choice(["gram", "none"]))
        selector = SemFS(**options)
    how = rng.choice(["fit", "fit", "unlabeled", "partial_fit"])
    w = weights(rng, n)
    if how == "partial_fit" and not cv:
        half = max(1, n // 2)
        whole = X if hasattr(X, "shape") and not hasattr(X, "columns") else np.array(X, float)
        selector.partial_fit(whole[:half], y[:half], None if w is None else w[:half])
        selector.partial_fit(whole[half:], y[half:], None if w is None else w[half:])
    elif how == "unlabeled":
        n_more = int(rng.choice([1, 12, 60]))
        selector.fit(X, y, w, X_unlabeled=matrix(rng, n_more, d))
    else:
        selector.fit(X, y, w)
    if not hasattr(selector, "support_"):
        return  # partial_fit waits for a second class
    check(selector.scores_, selector.coef_, selector.within_, selector.objective_)
    check(selector.class_means_, selector.intercept_)
    Z = matrix(rng, int(rng.choice([1, 7])), d)
    use(selector, Z, rng)
    if rng.random() < 0.3:
        explained = selector.explain(n_bootstraps=int(rng.choice([0, 3])))
        check(explained.features["gain"])
    if rng.random() < 0.3:
        again = load(save(selector, folder / "selector.npz"))
        assert again.order_.tolist() == selector.order_.tolist()


def use(selector: Any, Z: Any, rng: np.random.Generator) -> None:
    """Transform, predict and score samples."""
    method = rng.choice(["transform", "predict", "decision_function", "predict_attributes"])
    result = getattr(selector, str(method))(Z)
    if method == "decision_function":
        scores = np.asarray(result)
        if np.isnan(scores).any():
            raise AssertionError("NaN in a score")
    elif method == "predict_attributes":
        check(result)


def call_baseline(rng: np.random.Generator, folder: Path) -> None:
    """Fit a method of comparison."""
    from semfs import baselines

    name = str(rng.choice(baselines.__all__))
    n = int(rng.choice([1, 2, 5, 12, 40]))
    d = int(rng.choice([1, 2, 6, 20]))
    y = labels(rng, n)
    selector = getattr(baselines, name)(int(rng.choice([1, 3])))
    X = matrix(rng, n, d)
    selector.fit(X, y)
    check(selector.scores_)
    selector.transform(matrix(rng, 3, d))


def call_evaluation(rng: np.random.Generator, folder: Path) -> None:
    """Scores of clusterings, and splits over classes."""
    from semfs import evaluation

    n = int(rng.choice([1, 2, 5, 40]))
    y = labels(rng, n)
    name = rng.choice(["pairs", "clusters", "folds", "shuffle", "knn"])
    if name == "pairs":
        measures: list[Callable] = [
            evaluation.clustering_accuracy,
            evaluation.normalized_mutual_info,
            evaluation.adjusted_rand,
        ]
        check(measures[rng.integers(3)](y, labels(rng, n)))
    elif name == "clusters":
        check(list(evaluation.cluster_scores(matrix(rng, n, 4), y, n_repeats=2)))
    elif name == "folds":
        list(evaluation.ClassKFold(int(rng.integers(1, 5))).split(np.zeros((n, 2)), y))
    elif name == "shuffle":
        list(evaluation.ClassShuffleSplit(int(rng.integers(1, 5))).split(np.zeros((n, 2)), y))
    else:
        check(evaluation.knn_balanced_accuracy(matrix(rng, n, 4), y, matrix(rng, n, 4), y))


def call_moments(rng: np.random.Generator, folder: Path) -> None:
    """Moments of two parts, added, and a fit to them."""
    from semfs import Moments, SemFS

    n = int(rng.choice([2, 12, 40]))
    X = matrix(rng, n, 5)
    moments = Moments.from_data(X, labels(rng, n), sample_weight=weights(rng, n))
    if rng.random() < 0.5:
        moments = moments + Moments.from_data(matrix(rng, n, 5), labels(rng, n))
    check(moments.means, moments.scatter_diag)
    check(SemFS(2).fit_moments(moments).scores_)


CALLS = [call_semfs, call_semfs, call_semfs, call_baseline, call_evaluation, call_moments]


# ---- verdicts --------------------------------------------------------------------------


def too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def verdict(i: int, seed: int, folder: Path) -> tuple[str, str]:
    """Make call i: whether it was answered, refused or wrong, and what happened."""
    rng = np.random.default_rng([seed, i])
    call = CALLS[rng.integers(len(CALLS))]
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            call(rng, folder)
        except (ValueError, TypeError) as error:
            text = str(error)
            ours = not any(text.startswith(start) for start in FOREIGN)
            ours = ours and not any(word in text for word in FOREIGN[:5])
            return ("refused" if ours else "wrong"), f"{type(error).__name__}: {text}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            return "wrong", f"{type(error).__name__}: {error} ({where})"
        finally:
            signal.alarm(0)
    return "answered", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only is not None:
            rng = np.random.default_rng([options.seed, options.only])
            warnings.simplefilter("error", RuntimeWarning)
            CALLS[rng.integers(len(CALLS))](rng, folder)
            return 0
        for i in range(options.count):
            kind, text = verdict(i, options.seed, folder)
            counts[kind] += 1
            if kind == "wrong":
                print(f"call {i}: {text[:300]}", flush=True)
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
