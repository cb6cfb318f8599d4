"""Hostile matrices, labels, descriptions and weights for tools/fuzz_api.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


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
    kind = rng.choice(
        ["none"] * 12 + ["ordinary"] * 4 + ["zeros", "all zero", "negative", "huge"]
    )
    found: dict[str, Any] = {
        "none": None,
        "ordinary": rng.random(n),
        "zeros": rng.integers(0, 2, n).astype(float),
        "all zero": np.zeros(n),
        "negative": rng.normal(size=n),
        "huge": rng.random(n) * 1e200,
    }
    return found[str(kind)]


def batches(rng: np.random.Generator, n: int) -> Any:
    """Batches (n,) of samples: few, one, or one per sample; as text or as numbers."""
    codes = rng.integers(0, int(rng.choice([1, 2, 3, max(1, n)])), n)
    if rng.random() < 0.5:
        return codes
    return np.array([f"donor {code}" for code in codes])


def frame(rng: np.random.Generator, n: int, d: int) -> Any:
    """A pandas frame (n, d) of numbers with names, ordinary or with something unusual."""
    import pandas

    X = matrix(rng, n, d)
    if sp.issparse(X):
        X = X.toarray()
    names = [f"g{j}" for j in range(d)]
    if rng.random() < 0.05:
        names[-1] = names[0]
    return pandas.DataFrame(np.array(X, dtype=float), columns=names)


def rules(rng: np.random.Generator, d: int, y: Any) -> dict[str, Any]:
    """Rules of a panel for d features, some of which cannot be met."""
    found: dict[str, Any] = {}
    if rng.random() < 0.3:
        found["candidates"] = rng.integers(0, d, max(1, d // 2)).tolist()
    if rng.random() < 0.3:
        found["min_per_class"] = int(rng.integers(1, 3))
    if rng.random() < 0.25:
        found["groups"] = rng.integers(0, max(1, d // 2), d).tolist()
    if rng.random() < 0.4:
        found["costs"] = np.round(10.0 ** rng.integers(-3, 4) * rng.random(d), 4)
        share = float(rng.choice([0.0, 0.1, 0.5, 2.0]))
        found["budget"] = float(share * found["costs"].sum())
    if rng.random() < 0.2:
        found["min_level"] = float(rng.normal())
    if rng.random() < 0.2:
        found["max_level"] = float(rng.normal() + 2.0)
    if rng.random() < 0.2:
        found["capacity"] = float(10.0 ** rng.integers(-1, 3))
    return found
