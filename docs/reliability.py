"""Tables and the picture of predictions, from the results of bench_predict.py."""

import json
from collections.abc import Callable
from pathlib import Path

from evidence import RESULTS, table

PICTURE = Path(__file__).parent / "images" / "reliability.svg"
#: A calibration error beyond this is named.
LARGE_ERROR = 0.10
#: Bins of certainty that hold less than this share of the samples are not drawn.
SMALLEST_SHARE = 0.01
#: Other methods, and their keys in the results.
OTHERS = {
    "ESZSL": "ESZSL, same features",
    "SAE": "SAE, same features",
    "nearest mean": "nearest mean, all features",
}
#: What is shown of bench_two_files.py: descriptions, genes, words.
TWO_FILES = (
    ("ancestors", 50, "ancestors"),
    ("ancestors and own terms", 50, "ancestors and own terms"),
    ("ancestors and own terms", 100, "ancestors and own terms"),
)
CORRECTIONS = (
    "true offset of seen types",
    "true scale and offset",
    "standardized in each file",
    "distributions matched",
)
#: Title and key of the results of each panel.
PANELS = {"each alone": "reliability", "together": "reliability together"}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
WIDTH = 720
SIDE = 260  # of a panel
TOP = 64  # of the panels
LEFTS = (70, 410)  # of the panels
HEIGHT = 470


# ---- tables --------------------------------------------------------------------------------


def calibrated_table(found: dict) -> str:
    """Accuracies of predictions on the splits that are reported, per data set."""
    of_unseen = {
        "alone": lambda row: row["alone"],
        "together": lambda row: row["together"],
        "ESZSL": lambda row: row["ESZSL, same features"],
        "SAE": lambda row: row["SAE, same features"],
        "nearest mean, all features": lambda row: row["nearest mean, all features"],
    }
    of_all = {
        "harmonic mean, uncalibrated": lambda row: row["before calibration"][2],
        "calibrated": lambda row: row["generalized"][2],
        "together, calibrated": lambda row: row["generalized together"][2],
        "ECE alone": lambda row: row["ECE"],
        "ECE together": lambda row: row["ECE together"],
        "refused": lambda row: row["refused seen"],
    }
    parts = [
        "**Only unseen classes compete.** The numbers are accuracies on unseen classes:",
        _table_by_data(found, of_unseen),
        _ahead_sentence(found),
        "**All classes compete**, seen and unseen. The harmonic mean is that of the accuracies "
        "on both kinds of classes:",
        _table_by_data(found, of_all),
        _errors_sentence(found),
    ]
    return "\n\n".join(parts) + "\n"


def _table_by_data(found: dict, columns: dict[str, Callable[[dict], float]]) -> str:
    """One row per data set, one column per value."""
    rows = []
    for name, row in found["confirming"]["data"].items():
        cells = [f"{value(row):.2f}" for value in columns.values()]
        rows.append(" | ".join([name, *cells]))
    head = " | ".join(["data", *(f"{name}:" for name in columns)])
    return "\n".join(table(head, rows))


def _ahead_sentence(found: dict) -> str:
    """Where other methods name more samples correctly than each of ours."""
    parts = []
    for key, words in (("alone", "each sample alone"), ("together", "samples together")):
        ahead = []
        for name, row in found["confirming"]["data"].items():
            others = [
                f"{other} {row[value]:.2f}"
                for other, value in OTHERS.items()
                if row[value] > row[key]
            ]
            if others:
                ahead.append(f"{name} ({row[key]:.2f}; {', '.join(others)})")
        shown = f"on {', '.join(ahead)}" if ahead else "on none of the data sets"
        parts.append(f"- If SemFS predicts {words}: {shown}.")
    first = "Other methods are more accurate than SemFS (accuracy of SemFS first):"
    return "\n".join([first, "", *parts])


def _errors_sentence(found: dict) -> str:
    """Where probabilities are off by much, alone and together."""
    data = found["confirming"]["data"]
    mean = found["confirming"]["over data"]
    parts = []
    for key, words in (("ECE", "each sample alone"), ("ECE together", "samples together")):
        errors = {name: row[key] for name, row in data.items() if row[key] > LARGE_ERROR}
        large = [f"{name} ({error:.3f})" for name, error in errors.items()]
        named = f"; it exceeds {LARGE_ERROR:.2f} on {', '.join(large)}" if large else ""
        parts.append(f"- {words}: {mean[key]:.3f} on average{named}.")
    return "\n".join(
        ["On some data sets, the expected calibration error (ECE) is large:", "", *parts]
    )


def proposed_table(found: dict) -> str:
    """Accuracies on the unseen classes of CUB's Proposed Split."""
    columns = {
        "alone": "alone",
        "together": "together",
        "ESZSL": "ESZSL, same features",
        "SAE": "SAE, same features",
        "nearest mean, all 4096 features": "nearest mean, all features",
    }
    rows = []
    for k, row in found["proposed split"].items():
        cells = [f"{row[key]:.3f}" for key in columns.values()]
        rows.append(" | ".join([k, *cells]))
    head = " | ".join(["features", *(f"{name}:" for name in columns)])
    return "\n".join(table(head, rows)) + "\n"


def two_files_table(found: dict) -> str:
    """Cells of another laboratory: accuracies, and what they would be if the truth helped."""
    rows = []
    for described, k, words in TWO_FILES:
        row = found[f"{described}, {k} genes"]["as they are"]
        cells = [
            row["alone"],
            row["together"],
            row["all compete alone, new"],
            row["all compete alone, seen"],
            row["all compete together, new"],
            row["all compete together, seen"],
        ]
        rows.append(" | ".join([words, str(k), *(f"{cell[0]:.2f}" for cell in cells)]))
    head = (
        "descriptions | genes | alone: | together: | all compete, alone (unseen): | (seen): | "
        "all compete, together (unseen): | (seen):"
    )
    return "\n".join([*table(head, rows), "", _bounds_sentences(found), ""])


def _bounds_sentences(found: dict) -> str:
    """Why the accuracy between two files is not higher."""
    row = found["ancestors and own terms, 50 genes"]
    changes, of_all = (
        [row[way][key][0] - row["as they are"][key][0] for way in CORRECTIONS for key in keys]
        for keys in (
            ("alone", "together"),
            ("all compete alone, new", "all compete together, new"),
        )
    )
    bias = row["any bias"]
    bound = row["true means"]
    of_all_genes = found["true means, all genes"]
    return (
        "With the types' own ontology terms and 50 genes, these limit the shares in the "
        "table:\n\n"
        "- **The laboratory.** We aligned the genes of the second file with those of the first "
        "in three ways: using the *true* labels of its seen types, by standardizing, and by "
        "matching distributions. This changes the shares of unseen types by "
        f"{min(changes):+.2f} to {max(changes):+.2f} if only these compete, and by "
        f"{min(of_all):+.2f} to {max(of_all):+.2f} if all types compete.\n"
        "- **The bias against seen types.** If all types compete and each cell is predicted "
        f"alone, every bias with which at least {bias['seen at least']:.2f} of the cells of "
        f"seen types are named correctly leaves at most {bias['new at most']:.2f} of the cells "
        "of unseen types named correctly.\n"
        "- **The descriptions.** If the means of the unseen types were known from half of "
        f"their cells, the same genes would name {bound['new'][0]:.2f} of the other half "
        f"correctly, and {bound['all, new'][0]:.2f} if all types compete. With all genes, it "
        f"would be {of_all_genes['new'][0]:.2f} and {of_all_genes['all, new'][0]:.2f}."
    )


def annotate_table(found: dict) -> str:
    """Time and memory of naming the cells of a large file, next to reading it."""
    rows = [
        f"{what} | {way['ratio']:.2f} | {way['cpu_ratio']:.2f} | {way['peak_mb']:.0f}"
        for what, way in found["ways"].items()
    ]
    head = "what | time / one reading: | CPU time / one reading: | peak memory (MB):"
    size = (
        f"{found['cells']:,} cells, {found['genes']:,} genes in gzip ({found['file_gb']:.1f} "
        f"GB), {found['k']} genes selected, {found['types']} types compete:"
    )
    return "\n".join([size, "", *table(head, rows)]) + "\n"


# ---- the picture ---------------------------------------------------------------------------


def write_picture() -> None:
    """Draw docs/images/reliability.svg."""
    path = RESULTS / "predict.json"
    PICTURE.write_text(picture(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


def picture(found: dict) -> str:
    """Accuracy against certainty, one line per data set, as SVG."""
    title = "Accuracy of predictions against their probability, by data set"
    data = found["confirming"]["data"]
    parts = []
    for left, (name, key) in zip(LEFTS, PANELS.items(), strict=True):
        parts += _frame(left, name)
        for color, row in zip(COLORS, data.values(), strict=True):
            parts += _curve(left, row[key], color)
    parts += _legend(list(data))
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{title}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="16">'
    )
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>'
    return "\n".join([opening, f"<title>{title}</title>", background, *parts, "</svg>", ""])


def _frame(left: int, name: str) -> list[str]:
    """Title, axes and the diagonal of a panel."""
    bottom = TOP + SIDE
    middle = left + SIDE / 2
    parts = [
        _text(left, TOP - 18, name, "start", ' font-weight="bold"'),
        f'<rect x="{left}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" '
        'stroke="#b0b0b0"/>',
        f'<line x1="{left}" y1="{bottom}" x2="{left + SIDE}" y2="{TOP}" stroke="#808080" '
        'stroke-dasharray="5 5"/>',
        _text(middle, bottom + 46, "mean probability of the best class", "middle"),
    ]
    for tick in (0.0, 0.5, 1.0):
        parts.append(_text(left + tick * SIDE, bottom + 22, f"{tick:g}", "middle"))
        parts.append(_text(left - 8, bottom - tick * SIDE + 5, f"{tick:g}", "end"))
    turn = f' transform="rotate(-90 {left - 40} {TOP + SIDE / 2})"'
    parts.append(
        _text(left - 40, TOP + SIDE / 2, "share of correct predictions", "middle", turn)
    )
    return parts


def _curve(left: int, bins: list[list[float]], color: str) -> list[str]:
    """One data set: points of the bins of certainty, larger where more samples are."""
    points = []
    circles = []
    for share, certainty, right in bins:
        if share < SMALLEST_SHARE:
            continue
        x = left + SIDE * certainty / share
        y = TOP + SIDE * (1.0 - right / share)
        radius = 3.0 + 8.0 * share**0.5
        points.append(f"{x:.1f},{y:.1f}")
        circles.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{color}" '
            'fill-opacity="0.55"/>'
        )
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" '
    return [line + 'stroke-width="2"/>', *circles]


def _legend(names: list[str]) -> list[str]:
    """Colors of the data sets, three to a line."""
    parts = []
    for i, name in enumerate(names):
        x = 80 + 220 * (i % 3)
        y = TOP + SIDE + 84 + 26 * (i // 3)
        parts.append(f'<circle cx="{x}" cy="{y}" r="7" fill="{COLORS[i]}"/>')
        parts.append(_text(x + 16, y + 5, name, "start"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="#1a1a1a"{style}>{text}</text>'
    )


if __name__ == "__main__":
    write_picture()
