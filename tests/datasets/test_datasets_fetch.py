"""Downloads and archives: checksums, continued transfers, hostile archives."""

import contextlib
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile

import pytest

from semfs.datasets import CIFAR10_CLASSES, fetch_cifar10, fetch_glove, find_files
from semfs.datasets.catalog import CATALOG, Entry, download, find_entry, unpack
from semfs.files import FileError

pytest.importorskip("pandas")
pytest.importorskip("pooch")


@pytest.fixture
def server(monkeypatch):
    """A local server that may break off once; returns (address, files, log)."""
    files, log = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            data = files[self.path]
            log.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: files.pop("break after", None)])

        def log_message(self, *_):
            pass

    monkeypatch.setattr("time.sleep", lambda _: None)  # pooch waits between attempts
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", files, log
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def entry(url, data):
    digest = hashlib.sha256(data).hexdigest()
    return Entry("Toy", "a toy", "load_toy()", (("toy.txt",),), "nowhere", "CC0", url, digest)


def test_download_is_checked_unpacked_and_done_once(server, tmp_path, capsys):
    address, files, log = server
    files["/toy.zip"] = data = zipped(**{"toy.txt": "hello"})
    for _ in range(2):
        folder = download(entry(f"{address}/toy.zip", data), tmp_path)
        assert (folder / "toy.txt").read_text() == "hello"
    assert len(log) == 1
    assert "Licence: CC0" in capsys.readouterr().err


def test_broken_transfer_is_tried_again(server, tmp_path):
    address, files, log = server
    files["/toy.zip"] = data = zipped(**{"toy.txt": "x" * 5000})
    files["break after"] = 1000
    folder = download(entry(f"{address}/toy.zip", data), tmp_path)
    assert (folder / "toy.txt").exists()
    assert len(log) == 2


def test_wrong_checksum_is_refused_and_no_network_says_what_to_do(server, tmp_path):
    address, files, _ = server
    files["/toy.zip"] = zipped(**{"toy.txt": "evil"})
    good = zipped(**{"toy.txt": "good"})
    for place, reason in ((address, "hash"), ("http://127.0.0.1:9", "connection")):
        with pytest.raises(OSError, match=rf"{reason}.*Download it by hand into"):
            download(entry(f"{place}/toy.zip", good), tmp_path)
    assert not (tmp_path / "toy").exists()


def test_without_a_checksum_the_error_says_where_to_get_and_put_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checksum .*http.*xlsa17\.zip") as caught:
        download(find_entry("CUB"), tmp_path)
    assert f"put it into {tmp_path}" in str(caught.value)


def test_files_that_are_there_are_found(tmp_path, monkeypatch):
    from test_datasets_zeroshot import write_apy, write_cifar

    assert find_files(find_entry("aPY"), [tmp_path]) is None
    (tmp_path / "aPY_annotations").mkdir()
    write_apy(tmp_path / "aPY_annotations")
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    assert find_files(find_entry("aPY")) == tmp_path / "aPY_annotations"
    write_cifar(tmp_path / "cifar10" / "cifar-10-batches-bin", "binary")
    words = {label: [float(i)] for i, label in enumerate(CIFAR10_CLASSES)}
    assert len(fetch_cifar10(attributes=words, folder=tmp_path).y) == 60
    (tmp_path / "glove").mkdir()
    assert fetch_glove(50, folder=tmp_path) == tmp_path / "glove" / "glove.6B.50d.txt"
    with pytest.raises(ValueError, match="size must be 50, 100, 200 or 300, got 7"):
        fetch_glove(7)


def test_every_entry_is_downloadable_or_says_how():
    for known in CATALOG:
        assert (known.url is None) == (known.sha256 is None)
        assert known.licence
        assert known.source
    assert find_entry("cub").name == "CUB"
    with pytest.raises(ValueError, match="no data set 'mnist' is known"):
        find_entry("mnist")


# --- archives ----------------------------------------------------------------------------


def tarred(path, name, *, kind=tarfile.REGTYPE, link=""):
    with tarfile.open(path, "w:gz") as archive:
        item = tarfile.TarInfo(name)
        item.type, item.linkname = kind, link
        data = b"evil" if kind == tarfile.REGTYPE else b""
        item.size = len(data)
        archive.addfile(item, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_nothing_is_written_outside_the_folder(tmp_path, form, name):
    path = tmp_path / "in" / f"a.{form}"
    path.parent.mkdir()
    if form == "zip":
        path.write_bytes(zipped(**{name: "evil"}))
    else:
        tarred(path, name)
    with contextlib.suppress(FileError):
        unpack(path, tmp_path / "in" / "out")
    written = [p for p in tmp_path.rglob("*") if p.is_file() and p != path]
    assert all(tmp_path / "in" / "out" in p.parents for p in written)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_to_elsewhere_and_devices_are_refused(tmp_path, kind):
    path = tarred(tmp_path / "a.tar.gz", "link", kind=kind, link="/etc/passwd")
    with pytest.raises(FileError, match="not a readable archive"):
        unpack(path, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x1f\x8b\x08\x00"])
def test_broken_archives_are_one_line(tmp_path, content):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(FileError, match="not a readable archive"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_archive_bombs_are_refused(tmp_path, monkeypatch):
    import semfs.files

    monkeypatch.setattr(semfs.files, "LARGE", 2**20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(2**22))
    with pytest.raises(FileError, match="as a zip bomb does"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
