"""Fail if a built page links to a page, file or anchor that does not exist.

    python docs/check_links.py docs/_build/html

Only links within the site are looked at; the network is not needed.
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Collects links and anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


@cache
def page(path: Path) -> Page:
    """Return a parsed page."""
    return Page(path.read_text(encoding="utf-8"))


def broken(root: Path) -> list[str]:
    """Return a line for each broken link below root."""
    found = []
    for path in sorted(root.rglob("*.html")):
        if "_static" in path.relative_to(root).parts:
            continue
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file():
                found.append(f"{path.relative_to(root)}: no file {link}")
            elif anchor and target.suffix == ".html" and anchor not in page(target).anchors:
                found.append(f"{path.relative_to(root)}: no anchor {link}")
    return found


if __name__ == "__main__":
    lines = broken(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(lines) or 0)
