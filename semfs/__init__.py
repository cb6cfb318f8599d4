"""Feature selection for classes nobody has labeled yet, from class descriptions.

>>> from semfs import SemFS
>>> SemFS(n_features_to_select=10)
SemFS(n_features_to_select=10)
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing would take longer than all else in this file
if TYPE_CHECKING:
    from semfs.method.moments import Moments
    from semfs.selectors.persistence.files import load, save
    from semfs.selectors.semfs import AS_PUBLISHED, SemFS
    from semfs.selectors.semfs_cv import SemFSCV

__version__ = "0.1.0"
__all__ = ["AS_PUBLISHED", "Moments", "SemFS", "SemFSCV", "load", "save"]

#: The module that defines each public name. It is imported when the name is first used, so
#: that `semfs --help` need not load scikit-learn.
_DEFINED_IN = {
    "AS_PUBLISHED": "semfs.selectors.semfs",
    "Moments": "semfs.method.moments",
    "SemFS": "semfs.selectors.semfs",
    "SemFSCV": "semfs.selectors.semfs_cv",
    "load": "semfs.selectors.persistence.files",
    "save": "semfs.selectors.persistence.files",
}
#: Packages that `import semfs` alone makes available: semfs.baselines.MCFS.
_PACKAGES = ("attributes", "baselines", "datasets", "evaluation")


def __getattr__(name: str) -> object:
    """Import a public name or package when it is first used."""
    if name in _PACKAGES:
        return import_module(f"semfs.{name}")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'semfs' has no attribute {name!r}")
    value: object = getattr(import_module(_DEFINED_IN[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
