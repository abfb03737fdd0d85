"""`make bench [ONLY=name]`: runs every benchmark of this folder; each `bench_*.py` has `main() -> None` and prints."""

import importlib
import pkgutil
import sys

import benchmarks


def main() -> None:
    """Runs all benchmarks, or those whose names are given."""
    modules = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name.startswith("bench_"))
    wanted = {f"bench_{name.removeprefix('bench_')}" for name in sys.argv[1:]}
    if unknown := wanted.difference(modules):
        known = ", ".join(module.removeprefix("bench_") for module in modules)
        names = ", ".join(sorted(name.removeprefix("bench_") for name in unknown))
        sys.exit(f"there is no benchmark {names}; there are: {known}")
    for module in modules:
        if wanted and module not in wanted:
            continue
        print(f"\n== {module.removeprefix('bench_')}", flush=True)
        importlib.import_module(f"benchmarks.{module}").main()


if __name__ == "__main__":
    main()
