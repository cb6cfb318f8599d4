"""The command line: one file per group of commands, and how they speak (`console`)."""

try:
    import functools
    import inspect
    import os
    import signal
    import sys
    import warnings
    from collections.abc import Callable
    from dataclasses import is_dataclass
    from typing import Annotated, Any

    import typer
    from typer.core import TyperCommand, TyperGroup

    from semfs.cli import commands
    from semfs.cli.console import complain
except ModuleNotFoundError as error:  # pragma: no branch
    raise SystemExit(
        f"The semfs command needs {error.name}. Install it with: pip install 'semfs[cli]'"
    ) from None

__all__ = ["app", "main"]

#: The functions of `commands`, in the order of the help.
COMMANDS = ("demo", "select", "attributes", "datasets", "evaluate", "reproduce", "report")


class _PlainHelp:
    """Help without ``<bool>`` behind options that take no value, and with readable names."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                param.metavar = param.metavar or param.name.upper()
            elif param.multiple:
                param.metavar = "<str>"
        return params


def _command(function: Callable) -> Callable:
    """Return a function for typer: its errors are one line and exit code 2.

    A command may take one dataclass, whose fields are then its options.
    """
    options = next(iter(inspect.get_annotations(function, eval_str=True).values()))
    source: Any = options if is_dataclass(options) else function

    @functools.wraps(function)
    def guarded(**values: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: complain(str(message))
                return function(**values) if source is function else function(source(**values))
        except KeyboardInterrupt as stop:
            complain(str(stop) or "interrupted")
            raise typer.Exit(130) from None
        except Exception as error:
            ours = (ValueError, TypeError, OSError, ImportError, LookupError, MemoryError)
            if not (_interrupts or isinstance(error, ours)):
                raise
            complain("interrupted" if _interrupts else str(error) or type(error).__name__)
            raise typer.Exit(130 if _interrupts else 2) from None

    guarded.__signature__ = inspect.signature(source, eval_str=True)  # type: ignore
    return guarded


def _version(value: bool) -> None:
    if value:
        from semfs import __version__

        print(f"semfs {__version__}")
        raise typer.Exit()


VERSION = typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")


def _options(version: Annotated[bool, VERSION] = False) -> None:
    """Choose the features that tell apart classes nobody has labeled yet."""


app = typer.Typer(
    name="semfs",
    cls=type("Group", (_PlainHelp, TyperGroup), {}),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.callback()(_options)
_Command = type("Command", (_PlainHelp, TyperCommand), {})
for _function in (getattr(commands, name) for name in COMMANDS):
    _text, _, _example = inspect.cleandoc(_function.__doc__ or "").partition("Example:")
    _ending = f"Example: {_example.strip()}"
    app.command(cls=_Command, help=_text, epilog=_ending)(_command(_function))


#: Ctrl-C pressed: packages that are being loaded turn it into an ImportError, or lose it.
_interrupts: list[int] = []


def _interrupt(number: int, frame: Any) -> None:
    """Stop; asked a second time, at once."""
    if _interrupts:
        os._exit(130)
    _interrupts.append(number)
    raise KeyboardInterrupt


def _lost(error: Any) -> None:  # where Python can raise nothing, as in a destructor
    if _interrupts:
        os._exit(130)
    sys.__unraisablehook__(error)


def main() -> None:
    """Entry point of the `semfs` script."""
    try:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _lost
        app(prog_name="semfs")
    except KeyboardInterrupt:  # before a command was reached
        raise SystemExit(130) from None
