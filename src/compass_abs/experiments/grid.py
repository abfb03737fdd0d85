"""All runs of a study."""

from collections.abc import Iterator
from itertools import product

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.study import Study
from compass_abs.experiments.workloads import chosen_days


def cells_of(study: Study) -> list[Cell]:
    """Every combination, days outermost so that neighbours share their jobs; names are checked before anything runs."""
    _check_names(study)
    return list(_combine(study))


def _combine(study: Study) -> Iterator[Cell]:
    for workload in study.workloads:
        fixed = study.nodes or ((workload.nodes,) if workload.nodes else ())
        sizes: list[tuple[float | None, int | None]] = (
            [(None, nodes) for nodes in fixed] if fixed else [(eta, None) for eta in study.eta]
        )
        for day in chosen_days(workload)[:: study.sample]:
            for (eta, nodes), queue, cost, pinned, scheduler in product(
                sizes, study.queues, study.costs, study.pinned, study.schedulers
            ):
                yield Cell(workload, day, eta, nodes, scheduler, queue, cost, pinned, study.window)


def _check_names(study: Study) -> None:
    """Raises on a scheduler, parameter or queue that doesn't exist."""
    from compass_abs.model import ClusterState
    from compass_abs.queues.registry import make_queue
    from compass_abs.schedulers.registry import make_scheduler, parse_choice

    for choice in study.schedulers:
        name, parameters = parse_choice(choice)
        scheduler = make_scheduler(name, ClusterState(1), **parameters)
        for queue in study.queues:
            make_queue(queue, scheduler)
