"""Random calls of the public functions with hostile data: right answers, or clear refusals.

    python tools/fuzz_api.py --count 2000 --seed 1
    python tools/fuzz_api.py --only 1234 --seed 1        # call 1234 alone, with its traceback

Call i depends on the seed and i alone. A call may be refused with a ValueError or TypeError
(or a subclass) that semfs or scikit-learn raises. Anything else is reported: other exceptions,
messages of other packages, NaN in results, a RuntimeWarning, or more than a minute.
"""

from __future__ import annotations

import argparse
import collections
import linecache
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
from fuzz_calls import CALLS

SECONDS = 60
#: What numpy and scipy say where we should have said something.
FOREIGN = (
    "array must not contain",
    "operands could not",
    "shapes ",
    "setting an array element",
    "zero-size array",
    "cannot convert float NaN",
    "singular",
    "did not converge",
    "truth value",
    "index ",
    "all the input arrays",
)


def too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def is_ours(error: Exception) -> bool:
    """Whether semfs or scikit-learn raised an error, with a statement of its own."""
    text = str(error)
    if any(text.startswith(start) for start in FOREIGN):
        return False
    if any(word in text for word in FOREIGN[:5]):
        return False
    place = traceback.extract_tb(error.__traceback__)[-1]
    parts = Path(place.filename).parts
    if "sklearn" in parts:
        return True
    line = linecache.getline(place.filename, place.lineno or 0).strip()
    return ("semfs" in parts or "tools" in parts) and line.startswith("raise")


def verdict(i: int, seed: int, folder: Path) -> tuple[str, str]:
    """Make call i: whether it was answered, refused or wrong, and what happened."""
    rng = np.random.default_rng([seed, i])
    call = CALLS[rng.integers(len(CALLS))]
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            call(rng, folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            expected = isinstance(error, (ValueError, TypeError))
            ours = expected and is_ours(error)
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            text = f"{call.__name__}: {type(error).__name__}: {error} ({where})"
            return ("refused" if ours else "wrong"), text
        finally:
            signal.alarm(0)
    return "answered", call.__name__


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--show", action="store_true", help="Also print why calls are refused.")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only is not None:
            rng = np.random.default_rng([options.seed, options.only])
            warnings.simplefilter("error", RuntimeWarning)
            CALLS[rng.integers(len(CALLS))](rng, folder)
            return 0
        for i in range(options.count):
            kind, text = verdict(i, options.seed, folder)
            counts[kind] += 1
            if kind == "wrong" or (options.show and kind == "refused"):
                print(f"call {i}: {text[:300]}", flush=True)
            elif kind == "answered":
                counts[text] += 1
    kinds = ("answered", "refused", "wrong")
    print(", ".join(f"{counts[kind]} {kind}" for kind in kinds))
    print(
        "answered:",
        ", ".join(f"{counts[f.__name__]} {f.__name__}" for f in dict.fromkeys(CALLS)),
    )
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
