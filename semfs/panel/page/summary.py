"""The panel in a few sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semfs.lab.sections import Section
from semfs.labels import FEW_SAMPLES
from semfs.panel.page.coverage import LEAST_EXPRESSING, weak_markers
from semfs.panel.page.limits import MOST_NAMED, NOTABLE_ERROR
from semfs.panel.page.separation import weakest_pairs
from semfs.validation import listed

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def summary_section(report: PanelReport) -> Section:
    """Return the panel in a few sentences."""
    words = report.words
    found = report.explanation
    text = f"{len(report.features)} of {_eligible(report)}, selected on "
    if report.n_samples is not None:
        text += f"{report.n_samples:,} {words.samples} of "
    text += f"{len(found.classes.columns)} {words.classes}."
    if found.unseen:
        text += (
            f" Described {words.classes} with no {words.samples}, or too "
            f"few to be used: {listed(found.unseen, 8)}. Everything on "
            f"this page about these {words.classes} is predicted."
        )
    paragraphs = [text, *_small_classes(report), *_batch_features(report)]
    paragraphs.append(_hardest(report))
    paragraphs.append(_fewest_markers(report))
    weak = weak_marker_note(report)
    paragraphs += [weak] if weak else []
    for source, used in report.knowledge.items():
        text = words.put_into(used.removeprefix("used: "))
        source = source.replace("classes", words.classes).replace("samples", words.samples)
        paragraphs.append(f"{source[:1].upper()}{source[1:]}: {text}.")
    return Section("Summary", paragraphs)


def _eligible(report: PanelReport) -> str:
    """Return how many features could be selected, and how many the data have."""
    features = report.words.features
    n_all = f"{report.n_features:,}"
    if report.n_selectable in (None, report.n_features):
        return f"{n_all} {features}"
    return f"{report.n_selectable:,} {features} that could be selected ({n_all} in all)"


def _fewest_markers(report: PanelReport) -> str:
    """Return which classes have the fewest markers."""
    words = report.words
    coverage = report.explanation.coverage
    fewest = int(coverage.min())
    names = listed(coverage.index[coverage == fewest].tolist(), MOST_NAMED)
    if fewest == 0:
        return (
            f"No {words.feature} marks {names}, but combinations of "
            f"{words.features} may still separate them."
        )
    noun = "marker" if fewest == 1 else "markers"
    return f"Every {words.class_} has at least {fewest} {noun}. Exactly {fewest}: {names}."


def weak_marker_note(report: PanelReport) -> str:
    """Return a sentence about markers that few samples of their class have, or nothing."""
    words = report.words
    weak = [
        f"{name} of {label} ({share:.0%})"
        for label in report.explanation.coverage.index
        for name, share in weak_markers(report, label).items()
    ]
    if not weak:
        return ""
    return (
        f"Counted as markers, but fewer than {LEAST_EXPRESSING:.0%} of "
        f"the {words.samples} of the {words.class_} express them: "
        f"{listed(weak, 8)}. A few {words.samples} determine their means."
    )


def _small_classes(report: PanelReport) -> list[str]:
    """Return a paragraph about classes with so few samples that their means are uncertain."""
    if report.class_sizes is None:
        return []
    words = report.words
    sizes = report.class_sizes[report.class_sizes < FEW_SAMPLES].sort_values(kind="stable")
    if not len(sizes):
        return []
    names = listed([f"{label} ({size})" for label, size in sizes.items()], 8)
    verb = f"{words.class_} has" if len(sizes) == 1 else f"{words.classes} have"
    return [
        f"{len(sizes)} {verb} fewer than {FEW_SAMPLES} {words.samples}: "
        f"{names}. The statements on this page about them are based on "
        f"few {words.samples} and may not hold for others. It is not "
        "known how well they are separated."
    ]


def _batch_features(report: PanelReport) -> list[str]:
    """Return a paragraph about features that vary more with the batch than with the class."""
    words = report.words
    found = report.explanation.features
    if "more_batch" not in found or not found["more_batch"].any():
        return []
    names = listed(found.index[found["more_batch"].astype(bool)].astype(str).tolist(), 8)
    return [
        f"Vary more with the batch than with the {words.class_}: {names}. "
        f"In another batch they may not separate the {words.classes}. "
        "Check their levels in each batch, or exclude them (in Python, "
        "exclude=; on the command line, --exclude) and select again."
    ]


def _hardest(report: PanelReport) -> str:
    """Return a paragraph on pairs of classes that are hard to separate, and on the others."""
    words = report.words
    pairs = report.pairs().dropna(subset="confused")
    weakest = weakest_pairs(report)
    if not weakest:
        closest = ""
        for pair in pairs[:1].itertuples():
            closest = (
                f" The closest pair is {pair.first} and {pair.second} ({pair.confused:.1%})."
            )
        return (
            f"Every pair of {words.classes} can be separated: less than {NOTABLE_ERROR:.0%} of "
            f"their {words.samples} are confused.{closest}"
        )
    # `weakest_pairs` names the first pairs, and pairs come by falling share.
    shares = pairs["confused"].to_numpy()
    n_named = min(MOST_NAMED, int((shares >= NOTABLE_ERROR).sum()))
    text = f"Hardest to separate: {weakest}."
    if n_named < len(shares):
        text += (
            f" In every other pair, at most {shares[n_named]:.0%} of the "
            f"{words.samples} are confused."
        )
    return text
