"""What features, samples and classes are called on the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Names for features, samples and classes."""

    feature: str = "feature"
    features: str = "features"
    sample: str = "sample"
    samples: str = "samples"
    class_: str = "class"
    classes: str = "classes"

    def put_into(self, sentence: str) -> str:
        """Return a sentence about features, samples and classes in these words.

        Only phrases that the selector writes are changed, because names may contain such words.

        >>> CELLS.put_into("exclude: 3 features ruled out. Without it, class II gene")
        'exclude: 3 genes ruled out. Without it, class II gene'
        >>> CELLS.put_into("candidates: 53557 features ruled out.")
        'candidates: 53,557 genes ruled out.'
        """

        def separated(noun: str) -> Callable[[re.Match[str]], str]:
            """Return a function that puts a noun after a number with separated thousands."""
            return lambda found: f"{int(found[1]):,} {noun}"

        phrases: dict[str, str | Callable[[re.Match[str]], str]] = {
            r"\b1 feature\b": f"1 {self.feature}",
            r"\b(\d+) features\b": separated(self.features),
            r"\b(\d+) samples\b": separated(self.samples),
            r"\b(\d+ |\d+ seen |\d+ described )classes\b": rf"\1{self.classes}",
            r"^(min_per_class: every seen )class\b": rf"\1{self.class_}",
            r"(means, 1 unseen )class\b": rf"\1{self.class_}",
            r"(means, \d+ unseen )classes\b": rf"\1{self.classes}",
            r"^(capacity: )class\b": rf"\1{self.class_}",
        }
        for pattern, replacement in phrases.items():
            sentence = re.sub(pattern, replacement, sentence)
        return sentence


#: Words for samples of any kind.
GENERAL = Words()
#: Words for single cells.
CELLS = Words("gene", "genes", "cell", "cells", "cell type", "cell types")
