"""Generated traces: deterministic, labelled, and with the properties that the model and its knobs ask for."""

import hashlib
import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shlex import split

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.traces import DAY, TraceError, cluster_size, day
from compass_abs.traces.catalog import SAMPLES
from compass_abs.traces.composition import SizeClass, class_of, instance_shares, wcc_coverage
from compass_abs.traces.reading import read_trace
from compass_abs.traces.synthesis import Durations, Shape, WorkloadModel, synthesize
from compass_abs.traces.workloads import WORKLOADS, workload
from compass_abs.traces.writing import write_trace

FINGERPRINT = """
import hashlib, sys
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload
print(hashlib.sha256(repr(synthesize(workload(sys.argv[1]), 1, 3).jobs).encode()).hexdigest())
"""


def simple(**changes: object) -> WorkloadModel:
    model = WorkloadModel(
        name="m",
        calibrated_to="nothing",
        jobs_per_day=400.0,
        day_spread=0.0,
        hourly=(1.0,) * 24,
        shapes=(Shape(1, 1, 6.0), Shape(1, 4, 2.0), Shape(1, 3, 1.0), Shape(1, 8, 3.0), Shape(4, 8, 1.0)),
        durations=(Durations(10**9, ((0.0, 1.0), (0.5, 100.0), (1.0, 10_000.0))),),
    )
    return replace(model, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WORKLOADS)
def test_shipped_model_is_deterministic_across_processes_and_hash_seeds(name: str) -> None:
    here = hashlib.sha256(repr(synthesize(workload(name), 1, 3).jobs).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    there = subprocess.run(
        [sys.executable, "-c", FINGERPRINT, name], capture_output=True, text=True, check=True, env=environment
    )
    assert there.stdout.strip() == here


@pytest.mark.parametrize("name", WORKLOADS)
def test_synthetic_trace_is_labelled_sorted_and_sound(name: str) -> None:
    trace = synthesize(workload(name), 2, 1)
    assert trace.synthetic
    assert trace.notes[0].startswith("synthetic, seed 1: ")
    times = [job.submitted for job in trace.jobs]
    assert times == sorted(times)
    assert times[-1] < 2 * DAY
    assert all(time.is_integer() and (job.duration or 0) >= 1 for time, job in zip(times, trace.jobs, strict=True))
    assert len({job.id for job in trace.jobs}) == len(trace.jobs)


def test_seeds_give_different_traces_of_the_same_mix() -> None:
    first, second = synthesize(simple(), 1, 1), synthesize(simple(), 1, 2)
    assert first.jobs != second.jobs
    assert instance_shares(first.jobs) == instance_shares(second.jobs)


@pytest.mark.parametrize(
    ("name", "days", "shares", "tolerance"),
    [
        ("venus", 40, (0.3768, 0.0944, 0.0044, 0.5244), 0.005),
        ("gfs", 10, (0.6416, 0.0607, 0.0005, 0.2973), 0.002),
    ],
)
def test_calibrated_model_has_the_shares_of_table_1(
    name: str, days: int, shares: tuple[float, ...], tolerance: float
) -> None:
    found = instance_shares(synthesize(workload(name), days, 5).jobs).values()
    assert list(found) == pytest.approx(list(shares), abs=tolerance)


@pytest.mark.parametrize(
    ("name", "shares"),
    [("venus-day-92", (0.73, 0.06, 0.21)), ("gfs-day-58", (0.57, 0.04, 0.39)), ("gfs-day-26", (0.43, 0.09, 0.48))],
)
def test_day_model_has_the_shares_of_table_2(name: str, shares: tuple[float, ...]) -> None:
    for seed in range(3):
        found = instance_shares(synthesize(workload(name), 1, seed).jobs)
        middle = found[SizeClass.FRIENDLY] + found[SizeClass.UNFRIENDLY]
        assert (found[SizeClass.ONE], middle, found[SizeClass.WHOLE]) == pytest.approx(shares, abs=0.005)


def test_gfs_days_have_the_scale_and_the_gangs_of_the_case_study() -> None:
    trace = synthesize(workload("gfs"), 12, 2)
    sizes = sorted(cluster_size(day(trace, n).jobs, 0.90) for n in trace.days())
    assert sum(170 <= n <= 340 for n in sizes) >= 8
    per_day = [sum(job.instances > 30 and job.gpus == 8 for job in day(trace, n).jobs) for n in trace.days()]
    assert min(per_day) >= 1
    assert all(wcc_coverage(day(trace, n).jobs) == 1.0 for n in trace.days())


def test_phys_mix_spans_its_families_on_four_nodes() -> None:
    trace = synthesize(workload("phys-mix"), 1, 1)
    families = {job.id.split("-")[0] for job in trace.jobs}
    assert families == {"cv", "nlp", "llm", "rec", "multimodal"}
    assert all(job.total_gpus <= 32 for job in trace.jobs)
    assert trace.jobs[-1].submitted < 4 * 3600


# ---- knobs

MIXES = st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4).map(lambda x: [y / math.fsum(x) for y in x])


@given(MIXES)
def test_mix_knob_sets_the_expected_shares_exactly(mix: list[float]) -> None:
    shapes = simple().with_mix(mix).shapes
    whole = math.fsum(s.weight * s.instances for s in shapes)
    for kind, share in zip(SizeClass, mix, strict=True):
        found = math.fsum(s.weight * s.instances for s in shapes if class_of(s.gpus) is kind) / whole
        assert found == pytest.approx(share)


@given(MIXES, st.integers(0, 100))
def test_mix_knob_reaches_the_generated_jobs(mix: list[float], seed: int) -> None:
    found = instance_shares(synthesize(simple(jobs_per_day=1_000.0).with_mix(mix), 1, seed).jobs)
    assert list(found.values()) == pytest.approx(mix, abs=0.01)


def test_load_knob_multiplies_the_jobs() -> None:
    assert len(synthesize(simple().with_load(2.5), 1).jobs) == 1_000


def test_duration_knobs_scale_and_cap_the_services() -> None:
    plain = synthesize(simple(), 1, 4).jobs
    doubled = synthesize(simple().with_durations(2.0), 1, 4).jobs
    capped = synthesize(simple().with_durations(1.0, longest=50.0), 1, 4).jobs
    ratios = sorted((b.duration or 0) / (a.duration or 1) for a, b in zip(plain, doubled, strict=True))
    assert ratios[len(ratios) // 2] == pytest.approx(2.0, rel=0.02)
    assert max(job.duration or 0 for job in capped) == 50.0


def test_gang_knobs_thin_out_and_bound_the_gangs() -> None:
    assert all(job.instances == 1 for job in synthesize(simple().with_gangs(0.0), 1).jobs)
    assert all(job.instances <= 3 for job in synthesize(simple().with_gangs(1.0, largest=3), 1).jobs)
    doubled = sum(job.instances > 1 for job in synthesize(simple(jobs_per_day=13_000.0).with_gangs(2.0), 1).jobs)
    assert doubled == pytest.approx(13_000 * 2 / 14, abs=1)


def test_diurnal_knob_flattens_and_exaggerates_the_rhythm() -> None:
    model = simple(hourly=(0.5,) * 12 + (1.5,) * 12, jobs_per_day=20_000.0)

    def morning(amplitude: float) -> float:
        jobs = synthesize(model.with_diurnal(amplitude), 1, 3).jobs
        return sum(job.submitted < DAY / 2 for job in jobs) / len(jobs)

    assert morning(0.0) == pytest.approx(0.5, abs=0.02)
    assert morning(1.0) == pytest.approx(0.25, abs=0.02)
    assert morning(2.0) == 0.0


def test_batches_come_close_together_and_keep_the_number_of_jobs() -> None:
    def gaps(batch: float) -> list[float]:
        jobs = synthesize(simple(batch=batch), 1, 6).jobs
        assert len(jobs) == 400
        return sorted(b.submitted - a.submitted for a, b in pairwise(jobs))

    assert gaps(10.0)[200] < gaps(1.0)[200] / 3


def test_durations_follow_the_quantiles_of_the_law() -> None:
    law = Durations(8, ((0.0, 1.0), (0.5, 100.0), (1.0, 10_000.0)))
    drawn = sorted(job.duration or 0 for job in synthesize(simple(jobs_per_day=20_000.0), 1, 8).jobs)
    # Whole seconds: below some ten of them rounding shows.
    for share in (0.3, 0.5, 0.9):
        assert drawn[int(share * len(drawn))] == pytest.approx(law.quantile(share), rel=0.1)
    assert math.fsum(drawn) / len(drawn) == pytest.approx(law.mean(), rel=0.05)


@given(st.floats(0, 1), st.floats(0, 1))
def test_quantile_function_rises_and_meets_its_knots(p: float, q: float) -> None:
    law = Durations(8, ((0.0, 1.0), (0.3, 20.0), (0.3, 40.0), (0.9, 500.0), (1.0, 500.0)))
    low, high = sorted((p, q))
    assert law.quantile(low) <= law.quantile(high) * (1 + 1e-12)
    assert law.quantile(0.0) == pytest.approx(1.0)
    assert law.quantile(0.9) == pytest.approx(500.0)
    assert law.quantile(1.0) == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: synthesize(simple(), 0), "days is 0"),
        (lambda: synthesize(simple(jobs_per_day=1e9), 1), "expected 1 to 20,000,000"),
        (lambda: synthesize(simple(), 10**10), "days is 10000000000, expected a whole number from 1 to 36,525"),
        (lambda: synthesize(simple().with_load(1e300), 36_525), "jobs over 36525 days, expected 1 to"),
        (lambda: workload("venus").with_diurnal(1e308), "expected 24 finite rates"),
        (lambda: simple().with_load(0), "load is 0"),
        (lambda: simple().with_load(math.nan), "load is nan"),
        (lambda: simple().with_mix([0.5, 0.5]), "expected four shares"),
        (lambda: simple().with_mix([0.9, 0.9, 0.1, 0.1]), "that sum to 1"),
        (lambda: simple(shapes=(Shape(1, 1, 1.0),)).with_mix([0.5, 0, 0, 0.5]), "has no shape"),
        (lambda: simple(shapes=(Shape(2, 1, 1.0),)).with_gangs(0.0), "nothing is left"),
        (lambda: simple().with_durations(-1.0), "durations is -1"),
        (lambda: simple().with_diurnal(-1.0), "diurnal is -1"),
        (lambda: simple(hourly=(1.0,)), "expected 24 finite rates"),
        (lambda: simple(shapes=()), "no shapes"),
        (lambda: simple(shapes=(Shape(1, 9, 1.0),)), "g from 1 to 8"),
        (lambda: simple(durations=(Durations(1, ((0.0, 5.0), (1.0, 1.0))),)), "rising"),
        (lambda: workload("mars"), "model is 'mars', expected one of"),
    ],
)
def test_model_that_makes_no_sense_is_refused(make: object, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        make()  # type: ignore[operator]


# ---- what ships


def test_bundled_sample_is_what_its_command_makes(tmp_path: Path) -> None:
    samples = sorted(SAMPLES.glob("*.csv"))
    assert [sample.name for sample in samples] == ["demo.csv", "phys-mix.csv"]
    for sample in samples:
        command = read_trace(sample).source
        output = tmp_path / sample.name
        result = CliRunner().invoke(app, [*split(command)[1:], "--output", str(output)], catch_exceptions=False)
        assert result.exit_code == 0
        assert output.read_bytes() == sample.read_bytes()


def test_demo_sample_is_contended_small_and_labelled() -> None:
    trace = read_trace("demo")
    assert trace.synthetic
    assert len(trace.jobs) == 1_500
    assert 40 <= cluster_size(trace.jobs, 0.90) <= 80
    assert (SAMPLES / "demo.csv").stat().st_size < 100_000


def test_phys_mix_sample_fits_its_cluster() -> None:
    trace = read_trace("phys-mix")
    assert trace.synthetic
    assert max(job.total_gpus for job in trace.jobs) <= 32
    assert 3 <= cluster_size(trace.jobs, 0.90) <= 6


def test_synthetic_trace_written_and_read_is_the_same(tmp_path: Path) -> None:
    trace = synthesize(workload("venus"), 1, 2)
    path = tmp_path / "t.csv"
    write_trace(trace, path)
    assert read_trace(path).jobs == trace.jobs
