"""What Slurm says, in the shapes that its releases give it; and the program that runs on the nodes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compass_abs.engines import supervised_engine
from compass_abs.engines.protocol import EngineUnavailableError, NodeHealth
from compass_abs.engines.slurm.commands import SlurmCommands
from compass_abs.engines.slurm.reading import arguments, gpu_counts, number, output_pattern, read_jobs, read_nodes
from compass_abs.engines.slurm.snapshot import Snapshot, node_names, node_report

OLD_JOB = {
    "job_id": 7,
    "job_state": "COMPLETING",
    "comment": "compass:ab:job/0@1",
    "state_reason": "None",
    "exit_code": 768,
    "gres_detail": ["gpu:2(IDX:0-1)"],
    "nodes": "n2",
}
NEW_JOB = {
    "job_id": 7,
    "job_state": ["COMPLETED", "COMPLETING"],
    "comment": "compass:ab:job/0@1",
    "exit_code": {
        "status": ["ERROR"],
        "return_code": {"set": True, "infinite": False, "number": 3},
        "signal": {"id": {"set": False, "infinite": False, "number": 0}, "name": ""},
    },
    "gres_detail": ["gpu:a100:2(IDX:0-1)"],
    "nodes": "n2",
}


@pytest.mark.parametrize("value", [OLD_JOB, NEW_JOB])
def test_job_of_old_and_new_releases_reads_the_same(value: dict[str, object]) -> None:
    (job,) = read_jobs({"jobs": [value, "nonsense"]})
    assert (job.id, job.comment, job.code, job.signal, job.gpus) == (7, "compass:ab:job/0@1", 3, 0, (2,))
    assert job.active
    assert not job.ended


#: As 22.05.8, 24.11.5 and 26.05.5 tell of `sbatch -o '%x-%a.out' --array=1-2 -J "my job" u.sh a 'b c'` in /home/ann.
OLD_SCRIPT = {"command": "/home/ann/u.sh a b c", "time_limit": 10, "standard_output": "%x-%a.out"}
BARE_SCRIPT = {
    "command": "/home/ann/u.sh",
    "time_limit": {"set": True, "infinite": False, "number": 10},
    "standard_output": "/home/ann/my job-4294967294.out",
}
NEW_SCRIPT = {
    **BARE_SCRIPT,
    "submit_line": "sbatch -o %x-%a.out --array=1-2 -J my job u.sh a b c",
    "standard_output": "%x-%a.out",
}


@pytest.mark.parametrize(
    ("value", "words", "output"),
    [
        (OLD_SCRIPT, ["a", "b", "c"], "%x-%a.out"),
        (BARE_SCRIPT, None, "/home/ann/my job-%a.out"),
        (NEW_SCRIPT, ["a", "b", "c"], "%x-%a.out"),
        ({**OLD_SCRIPT, "command": "/home/ann/u.sh"}, [], "%x-%a.out"),
        ({**NEW_SCRIPT, "submit_line": "sbatch ./u.sh"}, [], "%x-%a.out"),
        ({**NEW_SCRIPT, "command": "", "submit_line": "sbatch --wrap true"}, [], "%x-%a.out"),
    ],
)
def test_arguments_and_output_of_a_script_are_found_wherever_a_release_has_them(
    value: dict[str, object], words: list[str] | None, output: str
) -> None:
    (job,) = read_jobs({"jobs": [{"job_id": 1, "array_task_string": "1-2", **value}]})
    assert (arguments(job), output_pattern(job)) == (words, output)


@pytest.mark.parametrize(
    "printed",
    ['{"jobs": null}', '{"warnings": []}', "[]", "slurm_load_jobs: hello", '{"jobs": [], "errors": [{"error": "x"}]}'],
)
def test_list_of_jobs_that_is_not_there_is_not_taken_for_an_empty_one(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, said in (("sbatch", ""), ("squeue", printed), ("scontrol", printed)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    commands = SlurmCommands()
    for question in (commands.jobs, commands.nodes):
        with pytest.raises(EngineUnavailableError):
            question()


def test_job_that_is_over_has_ended() -> None:
    for state in ("COMPLETED", ["CANCELLED"], "NODE_FAIL", ["OUT_OF_MEMORY"]):
        (job,) = read_jobs({"jobs": [{"job_id": {"set": True, "number": 3}, "job_state": state}]})
        assert job.ended
        assert not job.active
        assert job.id == 3


@pytest.mark.parametrize(
    ("state", "flags", "health"),
    [
        ("idle", [], NodeHealth.READY),
        ("mixed", [], NodeHealth.READY),
        (["MIXED", "PLANNED"], [], NodeHealth.READY),
        (["IDLE", "DRAIN"], [], NodeHealth.CORDONED),
        ("allocated", ["DRAIN"], NodeHealth.CORDONED),
        ("allocated", ["NOT_RESPONDING"], NodeHealth.CORDONED),
        (["DOWN", "NOT_RESPONDING"], [], NodeHealth.LOST),
        ("down", ["DRAIN"], NodeHealth.LOST),
        ("down*", [], NodeHealth.LOST),
    ],
)
def test_node_state_tells_whether_it_can_be_used(state: object, flags: list[str], health: NodeHealth) -> None:
    value = {"name": "n1", "gres": "gpu:a100:8(S:0-1)", "state": state, "state_flags": flags, "partitions": ["compass"]}
    (node,) = read_nodes({"nodes": [value]})
    report = node_report(node, {})
    assert (report.health, report.gpus, report.pool) == (health, 8, "a100")


@pytest.mark.parametrize(
    ("gres", "counts"),
    [
        ("gpu:8", {"": 8}),
        ("gpu:a100:4(S:0-1),gpu:V100:2(S:1)", {"a100": 4, "v100": 2}),
        ("gpu:2(IDX:0,3)", {"": 2}),
        ("gres:gpu:3", {"": 3}),
        ("craynetwork:4,gpu:1", {"": 1}),
        ("", {}),
        ("N/A", {}),
    ],
)
def test_gpus_are_counted_by_model(gres: str, counts: dict[str, int]) -> None:
    assert gpu_counts(gres) == counts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n2", ["n2"]),
        ("n[1-3,07],gpu4", ["n1", "n2", "n3", "n07", "gpu4"]),
        ("a[08-10]b", ["a08b", "a09b", "a10b"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
    ],
)
def test_host_lists_are_expanded(text: str, names: list[str]) -> None:
    assert node_names(text) == names


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), ({"set": True, "number": 4}, 4), ({"set": False, "number": 4}, 9), (None, 9), ("x", 9), (True, 9)],
)
def test_number_is_read_whatever_wraps_it(value: object, expected: int) -> None:
    assert number(value, 9) == expected


def test_job_number_used_again_is_not_taken_for_ours() -> None:
    from compass_abs.engines.protocol import RunId

    snapshot = Snapshot(tuple(read_jobs({"jobs": [OLD_JOB]})), ())
    assert snapshot.job(7, "ab", RunId("job", 0, 2)) is not None
    assert snapshot.job(7, "ab", RunId("job", 1, 1)) is None
    assert snapshot.job(7, "cd", RunId("job", 0, 1)) is None


def test_instance_that_slurm_starts_twice_runs_once(tmp_path: Path) -> None:
    order = {
        "command": [sys.executable, "-c", "print('ran')"],
        "environment": {},
        "workdir": "/",
        "limits": {},
        **{f"{name}_file": str(tmp_path / f"{name}.json") for name in ("claim", "process", "stop", "end")},
    }
    path = tmp_path / "order.json"
    path.write_text(json.dumps(order))
    program = [sys.executable, "-I", "-S", str(supervised_engine._PROGRAM), str(path)]
    first = subprocess.run(program, capture_output=True, text=True, check=False)
    second = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout) == (0, "ran\n")
    assert (second.returncode, second.stdout) == (75, "")
    assert json.loads((tmp_path / "end.json").read_text())["code"] == 0
