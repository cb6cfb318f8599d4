"""What users may rely on: names, light imports, examples that run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import semfs

README = Path(__file__).parents[1] / "README.md"
OPTIONAL = {"matplotlib", "plotly", "jinja2", "typer", "polars", "dask", "h5py", "anndata"}
DEFAULTS = """
n_features_to_select=50 attributes=None alpha=1.0 gamma=2.0 penalty_scale='weighted'
solver='direct' fit_intercept=True class_weight='balanced' target_attributes='table'
n_new_classes='auto' include=None exclude=None
max_iter=20 tol=0.0001 verbose=0
"""


def in_new_python(code):
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_public_names_are_these():
    assert semfs.__all__ == ["AS_PUBLISHED", "Moments", "SemFS", "SemFSCV", "load", "save"]
    assert all(hasattr(semfs, name) for name in semfs.__all__)
    assert set(semfs.__all__) <= set(dir(semfs))
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", semfs.__version__)
    with pytest.raises(AttributeError, match="'semfs' has no attribute 'SemFs'"):
        semfs.SemFs


def test_the_rooms_users_import_from_need_no_import_of_their_own():
    code = "import semfs; print(semfs.baselines.MCFS.__name__, semfs.evaluation.__name__)"
    assert in_new_python(code) == ["MCFS", "semfs.evaluation"]


def test_importing_the_selectors_loads_no_optional_package_and_warns_of_nothing():
    code = "import sys; from semfs import *; import semfs.attributes, semfs.datasets; "
    assert in_new_python(code + f"print(*({OPTIONAL} & set(sys.modules)))") == []


def test_the_parameters_of_the_contract_exist_with_their_defaults():
    found = {f"{name}={value!r}" for name, value in semfs.SemFS().get_params().items()}
    assert set(DEFAULTS.split()) <= found


def test_the_examples_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("pandas")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 3
    scope = {}  # as a reader pastes them, one after the other
    for block in blocks:
        exec(block, scope)
    assert scope["X_small"].shape == (len(scope["X_unseen"]), 20)
