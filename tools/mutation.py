"""Mutation testing of the mathematics: change it in small ways and count what tests notice.

    python tools/mutation.py [--sample 250] [--seed 0] [--least 0.85]

Works on a copy of the tree, because cosmic-ray edits files in place. Mutants that cannot say
anything are left out: those in annotations, and operators that fail on floats at once
(``x ^ y``), which would only flatter the rate. Survivors are printed as diffs.
"""

import argparse
import ast
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = "tools/mutation.toml"
# Replacements that are plausible mistakes.
TELLING = re.compile(
    r"ReplaceBinaryOperator_\w+_(Add|Sub|Mul|Div)$|ReplaceBinaryOperator_Bit(And|Or)_Bit(And|Or)$"
    r"|ReplaceComparisonOperator_\w+_(Eq|NotEq|Lt|LtE|Gt|GtE)$"
    r"|ReplaceComparisonOperator_Is(Not)?_Is(Not)?$|ReplaceUnaryOperator_\w+_(UAdd|Not)$"
    r"|ReplaceUnaryOperator_Delete|NumberReplacer|AddNot|AndWithOr|OrWithAnd|TrueWithFalse"
    r"|FalseWithTrue|BreakWithContinue|ZeroIterationForLoop|ExceptionReplacer"
)


def annotation_spans(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of all annotations."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            found = getattr(node, field, None)
            if isinstance(found, ast.AST):
                yield found


def operator_gaps(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield where binary operators stand: between their operands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp):
            left, right = node.left, node.right
            yield (
                (left.end_lineno or 0, left.end_col_offset or 0),
                (right.lineno, right.col_offset),
            )


def keep(tree: ast.AST, operator: str, place: tuple[int, int]) -> bool:
    """Whether a mutant at this place can tell something about the tests."""
    if not TELLING.search(operator):
        return False
    for node in annotation_spans(tree):
        start = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        if start <= place < end:
            return False
    binary = "BinaryOperator" in operator  # the * of a signature is no product
    return not binary or any(a <= place < b for a, b in operator_gaps(tree))


def choose(session: Path, tree_of: dict[str, ast.AST], sample: int, seed: int) -> int:
    """Leave a sample of telling mutants in the session; returns how many there were."""
    with sqlite3.connect(session) as store:
        rows = store.execute(
            "SELECT job_id, module_path, operator_name, start_pos_row, start_pos_col "
            "FROM mutation_specs ORDER BY 2, 4, 5, 3, occurrence"
        ).fetchall()
        telling = [
            job for job, path, name, *place in rows if keep(tree_of[path], name, tuple(place))
        ]
        chosen = set(random.Random(seed).sample(telling, min(sample, len(telling))))
        rest = [(job,) for job, *_ in rows if job not in chosen]
        store.executemany("DELETE FROM mutation_specs WHERE job_id = ?", rest)
        store.executemany("DELETE FROM work_items WHERE job_id = ?", rest)
    return len(telling)


def outcomes(session: Path) -> tuple[int, int, list[str]]:
    """Return the number of killed and of all mutants that ran, and diffs of survivors."""
    with sqlite3.connect(session) as store:
        rows = store.execute("SELECT test_outcome, diff FROM work_results").fetchall()
    survived = [diff for outcome, diff in rows if outcome == "SURVIVED"]
    ran = [outcome for outcome, _ in rows if outcome is not None]
    return len(ran) - len(survived), len(ran), survived


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=0.85)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("semfs", "tests", "tools"):
            shutil.copytree(
                ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(ROOT / "pyproject.toml", copy)
        tree_of = {
            f"semfs/{name}.py": ast.parse((copy / "semfs" / f"{name}.py").read_text("utf-8"))
            for name in ("objective", "solvers")
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = os.environ | {"PATH": path}

        def cosmic_ray(*words: str) -> None:
            subprocess.run(["cosmic-ray", *words], cwd=copy, env=env, check=True)

        session = copy / "session.sqlite"
        cosmic_ray("init", CONFIG, session.name)
        n_telling = choose(session, tree_of, options.sample, options.seed)
        cosmic_ray("baseline", CONFIG)
        cosmic_ray("exec", CONFIG, session.name)
        killed, ran, survivors = outcomes(session)
    print("\n\n".join(survivors))
    print(f"\n{killed} of {ran} mutants killed ({killed / ran:.1%}), of {n_telling} possible.")
    sys.exit(killed < options.least * ran)


if __name__ == "__main__":
    main()
