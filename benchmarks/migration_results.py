"""Writes what `bench_migration --out` measured into docs/checkpoint-contract.md.

python -m benchmarks.migration_results benchmarks/results/migration-h200.json            prints the tables
python -m benchmarks.migration_results benchmarks/results/migration-h200.json --write    puts them into the page
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gang import PHASES, Way

PAGE = Path(__file__).parents[1] / "docs" / "checkpoint-contract.md"
BEGIN, END = "<!-- measured on a GPU: begin -->", "<!-- measured on a GPU: end -->"
#: Whose phases are shown one by one: the paper's language model, and the target's.
SHOWN = "gpt2"


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the tables, or replaces those of the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.migration_results")
    parser.add_argument("results", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    text = tables(json.loads(given.results.read_text(encoding="utf-8")))
    if not given.write:
        print(text, end="")
        return
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


def tables(record: dict[str, Any]) -> str:
    """Every workload in every way, and one workload phase by phase."""
    machine, measured = record["machine"], record["workloads"]
    ways = [way for way in Way if any(way in found["ways"] for found in measured.values())]
    lines = [
        f"Seconds from the request to the first new step, `{record['size']}` models on {_place(machine)}, "
        "medians (the number of runs in brackets):",
        "",
        _row(["", "step", "checkpoint", *ways]),
        _rule(3 + len(ways)),
    ]
    for workload, found in measured.items():
        cells = [_seconds(found.get("step_seconds")), _megabytes(found)]
        lines.append(_row([workload, *cells, *(_whole(found["ways"].get(way)) for way in ways)]))
    lines += [f"\n{name} was given up: {found['error']}" for name, found in measured.items() if "error" in found]
    if SHOWN in measured:
        lines += ["", f"{SHOWN}, seconds from the request to the end of each phase:", ""]
        lines += [_row(["", *(phase.replace("_", " ") for phase in PHASES)]), _rule(1 + len(PHASES))]
        for way, entry in measured[SHOWN]["ways"].items():
            lines.append(_row([way, *(_phase(entry["median"][phase]) for phase in PHASES)]))
    return "\n".join([*lines, "", f"Measured by `{' '.join(record['command'])}`.", ""])


def _place(machine: dict[str, Any]) -> str:
    what = f"one {machine['gpu']}" if machine["gpu"] else "a machine without a GPU"
    return f"{what} with {machine['cores']} cores, torch {machine['torch']}"


def _whole(entry: dict[str, Any] | None) -> str:
    return "–" if entry is None else f"{entry['median']['first_step']:.2f} ({len(entry['runs'])})"


def _phase(value: float) -> str:
    return f"{value:.2f}" if value > 0 else "before"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{1000 * value:.0f} ms"


def _megabytes(found: dict[str, Any]) -> str:
    sizes = [entry["checkpoint_bytes"]["whole"] for entry in found["ways"].values()]
    return f"{max(sizes, default=0) / 1e6:,.0f} MB"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "|---" + "|---:" * (columns - 1) + "|"


if __name__ == "__main__":
    main(sys.argv[1:])
