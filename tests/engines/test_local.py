"""The local engine: what every engine must do, and what only it can."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from compass_abs.engines.local import LocalEngine
from compass_abs.engines.protocol import EndCause, Engine, EngineRefusalError, Limits, NodeHealth, RunId, RunPhase
from tests.engines.conformance import EngineConformance, end_all
from tests.engines.gangs import GangConformance, undisturbed

__all__ = ["undisturbed"]


class TestLocalEngine(EngineConformance):
    notices_within = 0.5

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        self._root = tmp_path / "engine"
        self._engines = [LocalEngine(self._root, nodes=2, gpus=4, real_gpus=())]
        yield self._engines[0]
        end_all(self._engines[-1])

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(LocalEngine(self._root, nodes=2, gpus=4, real_gpus=()))
        return self._engines[-1]

    def test_exit_code_is_known_even_if_nobody_was_there(self, engine: Engine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("import time; time.sleep(.5); exit(7)"))
        engine.start(order)
        self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        engine.close()
        time.sleep(0.8)
        end = self.ended(self.reopen(engine), order.run).end
        assert end is not None
        assert (end.cause, end.code) == (EndCause.EXITED, 7)

    def test_killed_supervisor_takes_its_instance_with_it(self, engine: LocalEngine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("import time; time.sleep(60)"))
        engine.start(order)
        self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        run = engine._runs[order.run]
        assert run.supervisor is not None
        assert run.process is not None
        os.kill(run.supervisor.pid, signal.SIGKILL)
        end = self.ended(engine, order.run).end
        assert end is not None
        assert end.cause is EndCause.UNKNOWN
        for _ in range(100):
            if not Path(f"/proc/{run.process.pid}").exists():
                break
            time.sleep(0.02)
        assert not Path(f"/proc/{run.process.pid}").exists()

    def test_killed_node_takes_its_runs_and_refuses_new_ones_until_it_is_back(
        self, engine: LocalEngine, job: str
    ) -> None:
        first, second = self.nodes(engine)
        orders = self.orders(engine, job, [first, second], self.python("import time; time.sleep(60)"))
        for order in orders:
            engine.start(order)
        engine.kill_node(first)
        end = self.ended(engine, orders[0].run).end
        assert end is not None
        assert end.cause is EndCause.NODE_LOST
        report = self.seen(engine, orders[1].run)
        assert report is not None
        assert report.phase is not RunPhase.ENDED
        other = self.orders(engine, job + "x", [first], self.python("pass"))[0]
        with pytest.raises(EngineRefusalError, match="lost"):
            engine.start(other)
        engine = self.reopen(engine)  # type: ignore[assignment]
        assert {node.name: node.health for node in engine.observe().nodes}[first] is NodeHealth.LOST
        engine.restore_node(first)
        engine.start(other)
        self.ended(engine, other.run)

    @pytest.mark.parametrize("reopened", [False, True])
    @pytest.mark.parametrize("seconds", [0.0, 0.02, 0.3])
    def test_killed_node_takes_an_instance_that_is_just_starting(
        self, engine: LocalEngine, job: str, seconds: float, reopened: bool, tmp_path: Path
    ) -> None:
        """Also when it is forgotten, or the engine ends, before anybody could know its process."""
        mark = tmp_path / "mark"
        program = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python(program))
        engine.start(order)
        time.sleep(seconds)
        engine.kill_node(self.nodes(engine)[0])
        if reopened:
            engine = self.reopen(engine)  # type: ignore[assignment]
        engine.forget(order.run)
        time.sleep(0.8)
        pid = mark.read_text() if mark.exists() else ""
        assert not pid or not Path(f"/proc/{pid}").exists()

    def test_limit_on_files_is_kept(self, engine: Engine, job: str) -> None:
        program = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        nodes = self.nodes(engine)[:1]
        (order,) = self.orders(engine, job, nodes, self.python(program), limits=Limits(open_files=64))
        engine.start(order)
        self.ended(engine, order.run)
        assert self.log(engine, order.run).strip() == "64"

    def test_limit_on_cores_and_memory_is_kept(self, engine: Engine, job: str) -> None:
        program = "import os, resource; print(len(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_AS)[0])"
        nodes, limits = self.nodes(engine)[:1], Limits(cpus=0.5, memory_bytes=1 << 33)
        (order,) = self.orders(engine, job, nodes, self.python(program), limits=limits)
        engine.start(order)
        self.ended(engine, order.run)
        assert self.log(engine, order.run).split() == ["1", str(1 << 33)]

    def test_secrets_of_the_controller_do_not_reach_an_instance(
        self, engine: Engine, job: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COMPASS_TOKEN", "hush")
        monkeypatch.setenv("AWS_SECRET", "hush")
        nodes = self.nodes(engine)[:1]
        (order,) = self.orders(engine, job, nodes, self.python("import os; print(sorted(os.environ.items()))"))
        engine.start(order)
        self.ended(engine, order.run)
        assert "hush" not in self.log(engine, order.run)

    def test_real_gpus_are_shared_among_slots(self, tmp_path: Path, job: str) -> None:
        engine = LocalEngine(tmp_path / "shared", nodes=2, gpus=4, real_gpus=(0, 1))
        (order,) = self.orders(
            engine, job, ["n0"], self.python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"), 4
        )
        engine.start(order)
        self.ended(engine, order.run)
        assert self.log(engine, order.run).strip() == "0,1"
        engine.close()

    def test_process_number_used_again_is_not_taken_for_ours(self, engine: LocalEngine, job: str) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("import time; time.sleep(60)"))
        engine.start(order)
        self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        run = engine._runs[RunId(job, 0, 1)]
        assert run.process is not None
        stranger = run.process._replace(started=run.process.started - 1)
        from compass_abs.engines.local import processes

        processes.kill_group(stranger)
        time.sleep(0.2)
        report = self.seen(engine, order.run)
        assert report is not None
        assert report.phase is RunPhase.RUNNING


@pytest.mark.slow
class TestWarmLocalEngine(TestLocalEngine):
    """The same, started by forks of standby processes wherever that applies."""

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        from compass_abs.engines.local import Warmth

        self._root = tmp_path / "engine"
        self._engines = [LocalEngine(self._root, nodes=2, gpus=4, real_gpus=(), warmth=Warmth.STANDBY)]
        standbys = self._engines[0]._standbys
        assert standbys is not None
        deadline = time.monotonic() + 60
        while not all(standbys.ready(node) for node in ("n0", "n1")) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield self._engines[0]
        end_all(self._engines[-1])
        self._engines[0].close()


@pytest.mark.engine
class TestLocalGangs(GangConformance):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        self._root = tmp_path / "engine"
        self._engines = [self._open()]
        yield self._engines[0]
        end_all(self._engines[-1])

    def _open(self) -> LocalEngine:
        return LocalEngine(self._root, nodes=4, gpus=4, real_gpus=())

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(self._open())
        return self._engines[-1]

    def serving(self) -> Sequence[str]:
        return ["local", str(self._root), "4", "4"]

    def lose_node(self, engine: LocalEngine, node: str) -> None:  # type: ignore[override]
        engine.kill_node(node)


@pytest.mark.slow
def test_standbys_of_an_engine_that_was_killed_are_used_and_ended_by_the_next_one(tmp_path: Path) -> None:
    from compass_abs.engines.local.warm import Standbys

    (tmp_path / "nodes").mkdir()
    killed = Standbys(tmp_path, ["n0"])
    deadline = time.monotonic() + 60
    while not killed.ready("n0") and time.monotonic() < deadline:
        time.sleep(0.1)
    following = Standbys(tmp_path, ["n0"])
    assert following.ready("n0")
    following.close()
    assert not following.ready("n0")
    assert killed._own["n0"].wait(10) == 0
