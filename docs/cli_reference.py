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
HEAD = """# Command line

<!-- Written by docs/cli_reference.py from `semfs --help`; `make cli-docs` writes it again. -->

The extra `cli` ([installation](install.md)) installs the command `semfs`. If data or files
have an error, one line on standard error says what was found, what was expected and what to do.
After a misspelled command or option, the command prints its usage. The exit code is 2 in both
cases. In a pipe, or if `NO_COLOR` is set, the output is plain text without escape codes. For
scripts, use `--json`.
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
        row = f"| {shown} | {_help(parameter)} |"
        groups.setdefault(getattr(parameter, "rich_help_panel", None), []).append(row)
    head = "| option | meaning |\n|---|---|"
    tables = []
    for group, rows in groups.items():
        title = f"**{group}**\n\n" if group else ""
        if rows:
            tables.append("\n".join([f"{title}{head}", *rows]))
    return "\n\n".join(tables) or "No options."


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    text = re.sub(r"<([^>]*)>", r"`\1`", text).replace("|", "\\|")
    text = OPTION.sub(r"`\1`", text)
    values = _values(getattr(parameter, "type_descriptor", None))
    if values:
        text += " Values: " + ", ".join(f"`{value}`" for value in values) + "."
    default = parameter.default
    if not (default is None or isinstance(default, bool) or default == "" or callable(default)):
        text += f" Default: `{default}`."
    return text + (" **Required.**" if parameter.required else "")


def _values(type_descriptor: Any) -> list[str]:
    """Return the values of an option that takes one of a list, else nothing."""
    annotation = getattr(type_descriptor, "annotation", None)
    choices = [annotation, *get_args(annotation)]
    for choice in choices:
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
