"""Mutation testing of the mathematics: change it in small ways and count what tests notice.

    python tools/mutation.py [--sample 250] [--seed 0] [--least 0.85] [--part 1/4]

The changes are those of cosmic-ray. Each is tried in a forked process that has numpy and
scikit-learn loaded already and imports the changed module from memory: no file is touched, and
a mutant costs seconds. Left out is what cannot say anything: annotations, operators that fail
on floats at once (``x ^ y``), which would only flatter the rate, and ``*`` for ``&`` of masks,
which is the same. Needs a POSIX system.
"""

import argparse
import ast
import difflib
import importlib.abc
import importlib.util
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MODULES = (
    "method.objective",
    "method.penalty",
    "method.factor",
    "method.target_rank",
    "method.cholesky",
    "method.search",
    "method.forward",
    "method.exchange",
    "method.alternating",
)
TESTS = (
    "tests/method/test_objective.py",
    "tests/method/test_cholesky.py",
    "tests/method/test_forward.py",
    "tests/method/test_exchange.py",
    "tests/method/test_alternating.py",
)
SECONDS = 60  # a mutant that takes longer hangs: killed
# Replacements that are plausible mistakes.
TELLING = re.compile(
    r"ReplaceBinaryOperator_(?!Bit)\w+_(Add|Sub|Mul|Div)$|ReplaceBinaryOperator_Bit(And|Or)_Bit(And|Or)$"
    r"|ReplaceComparisonOperator_\w+_(Eq|NotEq|Lt|LtE|Gt|GtE)$"
    r"|ReplaceComparisonOperator_Is(Not)?_Is(Not)?$|ReplaceUnaryOperator_\w+_(UAdd|Not)$"
    r"|ReplaceUnaryOperator_Delete|NumberReplacer|AddNot|AndWithOr|OrWithAnd|TrueWithFalse"
    r"|FalseWithTrue|BreakWithContinue|ZeroIterationForLoop|ExceptionReplacer"
)


@dataclass(frozen=True)
class Mutant:
    """One change: the occurrence of an operator in a module."""

    module: str
    operator: str
    occurrence: int
    place: tuple[int, int]

    def source(self) -> str:
        """Return the changed module."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        return mutate_code(
            original(self.module), get_operator(self.operator)(), self.occurrence
        )

    def diff(self) -> str:
        """Return the change as lines."""
        lines = difflib.unified_diff(
            original(self.module).splitlines(), self.source().splitlines(), self.module, "", n=0
        )
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def original(module: str) -> str:
    """Return the module as it is."""
    path = Path("semfs", *module.split(".")).with_suffix(".py")
    return (ROOT / path).read_text(encoding="utf-8")


def mutants(module: str) -> Iterator[Mutant]:
    """Yield all telling changes of a module."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes, tree = list(ast_nodes(get_ast(original(module)))), ast.parse(original(module))
    for name in sorted(filter(TELLING.search, operator_names())):
        if get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, place in enumerate(places):
            if _telling(tree, name, place):
                yield Mutant(module, name, occurrence, tuple(place))


def _telling(tree: ast.AST, operator: str, place: Any) -> bool:
    """Whether it is in code that runs; the * of a signature is no product."""
    place = tuple(place)
    for node in _annotations(tree):
        if (node.lineno, node.col_offset) <= place < (node.end_lineno, node.end_col_offset):
            return False
    return "BinaryOperator" not in operator or any(a <= place < b for a, b in _gaps(tree))


def _annotations(tree: ast.AST) -> Iterator[Any]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(getattr(node, name, None), ast.AST):
                yield getattr(node, name)


def _gaps(tree: ast.AST) -> Iterator[tuple[Any, Any]]:
    """Where binary operators stand: between their operands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp):
            left, right = node.left, node.right
            yield (left.end_lineno, left.end_col_offset), (right.lineno, right.col_offset)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module from memory."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def get_filename(self, name: str) -> str:
        return f"<changed {name}>"

    def get_data(self, path: Any) -> bytes:
        return self.source.encode()


def probe_ok(mutant: Mutant | None) -> bool:
    """Whether the tests pass with this change (or with none), tried in a child process."""
    child = os.fork()
    if child == 0:
        _test_and_exit(mutant)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _test_and_exit(mutant: Mutant | None) -> None:
    import pytest

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    code = 1
    try:
        if mutant is not None:
            sys.meta_path.insert(0, Changed(f"semfs.{mutant.module}", mutant.source()))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:doctest", "-o", "addopts="]
        code = int(pytest.main([*options, *TESTS]))
    finally:
        os._exit(code)


def main() -> None:
    """Try a sample of all mutants and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=0.85)
    parser.add_argument("--part", default="1/1", help="i/n: every n-th mutant, from the i-th")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    import hypothesis  # noqa: F401  what children need and do not change
    import pytest  # noqa: F401
    import scipy.sparse.linalg  # noqa: F401
    import sklearn.feature_selection
    import sklearn.metrics  # noqa: F401

    assert not any(name.startswith("semfs") for name in sys.modules)
    if not probe_ok(None):
        sys.exit("The tests fail without any change.")
    every = [mutant for module in MODULES for mutant in mutants(module)]
    sample = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    first, step = map(int, options.part.split("/"))
    sample = sample[first - 1 :: step]
    alive = []
    for number, mutant in enumerate(sample, start=1):
        print(f"\r{number}/{len(sample)}", end="", file=sys.stderr)
        if probe_ok(mutant):
            alive.append(mutant)
            print(f"survived: {mutant.operator} {mutant.diff()}\n", flush=True)
    killed = len(sample) - len(alive)
    print(
        f"{killed} of {len(sample)} killed ({killed / len(sample):.1%}); {len(every)} in all."
    )
    sys.exit(killed < options.least * len(sample))


if __name__ == "__main__":
    main()
