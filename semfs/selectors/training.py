"""Old names of what is in `inputs` and `problem` now; alias until all branches are merged."""

from __future__ import annotations

from typing import Any

from semfs.labels import UNLABELED
from semfs.selectors.inputs import RESCALE, UnlabeledStream

StreamedRows = UnlabeledStream


class Units:
    """The units of the user: nothing is rescaled any more."""

    x = 0
    a = 0

    @classmethod
    def of(cls, *_: Any) -> Units:
        """Return the only units."""
        return cls()

    def table(self, table: Any) -> Any:
        return table

    def moments(self, moments: Any) -> Any:
        return moments

    def params(self, selector: Any) -> dict[str, Any]:
        names = ("gamma", "step", "label_weight")
        return {name: getattr(selector, name) for name in names}


def __getattr__(name: str) -> Any:
    if name == "Candidates":
        from semfs.selectors.problem import Candidates

        return Candidates
    raise AttributeError(name)


__all__ = ["RESCALE", "UNLABELED", "StreamedRows", "Units"]
