"""The comparison with other libraries can be measured on each of its splits."""

import importlib
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="the sdist has no benchmarks")


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return importlib.import_module("bench_peers")


def test_each_split_of_the_bundled_cells_has_all_scores(bench, monkeypatch):
    monkeypatch.setattr(bench, "N_REPEATS", 1)
    (data,) = bench.datasets(None)
    for split in bench.class_splits(data, 10):
        found = bench.scores_of(split, lambda split, k: np.arange(k))
        assert set(found) == {str(k) for k in bench.KS}
        for scores in found.values():
            assert all(np.isfinite(scores[name]) for name in bench.MEASURES)
            assert 0.0 <= scores["label_distance"] <= 1.0
