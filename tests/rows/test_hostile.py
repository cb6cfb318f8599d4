"""Hostile and damaged files: one clear line, no growth, no crash."""

import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from semfs.attributes import read_attributes
from semfs.datasets import load_npz
from semfs.files import FileError
from semfs.rows import open_blocks
from semfs.rows.readers import read_npz

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("openpyxl")
h5py = pytest.importorskip("h5py")

ROOT = Path(__file__).parents[2]

READ = """
import resource, sys
from pathlib import Path
import openpyxl, pandas, pyarrow.dataset, scipy.sparse, semfs, semfs.datasets
from semfs.attributes import read_attributes
from semfs.datasets import load_npz
from semfs.rows import open_blocks

used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for read in (lambda p: open_blocks(p, "y").load(), load_npz, read_attributes):
    try:
        read(sys.argv[1])
        print("accepted")
    except ValueError as error:
        print(str(error).replace("\\n", "|"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def read_within_limits(path):
    """What each reader says of a file in half a GB, and by how many kB the process grew."""
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *lines, growth = done.stdout.splitlines()
    assert "accepted" not in lines
    return lines, int(growth)


def far_cell(path):
    """A sheet with two cells, the second one in the last place there is."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active["A1"] = "class"
    book.active["XFD1048576"] = 1
    book.save(path)


def wide(path):
    parts = {"X_data": [1.0], "X_indices": [0], "X_indptr": [0, 1, 1, 1, 1]}
    np.savez(path, X_shape=[4, 2**62], y=[0, 1, 0, 1], A=np.eye(2), **parts)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    "name, write, message",
    [
        ("wide.npz", wide, "columns declares"),
        ("far.xlsx", far_cell, "reaches far beyond its cells"),
    ],
)
def test_a_small_file_that_declares_much_is_refused_without_growth(
    name, write, message, tmp_path
):
    write(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 6000
    lines, growth = read_within_limits(tmp_path / name)
    assert any(message in line for line in lines), lines
    assert growth < 100_000


def test_a_wide_but_honest_sparse_matrix_is_read(tmp_path):
    parts = {"X_data": [1.0], "X_indices": [10**5], "X_indptr": [0, 1, 1]}
    np.savez(tmp_path / "a.npz", X_shape=[2, 2**20], y=[0, 1], A=np.eye(2), **parts)
    assert open_blocks(tmp_path / "a.npz", "y").n_features == 2**20
    assert load_npz(tmp_path / "a.npz").X.shape == (2, 2**20)


def test_all_members_of_an_archive_are_counted_together(tmp_path, monkeypatch):
    monkeypatch.setattr("semfs.files.LARGE", 2**20)
    arrays = {f"a{i}": np.zeros(2**15) for i in range(16)}  # 256 kB each, 4 MB in all
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    assert read_npz(tmp_path / "a.npz", ["a0"])["a0"].shape == (2**15,)
    with pytest.raises(FileError, match=r"its content would expand from .* to 4\.2 MB"):
        read_npz(tmp_path / "a.npz")
    pd.DataFrame(np.eye(2), index=["a", "b"]).to_excel(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "a.xlsx", "a", zipfile.ZIP_DEFLATED) as archive:
        for i in range(4):
            archive.writestr(f"xl/media/{i}.bin", bytes(2**20))
    with pytest.raises(FileError, match="its content would expand"):
        read_attributes(tmp_path / "a.xlsx")


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_a_table_of_names_alone_is_said_to_have_no_rows(ending, tmp_path):
    path, empty = tmp_path / f"a{ending}", pd.DataFrame({"g0": [0.0], "y": ["a"]})[:0]
    write = {".csv": empty.to_csv, ".parquet": empty.to_parquet, ".feather": empty.to_feather}
    write[ending](path)
    with pytest.raises(FileError, match="has no rows"):
        open_blocks(path, "y")


def test_a_table_that_is_mostly_one_number_repeated_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("semfs.files.LARGE", 2**20)
    frame = pd.DataFrame({f"g{j}": np.zeros(10**6) for j in range(4)}).assign(y="a")
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(FileError, match="the table would expand"):
        open_blocks(tmp_path / "a.parquet", "y")


def damaged_heap(content):
    """The first text in the heap is free space of no size: the library runs in circles."""
    at = content.index(b"GCOL") + 16
    return content[:at] + bytes(16) + content[at + 16 :]


def endless_text(content):
    """The first label of twelve (three letters each) says that it is 4 GB long."""
    at = content.index((3).to_bytes(4, "little") + content.index(b"GCOL").to_bytes(8, "little"))
    return content[:at] + b"\xff\xff\xff\xff" + content[at + 4 :]


@pytest.mark.parametrize("damage", [damaged_heap, endless_text])
def test_texts_that_the_hdf5_library_does_not_survive_are_refused(damage, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = np.eye(12), np.array(["ant", "bee"] * 6, dtype=object)
    open_blocks(tmp_path / "a.h5", "y")
    (tmp_path / "a.h5").write_bytes(damage((tmp_path / "a.h5").read_bytes()))
    with pytest.raises(FileError, match="is damaged"):
        open_blocks(tmp_path / "a.h5", "y")


def test_text_of_no_characters_is_refused(tmp_path):
    np.save(tmp_path / "y.npy", np.array([0x110000], dtype=np.uint32).view("U1"))
    np.save(tmp_path / "X.npy", np.eye(1))
    with pytest.raises(FileError, match="no characters"):
        open_blocks(tmp_path / "X.npy", str(tmp_path / "y.npy"))


def test_memory_is_what_the_process_may_have():
    from semfs.files import memory_limit

    assert 0 < memory_limit() <= resource.getpagesize() * 2**52


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_damaged_files_of_every_format_are_read_or_refused_clearly(tmp_path):
    command = [sys.executable, "tools/fuzz.py", "--count", "25", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("25 tried") == 12
    assert done.stdout.count(" 0 anything else") == 12
