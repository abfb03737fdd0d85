"""Fetching, against a server on the loopback: resumed, checked, and never half a file under the final name."""

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from compass_abs.traces import TraceError
from compass_abs.traces.catalog import PUBLISHED, Download, Published
from compass_abs.traces.download import fetch, fetch_file

CONTENT = bytes(range(256)) * 4_000


@dataclass
class Site:
    """What the server has, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    etag: str = '"v1"'
    #: Bytes after which a reply breaks off, one entry a reply.
    break_after: list[int] = field(default_factory=list)
    #: Status to answer with, one entry a reply.
    refuse_with: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[str | None] = field(default_factory=list)
    address: str = ""

    def download(self, name: str = "f.csv", **changes: object) -> Download:
        return replace(Download(f"{self.address}/{name}", f"set/{name}"), **changes)  # type: ignore[arg-type]


@pytest.fixture
def site() -> Iterator[Site]:
    state = Site({"/f.csv": CONTENT})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            body = state.files.get(self.path)
            status = state.refuse_with.pop(0) if state.refuse_with else 200 if body is not None else 404
            if status != 200 or body is None:
                self.send_error(status)
                return
            start = 0
            if wanted and state.ranges and self.headers.get("If-Range") == state.etag:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            part = body[start:]
            self.send_header("Content-Length", str(len(part)))
            if state.etag:
                self.send_header("ETag", state.etag)
            self.end_headers()
            self.wfile.write(part[: state.break_after.pop(0)] if state.break_after else part)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


def get(site: Site, folder: Path, download: Download | None = None) -> Path:
    return fetch_file(download or site.download(), folder, lambda done, total: None, pause=0.0)


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def test_file_arrives_whole_under_its_name_with_progress(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch_file(site.download(), tmp_path, lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "set" / "f.csv"
    assert path.read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert leftovers(tmp_path) == ["f.csv"]


def test_file_that_is_there_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    get(site, tmp_path)
    get(site, tmp_path)
    assert len(site.asked) == 1


def test_broken_connection_is_taken_up_where_it_broke(site: Site, tmp_path: Path) -> None:
    site.break_after = [100_000, 50_000]
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_connection_that_keeps_breaking_keeps_its_bytes_for_the_next_call(site: Site, tmp_path: Path) -> None:
    site.break_after = [1_000] * 4
    with pytest.raises(TraceError, match="4,000 bytes are kept, run the command again to resume"):
        get(site, tmp_path)
    assert leftovers(tmp_path) == ["f.csv.part", "f.csv.part.validator"]
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked[-1] == "bytes=4000-"
    assert leftovers(tmp_path) == ["f.csv"]


def test_file_that_changed_meanwhile_is_fetched_from_the_start(site: Site, tmp_path: Path) -> None:
    site.break_after = [1_000] * 4
    with pytest.raises(TraceError):
        get(site, tmp_path)
    site.files["/f.csv"], site.etag = CONTENT[::-1], '"v2"'
    assert get(site, tmp_path).read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize(("ranges", "etag"), [(False, '"v1"'), (True, ""), (True, 'W/"weak"')])
def test_server_that_cannot_resume_safely_is_asked_for_everything(
    site: Site, tmp_path: Path, ranges: bool, etag: str
) -> None:
    site.ranges, site.etag, site.break_after = ranges, etag, [1_000]
    assert get(site, tmp_path).read_bytes() == CONTENT


def test_partial_file_longer_than_the_original_starts_over(site: Site, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "f.csv.part").write_bytes(CONTENT + b"more")
    (tmp_path / "set" / "f.csv.part.validator").write_text(site.etag)
    assert get(site, tmp_path).read_bytes() == CONTENT


def test_right_hash_is_accepted_and_wrong_hash_leaves_nothing(site: Site, tmp_path: Path) -> None:
    right = hashlib.sha256(CONTENT).hexdigest()
    assert get(site, tmp_path / "a", site.download(sha256=right)).is_file()
    with pytest.raises(TraceError, match=f"SHA-256 is {right}, the published one is {'0' * 64}"):
        get(site, tmp_path / "b", site.download(sha256="0" * 64))
    assert leftovers(tmp_path / "b") == []


def test_file_already_there_with_the_wrong_hash_is_reported_and_kept(site: Site, tmp_path: Path) -> None:
    path = get(site, tmp_path)
    with pytest.raises(TraceError, match="delete it and fetch again"):
        get(site, tmp_path, site.download(sha256="0" * 64))
    assert path.read_bytes() == CONTENT


def test_missing_file_is_reported_at_once(site: Site, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="answered 404"):
        get(site, tmp_path, site.download("none.csv"))
    assert len(site.asked) == 1


def test_busy_server_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.refuse_with = [503, 429]
    assert get(site, tmp_path).read_bytes() == CONTENT


def test_server_that_is_not_there_is_reported(tmp_path: Path) -> None:
    download = Download("http://127.0.0.1:9/f.csv", "f.csv")
    with pytest.raises(TraceError, match="no connection"):
        fetch_file(download, tmp_path, lambda done, total: None, pause=0.0)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/f", "f.csv", "http://[bad/f.csv"])
def test_address_that_is_no_web_address_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(TraceError, match=r"expected a web address|not a usable web address"):
        fetch_file(Download(url, "f.csv"), tmp_path, lambda done, total: None)


def test_git_lfs_pointer_is_not_taken_for_the_file(site: Site, tmp_path: Path) -> None:
    site.files["/f.csv"] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    with pytest.raises(TraceError, match="Git LFS pointer"):
        get(site, tmp_path)
    assert leftovers(tmp_path) == []


def test_member_of_an_archive_is_taken_out(site: Site, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("trace-data/log")
        entry.size = len(CONTENT)
        archive.addfile(entry, io.BytesIO(CONTENT))
    site.files["/f.csv"] = packed.getvalue()
    download = site.download(path="philly/log", member="trace-data/log")
    seen: list[tuple[int, int | None]] = []
    path = fetch_file(download, tmp_path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    # First how much has come, then how far it has been unpacked.
    whole = len(packed.getvalue())
    assert seen.count((0, whole)) == 1
    assert seen.count((whole, whole)) >= 2
    assert seen[-1] == (whole, whole)
    assert leftovers(tmp_path) == ["log"]
    with pytest.raises(TraceError, match="no other/log in it"):
        get(site, tmp_path, site.download(path="philly/other", member="other/log"))


def test_target_folder_that_cannot_be_made_is_reported(site: Site, tmp_path: Path) -> None:
    (tmp_path / "set").write_text("in the way")
    with pytest.raises(TraceError, match="set"):
        get(site, tmp_path)


def test_mirror_replaces_the_official_site(site: Site, tmp_path: Path) -> None:
    entry = Published("x", "X", ("set/f.csv",), "CC", downloads=(Download("https://example.invalid/f", "f.csv"),))
    assert [p.read_bytes() for p in fetch(entry, tmp_path, mirror=site.address + "/")] == [CONTENT]


def test_catalogue_downloads_land_where_the_reader_looks() -> None:
    for entry in PUBLISHED:
        if entry.downloads:
            assert entry.downloads[0].path in entry.files
            assert entry.licence
        for download in entry.downloads:
            assert download.url.startswith("https://github.com/") or "githubusercontent.com/" in download.url
            if download.sha256 is not None:
                assert len(bytes.fromhex(download.sha256)) == 32
                # A branch moves on, and its files with it.
                assert re.search(r"/raw/[0-9a-f]{40}/", download.url)
