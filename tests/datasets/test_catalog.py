"""Known data sets: found where they are, downloaded with a checksum, or explained."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile

import pytest

from semfs.datasets import CATALOG, catalog, download, find_files

pytest.importorskip("pooch")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A local server with one data set, Toy; returns a function that sets its archive."""
    files, log = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            log.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(files[self.path])))
            self.end_headers()
            self.wfile.write(files[self.path])

        def log_message(self, *_):
            pass

    def serve(name, data, checked=None):
        files[f"/{name}"] = data
        digest = hashlib.sha256(checked or data).hexdigest()
        url = f"http://127.0.0.1:{httpd.server_port}/{name}"
        toy = catalog.Entry(
            "Toy", "a toy", "load()", [["in/toy.txt"]], "nowhere", "CC0", url, digest
        )
        monkeypatch.setattr(catalog, "CATALOG", (toy,))
        return log

    for variable in ("SEMFS_CACHE", "SEMFS_DATA"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield serve
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def archive(form):
    out = io.BytesIO()
    if form == "toy.zip":
        with zipfile.ZipFile(out, "w") as zipped:
            zipped.writestr("in/toy.txt", "hello")
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            item = tarfile.TarInfo("in/toy.txt")
            item.size = 5
            tar.addfile(item, io.BytesIO(b"hello"))
    return out.getvalue()


@pytest.mark.parametrize("form", ["toy.zip", "toy.tar.gz"])
def test_download_is_checked_unpacked_and_done_once(server, tmp_path, capsys, form):
    log = server(form, archive(form))
    for name in ("Toy", "toy"):
        folder = download(name)
        assert folder == tmp_path / "cache" / "Toy" / "in"
        assert (folder / "toy.txt").read_text() == "hello"
    assert len(log) == 1
    assert "Licence: CC0" in capsys.readouterr().err


def test_a_wrong_checksum_leaves_nothing_and_says_what_to_do(server, tmp_path):
    server("toy.zip", archive("toy.zip"), checked=b"other")
    with pytest.raises(OSError, match=r"hash.*Unpack it by hand in"):
        download("Toy")
    assert not list((tmp_path / "cache").iterdir())


def test_without_a_checksum_the_error_says_where_to_get_and_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMFS_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no checksum .*http.*xlsa17\.zip") as caught:
        download("cub")
    assert f"put it into {tmp_path}" in str(caught.value)
    with pytest.raises(ValueError, match="no data set 'mnist' is known"):
        download("mnist")


def test_files_that_are_there_are_found(tmp_path, monkeypatch):
    cub = next(entry for entry in CATALOG if entry.name == "CUB")
    assert find_files(cub, [tmp_path]) is None
    (tmp_path / "xlsa17" / "CUB").mkdir(parents=True)
    for name in ("res101.mat", "att_splits.mat"):
        (tmp_path / "xlsa17" / "CUB" / name).touch()
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    assert find_files(cub) == tmp_path / "xlsa17" / "CUB"


def test_every_entry_is_downloadable_or_says_how():
    for known in CATALOG:
        assert (known.url is None) == (known.sha256 is None)
        assert known.licence
        assert known.source
