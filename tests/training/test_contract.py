"""Messages between engine and process: what is written is read, and nonsense is named."""

import json
import os
from pathlib import Path

import pytest

from compass_abs.training import contract
from compass_abs.training.contract import (
    Acknowledgement,
    ContractError,
    Directive,
    DirectiveKind,
    ProcessState,
    Progress,
    Request,
    RequestKind,
    Worker,
)


def test_messages_come_back_as_they_were_written(tmp_path: Path) -> None:
    request = Request("r", RequestKind.REFORM, movers=(1, 2))
    directive = Directive("r", DirectiveKind.REJOIN, 4, "/c", "127.0.0.1", 1234)
    answer = Acknowledgement("r", 1, 3, 17, "/p", "ab", stays=True, phases={"seen": 1.5}, time=2.0)
    progress = Progress(1, 3, 17, 2.0, ProcessState.RUNNING, skipped=("a",), loss=0.5)
    contract.post_request(tmp_path, request)
    contract.post_directive(tmp_path, 1, directive)
    contract.acknowledge(tmp_path, answer)
    contract.report(tmp_path, progress)
    assert contract.read_request(tmp_path) == request
    assert contract.read_directive(tmp_path, 1, "r") == directive
    assert contract.read_directive(tmp_path, 1, "another") is None
    assert contract.read_acknowledgement(tmp_path, 1) == answer
    assert contract.read_progress(tmp_path, 1) == progress
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ack-1.json",
        "directive-1.json",
        "progress-1.json",
        "request.json",
    ]


def test_missing_messages_are_none(tmp_path: Path) -> None:
    assert contract.read_request(tmp_path) is None
    assert contract.read_acknowledgement(tmp_path, 0) is None
    assert contract.read_progress(tmp_path / "missing", 0) is None


def test_fields_of_a_newer_writer_are_passed_over(tmp_path: Path) -> None:
    contract.report(tmp_path, Progress(0, 1, 2, 3.0, ProcessState.HELD))
    path = tmp_path / "progress-0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "blue"}))
    found = contract.read_progress(tmp_path, 0)
    assert found is not None
    assert found.state is ProcessState.HELD


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"request":"r","rank":"0","generation":1,"step":2}', "x" * (2 << 20)]
)
def test_nonsense_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "ack-0.json").write_text(text)
    with pytest.raises(ContractError, match=r"ack-0\.json"):
        contract.read_acknowledgement(tmp_path, 0)


def test_failed_write_leaves_the_old_message_and_no_leftovers(tmp_path: Path) -> None:
    (tmp_path / "request.json").mkdir()
    with pytest.raises(OSError, match=r"request\.json"):
        contract.post_request(tmp_path, Request("r", RequestKind.STOP))
    assert os.listdir(tmp_path) == ["request.json"]  # noqa: PTH208 - hidden files too


def test_worker_from_environment_reads_every_variable() -> None:
    worker = Worker.from_environment(
        {
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "NODE_RANK": "9",
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "2345",
            "COMPASS_JOB_ID": "j",
            "COMPASS_INSTANCE": "2",
            "COMPASS_GENERATION": "7",
            "COMPASS_CONTROL_DIR": "/c",
            "COMPASS_CHECKPOINT_DIR": "/k",
            "COMPASS_RESUME_FROM": "/k/x.json",
            "COMPASS_HOLD": "1",
        }
    )
    expected = Worker(3, 4, 1, 2, 7, "j", Path("/c"), Path("/k"), "/k/x.json", "10.0.0.1", 2345, hold=True)
    assert worker == expected


def test_worker_without_environment_is_alone_and_without_an_engine() -> None:
    worker = Worker.from_environment({})
    assert (worker.rank, worker.world_size, worker.control_dir, worker.hold) == (0, 1, None, False)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "x"}, "RANK is 'x'"),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2 and WORLD_SIZE 2"),
        ({"COMPASS_GENERATION": "1.5"}, "COMPASS_GENERATION is '1.5'"),
        ({"MASTER_PORT": "²"}, "MASTER_PORT is '²'"),
    ],
)
def test_worker_from_nonsense_names_variable_and_value(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ContractError, match=message.replace("²", ".")):
        Worker.from_environment(environment)
