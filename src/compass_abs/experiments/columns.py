"""The columns that tables, figures and rankings may name, known before anything has run."""

from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING

from compass_abs.simulation.summary import Summary

if TYPE_CHECKING:
    from compass_abs.experiments.study import Study

#: The oracle behind ratios to the bound.
BOUND = "sif-opt"
#: What tells runs apart.
SETTINGS = ("trace", "day", "eta", "scheduler", "queue", "cost", "pinned", "nodes")
#: Computed from several runs, or from several metrics of one.
RATIOS = ("ajct_ratio", "ajct_above_bound")
DERIVED = (*RATIOS, "pauses_per_job")
#: What a study with a `window` measures in it.
WINDOW = (
    "window_n_sif", "window_utilisation", "window_empty_nodes", "window_blocked_capacity",
    "window_blocked_fragmentation", "window_blocked_policy", "window_blocked", "window_fragmentation_share",
    "window_heads_of_8", "window_max_n_sif",
)  # fmt: skip
METRICS = tuple(field.name for field in fields(Summary))


def columns_of(study: "Study") -> tuple[str, ...]:
    """Every column that this study's runs will have."""
    known = dict.fromkeys((*SETTINGS, *METRICS, *DERIVED, *(WINDOW if study.window else ())))
    return tuple(known)


def mistake_in(study: "Study") -> str | None:
    """The first name of a column or scheduler that the study's runs won't have, with its field and what to do."""
    known = columns_of(study)
    for field, name in _named(study):
        if name not in known:
            return f"{field} is {name!r}: no run has such a column{_advice(name, known)}"
        if name in RATIOS and BOUND not in study.schedulers:
            return f"{field} is {name!r}, which needs {BOUND!r} among the schedulers"
    for i, figure in enumerate(study.figures):
        for column, wanted in figure.where.items():
            there = _values(study, column)
            for value in wanted if isinstance(wanted, list) else [wanted]:
                if there and value not in there:
                    return f"figures.{i}.where.{column} is {value!r}, of which there is no run; there are: {there}"
    for i, ranking in enumerate(study.rankings):
        for field, name in (("subject", ranking.subject), *((f"field.{k}", n) for k, n in enumerate(ranking.field))):
            if name not in study.schedulers:
                return f"rankings.{i}.{field} is {name!r}, which is none of the study's schedulers"
    return None


def _values(study: "Study", column: str) -> list[object]:
    """What a setting takes in the study's runs; nothing for what only the runs can tell."""
    if column == "trace":
        return [workload.name for workload in study.workloads]
    setting = {"scheduler": "schedulers", "queue": "queues", "cost": "costs", "pinned": "pinned"}.get(column)
    if column == "eta" and not study.nodes:
        setting = "eta"
    return list(getattr(study, setting)) if setting else []


def _named(study: "Study") -> Iterator[tuple[str, str]]:
    """Each field that names a column, and the name."""
    for i, table in enumerate(study.tables):
        yield from ((f"tables.{i}.by.{k}", name) for k, name in enumerate(table.by))
        yield from ((f"tables.{i}.values.{k}", name) for k, name in enumerate(table.values))
    for i, figure in enumerate(study.figures):
        yield f"figures.{i}.x", figure.x
        yield from ((f"figures.{i}.y.{k}", name) for k, name in enumerate(figure.y))
        if figure.panels is not None:
            yield f"figures.{i}.panels", figure.panels
        yield from ((f"figures.{i}.where", name) for name in figure.where)
    for i, ranking in enumerate(study.rankings):
        yield from ((f"rankings.{i}.metrics.{k}", name) for k, name in enumerate(ranking.metrics))


def _advice(name: str, known: tuple[str, ...]) -> str:
    if name in WINDOW:
        return "; give the study a `window`"
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known)}"
