"""Hostile and damaged files: one clear line, no growth, no crash."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from semfs.attributes import read_attributes
from semfs.datasets import load_npz
from semfs.io import probe
from semfs.io.npz import read_npz
from semfs.io.safety import LARGE, FileError
from semfs.rows import open_blocks
from semfs.system import size_text

pd = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
pytest.importorskip("openpyxl")
h5py = pytest.importorskip("h5py")

ROOT = Path(__file__).parents[2]

# One process that has imported everything; each command runs in a fork of it, with limits.
COMMANDS = """
import json, os, resource, sys
from pathlib import Path
import h5py, openpyxl, pandas, pyarrow.dataset, semfs.datasets
from semfs.cli import main

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for arguments in json.loads(sys.argv[1]):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 2)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sys.argv[:] = ["semfs", "select", *arguments]
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)
        sys.stderr.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as said:
        *lines, growth = said.read().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, lines, int(growth)]))
"""


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


def lying_member(path):
    """An archive that says its X has a terabyte."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {"X": np.zeros((4, 2**14)), "y": np.arange(4) % 2}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, array)
        archive.getinfo("X.npy").file_size = 2**40


def archive_within(path):
    """An archive whose X is another archive."""
    wide(path.with_name("inner.npz"))
    np.savez(path, y=np.arange(4) % 2)
    with zipfile.ZipFile(path, "a") as archive:
        archive.write(path.with_name("inner.npz"), "X.npy")


def header_alone(path):
    path.write_text("g0,g1,y\n")


def damaged_text(path):
    write_texts(path)
    path.write_bytes(endless_text(path.read_bytes()))


HOSTILE = {
    "wide.npz": (wide, "columns declares"),
    "lying.npz": (lying_member, "its content declares|its content claims"),
    "within.npz": (archive_within, "is not a readable .npz file"),
    "far.xlsx": (far_cell, "reaches far beyond its filled cells"),
    "far table.xlsx": (far_cell, "reaches far beyond its filled cells"),
    "header.csv": (header_alone, "only a header and no rows"),
    "text.h5": (damaged_text, "is damaged"),
}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_select_refuses_hostile_files_in_one_line_without_growth(tmp_path):
    np.savez(tmp_path / "good.npz", X=np.eye(4), y=np.arange(4) % 2)
    commands = []
    for name, (write, _) in HOSTILE.items():
        path = tmp_path / name
        write(path)
        assert path.stat().st_size < 8000
        table = name.endswith("table.xlsx")
        data = [tmp_path / "good.npz", "--attributes", path] if table else [path]
        commands.append([*map(str, data), "--label", "y", "--out", str(tmp_path / "out")])
    command = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    both = zip(HOSTILE.items(), answers, strict=True)
    for (name, (_, message)), (code, lines, growth) in both:
        assert (code, len(lines)) == (2, 1), (name, lines)
        assert re.search(message, lines[0]), lines
        assert growth < 100_000, name
    assert not (tmp_path / "out").exists()


def test_a_wide_but_honest_sparse_matrix_is_read(tmp_path):
    parts = {"X_data": [1.0], "X_indices": [10**5], "X_indptr": [0, 1, 1]}
    np.savez(tmp_path / "a.npz", X_shape=[2, 2**20], y=[0, 1], A=np.eye(2), **parts)
    assert open_blocks(tmp_path / "a.npz", "y").n_features == 2**20
    assert load_npz(tmp_path / "a.npz").X.shape == (2, 2**20)


def test_all_members_of_an_archive_are_counted_together(tmp_path):
    each = LARGE // 8
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(16):
            with archive.open(f"a{i}.npy", "w") as file:
                np.save(file, np.zeros(10))
        for i in range(1, 16):
            archive.getinfo(f"a{i}.npy").file_size = each
    assert read_npz(tmp_path / "a.npz", ["a0"])["a0"].shape == (10,)
    claimed = re.escape(size_text(15 * each))
    with pytest.raises(FileError, match=f"its content claims {claimed} but is stored in"):
        read_npz(tmp_path / "a.npz")
    pd.DataFrame(np.eye(2), index=["a", "b"]).to_excel(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "a.xlsx", "a", zipfile.ZIP_DEFLATED) as archive:
        for i in range(16):
            archive.writestr(f"xl/media/{i}.bin", b"picture")
            archive.getinfo(f"xl/media/{i}.bin").file_size = each
    with pytest.raises(FileError, match="its content claims"):
        read_attributes(tmp_path / "a.xlsx")


def test_a_table_that_is_mostly_one_number_repeated_is_refused(tmp_path):
    numbers = np.zeros(10**6)
    n_columns = LARGE // numbers.nbytes + 1
    columns = {f"g{j}": numbers for j in range(n_columns)}
    labels = np.zeros(len(numbers), dtype=np.int8)
    pyarrow.parquet.write_table(pyarrow.table({**columns, "y": labels}), tmp_path / "a.parquet")
    with pytest.raises(FileError, match="the table claims"):
        open_blocks(tmp_path / "a.parquet", "y")


def damaged_heap(content):
    """The first text in the heap is free space of no size: the library runs in circles."""
    at = content.index(b"GCOL") + 16
    return content[:at] + bytes(16) + content[at + 16 :]


def endless_text(content):
    """The first label of twelve (three letters each) says that it is 4 GB long."""
    at = content.index((3).to_bytes(4, "little") + content.index(b"GCOL").to_bytes(8, "little"))
    return content[:at] + b"\xff\xff\xff\xff" + content[at + 4 :]


def write_texts(path):
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = np.eye(12), np.array(["ant", "bee"] * 6, dtype=object)


@pytest.mark.parametrize("damage", [damaged_heap, endless_text])
def test_texts_that_hdf5_does_not_survive_are_refused(damage, tmp_path):
    path = tmp_path / "a.h5"
    write_texts(path)
    assert probe.probe_ok(path, seconds=1.0)
    open_blocks(path, "y")
    path.write_bytes(damage(path.read_bytes()))
    assert not probe.probe_ok(path, seconds=1.0)


@pytest.mark.slow  # waits until a process that uses no processor time counts as stuck
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_a_file_that_takes_forever_is_refused_and_the_next_one_is_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "endless.h5")  # nobody ever writes to it
    write_texts(tmp_path / "a.h5")
    assert not probe.probe_ok(tmp_path / "endless.h5", seconds=0.1)
    assert probe.probe_ok(tmp_path / "a.h5")
    monkeypatch.setattr(h5py.h5o, "get_info", None)  # damaged: hides nothing else
    assert probe.explore(str(tmp_path / "a.h5")) == 3  # the file itself and two arrays


def test_a_group_whose_attributes_cannot_be_listed_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("var").attrs["_index"] = "gene"
    assert probe.probe_ok(tmp_path / "a.h5")
    content = (tmp_path / "a.h5").read_bytes()
    at = content.index(b"_index\0") - 4  # the size of its type: more than there is
    (tmp_path / "b.h5").write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    assert not probe.probe_ok(tmp_path / "b.h5")


def test_an_array_of_chunks_that_are_not_there_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:  # each would take kilobytes of memory
        file.create_dataset("X", (10**6, 1), chunks=(10, 1))[:5] = 1.0
    with pytest.raises(
        FileError, match="X declares 100000 chunks, but most of them are missing"
    ):
        open_blocks(tmp_path / "a.h5", np.arange(10**6) % 2)


def test_text_of_no_characters_is_refused(tmp_path):
    np.save(tmp_path / "y.npy", np.array([0x110000], dtype=np.uint32).view("U1"))
    np.save(tmp_path / "X.npy", np.eye(1))
    with pytest.raises(FileError, match="invalid Unicode code points"):
        open_blocks(tmp_path / "X.npy", str(tmp_path / "y.npy"))
