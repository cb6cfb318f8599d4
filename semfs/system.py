"""The machine and its packages: optional imports, memory, sizes in words."""

import importlib
import os
import re
from typing import Any


def import_optional(name: str, extra: str | None = None, *, what: str = "This") -> Any:
    """Return an optional package, or say how to install it: as an extra of semfs, or itself."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).split(".")[0]
        remedy = "pip install " + (missing if extra is None else f"'semfs[{extra}]'")
        raise ImportError(f"{what} needs {missing}. Install it with: {remedy}") from error


def memory_limit() -> int:
    """Bytes of memory that this process may have: no array may declare more."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        import resource
    except (AttributeError, ImportError, OSError, ValueError):  # not a POSIX system
        return 16 * 2**30
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    return total if allowed == resource.RLIM_INFINITY else min(total, allowed)


def size_text(size: float) -> str:
    """Return a number of bytes in words: ``\"3.2 MB\"``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def parse_size(size: int | str) -> int:
    """Return the number of bytes that a text such as ``"512MB"`` or ``"2GiB"`` means."""
    found = re.fullmatch(r"([0-9.]+) *([kmg])(i?)b", str(size).strip().lower())
    try:
        if isinstance(size, (int, float)) and size >= 1:
            return int(size)
        number, unit, binary = found.groups() if found else ("", "k", "")
        return int(float(number) * (1024 if binary else 1000) ** ("kmg".index(unit) + 1))
    except (ValueError, OverflowError):
        raise ValueError(f'memory is {size!r}; give bytes, or text such as "512MB".') from None
