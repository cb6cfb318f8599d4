"""Tables and verdict of the page *Reproducing the paper*, from the rows of a run.

``benchmarks/results/reproduce.json``, written by ``benchmarks/bench_reproduce.py``, holds one
row per data set, class split and method: ``{"rows": [{"dataset", "split", "label", "acc",
"nmi"}, …], "command", "date", "versions"}``. Without that file the page does without the
section.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmark_tables import made_by

from semfs.lab.report import METRICS, data_title, paired_interval

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "reproduce.json"
GENERATED = Path(__file__).parent / "generated"
INTRODUCTION = """## What a run says

Verdict and tables are generated from the rows of one run of the experiment `clustering`.
Image features are those of a small network, not the paper's. Differences are means over k and
splits, with 95 % intervals paired over the splits where there are several; a data set with one
split has none, and proves little."""
QUESTIONS = {
    "Do attributes beat labels?": ("SemFS", "SemFS (labels)"),
    "Does the center-characteristic loss help?": ("SemFS", "SemFS/c"),
    "Is Algorithm 1 as published better than chance?": ("SemFS as published", "Random"),
}

Scores = dict[str, dict[str, dict[str, dict[str, float]]]]  # data set, label, metric, split


def write_reproduced() -> None:
    """Write docs/generated/reproduced.md."""
    GENERATED.mkdir(exist_ok=True)
    text = ""
    if RESULTS.exists():
        text = reproduced(json.loads(RESULTS.read_text(encoding="utf-8")))
    (GENERATED / "reproduced.md").write_text(text, encoding="utf-8")


def reproduced(found: dict[str, Any]) -> str:
    """Return verdict and tables of a run as Markdown."""
    scores: Scores = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for row in found["rows"]:
        for metric in METRICS:
            scores[data_title(row["dataset"])][row["label"]][metric][row["split"]] = row[metric]
    sections = [_table(name, methods) for name, methods in scores.items()]
    return made_by(found, "\n\n".join([INTRODUCTION, _verdict(scores), *sections]))


def _verdict(scores: Scores) -> str:
    """What the rows answer; the paper says yes to the first three."""
    lines = ["| question | these rows say |", "|---|---|"]
    answers = {"Does SemFS beat all baselines on every data set?": _places(scores)}
    answers |= {question: _leads(scores, *pair) for question, pair in QUESTIONS.items()}
    answers["What does tuning with the unseen labels add?"] = _oracles(scores)
    lines += [f"| {asked} | {_cell(told)} |" for asked, told in answers.items()]
    return "\n".join(lines)


def _places(scores: Scores) -> str:
    parts, firsts, n = [], 0, 0
    for name, methods in scores.items():
        rivals = [m for m in methods if not m.startswith("SemFS") and not _is_oracle(m)]
        if "SemFS" not in methods or not rivals:
            continue
        for metric, title in METRICS.items():
            means = {m: _mean(methods[m][metric]) for m in [*rivals, "SemFS"]}
            order = sorted(means, key=lambda m: -means[m])
            place, n = order.index("SemFS") + 1, n + 1
            firsts += place == 1
            best = "" if place == 1 else f", first {order[0]}"
            parts.append(f"{name} {title}: place {place} of {len(order)}{best}")
    return f"First in {firsts} of {n} comparisons at defaults. {'; '.join(parts)}."


def _leads(scores: Scores, ours: str, other: str) -> str:
    parts, ahead, n = [], 0, 0
    for name, methods in scores.items():
        if ours not in methods or other not in methods:
            continue
        for metric, title in METRICS.items():
            a, b = methods[ours][metric], methods[other][metric]
            lead = paired_interval([a[split] - b[split] for split in a if split in b])
            ahead, n = ahead + (lead.mean > 0), n + 1
            limits = "" if lead.low is None else f" ({lead.low:+.3f} to {lead.high:+.3f})"
            parts.append(f"{name} {title} {lead.mean:+.3f}{limits}")
    return f"{ours} is above {other} in {ahead} of {n}: {'; '.join(parts)}."


def _oracles(scores: Scores) -> str:
    gains = [
        _mean(methods[label][metric]) - _mean(methods[plain][metric])
        for methods in scores.values()
        for label in filter(_is_oracle, methods)
        if (plain := label.removesuffix(" (oracle)")) in methods
        for metric in METRICS
    ]
    if not gains:
        return "Not run."
    return (
        "Choosing the grid point with the unseen labels, for each k, adds "
        f"{fmean(gains):+.3f} on average, up to {max(gains):+.3f}. In use nobody can."
    )


def _table(name: str, methods: dict[str, dict[str, dict[str, float]]]) -> str:
    order = sorted(methods, key=lambda m: (_is_oracle(m), -_mean(methods[m]["nmi"])))
    fair = [m for m in order if not _is_oracle(m)]
    best = {k: max(_mean(methods[m][k]) for m in fair) for k in METRICS}
    splits = {split for values in methods.values() for split in values["acc"]}
    spread = f"{len(splits)} splits, ± standard deviation over them"
    spread = spread if len(splits) > 1 else f"no spread ({', '.join(splits)})"
    lines = [f"### {name}", "", f"Means over k; {spread}; by NMI, oracles last.", ""]
    lines += ["| method | ACC | NMI |", "|---|---:|---:|"]
    for label in order:
        cells = [_score(methods[label][k], best[k]) for k in METRICS]
        lines.append(f"| {_cell(label)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _score(values: dict[str, float], best: float) -> str:
    sd = f" ± {stdev(values.values()):.3f}" if len(values) > 1 else ""
    text = f"{_mean(values):.3f}{sd}"
    return f"**{text}**" if _mean(values) == best else text


def _mean(values: dict[str, float]) -> float:
    return fmean(values.values())


def _is_oracle(label: str) -> bool:
    return label.endswith("(oracle)")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
