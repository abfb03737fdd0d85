"""Documents with fields that are gone or nonsense: read as far as they go, or refused in a line; never a crash."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from compass_abs.audit import audit
from compass_abs.audit.page import render_page
from compass_abs.audit.reading import observe_documents
from compass_abs.model import CompassError
from tests.audit.kubectl import fragmented, listed, node, pod
from tests.audit.test_slurm_reading import group, job_of_24_11, new_node, old_job, old_node

NONSENSE: list[Any] = [
    None, [], {}, "", "x", -1, 0, 1e300, True, ["x"], {"a": 1}, 10**30, [None], [[]], [{}],
    {"set": True, "number": "x"}, "gpu:a:b:c", "n[1-", "\x00", "🙂",
]  # fmt: skip

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PICKY = {
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["1"]}]}]}
        },
        "podAffinity": {_REQUIRED: [{"topologyKey": "x"}]},
    },
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
    "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}],
    "schedulingGates": [{"name": "gate"}],
    "resourceClaims": [{}],
}
KUBERNETES = [
    listed(
        *fragmented(),
        node("tainted", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}]),
        pod("picky", 4, spec=_PICKY, owner=("Job", "j"), annotations={"compass-abs/pause-seconds": "3"}),
    )
]
SLURM = [
    {"nodes": [old_node("n1", 4), new_node("n2", 4), new_node("n3", 0)], "sinfo": [group(["n[4-5]"], 4, "gpu")]},
    {
        "jobs": [
            old_job(1, "n1", 4, comment="compass-abs/movable=true"),
            job_of_24_11(2, "n2", 4),
            job_of_24_11(3, "", 8),
            old_job(20, "", 8, array_job_id=20, array_task_string="0-9%2", features="a&b", excluded_nodes="n[1-2]"),
        ]
    },
]
OWN = [
    {
        "nodes": [{"node": "a", "capacity": 8, "instances": [{"gpus": 4, "job": "x"}]}],
        "pending": [{"job": "w", "gpus": 8}],
        "time": 5,
    }
]


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        yield from places(value, (*path, key))


def spoilt(documents: list[Any], chance: random.Random) -> list[Any]:
    found = copy.deepcopy(documents)
    for _ in range(chance.choice((1, 1, 2, 4))):
        path = chance.choice([*places(found)] or [()])
        if not path:
            break
        there = found
        for key in path[:-1]:
            there = there[key]
        if chance.random() < 0.25:
            del there[path[-1]]
        else:
            there[path[-1]] = copy.deepcopy(chance.choice(NONSENSE))
    return found


@pytest.mark.parametrize("kind", ["kubernetes", "slurm", "own"])
def test_spoilt_document_is_read_or_refused_in_a_line(kind: str) -> None:
    whole = {"kubernetes": KUBERNETES, "slurm": SLURM, "own": OWN}[kind]
    read = 0
    refused: list[str] = []
    for seed in range(120):
        documents = spoilt(whole, random.Random(seed))
        try:
            found = audit(observe_documents([("source", document) for document in documents], "source"))
        except CompassError as error:
            refused.append(str(error))
        else:
            json.dumps(found.as_dict(), allow_nan=False)
            if read % 20 == 0:  # a page takes as long as thirty documents
                assert "<html" in render_page(found)
            read += 1
    assert [message for message in refused if not message.startswith("source") or "\n" in message] == []
    assert read > 5
    assert len(refused) > 5
