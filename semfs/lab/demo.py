"""The whole story on the bundled cells: choose genes, judge them on cell types never seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs.datasets import ZeroShotDataset, load_sample
from semfs.lab.measures import Case, scores
from semfs.lab.methods import find_method, rank
from semfs.lab.sources import split_facts
from semfs.selectors.semfs import SemFS

__all__ = ["Demo", "Gene", "run_demo"]

METHODS = ("semfs", "semfs-labels", "anova", "variance", "random")
KS = (5, 10, 15, 20)


@dataclass(frozen=True)
class Gene:
    """A chosen gene: ``share`` of the total fall of J, and the attribute it speaks of most."""

    name: str
    share: float
    attribute: str


@dataclass(frozen=True)
class Demo:
    """Data set, chosen genes, and one row per split, method and k (as `semfs report` reads)."""

    data: ZeroShotDataset
    genes: list[Gene]
    rows: list[dict[str, Any]]
    info: dict[str, Any]


def run_demo(
    n_genes: int = 20,
    n_splits: int = 12,
    *,
    seed: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> Demo:
    """Choose genes on the seen cell types of the sample and cluster the unseen ones.

    The genes are those of the sample's own split. Methods are compared over ``n_splits``
    random splits with as many unseen types, because one split proves little. ``on_step`` is
    called after each of them.
    """
    data = load_sample("blood")
    rows = []
    splits = data.random_splits(n_splits, len(data.unseen), random_state=seed)
    for number, split in enumerate(splits):
        rows += list(_compare(split, f"random-{number}", n_genes, seed))
        on_step()
    facts = split_facts(data, list(data.unseen))
    shape = {"n_features": data.X.shape[1], "n_attributes": data.attributes.shape[1]}
    info = {"datasets": {data.name: {"name": data.name, **facts, **shape}}}
    return Demo(data, chosen_genes(data, n_genes), rows, info)


def chosen_genes(data: ZeroShotDataset, n_genes: int) -> list[Gene]:
    """Return the genes that SemFS chooses on the seen types, best first."""
    X, y, _, _ = data.split()
    selector = SemFS(n_genes, attributes=data.attributes).fit(X, y)
    # How far one standard deviation of the gene moves an attribute, in its own spread.
    spread = selector.class_table_.values.std(axis=0)
    effect = selector.coef_ / np.where(spread > 0, spread, np.inf)
    gains = selector.scores_[selector.order_[:n_genes]]
    found = []
    for feature, gain in zip(selector.order_[:n_genes], gains):
        best = int(np.argmax(np.abs(effect[feature])))
        sign = "+" if effect[feature, best] > 0 else "−"
        name = str(selector.attribute_names_in_[best])
        found.append(
            Gene(str(data.feature_names[feature]), float(gain / gains.sum()), f"{sign} {name}")
        )
    return found


def _compare(
    data: ZeroShotDataset, split: str, n_genes: int, seed: int
) -> Iterator[dict[str, Any]]:
    """One row per method and k."""
    case = Case.of(data)
    ks: Sequence[int] = [k for k in KS if k <= n_genes] or [n_genes]
    for name in METHODS:
        method = find_method(name)
        start = time.perf_counter()
        table = data.attributes if method.attributes else None
        ranking = rank(method, {}, case.X, case.y, table, ks, seed=seed)
        seconds = time.perf_counter() - start
        n_draws = 20 if name == "random" else None
        found = scores(case, ranking, ks, 20, seed, n_draws)
        for k, values in found.items():
            yield {
                "experiment": "clustering",
                "dataset": data.name,
                "split": split,
                "method": name,
                "label": method.label,
                "params": {},
                "k": k,
                "acc": values["acc"][0],
                "nmi": values["nmi"][0],
                "acc_sd": values["acc"][1],
                "nmi_sd": values["nmi"][1],
                "seconds": seconds,
                "seed": seed,
                "features": case.names(ranking.features(k)),
                "extra": {},
            }
