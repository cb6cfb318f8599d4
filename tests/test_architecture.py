"""Who may import whom: data flow one way."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "semfs"

# What each module may import, from the bottom up. Nothing imports what stands below it here.
ALLOWED = {
    # checks, files
    "validation": "",
    "reading": "",
    # figures and pages of plain values
    "report": "",
    "plots": "report",
    # rows, in memory or not, and their moments
    "rows": "reading validation",
    "moments": "rows validation",
    # the method
    "objective": "moments rows",
    "w_step": "objective",
    "solvers": "objective w_step",
    # class descriptions
    "attribute_files": "reading",
    "diagnostics": "attribute_files",
    "encoders": "attribute_files reading",
    "attributes": "attribute_files diagnostics encoders validation",
    # selectors
    "display": "rows",
    "selector": "display rows validation",
    "joint": "objective solvers",
    "unlabeled": "moments objective rows",
    "descriptions": "attributes moments objective",
    "training": "attributes moments objective rows selector unlabeled validation",
    "resampling": "moments rows",
    "explanation": "attribute_files moments plots resampling rows validation",
    "prediction": "attributes explanation moments rows selector training validation",
    "estimator": "attributes descriptions joint moments objective prediction rows selector "
    "solvers training unlabeled validation",
    "baselines": "attributes selector validation",
    # data and judging
    "datasets": "attribute_files attributes encoders reading rows validation",
    "kmeans": "",
    "evaluation": "attributes kmeans validation",
    "crossval": "attributes estimator evaluation moments prediction resampling rows selector "
    "training unlabeled validation",
    "persistence": "attribute_files attributes baselines crossval datasets estimator moments "
    "reading rows",
    "selection": "attribute_files datasets estimator persistence rows validation",
    # studies and output
    "experiments": "attributes baselines datasets estimator evaluation moments objective "
    "selector",
    "paper": "datasets experiments",
    "demo": "datasets estimator experiments",
    "console": "",
    "cli": "attribute_files attributes console datasets demo encoders experiments paper plots "
    "report rows selection",
    "__main__": "cli",
}
ALLOWED = {module: set(names.split()) for module, names in ALLOWED.items()}


def test_the_list_itself_flows_one_way():
    above = set()
    for module, names in ALLOWED.items():
        assert names <= above, module
        above.add(module)


def imports_of(path):
    """First-level semfs modules that a file imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
            if node.module == "semfs":
                names = [f"semfs.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("semfs.")}
    return found


def files_of(module):
    single = PACKAGE / f"{module}.py"
    return [single] if single.exists() else sorted((PACKAGE / module).glob("*.py"))


@pytest.mark.parametrize("module", ALLOWED)
def test_imports_flow_one_way(module):
    files = files_of(module)
    assert files
    for path in files:
        assert imports_of(path) - {module} <= ALLOWED[module], path.name


def test_every_module_has_its_place():
    modules = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()
    }
    assert modules - {"__init__"} <= set(ALLOWED)


def test_no_file_uses_relative_imports():
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        levels = [n.level for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not any(levels), path
