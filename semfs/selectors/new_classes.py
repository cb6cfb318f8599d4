"""Alias until all branches are merged: see `clusters` and `knowledge`."""

from typing import Any

from semfs.selectors import knowledge
from semfs.selectors.clusters import LARGEST_SAMPLE as LARGEST_SAMPLE


def further_knowledge(
    selector: Any, objective: Any, table: Any, units: Any, unlabeled: Any
) -> tuple[dict[str, Any], list]:
    """Call `knowledge.further_knowledge` with the arguments of earlier versions."""
    return knowledge.further_knowledge(selector, objective, table, unlabeled, units)
