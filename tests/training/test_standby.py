"""The standby forks what it is asked for, tells how it ended, and serves nobody else."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compass_abs.training.standby import StandbyError, Successor, end_standby, fork_successor
from tests.training.conftest import until


@pytest.fixture
def own_standby(tmp_path: Path) -> Iterator[tuple[Path, "subprocess.Popen[bytes]"]]:
    """One with nothing preloaded, that a test may kill."""
    address = tmp_path / "standby" / "socket"
    code = "from compass_abs.training import standby; standby.PRELOAD = (); standby.main()"
    process = subprocess.Popen([sys.executable, "-c", code, str(address)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield address, process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def run(own_standby: tuple[Path, Any], tmp_path: Path) -> Callable[..., Successor]:
    """Forks a script of this text."""

    def start(text: str, *words: str, **environment: str) -> Successor:
        script = tmp_path / "script.py"
        script.write_text(text)
        return fork_successor(
            own_standby[0], [str(script), *words], environment, cwd=tmp_path, output=tmp_path / "output"
        )

    return start


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('no')", 1),
        ("raise SystemExit", 0),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
    ],
)
def test_successor_tells_how_it_ended(run: Callable[..., Successor], text: str, code: int) -> None:
    assert run(text).wait(30) == code


def test_successor_has_its_own_arguments_environment_folder_and_session(
    run: Callable[..., Successor], tmp_path: Path
) -> None:
    text = "import os, sys; print(sys.argv[1:], dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid(), __name__)"
    assert run(text, "a b", "$HOME;`x`", ONLY="this").wait(30) == 0
    expected = f"['a b', '$HOME;`x`'] {{'ONLY': 'this'}} {tmp_path} True __main__\n"
    assert (tmp_path / "output").read_text() == expected


def test_successor_that_fails_shows_its_traceback(run: Callable[..., Successor], tmp_path: Path) -> None:
    assert run("raise ValueError('boom')").wait(30) == 1
    assert "ValueError: boom" in (tmp_path / "output").read_text()


def test_death_of_a_successor_is_told_at_once(run: Callable[..., Successor]) -> None:
    process = run("import time; time.sleep(100)")
    assert process.wait(0.1) is None
    os.kill(process.pid, signal.SIGKILL)
    begin = time.monotonic()
    assert process.wait(30) == -9
    assert time.monotonic() - begin < 5


def test_successors_do_not_draw_the_same_random_numbers(run: Callable[..., Successor], tmp_path: Path) -> None:
    for _ in range(2):
        assert run("import random; print(random.random())").wait(30) == 0
    first, second = (tmp_path / "output").read_text().split()
    assert first != second


def test_death_of_the_standby_is_told_and_leaves_its_successors_alive(
    run: Callable[..., Successor], own_standby: tuple[Path, Any]
) -> None:
    process = run("import time; time.sleep(100)")
    own_standby[1].kill()
    with pytest.raises(StandbyError, match="has died"):
        process.wait(30)
    os.kill(process.pid, 0)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(StandbyError, match="start the job cold"):
        fork_successor(own_standby[0], ["x"], {})


def test_standby_on_term_ends_and_removes_its_socket(own_standby: tuple[Path, Any]) -> None:
    address, process = own_standby
    process.terminate()
    assert process.wait(10) == 0
    assert not address.exists()


def test_standby_that_somebody_else_started_is_ended_by_its_socket(own_standby: tuple[Path, Any], run: Any) -> None:
    address, process = own_standby
    successor = run("import time; time.sleep(60)")
    end_standby(address)
    assert not address.exists()
    assert process.wait(10) == 0
    os.kill(successor.pid, signal.SIGKILL)  # which would fail if it had gone along
    end_standby(address)


def test_second_standby_at_the_same_socket_refuses(own_standby: tuple[Path, Any]) -> None:
    command = [sys.executable, "-m", "compass_abs.training.standby", str(own_standby[0])]
    code = "import sys; sys.argv = sys.argv[1:]; from compass_abs.training import standby; standby.PRELOAD = ()\n"
    code += "try: standby.main()\nexcept standby.StandbyError as e: print(e); sys.exit(2)"
    second = subprocess.run([sys.executable, "-c", code, *command[2:]], capture_output=True, text=True, timeout=60)
    assert second.returncode == 2
    assert "listens at" in second.stdout
    fork_successor(own_standby[0], ["-m", "this"], {}, output=own_standby[0].with_name("out")).wait(30)


@pytest.mark.parametrize(
    "request_",
    [
        b"{\n",
        b"[]\n",
        b"{}\n",
        b'{"argv": [], "env": {}}\n',
        b'{"argv": "ls", "env": {}}\n',
        b'{"argv": ["-m"], "env": {}}\n',
        b'{"argv": ["x"], "env": {"A": 1}}\n',
        b'{"argv": ["x"], "env": {}, "cwd": 3}\n',
        b'{"argv": ["' + b"x" * (2 << 20) + b'"]}\n',
    ],
)
def test_request_that_makes_no_sense_is_refused_and_the_next_is_served(
    own_standby: tuple[Path, Any], run: Callable[..., Successor], request_: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(own_standby[0]))
        try:
            connection.sendall(request_)
            answer = connection.makefile().readline()
        except (BrokenPipeError, ConnectionResetError):
            answer = '{"error": "hung up"}'
        assert "error" in json.loads(answer)
    assert run("pass").wait(30) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_is_not_served(own_standby: tuple[Path, Any]) -> None:
    address, _ = own_standby
    for folder in (address, *address.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o777)  # so that only the credentials stand in the way
    code = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[1]); print(s.recv(1000).decode())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(address)], capture_output=True, text=True, timeout=30)
    assert "user 65534 is not served" in done.stdout, done.stderr


def test_standby_with_torch_has_opened_no_gpu(standby: Path, tmp_path: Path) -> None:
    text = "import sys; t = sys.modules['torch']; assert not t.cuda.is_initialized(); print(t.get_num_threads())"
    (tmp_path / "script.py").write_text(text)
    process = fork_successor(
        standby, [str(tmp_path / "script.py")], {"OMP_NUM_THREADS": "2"}, output=tmp_path / "output"
    )
    assert process.wait(30) == 0, (tmp_path / "output").read_text()
    assert (tmp_path / "output").read_text() == "2\n"


def test_gang_survives_the_death_of_its_standby(tmp_path: Path, own_standby: tuple[Path, Any]) -> None:
    (tmp_path / "script.py").write_text("import time, pathlib\ntime.sleep(0.3)\npathlib.Path('done').touch()")
    fork_successor(own_standby[0], [str(tmp_path / "script.py")], {}, cwd=tmp_path)
    own_standby[1].kill()
    until((tmp_path / "done").exists, "the successor")
