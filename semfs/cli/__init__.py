"""The command line."""

from semfs.cli.commands import app, main

__all__ = ["app", "main"]
