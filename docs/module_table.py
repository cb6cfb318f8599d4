"""The table of modules on the page *How it works inside*, from the package itself."""

import ast
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "semfs"


def module_table() -> str:
    """Return a table of the layers from the ground up: what each does, and its files."""
    lines = ["| module or package | what it does | files |", "|---|---|---|"]
    for name in layers():
        folder = PACKAGE / name
        # files of packages inside a package are shown with their folder
        paths = [path.relative_to(folder) for path in folder.rglob("[!_]*.py")]
        files = sorted(path.with_suffix("").as_posix() for path in paths)
        shown = ", ".join(f"`{file}`" for file in files)
        lines.append(f"| `{name}` | {summary(name)} | {shown} |")
    return "\n".join(lines) + "\n"


def layers() -> list[str]:
    """Return the modules and packages in the order in which they may import each other.

    tests/layers.py holds the order. It is run, not parsed: whatever it does to the list counts.
    """
    found: list[str] = runpy.run_path(str(ROOT / "tests" / "layers.py"))["LAYERS"]
    on_disk = modules_on_disk()
    if set(found) != on_disk:
        different = sorted(set(found) ^ on_disk)
        raise ValueError(f"tests/layers.py and the package differ in {', '.join(different)}.")
    return found


def modules_on_disk() -> set[str]:
    """Return the names of the top-level modules and packages."""
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return files | packages


def summary(name: str) -> str:
    """Return the first paragraph of the docstring of a module or package."""
    single = PACKAGE / f"{name}.py"
    path = single if single.exists() else PACKAGE / name / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
