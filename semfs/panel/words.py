"""What features, samples and classes are called on the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """What features, samples and classes are called."""

    feature: str = "feature"
    features: str = "features"
    sample: str = "sample"
    samples: str = "samples"
    class_: str = "class"
    classes: str = "classes"


#: Words for samples of any kind.
GENERAL = Words()
#: Words for single cells.
CELLS = Words("gene", "genes", "cell", "cells", "cell type", "cell types")
