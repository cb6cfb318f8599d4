"""How often the search of the direct solver misses the best set of features.

Random problems are small enough to try all sets: two of twelve features. The features are
independent normal numbers, or random mixtures of such numbers, which makes them correlated.
The search runs at the defaults, and with the settings of the paper, whose penalty is weak.

    python benchmarks/bench_search.py
    python benchmarks/bench_search.py --small    # three problems, nothing written
"""

from __future__ import annotations

import argparse
from itertools import combinations

import numpy as np
from record import write_results

from semfs import AS_PUBLISHED, SemFS

N_PROBLEMS = 60
N_FEATURES = 12
N_SELECTED = 2
N_CLASSES = 6
N_ATTRIBUTES = 4
N_SAMPLES = 60
#: Exchanges that are tried after the forward search.
N_SWAPS = 10
#: Values of J that differ by less than this share are equal up to rounding errors.
EQUAL = 1e-9


#: Settings of the selector, by name.
SETTINGS = {
    "defaults": {"max_correlation": None},
    "published": {**AS_PUBLISHED, "solver": "direct"},
}


def problem(seed: int, mixed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples, labels and attributes that are random, as are the labels of the samples."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_SAMPLES, N_FEATURES))
    if mixed:
        X = X @ rng.normal(size=(N_FEATURES, N_FEATURES))
    y = np.arange(N_SAMPLES) % N_CLASSES
    return X, y, rng.normal(size=(N_CLASSES, N_ATTRIBUTES))


def excesses(seed: int, mixed: bool, settings: dict[str, object]) -> dict[str, float]:
    """By what share J is above that of the best set, without and with exchanges."""
    X, y, A = problem(seed, mixed)

    def objective(**options: object) -> float:
        fitted = SemFS(N_SELECTED, attributes=A, **settings, **options).fit(X, y)
        return float(fitted.objective_[-1])

    sets = combinations(range(N_FEATURES), N_SELECTED)
    best = min(objective(include=list(features)) for features in sets)
    found = {"forward": objective(), "swaps": objective(n_swaps=N_SWAPS)}
    return {name: value / best - 1 for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    seeds = range(3 if options.small else N_PROBLEMS)
    rows = []
    for mixed in (False, True):
        for settings, params in SETTINGS.items():
            of_seeds = [excesses(seed, mixed, params) for seed in seeds]
            for search in ("forward", "swaps"):
                values = [excess[search] for excess in of_seeds]
                rows.append(
                    {
                        "features": "correlated" if mixed else "independent",
                        "settings": settings,
                        "search": search,
                        "problems": len(values),
                        "missed": sum(value > EQUAL for value in values),
                        "largest": round(max(values), 4),
                    }
                )
                print(rows[-1], flush=True)
    found = {
        "n_features": N_FEATURES,
        "n_selected": N_SELECTED,
        "n_swaps": N_SWAPS,
        "rows": rows,
    }
    if not options.small:
        print(write_results("search", found))


if __name__ == "__main__":
    main()
