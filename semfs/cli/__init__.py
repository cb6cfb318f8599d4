"""The command line: one module per group of commands, shared options, errors and printing."""

# typer and rich are optional: without them one line says what to install
try:
    import functools
    import inspect
    import os
    import signal
    import sys
    import warnings
    from collections.abc import Callable
    from dataclasses import is_dataclass
    from types import FrameType
    from typing import Annotated, Any

    import typer
    from typer.core import TyperCommand, TyperGroup

    from semfs.cli.console import complain
    from semfs.cli.descriptions import attributes, datasets
    from semfs.cli.errors import message_of
    from semfs.cli.evaluation import demo, evaluate
    from semfs.cli.panel import panel
    from semfs.cli.paper import report, reproduce
    from semfs.cli.prediction import predict, transform
    from semfs.cli.selection import select
except ModuleNotFoundError as error:  # pragma: no branch
    raise SystemExit(
        f"The semfs command needs {error.name}. Install it with: pip install 'semfs[cli]'"
    ) from None

__all__ = ["app", "main"]

#: The commands, in the order of the help. A command parses, calls one library function and
#: prints. Its docstring is its help and ends with "Example: ...". It may take one dataclass,
#: whose fields are then its options. It imports the library inside, so that --help is quick.
COMMANDS = (
    demo,
    select,
    panel,
    predict,
    transform,
    attributes,
    datasets,
    evaluate,
    reproduce,
    report,
)
#: Errors whose message is shown as one line; others are defects and show a traceback.
EXPECTED = (
    ValueError,
    TypeError,
    OSError,
    ImportError,
    LookupError,
    MemoryError,
)
#: Exit codes: bad input; interrupted, as shells count signals (128 + SIGINT).
BAD_INPUT = 2
INTERRUPTED = 130

#: Interrupts received. Packages that are being loaded when Ctrl-C is pressed may turn it into
#: an ImportError, or lose it.
_interrupts: list[int] = []


#: Options that people repeat in the belief that both values are used.
GIVEN_ONCE = ("attributes", "costs", "groups")


class _PlainHelp:
    """Help without ``<bool>`` after options without a value, and with readable names."""

    def get_params(self, ctx: typer.Context) -> list[Any]:
        """Return the parameters of a command, with other names of their values."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                param.metavar = param.metavar or param.name.upper()
            elif param.multiple:
                param.metavar = "<str>"
        return params

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Refuse options of files that are given twice: the second would replace the first."""
        parser: Any = super().make_parser(ctx)  # type: ignore[misc]
        found = parser.parse_args(list(args))[2]
        for name in GIVEN_ONCE:
            if sum(param.name == name for param in found) > 1:
                ctx.fail(
                    f"--{name} is given twice. Give it only once. To "
                    "combine class descriptions, separate them with "
                    "commas: --attributes cl,own.csv."
                )
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return rest


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for typer, whose errors are one line with exit code 2.

    If a command takes one dataclass, the fields of this class are its options.
    """
    annotations = list(inspect.get_annotations(function, eval_str=True).values())
    takes_options = is_dataclass(annotations[0])
    signature_of: Any = annotations[0] if takes_options else function

    @functools.wraps(function)
    def guarded(**values: Any) -> None:
        """Call the command, and turn exceptions into one line and an exit code."""
        try:
            # restores showwarning, for programs that call the command
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                if takes_options:
                    function(signature_of(**values))
                else:
                    function(**values)
        except KeyboardInterrupt as stop:
            complain(str(stop) or "interrupted", "error")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            # an error after Ctrl-C is its consequence
            if _interrupts:
                complain("interrupted", "error")
                raise typer.Exit(INTERRUPTED) from None
            if not isinstance(error, EXPECTED):
                raise
            complain(message_of(error), "error")
            raise typer.Exit(BAD_INPUT) from None

    # typer reads options from the signature, here that of the dataclass
    guarded.__signature__ = inspect.signature(signature_of, eval_str=True)  # type: ignore
    return guarded


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    complain(message_of(message), "warning")


def _version(value: bool) -> None:
    if value:
        from semfs import __version__

        print(f"semfs {__version__}")
        raise typer.Exit()


# eager: it is handled before a missing command is complained of
VERSION = typer.Option(
    "--version",
    callback=_version,
    is_eager=True,
    help="Show the version.",
)


def _options(version: Annotated[bool, VERSION] = False) -> None:
    """Select the features that separate classes nobody has labeled yet."""


def _make_app() -> typer.Typer:
    """Return the application with all commands. Help and examples are in their docstrings."""
    made = typer.Typer(
        name="semfs",
        cls=type("Group", (_PlainHelp, TyperGroup), {}),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    made.callback()(_options)
    command_class = type("Command", (_PlainHelp, TyperCommand), {})
    for function in COMMANDS:
        docstring = inspect.cleandoc(function.__doc__ or "")
        text, _, example = docstring.partition("Example:")
        epilog = f"Example: {example.strip()}"
        made.command(cls=command_class, help=text, epilog=epilog)(_command(function))
    return made


app = _make_app()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop the command. The second time, stop at once, without cleaning up."""
    if _interrupts:
        os._exit(INTERRUPTED)
    _interrupts.append(number)
    raise KeyboardInterrupt


def _exit_if_interrupted(error: Any) -> None:
    """End the process where Python cannot raise, as in a destructor."""
    if _interrupts:
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(error)


def main() -> None:
    """Entry point of the `semfs` script."""
    try:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _exit_if_interrupted
        app(prog_name="semfs")
    except KeyboardInterrupt:  # before a command was reached
        raise SystemExit(INTERRUPTED) from None
