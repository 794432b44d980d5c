import dataclasses
import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from official_formats import write_idx
from PIL import Image

from posterity import datasets
from posterity.datasets import files, images, letters, uci
from posterity.errors import Error

CONTENT = np.random.default_rng(0).bytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT: with Range or without, and cut after ``cut`` bytes for the first ``cuts`` requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges, self.cut, self.cuts, self.asked = True, 100_000, 0, []
        self.content, self.status = CONTENT, 200

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        body = server.content[start:]
        if server.status != 200 or (start and not body):
            self.send_error(416 if start else server.status)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.cuts:
            server.cuts -= 1
            body = body[: server.cut]
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def item(server, md5=MD5, **options):
    return files.Download("file.bin", (server.url,), md5, **options)


def part(path):
    return path.with_name(path.name + ".part")


def test_a_download_arrives_whole(server, tmp_path):
    assert files.fetch(item(server), tmp_path / "deep" / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None]


def test_a_wrong_hash_is_refused_and_leaves_nothing(server, tmp_path):
    with pytest.raises(Error, match="MD5 differs"):
        files.fetch(item(server, md5="0" * 32), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []


def test_a_cut_download_goes_on_where_it_stopped(server, tmp_path):
    server.cuts = 2
    assert files.fetch(item(server), tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=200000-"]


def test_a_download_that_is_always_cut_is_kept_for_the_next_try(server, tmp_path):
    path = tmp_path / "file.bin"
    server.cuts, server.cut = 3, 1_000
    with pytest.raises(Error, match="3,000 of 300,000 bytes"):
        files.fetch(item(server), path)
    assert not path.exists()
    assert part(path).read_bytes() == CONTENT[:3_000]
    assert files.fetch(item(server), path).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=3000-"


def test_a_server_without_range_starts_over(server, tmp_path):
    path = tmp_path / "file.bin"
    part(path).write_bytes(b"other" * 10)
    server.ranges = False
    assert files.fetch(item(server), path).read_bytes() == CONTENT
    assert server.asked == ["bytes=50-"]


@pytest.mark.parametrize("stale", [b"x" * 50, b"x" * 300_000, b"x" * 400_000])
def test_a_part_of_another_file_is_thrown_away(server, tmp_path, stale):
    path = tmp_path / "file.bin"
    part(path).write_bytes(stale)
    assert files.fetch(item(server), path).read_bytes() == CONTENT


def test_a_complete_part_needs_no_second_download(server, tmp_path):
    path = tmp_path / "file.bin"
    part(path).write_bytes(CONTENT)
    assert files.fetch(item(server), path).read_bytes() == CONTENT
    assert server.asked == ["bytes=300000-"]


def test_a_file_over_the_limit_is_refused(server, tmp_path):
    with pytest.raises(Error, match="larger than 200,000 bytes"):
        files.fetch(item(server, limit=200_000), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []


def test_the_second_address_is_used_where_the_first_fails(server, tmp_path):
    dead = "http://127.0.0.1:9/file.bin"
    download = files.Download("file.bin", (dead, server.url), MD5)
    assert files.fetch(download, tmp_path / "file.bin").read_bytes() == CONTENT


def test_an_answer_of_404_is_an_error(server, tmp_path):
    server.status = 404
    with pytest.raises(Error, match="404"):
        files.fetch(item(server), tmp_path / "file.bin")
    assert len(server.asked) == 1


def collection(server=None, **options):
    downloads = (files.Download("a.bin", (server.url,), MD5),) if server else ()
    return files.Collection("things", "folder", ("a.bin",), downloads=downloads, **options)


def test_get_downloads_to_the_cache_once(server):
    folder = files.get(collection(server))
    assert folder == files.cache() / "folder"
    assert (folder / "a.bin").read_bytes() == CONTENT
    assert files.get(collection(server)) == folder
    assert len(server.asked) == 1


def test_a_failed_download_says_which_files_to_put_where(server):
    server.status = 500
    with pytest.raises(Error, match=r"(?s)500.*Put a\.bin into folder/.*POSTERITY_DATA"):
        files.get(collection(server))


def test_missing_files_say_what_to_put_where():
    with pytest.raises(Error, match=r"Put boston\.npz into uci/.*test \[splits, n\]"):
        datasets.load("uci/boston", download=False)


def test_download_false_asks_nobody(server):
    with pytest.raises(Error, match="not on this machine"):
        files.get(collection(server), download=False)
    assert server.asked == []


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    places = [tmp_path / name for name in ("given", "environment", "system", "stored")]
    monkeypatch.setenv("POSTERITY_DATA", str(places[1]))
    monkeypatch.setenv("POSTERITY_CACHE", str(places[3]))
    folders = [places[0] / "folder", places[1] / "folder", places[2], places[3] / "folder"]
    for folder in reversed(folders):
        folder.mkdir(parents=True)
        (folder / "a.bin").touch()
        assert files.find(collection(places=(str(places[2]),)), places[0]) == folder


def test_unzipped_members_count_too(tmp_path):
    write_idx(tmp_path / "folder" / "a-ubyte", np.zeros((2, 2)))
    found = files.find(files.Collection("things", "folder", ("a-ubyte.gz",)), tmp_path)
    assert found == tmp_path / "folder"


def tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(content))
    return path


def test_only_the_expected_members_leave_an_archive(tmp_path):
    archive = tar(
        tmp_path / "a.tar.gz",
        [
            ("../escaped.bin", b"bad", tarfile.REGTYPE),
            ("/tmp/escaped.bin", b"bad", tarfile.REGTYPE),
            ("folder/unexpected.bin", b"bad", tarfile.REGTYPE),
            ("folder/a.bin", b"good", tarfile.REGTYPE),
            ("folder/names.txt", b"names", tarfile.REGTYPE),
        ],
    )
    files.extract(archive, tmp_path / "out", ["folder/a.bin"], ["folder/names.txt", "folder/none.txt"])
    found = {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p != archive}
    assert found == {"out/folder/a.bin": b"good", "out/folder/names.txt": b"names"}


def test_a_link_in_place_of_a_member_is_not_taken(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", [("folder/a.bin", b"", tarfile.SYMTYPE)])
    with pytest.raises(Error, match=r"lacks folder/a\.bin"):
        files.extract(archive, tmp_path / "out", ["folder/a.bin"])
    assert not (tmp_path / "out" / "folder" / "a.bin").exists()


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", [("bomb", bytes(2_000_000), tarfile.REGTYPE)])
    assert archive.stat().st_size < 10_000
    with pytest.raises(Error, match="more than 1,000,000"):
        files.extract(archive, tmp_path / "out", ["folder/a.bin"], limit=1_000_000)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00junk"])
def test_a_damaged_archive_is_an_error(tmp_path, content):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    with pytest.raises(Error):
        files.extract(path, tmp_path / "out", ["folder/a.bin"])


def test_a_cut_archive_is_an_error(tmp_path):
    path = tar(tmp_path / "a.tar.gz", [("folder/a.bin", CONTENT, tarfile.REGTYPE)])
    path.write_bytes(path.read_bytes()[:150_000])
    with pytest.raises(Error, match="damaged"):
        files.extract(path, tmp_path / "out", ["folder/a.bin"])


def test_an_archive_is_unpacked_into_the_cache_and_removed(server, tmp_path):
    server.content = tar(tmp_path / "x.tar.gz", [("folder/a.bin", b"good", tarfile.REGTYPE)]).read_bytes()
    download = files.Download("things.tar.gz", (server.url,), hashlib.md5(server.content).hexdigest())
    folder = files.get(files.Collection("things", "folder", ("a.bin",), downloads=(download,)))
    assert (folder / "a.bin").read_bytes() == b"good"
    assert not (files.cache() / "things.tar.gz").exists()


def serve_table(monkeypatch, server, content):
    server.content = content
    monkeypatch.setattr(uci, "_SOURCE", server.url)


TABLE = np.random.default_rng(1).normal(size=(40, 10)).round(3)


def table_text(table):
    return "\n".join(" ".join(map(str, row)) for row in table).encode()


def test_a_table_is_made_from_its_source_and_checked_by_its_values(server, monkeypatch):
    serve_table(monkeypatch, server, table_text(TABLE))
    published = uci._hash(TABLE[:, :9])
    monkeypatch.setitem(uci._TABLES, "energy", ("energy", 8, 20, published))
    server.cuts, server.cut = 1, 500
    data = datasets.load("uci/energy", seed=3)
    assert server.asked == [None, "bytes=500-"]
    assert (len(data.train[1]), len(data.test[1]), data.train[0].shape[1]) == (
        36,
        4,
        8,
    )  # the second target is left out
    with np.load(files.cache() / "uci" / "energy.npz") as stored:
        assert np.array_equal(stored["x"], TABLE[:, :8])
        assert np.array_equal(stored["y"], TABLE[:, 8])
        assert np.array_equal(stored["test"], uci.standard_splits(20, 40))
    datasets.load("uci/energy")
    assert len(server.asked) == 2
    assert [path.name for path in files.cache().iterdir()] == ["uci"]


@pytest.mark.parametrize(
    "content", [table_text(TABLE + 0.001), table_text(TABLE[1:]), b"a b c\n1 2 3", b"", b"\xff\xfe1"]
)
def test_a_table_of_other_values_is_refused_and_leaves_nothing(server, monkeypatch, content):
    serve_table(monkeypatch, server, content)
    monkeypatch.setitem(uci._TABLES, "energy", ("energy", 8, 20, uci._hash(TABLE[:, :9])))
    with pytest.raises(Error, match=r"(?s)energy\.txt.*Put energy\.npz into uci/"):
        datasets.load("uci/energy")
    assert [path for path in files.cache().rglob("*") if path.is_file()] == []


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


LETTERS = np.random.default_rng(2).integers(0, 256, (40, 28, 28), dtype=np.uint8)


def letters_archive(path, pixels=LETTERS):
    """Two files that are no images, a link and a stray file lie among the letters, as in the original or worse."""
    names = [f"notMNIST_small/{'ABCDEFGHIJ'[i % 10]}/{99 - i}.png" for i in range(len(pixels))]
    members = [(name, png(image), tarfile.REGTYPE) for name, image in zip(names, pixels, strict=True)]
    members[3:3] = [("notMNIST_small/A/0.png", b"", tarfile.REGTYPE), ("notMNIST_small/B/0.png", b"x", tarfile.REGTYPE)]
    members += [("notMNIST_small/A/1.png", b"", tarfile.SYMTYPE), ("../A/2.png", png(pixels[0]), tarfile.REGTYPE)]
    return tar(path, members).read_bytes()


def known_letters(monkeypatch):
    records = [bytes([i % 10]) + image.tobytes() for i, image in enumerate(LETTERS)]
    monkeypatch.setattr(letters, "_SHA256", letters._hash(records))


def notmnist(server):
    return dataclasses.replace(letters.COLLECTION, downloads=(files.Download("notMNIST_small.tar.gz", (server.url,)),))


def test_letters_are_made_from_the_archive_and_checked_by_their_pixels(server, tmp_path, monkeypatch):
    known_letters(monkeypatch)
    server.content = letters_archive(tmp_path / "x.tar.gz")
    x, y = images._read(letters.COLLECTION, files.get(notmnist(server)), "test")
    assert np.array_equal(y, np.repeat(np.arange(10), 4))
    assert np.array_equal(x[:4, 0], LETTERS[[30, 20, 10, 0]])  # by file name within a class
    assert [path.name for path in files.cache().iterdir()] == ["notMNIST_small"]


@pytest.mark.parametrize("damage", ["pixel", "cut", "one fewer"])
def test_other_letters_are_refused_and_leave_nothing(server, tmp_path, monkeypatch, damage):
    known_letters(monkeypatch)
    changed = LETTERS.copy()
    changed[7, 3, 3] ^= 1
    content = letters_archive(tmp_path / "x.tar.gz", {"pixel": changed, "one fewer": LETTERS[1:]}.get(damage, LETTERS))
    server.content = content[: len(content) // 2] if damage == "cut" else content
    with pytest.raises(Error, match=r"(?s)notMNIST_small\.tar\.gz.*Put images-idx3-ubyte\.gz"):
        files.get(notmnist(server))
    assert [path for path in files.cache().rglob("*") if path.is_file()] == []
