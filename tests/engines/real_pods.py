"""What a pod on real nodes needs to run this machine's programs: its image is an empty folder."""

import sys
from pathlib import Path
from typing import Any

#: Of this machine; and those in which this Python and this checkout are, wherever that may be.
_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/opt", "/root", "/home", "/tmp")


def pod_spec(nodes: int = 4) -> dict[str, Any]:
    """The beginning of a pod's spec; on the nodes of the fake kubelet it changes nothing."""
    homes = (f"/{Path(path).resolve().parts[1]}" for path in (sys.prefix, sys.base_prefix, __file__))
    shared = [folder for folder in dict.fromkeys((*_FOLDERS, *homes)) if Path(folder).exists()]
    container = {
        "name": "instance",
        "image": "localhost/host:1",
        "imagePullPolicy": "Never",
        "volumeMounts": [{"name": folder[1:], "mountPath": folder} for folder in shared],
        "env": [{"name": "GLOO_SOCKET_IFNAME", "value": "eth0"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    return {
        "containers": [container],
        "volumes": [{"name": folder[1:], "hostPath": {"path": folder}} for folder in shared],
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        # Names for the nodes' addresses: PyTorch asks for them, and waits for no answer.
        "hostAliases": [
            {"ip": f"10.77.0.{10 + number}", "hostnames": [f"n{number}"]} for number in range(1, nodes + 1)
        ],
    }
