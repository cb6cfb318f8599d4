"""Old names of row sources: aliases until all branches are merged. Then delete this file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class OldNames:
    """Methods of sources beyond memory that became operations on `Labels`, or were renamed."""

    def _relabel(self: Any, method: str, argument: Any) -> Any:
        if self.labels is None:
            return self
        return self.with_labels(getattr(self.labels, method)(argument))

    def without(self: Any, classes: Iterable[Any]) -> Any:
        return self._relabel("without", classes)

    def align_to(self: Any, known: Iterable[Any]) -> Any:
        return self._relabel("align_to", known)

    def mask_label(self: Any, mark: Any) -> Any:
        return self._relabel("mask_label", mark)

    def labeled(self: Any) -> Any:
        return self.labels_known()

    def named(self: Any, model: Any) -> Any:
        return self.assign(model)

    def scaled(self: Any) -> Any:
        return self.standardized()

    @property
    def scale(self: Any) -> Any:
        return self.preprocessing.scale

    @property
    def normalize(self: Any) -> bool:
        return self.preprocessing.normalize is not None

    @property
    def memory(self: Any) -> int:
        return self.plan.memory

    @property
    def rounding(self: Any) -> float:
        return self.eps

    def wants_matrix(self: Any, n_select: int | None) -> bool:
        return self.forms_matrix(n_select)

    def step(self: Any, *, matrix: bool) -> int:
        return self.rows_per_block(matrix=matrix)
