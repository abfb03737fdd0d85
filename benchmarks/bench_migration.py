"""How long a migration takes, phase by phase, for each Phys-Mix workload: cold, warm, ahead, in place, by snapshot.

    python -m benchmarks.bench_migration                                # tiny, CPU, two ranks
    python -m benchmarks.bench_migration --device cuda --within 460 \
        --out benchmarks/results/migration-h200.json                    # full, one GPU, in less than eight minutes

`Way` in `benchmarks/gang.py` says what each way is. Needs only numpy and torch beside this checkout (`PYTHONPATH=src`).
`--out` is written after every single migration, so a run that is cut off keeps what it has measured. On one GPU
`rejoin` has two ranks that share it, and gradients go through gloo: NCCL refuses that.
`python -m benchmarks.migration_results` turns the file into the table of docs/checkpoint-contract.md.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gang import PHASES, Gang, Way
from compass_abs.training.workloads import SIZES, WORKLOADS

#: Longest that any single phase may take before the workload is given up.
PATIENCE = 120.0
#: The part of a workload's time after which no more rounds of the other ways begin: the rest is `rejoin`'s.
ALONE = 0.7


def main(arguments: Sequence[str] = ()) -> None:
    """Measures and prints; `--out` keeps every run."""
    given = _options().parse_args(arguments)
    given.size = given.size or ("tiny" if given.device == "cpu" else "full")
    deadline = time.monotonic() + given.within
    record: dict[str, Any] = {
        "command": ["python", "-m", "benchmarks.bench_migration", *arguments],
        "device": given.device,
        "size": given.size,
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "machine": _machine(),
        "workloads": {},
    }
    print(f"{given.size}, {given.device}; seconds from the request, medians of up to {given.repeats} runs")
    print(f"{'':24}" + "".join(f"{name:>11}" for name in PHASES) + f"{'vs cold':>9}", flush=True)

    def keep() -> None:
        if given.out:
            temporary = given.out.with_name(f".{given.out.name}.tmp")
            temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            temporary.replace(given.out)

    failed = []
    for number, workload in enumerate(given.workloads):
        share = (deadline - time.monotonic()) / (len(given.workloads) - number)
        result = record["workloads"][workload] = {"ways": {}}
        try:
            _measure(given, workload, time.monotonic() + share, result, keep)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            # One workload that fails must not cost the others their turn.
            failed.append(workload)
            result["error"] = str(error)[-4000:]
            print(f"{workload}: {error}", file=sys.stderr, flush=True)
        keep()
        _print_rows(workload, result)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_migration")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=SIZES, help="tiny on cpu, full on cuda unless told otherwise")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--ways", nargs="+", type=Way, choices=list(Way), default=list(Way))
    parser.add_argument("--ranks", type=int, help="2 on cpu, 1 on cuda (of rejoin always at least 2)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--within", type=float, default=3600.0, metavar="SECONDS", help="fewer repeats if need be")
    parser.add_argument("--folder", type=Path, help="where checkpoints go (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="JSON of all runs")
    return parser


def _measure(
    given: argparse.Namespace, workload: str, end: float, result: dict[str, Any], keep: Callable[[], None]
) -> None:
    """Every way, round by round while there is time; each once in any case."""
    begin = time.monotonic()
    ranks = given.ranks or (2 if given.device == "cpu" else 1)
    # What stays can't begin to take snapshots, so `rejoin` has a gang of its own.
    restarted = [way for way in given.ways if way is not Way.REJOIN]
    rejoined = [way for way in given.ways if way is Way.REJOIN]
    plans = [(ranks, restarted, ALONE if rejoined else 1.0), (max(ranks, 2), rejoined, 1.0)]
    for size, ways, share in plans:
        if not ways:
            continue
        with _gang(given, workload, size) as gang:
            saving = ways[0] is Way.SNAPSHOT
            gang.begin(["compass_abs.training.workloads.loop", f"compass_abs.training.workloads.{workload}"], saving)
            result.setdefault("standby_ready", round(gang.standby_ready, 3))
            result.setdefault("step_seconds", round(gang.step_seconds(), 5))
            _rounds(given.repeats, gang, ways, begin + share * (end - begin), result, keep)


def _gang(given: argparse.Namespace, workload: str, ranks: int) -> Gang:
    words = ["-m", "compass_abs.training.workloads", workload]
    words += ["--size", given.size, "--steps", "1000000", "--device", given.device]
    environment = {"OMP_NUM_THREADS": "1" if given.device == "cpu" else str(os.cpu_count())}
    if given.device == "cuda" and ranks > 1:
        environment["COMPASS_SHARED_GPUS"] = "1"
    folder = Path(tempfile.mkdtemp(prefix=f"migration-{workload}-", dir=given.folder))
    return Gang(folder, words, ranks, environment, PATIENCE)


def _rounds(
    repeats: int, gang: Gang, ways: list[Way], end: float, result: dict[str, Any], keep: Callable[[], None]
) -> None:
    longest = 0.0
    for number in range(repeats):
        begin = time.monotonic()
        if number and begin + longest > end:
            return
        for way, following in zip(ways, [*ways[1:], ways[0]], strict=True):
            # A gang that has just begun still fills caches.
            time.sleep(0.3)
            times = gang.migrate(way, saving_next=following is Way.SNAPSHOT)
            entry = result["ways"].setdefault(way, {"ranks": gang.ranks, "runs": []})
            entry["runs"].append({name: round(value, 4) for name, value in times.items()})
            entry["median"] = {name: round(median(run[name] for run in entry["runs"]), 4) for name in PHASES}
            entry["checkpoint_bytes"] = gang.checkpoint_bytes()
            keep()
        longest = max(longest, time.monotonic() - begin)


def _print_rows(workload: str, result: dict[str, Any]) -> None:
    cold = result["ways"].get(Way.COLD)
    for way, entry in result["ways"].items():
        times = entry["median"]
        ratio = ""
        if cold and cold["ranks"] == entry["ranks"]:
            ratio = f"{cold['median']['first_step'] / times['first_step']:8.1f}×"
        label = f"{workload:9}{way:9}{entry['ranks']} × {len(entry['runs'])}"
        print(f"{label:24}" + "".join(f"{times[name]:11.3f}" for name in PHASES) + ratio, flush=True)


def _machine() -> dict[str, Any]:
    """Versions and the GPU, asked of a process of its own: this one must not open a GPU."""
    code = (
        "import torch; print(torch.__version__); "
        "print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    return {"python": platform.python_version(), "cores": os.cpu_count(), "torch": lines[0], "gpu": lines[1]}


if __name__ == "__main__":
    main(sys.argv[1:])
