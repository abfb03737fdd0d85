"""The workload models that ship with the project, by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from compass_abs.traces.calibration import model_from_json
from compass_abs.traces.errors import TraceError
from compass_abs.traces.synthesis import Durations, Shape, WorkloadModel

_FOLDER = Path(__file__).parent / "models"
#: Of the GFS trace's instances of 2 to 7 GPUs, 0.05 in 6.12 are unfriendly (Table 1); Table 2 gives only their sum.
_UNFRIENDLY = 0.05 / 6.12


def _stored(name: str) -> Callable[[], WorkloadModel]:
    return lambda: model_from_json(_FOLDER / f"{name}.json")


def _one_day(name: str, number: int, ones: float, middle: float, whole: float) -> Callable[[], WorkloadModel]:
    """A day with the shares of Table 2."""

    def make() -> WorkloadModel:
        shares = (ones, middle * (1 - _UNFRIENDLY), middle * _UNFRIENDLY, whole)
        model = _stored(name)().with_mix(shares)
        return replace(
            model,
            name=f"{name}-day-{number}",
            calibrated_to=f"{model.calibrated_to}; instance shares of {name.upper()} day {number} in Table 2",
            day_spread=0.0,
        )

    return make


def _demo() -> WorkloadModel:
    """A contended day with many 1-GPU jobs and a few of every size, on which fragmentation matters."""
    model = _stored("venus")().with_mix((0.70, 0.08, 0.01, 0.21)).with_gangs(1.0, largest=20)
    return replace(
        model,
        name="demo",
        calibrated_to="service times, gangs and rhythm of Venus; shares near those of its day 92",
        jobs_per_day=1_500.0,
        day_spread=0.0,
    )


def _phys_mix() -> WorkloadModel:
    """The physical experiment: 32 GPUs, minutes per task, five kinds of model."""
    minutes = (
        Durations(1, ((0.0, 60.0), (0.25, 150.0), (0.5, 300.0), (0.75, 600.0), (0.9, 1_200.0), (1.0, 2_400.0))),
        Durations(7, ((0.0, 90.0), (0.25, 240.0), (0.5, 420.0), (0.75, 900.0), (0.9, 1_500.0), (1.0, 2_700.0))),
        Durations(32, ((0.0, 120.0), (0.25, 240.0), (0.5, 480.0), (0.75, 900.0), (0.9, 1_500.0), (1.0, 2_700.0))),
    )
    # Per 1,000 jobs; instance shares midway between the traces' in Table 1, gangs of up to half the cluster.
    shapes = (
        Shape(1, 1, 545.0),
        Shape(2, 1, 12.0),
        Shape(1, 2, 45.0),
        Shape(1, 4, 38.0),
        Shape(1, 3, 1.0),
        Shape(1, 6, 1.0),
        Shape(1, 7, 1.0),
        Shape(1, 8, 290.0),
        Shape(2, 8, 67.0),
    )
    return WorkloadModel(
        name="phys-mix",
        calibrated_to="CV, NLP, LLM, recommender and multi-modal tasks of minutes on 32 GPUs; demands as in Table 1",
        jobs_per_day=75.0,
        day_spread=0.0,
        # One session of four hours.
        hourly=(1.0,) * 4 + (0.0,) * 20,
        shapes=shapes,
        durations=minutes,
        batch=1.5,
        batch_gap=10.0,
        families=(
            ("cv", (1, 2, 3, 4)),
            ("nlp", (1, 2, 4, 8)),
            ("llm", (4, 6, 7, 8)),
            ("rec", (1, 2)),
            ("multimodal", (2, 4, 8)),
        ),
    ).with_mix((0.5092, 0.0775, 0.0025, 0.4108))


def _nvl72() -> WorkloadModel:
    """Racks of 72 GPUs: inference and small training below a panel, training on whole panels up to a whole rack."""
    hours = (
        Durations(8, ((0.0, 60.0), (0.25, 600.0), (0.5, 1_800.0), (0.75, 7_200.0), (0.9, 21_600.0), (1.0, 86_400.0))),
        Durations(72, ((0.0, 300.0), (0.25, 1_800.0), (0.5, 5_400.0), (0.75, 14_400.0), (1.0, 57_600.0))),
        Durations(10**9, ((0.0, 900.0), (0.5, 7_200.0), (0.9, 28_800.0), (1.0, 57_600.0))),
    )
    # Shares of jobs, chosen: nobody has published what runs on racks.
    small = [Shape(1, gpus, weight) for gpus, weight in ((1, 300.0), (2, 90.0), (3, 8.0), (4, 170.0), (5, 4.0))]
    small += [Shape(1, 6, 8.0), Shape(1, 7, 2.0), Shape(1, 8, 200.0), Shape(2, 8, 40.0), Shape(4, 8, 20.0)]
    large = [Shape(1, 8 * panels, weight) for panels, weight in enumerate((60.0, 12.0, 40.0, 6.0, 8.0, 3.0, 12.0), 2)]
    return WorkloadModel(
        name="nvl72",
        calibrated_to="calibrated to no trace: sizes {1..8, 16, 24, ..., 72} in chosen shares, an office day",
        jobs_per_day=900.0,
        day_spread=0.0,
        hourly=(0.5,) * 7 + (1.0, 1.4, 1.6, 1.6, 1.4, 1.3, 1.5, 1.6, 1.6, 1.5, 1.3, 1.1, 1.0, 0.9, 0.8, 0.7, 0.6),
        shapes=(*small, *large, Shape(1, 72, 12.0), Shape(2, 72, 3.0)),
        durations=hours,
        batch=1.5,
        capacity=72,
    )


WORKLOADS: dict[str, Callable[[], WorkloadModel]] = {
    "venus": _stored("venus"),
    "gfs": _stored("gfs"),
    "venus-day-92": _one_day("venus", 92, 0.73, 0.06, 0.21),
    "gfs-day-58": _one_day("gfs", 58, 0.57, 0.04, 0.39),
    "gfs-day-26": _one_day("gfs", 26, 0.43, 0.09, 0.48),
    "phys-mix": _phys_mix,
    "demo": _demo,
    "nvl72": _nvl72,
}


def workload(name: str) -> WorkloadModel:
    """A shipped model."""
    if name not in WORKLOADS:
        raise TraceError(f"model is {name!r}, expected one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name]()
