"""The paper's studies, and anybody's own sweeps."""

from compass_abs.experiments.cell import Cell, run_cell
from compass_abs.experiments.errors import StudyError, SweepError
from compass_abs.experiments.executors import Executor, Outcome, make_executor
from compass_abs.experiments.grid import cells_of
from compass_abs.experiments.output import StudyResult, evaluate, write_study
from compass_abs.experiments.page import write_page
from compass_abs.experiments.paper_and_us import write_comparison_with_paper
from compass_abs.experiments.runner import Progress, run_cells
from compass_abs.experiments.store import ResultStore
from compass_abs.experiments.study import Study, load_study, read_study, sampled, shipped_studies, study_text

__all__ = [
    "Cell",
    "Executor",
    "Outcome",
    "Progress",
    "ResultStore",
    "Study",
    "StudyError",
    "StudyResult",
    "SweepError",
    "cells_of",
    "evaluate",
    "load_study",
    "make_executor",
    "read_study",
    "run_cell",
    "run_cells",
    "sampled",
    "shipped_studies",
    "study_text",
    "write_comparison_with_paper",
    "write_page",
    "write_study",
]
