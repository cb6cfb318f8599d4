"""What class samples of new classes are called: alone, together, beside seen classes.

    python benchmarks/bench_predict.py --data DIR            # DIR holds the .npz files
    python benchmarks/bench_predict.py --data DIR --splits 0:5 --only "animals31,CLINC150"
    python benchmarks/bench_predict.py --data DIR --proposed # the Proposed Split of CUB alone

Random class splits as in bench_knowledge.py; a quarter of the samples of each seen class is
held out. Accuracies are averages over classes. "Alone" and "together": unseen classes compete
among themselves; "generalized": seen classes compete too, harmonic mean of the accuracies on
held-out samples of seen classes and on unseen classes, before and after calibration. Splits
0 to 4 chose the constants of `semfs.selectors.together`, and 5 to 9 were looked at meanwhile;
20 to 29, which are reported, were measured once, after everything had been chosen. ESZSL and
SAE (their penalties chosen by folds over the seen classes) and the nearest class mean in all
features, predicted by kernel ridge, are beside ours. The Proposed Split of CUB (Xian et al.
2017) is measured with 64 and 256 of 4096 VGG features. Writes benchmarks/results/predict.json;
``--proposed`` renews its part about that split and keeps the others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bench_knowledge as knowledge
import numpy as np
from record import read_results, write_results
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.method.class_means import MeanModel

knowledge.DATA["CUB VGG"] = ("cub_vgg_fc7_4096", 50)
NAMES = ("animals31", "human lung", "aPascal", "CIFAR10", "CLINC150", "CUB VGG")
N_FEATURES = 64
PROPOSED_N_FEATURES = (64, 256)
CHOOSING = 5  # splits that chose the constants
HELD_OUT = 0.25  # share of the samples of each seen class
REFUSED = 0.05
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
#: SAE weighs two matrices that differ in size: penalties are multiples of the ratio of sizes.
SAE_PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)
N_BINS = 10

Samples = tuple[np.ndarray, np.ndarray]


def split_of(name: str, number: int, folder: Path) -> tuple[knowledge.Split, Samples, Samples]:
    """A class split; samples of seen classes to fit, and those that are held out."""
    split = knowledge.class_split(name, number, folder)
    rng = np.random.default_rng(number)
    test = np.zeros(len(split.y), dtype=bool)
    for label in np.unique(split.y):
        rows = rng.permutation(np.flatnonzero(split.y == label))
        test[rows[: max(1, int(HELD_OUT * len(rows)))]] = True
    return split, (split.X[~test], split.y[~test]), (split.X[test], split.y[test])


def class_accuracy(y: np.ndarray, found: np.ndarray) -> float:
    """Share of samples that are right, averaged over classes."""
    return float(np.mean([np.mean(found[y == label] == label) for label in np.unique(y)]))


def harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


def reliability(P: np.ndarray, classes: np.ndarray, y: np.ndarray) -> list[list[float]]:
    """Of each of ten bins of certainty: share of the samples, summed certainty, and right ones.

    All three are divided by the number of samples, so that they can be averaged over splits.
    """
    certainty = P.max(axis=1)
    right = classes[P.argmax(axis=1)] == y
    bins = np.minimum((N_BINS * certainty).astype(int), N_BINS - 1)
    sums = [
        np.bincount(bins, weights, minlength=N_BINS)
        for weights in (np.ones(len(y)), certainty, right)
    ]
    return (np.transpose(sums) / len(y)).tolist()


def calibration_error(bins: list[list[float]]) -> float:
    """Expected calibration error of the best class, ten bins."""
    return float(sum(abs(right - certainty) for _, certainty, right in bins))


# ---- ours ----------------------------------------------------------------------------------


def ours(split: knowledge.Split, train: Samples, test: Samples, k: int) -> dict[str, Any]:
    """Accuracies of `SemFS` with k features."""
    A = split.A
    assert A is not None
    table = dict(enumerate(A.tolist()))
    selector = SemFS(k, table).fit(*train)
    new = {int(c): table[int(c)] for c in np.unique(split.yu)}
    seen = {int(c): table[int(c)] for c in np.unique(train[1])}
    both = seen | new
    found: dict[str, Any] = {}
    found["alone"] = class_accuracy(split.yu, selector.predict(split.Xu, new))
    found["together"] = class_accuracy(split.yu, selector.predict_together(split.Xu, new))
    few = split.few(5)
    alone = class_accuracy(few.yu, selector.predict(few.Xu, new))
    found["few alone"] = alone
    found["few together"] = class_accuracy(few.yu, selector.predict_together(few.Xu, new))
    found["gain in folds"] = selector._get_fitted().calibrated_model.trial.gain

    X, y = test
    model = selector._get_fitted().calibrated_model
    classes = selector.candidate_classes(both).classes
    selected = selector.get_support()
    raw = [
        model.predictor.scores(Z[:, selected].astype(float), selector.candidate_classes(both))
        for Z in (X, split.Xu)
    ]
    today = [
        class_accuracy(truth, classes[scores.argmax(axis=1)])
        for truth, scores in zip((y, split.yu), raw)
    ]
    found["before calibration"] = [*today, harmonic(*today)]
    now = [
        class_accuracy(y, selector.predict(X, both)),
        class_accuracy(split.yu, selector.predict(split.Xu, both)),
    ]
    found["generalized"] = [*now, harmonic(*now)]
    joined = selector.predict_together(np.concatenate([X, split.Xu]), both)
    now = [class_accuracy(y, joined[: len(y)]), class_accuracy(split.yu, joined[len(y) :])]
    found["generalized together"] = [*now, harmonic(*now)]
    found["bias"] = selector.bias_

    names = np.array(list(new))
    for together, suffix in ((False, ""), (True, " together")):
        P = selector.predict_proba(split.Xu, new, together=together)
        bins = reliability(P, names, split.yu)
        found[f"reliability{suffix}"] = bins
        found[f"ECE{suffix}"] = calibration_error(bins)
    for what, candidates in (("seen", seen), ("both", both)):
        refused = selector.predict(X, candidates, unknown="?", unknown_rate=REFUSED) == "?"
        found[f"refused {what}"] = float(np.mean(refused))
    return found


# ---- others --------------------------------------------------------------------------------


def eszsl_weights(X: np.ndarray, Y: np.ndarray, A: np.ndarray, gamma: float, lam: float):
    """V (d, m) of Romera-Paredes and Torr (2015): (X'X + γI)⁻¹ X'YA (A'A + λI)⁻¹."""
    d, m = X.shape[1], A.shape[1]
    left = np.linalg.solve(X.T @ X + gamma * np.eye(d), X.T @ Y @ A)
    return np.linalg.solve(A.T @ A + lam * np.eye(m), left.T).T


def best_by_class_folds(
    train: Samples,
    settings: Iterable[Any],
    predict: Callable[[Samples, Any, np.ndarray, np.ndarray], np.ndarray],
) -> Any:
    """The setting of largest accuracy where thirds of the seen classes play unseen.

    ``predict(train, setting, X, candidates)`` returns labels of the samples X.
    """
    X, y = train
    classes = np.unique(y)
    order = np.random.default_rng(0).permutation(classes)

    def score(setting: Any) -> float:
        found = []
        for first in range(3):
            out = np.sort(order[first::3])
            test = np.isin(y, out)
            labels = predict((X[~test], y[~test]), setting, X[test], out)
            found.append(class_accuracy(y[test], labels))
        return float(np.mean(found))

    return max(settings, key=score)


def eszsl(train: Samples, A: np.ndarray, Xu: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Labels by ESZSL, penalties by three folds over the seen classes."""

    def predict(train: Samples, penalties: Any, X: np.ndarray, out: np.ndarray) -> np.ndarray:
        classes = np.unique(train[1])
        Y = np.where(train[1][:, None] == classes, 1.0, -1.0)
        V = eszsl_weights(train[0].astype(float), Y, A[classes], *penalties)
        return out[(X @ V @ A[out].T).argmax(axis=1)]

    grid = itertools.product(PENALTIES, PENALTIES)
    best = best_by_class_folds(train, grid, predict)
    return predict(train, best, Xu, unseen)


def sae_weights(X: np.ndarray, S: np.ndarray, penalty: float) -> np.ndarray:
    """W (m, d) of Kodirov et al. (2017): S'S W + λ W X'X = (1 + λ) S'X.

    Both matrices are symmetric, so the equation is solved in their eigenvectors.
    """
    a, U = np.linalg.eigh(S.T @ S)
    b, V = np.linalg.eigh(X.T @ X)
    lam = penalty * max(a[-1], 1e-12) / b[-1]
    right = (1.0 + lam) * (U.T @ (S.T @ X) @ V)
    total = np.maximum(a, 0.0)[:, None] + lam * np.maximum(b, 0.0)
    # Directions that neither matrix has do not occur on the right either.
    return U @ (right / np.maximum(total, 1e-9 * total.max())) @ V.T


def sae(train: Samples, A: np.ndarray, Xu: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Labels by SAE; penalty, and the space of the comparison, by folds over seen classes."""

    def predict(train: Samples, setting: Any, X: np.ndarray, out: np.ndarray) -> np.ndarray:
        penalty, space = setting
        W = sae_weights(train[0].astype(float), A[train[1]], penalty)
        samples, targets = (X @ W.T, A[out]) if space == "attributes" else (X, A[out] @ W)
        lengths = np.linalg.norm(targets, axis=1, keepdims=True)
        return out[(samples @ (targets / np.maximum(lengths, 1e-12)).T).argmax(axis=1)]

    grid = itertools.product(SAE_PENALTIES, ("attributes", "features"))
    best = best_by_class_folds(train, grid, predict)
    return predict(train, best, Xu, unseen)


def nearest_mean(train: Samples, A: np.ndarray, Xu: np.ndarray, unseen: np.ndarray):
    """Labels by the nearest mean in all features, predicted from descriptions."""
    X, y = train
    classes = np.unique(y)
    means = knowledge.class_means(X, y)
    predicted = MeanModel.fit(A[classes], means).predict(A[unseen])
    distances = (predicted**2).sum(axis=1) - 2 * Xu @ predicted.T
    return unseen[distances.argmin(axis=1)]


def others(split: knowledge.Split, train: Samples, selected: np.ndarray) -> dict[str, float]:
    """Accuracies on unseen classes of methods that others use."""
    A, unseen = split.A, np.unique(split.yu)
    assert A is not None
    X, y = train
    scale = X.std(axis=0)
    kept = selected & (scale > 0)
    center = X[:, kept].mean(axis=0)
    scaled = ((X[:, kept] - center) / scale[kept], y)
    Zu = (split.Xu[:, kept] - center) / scale[kept]
    return {
        "ESZSL, same features": class_accuracy(split.yu, eszsl(scaled, A, Zu, unseen)),
        "SAE, same features": class_accuracy(split.yu, sae(scaled, A, Zu, unseen)),
        "nearest mean, all features": class_accuracy(
            split.yu, nearest_mean(train, A, split.Xu, unseen)
        ),
    }


def measure(name: str, number: int, folder: Path, with_others: bool) -> dict[str, Any]:
    split, train, test = split_of(name, number, folder)
    found = ours(split, train, test, N_FEATURES)
    if with_others:
        A = split.A
        assert A is not None
        selector = SemFS(N_FEATURES, dict(enumerate(A.tolist()))).fit(*train)
        found |= others(split, train, selector.get_support())
    return {"data": name, "split": number, **found}


def proposed_split(folder: Path) -> dict[str, Any]:
    """Accuracies on the unseen classes of CUB's Proposed Split, with the default parameters."""
    file, _ = knowledge.DATA["CUB VGG"]
    with np.load(folder / f"{file}.npz") as stored:
        X = stored["X"].astype(np.float32)
        y = stored["y"].astype(int)
        A = stored["A"].astype(float)
        is_unseen = np.isin(y, stored["unseen"])
    train = (X[~is_unseen], y[~is_unseen])
    split = knowledge.Split("CUB VGG", 0, *train, A, X[is_unseen], y[is_unseen])
    table = dict(enumerate(A.tolist()))
    new = {int(label): table[int(label)] for label in np.unique(split.yu)}
    found = {}
    for k in PROPOSED_N_FEATURES:
        selector = SemFS(k, table).fit(*train)
        alone = class_accuracy(split.yu, selector.predict(split.Xu, new))
        together = class_accuracy(split.yu, selector.predict_together(split.Xu, new))
        of_others = others(split, train, selector.get_support())
        accuracies = {"alone": alone, "together": together, **of_others}
        found[str(k)] = {name: round(value, 4) for name, value in accuracies.items()}
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Averages over splits for each data set, and ratios over data sets."""
    out: dict[str, Any] = {}
    for name in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == name]
        keys = [key for key in mine[0] if key not in ("data", "split")]
        out[name] = {
            key: np.round(np.mean([row[key] for row in mine], axis=0), 4).tolist()
            for key in keys
        }

    def ratio(top: Callable[[dict[str, Any]], float], low: Callable[..., float]) -> float:
        return float(np.mean([top(found) / low(found) for found in list(out.values())]))

    def mean(key: str) -> float:
        return float(np.mean([found[key] for found in list(out.values())]))

    ratios = {
        "together / alone": ratio(lambda f: f["together"], lambda f: f["alone"]),
        "five samples": ratio(lambda f: f["few together"], lambda f: f["few alone"]),
        "calibrated / before": ratio(
            lambda f: f["generalized"][2], lambda f: f["before calibration"][2]
        ),
        "together / before": ratio(
            lambda f: f["generalized together"][2], lambda f: f["before calibration"][2]
        ),
        "ECE": mean("ECE"),
        "ECE together": mean("ECE together"),
        "refused seen": mean("refused seen"),
        "refused both": mean("refused both"),
    }
    return {"data": out, "over data": {key: round(v, 4) for key, v in ratios.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", default="20:30")
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--cache", type=Path, default=Path("predict.jsonl"))
    parser.add_argument("--no-others", action="store_true")
    parser.add_argument("--proposed", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.proposed:
        with threadpool_limits(1):
            found = {"proposed split": proposed_split(args.data)}
        print(json.dumps(found, indent=1))
        write_results("predict", kept_results(found) | found)
        return
    first, last = map(int, args.splits.split(":"))
    rows = []
    if args.cache.exists():
        rows = [json.loads(line) for line in args.cache.read_text().splitlines()]
    done = {(row["data"], row["split"]) for row in rows}
    with threadpool_limits(1), args.cache.open("a") as cache:
        for number, name in itertools.product(range(first, last), args.only.split(",")):
            if (name, number) in done:
                continue
            row = measure(name, number, args.data, not args.no_others)
            cache.write(json.dumps(row) + "\n")
            cache.flush()
            rows.append(row)
            print(json.dumps(row), flush=True)
    choosing = [row for row in rows if row["split"] < CHOOSING]
    confirming = [row for row in rows if row["split"] >= CHOOSING]
    found = {
        "splits": sorted({row["split"] for row in rows}),
        "choosing": summary(choosing) if choosing else {},
        "confirming": summary(confirming) if confirming else {},
    }
    print(json.dumps(found, indent=1))
    if {row["data"] for row in rows} == set(NAMES):
        write_results("predict", kept_results(found) | found)


def kept_results(found: dict[str, Any]) -> dict[str, Any]:
    """What the results file holds of the other mode of this script."""
    former = read_results("predict")
    modes = ("splits", "choosing", "confirming", "proposed split")
    return {key: former[key] for key in modes if key in former and key not in found}


if __name__ == "__main__":
    main()
