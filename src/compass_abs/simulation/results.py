"""A run as files: written whole, never over another run unless told to, and read back."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compass_abs import __version__
from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.simulation.driver import Checks
from compass_abs.simulation.observer import Observer, Several
from compass_abs.simulation.perfetto import perfetto_events
from compass_abs.simulation.recorder import Recorder
from compass_abs.simulation.setup import Setup
from compass_abs.simulation.summary import Summary

if TYPE_CHECKING:
    import polars

CONFIG, SUMMARY, PERFETTO = "config.yaml", "summary.json", "trace.perfetto.json"
TABLES = ("jobs", "events", "timeseries")


class ResultsError(CompassError):
    """A run directory that can't be written or read."""


class Existing(Enum):
    """What to do with a run that is there already."""

    REFUSE = auto()
    REPLACE = auto()


@dataclass(frozen=True, slots=True)
class Result:
    """A simulation and everything it showed. Times in the tables are whole microseconds on the trace's clock."""

    #: The setup, the trace, and what readers must know of it.
    config: Mapping[str, Any]
    summary: Summary
    jobs: "polars.DataFrame"
    events: "polars.DataFrame"
    timeseries: "polars.DataFrame"
    node_names: tuple[str, ...] = ()

    def save(
        self,
        directory: Path,
        existing: Existing = Existing.REFUSE,
        progress: Callable[[int], None] | None = None,
    ) -> Path:
        """Writes the run directory; refuses one that holds anything unless it may be replaced.

        `progress` is called with the rows that have been written of those of `events` and `timeseries`.
        """
        check_target(directory, existing)
        with whole_directory(directory) as building:
            self._write(building, progress)
        return directory

    def _write(self, directory: Path, progress: Callable[[int], None] | None) -> None:
        import yaml

        (directory / CONFIG).write_text(yaml.safe_dump(dict(self.config), sort_keys=False, allow_unicode=True), "utf-8")
        text = json.dumps(self.summary.as_dict(), indent=2)
        (directory / SUMMARY).write_text(text + "\n", "utf-8")
        for name in TABLES:
            getattr(self, name).write_parquet(directory / f"{name}.parquet", compression="zstd", statistics=True)
        with (directory / PERFETTO).open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
            separator = ""
            for event in perfetto_events(self.events, self.timeseries, self.node_names, progress):
                file.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
            file.write("\n]}\n")

    @staticmethod
    def load(directory: Path) -> "Result":
        """Reads a run directory back."""
        import polars as pl
        import yaml

        for name in (CONFIG, SUMMARY, *(f"{table}.parquet" for table in TABLES)):
            if not (directory / name).is_file():
                raise ResultsError(f"{directory} is no run directory: it has no {name}")
        config = yaml.safe_load((directory / CONFIG).read_text("utf-8"))
        summary = Summary(**json.loads((directory / SUMMARY).read_text("utf-8")))
        jobs, events, timeseries = (pl.read_parquet(directory / f"{name}.parquet") for name in TABLES)
        return Result(config, summary, jobs, events, timeseries)


@contextmanager
def whole_directory(directory: Path) -> Iterator[Path]:
    """A folder to fill: what it holds goes to `directory` at the end, and nowhere when something went wrong.

    A killed process thus leaves no half of a run behind. Files that are there already are replaced by those of the
    same name, and folders as a whole; whatever else somebody put beside them stays.
    """
    # Behind a link, what it points to is replaced and not the link.
    place = directory.resolve()
    # Inside a folder that exists, since its parent may be somebody else's.
    building = place / ".partial" if place.is_dir() else place.with_name(f".{place.name}.partial")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    try:
        yield building
        if building.parent != place:
            building.rename(place)
            return
        for entry in sorted(building.iterdir()):
            there = place / entry.name
            if there.is_dir() and not there.is_symlink():
                shutil.rmtree(there)
            entry.replace(there)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def check_target(directory: Path, existing: Existing, marks: tuple[str, ...] = (CONFIG, SUMMARY)) -> None:
    """Raises unless a run may be written there; to be asked before an hour of simulation, not after.

    Only a directory that has the files in `marks` is taken for a run and replaced.
    """
    if directory.exists() and not directory.is_dir():
        raise ResultsError(f"{directory} is a file; choose another place for the run")
    check_writable(directory)
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    if existing is Existing.REFUSE:
        raise ResultsError(f"{directory} holds something already; choose another --out, or replace it with --force")
    missing = next((mark for mark in marks if not (directory / mark).is_file()), None)
    if missing is not None:
        raise ResultsError(
            f"{directory} isn't replaced: it has no {missing}, so it is no earlier run; choose another --out"
        )


def check_writable(path: Path) -> None:
    """Raises unless files can be made at this path, or under it if it is a directory."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if there == path.absolute() and not there.is_dir():
        there = there.parent
    if not there.is_dir():
        raise ResultsError(f"{path} can't be made, because {there} is a file; choose another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ResultsError(f"{path} can't be written: {there} doesn't let you; choose another place")


def record(
    jobs: Iterable[Job],
    setup: Setup,
    *,
    history: Iterable[Job] = (),
    about: Mapping[str, Any] | None = None,
    observe: Callable[[ClusterState], Observer] | None = None,
    checks: Checks = Checks.NEVER,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Simulates and keeps everything; `about` says where the jobs come from and goes into the configuration."""
    recorders: list[Recorder] = []

    def watch(state: ClusterState) -> Observer:
        recorders.append(Recorder(state))
        return recorders[0] if observe is None else Several((recorders[0], observe(state)))

    simulation = setup.simulation(jobs, history=history, observe=watch, checks=checks, progress=progress)
    summary = simulation.run()
    recorder = recorders[0]
    config = {"compass_abs": __version__, "setup": setup.as_dict(), "trace": dict(about or {})}
    names = tuple(node.name for node in simulation.state.nodes)
    return Result(config, summary, recorder.jobs(), recorder.events(), recorder.timeseries(), names)
