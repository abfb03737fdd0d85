"""`make bench [ONLY=name]`: runs every benchmark of this folder; each `bench_*.py` has `main() -> None` and prints."""

import importlib
import pkgutil
import sys

import benchmarks


def main() -> None:
    """Runs all benchmarks, or those whose names are given."""
    wanted = sys.argv[1:]
    for module in sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name.startswith("bench_")):
        if wanted and module.removeprefix("bench_") not in wanted:
            continue
        print(f"\n== {module.removeprefix('bench_')}", flush=True)
        importlib.import_module(f"benchmarks.{module}").main()


if __name__ == "__main__":
    main()
