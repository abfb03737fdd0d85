"""Where the runs of a sweep are carried out: here, on Ray, or on Slurm."""

from compass_abs.experiments.executors.base import Executor, Outcome, make_executor

__all__ = ["Executor", "Outcome", "make_executor"]
