"""The page on large data: its Python runs, its commands run."""

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "big-data.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.S | re.M)


@pytest.mark.skipif(not PAGE.exists(), reason="docs are not part of this copy")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::ResourceWarning")
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    pd, testing = pytest.importorskip("pandas"), pytest.importorskip("typer.testing")
    from semfs.cli import app

    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "page"}
    try:
        for code in blocks("python"):
            exec(compile(code, str(PAGE), "exec"), names)
        pd.DataFrame(names["table"]).rename(columns="a{}".format).to_csv("table.csv")
        address = names["client"].scheduler.address
        for text in blocks("bash"):
            text = text.replace("tcp://scheduler:8786", address).replace("\\\n", " ")
            for line in text.splitlines():
                done = testing.CliRunner().invoke(app, shlex.split(line)[1:])
                assert done.exit_code == 0, done.output
    finally:
        if "client" in names:
            names["client"].shutdown()
    assert (tmp_path / "reduced.npy").exists()
