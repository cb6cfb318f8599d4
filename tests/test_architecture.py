"""How the code is built: layers that import downward only, lines that read at first sight."""

import ast
import re
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
from layers import LAYERS

PACKAGE = Path(__file__).parents[1] / "semfs"

#: Limits on the package as a whole. Lengths are in characters, indentation included.
MOST_PACKED_PER_1000_LINES = 8
LONGEST_MEAN_LINE = 42
LONGEST_P90_LINE = 75
LEAST_COMMENTS = 0.08  # per line of code
MOST_ANY = 0.08  # of all parameters
LONGEST_FUNCTION = 60  # lines, without the docstring
LONGEST_UNDOCUMENTED = 10

#: Classes of samples with labels (row sources): only `rows` asks which one it has.
ROW_SOURCES = {
    *("RowSource", "HeldRows", "OutOfCoreRows", "BlockSource"),
    *("MemoryRows", "DeviceRows", "ClusterRows", "ChunkRows", "RangeRows"),
    *("StreamedRows", "StreamedCSR", "StreamedCSC"),
}
#: Names that say nothing, or are not words of the field (tests are free to use them).
DIALECT = {
    *("own", "those", "some", "few", "there", "said", "told", "apart", "here", "again"),
    *("how", "kinds", "ways", "foretold", "foretell", "foreseen", "recalled", "worn", "tidied"),
    *("unmarked", "appearing", "pilot", "pilots", "piloted"),
}
#: Public names of the contract: `attributes_from_ontology(own=...)`, and its option.
DIALECT_ALLOWED = {("own", "attributes"), ("own", "cli")}


# ---- reading the package --------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path

    @property
    def name(self):
        return str(self.path.relative_to(PACKAGE))

    @property
    def layer(self):
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    @cached_property
    def text(self):
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def nodes(self):
        return list(ast.walk(ast.parse(self.text)))

    @property
    def functions(self):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in self.nodes if isinstance(node, kinds)]

    @cached_property
    def docstring_lines(self):
        """Numbers of the lines that belong to docstrings."""
        found = set()
        for node in self.nodes:
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, kinds) and ast.get_docstring(node) is not None:
                first = node.body[0]
                found.update(range(first.lineno, first.end_lineno + 1))
        return found

    @cached_property
    def lines(self):
        """Lines that are neither blank nor part of a docstring."""
        numbered = enumerate(self.text.splitlines(), start=1)
        return [
            line
            for number, line in numbered
            if line.strip() and number not in self.docstring_lines
        ]

    @property
    def code_lines(self):
        return [line for line in self.lines if not line.strip().startswith("#")]

    @property
    def n_comments(self):
        return sum(line.strip().startswith("#") or "  # " in line for line in self.lines)

    def imports(self):
        """Return the layers that the file imports, at any depth of its code."""
        names = []
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module == "semfs":
                # `from semfs import x` is the public interface, or a package
                names += [f"semfs.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            elif isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
        parts = [name.split(".") for name in names]
        return {part[1] for part in parts if part[0] == "semfs" and len(part) > 1}


@cache
def modules():
    return [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]


def place(module, node):
    return f"{module.name}:{node.lineno}"


# ---- layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_layers_above_it_in_the_list(layer):
    above = set(LAYERS[: LAYERS.index(layer)]) | {layer}
    files = [module for module in modules() if module.layer == layer]
    assert files
    for module in files:
        # names that `semfs` itself offers, such as SemFS, are no layers
        assert module.imports() & set(LAYERS) <= above, module.name


def test_public_names_are_imported_from_semfs_by_the_application_only():
    public = {"AS_PUBLISHED", "Moments", "SemFS", "SemFSCV", "load", "save"}
    application = {"cli", "__main__"}
    for module in modules():
        if module.layer not in application:
            assert not module.imports() & public, module.name


def test_every_module_is_in_a_layer():
    found = {module.layer for module in modules()}
    assert found - {"__init__"} == set(LAYERS)


@pytest.mark.parametrize("package", ["method", "selectors"])
def test_the_guide_to_a_package_names_all_of_its_modules(package):
    folder = PACKAGE / package
    guide = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    assert set(re.findall(r"``(\w+)``", guide)) == modules | packages


def test_imports_are_absolute():
    for module in modules():
        levels = [n.level for n in module.nodes if isinstance(n, ast.ImportFrom)]
        assert not any(levels), module.name


# ---- what a module may do -------------------------------------------------------------


def test_no_private_module_of_scikit_learn_is_imported():
    private = re.compile(r"sklearn\..*\b_|sklearn\._")
    found = []
    for module in modules():
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            found += [place(module, node) for name in names if private.search(name)]
    assert found == []


def test_only_rows_asks_which_row_source_it_has():
    found = []
    for module in modules():
        if module.layer == "rows":
            continue
        for node in module.nodes:
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if is_call and node.func.id == "isinstance":
                named = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                if named & ROW_SOURCES:
                    found.append(place(module, node))
    assert found == []


def test_warnings_are_given_by_the_function_that_finds_the_line_of_the_user():
    found = []
    for module in modules():
        if module.name != "validation.py" and "warnings.warn(" in module.text:
            found.append(module.name)
    assert found == []


# ---- how a page reads -----------------------------------------------------------------


def test_assignments_are_seldom_packed():
    found = [
        place(module, node)
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    ]
    n_lines = sum(len(module.code_lines) for module in modules())
    assert 1000 * len(found) / n_lines <= MOST_PACKED_PER_1000_LINES, found


def test_lines_are_short():
    lengths = sorted(len(line) for module in modules() for line in module.code_lines)
    assert statistics.fmean(lengths) <= LONGEST_MEAN_LINE
    assert lengths[int(0.9 * len(lengths))] <= LONGEST_P90_LINE


def test_reasons_are_given():
    n_lines = sum(len(module.code_lines) for module in modules())
    assert sum(module.n_comments for module in modules()) / n_lines >= LEAST_COMMENTS


def length(function):
    """Number of lines of a function without its docstring."""
    n_lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        n_lines -= first.end_lineno - first.lineno + 1
    return n_lines


def test_no_function_is_longer_than_a_screen():
    found = [
        place(module, function)
        for module in modules()
        for function in module.functions
        if length(function) > LONGEST_FUNCTION
    ]
    assert found == []


def test_functions_of_more_than_a_few_lines_say_what_they_do():
    found = [
        place(module, function)
        for module in modules()
        for function in module.functions
        if length(function) > LONGEST_UNDOCUMENTED and ast.get_docstring(function) is None
    ]
    assert found == []


def test_parameters_are_seldom_of_any_type():
    n_parameters = 0
    found = Counter()
    for module in modules():
        for function in module.functions:
            for parameter in [*function.args.args, *function.args.kwonlyargs]:
                if parameter.arg in ("self", "cls"):
                    continue
                n_parameters += 1
                annotation = parameter.annotation
                found[module.name] += isinstance(annotation, ast.Name) and (
                    annotation.id == "Any"
                )
    assert found.total() / n_parameters <= MOST_ANY, found.most_common(5)


def test_names_are_words_of_the_field():
    found = []
    for module in modules():
        for node in module.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                name = node.name
            else:
                continue
            name = name.strip("_").lower()
            if name in DIALECT and (name, module.layer) not in DIALECT_ALLOWED:
                found.append(f"{place(module, node)} {name}")
    assert found == []


def test_a_condition_is_written_as_one():
    """``for x in [...]: raise`` is an ``if``, and so is ``"text" * (n > 5)``."""
    found = []
    for module in modules():
        for node in module.nodes:
            loop = isinstance(node, ast.For) and isinstance(node.body[0], ast.Raise)
            product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
            text = product and isinstance(node.left, (ast.Constant, ast.JoinedStr))
            if loop or (text and isinstance(node.right, ast.Compare)):
                found.append(place(module, node))
    assert found == []


def test_constants_of_one_name_have_one_value():
    values = defaultdict(set)
    for module in modules():
        for node in ast.parse(module.text).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            if name.isupper() and isinstance(node.value, ast.Constant):
                values[name].add(repr(node.value.value))
    assert {name: found for name, found in values.items() if len(found) > 1} == {}


def test_the_map_of_tests_names_every_test_file():
    tests = PACKAGE.parent / "tests"
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    start = text.index("## Which test file covers which module")
    section = text[start : text.index("Problems that tests share", start)]
    named = set(re.findall(r"(?:\w+/)?test_\w+", section))
    files = tests.rglob("test_*.py")
    assert named == {path.relative_to(tests).with_suffix("").as_posix() for path in files}
