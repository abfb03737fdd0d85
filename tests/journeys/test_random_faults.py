"""Random mishaps at random times: no job lost, none doubled, every invariant after every tick, and all ends well."""

from random import Random

import pytest

from compass_abs.controller.book import JobPhase
from compass_abs.controller.migration import Patience
from compass_abs.controller.reconcile import Conduct, Config
from compass_abs.model import NodeStatus
from tests.journeys.world import World

SCHEDULERS = ("best-fit", "compass-abs", "compass-jit", "compass-abs-residual", "first-fit")
SIZES = ((1, 1), (1, 1), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (1, 8), (2, 1), (2, 4), (2, 8), (3, 3))
MISHAPS = (
    "refuse_start",
    "unavailable",
    "answer_lost",
    "disk_full",
    "silent_checkpoint",
    "stubborn",
    "die_on_start",
    "die_on_request",
    "die_after_ack",
)
PATIENCE = Patience(checkpoint=4, stop=1.5, wait=8, start=6, first_step=8)


class Troublemaker:
    """A random story."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        pick = self.random
        config = Config(
            scheduler=pick.choice(SCHEDULERS),
            queue=pick.choice(["fifo", "fifo", "backfill"]),
            conduct=Conduct.EXECUTE if pick.random() < 0.9 else Conduct.RECOMMEND,
            patience=PATIENCE,
            settling=1.0,
            migrations_at_once=pick.choice([1, 2, 8]),
        )
        self.world = World(config, nodes=pick.randint(2, 5), rejoin=pick.random() < 0.5, steps=pick.randint(8, 30))
        self.nodes = list(self.world.engine.capacity)
        self.jobs: list[str] = []
        self.cancelled: set[str] = set()

    def submit(self) -> None:
        pick = self.random
        instances, gpus = pick.choice(SIZES)
        if instances * gpus > 8 * len(self.nodes):
            return
        mode = pick.choice(["session"] * 6 + ["signal", "periodic"])
        retries = pick.choice([0, 3])
        movable = pick.random() < 0.8
        job = self.world.submit(
            instances, gpus, checkpoint={"mode": mode, "grace": 1}, retries=retries, movable=movable
        )
        self.jobs.append(job)

    def trouble(self) -> None:
        """One thing that goes wrong, or that somebody wants."""
        pick, world = self.random, self.world
        engine = world.engine
        kind = pick.choices(
            ["submit", "mishap", "lose", "back", "drain", "up", "cordon", "crash", "kill", "cancel", "jump", "pause"],
            [10, 8, 2, 5, 3, 5, 1, 4, 4, 1, 1, 1],
        )[0]
        node = pick.choice(self.nodes)
        match kind:
            case "submit":
                self.submit()
            case "mishap":
                name = pick.choice(MISHAPS)
                setattr(engine.script, name, getattr(engine.script, name) + pick.randint(1, 3))
            case "lose":
                engine.lose(node)
            case "back":
                engine.bring_back(node, rebooted=pick.random() < 0.5)
            case "drain":
                world.command("set_node", node, NodeStatus.DRAINING)
            case "up":
                world.command("set_node", node, NodeStatus.UP)
            case "cordon":
                world.command("set_node", node, NodeStatus.CORDONED)
            case "crash":
                alive = [run for run, process in engine.processes.items() if process.alive]
                if alive:
                    engine.crash(pick.choice(alive))
            case "kill":
                world.fuse.blow_at = world.fuse.passed + pick.randint(1, 12)
            case "cancel" if self.jobs:
                job = pick.choice(self.jobs)
                world.command("cancel", job)
                self.cancelled.add(job)
            case "jump":
                world.clock.jump(pick.choice([-7200.0, -60.0, 60.0, 86400.0]))
            case "pause":
                world.command(pick.choice(["pause_migrations", "resume_migrations"]))
            case _:
                pass

    def play(self) -> None:
        for _ in range(40):
            if self.random.random() < 0.5:
                self.trouble()
            self.meanwhile()
            self.world.run(self.random.choice([0.25, 0.5, 1.0]))
        self.calm()

    def meanwhile(self) -> None:
        """What else happens."""

    def calm(self) -> None:
        """Nothing goes wrong any more: everything has to end, and end well."""
        world, engine = self.world, self.world.engine
        world.fuse.blow_at = None
        for name in MISHAPS:
            setattr(engine.script, name, 0)
        for node in self.nodes:
            engine.bring_back(node)
            world.command("set_node", node, NodeStatus.UP)
        world.command("resume_migrations")
        world.finish()
        for job in self.jobs:
            entry = world.controller.book.jobs[job]
            if entry.phase is JobPhase.FAILED:
                assert job in engine.died, f"{job} failed by no doing of its own: {world.story()}"
                assert entry.retries >= entry.spec.retries, world.story()
            elif entry.phase is JobPhase.CANCELLED:
                assert job in self.cancelled, world.story()
            else:
                assert job in engine.finished, f"{job} counts as done before its last step: {world.story()}"
        world.run(40)
        assert not engine.processes, f"left over: {list(engine.processes)}: {world.story()}"
        for node in self.nodes:
            assert world.controller.occupancy.free(node) == 8, f"{node}: {world.controller.occupancy.on(node)}"


class RestlessTroublemaker(Troublemaker):
    """Nodes are emptied all the time, jobs save by themselves, and checkpoints go bad on the disk.

    Drawn from numbers of its own: the stories that a plain one tells of a seed stay what they were.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.more = Random(-seed - 1)
        self.world.engine.save_every = self.more.choice([0, 3, 5])

    def meanwhile(self) -> None:
        pick, engine = self.more, self.world.engine
        if pick.random() < 0.2:
            status = pick.choice([NodeStatus.DRAINING, NodeStatus.UP, NodeStatus.UP])
            self.world.command("set_node", pick.choice(self.nodes), status)
        if pick.random() < 0.1:
            self.submit()
        if pick.random() < 0.1:
            engine.script.corrupt.update(list(engine.checkpoints)[-pick.randint(1, 4) :])


@pytest.mark.parametrize("block", range(10))
def test_random_fault_schedules_lose_and_double_nothing(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        try:
            RestlessTroublemaker(seed).play()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", [2050, 8726])
def test_fault_schedules_that_once_went_wrong_end_well(seed: int) -> None:
    Troublemaker(seed).play()


@pytest.mark.parametrize("seed", [3340, 3697])
def test_restless_fault_schedules_that_once_went_wrong_end_well(seed: int) -> None:
    RestlessTroublemaker(seed).play()


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(100))
def test_ten_thousand_random_fault_schedules_lose_and_double_nothing(block: int) -> None:
    for seed in range(1000 + block * 100, 1000 + block * 100 + 100):
        try:
            RestlessTroublemaker(seed).play()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
