"""Tables, figures, and the HTML report that people want to read."""

from compass_abs.reporting.comparison import (
    SERIES,
    ClusterEvent,
    Comparison,
    Dropped,
    Ended,
    JobView,
    Moved,
    NodeChanged,
    ReportError,
    RunView,
    Started,
    StepSeries,
)
from compass_abs.reporting.html_report import render_report, write_report
from compass_abs.reporting.settings import settings_shown
from compass_abs.reporting.verdict import verdict

__all__ = [
    "SERIES",
    "ClusterEvent",
    "Comparison",
    "Dropped",
    "Ended",
    "JobView",
    "Moved",
    "NodeChanged",
    "ReportError",
    "RunView",
    "Started",
    "StepSeries",
    "render_report",
    "settings_shown",
    "verdict",
    "write_report",
]
