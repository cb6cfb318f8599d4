"""Feature selection for classes nobody has labeled yet, from class descriptions.

>>> from semfs import SemFS
>>> SemFS(n_features_to_select=10)
SemFS(n_features_to_select=10)
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing itself would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from semfs.method.moments import Moments
    from semfs.selectors.persistence import load, save
    from semfs.selectors.semfs import AS_PUBLISHED, SemFS
    from semfs.selectors.semfs_cv import SemFSCV

__version__ = "0.1.0.dev0"
__all__ = ["AS_PUBLISHED", "Moments", "SemFS", "SemFSCV", "load", "save"]

_HOMES = dict.fromkeys(["AS_PUBLISHED", "SemFS"], "semfs.selectors.semfs")
_HOMES |= dict.fromkeys(["load", "save"], "semfs.selectors.persistence")
_HOMES |= {"Moments": "semfs.method.moments", "SemFSCV": "semfs.selectors.semfs_cv"}
_ROOMS = ("attributes", "baselines", "datasets", "evaluation")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `semfs --help` stays light."""
    if name in _ROOMS:
        return import_module(f"semfs.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'semfs' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
