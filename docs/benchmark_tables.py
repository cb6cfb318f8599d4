"""Tables of the pages, made from the files that the benchmarks write.

As a script it renews the table of README.md.
"""

import json
from collections.abc import Callable
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
GENERATED = Path(__file__).parent / "generated"
README = Path(__file__).parents[1] / "README.md"


def write_tables() -> None:
    """Write docs/generated/*.md."""
    GENERATED.mkdir(exist_ok=True)
    tables = {
        "core": ("core", core_table),
        "baselines": ("baselines", baselines_table),
        "streaming": ("streaming", streaming_table),
        "sparse": ("streaming", sparse_table),
        "distributed": ("distributed", distributed_table),
        "knowledge-summary": ("knowledge", knowledge_summary),
        "knowledge-chosen": ("knowledge", lambda found: knowledge_table(found, "chosen")),
        "knowledge-confirmed": ("knowledge", lambda found: knowledge_table(found, "confirmed")),
        "knowledge-predict": ("knowledge", prediction_table),
        "knowledge-pairs": ("knowledge", pairs_table),
    }
    for name, (file, table) in tables.items():
        text = _text(RESULTS / f"{file}.json", table)
        (GENERATED / f"{name}.md").write_text(text, encoding="utf-8")


def readme_with_table() -> str:
    """Return README.md with the short table of knowledge.json between its marks."""
    start, end = "<!-- knowledge:start -->\n", "<!-- knowledge:end -->"
    before, rest = README.read_text(encoding="utf-8").split(start)
    after = rest.split(end)[1]
    return before + start + _text(RESULTS / "knowledge.json", knowledge_summary) + end + after


def _text(results: Path, table: Callable[[dict], str]) -> str:
    try:
        return table(json.loads(results.read_text(encoding="utf-8")))
    except (FileNotFoundError, KeyError):  # not run, or not since the script measures more
        return "Not yet run.\n"


def core_table(found: dict) -> str:
    """Ratios to X.T @ X, peak memory, growth in n."""
    size = found["size"]
    lines = [
        f"n = {size['n']:,}, d = {size['d']:,}, {size['classes']} classes, "
        f"{size['attributes']} attributes, float32, {found['k']} features.",
        "",
        "| what | time / one `X.T @ X` | peak memory above X (MB) | note |",
        "|---|---:|---:|---|",
    ]
    for row in found["rows"]:
        lines.append(
            f"| {row['what']} | {row['ratio']:.2f} | {row['memory_mb']:.0f} | {row['note']} |"
        )
    growth = found["growth"]
    first, last = growth["points"][0][0], growth["points"][-1][0]
    lines += [
        "",
        f"Time of `direct` grows as n^{growth['exponent']:.2f}, n = {first:,} to {last:,}.",
    ]
    return "\n".join(lines) + "\n"


def baselines_table(found: dict) -> str:
    """Seconds and memory of each baseline."""
    largest = max(row["n_d_classes"] for row in found["rows"])
    rows = [row for row in found["rows"] if row["n_d_classes"] == largest]
    n, d, classes = largest
    lines = [
        f"n = {n:,}, d = {d:,}, {classes} classes, float32, {rows[0]['threads']} threads.",
        "",
        "| method | options | seconds | peak memory above X (GB) |",
        "|---|---|---:|---:|",
    ]
    for row in rows:
        options = (
            ", ".join(f"{key}={value}" for key, value in row["options"].items()) or "defaults"
        )
        lines.append(
            f"| {row['method']} | {options} | {row['seconds']:.1f} | "
            f"{row['extra_gigabytes']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def streaming_table(found: dict) -> str:
    """Passes over a large file."""
    part = found["passes"]
    n, d = part["n"], part["d"]
    lines = [
        f"n = {n:,}, d = {d:,} float32 ({4e-9 * n * d:.1f} GB, dropped from the page cache), "
        f"{part['classes']} classes, k = {part['k']}; `benchmarks/bench_streaming.py`.",
        "",
        "| what | seconds | × unit | peak memory (MB) |",
        "|---|---:|---:|---:|",
    ]
    for row in part["rows"]:
        lines.append(
            f"| {row['what']} | {row['seconds']:.1f} | {row['ratio']:.2f} | "
            f"{row['peak_mb']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def sparse_table(found: dict) -> str:
    """One sentence."""
    part = found["sparse"]
    return (
        f"Measured: {part['n']:,} × {part['d']:,} with {part['nnz']:,} non-zeros, "
        f"{part['k']} features: {part['seconds']:.1f} s and {1e-3 * part['peak_mb']:.1f} GB, "
        f"where the matrix alone would take {8e-9 * part['d'] ** 2:.0f} GB.\n"
    )


def distributed_table(found: dict) -> str:
    """Overhead and speed-up on a local cluster."""
    lines = [
        f"n = {found['n']:,}, d = {found['d']:,} float32, {found['classes']} classes, "
        f"k = {found['k']}, {found['cores']} cores; `benchmarks/bench_distributed.py`.",
        "",
        "| what | passes | workers | seconds | × plain blocks | speed-up over one worker |",
        "|---|---|---:|---:|---:|---:|",
    ]
    single: dict = {}
    for row in found["rows"]:
        way = row["what"], row["passes"]
        if row["workers"] == 1:
            single[way] = row["seconds"]
        speedup = f"{single[way] / row['seconds']:.2f}" if way in single else ""
        lines.append(
            f"| {row['what']} | {row['passes']} | {row['workers'] or ''} | "
            f"{row['seconds']:.1f} | {row['ratio']:.2f} | {speedup} |"
        )
    return "\n".join(lines) + "\n"


#: What the short table shows, in its order.
TOLD = {
    "labels": "labelled rows of other classes",
    "attributes": "… and descriptions of these classes",
    "attributes, new classes described": "… and of the new classes",
    "5 unlabelled rows per class": "… and five unlabelled rows of each new class",
    "all unlabelled rows": "… and all unlabelled rows",
    "labels of the new classes (upper end)": "labels of the new classes themselves",
}


def knowledge_summary(found: dict) -> str:
    """ACC and NMI over the best of five baselines, for growing knowledge; confirming splits."""
    rows = {row["method"]: row for row in found["confirmed"]["five"]}
    lines = [
        f"{len(found['data'])} data sets, {found['confirmed']['splits']} class splits each; "
        "1.00 is the best of five baselines picked in hindsight.",
        "",
        "| what the selector knows | ACC | NMI |",
        "|---|---:|---:|",
    ]
    for method, words in TOLD.items():
        acc, nmi = rows[method]["mean"]
        lines.append(f"| {words} | {acc:.2f} | {nmi:.2f} |")
    return "\n".join(lines) + "\n"


def knowledge_table(found: dict, part: str) -> str:
    """Ratios to the best baseline in hindsight, per method and data set."""
    names = list(found["data"])
    over = {row["method"]: row["mean"] for row in found[part]["eight"]}
    lines = [
        f"{found[part]['splits']} class splits of each data set; ACC / NMI over the best of "
        "five (and of eight) baselines picked in hindsight, mean over k = 10, 20, 50.",
        "",
        "| method | ACC (95 %) | NMI (95 %) | over eight | " + " | ".join(names) + " |",
        "|---|---:|---:|---:|" + "---:|" * len(names),
    ]
    for row in found[part]["five"]:
        mean, low, high = row["mean"], row["low"], row["high"]
        both = [f"{mean[i]:.3f} ({low[i]:.2f}–{high[i]:.2f})" for i in (0, 1)]
        eight = "{:.2f} / {:.2f}".format(*over[row["method"]])
        each = [_pair(row["data"][name]) for name in names]
        cells = [cell.replace(" ", "\u00a0") for cell in (*both, eight, *each)]
        lines.append("| " + " | ".join([row["method"], *cells]) + " |")
    return "\n".join(lines) + "\n"


def _pair(values: list) -> str:
    return "" if values[0] != values[0] else f"{values[0]:.2f} / {values[1]:.2f}"


def prediction_table(found: dict) -> str:
    """Zero-shot accuracy on the new classes, per data set."""
    ways = list(next(iter(found["predict"].values())))
    lines = [
        "| data | new classes | " + " | ".join(ways) + " |",
        "|---|---:|" + "---:|" * len(ways),
    ]
    for name, row in found["predict"].items():
        cells = [f"{row[way]:.2f}" for way in ways]
        lines.append(f"| {name} | {found['data'][name]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def pairs_table(found: dict) -> str:
    """Paired differences in ACC and NMI with their 95 % intervals."""
    names = list(found["data"])
    lines = ["| difference | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for title, row in found["pairs"].items():
        cells = []
        for name in names:
            if name not in row:
                cells.append("")
                continue
            (acc, nmi), (a, n) = row[name]
            cells.append(f"{acc:+.3f} ± {a:.3f} / {nmi:+.3f} ± {n:.3f}".replace(" ", "\u00a0"))
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    README.write_text(readme_with_table(), encoding="utf-8")
