"""The machine and its packages: optional imports, memory, and sizes as text."""

import importlib
import os
import re
from typing import Any

#: Memory, in bytes, that is assumed where the system does not say: that of a usual laptop.
ASSUMED_MEMORY = 16 * 2**30
#: Bytes of a unit are a power of 1000, or of 1024 with an i: kB and KiB.
UNITS = "kmg"


def import_optional(name: str, extra: str | None = None, *, what: str = "This") -> Any:
    """Return an optional package, or raise an error that says how to install it.

    ``extra`` is the extra of semfs that brings the package; without one the package itself is
    named. ``what`` needs it, for the message.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).split(".")[0]
        wanted = missing if extra is None else f"'semfs[{extra}]'"
        message = f"{what} needs {missing}. Install it with: pip install {wanted}"
        raise ImportError(message) from error


def memory_limit() -> int:
    """Return the bytes of memory that this process may use; no array may declare more."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        import resource
    except (
        AttributeError,
        ImportError,
        OSError,
        ValueError,
    ):  # not a POSIX system
        return ASSUMED_MEMORY
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    return total if allowed == resource.RLIM_INFINITY else min(total, allowed)


def size_text(size: float) -> str:
    """Return a number of bytes as text.

    >>> size_text(3_200_000)
    '3.2 MB'
    """
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def parse_size(size: float | str) -> int:
    """Return the number of bytes that a number, or text such as "512MB" or "2GiB", means.

    >>> parse_size("2 kB"), parse_size("2KiB")
    (2000, 2048)
    """
    if isinstance(size, (int, float)) and size >= 1:
        return int(size)
    found = re.fullmatch(r"([0-9.]+) *([kmg])(i?)b", str(size).strip().lower())
    message = f'memory must be a number of bytes, or text such as "512MB", got {size!r}.'
    if found is None:
        raise ValueError(message)
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    try:
        return int(float(number) * base ** (UNITS.index(unit) + 1))
    except (ValueError, OverflowError):  # 1.2.3, or beyond all numbers
        raise ValueError(message) from None
