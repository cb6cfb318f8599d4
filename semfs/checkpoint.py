"""Checkpoints of a pass over data: what was added up so far and how many rows it took."""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """A folder with one file per pass, each written beside its place and then renamed.

    Files hold plain arrays only (never executed). ``identity`` tells the data apart: a
    checkpoint of other data is refused, not mixed in.
    """

    path: Path
    identity: str

    def read(self, name: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a pass, or None if it has not begun."""
        file = self.path / f"{name}.npz"
        if not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"the checkpoint {self.path} is damaged ({error}). Delete it to start afresh."
            ) from error
        if str(arrays.pop("identity")) != self.identity:
            raise ValueError(
                f"the checkpoint {self.path} belongs to other data, labels or weights (or the "
                "file has changed since). Delete it, or give another place for this one."
            )
        return arrays

    def write(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Store the arrays of a pass, all or nothing."""
        self.path.mkdir(parents=True, exist_ok=True)
        beside = self.path / f"{name}.{os.getpid()}.tmp"
        try:
            with beside.open("wb") as file:
                np.savez(file, identity=np.array(self.identity), **arrays)  # type: ignore[arg-type]
            os.replace(beside, self.path / f"{name}.npz")
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    def clear(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self.path, ignore_errors=True)
