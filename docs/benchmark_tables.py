"""Tables of the pages, made from the files that the benchmarks write.

A table without rows, or without its file, is an error: a page must not lose one silently. As a
script this renews the tables and pictures of README.md.
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
        "batch": ("batch", batch_table),
        "digits": ("digits", digits_table),
        "distributed": ("distributed", distributed_table),
        "atlas": ("atlas", atlas_table),
        "atlas-plan": ("atlas", atlas_plan),
        "knowledge-summary": ("knowledge", evidence.summary),
        "expect": ("knowledge", _with_source(evidence.expect_table)),
        "expect-predict": ("predict", expect_prediction),
        "expect-cost": ("atlas", expect_cost),
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
        "peers-verdict": ("peers", peers_verdict),
        "peers-unseen": ("peers", peers_unseen_table),
        "predict-confirmed": ("predict", reliability.calibrated_table),
        "two-files": ("two_files", _with_source(reliability.two_files_table)),
        "annotate": ("annotate", _with_source(reliability.annotate_table)),
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
    """The table of a results file; an error if there is no such file, or nothing in it."""
    path = RESULTS / f"{file}.json"
    if not path.exists():
        raise ValueError(f"{path} is missing. Run the benchmark that writes it.")
    text = table(json.loads(path.read_text(encoding="utf-8")))
    lines = text.splitlines()
    rules = [i for i, line in enumerate(lines) if line.startswith("|---")]
    empty = [i for i in rules if not lines[i + 1 : i + 2] or not lines[i + 1].startswith("|")]
    if not text.strip() or empty:
        raise ValueError(f"{path} makes an empty table. Run its benchmark again.")
    return text


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
        "The first run downloads many packages. Times are from a fresh clone with a local "
        f"package mirror ({found['date']}):",
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


def expect_prediction(found: dict) -> str:
    """How many samples of unseen classes get the right name, over the data sets."""
    data = found["confirming"]["data"]
    texts = []
    for key, words in {"alone": "each by itself", "together": "together"}.items():
        scores = {name: row[key] for name, row in data.items()}
        lowest = min(scores, key=scores.__getitem__)
        highest = max(scores, key=scores.__getitem__)
        texts.append(
            f"predicted {words}, {scores[lowest]:.2f} ({lowest}) to {scores[highest]:.2f} "
            f"({highest})"
        )
    return made_by(
        found,
        f"Share of right names on {len(data)} data sets, averaged over the unseen classes, "
        f"which are the only candidates: {'; '.join(texts)}.",
    )


def expect_cost(found: dict) -> str:
    """Time and memory of an atlas, in one sentence."""
    row = next(row for row in found["rows"] if row["what"] == "semfs")
    return made_by(
        found,
        f"Selecting {found['k']} of {found['genes']:,} genes on {row['cells']:,} cells in a "
        f"compressed file ({row['format']}, {row['file_gb']:.1f} GB) took "
        f"{row['seconds']:.0f} seconds and {row['peak_mb'] / 1000:.1f} GB of memory, "
        f"{row['ratio']:.1f} times as long as reading the file once.",
    )


def peers_table(found: dict) -> str:
    """SemFS and its peers: scores at each k, our lead, and seconds relative to ours."""
    seconds = found["seconds"]["by_method"]
    ours = next(iter(seconds.values()))
    body = []
    for row in _by_data_and_k(found["rows"]):
        scores = " | ".join(f"{row[name]:.3f}" for name in ("nmi", "acc", "knn"))
        leads = [_lead_text(row["our_lead"][name]) for name in ("nmi", "acc", "knn")]
        relative = f"{seconds[row['method']] / ours:.2g}"
        cells = [_data_and_k(row), row["method"], scores, *leads, relative]
        body.append(" | ".join(cells))
    head = "data, genes | method | unseen NMI: | unseen ACC: | seen k-NN: "
    head += "| our lead, NMI | our lead, ACC | our lead, k-NN | seconds, SemFS = 1:"
    peers = ", ".join(f"{name} {number}" for name, number in found["peers"].items())
    text = f"Means over {found['rows'][0]['splits']} class splits; peers: {peers}."
    return made_by(found, text, "", *table(head, body))


def peers_verdict(found: dict) -> str:
    """Which peers are ahead of SemFS, or level with it, by data set and number of genes."""
    body = []
    for data_and_k in dict.fromkeys(_data_and_k(row) for row in _by_data_and_k(found["rows"])):
        rows = [row for row in found["rows"] if _data_and_k(row) == data_and_k]
        peers = [row for row in rows if not row["method"].startswith("SemFS")]
        for measure in ("nmi", "acc"):
            groups: dict[str, list[str]] = {"ahead": [], "level": [], "behind": []}
            for row in peers:
                mean, low, high = row["our_lead"][measure]
                group = "ahead" if high < 0 else "level" if low <= 0 else "behind"
                name = row["method"].replace(", ", " ")
                groups[group].append(f"{name} ({mean:+.3f})".replace("-", "−"))
            cells = [", ".join(names) or "none" for names in groups.values()]
            body.append(" | ".join([f"{data_and_k}, {measure.upper()}", *cells]))
    head = "data, genes, score | ahead of SemFS | level with it | behind it"
    return "\n".join(table(head, body)) + "\n"


def _by_data_and_k(rows: list[dict]) -> list[dict]:
    """The rows by data set, in their order, then by the number of genes."""
    order = list(dict.fromkeys(row["dataset"] for row in rows))
    return sorted(rows, key=lambda row: (order.index(row["dataset"]), row["k"]))


def _data_and_k(row: dict) -> str:
    names = {"lung_tabula_sapiens": "bundled lung cells"}
    return f"{names.get(row['dataset'], row['dataset'])}, {row['k']} genes"


def _lead_text(lead: list) -> str:
    """A paired lead with its interval; nothing of a method over itself."""
    mean, low, high = lead
    if low == high == 0:
        return "–"
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")


def peers_unseen_table(found: dict) -> str:
    """How far unseen types are from the seen ones, and scib-metrics' isolated labels."""
    isolated = found["isolated"]
    last = found["rows"][-1]["dataset"]
    body = []
    for row in _by_data_and_k(found["rows"]):
        names = ("sample_distance", "class_distance", "uncertainty")
        scores = " | ".join(f"{row[name]:.3f}" for name in names)
        measured = row["dataset"] == last and row["k"] == isolated["k"]
        score = isolated["scores"].get(row["method"]) if measured else None
        label = "–" if score is None else f"{score:.3f}"
        body.append(f"{_data_and_k(row)} | {row['method']} | {scores} | {label}")
    head = "data, genes | method | far samples: | far types: | uncertainty: | isolated labels:"
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
        f"{found['spapros_versions']['spapros']}. Larger is better, but the last two "
        "columns reward uncorrelated genes whether or not they carry information: random genes "
        "are best there. Read them only beside the first two."
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
