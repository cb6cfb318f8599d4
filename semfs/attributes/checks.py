"""What a class-attribute table is worth: constants, repeats, rank, look-alike classes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs.files import need

__all__ = ["AttributeReport", "describe_values"]

_ALIKE = 1e-9  # distance of rows or columns, relative to their length, that counts as none


@dataclass(frozen=True, eq=False)
class AttributeReport:
    """What `describe_attributes` found; print it, or use its tables.

    Attributes
    ----------
    classes, attributes : list
        Labels of the C rows and names of the m columns.
    rank : int
        Rank of the centred table: how many independent facts tell the classes apart.
    constant : list of str
        Attributes with one value for all classes; they say nothing.
    duplicate : list of tuple of str
        Pairs of attributes that are equal for all classes.
    identical : list of tuple
        Pairs of classes with the same description; nothing can tell them apart.
    similarity : ndarray of shape (C, C)
        Cosine similarity of the centred rows.
    """

    classes: list
    attributes: list[str]
    rank: int
    constant: list[str]
    duplicate: list[tuple[str, str]]
    identical: list[tuple[Any, Any]]
    similarity: np.ndarray

    def findings(self) -> Any:
        """Return a frame with one row per finding: ``kind`` and ``what``."""
        rows = [("size", f"{len(self.classes)} classes × {len(self.attributes)} attributes")]
        most = min(len(self.classes) - 1, len(self.attributes))
        rows.append(("rank", f"{self.rank} of at most {most}"))
        rows += [("constant attribute", name) for name in self.constant]
        rows += [("equal attributes", f"{a} = {b}") for a, b in self.duplicate]
        rows += [("identical classes", f"{a} = {b}") for a, b in self.identical]
        return need("pandas", "data").DataFrame(rows, columns=["kind", "what"])

    def nearest(self, n: int = 1) -> Any:
        """Return a frame (C · n rows): each class, its n nearest classes, their similarity."""
        n = min(n, len(self.classes) - 1)
        others = self.similarity.copy()
        np.fill_diagonal(others, -np.inf)
        best = np.argsort(-others, axis=1, kind="stable")[:, :n]
        rows = [
            (self.classes[i], self.classes[j], float(self.similarity[i, j]))
            for i in range(len(self.classes))
            for j in best[i]
        ]
        return need("pandas", "data").DataFrame(
            rows, columns=["class", "nearest", "similarity"]
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the similarity of all classes, ordered so that like stands by like."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "The plot needs matplotlib. Install it with: pip install 'semfs[plots]'"
            ) from error
        if ax is None:
            size = min(12.0, 2.5 + 0.25 * len(self.classes))
            _, ax = plt.subplots(figsize=(size, size), layout="constrained")
        order = _like_by_like(self.similarity)
        shown = self.similarity[np.ix_(order, order)]
        image = ax.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1)
        ax.figure.colorbar(image, ax=ax, shrink=0.7, label="similarity of descriptions")
        if len(order) <= 60:  # more labels than this cannot be read
            names = [str(self.classes[i]) for i in order]
            ax.set_xticks(range(len(order)), names, rotation=90)
            ax.set_yticks(range(len(order)), names)
        ax.set_title(f"{len(order)} classes, rank {self.rank}")
        return ax

    def __str__(self) -> str:
        lines = [f"{kind}: {what}" for kind, what in self.findings().to_numpy()]
        close = self.nearest().sort_values("similarity", ascending=False)
        lines += [f"nearest: {a} – {b} ({s:.2f})" for a, b, s in close.to_numpy()[:5]]
        return "\n".join(lines)


def describe_values(A: np.ndarray, classes: list, names: list[str]) -> AttributeReport:
    """Return the report of a table A (C, m); see `describe_attributes`."""
    Z = A - A.mean(axis=0)
    varies = np.ptp(A, axis=0) > _ALIKE * np.abs(A).max()
    return AttributeReport(
        classes,
        names,
        int(np.linalg.matrix_rank(Z)),
        [name for name, vary in zip(names, varies) if not vary],
        _equal_pairs(A.T[varies], [name for name, vary in zip(names, varies) if vary]),
        _equal_pairs(A, classes),
        _cosine(Z),
    )


def _equal_pairs(rows: np.ndarray, names: list) -> list[tuple]:
    """Neighbouring pairs within each group of equal rows."""
    groups: dict[bytes, list] = {}
    scale = np.abs(rows).max(initial=0.0) or 1.0
    for row, name in zip(np.round(rows / scale / _ALIKE).astype(np.int64), names):
        groups.setdefault(row.tobytes(), []).append(name)
    return [pair for group in groups.values() for pair in itertools.pairwise(group)]


def _cosine(Z: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    unit = Z / np.where(length > 0, length, 1.0)
    return np.clip(unit @ unit.T, -1.0, 1.0)


def _like_by_like(similarity: np.ndarray) -> np.ndarray:
    """Order of the leaves of an average-linkage tree."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(similarity) < 3:
        return np.arange(len(similarity))
    distance = 1.0 - similarity
    np.fill_diagonal(distance, 0.0)
    return leaves_list(linkage(squareform(distance, checks=False), "average"))
