"""Cells, the units of an experiment: one fit of one method, identified by its parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["Cell", "Result", "as_json"]


@dataclass(frozen=True, eq=False)
class Cell:
    """One fit, identified by everything that decides its numbers.

    Parameters
    ----------
    experiment, dataset, split, method : str
    params : mapping
        Parameters of the method, as JSON values.
    setting : mapping
        What the experiment varies besides the method, for example ``{"ratio": 0.1}``.
    seed : int
    labels : sequence of str
        Names shown in tables and figures; they are not part of the identity.

    Examples
    --------
    >>> a = Cell("alpha", "sample", "given", "semfs", {"alpha": 1, "gamma": 0.5})
    >>> b = Cell("alpha", "sample", "given", "semfs", {"gamma": 0.5, "alpha": 1.0})
    >>> a.key == b.key
    True
    """

    experiment: str
    dataset: str
    split: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    labels: Sequence[str] = ()

    @cached_property
    def key(self) -> str:
        """Hash of the identifying values; 1 and 1.0, and any order of names, are the same."""
        names = ("experiment", "dataset", "split", "method", "params", "setting", "seed")
        identity = {name: _canonical(getattr(self, name)) for name in names}
        return hashlib.sha256(as_json(identity).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Result:
    """What a cell yields: ``scores[k][metric] = (mean, sd)``, fit time, features by name."""

    scores: Mapping[int, Mapping[str, tuple[float, float]]]
    seconds: float
    features: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _canonical(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def as_json(value: Any) -> str:
    """Return a value as JSON text, names sorted."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy, and other mappings, as JSON has them."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)
