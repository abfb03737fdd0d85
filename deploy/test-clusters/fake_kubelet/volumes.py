"""A pod's volumes at their places, in a mount namespace of the container's process (root only)."""

import base64
import os
from pathlib import Path

from .container import MissingError, Sources, at_path, optional

#: The token that every pod gets without asking; mounting it would cost each pod a namespace.
UNASKED = ("default", "/var/run/secrets/kubernetes.io/serviceaccount")
MOUNT = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 128; shift 2; done; shift; exec "$@"'


def mounted(command: list[str], pod: dict, container: dict, folder: Path, sources: Sources) -> list[str]:
    """The command, and before it what brings the container's volumes to their places."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    pairs: list[str] = []
    for mount in container.get("volumeMounts") or ():
        target = Path(mount["mountPath"])
        if (pod["spec"].get("serviceAccountName", "default"), str(target)) == UNASKED:
            continue
        source = place(volumes[mount["name"]], pod, folder, sources) / mount.get("subPath", "")
        if source != target:
            make_point(source, target, folder)
            pairs += [str(source), str(target)]
    if not pairs:
        return command
    if os.geteuid() != 0:
        raise MissingError("only root's fake kubelet can mount volumes elsewhere than at their own path")
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh", *pairs, "--", *command]


def make_point(source: Path, target: Path, folder: Path) -> None:
    """Something to mount on. It stays until the cluster goes: k8s-down.sh removes what is listed, where it is empty."""
    if target.exists():
        return
    missing = [parent for parent in (target, *target.parents) if not parent.exists()]
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    with (folder.parent.parent / "made").open("a") as made:
        made.writelines(f"{path}\n" for path in missing)


def place(volume: dict, pod: dict, folder: Path, sources: Sources) -> Path:
    """Where the volume's content is on this machine."""
    if host := volume.get("hostPath"):
        if host.get("type") == "DirectoryOrCreate":
            Path(host["path"]).mkdir(parents=True, exist_ok=True)
        if not Path(host["path"]).exists():
            raise MissingError(f"hostPath {host['path']} of volume {volume['name']} doesn't exist")
        return Path(host["path"])
    if claim := volume.get("persistentVolumeClaim"):
        return Path(sources("persistentvolumeclaims", claim["claimName"])["path"])
    here = folder / "volumes" / volume["name"]
    here.mkdir(parents=True, exist_ok=True)
    for name, text in content(volume, pod, sources).items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    return here


def content(volume: dict, pod: dict, sources: Sources) -> dict[str, str]:
    """The files of a volume that is made from objects; none for emptyDir."""
    if projected := volume.get("projected"):
        found: dict[str, str] = {}
        for source in projected.get("sources") or ():
            found |= content(source, pod, sources)
        return found
    for kind, key, name in (("configmaps", "configMap", "name"), ("secrets", "secret", "secretName")):
        if reference := volume.get(key):
            data = optional(sources, kind, {**reference, "name": reference.get(name) or reference.get("name")})
            wanted = reference.get("items")
            return {item["path"]: data[item["key"]] for item in wanted if item["key"] in data} if wanted else data
    if downward := volume.get("downwardAPI"):
        return {item["path"]: at_path(pod, item["fieldRef"]["fieldPath"]) for item in downward.get("items") or ()}
    if "emptyDir" in volume:
        return {}
    kind = next((key for key in volume if key != "name"), "nothing")
    raise MissingError(f"the fake kubelet has no volumes of kind {kind}")


def decoded(data: dict[str, str]) -> dict[str, str]:
    """A Secret's data as text."""
    return {name: base64.b64decode(value).decode(errors="surrogateescape") for name, value in data.items()}
