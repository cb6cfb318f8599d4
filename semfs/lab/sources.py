"""The source files of a user's selector: results that older files gave are noticed.

Our own methods need no such record: a version that changes their results says so, and results
of earlier versions stay valid otherwise.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from semfs.lab.store import Job, Store

#: Folders of installed packages; what they hold is not the user's.
INSTALLED = {"site-packages", "dist-packages"}

#: Digits of SHA-256 that stand for the contents of a file.
DIGITS = 16

#: Digest of each file by its path, relative to the folder that modules are imported from.
Sources: TypeAlias = dict[str, str]


def sources_of(method: str) -> Sources:
    """Return digests of the files that define a method given as ``module:Selector``.

    The files are the module and its imports (including imports inside functions) that are
    located next to the module. For an installed package, only its own files are included. The
    module must already be imported. For a method of any other form, the result is empty.
    """
    module = sys.modules.get(method.rpartition(":")[0])
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return {}
    root = _import_root(module, Path(file))
    found: Sources = {}
    todo = [Path(file)]
    while todo:
        path = todo.pop()
        name = path.relative_to(root).as_posix()
        if name in found:
            continue
        content = path.read_bytes()
        found[name] = hashlib.sha256(content).hexdigest()[:DIGITS]
        if path.suffix == ".py":
            todo += _imported_files(content, path, root)
    return dict(sorted(found.items()))


def _import_root(module: ModuleType, file: Path) -> Path:
    """Return the folder from which a module is imported by its full name."""
    depth = module.__name__.count(".") + hasattr(module, "__path__")
    return file.parents[depth]


def _imported_files(content: bytes, path: Path, root: Path) -> Iterator[Path]:
    """The files below the root that a source file imports."""
    package = path.relative_to(root).parts[:1]
    for parts in _imported_names(content, path, root):
        # Of installed packages, others are not followed; nor are our own files.
        if not parts or parts[0] == "semfs":
            continue
        if root.name in INSTALLED and parts[:1] != package:
            continue
        # "from a import b" names a module b, or an object of the module a. Importing a.b runs
        # a/__init__.py as well.
        for n in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:n])
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    yield file


def _imported_names(content: bytes, path: Path, root: Path) -> Iterator[tuple[str, ...]]:
    """Full names, in parts, of everything that a source file imports."""
    package = path.relative_to(root).parent.parts
    try:
        tree = ast.parse(content)
    except SyntaxError:  # it can be beside the module without being imported in fact
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            # "from . import b" has one dot: the package of the file itself.
            above = package[: len(package) - node.level + 1] if node.level else ()
            inside = tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*above, *inside, alias.name)


def forget_outdated(store: Store, jobs: Iterable[Job]) -> list[str]:
    """Mark finished jobs to be computed again if the source of their method has changed.

    The function returns one sentence for each method and file. Results of runs that did not
    record the source are kept.
    """
    planned = {job.key: job for job in jobs}
    notes = []
    for method in dict.fromkeys(job.method for job in planned.values()):
        now = sources_of(method)
        if not now:
            continue
        outdated: dict[str, list[Job]] = defaultdict(list)
        for job, extra in store.extras(method):
            before = extra.get("sources")
            if before and before != now:
                outdated[_first_difference(before, now)].append(job)
        for file, of_file in outdated.items():
            recomputed = [job for job in of_file if job.key in planned]
            for job in recomputed:
                store.fail(job, f"{file} has changed since this job was computed.")
            notes.append(_note(method, file, len(recomputed), len(of_file) - len(recomputed)))
    return notes


def _note(method: str, file: str, n_again: int, n_left: int) -> str:
    """Return what is said of jobs that were computed with another source."""
    text = f"{file} has changed."
    if n_again:
        text += f" Finished jobs of {method} that are computed again: {n_again}."
    if n_left:
        text += (
            f" Finished jobs of {method} in other experiments, splits or settings, which keep "
            f"the results of the old source until you run them again: {n_left}."
        )
    return text


def _first_difference(before: Sources, now: Sources) -> str:
    """Return the first file that is not as it was; there is one."""
    return next(file for file in sorted({*before, *now}) if before.get(file) != now.get(file))
