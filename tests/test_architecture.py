"""The folder list is the architecture: a room imports only rooms that stand before it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "semfs"

# From the ground up.
ROOMS = [
    "_typing",
    "system",
    "progress",
    "validation",
    "arrays",
    "labels",
    "io",
    "rows",
    "method",
    "attributes",
    "evaluation",
    "selectors",
    "baselines",
    "datasets",
    "scverse",
    "lab",
    "cli",
    "__main__",
]


def imports_of(path):
    """Rooms that a file imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
            if node.module == "semfs":
                names = [
                    f"semfs.{alias.name}" for alias in node.names if alias.name != "__version__"
                ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("semfs.")}
    return found


def files_of(room):
    single = PACKAGE / f"{room}.py"
    return [single] if single.exists() else sorted((PACKAGE / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_before_it(room):
    files = files_of(room)
    assert files
    before = set(ROOMS[: ROOMS.index(room)]) | {room}
    for path in files:
        assert imports_of(path) <= before, path.name


def test_every_module_is_in_a_room():
    names = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()
    }
    assert names - {"__init__"} == set(ROOMS)


def test_no_file_uses_relative_imports():
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        levels = [n.level for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not any(levels), path
