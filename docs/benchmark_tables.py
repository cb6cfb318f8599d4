"""Tables of the benchmarks page, made from the files that `make bench` writes."""

import json
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
GENERATED = Path(__file__).parent / "generated"


def write_tables() -> None:
    """Write docs/generated/*.md."""
    GENERATED.mkdir(exist_ok=True)
    for name, table in (("core", core_table), ("baselines", baselines_table)):
        results = RESULTS / f"{name}.json"
        text = table(json.loads(results.read_text())) if results.exists() else "Not yet run.\n"
        (GENERATED / f"{name}.md").write_text(text)


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
