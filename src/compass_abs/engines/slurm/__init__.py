"""Slurm 22.05 and later: one Slurm job per instance, accounting and limits left to Slurm."""

from compass_abs.engines.slurm.engine import SlurmEngine

__all__ = ["SlurmEngine"]
