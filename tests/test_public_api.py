"""What users may rely on: names, light imports, examples that run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import semfs

ROOT = Path(__file__).parents[1]


def test_the_public_names_are_these():
    assert semfs.__all__ == ["AS_PUBLISHED", "Moments", "SemFS", "SemFSCV", "load", "save"]
    assert all(hasattr(semfs, name) for name in semfs.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", semfs.__version__)


def test_importing_semfs_loads_no_optional_package_and_warns_of_nothing():
    optional = [
        "matplotlib",
        "plotly",
        "jinja2",
        "typer",
        "polars",
        "dask",
        "h5py",
        "anndata",
        "pooch",
        "torch",
    ]
    code = (
        f"import sys, semfs; sys.exit(' '.join(m for m in {optional} if m in sys.modules) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_parameters_of_the_contract_exist_with_their_defaults():
    expected = {
        "n_features_to_select": 50,
        "attributes": None,
        "alpha": 1.0,
        "gamma": 10.0,  # chosen by benchmarks/bench_ideas.py
        "penalty_scale": "gram",
        "solver": "direct",
        "fit_intercept": True,
        "class_weight": None,
        "include": None,
        "exclude": None,
        "max_iter": 20,
        "tol": 1e-4,
        "verbose": 0,
    }
    assert expected.items() <= semfs.SemFS().get_params().items()


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


def test_the_examples_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("pandas")
    blocks = python_blocks(ROOT / "README.md")
    assert len(blocks) >= 3
    scope = {}  # as a reader pastes them, one after the other
    for block in blocks:
        exec(block, scope)
    assert scope["X_small"].shape == (len(scope["X_unseen"]), 20)
