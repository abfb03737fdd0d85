"""The trace's demands become programs that train as long as the trace says."""

import pytest

from compass_abs.model import CompassError, Job
from compass_abs.training.phys_mix import FAMILIES, PACE, tasks
from compass_abs.training.workloads import WORKLOADS
from compass_abs.training.workloads.__main__ import parser


def trace(seed: int = 1) -> list[Job]:
    from compass_abs.traces.synthesis import synthesize
    from compass_abs.traces.workloads import workload

    return list(synthesize(workload("phys-mix"), seed=seed).jobs)


def test_tasks_keep_arrivals_and_demands_of_the_trace_and_fit_four_servers() -> None:
    jobs = trace()
    made = list(tasks(jobs, seed=1))
    assert [(t.job.id, t.job.instances, t.job.gpus, t.job.submitted) for t in made] == [
        (j.id, j.instances, j.gpus, j.submitted) for j in jobs
    ]
    assert all(t.job.gpus <= 8 and t.job.total_gpus <= 32 for t in made)


def test_tasks_run_programs_of_their_family_and_together_all_six() -> None:
    made = list(tasks(trace(), seed=1))
    assert all(t.workload in FAMILIES[t.job.id.partition("-")[0]] for t in made)
    assert {t.workload for t in made} == set(WORKLOADS)


def test_tasks_take_as_long_as_the_trace_says_at_the_given_speed() -> None:
    jobs = trace()
    for task, job in zip(tasks(jobs, speed=10.0), jobs, strict=True):
        assert job.duration is not None
        assert task.job.submitted == pytest.approx(job.submitted / 10)
        assert task.steps * task.pace == pytest.approx(job.duration / 10, abs=PACE) or task.steps == 5


def test_tasks_of_a_measured_program_are_not_paced() -> None:
    (task,) = tasks([Job("llm-1", 1, 8, 0.0, 300.0)], size="full", seconds_per_step=0.25)
    assert (task.workload, task.steps, task.pace) == ("gpt2", 1200, 0.0)
    assert "--pace" not in task.command


def test_same_seed_gives_the_same_tasks_and_another_seed_others() -> None:
    jobs = trace()
    assert list(tasks(jobs, seed=3)) == list(tasks(jobs, seed=3))
    assert list(tasks(jobs, seed=3)) != list(tasks(jobs, seed=4))


def test_command_is_understood_by_the_workloads_program() -> None:
    for task in tasks(trace()[:20], speed=100):
        arguments = parser().parse_args(list(task.command[3:]))
        assert (arguments.workload, arguments.steps, arguments.size) == (task.workload, task.steps, task.size)


def test_spec_has_what_a_job_file_needs() -> None:
    (task,) = tasks([Job("cv-1", 2, 4, 5.0, 60.0)])
    assert task.spec() == {
        "name": "cv-1",
        "instances": 2,
        "gpus_per_instance": 4,
        "command": list(task.command),
        "movable": True,
        "expected_duration": 60.0,
    }


def test_spec_is_a_valid_job_file() -> None:
    from compass_abs.controller.job_spec import JobSpec

    for task in tasks(trace()):
        spec = JobSpec.model_validate(task.spec())
        assert (spec.instances, spec.gpus_per_instance, spec.command) == (
            task.job.instances,
            task.job.gpus,
            task.command,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "size is 'huge'"),
        ({"speed": 0.0}, "speed is 0.0"),
        ({"seconds_per_step": -1.0}, "seconds_per_step -1.0"),
    ],
)
def test_mistake_in_the_options_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(CompassError, match=message):
        list(tasks(trace()[:1], **options))  # type: ignore[arg-type]


def test_job_without_a_duration_is_refused() -> None:
    with pytest.raises(CompassError, match="has no duration"):
        list(tasks([Job("cv-1", 1, 1)]))
