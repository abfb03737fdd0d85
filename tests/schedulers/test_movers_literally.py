"""KAI's consolidation and the threshold defragmenter against slow transcriptions of their descriptions."""

from random import Random

from compass_abs.model import ClusterState, Instance, Job, NodeStatus, check_state
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.kai import KaiConsolidation
from compass_abs.schedulers.threshold import ThresholdDefragmenter
from tests.schedulers.random_states import SIZES

STATES = 2000
Where = dict[Instance, int]


def random_gangs(draw: Random, nodes: int, fill: float) -> ClusterState:
    """Gangs of one to three instances on random nodes, of several ages and priorities, some pinned, a node cordoned."""
    state = ClusterState(nodes)
    for k in range(20 * nodes):
        gpus, count = draw.choice(SIZES), draw.choice((1, 1, 1, 2, 3))
        free = {node.index: node.free for node in state.nodes}
        chosen: list[int] = []
        for _ in range(count):
            fitting = [index for index, f in free.items() if f >= gpus]
            if not fitting:
                break
            chosen.append(draw.choice(fitting))
            free[chosen[-1]] -= gpus
        if len(chosen) == count:
            job = Job(
                f"j{k:03d}",
                count,
                gpus,
                float(draw.randint(0, 9)),
                priority=draw.choice((0, 0, 1)),
                movable=draw.random() > 0.15,
            )
            state.place(job, chosen)
        if state.free_gpus <= (1 - fill) * 8 * nodes:
            break
    if draw.random() < 0.2:
        state.set_status(f"n{draw.randrange(nodes)}", NodeStatus.CORDONED)
    return state


def placed(state: ClusterState) -> Where:
    return {p.instance: p.node for p in state.placements()}


# ---- KAI


def best_fit(free: dict[int, int], gpus: int, count: int) -> list[int] | None:
    """Nodes for a gang by best fit, taken from `free`; None, and nothing taken, where it doesn't fit."""
    left, chosen = dict(free), []
    for _ in range(count):
        fitting = [(f, n) for n, f in left.items() if f >= gpus]
        if not fitting:
            return None
        node = min(fitting)[1]
        left[node] -= gpus
        chosen.append(node)
    free.update(left)
    return chosen


def as_before(free: dict[int, int], gpus: int, nodes: list[int]) -> bool:
    """Takes these very nodes from `free`, if they still have the room."""
    left = dict(free)
    for node in nodes:
        left[node] -= gpus
    if min(left.values()) < 0:
        return False
    free.update(left)
    return True


def literal_consolidation(state: ClusterState, job: Job, limit: int = 16) -> Where | None:
    """Where everything is with the job started, evictions made one by one from lists; None where it has to wait."""
    up = [node.index for node in state.nodes if node.status is NodeStatus.UP]
    free = {n: state.nodes[n].free for n in up}
    straight = best_fit(free, job.gpus, job.instances)
    if straight is not None:
        return placed(state) | {Instance(job.id, k): n for k, n in enumerate(straight)}
    if state.free_gpus < job.total_gpus:
        return None
    victims = [g.job for g in state.gangs.values() if g.job.movable and all(n in up for n in g.nodes)]
    victims.sort(key=lambda other: (other.priority, -other.submitted, other.id))
    for count in range(1, min(limit, len(victims)) + 1):
        evicted = victims[:count]
        free = {n: state.nodes[n].free for n in up}
        for other in evicted:
            for n in state.gangs[other.id].nodes:
                free[n] += other.gpus
        found = {}
        chosen = best_fit(free, job.gpus, job.instances)
        if chosen is None:
            continue
        found[job.id] = chosen
        for other in reversed(evicted):
            own = state.gangs[other.id].nodes
            again = list(own) if as_before(free, other.gpus, own) else best_fit(free, other.gpus, other.instances)
            if again is None:
                break
            found[other.id] = again
        if len(found) == count + 1:
            return placed(state) | {Instance(name, k): n for name, nodes in found.items() for k, n in enumerate(nodes)}
    return None


def test_kai_on_random_clusters_evicts_whom_the_description_evicts() -> None:
    draw = Random(1)
    evictions = refusals = 0
    for _ in range(STATES):
        state = random_gangs(draw, draw.randint(3, 8), draw.uniform(0.6, 0.95))
        job = Job("new", draw.choice((1, 1, 2)), draw.choice((4, 6, 8, 8)))
        expected = literal_consolidation(state, job)
        decision = KaiConsolidation(state).admit(job, Situation())
        check_state(state)
        assert decision.admitted == (expected is not None)
        if expected is None:
            refusals += 1
        else:
            assert placed(state) == expected
            evictions += bool(decision.before)
    assert evictions > 150
    assert refusals > 150


# ---- the threshold defragmenter


def literal_round(state: ClusterState, most: int) -> Where:
    """Where everything is after a first round with these many moves in flight, on lists of contents."""
    contents = [dict(node.contents) for node in state.nodes]
    up = [node.index for node in state.nodes if node.status is NodeStatus.UP]
    moved: dict[str, None] = {}

    def used(n: int) -> int:
        return sum(contents[n].values())

    def next_move() -> tuple[Instance, int, int] | None:
        for source in sorted((n for n in up if 0 < used(n) < 4), key=lambda n: (used(n), n)):
            for instance, gpus in sorted(contents[source].items(), key=lambda entry: (-entry[1], entry[0])):
                if not state.gangs[instance.job_id].job.movable:
                    continue
                fuller = [n for n in up if n != source and used(n) >= used(source) and 8 - used(n) >= gpus]
                if fuller:
                    return instance, source, min(fuller, key=lambda n: (8 - used(n), n))
        return None

    for _ in range(most):
        idle = sum(8 - used(n) for n in up)
        on_partial = sum(8 - used(n) for n in up if used(n))
        move = next_move() if idle and on_partial / idle > 0.2 else None
        if move is None:
            break
        instance, source, target = move
        contents[target][instance] = contents[source].pop(instance)
        moved[instance.job_id] = None
    return {instance: n for n, held in enumerate(contents) for instance in held}


def test_threshold_round_on_random_clusters_moves_what_the_description_moves() -> None:
    draw = Random(2)
    moved = idle = 0
    for _ in range(STATES):
        state = random_gangs(draw, draw.randint(2, 10), draw.uniform(0.1, 0.8))
        most = draw.choice((1, 3, 3, 6))
        expected = literal_round(state, most)
        decision = ThresholdDefragmenter(state, moves=most).round(Situation())
        assert placed(state) == expected
        moved += bool(decision.migrations)
        idle += not decision.migrations
    assert moved > 500
    assert idle > 200
