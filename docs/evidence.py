"""Tables and the picture of what knowledge is worth, from the rows of bench_knowledge.py.

A score is the mean over all k. Differences are paired: two methods on the same split, averaged
over the data sets; their intervals are Student's t over the splits. The best rival of a
split is the one that was best on the other splits of the data set, so that no method is
compared with a maximum over the scores that it is judged by.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from scipy.stats import t as student

Found = dict
#: Scores (splits, 3) of a method, ACC, NMI and seen classes, by data set.
Scores = dict[str, np.ndarray]

PICTURE = Path(__file__).parent / "images" / "leads.svg"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
SCORES = ("acc", "nmi", "seen_knn")
#: What the table of README.md shows: words, method, rivals that see the same samples.
SHOWN = [
    ("labeled samples of the seen classes", "SemFS, labels", "labeled"),
    ("… and descriptions of the seen classes", "SemFS, seen classes described", "labeled"),
    ("… and of the unseen classes", "SemFS, described", "labeled"),
    ("… and 5 unlabeled samples per unseen class", "SemFS, few unlabeled", "few"),
    ("… and all unlabeled samples", "SemFS, unlabeled", "unlabeled"),
]
#: Rows of the tables of new and old: words, columns, what is told.
TOLD = [
    (f"{words}, {columns}", columns, told)
    for told, words in {"described": "descriptions", "unlabeled": "unlabeled samples"}.items()
    for columns in ("raw", "standardized")
]
#: What the new defaults are compared with: old defaults in the present code, the old code, and
#: clusters without groups and the defaults before, which only unlabeled samples have.
OLD = ("old defaults", "old version", "clusters alone", "defaults before")


#: Numbers of features that are enough for the seen classes, too.
MANY_FEATURES = (20, 50)


# ---- statistics ----------------------------------------------------------------------------


def all_scores(found: Found) -> dict[tuple[str, str], Scores]:
    """Scores of each data set, by columns and method."""
    of_split: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for values in found["rows"]:
        row = dict(zip(found["head"], values, strict=True))
        scores = of_split[row["columns"], row["method"]][row["dataset"]]
        scores[row["split"]].append([row[score] for score in SCORES])
    return {
        key: {
            name: np.array([np.mean(scores[split], axis=0) for split in sorted(scores)])
            for name, scores in data.items()
        }
        for key, data in of_split.items()
    }


def best_rivals(
    scores: dict[tuple[str, str], Scores], names: Iterable[str], on_all_splits: bool = False
) -> Scores:
    """Scores of the rival that is best on the other splits, by the sum of ACC and NMI.

    With ``on_all_splits`` the choice sees the split that it is compared on, too.
    """
    rivals = [scores["raw", name] for name in names]
    found = {}
    for data in rivals[0]:
        all_of_them = np.stack([rival[data] for rival in rivals])  # (rivals, splits, 3)
        quality = all_of_them[:, :, :2].sum(axis=2)
        total = quality.sum(axis=1, keepdims=True) - (0.0 if on_all_splits else quality)
        best = np.broadcast_to(np.argmax(total, axis=0), quality.shape[1:])
        found[data] = all_of_them[best, np.arange(len(best))]
    return found


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values (n,), and half the width of its 95 % interval."""
    n = len(values)
    half = student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean()), float(half)


def differences(method: Scores, rival: Scores) -> np.ndarray:
    """Paired differences (splits, 3), averaged over the data sets."""
    return np.mean([method[name] - rival[name] for name in method], axis=0)


def ratios(method: Scores, rival: Scores) -> np.ndarray:
    """Paired ratios (splits, 3), averaged over the data sets."""
    return np.mean([method[name] / rival[name] for name in method], axis=0)


def mean(method: Scores) -> np.ndarray:
    """Mean score (3,) over splits and data sets."""
    return np.mean([of_set.mean(axis=0) for of_set in method.values()], axis=0)


# ---- tables --------------------------------------------------------------------------------


def table(head: str, rows: Iterable[str]) -> list[str]:
    """Lines of a table of "a | b" rows under such a head; a colon in it sets numbers right."""
    names = head.split(" | ")
    rule = "".join("---:|" if name.endswith(":") else "---|" for name in names)
    return [f"| {head.replace(':', '')} |", f"|{rule}", *(f"| {row} |" for row in rows)]


def _with_interval(values: np.ndarray, form: str = "+.3f") -> str:
    middle, half = interval(values)
    return f"{middle:{form}}\u00a0±\u00a0{half:.3f}"


def _cells(values: np.ndarray) -> str:
    return " | ".join(f"{value:.3f}" for value in values)


def summary(found: Found) -> str:
    """The table of README.md: each kind of knowledge, and its lead over fair rivals."""
    scores = all_scores(found)
    first = next(iter(scores.values()))
    lines = [
        f"Means over {len(first)} data sets, {len(next(iter(first.values())))} class splits of "
        f"each, and {', '.join(map(str, found['k'][:-1]))} and {found['k'][-1]} features:",
        "",
    ]
    rows = []
    shown: set[str] = set()
    for words, name, group in SHOWN:
        rival = best_rivals(scores, found["rivals"][group])
        if group not in shown:
            rows += _rival_rows(scores, group, rival)
            shown.add(group)
        method = scores["raw", name]
        gaps = differences(method, rival)
        leads = " | ".join(_with_interval(gaps[:, i]) for i in (0, 1))
        rows.append(f"**SemFS**: {words} | {_cells(mean(method))} | {leads}")
    head = "selector, and what it sees | ACC: | NMI: | seen: | ACC lead: | NMI lead:"
    return "\n".join([*lines, *table(head, rows)]) + "\n"


def choice_sentence(found: Found) -> str:
    """By how much the leads are smaller over the rivals that are best on all splits."""
    scores = all_scores(found)
    falls = []
    for group in dict.fromkeys(group for _, _, group in SHOWN):
        names = found["rivals"][group]
        rivals = [best_rivals(scores, names, on_all) for on_all in (False, True)]
        of_others, of_all = (mean(rival)[:2] for rival in rivals)
        falls.append(max(of_all - of_others))
    return (
        "We also compared SemFS with the rival that is best on *all* splits of a data set. "
        "This choice is biased in favor of the rival and makes the leads smaller by at most "
        f"{max(falls):.3f}.\n"
    )


def _rival_rows(scores: dict, group: str, rival: Scores) -> list[str]:
    if group == "labeled":
        return [
            f"Markers: labeled samples | {_cells(mean(scores['raw', 'Markers']))} | | ",
            f"best rival: labeled samples | {_cells(mean(rival))} | | ",
        ]
    words = {
        "few": "5 unlabeled samples per class too",
        "unlabeled": "all unlabeled samples too",
    }
    return [f"best rival: {words[group]} | {_cells(mean(rival))} | | "]


def expect_table(found: Found) -> str:
    """Lead in NMI by what is known, and on how many data sets it is clear."""
    scores = all_scores(found)
    rows = []
    for words, name, group in SHOWN:
        if name == "SemFS, seen classes described":
            continue
        method = scores["raw", name]
        markers = differences(method, scores["raw", "Markers"])[:, 1]
        rival = best_rivals(scores, found["rivals"][group])
        lead = differences(method, rival)[:, 1]
        counts = _clear_leads(method, rival)
        cells = [_with_interval(markers), _with_interval(lead), *map(str, counts)]
        rows.append(" | ".join([EXPECTED[words], *cells]))
    head = "SemFS knows | lead over Markers: | lead over the best rival: "
    head += "| clearly ahead of it: | level: | clearly behind:"
    n_sets = len(next(iter(scores.values())))
    below = f"The last three columns show on how many of the {n_sets} data sets SemFS is ahead "
    below += "of the best rival, level with it, or behind it. *Clearly* means that the 95 % "
    below += "interval of the paired differences excludes zero."
    seen = [mean(scores["raw", name])[2] for name in ("SemFS, labels", "SemFS, unlabeled")]
    cost = "Unlabeled samples have a cost: on the *seen* classes, the balanced accuracy of "
    cost += f"nearest neighbors is {seen[0]:.2f} with labels only, and {seen[1]:.2f} with all "
    cost += "unlabeled samples."
    return "\n".join([*table(head, rows), "", below, "", cost, ""])


#: How the page *What to expect* calls the rows of the table of README.md.
EXPECTED = {
    "labeled samples of the seen classes": "labels of the seen classes",
    "… and of the unseen classes": "… and descriptions of all classes",
    "… and 5 unlabeled samples per unseen class": "… and 5 unlabeled samples per unseen class",
    "… and all unlabeled samples": "… and all unlabeled samples",
}


def _clear_leads(method: Scores, rival: Scores) -> tuple[int, int, int]:
    """Number of data sets with an NMI lead clearly above, about, and clearly below zero."""
    ahead = 0
    behind = 0
    for name in method:
        middle, half = interval((method[name] - rival[name])[:, 1])
        ahead += middle > half
        behind += middle < -half
    return ahead, len(method) - ahead - behind, behind


def methods_table(found: Found) -> str:
    """ACC / NMI / seen accuracy of every method and data set."""
    scores = all_scores(found)
    raw = {method: data for (columns, method), data in scores.items() if columns == "raw"}
    names = list(next(iter(raw.values())))
    rows = []
    for method, data in raw.items():
        each = [" / ".join(f"{v:.3f}" for v in data[name].mean(axis=0)) for name in names]
        cells = [" / ".join(f"{v:.3f}" for v in mean(data)), *each]
        rows.append(" | ".join([method, *(cell.replace(" ", "\u00a0") for cell in cells)]))
    head = " | ".join(["method", "mean:", *(f"{name}:" for name in names)])
    return "\n".join(table(head, rows)) + "\n"


def leads_table(found: Found) -> str:
    """Paired leads in ACC / NMI on each data set."""
    rows = []
    for words, data in leads(found).items():
        cells = []
        for gaps in data.values():
            both = [_with_interval(gaps[:, i]) for i in (0, 1)]
            cells.append("\u00a0/ ".join(both))
        rows.append(" | ".join([words, *cells]))
    names = list(next(iter(leads(found).values())))
    head = " | ".join(["difference", *(f"{name}:" for name in names)])
    return "\n".join(table(head, rows)) + "\n"


def leads(found: Found) -> dict[str, Scores]:
    """Paired differences (splits, 3) of each data set, by what is compared."""
    scores = all_scores(found)
    compared = {
        "labels − Markers": ("SemFS, labels", scores["raw", "Markers"]),
        "described − Markers": ("SemFS, described", scores["raw", "Markers"]),
        "unlabeled − Markers": ("SemFS, unlabeled", scores["raw", "Markers"]),
        "described − labels": ("SemFS, described", scores["raw", "SemFS, labels"]),
        "seen classes described − labels": (
            "SemFS, seen classes described",
            scores["raw", "SemFS, labels"],
        ),
    }
    for words, name, group in (
        ("labels − best rival", "SemFS, labels", "labeled"),
        ("described − best rival", "SemFS, described", "labeled"),
        ("few unlabeled − best rival", "SemFS, few unlabeled", "few"),
        ("unlabeled − best rival", "SemFS, unlabeled", "unlabeled"),
    ):
        compared[words] = (name, best_rivals(scores, found["rivals"][group]))
    return {
        words: {data: scores["raw", name][data] - rival[data] for data in rival}
        for words, (name, rival) in compared.items()
    }


def defaults_summary(found: Found) -> str:
    """New over old: ratios of ACC and NMI, difference on the seen classes."""
    scores = all_scores(found)
    k = found["head"].index("k")
    many = [row for row in found["rows"] if row[k] in MANY_FEATURES]
    scores_of_many = all_scores(found | {"rows": many})
    rows = []
    for old in OLD:
        for words, columns, told in TOLD:
            names = (columns, f"SemFS, {told}"), (columns, f"{old}, {told}")
            if names[1] not in scores:
                continue
            pair = [scores[name] for name in names]
            ratio = ratios(*pair)
            cells = [_with_interval(ratio[:, i], ".3f") for i in (0, 1)]
            cells.append(_with_interval(differences(*pair)[:, 2]))
            of_many = differences(*(scores_of_many[name] for name in names))
            cells.append(_with_interval(of_many[:, 2]))
            rows.append(" | ".join([old, words, *cells]))
    head = (
        "compared with | information, features | ACC: | NMI: | seen classes: | "
        "seen classes, 20 and 50 features:"
    )
    return "\n".join(table(head, rows)) + "\n"


def defaults_data(found: Found) -> str:
    """New minus old on each data set."""
    rows = []
    for old, words, name, gaps in _by_data_set(found):
        cells = [_with_interval(gaps[:, i]) for i in range(3)]
        rows.append(" | ".join([old, words, name, *cells]))
    head = "compared with | information, features | data | ACC: | NMI: | seen classes:"
    return "\n".join(table(head, rows)) + "\n"


def defaults_losses(found: Found) -> str:
    """Where the new defaults lose by more than the interval of the paired difference."""
    rows = []
    for old, words, name, gaps in _by_data_set(found):
        for i, what in enumerate(("ACC", "NMI", "seen classes")):
            middle, half = interval(gaps[:, i])
            if middle < -half:
                rows.append(f"{old} | {words} | {name} | {what} | {_with_interval(gaps[:, i])}")
    head = "compared with | information, features | data | score | new minus old:"
    return "\n".join(table(head, rows) if rows else ["Nowhere."]) + "\n"


def _by_data_set(found: Found) -> Iterable[tuple[str, str, str, np.ndarray]]:
    scores = all_scores(found)
    for old in OLD:
        for words, columns, told in TOLD:
            of_old = scores.get((columns, f"{old}, {told}"), {})
            for name, scores_of_old in of_old.items():
                of_new = scores[columns, f"SemFS, {told}"][name]
                yield old, words, name, of_new - scores_of_old


def choices_table(found: Found) -> str:
    """Other settings over the defaults, on the splits that chose."""
    scores = all_scores(found)
    rows = []
    for (columns, method), data in scores.items():
        if method.startswith("SemFS"):
            continue  # the defaults
        told = "unlabeled" if method.startswith(tuple(found["unlabeled"])) else "described"
        default = scores[columns, f"SemFS, {told}"]
        ratio = ratios(data, default)
        cells = [_with_interval(ratio[:, i], ".3f") for i in (0, 1)]
        cells.append(_with_interval(differences(data, default)[:, 2]))
        rows.append(" | ".join([f"{told}, {columns}", method, *cells]))
    head = "information, features | other setting | ACC: | NMI: | seen classes:"
    return "\n".join(table(head, sorted(rows))) + "\n"


# ---- the picture ---------------------------------------------------------------------------

BLUE = "#0072B2"
ORANGE = "#D55E00"
WIDTH = 720
LEFT = 150  # of the plot
RIGHT = 690
ROW = 30
PANELS = [
    ("SemFS sees labels of the seen classes", "labels"),
    ("… and descriptions of all classes", "described"),
    ("… and unlabeled samples of the unseen classes", "unlabeled"),
]


def write_picture() -> None:
    """Draw docs/images/leads.svg."""
    path = RESULTS / "knowledge.json"
    PICTURE.write_text(picture(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


def picture(found: Found) -> str:
    """A forest plot of the leads in NMI, as SVG."""
    gaps = leads(found)
    names = list(next(iter(gaps.values())))
    intervals = {
        words: [interval(of_set[:, 1]) for of_set in data.values()]
        + [interval(np.mean(list(data.values()), axis=0)[:, 1])]
        for words, data in gaps.items()
    }
    drawn = [w for w in intervals if w.split(" − ")[1] in ("Markers", "best rival")]
    drawn = [w for w in drawn if w.split(" − ")[0] in [short for _, short in PANELS]]
    shown = [pair for words in drawn for pair in intervals[words]]
    low = np.floor(min(middle - half for middle, half in shown) * 10) / 10
    high = np.ceil(max(middle + half for middle, half in shown) * 10) / 10

    def x(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (RIGHT - LEFT)

    parts = _legend()
    top = 92
    for title, short in PANELS:
        both = [intervals[f"{short} − {rival}"] for rival in ("Markers", "best rival")]
        parts += _panel(title, [*names, "mean"], both, top, x, (low, high))
        top += 34 + ROW * (len(names) + 1) + 34
    return _svg(parts, top + 26)


def _svg(parts: list[str], height: int) -> str:
    title = "Lead of SemFS in NMI on unseen classes, by data set, with 95 % intervals"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-label="{title}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="19">',
            f"<title>{title}</title>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            *parts,
            text_at(LEFT + (RIGHT - LEFT) / 2, height - 14, "lead of SemFS in NMI", "middle"),
            "</svg>",
            "",
        ]
    )


def text_at(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    """Text of an SVG picture; ``style`` are further attributes."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#1a1a1a"{style}>'
        f"{text}</text>"
    )


def _legend() -> list[str]:
    bold = ' font-weight="bold"'
    return [
        text_at(20, 32, "Lead on unseen classes over …", style=bold),
        *_mark(32, 60, 0, BLUE, "circle"),
        text_at(50, 66, "Markers, which see labels only"),
        *_mark(352, 60, 0, ORANGE, "square"),
        text_at(370, 66, "best rival that sees the same samples"),
    ]


def _mark(x: float, y: float, half: float, color: str, shape: str) -> list[str]:
    """A circle or a square, with an interval of this half width."""
    line = f'<line x1="{x - half:.1f}" x2="{x + half:.1f}" y1="{y}" y2="{y}" '
    line += f'stroke="{color}" stroke-width="3"/>'
    if shape == "circle":
        return [line, f'<circle cx="{x:.1f}" cy="{y}" r="6" fill="{color}"/>']
    return [
        line,
        f'<rect x="{x - 6:.1f}" y="{y - 6}" width="12" height="12" fill="{color}"/>',
    ]


def _panel(
    title: str,
    names: list[str],
    both: list[list[tuple[float, float]]],
    top: int,
    x: Callable[[float], float],
    limits: tuple[float, float],
) -> list[str]:
    """One panel: a row for each data set and one for the mean, two marks in each."""
    bottom = top + 34 + ROW * len(names)
    parts = [text_at(20, top + 18, title, style=' font-weight="bold"')]
    for tick in np.arange(round(limits[0] * 10), round(limits[1] * 10) + 1) / 10:
        strong = abs(tick) < 1e-9
        color = "#1a1a1a" if strong else "#d0d0d0"
        parts.append(
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top + 30}" y2="{bottom}" '
            f'stroke="{color}" stroke-width="{2 if strong else 1}"/>'
        )
        label = "0" if strong else f"{tick:+.1f}"
        parts.append(text_at(x(tick), bottom + 20, label, "middle"))
    scale = x(1.0) - x(0.0)
    for number, name in enumerate(names):
        y = top + 34 + ROW * number + ROW // 2
        style = ' font-weight="bold"' if name == "mean" else ""
        parts.append(text_at(LEFT - 14, y + 6, name, "end", style))
        middle, half = both[0][number]
        parts += _mark(x(middle), y - 6, half * scale, BLUE, "circle")
        middle, half = both[1][number]
        parts += _mark(x(middle), y + 7, half * scale, ORANGE, "square")
    return parts


if __name__ == "__main__":
    write_picture()
