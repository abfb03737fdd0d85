"""A run as a Chrome/Perfetto trace: open it at ui.perfetto.dev or chrome://tracing."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars

#: The track group of the counters; nodes come after it.
_CLUSTER = 0
#: Rows between two calls of a progress callback.
_TELL_EVERY = 4096


def perfetto_events(
    events: "polars.DataFrame",
    timeseries: "polars.DataFrame",
    node_names: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Trace events: a track group a node, a slice an instance, an arrow a migration, counters for the cluster.

    One after the other, since a long run has more of them than rows. `progress` is called with the rows done.
    """
    done = count(1)

    def tell() -> None:
        if progress is not None and not (rows := next(done)) % _TELL_EVERY:
            progress(rows)

    writer = _Writer(node_names)
    for row in events.iter_rows(named=True):
        match row["event"]:
            case "start":
                writer.started(row["time_us"], row["job"], row["gpus"], row["nodes"])
            case "move":
                writer.moved(row["time_us"], row["job"], row["instance"], row["gpus"], row["target"], row["cause"])
            case "finish" | "lost":
                writer.ended(row["time_us"], row["job"], row["event"])
            case "node":
                writer.node_changed(row["time_us"], row["nodes"][0], row["cause"])
        yield from writer.taken()
        tell()
    counters = ("used_gpus", "n_sif", "waiting", "empty_nodes")
    for time, *values in timeseries.select("time_us", *counters).iter_rows():
        for name, value in zip(counters, values, strict=True):
            yield {"name": name, "ph": "C", "ts": time, "pid": _CLUSTER, "args": {name: value}}
        tell()
    yield from writer.names()


class _Writer:
    """Instances on their nodes; those that share a node are drawn in lanes, since slices of a track may only nest."""

    def __init__(self, node_names: Sequence[str]) -> None:
        self._names = node_names
        self._slices: list[dict[str, Any]] = []
        #: Where each instance of a running job is: (node, lane, since, GPUs).
        self._open: dict[str, list[tuple[int, int, int, int]]] = {}
        self._lanes: dict[int, list[bool]] = {}
        self._arrows = 0

    def started(self, now: int, job: str, gpus: int, nodes: Sequence[int]) -> None:
        self._open[job] = [(node, self._enter(node), now, gpus) for node in nodes]

    def moved(self, now: int, job: str, instance: int, gpus: int, target: int, cause: str) -> None:
        node, lane, since, _ = self._open[job][instance]
        self._close(now, job, instance)
        new_lane = self._enter(target)
        self._open[job][instance] = (target, new_lane, now, gpus)
        self._arrows += 1
        arrow = {"name": f"migration ({cause})", "cat": "migration", "id": self._arrows}
        # An arrow leaves from inside its slice: the end of a slice no longer belongs to it.
        self._slices.append({**arrow, "ph": "s", "ts": max(since, now - 1), "pid": node + 1, "tid": lane})
        self._slices.append({**arrow, "ph": "f", "bp": "e", "ts": now, "pid": target + 1, "tid": new_lane})

    def ended(self, now: int, job: str, how: str) -> None:
        for instance in range(len(self._open[job])):
            self._close(now, job, instance, how)
        del self._open[job]

    def node_changed(self, now: int, node: int, status: str) -> None:
        self._slices.append({"name": status, "ph": "i", "s": "p", "ts": now, "pid": node + 1, "tid": 0})

    def _enter(self, node: int) -> int:
        lanes = self._lanes.setdefault(node, [])
        if False not in lanes:
            lanes.append(False)
        lane = lanes.index(False)
        lanes[lane] = True
        return lane

    def _close(self, now: int, job: str, instance: int, how: str = "move") -> None:
        node, lane, since, gpus = self._open[job][instance]
        self._lanes[node][lane] = False
        self._slices.append(
            {"name": f"{job}.{instance}", "cat": f"{gpus} GPU", "ph": "X", "ts": since, "dur": now - since,
             "pid": node + 1, "tid": lane, "args": {"job": job, "instance": instance, "gpus": gpus, "until": how}}
        )  # fmt: skip

    def taken(self) -> list[dict[str, Any]]:
        """What has been drawn since the last time this was asked."""
        found, self._slices = self._slices, []
        return found

    def names(self) -> list[dict[str, Any]]:
        """Titles of the track groups, in the order of the nodes."""
        titles = {_CLUSTER: "cluster"}
        for node in sorted(self._lanes):
            titles[node + 1] = self._names[node] if node < len(self._names) else f"n{node}"
        found = []
        for pid, title in titles.items():
            found.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": title}})
            found.append({"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}})
        return found
