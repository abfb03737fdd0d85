"""A small comparison that was really replayed: best fit, and a packer that moves instances to admit the head."""

from random import Random

from compass_abs.model import ClusterState, Instance, Job
from compass_abs.reporting import (
    ClusterEvent,
    Comparison,
    Dropped,
    Ended,
    JobView,
    Moved,
    RunView,
    Started,
    StepSeries,
)

SIZES = (1, 1, 1, 1, 2, 4, 8, 8)


def random_jobs(seed: int, count: int, busiest: int) -> list[Job]:
    """Gangs that arrive over a day, a few of them wide."""
    random, jobs = Random(seed), []
    for k in range(count):
        gpus = random.choice(SIZES)
        instances = random.randint(1, busiest) if gpus == 8 and random.random() < 0.3 else 1
        duration = random.lognormvariate(8, 1)
        jobs.append(Job(f"job-{k}", instances, gpus, round(random.uniform(0, 86_400), 1), round(duration, 1)))
    return sorted(jobs, key=lambda job: (job.submitted, job.id))


class Replay:
    """First in, first out on best fit; `moving` lets it empty the emptiest nodes when the head is blocked."""

    def __init__(self, jobs: list[Job], nodes: int, *, moving: bool) -> None:
        self.jobs, self.moving = jobs, moving
        self.state = ClusterState(nodes)
        self.number = {job.id: j for j, job in enumerate(jobs)}
        self.ends: list[tuple[float, str]] = []
        self.events: list[ClusterEvent] = []
        self.waiting: list[Job] = []
        self.done: dict[str, float] = {}
        self.series: dict[str, tuple[list[float], list[float]]] = {
            key: ([], []) for key in ("n_sif", "utilisation", "empty_nodes", "queue")
        }
        self.moves = 0
        self.blocked = 0.0

    def run(self) -> RunView:
        pending, now, stuck = list(self.jobs), 0.0, False
        while pending or self.ends or self.waiting:
            arrival = pending[0].submitted if pending else float("inf")
            end = min(self.ends)[0] if self.ends else float("inf")
            before, now = now, min(arrival, end)
            self.blocked += (now - before) * stuck
            if end <= arrival:
                self._finish(now)
            else:
                self.waiting.append(pending.pop(0))
            while self.waiting and self._admit(self.waiting[0], now):
                self.waiting.pop(0)
            stuck = bool(self.waiting) and self.state.free_gpus >= self.waiting[0].total_gpus
            self._record(now)
        total = sum(self.done[job.id] - job.submitted for job in self.jobs)
        return RunView(
            "compass-jit" if self.moving else "gfs",
            {
                "ajct": total / len(self.jobs),
                "afr": 0.01 if self.moving else 0.2,
                "agu": 0.95 if self.moving else 0.85,
                "migrations_per_job": self.moves / len(self.jobs),
                "blocked_fragmentation": self.blocked,
            },
            {key: StepSeries(times, values) for key, (times, values) in self.series.items()},
            self.events,
        )

    def _finish(self, now: float) -> None:
        end = min(self.ends)
        self.ends.remove(end)
        self.state.release(end[1])
        self.done[end[1]] = now
        self.events.append(Ended(now, self.number[end[1]]))

    def _admit(self, job: Job, now: float) -> bool:
        if self.moving and self.state.room(job.gpus) < job.instances:
            self._consolidate(job, now)
        if self.state.room(job.gpus) < job.instances:
            return False
        nodes: list[int] = []
        free = [node.free for node in self.state.nodes]
        for _ in range(job.instances):
            node = min((f, n) for n, f in enumerate(free) if f >= job.gpus)[1]
            free[node] -= job.gpus
            nodes.append(node)
        self.state.place(job, nodes)
        self.ends.append((now + (job.duration or 0.0), job.id))
        self.events.append(Started(now, self.number[job.id], tuple(nodes)))
        return True

    def _consolidate(self, job: Job, now: float) -> None:
        """Moves instances off the emptiest node that can be emptied, until the job fits or nothing helps."""
        while self.state.free_gpus >= job.total_gpus and self.state.room(job.gpus) < job.instances:
            for source in sorted((n for n in self.state.nodes if n.contents and n.free), key=lambda n: -n.free):
                plan, free = [], {n.index: n.free for n in self.state.nodes if n is not source and n.contents}
                for instance, gpus in source.contents.items():
                    fits = sorted((f, n) for n, f in free.items() if f >= gpus)
                    if not fits:
                        break
                    plan.append((instance, fits[0][1]))
                    free[fits[0][1]] -= gpus
                if len(plan) == len(source.contents):
                    self._move(plan, now)
                    break
            else:
                return

    def _move(self, plan: list[tuple[Instance, int]], now: float) -> None:
        for instance, target in plan:
            self.state.move(instance, target)
            self.moves += 1
            self.events.append(Moved(now, self.number[instance.job_id], instance.number, target))

    def _record(self, now: float) -> None:
        state = self.state
        used = sum(g * n for g, n in enumerate(state.demand))
        values = {
            "n_sif": max(0, state.partial_nodes - 1),
            "utilisation": used / (8 * len(state.nodes)),
            "empty_nodes": state.empty_nodes,
            "queue": len(self.waiting),
        }
        for key, value in values.items():
            self.series[key][0].append(now)
            self.series[key][1].append(value)


def sample_comparison(
    seed: int = 1, jobs: int = 260, nodes: int = 24, title: str = "A day of gangs", busiest: int = 8
) -> Comparison:
    """Two schedulers on the same day, with everything that a report can show."""
    list_of_jobs = random_jobs(seed, jobs, busiest)
    runs = [Replay(list_of_jobs, nodes, moving=False).run(), Replay(list_of_jobs, nodes, moving=True).run()]
    bound = RunView("bound", {"ajct": runs[1].summary["ajct"] * 0.999})
    return Comparison(
        title,
        [JobView(job.id, job.instances, job.gpus, job.submitted) for job in list_of_jobs],
        nodes,
        (*runs, bound),
        subtitle="24 nodes of 8 GPUs",
        settings={"queue": "first in, first out", "pause of a migration": "8 s", "seed": str(seed)},
        dropped=(Dropped("no GPU asked for", 1234), Dropped("instances of different sizes", 5)),
        notes=("These jobs are synthetic: no cluster ever ran them.",),
        epoch=1_592_352_000.0,
    )
