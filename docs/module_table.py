"""The table of rooms on the page *How it works inside*, from the packages themselves."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "semfs"
GENERATED = Path(__file__).parent / "generated"


def write_module_table() -> None:
    """Write docs/generated/modules.md."""
    GENERATED.mkdir(exist_ok=True)
    (GENERATED / "modules.md").write_text(module_table(), encoding="utf-8")


def module_table() -> str:
    """Return the rooms from the ground up: first sentence of the docstring, and the files."""
    lines = ["| room | what it does | files |", "|---|---|---|"]
    for room in rooms():
        files = sorted(path.stem for path in (PACKAGE / room).glob("[!_]*.py"))
        shown = ", ".join(f"`{name}`" for name in files)
        lines.append(f"| `{room}` | {sentence(room)} | {shown} |")
    return "\n".join(lines) + "\n"


def rooms() -> list[str]:
    """Return the names in ``ROOMS`` of tests/test_architecture.py, which holds the order."""
    tree = ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [name for name in ast.literal_eval(values["ROOMS"]) if not name.startswith("_")]


def sentence(room: str) -> str:
    """Return the first paragraph of a room's docstring."""
    single = PACKAGE / f"{room}.py"
    path = single if single.exists() else PACKAGE / room / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
