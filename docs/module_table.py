"""The table of modules on the page *How it works inside*, from the modules themselves."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "semfs"
GENERATED = Path(__file__).parent / "generated"

#: Layers from the bottom up; what is new lands in the last one until it is put in its place.
LAYERS = {
    "Checks and files": "validation reading",
    "Rows and their sums": "rows moments",
    "The method": "objective w_step solvers joint descriptions unlabeled",
    "Class descriptions": "attribute_files diagnostics encoders attributes",
    "Selectors": "display selector training prediction estimator resampling crossval "
    "explanation baselines persistence",
    "Data and judging": "datasets kmeans evaluation selection",
    "Studies and output": "experiments paper report plots demo",
    "The command": "console cli",
}


def write_module_table() -> None:
    """Write docs/generated/modules.md."""
    GENERATED.mkdir(exist_ok=True)
    (GENERATED / "modules.md").write_text(module_table(), encoding="utf-8")


def module_table() -> str:
    """Return layers and modules with the first sentence of each docstring."""
    found = {path.stem: path for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    found |= {path.parent.name: path for path in PACKAGE.glob("*/__init__.py")}
    lines = ["| layer | module | owns |", "|---|---|---|"]
    for layer, names in LAYERS.items():
        for name in [n for n in names.split() if n in found]:
            lines.append(f"| {layer} | `{name}` | {_first_sentence(found.pop(name))} |")
            layer = ""
    lines += [f"| | `{name}` | {_first_sentence(path)} |" for name, path in found.items()]
    return "\n".join(lines) + "\n"


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
