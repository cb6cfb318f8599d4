"""Made-up results in the shape of a run's, to test figures and report. Never real numbers."""

import random
from typing import Any

EVIL = "<script>alert(1)</script>"
NASTY = [
    EVIL,
    "<b>bold</b> & <i>co</i>",
    "]]></script><!-- \u2028 -->",
    "{{ 7 * 7 }}",
    "%{x} $x^2$",
    '"><img src=x onerror=alert(2)>',
    "=HYPERLINK(1)",
    "\u202eevil",
    "a &lt; b",
]
QUALITY = {
    "SemFS": 0.05,
    "SemFS/c": 0.045,
    "Random": -0.07,
    "MCFS": 0.03,
    "FSASL": 0.0,
    "LASSO": 0.02,
    "L20ALM": 0.01,
    "WkNN": -0.01,
    "MCFS (oracle)": 0.05,
    "FSASL (oracle)": 0.03,
    "LASSO (oracle)": 0.045,
    "WkNN (oracle)": 0.02,
}
DATASETS = {
    "apy": ["given"],
    "animals31": ["given"],
    "cifar10": [f"{i}-{i + 1}" for i in range(5)],
}
KS = range(5, 51, 5)


def row(label: str, score: float, **others: Any) -> dict[str, Any]:
    """One row; ``others`` override any column."""
    method = label.split(" ")[0].lower()
    scores = {"acc": score, "nmi": score - 0.05, "acc_sd": 0.02, "nmi_sd": 0.02}
    place = {"experiment": "clustering", "dataset": "apy", "split": "given", "k": 5}
    more = {"params": {}, "extra": {}, "features": [], "seed": 0, "seconds": 0.5}
    return {"method": method, "label": label, **place, **scores, **more, **others}


def rows_of(scores: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Rows from {label: [score on split 0, on split 1, …]}, one k."""
    return [row(m, acc, split=str(i)) for m, v in scores.items() for i, acc in enumerate(v)]


def clustering_rows(names: list[str] | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Curves of twelve methods on three data sets; ``names`` are used as feature names."""
    draw = random.Random(seed)
    names = names or [f"x{i}" for i in range(200)]
    rows = []
    for dataset, splits in DATASETS.items():
        for split in splits:
            luck = draw.gauss(0, 0.03)
            for label, quality in QUALITY.items():
                features = draw.sample(names, min(50, len(names)))
                level = 0.25 + luck + quality + draw.gauss(0, 0.01)
                for k in KS:
                    acc = level + 0.12 * (1 - 5 / k) + draw.gauss(0, 0.004)
                    at = {"dataset": dataset, "split": split, "k": k, "features": features[:k]}
                    rows.append(row(label, acc, **at))
    return rows


def all_rows(names: list[str] | None = None) -> list[dict[str, Any]]:
    """Rows of all six experiments."""
    draw = random.Random(1)
    rows = clustering_rows(names)
    for draw_number in range(3):
        at = {"dataset": "apy", "split": f"draw {draw_number}"}
        for k in (10, 50):
            for ratio in (0.1, 0.2, 0.5, 1.0):
                acc = 0.3 + 0.08 * ratio + draw.gauss(0, 0.01)
                settings = {"experiment": "labeled-ratio", "k": k, "params": {"ratio": ratio}}
                rows += [row(m, acc + QUALITY[m], **at, **settings) for m in ("SemFS", "LASSO")]
            for exponent in range(-3, 4):
                settings = {"experiment": "alpha", "k": k, "params": {"alpha": 10.0**exponent}}
                rows.append(row("SemFS", 0.4 + draw.gauss(0, 0.005), **at, **settings))
            for target, gain in (("attributes", 0.03), ("labels", 0.0)):
                settings = {"experiment": "attributes-vs-labels", "k": k}
                settings["params"] = {"targets": target}
                rows += [
                    row(f"{m} ({target})", 0.35 + gain + draw.gauss(0, 0.01), **at, **settings)
                    for m in ("SemFS", "SemFS/c", "LASSO", "L20ALM")
                ]
    for label, factor in (("SemFS", 0.6), ("SemFS as published", 0.9)):
        objective = [120 * factor**i + 3 for i in range(20)]
        extra = {"objective": objective}
        unscored = {"k": None, "acc": None, "nmi": None}
        rows.append(row(label, 0, **{"experiment": "convergence", "extra": extra, **unscored}))
        for n, d in [(1000, 512), (4000, 512), (16000, 512), (4000, 128), (4000, 2048)]:
            extra = {"n": n, "d": d}
            time = {"seconds": 1e-6 * factor * n * d**1.3 / 40, "extra": extra}
            rows.append(row(label, 0, **{"experiment": "scaling", **unscored, **time}))
    return rows


def failures() -> list[dict[str, Any]]:
    """Two failed jobs, one with a hostile message."""
    place = {"experiment": "clustering", "dataset": "apy", "split": "given"}
    job = place | {"params": {"mu": 1.0}}
    return [
        {**job, "method": "l20alm", "error": "LinAlgError: singular matrix"},
        {**job, "method": "wknn", "error": f"ValueError: {EVIL}\nsecond line"},
    ]


def info(classes: list[str] | None = None) -> dict[str, Any]:
    """Facts of a run; ``classes`` are used as class names."""
    classes = classes or ["ant", "bee", "cat", "dog"]
    facts = {"n_seen": 12695, "n_unseen": 2644, "n_features": 4096, "n_attributes": 64}
    halves = {"seen": classes[::2], "unseen": classes[1::2]}
    return {
        "command": "semfs reproduce clustering --data data --out run",
        "versions": {"semfs": "0.1.0", "numpy": "2.4.0", "python": "3.11.7"},
        "datasets": dict.fromkeys(DATASETS, facts | halves),
    }


def nasty_explanation():
    """Why three features were chosen, with hostile names for features, classes, attributes."""
    import numpy as np
    import pandas as pd

    from problems import make_problem
    from semfs import SemFS

    X, y, A = make_problem(n=120, d=len(NASTY), C=6, m=len(NASTY))
    labels = np.array([*NASTY, "a", "b", "c", "d", "e"])[:6]
    table = pd.DataFrame(A, index=labels, columns=NASTY)
    selector = SemFS(3, table).fit(pd.DataFrame(X, columns=NASTY), labels[y])
    return selector.explain(n_bootstraps=5)
