"""Random calls of the public functions for tools/fuzz_api.py: each is made, used and checked.

A call is a function of a random generator and a folder for files. It raises AssertionError if
an answer is wrong by itself: NaN, probabilities that do not add up to 1, a panel that breaks
its rules, a file that gives another answer than the same samples in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz_data as data
import numpy as np
import scipy.sparse as sp

# ---- checks of answers -----------------------------------------------------------------


def check(*results: Any) -> None:
    """Raise if a result holds NaN."""
    for result in results:
        array = result.toarray() if sp.issparse(result) else np.asarray(result)
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise AssertionError("NaN in a result")


def check_probabilities(P: Any) -> None:
    """Raise unless the rows of P (n, U) are probabilities."""
    check(P)
    P = np.asarray(P)
    if (P < 0).any() or not np.allclose(P.sum(axis=1), 1.0):
        raise AssertionError("probabilities do not add up to 1")


def check_fitted(selector: Any) -> None:
    """Raise if a fitted attribute holds NaN."""
    check(selector.scores_, selector.coef_, selector.within_, selector.objective_)
    check(selector.class_means_, selector.intercept_)


def check_rules(selector: Any, given: dict[str, Any]) -> None:
    """Raise if the panel of a selector breaks the rules that were given."""
    chosen = np.flatnonzero(selector.support_)
    if "candidates" in given and not set(chosen.tolist()) <= set(given["candidates"]):
        raise AssertionError("a feature that is no candidate was selected")
    if "budget" in given:
        spent = float(np.asarray(given["costs"])[chosen].sum())
        if spent > given["budget"] * (1 + 1e-9):
            raise AssertionError(f"{spent} spent of a budget of {given['budget']}")
    if "groups" in given:
        groups = np.asarray(given["groups"])
        if not np.isin(groups, groups[chosen])[~selector.support_].sum() == 0:
            raise AssertionError("a group was selected in part")
    means = selector.class_means_
    if "capacity" in given and (means.sum(axis=1) > given["capacity"] * (1 + 1e-9)).any():
        raise AssertionError("the capacity is exceeded")
    if "min_level" in given and (means.max(axis=0) < given["min_level"] - 1e-9).any():
        raise AssertionError("a feature is below min_level")
    if "max_level" in given and (means.max(axis=0) > given["max_level"] + 1e-9).any():
        raise AssertionError("a feature is above max_level")


def use(selector: Any, Z: Any, rng: np.random.Generator, **options: Any) -> None:
    """Transform, predict and score samples."""
    names = ["predict", "decision_function", "predict_proba", "predict_together", "predict_top"]
    method = str(rng.choice([*names, "transform", "predict_attributes"]))
    if method in ("predict", "predict_together", "predict_top") and rng.random() < 0.4:
        options["unknown"] = "unknown"
        options["unknown_rate"] = float(rng.choice([0.0, 0.05, 1.0]))
    if method in ("predict_proba", "predict_top"):
        options["together"] = bool(rng.integers(2))
    if method in ("transform", "predict_attributes"):
        options = {}
    result = getattr(selector, method)(Z, **options)
    if hasattr(result, "compute"):
        result = result.compute()
    if method == "predict_proba":
        check_probabilities(result)
    elif method == "predict_top":
        check(result[1])
    elif method in ("decision_function", "predict_attributes"):
        check(result)
    elif method == "transform" and result.shape[1] != selector.support_.sum():
        raise AssertionError("transform kept other columns")


# ---- selectors on arrays ---------------------------------------------------------------


def selector_options(rng: np.random.Generator, d: int, y: Any) -> dict[str, Any]:
    """Parameters that SemFS and SemFSCV share."""
    options: dict[str, Any] = {
        "n_features_to_select": [1, 3, d, 0.5, d + 3][rng.integers(5)],
        "attributes": data.table(rng, y) if rng.random() < 0.6 else None,
        "gamma": float(rng.choice([0.0, 1e-8, 1.0, 1.0, 10.0, 10.0, 1e8, 1e300])),
        "alpha": float(rng.choice([0.0, *[1.0] * 20, 1e40, 1e300])),
        "label_weight": float(rng.choice([*[0.0] * 10, *[1.0] * 10, 1e40, 1e300])),
        "class_weight": [None, "balanced"][rng.integers(2)],
        "fit_intercept": bool(rng.integers(2)),
        "missing_values": str(rng.choice([*["error"] * 6, "class-mean"])),
        "max_correlation": [0.95, None, 0.5, 1e-300][rng.integers(4)],
    }
    if rng.random() < 0.2:
        options["include"] = [int(rng.integers(d))]
    if rng.random() < 0.2:
        options["exclude"] = [int(rng.integers(d))]
    return options


def new_selector(rng: np.random.Generator, options: dict[str, Any]) -> Any:
    """A SemFS, or now and then a SemFSCV."""
    from semfs import SemFS, SemFSCV

    if rng.random() < 0.15:
        return SemFSCV(cv=2, n_repeats=1, param_grid={"gamma": [1.0, 10.0]}, **options)
    if rng.random() < 0.3:
        options["solver"] = "alternating"
    options["n_swaps"] = int(rng.choice([0, 3]))
    options["penalty_scale"] = str(rng.choice(["weighted", "gram", "none"]))
    return SemFS(**options)


def call_semfs(rng: np.random.Generator, folder: Path) -> None:
    """Fit, use, save and load a SemFS or SemFSCV."""
    n = int(rng.choice([1, 2, 5, 12, 40, 40, 90, 90]))
    d = int(rng.choice([1, 2, 6, 20]))
    X = data.matrix(rng, n, d)
    y = data.labels(rng, n)
    selector = new_selector(rng, selector_options(rng, d, y))
    w = data.weights(rng, n)
    how = rng.choice(["fit", "fit", "unlabeled", "partial_fit"])
    if how == "partial_fit" and hasattr(selector, "partial_fit"):
        half = max(1, n // 2)
        whole = X if hasattr(X, "shape") and not hasattr(X, "columns") else np.array(X, float)
        selector.partial_fit(whole[:half], y[:half], None if w is None else w[:half])
        selector.partial_fit(whole[half:], y[half:], None if w is None else w[half:])
    elif how == "unlabeled":
        n_more = int(rng.choice([1, 12, 60]))
        selector.fit(X, y, w, X_unlabeled=data.matrix(rng, n_more, d))
    else:
        selector.fit(X, y, w)
    if hasattr(selector, "support_"):  # partial_fit waits for a second class
        use_fitted(selector, data.matrix(rng, int(rng.choice([1, 7])), d), rng, folder)


def use_fitted(selector: Any, Z: Any, rng: np.random.Generator, folder: Path) -> None:
    """Check, use, explain, save and load a fitted selector."""
    from semfs import load, save

    check_fitted(selector)
    use(selector, Z, rng)
    if rng.random() < 0.3:
        explained = selector.explain(n_bootstraps=int(rng.choice([0, 3])))
        check(explained.features["gain"])
        str(explained)
    if rng.random() < 0.3:
        again = load(save(selector, folder / "selector.npz"))
        assert again.order_.tolist() == selector.order_.tolist()
        before = np.asarray(selector.decision_function(Z))
        after = np.asarray(again.decision_function(Z))
        assert np.allclose(before, after, rtol=1e-9, atol=1e-9 * np.abs(before).max())


def call_rules(rng: np.random.Generator, folder: Path) -> None:
    """Fit a panel with rules, and check that it keeps them."""
    from semfs import SemFS

    n = int(rng.choice([12, 40, 90]))
    d = int(rng.choice([2, 6, 20, 20]))
    X = data.matrix(rng, n, d)
    y = data.labels(rng, n)
    given = data.rules(rng, d, y)
    size = int(rng.integers(1, max(2, d // 2)))
    selector = SemFS(
        None if "budget" in given and rng.random() < 0.5 else size,
        attributes=data.table(rng, y) if rng.random() < 0.5 else None,
        n_swaps=int(rng.choice([*[0] * 20, 3])),
        **given,
    )
    selector.fit(X, y, data.weights(rng, n))
    check_rules(selector, given)
    check(selector.marks_, selector.coverage_)
    assert all("nan" not in text for text in selector.rules_), selector.rules_
    use_fitted(selector, data.matrix(rng, 5, d), rng, folder)


def call_batch(rng: np.random.Generator, folder: Path) -> None:
    """Fit samples of several batches, at once or in parts, and use the selector."""
    n = int(rng.choice([5, 12, 40, 90]))
    d = int(rng.choice([2, 6, 20]))
    X = data.matrix(rng, n, d)
    y = data.labels(rng, n)
    batch = data.batches(rng, n)
    selector = new_selector(rng, selector_options(rng, d, y))
    how = rng.choice(["fit", "fit", "unlabeled", "partial_fit"])
    if how == "partial_fit" and hasattr(selector, "partial_fit"):
        half = n // 2
        whole = X if hasattr(X, "shape") and not hasattr(X, "columns") else np.array(X, float)
        selector.partial_fit(whole[:half], y[:half], batch=batch[:half])
        selector.partial_fit(whole[half:], y[half:], batch=batch[half:])
    elif how == "unlabeled":
        more = data.matrix(rng, 30, d)
        selector.fit(X, y, X_unlabeled=more, batch=batch, batch_unlabeled=batch[:1].repeat(30))
    else:
        selector.fit(X, y, data.weights(rng, n), batch=batch)
    if not hasattr(selector, "support_"):
        return
    Z = data.matrix(rng, 4, d)
    use(selector, Z, rng, batch=data.batches(rng, 4))
    use_fitted(selector, Z, rng, folder)


def call_names(rng: np.random.Generator, folder: Path) -> None:
    """Fit a frame, then use frames that lack features, or have more, in another order."""
    from semfs import SemFS

    n = int(rng.choice([12, 40, 90]))
    d = int(rng.choice([2, 6, 20]))
    y = data.labels(rng, n)
    attributes = data.table(rng, y) if rng.random() < 0.7 else None
    selector = SemFS(int(rng.integers(1, d + 1)), attributes=attributes)
    more = None
    if rng.random() < 0.3:
        more = data.frame(rng, 30, d).iloc[:, rng.permutation(d)[: int(rng.integers(1, d + 1))]]
    selector.fit(data.frame(rng, n, d), y, X_unlabeled=more)
    check_fitted(selector)
    Z = data.frame(rng, 6, d).iloc[:, rng.permutation(d)[: int(rng.integers(1, d + 1))]]
    lacking = str(rng.choice(["error", *["ignore"] * 5]))
    options: dict[str, Any] = {"missing_features": lacking}
    if attributes is not None and rng.random() < 0.4:
        kept = rng.permutation(len(attributes))[: int(rng.integers(1, len(attributes) + 1))]
        options["class_table"] = {
            list(attributes)[i]: list(attributes.values())[i] for i in kept
        }
    use(selector, Z, rng, **options)


# ---- samples elsewhere -----------------------------------------------------------------


def call_dask(rng: np.random.Generator, folder: Path) -> None:
    """Fit Dask arrays or frames, and use the selector on them."""
    import dask
    import dask.array

    from semfs import SemFS

    n = int(rng.choice([12, 40, 90]))
    d = int(rng.choice([2, 6]))
    y = data.labels(rng, n)
    attributes = data.table(rng, y) if rng.random() < 0.5 else None
    selector = SemFS(int(rng.integers(1, d + 1)), attributes=attributes)
    with dask.config.set(scheduler="synchronous"):
        samples: Any
        rows = int(rng.integers(1, n + 1))
        if rng.random() < 0.3:
            import dask.dataframe

            whole = data.frame(rng, n, d)
            whole["type"] = np.asarray(y)
            samples = dask.dataframe.from_pandas(whole, chunksize=rows)
            selector.fit(samples, "type")
            samples = samples.drop(columns="type")
        else:
            X = data.matrix(rng, n, d)
            X = np.array(X.toarray() if sp.issparse(X) else X, dtype=float)
            samples = dask.array.from_array(X, chunks=(rows, d))
            if rng.random() < 0.3:
                samples = samples.map_blocks(sp.csr_array)
            target = dask.array.from_array(np.asarray(y), chunks=rows)
            selector.fit(samples, target if rng.random() < 0.5 else y)
        check_fitted(selector)
        use(selector, samples, rng)


def write_samples(path: Path, X: Any, y: Any) -> str:
    """Write a frame X (n, d) and labels as a file; return what its labels are called."""
    import pandas

    suffix = "".join(path.suffixes)
    labeled = X.copy()
    # columns of one name cannot be kept apart in every format
    labeled["type"] = pandas.Series(np.asarray(y), index=X.index)
    values = X.to_numpy()
    if suffix == ".csv":
        labeled.to_csv(path, index=False)
    elif suffix == ".parquet":
        labeled.astype({"type": str}).to_parquet(path)
    elif suffix == ".feather":
        labeled.astype({"type": str}).to_feather(path)
    elif suffix == ".xlsx":
        labeled.to_excel(path, index=False)
    elif suffix == ".npz":
        kind = str if np.asarray(y).dtype == object else None
        np.savez(path, X=values, y=np.asarray(y, dtype=kind))
        return "y"
    elif suffix in (".mtx", ".mtx.gz"):
        return write_mtx(path, values, y)
    else:
        import anndata

        obs = pandas.DataFrame({"type": pandas.Categorical(labeled["type"].astype(str))})
        obs.index = [f"cell {i}" for i in range(len(X))]
        var = pandas.DataFrame(index=[str(name) for name in X.columns])
        cells = anndata.AnnData(sp.csr_matrix(values), obs, var)
        cells.write_h5ad(path) if suffix == ".h5ad" else cells.write_zarr(path)
    return "type"


def write_mtx(path: Path, values: Any, y: Any) -> str:
    """Write a matrix market file and its labels, one per line; return the file of labels."""
    import gzip

    import scipy.io

    plain = path.with_name("matrix.mtx")
    scipy.io.mmwrite(plain, sp.coo_array(values).T)  # one column per cell
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
    elif plain != path:
        plain.replace(path)
    labels = path.with_name("labels.txt")
    labels.write_text("".join(f"{label}\n" for label in np.asarray(y).tolist()))
    return str(labels)


#: Formats that samples are written to.
SUFFIXES = [".csv", ".parquet", ".h5ad", ".mtx", ".npz"] * 2 + [
    ".feather",
    ".xlsx",
    ".mtx.gz",
    ".zarr",
]


def new_file(rng: np.random.Generator, folder: Path) -> tuple[Path, str, Any, Any]:
    """A file of samples, what its labels are called, the samples and their labels."""
    n = int(rng.choice([5, 12, 40, 90]))
    d = int(rng.choice([1, 2, 6, 20]))
    X = data.frame(rng, n, d)
    X.columns = [f"g{j}" for j in range(d)]
    y = data.labels(rng, n)
    place = folder / str(rng.integers(2**60))
    place.mkdir()
    path = place / f"samples{rng.choice(SUFFIXES)}"
    return path, write_samples(path, X, y), X, y


def call_file(rng: np.random.Generator, folder: Path) -> None:
    """Fit a file, compare with the same samples in memory, and use the selector on files."""
    from semfs import SemFS

    path, label, X, y = new_file(rng, folder)
    attributes = None
    if rng.random() < 0.5:
        texts = [str(text) for text in np.asarray(y).tolist()]
        attributes = data.table(rng, np.array(texts))
    selector = SemFS(int(rng.integers(1, X.shape[1] + 1)), attributes=attributes)
    selector.fit(path, label)
    check_fitted(selector)
    if rng.random() < 0.5 and np.isfinite(X.to_numpy()).all() and ".csv" not in path.name:
        # the same labels, in the order of the file
        texts = np.array([str(text) for text in np.asarray(y).tolist()])
        known = np.isin(texts, [str(label) for label in selector.classes_.tolist()])
        again = SemFS(**selector.get_params()).fit(X[known], texts[known])
        if known.all() and again.order_.tolist() != selector.order_.tolist():
            gains = np.sort(again.scores_[np.isfinite(again.scores_)])
            # features of equal gain may change places
            assert np.diff(gains).min(initial=np.inf) < 1e-6 * gains.max(), path
    if rng.random() < 0.5:
        use(selector, path, rng)
    else:
        use_fitted(selector, X, rng, folder)


def call_anndata(rng: np.random.Generator, folder: Path) -> None:
    """Select genes of an AnnData object."""
    import anndata
    import pandas

    from semfs.scverse import select_genes

    n = int(rng.choice([12, 40, 90]))
    d = int(rng.choice([2, 6, 20]))
    X = data.frame(rng, n, d)
    y = data.labels(rng, n)
    obs = pandas.DataFrame({"type": y, "donor": data.batches(rng, n)})
    obs.index = [f"cell {i}" for i in range(n)]
    var = pandas.DataFrame(index=[f"gene {j}" for j in range(d)])
    values = X.to_numpy()
    cells = anndata.AnnData(values if rng.random() < 0.5 else sp.csr_matrix(values), obs, var)
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["batch_key"] = "donor"
    if rng.random() < 0.3:
        options["attributes"] = data.table(rng, y)
    select_genes(cells, "type", int(rng.integers(1, d + 1)), **options)
    check(cells.var["semfs_score"].replace([-np.inf], 0.0))


# ---- the command line ------------------------------------------------------------------


def command_options(rng: np.random.Generator, y: Any, folder: Path) -> list[str]:
    """Options of ``semfs select``, some of them wrong."""
    found: list[str] = ["-k", str(rng.choice(["1", "3", "0.5", "400", "0", "x"], p=PORTIONS))]
    if rng.random() < 0.4:
        import pandas

        texts = np.array([str(text) for text in np.asarray(y).tolist()])
        table = pandas.DataFrame(data.table(rng, texts)).T
        table.to_csv(folder / "table.csv")
        found += ["--attributes", str(folder / "table.csv")]
    else:
        found += ["--attributes", "labels"]
    choices = [
        ["--include", "g0"],
        ["--exclude", "re:^g[12]$"],
        ["--candidates", "g0,g1,g2"],
        ["--scale"],
        ["--unlabeled", str(rng.choice(["use", "drop"]))],
        ["--min-cells", str(rng.integers(0, 6))],
        ["--gamma", str(rng.choice([0.0, 1e-9, 5.0, -1.0]))],
        ["--min-per-class", "1"],
        ["--impute", str(rng.choice(["median", "class-mean"]))],
        ["--normalize", "log1p"],
        ["--unseen", str(rng.choice(np.asarray(y).astype(str)))],
        ["--max-level", "2.0"],
        ["--capacity", str(rng.choice(["5", "-1", "many"]))],
        ["--budget", "3"],
        ["--json"],
    ]
    for choice in choices:
        if rng.random() < 0.12:
            found += choice
    return found


#: Chances of the values of -k.
PORTIONS = [0.3, 0.3, 0.25, 0.05, 0.05, 0.05]


def run_command(*words: str) -> int:
    """Run the command line in this process; raise unless it ends with a known exit code."""
    from typer.testing import CliRunner

    from semfs.cli import app

    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    text = done.output + (done.stderr or "")
    if done.exit_code not in (0, 2):
        raise AssertionError(f"exit code {done.exit_code}: {text[-200:]}")
    if "Traceback" in text or "RuntimeWarning" in text:
        raise AssertionError(text[-300:])
    if done.exit_code == 2:
        # what a command refuses is judged as what a function refuses
        raise ValueError(text.strip().removeprefix("semfs: ") or "no message")
    return done.exit_code


def call_command(rng: np.random.Generator, folder: Path) -> None:
    """``semfs select`` on a file, then ``semfs predict`` or ``semfs panel``."""
    import pandas

    path, label, _, y = new_file(rng, folder)
    place = path.parent
    words = [str(path), "--label", label, *command_options(rng, y, place)]
    if rng.random() < 0.1:
        page = str(place / "page.html")
        small = [word for word in words if word != "--json"]
        run_command("panel", *small, "-o", page, "--bootstraps", "2")
        return
    out = place / f"out{rng.choice(['.csv', '.parquet', '.npz', path.suffix])}"
    run_command("select", *words, "-o", str(out), "--save", str(place / "saved.npz"))
    ranked = pandas.read_csv(next(place.glob("*features.csv")))
    check(ranked["score"][ranked["reason"].isna()])  # constants and excluded ones have none
    if rng.random() < 0.6:
        named = place / "named.csv"
        more = ["--together"] if rng.random() < 0.5 else []
        more += ["--unknown", "0.1"] if rng.random() < 0.3 else []
        run_command("predict", str(place / "saved.npz"), str(path), *more, "-o", str(named))
        check(pandas.read_csv(named).select_dtypes("number"))


# ---- other functions -------------------------------------------------------------------


def call_baseline(rng: np.random.Generator, folder: Path) -> None:
    """Fit a method of comparison."""
    from semfs import baselines

    name = str(rng.choice(baselines.__all__))
    n = int(rng.choice([1, 2, 5, 12, 40]))
    d = int(rng.choice([1, 2, 6, 20]))
    y = data.labels(rng, n)
    selector = getattr(baselines, name)(int(rng.choice([1, 3])))
    X = data.matrix(rng, n, d)
    selector.fit(X, y)
    check(selector.scores_)
    selector.transform(data.matrix(rng, 3, d))


def call_evaluation(rng: np.random.Generator, folder: Path) -> None:
    """Scores of clusterings, and splits over classes."""
    from semfs import evaluation

    n = int(rng.choice([1, 2, 5, 40]))
    y = data.labels(rng, n)
    name = rng.choice(["pairs", "clusters", "folds", "shuffle", "knn"])
    if name == "pairs":
        measures: list[Callable] = [
            evaluation.clustering_accuracy,
            evaluation.normalized_mutual_info,
            evaluation.adjusted_rand,
        ]
        check(measures[rng.integers(3)](y, data.labels(rng, n)))
    elif name == "clusters":
        check(list(evaluation.cluster_scores(data.matrix(rng, n, 4), y, n_repeats=2)))
    elif name == "folds":
        list(evaluation.ClassKFold(int(rng.integers(1, 5))).split(np.zeros((n, 2)), y))
    elif name == "shuffle":
        list(evaluation.ClassShuffleSplit(int(rng.integers(1, 5))).split(np.zeros((n, 2)), y))
    else:
        check(
            evaluation.knn_balanced_accuracy(
                data.matrix(rng, n, 4), y, data.matrix(rng, n, 4), y
            )
        )


def call_moments(rng: np.random.Generator, folder: Path) -> None:
    """Moments of two parts, added, and a fit to them."""
    from semfs import Moments, SemFS

    n = int(rng.choice([2, 12, 40]))
    X = data.matrix(rng, n, 5)
    moments = Moments.from_data(X, data.labels(rng, n), sample_weight=data.weights(rng, n))
    if rng.random() < 0.5:
        moments = moments + Moments.from_data(data.matrix(rng, n, 5), data.labels(rng, n))
    check(moments.means, moments.scatter_diag)
    check(SemFS(2).fit_moments(moments).scores_)


#: The calls, as often as they are made.
CALLS: list[Callable[[np.random.Generator, Path], None]] = [
    call_semfs,
    call_semfs,
    call_semfs,
    call_rules,
    call_batch,
    call_names,
    call_dask,
    call_file,
    call_anndata,
    call_command,
    call_baseline,
    call_evaluation,
    call_moments,
]
