"""Tables of the pages, made from the files that the benchmarks write.

A table whose file is not there is empty, and the page does without it. As a script this
renews the tables of README.md.
"""

import json
from collections.abc import Callable
from pathlib import Path

import evidence
import reliability
from evidence import table

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
GENERATED = Path(__file__).parent / "generated"
README = Path(__file__).parents[1] / "README.md"


def write_tables() -> None:
    """Write docs/generated/*.md."""
    GENERATED.mkdir(exist_ok=True)
    for name, text in tables().items():
        (GENERATED / f"{name}.md").write_text(text, encoding="utf-8")


def tables() -> dict[str, str]:
    """Return all tables by name."""
    made: dict[str, tuple[str, Callable[[dict], str]]] = {
        "install": ("install", install_table),
        "core": ("core", core_table),
        "crossval": ("crossval", crossval_sentence),
        "batch": ("batch", batch_table),
        "baselines": ("baselines", baselines_table),
        "digits": ("digits", digits_table),
        "streaming": ("streaming", streaming_table),
        "sparse": ("streaming", sparse_sentence),
        "distributed": ("distributed", distributed_table),
        "atlas": ("atlas", atlas_table),
        "atlas-plan": ("atlas", atlas_plan),
        "knowledge-summary": ("knowledge", evidence.summary),
        "knowledge-methods": ("knowledge", _with_source(evidence.methods_table)),
        "knowledge-leads": ("knowledge", evidence.leads_table),
        "defaults-summary": ("knowledge", _with_source(evidence.defaults_summary)),
        "defaults-data": ("knowledge", evidence.defaults_data),
        "defaults-losses": ("knowledge", evidence.defaults_losses),
        "defaults-chosen": ("defaults", _with_source(evidence.choices_table)),
        "rules-worth": ("rules", rules_table),
        "rules-speed": ("rules", rules_speed_table),
        "rules-markers": ("rules", rules_markers_sentence),
        "spapros": ("spapros", spapros_table),
        "peers": ("peers", peers_table),
        "peers-unseen": ("peers", peers_unseen_table),
        "predict-confirmed": ("predict", reliability.calibrated_table),
        "predict-proposed": ("predict", _with_source(reliability.proposed_table)),
    }
    return {name: _text(file, table) for name, (file, table) in made.items()}


def readme_with_tables() -> str:
    """Return README.md with fresh tables between its marks."""
    text, made = README.read_text(encoding="utf-8"), tables()
    for mark, name in {"knowledge": "knowledge-summary", "install": "install"}.items():
        start, end = f"<!-- {mark}:start -->\n", f"<!-- {mark}:end -->"
        before, rest = text.split(start)
        text = before + start + made[name] + end + rest.split(end)[1]
    return text


def _text(file: str, table: Callable[[dict], str]) -> str:
    path = RESULTS / f"{file}.json"
    return table(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else ""


def _with_source(make: Callable[[dict], str]) -> Callable[[dict], str]:
    """The table, and below it what made the numbers."""
    return lambda found: made_by(found, make(found))


def made_by(found: dict, *lines: str) -> str:
    """The lines, and below them what made the numbers."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    made = f"<small>`{found['command']}`, {found['date']}; {versions}</small>"
    return "\n".join([*lines, "", made, ""])


def _options(row: dict) -> str:
    return (
        ", ".join(f"`{key}={value!r}`" for key, value in row["options"].items()) or "defaults"
    )


#: What `make` does, by target.
FIRST_RUN = {
    ".venv/.lean": "what `make demo` installs",
    "demo": "the demo itself",
    "install": "what `make test` installs: all extras and developer tools",
}


def install_table(found: dict) -> str:
    """Seconds and megabytes of the first run."""
    rows = []
    for row in found["rows"]:
        size = "" if row["target"] == "demo" else f"{row['megabytes']:.0f}"
        rows.append(f"{FIRST_RUN[row['target']]} | {row['seconds']:.0f} | {size}")
    lines = [
        "The first run installs much. Measured in a fresh clone, with all packages close by "
        f"({found['date']}); a slow connection adds to it:",
        "",
        *table("what | seconds: | size of `.venv` (MB):", rows),
    ]
    return "\n".join(lines) + "\n"


def core_table(found: dict) -> str:
    """Ratios to X.T @ X with their spread, peak memory, growth in n and d."""
    size = found["size"]
    rows = []
    for row in found["rows"]:
        ratio, memory = with_spread(row), f"{row['memory_mb']:.0f}"
        rows.append(f"{row['what']} | {ratio} | {memory} | {row['note']}")
    lines = [
        f"n = {size['n']:,}, d = {size['d']:,}, {size['classes']} classes, "
        f"{size['attributes']} attributes, float32, {found['k']} features. Ratios are medians "
        "of the runs, with the smallest and the largest where there are several.",
        "",
        *table("what | time / one `X.T @ X`: | peak memory above X (MB): | note", rows),
    ]
    for letter, grown in found["growth"].items():
        first, last = grown["points"][0][0], grown["points"][-1][0]
        power = f"Time of `direct` grows as {letter}^{grown['exponent']:.2f}"
        lines += ["", f"{power}, {letter} = {first:,} to {last:,}."]
    return made_by(found, *lines)


def atlas_table(found: dict) -> str:
    """Time and memory of choosing genes in a compressed file, next to reading it."""
    lines = [
        f"{found['genes']:,} genes, {found['types']} types, {found['k']} genes chosen; the "
        "unit is reading the same file once, decompressed.",
        "",
    ]
    head = "file | cells: | GB: | what | seconds: | / reading once: | peak memory (MB):"
    rows = [
        f"{row['format']} | {row['cells']:,} | {row['file_gb']:.1f} | {row['what']} | "
        f"{row['seconds']:.0f} | {with_spread(row)} | {row['peak_mb']:.0f}"
        for row in found["rows"]
    ]
    return made_by(found, *lines, *table(head, rows))


def with_spread(row: dict) -> str:
    """A ratio, with the smallest and the largest of several runs."""
    ratios = row.get("ratios", [row["ratio"]])
    spread = f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{row['ratio']:.2f}{spread}"


def atlas_plan(found: dict) -> str:
    """What 10⁸ cells would take, from the cost of a cell."""
    row = next(r for r in found["rows"] if r["what"] == "semfs")
    per_cell, cells = row["cpu"] / row["cells"], 10**8
    hours, size = per_cell * cells / 3600, row["file_gb"] / row["cells"] * cells / 1000
    lines = [
        f"Measured: {1e6 * per_cell:.0f} µs of CPU per cell, all passes together "
        f"({row['format']}, {row['cells']:,} cells). Extrapolated, not measured: 10⁸ cells are "
        f"{size:.1f} TB in this form and {hours:.1f} core hours.",
        "",
    ]
    rows = [f"{n} | {hours / (2 * n):.2f} | {size / n:.2f}" for n in (1, 8, 32)]
    head = "workers of two cores: | hours: | TB for each to read:"
    return made_by(found, *lines, *table(head, rows))


def crossval_sentence(found: dict) -> str:
    """What choosing by cross-validation costs."""
    size = found["size"]
    return made_by(
        found,
        f"Measured at n = {size['n']:,}, d = {size['d']:,}, {size['classes']} classes: "
        f"{found['n_splits']} folds of {found['n_settings']} settings take "
        f"{found['ratio']:.1f} times as long as one fit; the {found['clusterings']} "
        f"clusterings that judge them take another {found['clustering_seconds']:.1f} s.",
    )


def batch_table(found: dict) -> str:
    """Genes of batches among those selected, and how well the unseen classes are found."""
    rows = []
    for row in found["rows"]:
        rows.append(
            f"{row['batch']} `batch` | {row['batch_genes']:.1%} | {row['ACC']:.3f} | "
            f"{row['NMI']:.3f}"
        )
    head = (
        f"{found['k']} genes, {found['n_splits']} splits | more batch than type: | ACC: | NMI:"
    )
    return made_by(found, *table(head, rows))


def baselines_table(found: dict) -> str:
    """Seconds and memory of each baseline."""
    largest = max(row["n_d_classes"] for row in found["rows"])
    rows = [row for row in found["rows"] if row["n_d_classes"] == largest]
    n, d, classes = largest
    lines = [
        "## The comparison methods at full size",
        "",
        f"Made-up features with the class structure of SUN: n = {n:,}, d = {d:,}, {classes} "
        f"classes, float32, {rows[0]['threads']} threads, 50 features wanted.",
        "",
    ]
    head = "method | options | seconds: | peak memory above X (GB):"
    told = [
        f"{row['method']} | {_options(row)} | {row['seconds']:.1f} | "
        f"{row['extra_gigabytes']:.2f}"
        for row in rows
    ]
    return made_by(found, *lines, *table(head, told))


def digits_table(found: dict) -> str:
    """Accuracy of a classifier on few pixels."""
    lines = [
        "## Sanity: digits",
        "",
        "Mean 5-fold accuracy of a ridge classifier on ten pixels of scikit-learn's digits "
        "(selection inside each fold, columns standardized for the classifier), best first.",
        "",
    ]
    chance = next(row["accuracy"] for row in found["rows"] if "spread" in row)
    rows = []
    for row in sorted(found["rows"], key=lambda row: -row["accuracy"]):
        spread = f" ± {row['spread']:.3f} over draws" if "spread" in row else ""
        rows.append(f"{row['method']} | {_options(row)} | {row['accuracy']:.3f}{spread}")
    lines += table("method | options | accuracy:", rows)
    below = [f"{r['method']} ({_options(r)})" for r in found["rows"] if r["accuracy"] < chance]
    return made_by(found, *lines, "", f"Below random pixels: {', '.join(below) or 'none'}.")


def streaming_table(found: dict) -> str:
    """Passes over a large file."""
    if "passes" not in found:
        return ""
    part = found["passes"]
    n, d = part["n"], part["d"]
    lines = [
        "**Measured.** The unit is reading the file once and adding up `X_b.T @ X_b` in plain "
        f"numpy. n = {n:,}, d = {d:,} float32 ({4e-9 * n * d:.1f} GB, dropped from the page "
        f"cache), {part['classes']} classes, k = {part['k']}.",
        "",
    ]
    rows = [
        f"{row['what']} | {row['seconds']:.1f} | {row['ratio']:.2f} | {row['peak_mb']:.0f}"
        for row in part["rows"]
    ]
    head = "what | seconds: | × unit: | peak memory (MB):"
    return made_by(found, *lines, *table(head, rows))


def sparse_sentence(found: dict) -> str:
    """What a large sparse fit takes."""
    if "sparse" not in found:
        return ""
    part = found["sparse"]
    return (
        f"Measured: {part['n']:,} × {part['d']:,} with {part['nnz']:,} non-zeros, "
        f"{part['k']} features: {part['seconds']:.1f} s and {1e-3 * part['peak_mb']:.1f} GB, "
        f"where the matrix alone would take {8e-9 * part['d'] ** 2:.0f} GB.\n"
    )


def distributed_table(found: dict) -> str:
    """Overhead on a local cluster, and fits in which a worker is killed."""
    lines = [
        "**Measured** with `LocalCluster`. The unit is the same fit of the same file, or Dask "
        f"array, in one process. {found['cells']:,} cells × {found['genes']:,} genes in a "
        f"compressed h5ad file, k = {found['k']}, {found['cores']} cores.",
        "",
    ]
    rows = [
        f"{row['what']} | {row['workers'] or ''} | {row['seconds']:.1f} | {row['ratio']:.2f} | "
        f"{row['same']} of {row['fits']}"
        for row in found["rows"]
    ]
    head = "what | workers: | seconds: | × one process: | right answers:"
    return made_by(found, *lines, *table(head, rows))


def peers_table(found: dict) -> str:
    """SemFS and its peers: scores at the largest k, our lead, and seconds relative to ours."""
    rows = [row for row in found["rows"] if row["k"] == max(r["k"] for r in found["rows"])]
    seconds = found.get("seconds", {}).get("by_method", {})
    ours = next(iter(seconds.values()), None)
    body = []
    for row in rows:
        scores = " | ".join(f"{row[name]:.3f}" for name in ("nmi", "acc", "knn"))
        leads = [_lead_text(row["our_lead"][name]) for name in ("nmi", "knn")]
        relative = "–"
        if ours and row["method"] in seconds:
            relative = f"{seconds[row['method']] / ours:.2g}"
        cells = [row["dataset"].replace("_", " "), row["method"], scores, *leads, relative]
        body.append(" | ".join(cells))
    head = "data | method | unseen NMI: | unseen ACC: | seen k-NN: "
    head += "| our lead, NMI | our lead, k-NN"
    peers = ", ".join(f"{name} {number}" for name, number in found["peers"].items())
    n_splits = rows[0]["splits"]
    text = f"{rows[0]['k']} genes, means over {n_splits} class splits; peers: {peers}."
    return made_by(found, text, "", *table(f"{head} | seconds, SemFS = 1:", body))


def _lead_text(lead: list) -> str:
    """A paired lead with its interval; nothing of a method over itself."""
    mean, low, high = lead
    if low == high == 0:
        return "–"
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")


def peers_unseen_table(found: dict) -> str:
    """How far unseen types are from the seen ones, and scib-metrics' isolated labels."""
    rows = [row for row in found["rows"] if row["k"] == max(r["k"] for r in found["rows"])]
    isolated = found.get("isolated", {}).get("scores", {})
    last = rows[-1]["dataset"]
    body = []
    for row in rows:
        names = ("sample_distance", "class_distance", "uncertainty")
        scores = " | ".join(f"{row[name]:.3f}" for name in names)
        score = isolated.get(row["method"]) if row["dataset"] == last else None
        label = "–" if score is None else f"{score:.3f}"
        body.append(
            f"{row['dataset'].replace('_', ' ')} | {row['method']} | {scores} | {label}"
        )
    head = "data | method | far samples: | far types: | uncertainty: | isolated labels:"
    return made_by(found, *table(head, body))


def rules_table(found: dict) -> str:
    """Scores of seen and unseen classes with rules of a panel."""
    rows = []
    for name, measured in found["worth"].items():
        plain = measured["scores"]["no rule"]["nmi"]
        for rule, row in measured["scores"].items():
            rows.append(
                f"{name} | {rule} | {row['recall']:.3f} | {row['worst_fifth']:.3f} | "
                f"{row['nmi']:.3f} | {row['nmi'] / plain:.3f} | {row['splits']}"
            )
    head = (
        "data | rule | recall of seen classes: | worst fifth: | NMI of unseen classes: | "
        "over no rule: | splits:"
    )
    return made_by(found, *table(head, rows))


def rules_markers_sentence(found: dict) -> str:
    """What `min_per_class` does for the classes that are recognized worst."""
    texts = []
    for name, measured in found["worth"].items():
        scores = measured["scores"]
        rules = ("no rule", "min_per_class=2", "min_per_class=3")
        worst = " / ".join(f"{scores[rule]['worst_fifth']:.3f}" for rule in rules)
        nmi = " / ".join(f"{scores[rule]['nmi']:.3f}" for rule in rules)
        texts.append(f"{name} {worst} (NMI of unseen classes {nmi})")
    splits = {row["splits"] for m in found["worth"].values() for row in m["scores"].values()}
    return made_by(
        found,
        "Do not expect `min_per_class` to raise accuracy. With the default settings the worst "
        f"fifth of the seen classes has a recall, without a rule / 2 / 3 markers, of "
        f"{'; '.join(texts)}, means of {min(splits)} splits. The rule guarantees "
        "markers that can be looked at; it does not improve the recall of weak classes.",
    )


def spapros_table(found: dict) -> str:
    """Panels judged by the evaluator of spapros."""
    columns = {
        "forest_clfs accuracy": "accuracy of forests",
        "knn_overlap mean_overlap_AUC": "overlap of neighbors",
        "gene_corr 1 - mean": "1 − mean correlation",
        "gene_corr perct max < 0.8": "share of genes without a near copy",
    }
    rows = []
    for name, panel in found["panels"].items():
        values = " | ".join(f"{panel['scores'][key]:.3f}" for key in columns)
        rows.append(f"{name} | {values}")
    head = "panel | " + " | ".join(f"{title}:" for title in columns.values())
    size = (
        f"{found['n_genes']} of {found['n_candidates']:,} highly variable genes, "
        f"{found['n_cells']} cells of the {found['n_types']} types with at least "
        f"{found['fewest_cells']} cells of `{found['data']}`, spapros "
        f"{found['spapros_versions']['spapros']}. Larger is better in every column."
    )
    return made_by(found, size, "", *table(head, rows))


def rules_speed_table(found: dict) -> str:
    """Seconds of a fit with and without each rule."""
    rows = []
    for name, measured in found["speed"].items():
        seconds = measured["seconds"]
        for rule, value in seconds.items():
            plain = "as many columns, no groups" if "groups" in rule else "no rule"
            size = f"{measured['n']:,} × {measured['d']:,}"
            ratio = value / seconds[plain]
            rows.append(f"{name}, {size} | {rule} | {value:.3f} | {ratio:.2f}")
    return made_by(found, *table("data | rule | seconds: | over none:", rows))


if __name__ == "__main__":
    evidence.write_picture()
    reliability.write_picture()
    README.write_text(readme_with_tables(), encoding="utf-8")
