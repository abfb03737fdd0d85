"""What reports say: the verdict, the numbers as written, who is best, and the looks of schedulers."""

import pytest

from compass_abs.reporting import Comparison, JobView, ReportError, RunView, settings_shown, verdict
from compass_abs.reporting.metrics import METRICS, best, duration, percent, with_ratios, written
from compass_abs.reporting.palette import LOOKS, looks, name_of
from compass_abs.simulation import PaperCost, Setup
from compass_abs.simulation.costs import Cost, StrictCost

BY_KEY = {metric.key: metric for metric in METRICS}


def run(scheduler: str, ajct: float, **summary: float) -> RunView:
    return RunView(scheduler, {"ajct": ajct, **summary})


def test_verdict_names_winner_bound_second_and_last() -> None:
    text = verdict(
        [
            run("sif-opt", 1000.0),
            run("gfs", 1200.0, blocked_fragmentation=7200.0, migrations_per_job=0.0),
            run("compass-abs", 1020.0, blocked_fragmentation=60.0, migrations_per_job=0.2),
            run("compass-jit", 1001.0, blocked_fragmentation=0.0, migrations_per_job=0.04),
        ]
    )
    assert text == (
        "COMPASS-JIT completes jobs soonest: in 16 min 41 s on average, 0.10 % above what a cluster without any "
        "fragmentation would need. COMPASS-ABS follows 19.0 s (1.86 %) behind, GFS (best fit) comes last, 3 min 19 s "
        "behind. COMPASS-JIT moves 0.040 instances per job and never leaves the head of the queue blocked by "
        "fragmentation (GFS (best fit): 2 h 00 min)."
    )


def test_verdict_of_a_winner_whom_fragmentation_blocked_says_for_how_long() -> None:
    text = verdict([run("gfs", 10.0, blocked_fragmentation=90.0), run("fgd", 12.0, blocked_fragmentation=60.0)])
    assert text.endswith("GFS (best fit) leaves the head of the queue blocked by fragmentation for 1 min 30 s in all.")


def test_verdict_of_equals_names_all_of_them() -> None:
    assert verdict([run("gfs", 10.0), run("fgd", 10.0)]).startswith("GFS (best fit) and FGD complete jobs soonest")


def test_verdict_of_a_single_run_compares_it_with_nobody() -> None:
    assert verdict([run("gfs", 90.0)]) == "GFS (best fit) completes jobs soonest: in 1 min 30 s on average."


def test_verdict_at_the_bound_says_so() -> None:
    assert "exactly what a cluster without" in verdict([run("bound", 10.0), run("gfs", 10.0)])


def test_verdict_never_praises_the_bound() -> None:
    assert verdict([run("sif-opt", 1.0), run("gfs", 2.0)]).startswith("GFS")


def test_best_is_judged_as_written_and_bounds_do_not_compete() -> None:
    runs = [
        run("bound", 1.0, afr=0.0),
        run("a", 1.0, afr=0.0123412),
        run("b", 1.0, afr=0.0123414),
        run("c", 1.0, afr=0.5),
    ]
    assert best(BY_KEY["afr"], runs, with_ratios(runs)) == {1, 2}


def test_nobody_is_best_where_all_are_equal() -> None:
    runs = [run("a", 1.0, agu=0.9), run("b", 1.0, agu=0.9)]
    assert best(BY_KEY["agu"], runs, with_ratios(runs)) == frozenset()


def test_higher_utilisation_is_better() -> None:
    runs = [run("a", 1.0, agu=0.9), run("b", 1.0, agu=0.95)]
    assert best(BY_KEY["agu"], runs, with_ratios(runs)) == {1}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (8.04, "8.0 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"), (47 * 3600, "47 h 00 min"), (48 * 3600, "2 d 00 h"), (-90, "−1 min 30 s"),
    ],
)  # fmt: skip
def test_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.1772, "+17.7 %"), (0.0021, "+0.21 %"), (0.00003, "+0.003 %")])
def test_percent_has_digits_enough_to_see_something(value: float, text: str) -> None:
    assert percent(value) == text


def test_missing_and_undefined_values_are_a_dash() -> None:
    assert written(BY_KEY["afr"], None) == written(BY_KEY["afr"], float("nan")) == "–"


def test_every_known_scheduler_has_a_look_of_its_own() -> None:
    seen = [(look.color, look.dash) for name, look in LOOKS.items() if name not in ("bound",)]
    assert len(dict.fromkeys(seen)) == len(seen)


def test_strangers_and_settings_get_looks_that_differ() -> None:
    names = [*LOOKS, "my-rule", "your-rule", "fft:period=60", "fft:period=900"]
    found = looks(names)
    assert (
        len({(look.color, look.dash, look.marker) for name, look in found.items() if name != "bound"}) == len(names) - 1
    )
    assert found["fft:period=60"].color == LOOKS["fft"].color


def test_look_of_a_scheduler_does_not_depend_on_the_company() -> None:
    assert looks(["compass-abs"])["compass-abs"] == looks(["x", "compass-abs", "gfs"])["compass-abs"]


def test_setting_of_a_known_scheduler_is_named_after_it() -> None:
    assert name_of("fft:period=60") == "FFT (period 60)"
    assert name_of("mine") == "mine"


def test_comparison_without_runs_or_with_namesakes_is_refused() -> None:
    jobs = [JobView("a", 1, 1, 0.0)]
    with pytest.raises(ReportError, match="no run"):
        Comparison("empty", jobs, 1, [])
    with pytest.raises(ReportError, match="two runs are called 'GFS"):
        Comparison("twins", jobs, 1, [run("gfs", 1.0), run("gfs", 2.0)])


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (PaperCost(8), "delays each gang that moves in an event by 8 s"),
        (StrictCost(2, 5.5), "checkpoint 2 s, restore 5.5 s; GPUs are free once the checkpoint is taken"),
    ],
)
def test_settings_shown_are_those_that_make_a_difference(cost: Cost, said: str) -> None:
    shown = settings_shown(Setup("gfs", 3, cost=cost).as_dict(), {"part": "day 92", "source": "jobs.csv"})
    assert shown == {
        "jobs": "day 92", "cluster": "3 nodes of 8 GPUs", "queue": "fifo", "migration": said, "source": "jobs.csv",
    }  # fmt: skip


def test_settings_name_a_file_and_its_folder_and_not_where_on_the_machine_that_is() -> None:
    shown = settings_shown(Setup("gfs", 3).as_dict(), {"source": "/home/someone/traces/venus/cluster_log.csv"})
    assert shown["source"] == "venus/cluster_log.csv"
