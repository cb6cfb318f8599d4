"""The command `semfs`, also `python -m semfs`."""

import os
import signal

# Ctrl-C while packages load: no traceback. `main` takes over.
signal.signal(signal.SIGINT, lambda *_: os._exit(130))

from semfs.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
