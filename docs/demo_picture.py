"""The picture of the demo, drawn from benchmarks/results/demo.json.

    python docs/demo_picture.py

writes docs/images/demo.png. The file says which scores it shows (a digest of them) and which
matplotlib drew it, so that a test notices when it is no longer that of the stored scores.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence import RESULTS
from PIL import Image, PngImagePlugin

from semfs.datasets import load_sample
from semfs.lab.demo import Demo, draw

PICTURE = Path(__file__).parent / "images" / "demo.png"
#: Name under which the picture holds the digest of its scores.
DIGEST = "Scores"


def write_picture() -> None:
    """Draw docs/images/demo.png."""
    write_to(PICTURE, stored())


def write_to(path: Path, found: Mapping[str, Any]) -> None:
    """Draw a stored demo, with the digest of what is drawn."""
    draw(demo_of(found), path)
    with Image.open(path) as picture:
        picture.load()
        text = PngImagePlugin.PngInfo()
        text.add_text("Software", picture.info["Software"])
        text.add_text(DIGEST, digest(found))
        # Few colors: a quarter of the size, and no difference that one could see.
        picture.convert("RGB").quantize(256).save(path, pnginfo=text, optimize=True)


def stored() -> dict[str, Any]:
    """Return the stored demo."""
    return json.loads((RESULTS / "demo.json").read_text(encoding="utf-8"))


def demo_of(found: Mapping[str, Any]) -> Demo:
    """The demo with the stored genes and scores."""
    genes = [(name, share, attribute) for name, share, attribute in found["genes"]]
    return Demo(load_sample(), genes, found["rows"])


def digest(found: Mapping[str, Any]) -> str:
    """A digest of the genes and scores that a picture shows."""
    shown = json.dumps([found["genes"], found["rows"]])
    return hashlib.sha256(shown.encode()).hexdigest()


def shown_digest(path: Path) -> str | None:
    """The digest that a picture holds, or None."""
    with Image.open(path) as picture:
        return picture.info.get(DIGEST)


if __name__ == "__main__":
    write_picture()
