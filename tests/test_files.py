"""Files: whole or not at all, sizes in words, optional packages with an install line."""

import contextlib

import pytest

import semfs.system
from semfs.io.safety import FileError, atomic_write, file_errors
from semfs.progress import Progress
from semfs.system import import_optional, memory_limit, parse_size, size_text


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    with contextlib.suppress(KeyError), atomic_write(tmp_path / "a.txt") as beside:
        beside.write_text("half")
        raise KeyError
    assert not list(tmp_path.iterdir())
    with atomic_write(tmp_path / "new" / "folder") as beside:
        beside.mkdir()
    assert (tmp_path / "new" / "folder").is_dir()


def test_a_missing_package_is_named_with_the_line_that_installs_it():
    with pytest.raises(
        ImportError, match=r"A map needs nowhere\. .* pip install 'semfs\[data\]'"
    ):
        import_optional("nowhere.land", "data", what="A map")
    assert import_optional("json").loads("1") == 1


def test_sizes_are_read_and_told():
    assert [parse_size(text) for text in ("512MB", "2 GiB", 7)] == [512e6, 2**31, 7]
    assert [size_text(n) for n in (5, 3200, 2e15)] == ["5 bytes", "3.2 kB", "2000.0 TB"]
    with pytest.raises(ValueError, match="such as"):
        parse_size("manyMB")


def test_too_little_memory_is_told(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a")
    with (
        pytest.raises(FileError, match="not enough memory"),
        file_errors(tmp_path / "a.csv", ".csv"),
    ):
        raise MemoryError
    monkeypatch.delattr(semfs.system.os, "sysconf")
    assert memory_limit() == 2**34


def test_lines_of_progress_tell_the_time_left(capsys):
    for total in (4, None):
        with Progress("rounds", total, verbose=1, unit="rows") as progress:
            progress.step("fine", 2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("rounds 2/4 rows, 0 s left fine")
    assert lines[1] == "rounds 2 rows fine"
