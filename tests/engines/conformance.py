"""What every engine must do, as tests: subclass `EngineConformance` with an `engine` fixture.

Beside it `GangConformance` (`gangs.py`): whole stories with a real controller and a real DDP job; and
`FaultSchedule` (`fault_schedule.py`): random ones.

Real processes on at least two ready nodes of at least four GPUs. The file system of the tests must be visible to the
instances, at the same paths. A class attribute says how patient to be; hooks left out skip what needs them.
"""

import json
import time
from pathlib import Path

import pytest

from compass_abs.engines.protocol import (
    AfterCheckpoint,
    CheckpointMode,
    CheckpointRequest,
    EndCause,
    Engine,
    EngineRefusalError,
    NodeHealth,
    Report,
    RunId,
    RunPhase,
    RunReport,
    StaleGenerationError,
)
from tests.engines.gang_orders import GangOrders
from tests.engines.shorthands import COOPERATIVE, end_all

__all__ = ["COOPERATIVE", "EngineConformance", "end_all"]


class EngineConformance(GangOrders):
    """See the module's docstring."""

    # ---- what must hold

    def test_nodes_are_listed_with_their_gpus(self, engine: Engine) -> None:
        nodes = engine.observe().nodes
        assert len(nodes) >= 2
        assert all(node.gpus >= 4 for node in nodes)

    def test_instance_runs_with_the_environment_of_its_gang(self, engine: Engine, job: str) -> None:
        first, second = self.nodes(engine)[:2]
        show = "import json, os; print('ENV' + json.dumps(dict(os.environ)))"
        orders = self.orders(engine, job, [first, second], self.python(show), 2, environment=(("GREETING", "a b;$c"),))
        for order in orders:
            engine.start(order)
        for order in orders:
            report = self.ended(engine, order.run)
            assert report.end is not None
            assert report.end.clean, self.log(engine, order.run)
            line = next(line for line in self.log(engine, order.run).splitlines() if line.startswith("ENV"))
            environment = json.loads(line[3:])
            expected = {
                "RANK": str(order.run.number),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": order.rendezvous.address,
                "MASTER_PORT": str(order.rendezvous.port),
                "COMPASS_JOB_ID": job,
                "COMPASS_INSTANCE": str(order.run.number),
                "COMPASS_GENERATION": "1",
                "GREETING": "a b;$c",
            }
            assert {name: environment.get(name) for name in expected} == expected
            assert environment["COMPASS_CHECKPOINT_DIR"].startswith("/")
            assert environment["COMPASS_CONTROL_DIR"].startswith("/")

    def test_arguments_reach_the_program_as_they_are(self, engine: Engine, job: str) -> None:
        hostile = ["$(touch /tmp/owned)", "a b", "; rm -rf x", "'\"`|&>", "*"]
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("import sys; print(sys.argv[1:])"))
        order = self.orders(
            engine, job, self.nodes(engine)[:1], self.python("import sys; print(sys.argv[1:])", *hostile)
        )[0]
        engine.start(order)
        self.ended(engine, order.run)
        assert repr(hostile) in self.log(engine, order.run)

    @pytest.mark.parametrize("code", [0, 3])
    def test_exit_code_is_reported(self, engine: Engine, job: str, code: int) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python(f"raise SystemExit({code})"))
        engine.start(order)
        end = self.ended(engine, order.run).end
        assert end is not None
        assert (end.cause, end.code) == (EndCause.EXITED, code)

    def test_program_that_is_missing_ends_with_a_reason_in_its_log(self, engine: Engine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], ["/no/such/program"])
        engine.start(order)
        end = self.ended(engine, order.run).end
        assert end is not None
        assert not end.clean

    def test_start_repeated_starts_one_process(self, engine: Engine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("print('once')"))
        engine.start(order)
        engine.start(order)
        self.ended(engine, order.run)
        engine.start(order)
        time.sleep(0.3)
        assert self.log(engine, order.run).count("once") == 1

    def test_older_generation_is_refused(self, engine: Engine, job: str) -> None:
        nodes = self.nodes(engine)[:1]
        (newer,) = self.orders(engine, job, nodes, self.python("pass"), generation=2)
        (older,) = self.orders(engine, job, nodes, self.python("pass"), generation=1)
        engine.start(newer)
        with pytest.raises(StaleGenerationError):
            engine.start(older)
        self.ended(engine, newer.run)
        engine.forget(newer.run)
        with pytest.raises(StaleGenerationError):
            engine.start(older)

    def test_unknown_node_is_refused(self, engine: Engine, job: str) -> None:
        (order,) = self.orders(engine, job, ["no-such-node"], self.python("pass"))
        with pytest.raises(EngineRefusalError):
            engine.start(order)
        assert self.seen(engine, order.run) is None

    def test_node_without_room_refuses_or_ends_the_run(self, engine: Engine, job: str) -> None:
        node = next(node for node in engine.observe().nodes if node.health is NodeHealth.READY)
        orders = self.orders(engine, job, [node.name] * 2, self.python("import time; time.sleep(60)"), node.gpus)
        engine.start(orders[0])
        try:
            engine.start(orders[1])
        except EngineRefusalError:
            pass
        else:
            self.ended(engine, orders[1].run)
        engine.kill(orders[0].run)
        self.ended(engine, orders[0].run)

    def test_instances_of_one_node_have_different_gpus(self, engine: Engine, job: str) -> None:
        node = self.nodes(engine)[0]
        orders = self.orders(engine, job, [node, node], self.python("import time; time.sleep(60)"), 2)
        for order in orders:
            engine.start(order)
        reports = [self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING) for order in orders]
        indices = [gpu for report in reports for gpu in report.gpus]
        assert len(indices) == len(set(indices))
        for order in orders:
            engine.kill(order.run)
            self.ended(engine, order.run)

    def test_stop_lets_a_program_end_itself(self, engine: Engine, job: str) -> None:
        program = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda n, f: (print('asked', flush=True), sys.exit(0)))\n"
            "print('up', flush=True)\n"
            "time.sleep(60)"
        )
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python(program), mode=CheckpointMode.PERIODIC)
        engine.start(order)
        self.until(engine, order.run, lambda report: "up" in self.log(engine, order.run))
        engine.stop(order.run, 30.0)
        self.ended(engine, order.run)
        assert "asked" in self.log(engine, order.run)
        engine.stop(order.run, 1.0)
        engine.kill(order.run)

    def test_stop_kills_what_does_not_end_and_everything_it_started(
        self, engine: Engine, job: str, tmp_path: Path
    ) -> None:
        beat = tmp_path / "beat"
        child = f"import time\nwhile True: open({str(beat)!r}, 'w').write(str(time.time())); time.sleep(0.05)"
        program = (
            "import os, signal, subprocess, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
            "print('up', flush=True)\n"
            "time.sleep(60)"
        )
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python(program))
        engine.start(order)
        self.until(engine, order.run, lambda report: beat.exists())
        engine.stop(order.run, 0.3)
        self.ended(engine, order.run)
        last = beat.read_text()
        time.sleep(0.5)
        assert beat.read_text() == last, "a process outlived its run"

    def test_death_is_noticed_by_the_watch(self, engine: Engine, job: str) -> None:
        reports: list[tuple[float, Report]] = []
        engine.watch(lambda report: reports.append((time.monotonic(), report)))
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("import time; time.sleep(60)"))
        engine.start(order)
        self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        killed = time.monotonic()
        engine.kill(order.run)
        deadline = killed + self.patience
        found: list[float] = []
        while not found and time.monotonic() < deadline:
            found = [
                when
                for when, report in list(reports)
                if isinstance(report, RunReport) and report.run == order.run and report.phase is RunPhase.ENDED
            ]
            time.sleep(0.01)
        assert found
        assert found[0] - killed < self.notices_within

    def test_progress_is_reported(self, engine: Engine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.cooperative(20))
        engine.start(order)
        progress = self.running(engine, order.run).progress
        assert progress is not None
        assert (progress.resumed_at, progress.total) == (0, 20)
        end = self.ended(engine, order.run).end
        assert end is not None
        assert end.clean

    def test_checkpoint_is_acknowledged_and_a_held_run_trains_on_when_told(self, engine: Engine, job: str) -> None:
        orders = self.orders(engine, job, self.nodes(engine)[:2], self.cooperative(10_000))
        for order in orders:
            engine.start(order)
        for order in orders:
            self.running(engine, order.run)
        request = CheckpointRequest("r1", AfterCheckpoint.HOLD)
        for order in orders:
            engine.request_checkpoint(order.run, request)
            engine.request_checkpoint(order.run, request)
        for order in orders:
            report = self.until(
                engine, order.run, lambda report: report.acknowledgement and report.acknowledgement.request == "r1"
            )
            assert report.acknowledgement is not None
            assert Path(report.acknowledgement.path).read_text() == str(report.acknowledgement.step)
            held = report.acknowledgement.step
        time.sleep(0.3)
        report = self.until(engine, orders[1].run, lambda report: report.progress)
        assert report.progress is not None
        assert report.progress.step == held, "a held run trains no further"
        for order in orders:
            engine.resume(order.run)
            self.running(engine, order.run, held + 2)
            engine.kill(order.run)
            self.ended(engine, order.run)

    def test_request_to_a_program_that_is_still_starting_does_it_no_harm(self, engine: Engine, job: str) -> None:
        # As while torch is imported: nobody listens yet, and a signal would end it.
        program = "import time; print('imports', flush=True); time.sleep(1); print('imported', flush=True)"
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python(program))
        engine.start(order)
        self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        engine.request_checkpoint(order.run, CheckpointRequest("r1", AfterCheckpoint.HOLD))
        end = self.ended(engine, order.run).end
        assert end is not None
        assert end.clean, end
        assert self.log(engine, order.run).split() == ["imports", "imported"]

    def test_request_to_a_run_that_is_gone_is_refused(self, engine: Engine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("pass"))
        engine.start(order)
        self.ended(engine, order.run)
        with pytest.raises(EngineRefusalError):
            engine.request_checkpoint(order.run, CheckpointRequest("r1", AfterCheckpoint.HOLD))

    def test_run_is_observed_until_it_is_forgotten_and_its_log_stays(self, engine: Engine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("print('0123456789')"))
        engine.start(order)
        self.ended(engine, order.run)
        assert engine.read_log(order.run, 2, 3) == b"234"
        assert engine.read_log(order.run, -3, 100) == b"89\n"
        engine.forget(order.run)
        engine.forget(order.run)
        assert self.seen(engine, order.run) is None
        assert b"0123456789" in engine.read_log(order.run, 0, 100)

    def test_rendezvous_differs_between_generations(self, engine: Engine, job: str) -> None:
        nodes = self.nodes(engine)[:2]
        assert len({engine.rendezvous(job, generation, nodes) for generation in range(1, 6)}) == 5

    def test_unusual_job_id_is_refused(self, engine: Engine) -> None:
        for job in ("../../etc", "a/b", "", "A", "a" * 60):
            (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("pass"))
            with pytest.raises(EngineRefusalError):
                engine.start(order)
            with pytest.raises(EngineRefusalError):
                engine.read_log(RunId(job, 0, 1), 0, 10)

    def test_new_engine_finds_what_an_old_one_started(self, engine: Engine, job: str) -> None:
        orders = self.orders(engine, job, self.nodes(engine)[:2], self.cooperative(10_000))
        for order in orders:
            engine.start(order)
        for order in orders:
            self.running(engine, order.run)
        engine = self.reopen(engine)
        for order in orders:
            report = self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
            assert report.node == order.node
            engine.kill(order.run)
            self.ended(engine, order.run)
