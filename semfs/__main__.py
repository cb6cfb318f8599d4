"""The command `semfs`, also `python -m semfs`."""

import os
import signal
from types import FrameType

#: Exit code of a command that was interrupted: 128 + SIGINT, as shells count.
INTERRUPTED = 130


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


# Ctrl-C while packages are loaded ends the process without a traceback. `main` then sets its
# own handler.
signal.signal(signal.SIGINT, _exit)

from semfs.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
