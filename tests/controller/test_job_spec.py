"""Job files: what is accepted, and what mistakes are told."""

import contextlib
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.controller.job_file import JobSpecError
from compass_abs.controller.job_spec import LARGEST_SPEC, JobSpec, job_schema, parse_job

FULL = """\
name: gpt2 full
instances: 4
gpus_per_instance: 2
command: [python, -m, train, --name, "a b"]
env: {EPOCHS: 3, GREETING: "$(x)"}
workdir: /data
priority: 5
movable: false
checkpoint: {mode: signal, signal: USR2, grace: 1m30s, dir: /ckpt, timeout: 5m}
limits: {memory: 4GiB, open_files: 1024, processes: 100, file_size: 10G, cpus: 1.5}
max_duration: 2d
expected_duration: 90
retries: 2
labels: {team: vision}
"""


def test_full_job_file_is_understood() -> None:
    job = parse_job(FULL)
    workload = job.to_workload()
    assert workload.command == ("python", "-m", "train", "--name", "a b")
    assert workload.environment == (("EPOCHS", "3"), ("GREETING", "$(x)"))
    assert (job.checkpoint.grace, job.checkpoint.timeout, job.max_duration) == (90.0, 300.0, 172800.0)
    assert (workload.limits.memory_bytes, workload.limits.file_bytes) == (4 << 30, 10_000_000_000)
    assert JobSpec.from_record(json.loads(json.dumps(job.to_record()))) == job
    jsonschema.validate(yaml.safe_load(FULL), job_schema())


def test_command_as_text_is_split_into_words_without_a_shell() -> None:
    job = parse_job("name: a\ncommand: python train.py --name 'a b' $HOME; rm x\n")
    assert job.command == ("python", "train.py", "--name", "a b", "$HOME;", "rm", "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\n", "line 1: field 'command' is missing"),
        ("name: a\ncommand: [x]\ngpus: 3\n", "line 3: there is no field 'gpus'; did you mean 'gpus_per_instance'"),
        ("name: a\ncommand: [x]\n\ninstances: 0\n", "line 4: instances is 0"),
        ("name: a\ncommand: [x]\ngpus_per_instance: true\n", "line 3: gpus_per_instance is True"),
        ("name: a\ncommand: [x]\ncheckpoint:\n  grace: soon\n", "line 4: checkpoint.grace: 'soon' is no duration"),
        ("name: a\ncommand: [x]\ncheckpoint:\n  mod: signal\n", "line 4: there is no field 'checkpoint.mod'; did you"),
        ("name: a\ncommand: [x]\nenv:\n  RANK: 1\n", "RANK is set by the engine"),
        ("name: a\ncommand: [x]\nenv:\n  'A B': 1\n", "'A B' is no name"),
        ("name: a\ncommand: [x]\nworkdir: ../x\n", "line 3: workdir: '../x' is not an absolute path"),
        ("name: a\ncommand: [x]\nworkdir: /a/../../etc\n", "without '..'"),
        ("name: a\ncommand: []\n", "line 2: command is []"),
        ("name: a\ncommand: 'x \"y'\n", "can't be split"),
        ("name: [\n", "line 2"),
        ("- a\n", "expected fields"),
        ("", "expected fields"),
        ("name: a\ncommand: [x]\nlimits: {memory: lots}\n", "'lots' is no size"),
        ("name: a\ncommand: [x]\nmax_duration: .inf\n", "max_duration"),
        ("name: a\ncommand: [x]\nname: b\n", "line 3: field 'name' is there a second time"),
        ("name: a\ncommand: [x]\nenv:\n  A: 1\n  A: 2\n", "line 5: field 'A' is there a second time"),
        ("name: a\ncommand: &c [*c]\n", "line 2: an alias stands for something that it is a part of"),
    ],
)
def test_mistake_is_told_with_line_and_field(text: str, message: str) -> None:
    with pytest.raises(JobSpecError) as caught:
        parse_job(text, "job.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("job.yaml")
    assert "\n" not in str(caught.value)


def test_small_file_of_many_aliases_is_refused_at_once() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 30)]
    with pytest.raises(JobSpecError, match=r"line 5: .*more than 20000 values"):
        parse_job("\n".join([*rows, "name: *a29", "command: [x]"]))


def test_value_far_too_long_is_shown_in_part() -> None:
    with pytest.raises(JobSpecError) as caught:
        parse_job(f"name: a\ncommand: [x]\npriority: {'9' * 3000}\nlabels: [{'x, ' * 9000}]\n")
    assert len(str(caught.value)) < 500


def test_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(JobSpecError, match="bytes at most"):
        parse_job("name: a\ncommand: [x]\n#" + "x" * LARGEST_SPEC)


@given(st.text(max_size=200))
def test_any_text_is_a_job_or_a_job_spec_error(text: str) -> None:
    with contextlib.suppress(JobSpecError):
        parse_job(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=5), x),
    )
)
def test_any_values_in_a_field_are_a_job_or_a_job_spec_error(value: object) -> None:
    from compass_abs.controller.job_spec import check_job

    for field in ("command", "env", "checkpoint", "limits", "instances", "max_duration", "labels", "name"):
        with contextlib.suppress(JobSpecError):
            check_job({"name": "a", "command": ["x"], field: value})


def of_the_documentation() -> str:
    page = (Path(__file__).parents[2] / "docs" / "run-it-live.md").read_text("utf-8")
    return page.split("```yaml\n")[1].split("```")[0]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (of_the_documentation(), True),
        ("name: a\ncommand: train it\n", True),
        ("name: a\n", False),
        ("name: a\ncommand: []\n", False),
        ("name: a\ncommand: [x]\ncomand: [x]\n", False),
        ("name: a\ncommand: [x]\ninstances: two\n", False),
        ("name: a\ncommand: [x]\ngpus_per_instance: 40\n", False),
        ("name: a\ncommand: [x]\nmax_duration: -3\n", False),
        ("name: a\ncommand: [x]\ncheckpoint: {mode: never}\n", False),
        ("name: a\ncommand: [x]\nlimits: {memory: [1]}\n", False),
    ],
)
def test_editors_and_the_controller_agree_on_a_job_file(text: str, good: bool) -> None:
    schema = job_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(yaml.safe_load(text)) is good
    if good:
        parse_job(text)
    else:
        with pytest.raises(JobSpecError):
            parse_job(text)
