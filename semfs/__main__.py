"""The command `semfs`, also `python -m semfs`; Ctrl-C never shows a traceback."""

import os
import signal

signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # while packages load

from semfs.cli import main  # noqa: E402

signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    main()
