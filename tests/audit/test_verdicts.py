"""Every verdict and every price on small clusters, against trying everything."""

import random
from itertools import product
from typing import Any

import pytest

from compass_abs.audit import audit
from compass_abs.audit.audit import AuditOptions
from compass_abs.audit.reading import observe_documents
from compass_abs.planner.explain import Answer
from tests.audit.kubectl import listed, node, pod

NODES, CAPACITY, PAUSE = 3, 4, 8.0
#: A gang: GPUs of an instance, the node of each, and "declared", "silent" or "fixed".
Gang = tuple[int, tuple[int, ...], str]


def cluster(chance: random.Random) -> list[Gang]:
    free = [CAPACITY] * NODES
    found: list[Gang] = []
    for _ in range(chance.randrange(2, 7)):
        gpus, wanted = chance.choice((1, 1, 2, 2, 3)), chance.choice((1, 1, 1, 2))
        nodes = []
        for _ in range(wanted):
            fitting = [k for k in range(NODES) if free[k] >= gpus]
            if fitting:
                nodes.append(chance.choice(fitting))
                free[nodes[-1]] -= gpus
        if nodes and sum(len(g[1]) for g in found) + len(nodes) <= 6:
            found.append((gpus, tuple(nodes), chance.choice(("declared", "declared", "silent", "fixed"))))
        else:
            for k in nodes:
                free[k] += gpus
    return found


def case(seed: int) -> tuple[list[Gang], int, int]:
    """Gangs, and the instances and their GPUs that somebody waits for: mostly with enough GPUs, but scattered ones."""
    chance = random.Random(seed)
    while True:
        gangs = cluster(chance)
        instances, gpus = chance.choice(((1, 4), (1, 4), (2, 4), (1, 3), (2, 2), (2, 3), (1, 2)))
        free = CAPACITY * NODES - sum(size * len(nodes) for size, nodes, _ in gangs)
        if seed % 8 == 0 or (instances * gpus <= free and room(gangs, gpus) < instances):
            return gangs, instances, gpus


def room(gangs: list[Gang], gpus: int) -> int:
    """Instances of a size that fit; -1 where a node is overfull."""
    free = [CAPACITY] * NODES
    for size, nodes, _ in gangs:
        for k in nodes:
            free[k] -= size
    return -1 if min(free) < 0 else sum(f // gpus for f in free)


def cheapest(gangs: list[Gang], movable: tuple[str, ...], instances: int, gpus: int) -> float | None:
    """GPU-seconds of the cheapest rearrangement that makes room, by trying all; None where there is none."""
    best: float | None = None
    places = [product(range(NODES), repeat=len(nodes)) if how in movable else [nodes] for _, nodes, how in gangs]
    for arranged in product(*places):
        after = [(size, to, how) for (size, _, how), to in zip(gangs, arranged, strict=True)]
        if room(after, gpus) >= instances:
            cost = sum(
                size * len(nodes) * PAUSE for (size, nodes, _), to in zip(gangs, arranged, strict=True) if nodes != to
            )
            best = cost if best is None else min(best, cost)
    return best


def document(gangs: list[Gang], instances: int, gpus: int) -> dict[str, Any]:
    objects = [node(f"n{k}", gpus=CAPACITY) for k in range(NODES)]
    for number, (size, nodes, how) in enumerate(gangs):
        for k, host in enumerate(nodes):
            more = {"owner": ("DaemonSet", "ds")} if how == "fixed" else {}
            labels = {"job-name": f"g{number}"}
            objects.append(pod(f"g{number}-{k}", size, f"n{host}", labels=labels, movable=how == "declared", **more))
    return listed(*objects, *(pod(f"want-{k}", gpus, labels={"job-name": "want"}) for k in range(instances)))


@pytest.mark.parametrize("seed", range(120))
def test_verdict_and_price_are_those_of_trying_everything(seed: int) -> None:
    gangs, instances, gpus = case(seed)
    found = audit(observe_documents([("k", document(gangs, instances, gpus))], "k"), AuditOptions(pause=PAUSE))
    (verdict,) = found.verdicts
    free = CAPACITY * NODES - sum(size * len(nodes) for size, nodes, _ in gangs)
    declared = cheapest(gangs, ("declared",), instances, gpus)
    assumed = cheapest(gangs, ("declared", "silent"), instances, gpus)
    if instances * gpus > free:
        assert verdict.answer is Answer.CAPACITY
    elif declared == 0:
        assert verdict.answer is Answer.FITS
    elif declared is not None:
        assert (verdict.answer, verdict.undeclared) == (Answer.FRAGMENTATION, ())
        assert verdict.fit is not None
        assert verdict.fit.proven
        assert verdict.fit.gpu_seconds == declared
        (pool,) = found.pools
        assert (pool.admissions.starts, pool.admissions.gpu_seconds) == (1, declared)
    elif assumed is not None:
        assert verdict.answer is Answer.FRAGMENTATION
        assert verdict.undeclared
        assert not verdict.homes
    elif cheapest(gangs, ("declared", "silent", "fixed"), instances, gpus) is not None:
        assert verdict.answer is Answer.POLICY
    else:
        assert verdict.answer is Answer.CAPACITY


def test_all_kinds_of_verdicts_come_up() -> None:
    """The test above isn't about one of them alone."""
    seen: dict[Answer, int] = {}
    for seed in range(120):
        gangs, instances, gpus = case(seed)
        found = audit(observe_documents([("k", document(gangs, instances, gpus))], "k"), AuditOptions(most_plans=0))
        answer = found.verdicts[0].answer
        seen[answer] = seen.get(answer, 0) + 1
    assert set(seen) == set(Answer)
    assert min(seen.values()) >= 3, seen
