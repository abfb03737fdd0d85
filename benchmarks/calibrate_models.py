"""Derives the workload models that ship with the project from the published data; no row of it is kept.

    python -m benchmarks.calibrate_models          prints the models
    python -m benchmarks.calibrate_models --write  replaces src/compass_abs/traces/models/*.json

Venus comes from the trace itself. Of the GFS trace only margins are at hand (tables that others computed from
job_info_df.csv), so its model joins: jobs by GPUs per instance and their duration quantiles, the distribution of
worker numbers, the buckets of total demand, jobs by hour, and Table 1 of the paper for the instance shares.
"""

import csv
import os
import sys
from pathlib import Path

from compass_abs.traces import read_trace
from compass_abs.traces.calibration import calibrate, model_as_json
from compass_abs.traces.synthesis import Durations, Shape, WorkloadModel

MODELS = Path(__file__).parents[1] / "src" / "compass_abs" / "traces" / "models"
DATA = Path(os.environ.get("COMPASS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))

#: Table 1 of the paper.
GFS_SHARES = (0.6416, 0.0607, 0.0005, 0.2973)
#: The largest gang kept: four gangs in 10,000 are larger, and one of them alone would size a day's cluster.
GFS_LARGEST_GANG = 128
#: Services are cut at two days, as Venus's are: a third of the hours in the whole trace belong to services of weeks
#: and months, on which no day-by-day replay can rest (N would follow from them alone).
GFS_LONGEST = 172_800.0
#: The recorded spread between days is 0.46; with it a day's N(0.90) runs from 50 to over 800. The days that the
#: studies replay have N 170 to 340 (section 5), which takes days that are more alike.
GFS_DAY_SPREAD = 0.15
#: Jobs with whole GPUs among all jobs of the trace.
GFS_WHOLE_GPU_JOBS = 417_629 / 466_867
#: Share of gangs of up to so many workers whose instances take 8 GPUs, from the buckets of total demand: jobs that
#: want 9-16 GPUs with 2 workers, 17-32 with 3-4, and so on, less the gangs of 1-GPU workers that want as many.
GFS_WHOLE_NODE_GANGS = ((2, 0.73), (4, 0.53), (8, 0.37), (16, 0.33), (10**9, 0.49))


def _table(name: str) -> list[dict[str, str]]:
    with (DATA / "gfs" / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _gfs_shapes() -> list[Shape]:
    jobs = {
        int(float(row["group"])): int(row["task_count"])
        for row in _table("duration_tail_by_group.csv")
        if row["dimension"] == "gpu_request" and float(row["group"]) >= 1
    }
    total = sum(jobs.values())
    gangs: dict[tuple[int, int], float] = {}
    for row in _table("outputs/tables/worker_count_distribution.csv"):
        workers, number = int(row["worker_num"]), int(row["jobs"])
        if 1 < workers <= GFS_LARGEST_GANG:
            share = next(s for limit, s in GFS_WHOLE_NODE_GANGS if workers <= limit)
            gangs[workers, 8] = number * share
            gangs[workers, 1] = number * (1 - share)
    single = {(1, gpus): float(n) for gpus, n in jobs.items()}
    for (_, gpus), gang_jobs in gangs.items():
        single[1, gpus] -= gang_jobs
    return [Shape(w, g, round(1e5 * n / total, 1)) for (w, g), n in sorted({**single, **gangs}.items())]


def _gfs_laws() -> tuple[Durations, ...]:
    buckets = {
        row["duration_bucket"]: float(row["jobs_share"]) for row in _table("outputs_extra/tables/bucket_duration.csv")
    }
    minute = round(buckets["0 to 1 min"], 3)
    ten = round(minute + buckets["1 to 10 min"], 3)
    laws = []
    for limit, group in ((1, "1.0"), (7, "4.0"), (10**9, "8.0")):
        row = next(
            r for r in _table("duration_tail_by_group.csv") if r["dimension"] == "gpu_request" and r["group"] == group
        )
        knots = [(0.0, 1.0), (minute, 60.0), (ten, 600.0)]
        knots += [
            (float(p), float(f"{float(row[c]):.3g}"))
            for p, c in (
                (0.5, "true_p50_seconds"),
                (0.9, "true_p90_seconds"),
                (0.95, "true_p95_seconds"),
                (0.99, "true_p99_seconds"),
            )
        ]
        knots.append((1.0, float(row["true_max_seconds"])))
        laws.append(Durations(limit, tuple(knots)))
    return tuple(laws)


def gfs() -> WorkloadModel:
    """The GFS model."""
    hours = [int(row["jobs"]) for row in _table("outputs_extra/tables/hour_of_day_patterns.csv")]
    daily = [int(row["hp_jobs"]) + int(row["spot_jobs"]) for row in _table("outputs/tables/daily_summary.csv")]
    # What runs already when the recording starts is "submitted" in its first second: the surplus of day 0 in hour 0.
    hours[0] -= daily[0] - daily[1]
    ordinary = daily[1:-1]
    model = WorkloadModel(
        name="gfs",
        calibrated_to="calibrated to margins of the GFS trace and Table 1; services cut at 172,800 s",
        jobs_per_day=float(round(sum(ordinary) / len(ordinary) * GFS_WHOLE_GPU_JOBS)),
        day_spread=GFS_DAY_SPREAD,
        hourly=tuple(round(24 * n / sum(hours), 2) for n in hours),
        shapes=tuple(_gfs_shapes()),
        durations=_gfs_laws(),
        batch=5.0,
    )
    return model.with_mix(GFS_SHARES).with_durations(1.0, GFS_LONGEST)


def main() -> None:
    """Prints the models, or writes them."""
    os.environ.setdefault("COMPASS_TRACES", str(DATA))
    for model in (calibrate(read_trace("venus")), gfs()):
        text = model_as_json(model)
        if "--write" in sys.argv:
            (MODELS / f"{model.name}.json").write_text(text, encoding="utf-8")
            print(f"wrote {model.name}.json")
        else:
            print(text)


if __name__ == "__main__":
    main()
