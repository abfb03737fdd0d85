"""Official trace files, fetched: resumed where they broke off, checked where a hash is published."""

import hashlib
import http.client
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import replace
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO

from compass_abs.traces.catalog import Download, Published
from compass_abs.traces.errors import TraceError

_CHUNK = 1 << 18
_TIMEOUT = 30.0
#: A broken connection is taken up again so many times in one call; every call after that resumes too.
_ATTEMPTS = 4
_LFS_POINTER = b"version https://git-lfs"

#: (bytes here, bytes in all or None).
Progress = Callable[[int, int | None], None]


class BrokenOffError(Exception):
    """The connection ended before the file did; what came is kept."""


def fetch(entry: Published, folder: Path, mirror: str | None = None, progress: Progress | None = None) -> list[Path]:
    """The files of a trace, downloaded into the folder unless they are there; a mirror replaces the official site."""
    if not entry.downloads:
        raise TraceError(f"trace {entry.name!r} has nothing to download")
    fetched = []
    for download in entry.downloads:
        if mirror is not None:
            download = replace(download, url=f"{mirror.rstrip('/')}/{download.path}", member="")
        fetched.append(fetch_file(download, folder, progress or _silent))
    return fetched


def fetch_file(download: Download, folder: Path, progress: Progress, pause: float = 1.0) -> Path:
    """One file; waits `pause` seconds, then twice as long, before it takes a broken connection up again."""
    if not download.url.startswith(("https://", "http://")):
        raise TraceError(f"{download.url}: expected a web address that starts with https://")
    target = folder / download.path
    if target.is_file():
        # Hashes are of what is downloaded; a file taken out of an archive has none of its own.
        if not download.member:
            _check_hash(target, download, "delete it and fetch again")
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        for attempt in range(_ATTEMPTS):
            try:
                _download(download.url, partial, progress)
                break
            except BrokenOffError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise TraceError(
                        f"{download.url}: {error}; {_size(partial):,} bytes are kept, run the command again to resume"
                    ) from None
                time.sleep(pause * 2**attempt)
        _check_content(partial, download)
        _validator_file(partial).unlink(missing_ok=True)
        if download.member:
            _extract(partial, download.member, target, progress)
            partial.unlink()
        else:
            partial.replace(target)
    except OSError as error:
        raise TraceError(f"{error.filename or target}: {error.strerror or error}") from None
    return target


def _download(url: str, partial: Path, progress: Progress) -> None:
    """Adds to the partial file whatever it lacks."""
    have = _size(partial)
    validator = _read(_validator_file(partial))
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "compass-abs", "Accept-Encoding": "identity"})
        if have and validator:
            request.add_header("Range", f"bytes={have}-")
            # The rest of another version of the file would not fit what is here.
            request.add_header("If-Range", validator)
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            resumes = response.status == 206 and _starts_at(response.headers.get("Content-Range"), have)
            if response.status == 206 and not resumes:
                partial.unlink(missing_ok=True)
                raise BrokenOffError("the server sent another part than was asked for")
            length = response.headers.get("Content-Length")
            done = have if resumes else 0
            total = done + int(length) if length and length.isdecimal() else None
            _validator_file(partial).write_text(_validator(response.headers), encoding="utf-8")
            with partial.open("ab" if resumes else "wb") as out:
                _copy(response, out, done, total, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            partial.unlink(missing_ok=True)
            raise BrokenOffError("the server has fewer bytes than are here; starting over") from None
        if error.code >= 500 or error.code == 429:
            raise BrokenOffError(f"the server answered {error.code} {error.reason}") from None
        raise TraceError(f"{url}: the server answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise BrokenOffError(f"no connection ({error.reason})") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise BrokenOffError(f"the connection broke ({type(error).__name__})") from None
    except ValueError as error:
        raise TraceError(f"{url}: not a usable web address ({error})") from None


def _copy(source: http.client.HTTPResponse, out: BinaryIO, done: int, total: int | None, progress: Progress) -> None:
    progress(done, total)
    while chunk := source.read(_CHUNK):
        out.write(chunk)
        done += len(chunk)
        progress(done, total)
    if total is not None and done < total:
        raise BrokenOffError(f"the connection broke at {done:,} of {total:,} bytes")


def _validator(headers: http.client.HTTPMessage) -> str:
    """What tells this version of the file from others: a strong ETag, else the date."""
    etag = headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")


def _starts_at(content_range: str | None, have: int) -> bool:
    return content_range is not None and content_range.startswith(f"bytes {have}-")


def _check_content(partial: Path, download: Download) -> None:
    try:
        _check_hash(partial, download, "the download was deleted")
        with partial.open("rb") as stream:
            if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise TraceError(f"{download.url}: is a Git LFS pointer, not the file; fetch it with git lfs by hand")
    except TraceError:
        partial.unlink(missing_ok=True)
        _validator_file(partial).unlink(missing_ok=True)
        raise


def _check_hash(path: Path, download: Download, consequence: str) -> None:
    if download.sha256 is None:
        return
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != download.sha256:
        raise TraceError(f"{path}: SHA-256 is {found}, the published one is {download.sha256}; {consequence}")


class _Watched(FileIO):
    """An archive that says how far it has been read."""

    def __init__(self, path: Path, progress: Progress) -> None:
        super().__init__(path)
        self._progress = progress
        self._size = path.stat().st_size

    def readinto(self, buffer: Any) -> int:
        found = super().readinto(buffer) or 0
        self._progress(self.tell(), self._size)
        return found


def _extract(archive: Path, member: str, target: Path, progress: Progress) -> None:
    """Takes one file out of a tar archive; `progress` is then told how far the archive has been read."""
    unpacked = target.with_name(target.name + ".unpacking")
    try:
        with BufferedReader(_Watched(archive, progress), _CHUNK) as stored, tarfile.open(fileobj=stored) as packed:
            source = packed.extractfile(member)
            if source is None:
                raise KeyError(member)
            with unpacked.open("wb") as out:
                shutil.copyfileobj(source, out)
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        unpacked.unlink(missing_ok=True)
        raise TraceError(f"{archive}: no {member} in it ({error}); delete it and fetch again") from None
    unpacked.replace(target)


def _validator_file(partial: Path) -> Path:
    return partial.with_name(partial.name + ".validator")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _silent(done: int, total: int | None) -> None:
    """Nobody watches."""
