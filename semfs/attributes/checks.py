"""What a class-attribute table is worth: constants, repeats, rank, look-alike classes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import cosine_similarity

from semfs.attributes.tables import as_attribute_table
from semfs.files import need

__all__ = ["AttributeReport", "describe_attributes"]

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

    def __str__(self) -> str:
        lines = [f"{kind}: {what}" for kind, what in self.findings().to_numpy()]
        close = self.nearest().sort_values("similarity", ascending=False)
        lines += [f"nearest: {a} – {b} ({s:.2f})" for a, b, s in close.to_numpy()[:5]]
        return "\n".join(lines)


def describe_attributes(table: Any) -> AttributeReport:
    """Return constant and duplicate attributes, identical classes, rank and similarities.

    Parameters
    ----------
    table : DataFrame, mapping or array of shape (C, m)
        As for `SemFS(attributes=...)`.

    Examples
    --------
    >>> table = {"cat": [4, 1, 0], "dog": [4, 1, 0], "hen": [2, 1, 1]}
    >>> report = describe_attributes(table)
    >>> report.constant, report.identical, report.rank
    (['a1'], [('cat', 'dog')], 1)
    """
    table = as_attribute_table(table)
    A, classes, names = table.values, table.classes.tolist(), table.names
    Z, varies = A - A.mean(axis=0), np.ptp(A, axis=0) > _ALIKE * np.abs(A).max()
    return AttributeReport(
        classes,
        names.tolist(),
        int(np.linalg.matrix_rank(Z)),
        names[~varies].tolist(),
        _equal_pairs(A.T[varies], names[varies].tolist()),
        _equal_pairs(A, classes),
        cosine_similarity(Z).clip(-1.0, 1.0),
    )


def _equal_pairs(rows: np.ndarray, names: list) -> list[tuple]:
    """Neighbouring pairs within each group of equal rows."""
    groups: dict[bytes, list] = {}
    scale = np.abs(rows).max(initial=0.0) or 1.0
    for row, name in zip(np.round(rows / scale / _ALIKE).astype(np.int64), names):
        groups.setdefault(row.tobytes(), []).append(name)
    return [pair for group in groups.values() for pair in itertools.pairwise(group)]
