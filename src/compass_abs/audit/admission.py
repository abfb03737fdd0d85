"""What would start if moves were made, and the cheapest moves for it.

Jobs are taken in the order of the queue as long as GPUs last, and past those that can't be helped. For all that want
instances of one size in one place the moves are sought together, the largest size first; gangs of several sizes one
by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compass_abs.audit.observation import PendingJob, Shape
from compass_abs.audit.waiting import Pool, Verdict, confined, find_fit
from compass_abs.model import Decision, Job, Migration
from compass_abs.planner import Impossible
from compass_abs.schedulers.histogram import choose_nodes

#: Copies of one array job that are tried; beyond this many the rest of a queue says nothing new.
MOST_COPIES = 1000


@dataclass(frozen=True, slots=True)
class Step:
    """Jobs that start together, after moves (or none)."""

    #: Each gang with its nodes; those of one array bear the array's name and a number.
    gangs: tuple[tuple[Job, tuple[int, ...]], ...]
    #: Their names in the queue.
    jobs: tuple[str, ...]
    moves: tuple[Migration, ...]
    gpu_seconds: float
    #: True when no moves for these jobs together are cheaper, the steps before this one taken as they are.
    proven: bool


@dataclass(frozen=True, slots=True)
class Admissions:
    """What starts in one pool, in order."""

    steps: tuple[Step, ...] = ()
    #: Those of its jobs that would start without any move, too.
    without_moves: tuple[str, ...] = ()

    @property
    def moves(self) -> tuple[Migration, ...]:
        """Every move."""
        return tuple(move for step in self.steps for move in step.moves)

    @property
    def disturbed(self) -> tuple[str, ...]:
        """Running jobs that are paused."""
        return tuple(dict.fromkeys(move.instance.job_id for move in self.moves))

    @property
    def gpu_seconds(self) -> float:
        """GPU-seconds that they stand still in all."""
        return sum(step.gpu_seconds for step in self.steps)

    @property
    def starts(self) -> int:
        """Jobs that start."""
        return sum(len(step.jobs) for step in self.steps)

    @property
    def proven(self) -> bool:
        """Whether no moves for all these jobs cost less: so when all moves are in the first step, and the least there.

        What a later step moves, another choice in an earlier one might have spared.
        """
        return all(step.proven if number == 0 else False for number, step in enumerate(self.steps) if step.moves)


@dataclass(frozen=True, slots=True)
class _Wish:
    job: PendingJob
    name: str
    #: Pools in which it could start, the best first.
    homes: tuple[str, ...]


def in_queue_order(pending: Sequence[PendingJob]) -> list[PendingJob]:
    """Higher priority first, then earlier submission."""
    return sorted(
        pending, key=lambda job: (-job.priority, float("inf") if job.submitted is None else job.submitted, job.id)
    )


class Planner:
    """Starts jobs on the states of the pools, and keeps what it did."""

    def __init__(self, pools: Mapping[str, Pool], pause: float, most_plans: int) -> None:
        self._pools = pools
        self._pause = pause
        #: Searches for moves that are left.
        self._left = most_plans
        self._steps: dict[str, list[Step]] = {name: [] for name in pools}
        self._started: dict[str, None] = {}
        #: Jobs that were not tried because the searches were used up.
        self.untried: list[str] = []

    def admit_all(self, verdicts: Sequence[Verdict]) -> dict[str, Admissions]:
        """What starts in each pool."""
        homes = {verdict.job.id: verdict.homes for verdict in verdicts}
        wishes = [
            _Wish(job, job.id if job.copies == 1 else f"{job.id}[{copy}]", homes[job.id])
            for job in in_queue_order([verdict.job for verdict in verdicts if verdict.homes])
            for copy in range(min(job.copies, MOST_COPIES))
        ]
        fitting = self._starting_without_moves(wishes)
        # Everybody's best pool first; who finds no room there goes on to the next.
        for choice in range(max((len(wish.homes) for wish in wishes), default=0)):
            for name, pool in self._pools.items():
                mine = [w for w in wishes if choice < len(w.homes) and w.homes[choice] == name]
                self._admit_to(name, pool, [w for w in mine if w.name not in self._started])
        self.untried = [name for name in self.untried if name not in self._started]
        return {
            name: Admissions(tuple(steps), tuple(job for step in steps for job in step.jobs if job in fitting))
            for name, steps in self._steps.items()
        }

    def _starting_without_moves(self, wishes: Sequence[_Wish]) -> dict[str, None]:
        """Who would start where everything stays where it is; the pools are as before in the end."""
        fitting: dict[str, None] = {}
        for choice in range(max((len(wish.homes) for wish in wishes), default=0)):
            for name, pool in self._pools.items():
                mine = [
                    w for w in wishes if len(w.homes) > choice and w.homes[choice] == name and w.name not in fitting
                ]
                done: list[Decision] = []
                for reach, group in _groups(pool, mine):
                    with confined(pool, reach):
                        for wish in group:
                            found = _as_it_is(pool, wish)
                            done += found
                            if found:
                                fitting[wish.name] = None
                for decision in reversed(done):
                    pool.state.undo(decision)
                pool.forget()
        return fitting

    def _admit_to(self, home: str, pool: Pool, wishes: Sequence[_Wish]) -> None:
        for reach, group in _groups(pool, wishes):
            with confined(pool, reach):
                if len(group[0].job.shapes) > 1:
                    self._admit_of_several_sizes(home, pool, group[0])
                else:
                    self._admit_of_one_size(home, pool, group)
            pool.forget()

    def _admit_of_one_size(self, home: str, pool: Pool, wishes: Sequence[_Wish]) -> None:
        gpus = wishes[0].job.shapes[0].gpus
        as_it_is, after_moves = pool.state.room(gpus), 0
        fitting: list[_Wish] = []
        chosen: list[_Wish] = []
        total = 0
        if sum(w.job.shapes[0].instances for w in wishes) > as_it_is:
            after_moves = pool.most_after_allowed_moves(gpus)
            if self._left <= 0:
                after_moves = as_it_is
        for wish in wishes:
            number = wish.job.shapes[0].instances
            if total + number <= max(as_it_is, after_moves):
                chosen.append(wish)
                total += number
            elif after_moves <= as_it_is and self._left <= 0:
                self.untried.append(wish.name)
        for wish in chosen:
            if sum(w.job.shapes[0].instances for w in fitting) + wish.job.shapes[0].instances <= as_it_is:
                fitting.append(wish)
        if not chosen:
            return
        if total > as_it_is:
            self._left -= 1
        found = find_fit(pool.state, (Shape(total, gpus),), self._pause)
        if isinstance(found, Impossible):  # the search gave up: start what can start without it
            chosen, total = fitting, sum(w.job.shapes[0].instances for w in fitting)
            if not chosen:
                return
            found = find_fit(pool.state, (Shape(total, gpus),), self._pause)
            if isinstance(found, Impossible):
                return
        gangs, at = [], 0
        for wish in chosen:
            number = wish.job.shapes[0].instances
            gangs.append((self._gang(pool, home, wish.name, number, gpus), found.nodes[0][at : at + number]))
            at += number
        names = tuple(wish.name for wish in chosen)
        self._carry_out(home, pool, Step(tuple(gangs), names, found.moves, found.gpu_seconds, found.proven))

    def _admit_of_several_sizes(self, home: str, pool: Pool, wish: _Wish) -> None:
        if self._left <= 0:
            self.untried.append(wish.name)
            return
        self._left -= 1
        found = find_fit(pool.state, wish.job.shapes, self._pause)
        if isinstance(found, Impossible):
            return
        gangs = tuple(
            (self._gang(pool, home, f"{wish.name}/{gpus}", number, gpus), nodes)
            for (number, gpus), nodes in zip(wish.job.shapes, found.nodes, strict=True)
        )
        self._carry_out(home, pool, Step(gangs, (wish.name,), found.moves, found.gpu_seconds, found.proven))

    def _gang(self, pool: Pool, home: str, name: str, instances: int, gpus: int) -> Job:
        while name in pool.state.gangs:  # part of it runs already
            name += "+"
        return Job(name, instances, gpus, pool=home, movable=False)

    def _carry_out(self, home: str, pool: Pool, step: Step) -> None:
        pool.state.apply(Decision(before=step.moves))
        for gang, nodes in step.gangs:
            pool.state.place(gang, nodes)
        self._steps[home].append(step)
        self._started.update(dict.fromkeys(step.jobs))


def _groups(pool: Pool, wishes: Sequence[_Wish]) -> list[tuple[frozenset[str] | None, list[_Wish]]]:
    """Wishes that are granted together, with the nodes that they may use: in their order, as long as GPUs last."""
    left = pool.state.free_gpus
    mixed: list[_Wish] = []
    alike: dict[tuple[int, frozenset[str] | None], list[_Wish]] = {}
    for wish in wishes:
        if wish.job.total_gpus > left:
            continue
        left -= wish.job.total_gpus
        if len(wish.job.shapes) > 1:
            mixed.append(wish)
        else:
            alike.setdefault((wish.job.shapes[0].gpus, pool.reached(wish.job.reach)), []).append(wish)
    # Gangs of several sizes and confined ones are the hardest to please, so they come first.
    found = [(pool.reached(wish.job.reach), [wish]) for wish in mixed]
    by_size = sorted(alike.items(), key=lambda item: (item[0][1] is None, -item[0][0]))
    return found + [(reach, group) for (_, reach), group in by_size]


def _as_it_is(pool: Pool, wish: _Wish) -> list[Decision]:
    """Starts a gang where there is room, and says how; nothing where there isn't for all of it."""
    done: list[Decision] = []
    for instances, gpus in wish.job.shapes:
        nodes = choose_nodes(pool.state, gpus, instances, range(gpus, pool.state.capacity + 1))
        if nodes is None:
            for decision in reversed(done):
                pool.state.undo(decision)
            return []
        decision = Decision(Job(f"\0{wish.name}/{gpus}", instances, gpus, movable=False), tuple(nodes))
        pool.state.apply(decision)
        done.append(decision)
    return done
