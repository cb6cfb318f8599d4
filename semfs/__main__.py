"""`python -m semfs` is the command `semfs`."""

from semfs.cli import main

main()
