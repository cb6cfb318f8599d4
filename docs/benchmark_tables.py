"""Tables of the benchmarks page, made from the files that `make bench` writes."""

import json
from collections.abc import Callable
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
GENERATED = Path(__file__).parent / "generated"


def write_tables() -> None:
    """Write docs/generated/*.md."""
    GENERATED.mkdir(exist_ok=True)
    tables = {
        "core": ("core", core_table),
        "baselines": ("baselines", baselines_table),
        "streaming": ("streaming", streaming_table),
        "sparse": ("streaming", sparse_table),
        "distributed": ("distributed", distributed_table),
        "ideas-chosen": ("ideas", lambda found: ideas_table(found, "chosen on")),
        "ideas-confirmed": ("ideas", lambda found: ideas_table(found, "confirmed on")),
    }
    for name, (file, table) in tables.items():
        text = _text(RESULTS / f"{file}.json", table)
        (GENERATED / f"{name}.md").write_text(text, encoding="utf-8")


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


def ideas_table(found: dict, part: str) -> str:
    """Ratios to the best baseline in hindsight, per idea and data set."""
    names = found["data"]
    lines = [
        f"{found[part]['splits']} class splits of each data set, k = "
        f"{', '.join(map(str, found['k']))}; ACC / NMI.",
        "",
        "| idea | mean ACC (95 %) | mean NMI (95 %) | mean k-NN | " + " | ".join(names) + " |",
        "|---|---:|---:|---:|" + "---:|" * len(names),
    ]
    for row in found[part]["rows"]:
        name = f"**{row['idea']}**" if row["idea"] == found["default"] else row["idea"]
        mean, low, high = row["mean"], row["low"], row["high"]
        both = [f"{mean[i]:.3f} ({low[i]:.2f}–{high[i]:.2f})" for i in (0, 1)]
        each = [f"{row['data'][n][0]:.2f} / {row['data'][n][1]:.2f}" for n in names]
        both, each = ([cell.replace(" ", "\u00a0") for cell in c] for c in (both, each))
        cells = [name, *both, f"{row['mean'][2]:.3f}", *each]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
