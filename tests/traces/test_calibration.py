"""Calibration: a model fitted to a trace generates traces like it."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from compass_abs.traces import TraceError, read_trace
from compass_abs.traces.calibration import calibrate, model_as_json, model_from_json
from compass_abs.traces.composition import instance_shares
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.trace import DAY, Trace
from compass_abs.traces.workloads import WORKLOADS, workload


@pytest.fixture(scope="module")
def original() -> Trace:
    return synthesize(replace(workload("venus"), jobs_per_day=800.0), 30, 9)


def test_model_of_a_trace_generates_its_shares_hours_and_gpu_time(original: Trace) -> None:
    copy = synthesize(calibrate(original), 30, 1)
    assert list(instance_shares(copy.jobs).values()) == pytest.approx(
        list(instance_shares(original.jobs).values()), abs=0.01
    )

    def gpu_time(trace: Trace) -> float:
        return math.fsum(job.total_gpus * (job.duration or 0) for job in trace.jobs)

    assert gpu_time(copy) / len(copy.jobs) == pytest.approx(gpu_time(original) / len(original.jobs), rel=0.1)
    hours = [Counter(int(j.submitted % DAY // 21_600) for j in t.jobs) for t in (original, copy)]
    for quarter in range(4):
        assert hours[1][quarter] / len(copy.jobs) == pytest.approx(hours[0][quarter] / len(original.jobs), abs=0.05)


def test_calibration_finds_the_batches_that_a_trace_was_made_with() -> None:
    for batch in (1.0, 4.0):
        model = replace(workload("venus").with_gangs(0.0), batch=batch, batch_gap=1.0, day_spread=0.0)
        assert calibrate(synthesize(model, 60, 3)).batch == pytest.approx(batch, rel=0.2)


def test_calibration_leaves_the_thin_ends_of_a_recording_out(original: Trace) -> None:
    lonely = replace(original.jobs[0], id="lonely", submitted=40 * DAY)
    assert calibrate(replace(original, jobs=(*original.jobs, lonely))).jobs_per_day == calibrate(original).jobs_per_day


def test_calibration_keeps_a_cut_as_a_cut(original: Trace) -> None:
    jobs = tuple(replace(job, duration=min(job.duration or 1.0, 5_000.0)) for job in original.jobs)
    copy = synthesize(calibrate(replace(original, jobs=jobs)), 30, 2)
    share = [sum(job.duration == 5_000.0 for job in t) / len(t) for t in (jobs, copy.jobs)]
    assert share[1] == pytest.approx(share[0], abs=0.01)
    assert max(job.duration or 0 for job in copy.jobs) == 5_000.0


def test_calibration_to_a_handful_of_jobs_is_refused() -> None:
    with pytest.raises(TraceError, match="a model needs 200"):
        calibrate(read_trace("phys-mix"))


@pytest.mark.parametrize("name", WORKLOADS)
def test_model_survives_its_json(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(model_as_json(workload(name)), encoding="utf-8")
    assert model_from_json(path) == workload(name)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"hourly": 3}', "nul", '{"hourly": [1], "shapes": [], "durations": []}', "[" * 100_000]
)
def test_json_that_is_no_model_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"model\.json: no workload model"):
        model_from_json(path)
    with pytest.raises(TraceError, match="No such file"):
        model_from_json(tmp_path / "none.json")
