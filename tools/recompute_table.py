"""README's table computed again, from the raw rows alone and by plain arithmetic.

    python tools/recompute_table.py    # prints the numbers of each row

It shares no code with docs/evidence.py; a test compares both with README.md.
"""

import json
from pathlib import Path
from statistics import fmean, stdev

ROOT = Path(__file__).parents[1]
#: Student's t, 9 degrees of freedom, 97.5 %.
T_OF_TEN = 2.262157
SELECTORS = {
    "SemFS, labels": "labeled",
    "SemFS, seen classes described": "labeled",
    "SemFS, described": "labeled",
    "SemFS, few unlabeled": "few",
    "SemFS, unlabeled": "unlabeled",
}


def recomputed() -> dict[str, list[str]]:
    """The numbers of each row of the table, as text, by method or group of rivals."""
    found = json.loads((ROOT / "benchmarks/results/knowledge.json").read_text("utf-8"))
    raw: dict[tuple[str, str, int], list[tuple[float, float, float]]] = {}
    for data, split, columns, method, _, acc, nmi, seen in found["rows"]:
        if columns == "raw":
            raw.setdefault((method, data, split), []).append((acc, nmi, seen))
    means = {key: [fmean(column) for column in zip(*rows)] for key, rows in raw.items()}
    sets = sorted({data for _, data, _ in means})
    splits = sorted({split for _, _, split in means})
    table = {"Markers": shown(lambda d, s: means["Markers", d, s], sets, splits)}
    for method, group in SELECTORS.items():
        rival = {
            (data, split): means[best(means, found["rivals"][group], data, split, splits)]
            for data in sets
            for split in splits
        }
        table[group] = shown(lambda d, s, rival=rival: rival[d, s], sets, splits)
        row = shown(lambda d, s, m=method: means[m, d, s], sets, splits)
        for score in (0, 1):
            gaps = []
            for split in splits:
                each = [means[method, d, split][score] - rival[d, split][score] for d in sets]
                gaps.append(fmean(each))
            half = T_OF_TEN * stdev(gaps) / len(gaps) ** 0.5
            row.append(f"{fmean(gaps):+.3f}\u00a0±\u00a0{half:.3f}")
        table[method] = row
    return table


def best(means: dict, rivals: list, data: str, left_out: int, splits: list) -> tuple:
    """Key of the rival with the best ACC + NMI on the splits but one, for that one."""
    sums = {
        rival: sum(sum(means[rival, data, s][:2]) for s in splits if s != left_out)
        for rival in rivals
    }
    return max(sums, key=sums.__getitem__), data, left_out


def shown(score, sets: list, splits: list) -> list[str]:
    """ACC, NMI and seen accuracy, mean over data sets and splits."""
    values = [score(data, split) for data in sets for split in splits]
    return [f"{fmean(column):.3f}" for column in zip(*values)]


if __name__ == "__main__":
    for name, numbers in recomputed().items():
        print(f"{name:32}", *numbers)
