"""Writes the two container images of the real nodes into FOLDER, without registry or engine: images.py FOLDER PAUSE

`localhost/pause:1` is the given program. `localhost/host:1` is an empty root into which pods mount the machine's /usr
and whatever else they need, by hostPath, so that they find the same programs as everything else here.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

DIRECTORIES = ("usr", "etc", "root", "opt", "home", "tmp", "proc", "sys", "dev", "lib", "lib64", "bin", "sbin", "var")


def add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    """A file."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def layer(files: dict[str, bytes], directories: tuple[str, ...]) -> bytes:
    """A tar of the image's only layer."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in directories:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, data in files.items():
            add(archive, name, data, 0o755)
    return buffer.getvalue()


def write(path: Path, tag: str, content: bytes, entry_point: str) -> None:
    """A docker archive of one layer."""
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": [entry_point],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(content).hexdigest()]},
        "history": [{}],
    }
    text = json.dumps(configuration).encode()
    name = hashlib.sha256(text).hexdigest() + ".json"
    with tarfile.open(path, "w") as archive:
        add(archive, name, text)
        add(archive, "layer.tar", content)
        add(
            archive,
            "manifest.json",
            json.dumps([{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode(),
        )


def main(folder: Path, pause: Path) -> None:
    """Both."""
    write(folder / "pause.tar", "localhost/pause:1", layer({"pause": pause.read_bytes()}, ()), "/pause")
    write(folder / "host.tar", "localhost/host:1", layer({}, DIRECTORIES), "/bin/sh")


main(Path(sys.argv[1]), Path(sys.argv[2]))
