"""One day of a study as an HTML page, replayed once more with everybody watched."""

from datetime import UTC
from pathlib import Path

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.grid import cells_of
from compass_abs.experiments.output import workload_notes
from compass_abs.experiments.study import Study
from compass_abs.experiments.workloads import cluster_nodes, day_of_work, load_trace
from compass_abs.model import ClusterState
from compass_abs.reporting import Comparison, Dropped, RunView, write_report
from compass_abs.reporting.recorder import ReportRecorder
from compass_abs.schedulers.registry import parse_choice
from compass_abs.simulation import PaperCost, Setup


def write_page(study: Study, path: Path) -> Path:
    """The page of the study's first day, at its first size, queue and cost."""
    cells = cells_of(study)
    first = cells[0]
    alike = [c for c in cells if _setting(c) == _setting(first)]
    work = day_of_work(first.workload, first.day)
    watched = [_watch(cell) for cell in alike]
    trace = load_trace(first.workload)
    date = trace.date(first.day)
    comparison = Comparison(
        title=f"{study.title}: {first.workload.name}" + ("" if first.workload.label else f", day {first.day}"),
        jobs=watched[0][0].jobs,
        nodes=_nodes(first),
        runs=[view for _, view in watched],
        capacity=work.trace.capacity,
        subtitle=date,
        settings={
            "size of the cluster": f"{_nodes(first)} nodes" + (f", N({first.eta:g})" if first.eta else ""),
            "queue": first.queue,
            "a migration delays a job by": f"{first.cost:g} s",
        },
        dropped=[Dropped(reason, rows) for reason, rows in trace.dropped.items()],
        notes=workload_notes([first.workload]),
        epoch=None if trace.origin is None else trace.origin.replace(tzinfo=UTC).timestamp(),
    )
    return write_report(comparison, path)


def _setting(cell: Cell) -> tuple[object, ...]:
    """All but the scheduler."""
    return (cell.workload, cell.day, cell.eta, cell.nodes, cell.queue, cell.cost, cell.pinned)


def _nodes(cell: Cell) -> int:
    if cell.nodes is not None:
        return cell.nodes
    assert cell.eta is not None
    return cluster_nodes(cell.workload, cell.day, cell.eta)


def _watch(cell: Cell) -> tuple[ReportRecorder, RunView]:
    """One scheduler's run, kept for drawing."""
    work = day_of_work(cell.workload, cell.day)
    name, parameters = parse_choice(cell.scheduler)
    setup = Setup(name, _nodes(cell), work.trace.capacity, parameters, cell.queue, PaperCost(cell.cost))
    watching: list[ReportRecorder] = []

    def observe(state: ClusterState) -> ReportRecorder:
        watching.append(ReportRecorder(state))
        return watching[0]

    summary = setup.simulation(work.jobs, history=work.history, observe=observe).run()
    return watching[0], watching[0].run_view(cell.scheduler, summary, dict(parameters))
