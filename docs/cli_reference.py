"""Write docs/cli.md from the commands themselves; ``--check`` fails if it is out of date.

python docs/cli_reference.py [--check]
"""

import re
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from semfs.cli import app

PAGE = Path(__file__).parent / "cli.md"
#: An option in a text, outside of code: as plain text, its hyphens would become a dash.
OPTION = re.compile(r"(?<![\w`'-])(--?[a-z][a-z-]*)(?=[^`]*(?:`[^`]*`[^`]*)*$)")
#: What the values of options are called.
KINDS = {str: "text", int: "whole number", float: "number", Path: "path"}
HEAD = """# Command line

<!-- Written by docs/cli_reference.py from `semfs --help`; `make cli-docs` writes it again. -->

The extra `cli` ([installation](install.md)) installs the command `semfs`. If data or files
have an error, one line on standard error says what was found, what was expected and what to do.
If a command or option is misspelled, a usage message is printed. The exit code is 2 in both
cases. In a pipe, or if `NO_COLOR` is set, the output is plain text without escape codes. For
scripts, use `--json`.
The column *value* lists the possible values, or says what is expected. "none" stands for a
switch without a value, and "several" for an option that may be repeated. A dash in the column
*default* means that nothing is set.
`semfs --install-completion` sets up tab completion in your shell, and `semfs --version`
prints the version.
"""


def reference() -> str:
    """Return the page."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return "\n".join([HEAD, *(_section(name, commands[name]) for name in commands)])


def _section(name: str, command: Any) -> str:
    usage = " ".join(["[OPTIONS]", *(_argument(p) for p in command.params if _is_argument(p))])
    example = command.epilog.removeprefix("Example:").strip().strip("`")
    parts = [f"## semfs {name}", _paragraphs(command.help)]
    parts.append(f"```console\n$ semfs {name} {usage}\n```")
    parts.append(_options(command))
    parts.append(f"Example:\n\n```console\n$ {example}\n```")
    return "\n\n".join(parts) + "\n"


def _is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name + ("..." if parameter.nargs == -1 else "")


def _paragraphs(text: str) -> str:
    parts = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    return "\n\n".join(OPTION.sub(r"`\1`", part) for part in parts)


def _options(command: Any) -> str:
    """Tables of the options, one for each group."""
    groups: dict[str | None, list[str]] = {None: []}  # those without a group come first
    for parameter in command.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        if _is_argument(parameter):
            names = [_argument(parameter)]
        shown = ", ".join(f"`{name}`" for name in names)
        cells = [shown, _value(parameter), _default(parameter), _help(parameter)]
        row = f"| {' | '.join(cells)} |"
        groups.setdefault(getattr(parameter, "rich_help_panel", None), []).append(row)
    head = "| option | value | default | meaning |\n|---|---|---|---|"
    tables = []
    for group, rows in groups.items():
        title = f"**{group}**\n\n" if group else ""
        if rows:
            tables.append("\n".join([f"{title}{head}", *rows]))
    return "\n\n".join(tables) or "No options."


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    text = re.sub(r"<([^>]*)>", r"`\1`", text).replace("|", "\\|")
    return OPTION.sub(r"`\1`", text)


def _value(parameter: Any) -> str:
    """Return what an option takes: one of a list, a number, text, a path, or nothing."""
    if getattr(parameter, "is_flag", False):
        return "none"
    annotation = parameter.type_descriptor.annotation
    values = _values(annotation)
    if values:
        return ", ".join(f"`{value}`" for value in values)
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        return f"{KINDS[item]}, several"
    return KINDS[annotation]


def _default(parameter: Any) -> str:
    """Return the default of an option; a dash stands for nothing, which the help explains."""
    if parameter.required:
        return "**required**"
    default = parameter.default
    if getattr(parameter, "is_flag", False):
        return "on" if default is True else "off"
    if default is None or default == "" or callable(default):
        return "–"
    return f"`{default}`"


def _values(annotation: Any) -> list[str]:
    """Return the values of an option that takes one of a list, else nothing."""
    for choice in [annotation, *get_args(annotation)]:
        if get_origin(choice) is Literal:
            return [str(value) for value in get_args(choice)]
    return []


if __name__ == "__main__":
    page = reference()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            sys.exit("docs/cli.md is out of date. Run: make cli-docs")
    else:
        PAGE.write_text(page, encoding="utf-8")
