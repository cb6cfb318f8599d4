"""Tables and verdict of the page *Reproducing the paper*, from the rows of a run.

``benchmarks/results/reproduce.json``, written by ``benchmarks/bench_reproduce.py``, holds one
row per data set, class split and method: ``{"rows": [{"dataset", "split", "label", "acc",
"nmi"}, …], "command", "date", "versions"}``. Without that file the page does without the
section.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

from benchmark_tables import made_by

from semfs.lab.comparison import METRICS, is_oracle, paired_interval
from semfs.lab.sections import data_title

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "reproduce.json"
GENERATED = Path(__file__).parent / "generated"
INTRODUCTION = """## What a run says

Verdict and tables are generated from the rows of one run of the experiment `clustering`.
Image features are those of a small network, not the paper's. Differences are means over k and
splits, with 95 % intervals paired over the splits where there are several; a data set with one
split has none, and proves little."""

#: Questions that compare two methods.
QUESTIONS = {
    "Do attributes beat labels?": ("SemFS", "SemFS (labels)"),
    "Does the center-characteristic loss help?": ("SemFS", "SemFS/c"),
    "Is Algorithm 1 as published better than chance?": ("SemFS as published", "Random"),
}

#: Score of each split, by metric, of one method.
MethodScores: TypeAlias = dict[str, dict[str, float]]
#: Scores of the methods of each data set.
Scores: TypeAlias = dict[str, dict[str, MethodScores]]


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
        of_method = scores[data_title(row["dataset"])][row["label"]]
        for metric in METRICS:
            of_method[metric][row["split"]] = row[metric]
    sections = [_table(name, methods) for name, methods in scores.items()]
    return made_by(found, "\n\n".join([INTRODUCTION, _verdict(scores), *sections]))


def _verdict(scores: Scores) -> str:
    """What the rows answer; the paper says yes to the first three questions."""
    answers = {"Does SemFS beat all baselines on every data set?": _places(scores)}
    for question, (ours, other) in QUESTIONS.items():
        answers[question] = _leads(scores, ours, other)
    answers["What does tuning with the unseen labels add?"] = _oracles(scores)
    lines = ["| question | these rows say |", "|---|---|"]
    for question, answer in answers.items():
        lines.append(f"| {question} | {_escaped(answer)} |")
    return "\n".join(lines)


def _places(scores: Scores) -> str:
    """The place of SemFS among the baselines, on each data set and measure."""
    parts = []
    n_first = 0
    for name, methods in scores.items():
        baselines = [m for m in methods if not m.startswith("SemFS") and not is_oracle(m)]
        if "SemFS" not in methods or not baselines:
            continue
        for metric, title in METRICS.items():
            means = {m: _mean(methods[m][metric]) for m in [*baselines, "SemFS"]}
            order = sorted(means, key=lambda m: -means[m])
            place = order.index("SemFS") + 1
            text = f"{name} {title}: place {place} of {len(order)}"
            if place == 1:
                n_first += 1
            else:
                text = f"{text}, first {order[0]}"
            parts.append(text)
    return f"First in {n_first} of {len(parts)} comparisons at defaults. {'; '.join(parts)}."


def _leads(scores: Scores, ours: str, other: str) -> str:
    """The lead of one method over another, on each data set and measure."""
    parts = []
    n_ahead = 0
    for name, methods in scores.items():
        if ours not in methods or other not in methods:
            continue
        for metric, title in METRICS.items():
            a = methods[ours][metric]
            b = methods[other][metric]
            lead = paired_interval([a[split] - b[split] for split in a if split in b])
            if lead.mean > 0:
                n_ahead += 1
            limits = "" if lead.low is None else f" ({lead.low:+.3f} to {lead.high:+.3f})"
            parts.append(f"{name} {title} {lead.mean:+.3f}{limits}")
    return f"{ours} is above {other} in {n_ahead} of {len(parts)}: {'; '.join(parts)}."


def _oracles(scores: Scores) -> str:
    """What methods gain if the labels of the unseen classes choose their parameters."""
    gains = []
    for methods in scores.values():
        for label in methods:
            plain = label.removesuffix(" (oracle)")
            if plain == label or plain not in methods:
                continue
            for metric in METRICS:
                gains.append(_mean(methods[label][metric]) - _mean(methods[plain][metric]))
    if not gains:
        return "Not run."
    return (
        "Choosing the grid point with the unseen labels, for each k, adds "
        f"{fmean(gains):+.3f} on average, up to {max(gains):+.3f}. That is not possible in "
        "practice."
    )


def _table(name: str, methods: Mapping[str, MethodScores]) -> str:
    """The scores of all methods on one data set, as Markdown."""
    order = sorted(methods, key=lambda m: (is_oracle(m), -_mean(methods[m]["nmi"])))
    fair = [m for m in order if not is_oracle(m)]
    best = {metric: max(_mean(methods[m][metric]) for m in fair) for metric in METRICS}
    splits = {split for values in methods.values() for split in values["acc"]}
    if len(splits) > 1:
        spread = f"{len(splits)} splits, ± standard deviation over them"
    else:
        spread = f"no spread ({', '.join(splits)})"
    lines = [
        f"### {name}",
        "",
        f"Means over k; {spread}; by NMI, oracles last.",
        "",
        "| method | ACC | NMI |",
        "|---|---:|---:|",
    ]
    for label in order:
        entries = [_score(methods[label][metric], best[metric]) for metric in METRICS]
        lines.append(f"| {_escaped(label)} | {' | '.join(entries)} |")
    return "\n".join(lines)


def _score(values: Mapping[str, float], best: float) -> str:
    """A mean with its spread, in bold if it is the best."""
    text = f"{_mean(values):.3f}"
    if len(values) > 1:
        text = f"{text} ± {stdev(values.values()):.3f}"
    return f"**{text}**" if _mean(values) == best else text


def _mean(values: Mapping[str, float]) -> float:
    return fmean(values.values())


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
