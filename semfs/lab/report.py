"""What the results of a run say, as one HTML page.

`build_sections` turns rows into plain values and says in words who wins, by how much, and
where that cannot be told; `render` makes the page; `write_report` does both.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from semfs.lab.comparison import (
    Interval,
    Row,
    Standings,
    headline,
    hindsight,
    is_oracle,
    is_ours,
    lead_in_words,
    standings,
    verdict_in_words,
)
from semfs.lab.page import render_page, section, table
from semfs.lab.sections import (
    METRICS,
    alpha,
    attributes_vs_labels,
    convergence,
    counted,
    dataset_curves,
    grouped,
    labeled_ratio,
    largest_k,
    params_text,
    scaling,
    selected_features,
)

__all__ = ["build_sections", "render", "write_report"]

MEASURES = (
    "ACC is the share of samples in the right cluster under the best match of clusters and "
    "classes; NMI is I / max(H, H). Both come from K-means on the samples of the unseen "
    "classes with the selected features only, averaged over the runs of K-means."
)
CAUTION = (
    "Intervals are 95 % Student t intervals of differences paired over the class splits. "
    "Splits of one data set share classes, so the intervals are rather too narrow than too "
    "wide; they are not corrected for the number of comparisons."
)
ORACLE = (
    "Parameters of methods marked (oracle) were chosen with the labels of the unseen classes, "
    "for every number of features and measure separately: a bound that nobody can reach in "
    "practice. They are not ranked."
)


def build_sections(
    rows: Sequence[Row],
    failures: Sequence[Row],
    info: dict[str, Any],
    extra: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return what a report says, as plain values.

    Parameters
    ----------
    rows : sequence of dict
        One per finished cell and k: experiment, dataset, split, method, params, label, k, acc,
        nmi, acc_sd, nmi_sd, seconds, seed, features, extra.
    failures : sequence of dict
        experiment, dataset, split, method, params, error.
    info : dict
        command, versions, datasets (name → n_seen, n_unseen, seen, unseen, n_features,
        n_attributes), findings (experiment → what the paper says); all may be missing.
    extra : iterable of dict
        More sections, made with `semfs.lab.page.section`; shown before the failures.

    Returns
    -------
    dict with title, sections and downloads
    """
    by_experiment = grouped(rows, "experiment")
    claims = info.get("findings", {})
    sections: list[dict[str, Any]] = []
    for experiment, build in BUILDERS.items():
        parts = build(by_experiment.get(experiment, []))
        if parts and experiment in claims:
            parts[0]["text"].append(f"What the paper says: {claims[experiment]}")
        sections += parts
    if not rows:
        sections.append(section("Summary", ["No cell of this run has finished yet."]))
    sections += [*extra, *_failures(failures), *_warnings(rows), *_provenance(info, rows)]
    return {
        "title": "Feature selection for unseen classes: results",
        "sections": sections,
        "downloads": [_all_rows(rows), _all_features(rows)] if rows else [],
    }


def render(summary: dict[str, Any]) -> str:
    """Return the page of what `build_sections` returned."""
    return render_page(summary["title"], summary["sections"], summary["downloads"])


def write_report(
    rows: Sequence[Row],
    failures: Sequence[Row],
    info: dict[str, Any],
    path: str | os.PathLike[str],
    extra: Iterable[dict[str, Any]] = (),
) -> Path:
    """Write the report to ``path``, whole or not at all, and return the path."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent}. Create it for {path.name}.")
    text = render(build_sections(rows, failures, info, extra))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(text.encode("utf-8", "replace"))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


# --- who wins --------------------------------------------------------------------------


def _clustering(rows: Sequence[Row]) -> list[dict[str, Any]]:
    if not rows:
        return []
    tables = {
        (name, metric): standings(part, metric)
        for name, part in grouped(rows, "dataset").items()
        for metric in METRICS
    }
    parts = [_summary(tables), *_against_hindsight(rows)]
    parts += [dataset_curves(name, part) for name, part in grouped(rows, "dataset").items()]
    return [*parts, selected_features(rows)]


def _summary(tables: dict[tuple[str, str], Standings]) -> dict[str, Any]:
    points = [
        (f"{name}, {METRICS[metric]}:", verdict_in_words(result))
        for (name, metric), result in tables.items()
    ]
    columns = [
        "data set",
        "measure",
        "method",
        "mean",
        "sd over splits",
        "lead over best other",
    ]
    rows = [
        [name, METRICS[metric], s.label, s.mean, s.sd, s.lead.mean, s.lead.low, s.lead.high]
        for (name, metric), result in tables.items()
        for s in [*result.ranked, *result.oracles]
    ]
    caption = (
        "Means over the numbers of features and the splits, best first; lead with interval"
    )
    notes = [ORACLE] if any(result.oracles for result in tables.values()) else []
    return section(
        "Summary",
        [headline(tables), points, MEASURES, CAUTION, *notes],
        table(caption, [*columns, "from", "to"], rows, "standings"),
    )


def _against_hindsight(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = [
        [
            name,
            METRICS[metric],
            label,
            kind,
            lead.mean,
            lead.low,
            lead.high,
            lead_in_words(lead),
        ]
        for name, part in grouped(rows, "dataset").items()
        for metric in METRICS
        for label, kind, lead in _hindsight_leads(part, metric)
    ]
    if not found:
        return []
    text = (
        "The hardest rival: for every data set and number of features, the baseline that "
        "turned out best. Nobody could have chosen it beforehand, and picking the best of "
        "several noisy means flatters it: a lead here is strong, a small deficit no defeat."
    )
    columns = ["data set", "measure", "method", "baselines", "lead", "from", "to", "verdict"]
    caption = "Lead over the best baseline in hindsight, with 95 % interval"
    return [
        section(
            "Against the best baseline in hindsight",
            [text, _tally(found)],
            table(caption, columns, found, "hindsight"),
        )
    ]


def _tally(found: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """For every method: its mean lead, and how often it is ahead or behind."""
    groups: dict[str, dict[str, list[Sequence[Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in found:
        groups[line[2]][line[3]].append(line)
    points = []
    for label, kinds in groups.items():
        texts = []
        for kind, part in kinds.items():
            words = ", ".join(f"{word} {n}" for word, n in Counter(p[-1] for p in part).items())
            mean = f"{fmean(p[4] for p in part):+.3f}".replace("-", "−")
            texts.append(f"mean lead {mean} over baselines {kind} ({words})")
        points.append((f"{label}:", "; ".join(texts) + "."))
    return points


def _hindsight_leads(rows: Sequence[Row], metric: str) -> list[tuple[str, str, Interval]]:
    labels = list(dict.fromkeys(row["label"] for row in rows))
    rivals = [label for label in labels if not is_ours(label)]
    fixed = [label for label in rivals if not is_oracle(label)]
    kinds = {"at defaults": fixed}
    if len(fixed) < len(rivals):
        kinds["with oracles"] = rivals
    leads = []
    for label in labels:
        if is_ours(label) and not is_oracle(label):
            for kind, others in kinds.items():
                try:
                    leads.append((label, kind, hindsight(rows, metric, label, others)))
                except ValueError:  # nothing in common yet
                    continue
    return leads


# --- what the page ends with -----------------------------------------------------------


def _failures(failures: Sequence[Row]) -> list[dict[str, Any]]:
    if not failures:
        return []
    body = [
        [
            f["experiment"],
            f["dataset"],
            str(f["split"]),
            f["method"],
            params_text(f),
            str(f["error"]),
        ]
        for f in failures
    ]
    text = f"{counted(len(body), 'cell')} failed; the same command tries them again."
    columns = ["experiment", "data set", "split", "method", "parameters", "error"]
    return [section("Failures", [text], table("Cells that failed", columns, body, "failures"))]


def _warnings(rows: Sequence[Row]) -> list[dict[str, Any]]:
    counts: Counter[tuple[str, str]] = Counter()
    for row in largest_k(rows):
        texts = (row.get("extra") or {}).get("warnings") or []
        counts.update((row["label"], str(text)) for text in set(texts))
    if not counts:
        return []
    body = [[*what, n] for what, n in counts.most_common()]
    columns = ["method", "warning", "cells"]
    return [section("Warnings", [], table("What methods warned of", columns, body, "warnings"))]


def _provenance(info: dict[str, Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Data sets, command and versions."""
    keys = ["n_seen", "n_unseen", "n_features", "n_attributes"]
    body = [
        [
            name,
            *(facts.get(key) for key in keys),
            *([*map(str, facts.get(c, []))] for c in ("seen", "unseen")),
        ]
        for name, facts in info.get("datasets", {}).items()
    ]
    columns = ["data set", "samples, seen", "samples, unseen", "features", "attributes"]
    columns += ["seen classes", "unseen classes"]
    parts = []
    if body:
        parts.append(section("Data", [], table("Data sets", columns, body, "datasets")))
    versions = [[str(name), str(version)] for name, version in info.get("versions", {}).items()]
    seeds = sorted({str(row["seed"]) for row in rows if row.get("seed") is not None})
    text = [f"Command: {info.get('command', 'not recorded')}"]
    if "started" in info:
        text.append(f"Started: {info['started']}")
    if seeds:
        text.append(f"Seeds: {', '.join(seeds)}")
    packages = (
        table("Versions", ["package", "version"], versions, "versions") if versions else None
    )
    return [*parts, section("How this was made", text, packages)]


def _all_rows(rows: Sequence[Row]) -> dict[str, Any]:
    columns = ["experiment", "dataset", "split", "method", "label", "k"]
    columns += ["acc", "acc_sd", "nmi", "nmi_sd", "seconds", "seed"]
    body = [[*(row.get(c) for c in columns), params_text(row)] for row in rows]
    return table("All scores", [*columns, "params"], body, "scores")


def _all_features(rows: Sequence[Row]) -> dict[str, Any]:
    columns = ["experiment", "dataset", "split", "label", "k", "params"]
    body = [
        [
            row["experiment"],
            row["dataset"],
            row["split"],
            row["label"],
            row["k"],
            params_text(row),
        ]
        + [position, feature]
        for row in largest_k(rows)
        for position, feature in enumerate(row.get("features") or [], start=1)
    ]
    return table("All selected features", [*columns, "position", "feature"], body, "features")


BUILDERS: dict[str, Callable[[Sequence[Row]], list[dict[str, Any]]]] = {
    "clustering": _clustering,
    "labeled-ratio": labeled_ratio,
    "attributes-vs-labels": attributes_vs_labels,
    "alpha": alpha,
    "convergence": convergence,
    "scaling": scaling,
}
