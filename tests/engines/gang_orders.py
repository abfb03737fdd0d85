"""What every engine must do with the orders of one gang: a part of the conformance suite."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compass_abs.engines.protocol import (
    AfterCheckpoint,
    Capability,
    CheckpointRequest,
    EndCause,
    Engine,
    EngineRefusalError,
    NodeHealth,
    RunPhase,
)
from tests.engines.shorthands import Shorthands

WITNESS = Path(__file__).with_name("witness.py")


class GangOrders(Shorthands):
    """Gang start, gang refusal, moves, restarts of the engine in between, foreign jobs."""

    def test_gang_starts_on_several_nodes_and_its_ranks_meet(self, engine: Engine, job: str, tmp_path: Path) -> None:
        first, second = self.nodes(engine)[:2]
        command = [sys.executable, str(WITNESS), str(tmp_path), "20"]
        orders = self.orders(engine, job, [first, second, first, second], command, 2)
        for order in orders:
            engine.start(order)
        for order in orders:
            end = self.ended(engine, order.run).end
            assert end is not None
            assert end.clean, self.log(engine, order.run)
        assert sorted(path.name for path in tmp_path.glob(f"{job}.*")) == [f"{job}.{rank}" for rank in range(4)]

    def test_gang_of_which_an_instance_is_refused_can_be_undone_without_a_trace(self, engine: Engine, job: str) -> None:
        nodes = {node.name: node.gpus for node in engine.observe().nodes if node.health is NodeHealth.READY}
        first, second = list(nodes)[:2]
        sleep = self.python("import time; time.sleep(60)")
        (other,) = self.orders(engine, job + "x", [second], sleep, nodes[second])
        engine.start(other)
        self.until(engine, other.run, lambda report: report.phase is RunPhase.RUNNING)
        gang = self.orders(engine, job, [first, second], sleep, nodes[first])
        engine.start(gang[0])
        try:
            engine.start(gang[1])
        except EngineRefusalError:
            assert self.seen(engine, gang[1].run) is None
        else:
            self.ended(engine, gang[1].run)
        engine.kill(gang[0].run)
        self.ended(engine, gang[0].run)
        (again,) = self.orders(engine, job, [first], sleep, nodes[first], generation=2)
        engine.start(again)
        self.until(engine, again.run, lambda report: report.phase is RunPhase.RUNNING)
        for order in (again, other):
            engine.kill(order.run)
            self.ended(engine, order.run)

    def test_jobs_of_others_close_a_node_and_refuse_what_does_not_fit(self, engine: Engine, job: str) -> None:
        node = next(node for node in engine.observe().nodes if node.health is NodeHealth.READY)
        with self.occupy(engine, node.name, node.gpus - 2):
            report = self.until_node(engine, node.name, lambda report: report.health is NodeHealth.CORDONED)
            assert report.gpus == node.gpus
            assert f"{node.gpus - 2} GPUs" in report.detail
            (order,) = self.orders(engine, job, [node.name], self.python("pass"), 4)
            with pytest.raises(EngineRefusalError, match=r"free GPUs|held by|cordoned"):
                engine.start(order)
            assert self.seen(engine, order.run) is None
            elsewhere = self.nodes(engine)
            assert node.name not in elsewhere
            (other,) = self.orders(engine, job, elsewhere[:1], self.python("pass"), 4)
            engine.start(other)
            self.ended(engine, other.run)
        self.until_node(engine, node.name, lambda report: report.health is NodeHealth.READY)

    def test_gang_moves_one_instance_and_goes_on_at_its_step(self, engine: Engine, job: str) -> None:
        self._move(engine, job, lambda engine: engine)

    def test_engine_started_anew_at_every_step_of_a_move_goes_on_with_it(self, engine: Engine, job: str) -> None:
        self._move(engine, job, self.reopen)

    def _move(self, engine: Engine, job: str, next_engine: Callable[[Engine], Engine]) -> None:
        """Moves one of two instances; after each step another engine may be the one to go on."""
        first, second = self.nodes(engine)[:2]
        rejoins = Capability.REJOIN in engine.capabilities
        old = self.orders(engine, job, [first, first], self.cooperative(10_000))
        for order in old:
            engine.start(order)
        for order in old:
            self.running(engine, order.run)
        engine = next_engine(engine)
        for order in old:
            engine.request_checkpoint(order.run, CheckpointRequest("m1", AfterCheckpoint.HOLD))
        engine = next_engine(engine)
        acknowledgements = [
            self.until(engine, order.run, lambda report: report.acknowledgement).acknowledgement for order in old
        ]
        paths = [answer.path for answer in acknowledgements if answer is not None]
        for order in old[1 if rejoins else 0 :]:
            engine.stop(order.run, 10.0)
            engine = next_engine(engine)
            self.ended(engine, order.run)
        new = self.orders(engine, job, [first, second], self.cooperative(10_000), generation=2, resume_from=paths)
        if rejoins:
            engine.rejoin(new[0], old[0].run)
            engine.rejoin(new[0], old[0].run)
        else:
            engine.start(new[0])
        engine = next_engine(engine)
        engine.start(new[1])
        engine = next_engine(engine)
        for order, answer in zip(new, acknowledgements, strict=True):
            assert answer is not None
            report = self.until(
                engine,
                order.run,
                lambda report, began=answer.step: report.progress and report.progress.step > began,  # type: ignore[misc]
            )
            assert report.progress is not None
            assert report.progress.resumed_at == answer.step
            assert report.node == order.node
        if rejoins:
            end = self.ended(engine, old[0].run).end
            assert end is not None
            assert end.cause is EndCause.REJOINED
        for order in new:
            engine.kill(order.run)
            self.ended(engine, order.run)
