"""Known data sets: found where they are, or explained."""

from semfs.datasets import CATALOG, find_files


def test_files_that_are_there_are_found(tmp_path, monkeypatch):
    cub = next(entry for entry in CATALOG if entry.name == "CUB")
    assert find_files(cub, [tmp_path]) is None
    (tmp_path / "xlsa17" / "CUB").mkdir(parents=True)
    for name in ("res101.mat", "att_splits.mat"):
        (tmp_path / "xlsa17" / "CUB" / name).touch()
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    assert find_files(cub) == tmp_path / "xlsa17" / "CUB"


def test_every_entry_says_how_to_get_it():
    assert all(known.licence and known.source for known in CATALOG)
