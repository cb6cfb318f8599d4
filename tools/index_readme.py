"""Makes README.md fit for the package index, which has no files beside it.

Relative links would be dead there. hatchling calls `get_metadata_hook` when it builds the
package: links and pictures get the address of the repository (``Source`` of
``[project.urls]``). As long as there is none, links become plain text and pictures are left
out.
"""

import re
from pathlib import Path
from typing import Any

README = "README.md"
#: A Markdown link or picture whose target is neither an address nor a place on the page.
RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")
#: A remark in parentheses that is such a link alone: without it, a word would be left.
REMARK = re.compile(r" \(\[[^\]]*\]\((?!\w+:|#)[^)\s]+\)\)")
#: A picture on lines of its own, and its caption in italics below it.
PICTURE = re.compile(r"^!\[[^\]]*\]\((?!\w+:)[^)\s]+\)\n\n(?:\*[^*].*?\*\n\n)?", re.M | re.S)


def for_index(text: str, source: str | None) -> str:
    """Return README with the links of the repository at ``source``, or without them.

    >>> for_index("See [limits](docs/limits.md).", "https://example.org/it")
    'See [limits](https://example.org/it/blob/HEAD/docs/limits.md).'
    >>> for_index("See [limits](docs/limits.md).", None)
    'See limits.'
    >>> for_index("It is fast ([measured](docs/speed.md)).", None)
    'It is fast.'
    """
    if source is None:
        text = REMARK.sub("", PICTURE.sub("", text))
        return RELATIVE.sub(r"\2", text)

    def absolute(link: re.Match[str]) -> str:
        # The index shows pictures, so it needs the file itself and not the page about it.
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({source.rstrip('/')}/{kind}/HEAD/{link[3]})"

    return RELATIVE.sub(absolute, text)


def get_metadata_hook() -> type:
    """Return the hook class, as hatchling expects."""
    from hatchling.metadata.plugin.interface import MetadataHookInterface

    class ReadmeHook(MetadataHookInterface):
        """Fills in the readme of the package's metadata."""

        def update(self, metadata: dict[str, Any]) -> None:
            """Set the readme."""
            text = (Path(self.root) / README).read_text(encoding="utf-8")
            source = metadata.get("urls", {}).get("Source")
            metadata["readme"] = {
                "content-type": "text/markdown",
                "text": for_index(text, source),
            }

    return ReadmeHook
