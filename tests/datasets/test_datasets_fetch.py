"""Downloads and archives: checksums, continued transfers, hostile archives."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile

import pytest

import semfs.datasets.fetch as fetch
from semfs.datasets import (
    CIFAR10_CLASSES,
    fetch_apy,
    fetch_cifar10,
    fetch_glove,
    fetch_sun,
    fetch_xlsa17,
)
from semfs.datasets.catalog import CATALOG, Entry, find_entry
from semfs.files import FileError

pytest.importorskip("pandas")
pytest.importorskip("pooch")


@pytest.fixture
def server(tmp_path):
    """A local server that knows ranges, as real ones do; returns (address, files, log)."""
    files, log = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            data = files[self.path]
            log.append(self.headers.get("Range"))
            start = int((self.headers.get("Range") or "bytes=0-")[6:].rstrip("-"))
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            limit = files.pop("break after", None)
            self.wfile.write(data[start:limit])

        def log_message(self, *_):
            pass

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
        folder = fetch._unpacked(entry(f"{address}/toy.zip", data), tmp_path)
        assert (folder / "toy.txt").read_text() == "hello"
    assert len(log) == 1
    assert "Licence: CC0" in capsys.readouterr().err


def test_broken_transfer_is_continued(server, tmp_path):
    address, files, log = server
    files["/toy.zip"] = data = zipped(**{"toy.txt": "x" * 5000})
    files["break after"] = 1000
    toy = entry(f"{address}/toy.zip", data)
    with pytest.raises(OSError, match="could not be downloaded"):
        fetch._unpacked(toy, tmp_path)
    assert (fetch._unpacked(toy, tmp_path) / "toy.txt").exists()
    assert log == [None, "bytes=1000-"]


def test_wrong_checksum_is_refused(server, tmp_path):
    address, files, _ = server
    files["/toy.zip"] = zipped(**{"toy.txt": "evil"})
    toy = entry(f"{address}/toy.zip", zipped(**{"toy.txt": "good"}))
    with pytest.raises(OSError, match=r"could not be downloaded.*SHA256|hash"):
        fetch._unpacked(toy, tmp_path)
    assert not (tmp_path / "toy").exists()


def test_no_network_says_what_to_do(tmp_path, monkeypatch):
    closed = entry("http://127.0.0.1:9/toy.zip", b"")
    with pytest.raises(OSError, match="Download it by hand into"):
        fetch._unpacked(closed, tmp_path)


@pytest.mark.parametrize(
    "call, needed",
    [
        (lambda f: fetch_xlsa17("CUB", folder=f), "xlsa17/data/CUB/res101.mat"),
        (lambda f: fetch_sun(folder=f), "SUNAttributeDB/images.mat"),
        (lambda f: fetch_apy(folder=f), "aPY_annotations/apascal_train.txt"),
    ],
)
def test_without_a_checksum_the_error_says_where_to_get_and_put_it(tmp_path, call, needed):
    with pytest.raises(FileNotFoundError, match=r"no checksum .* is published") as caught:
        call(tmp_path)
    assert str(tmp_path / needed) in str(caught.value)
    assert "http" in str(caught.value)


def test_files_that_are_there_are_loaded(tmp_path):
    from test_datasets_zeroshot import write_apy, write_cifar

    (tmp_path / "aPY_annotations").mkdir()
    write_apy(tmp_path / "aPY_annotations")
    assert fetch_apy(folder=tmp_path).unseen.tolist() == ["mug"]
    write_cifar(tmp_path / "cifar10" / "cifar-10-batches-bin", "binary")
    words = {label: [float(i)] for i, label in enumerate(CIFAR10_CLASSES)}
    assert len(fetch_cifar10(attributes=words, folder=tmp_path).y) == 60
    (tmp_path / "glove").mkdir()
    assert fetch_glove(50, folder=tmp_path) == tmp_path / "glove" / "glove.6B.50d.txt"


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


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil"])
@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_members_outside_the_folder_are_refused(tmp_path, form, name):
    path = tmp_path / "in" / f"a.{form}"
    path.parent.mkdir()
    if form == "zip":
        path.write_bytes(zipped(**{name: "evil", "good.txt": "good"}))
    else:
        tarred(path, name)
    with pytest.raises(FileError, match="would be written outside; refused"):
        fetch.unpack(path, tmp_path / "in" / "out")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [path.name]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    path = tarred(tmp_path / "a.tar.gz", "link", kind=kind, link="/etc/passwd")
    with pytest.raises(FileError, match="link or a device; refused"):
        fetch.unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x1f\x8b\x08\x00"])
def test_broken_archives_are_one_line(tmp_path, content):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(FileError, match="not a readable archive"):
        fetch.unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_archive_bombs_are_refused(tmp_path, monkeypatch):
    import semfs.files

    monkeypatch.setattr(semfs.files, "LARGE", 2**20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(2**22))
    with pytest.raises(FileError, match="as a zip bomb does"):
        fetch.unpack(tmp_path / "a.zip", tmp_path / "out")
