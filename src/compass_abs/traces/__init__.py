"""Job traces: readers of the published formats, day slicing, cluster sizing, synthesis."""

from compass_abs.traces.errors import TraceError
from compass_abs.traces.gathering import BadRows, RowOrder
from compass_abs.traces.reading import read_trace
from compass_abs.traces.sizing import cluster_size, concurrent_demand, demand_percentile, nodes_for
from compass_abs.traces.tail import Tail
from compass_abs.traces.trace import DAY, NodeGroup, Trace, day, window
from compass_abs.traces.writing import write_trace

__all__ = [
    "DAY",
    "BadRows",
    "NodeGroup",
    "RowOrder",
    "Tail",
    "Trace",
    "TraceError",
    "cluster_size",
    "concurrent_demand",
    "day",
    "demand_percentile",
    "nodes_for",
    "read_trace",
    "window",
    "write_trace",
]
