"""A study that takes a second: two synthetic days on small clusters."""

from typing import Any

from compass_abs.experiments import Study

SCHEDULERS = ("sif-opt", "gfs", "fgd", "compass-abs", "compass-jit")


def small_study(**changes: Any) -> Study:
    """The study, with some of its fields replaced; with other schedulers, without what speaks of its own."""
    content: dict[str, Any] = {
        "name": "small",
        "title": "A small study",
        "workloads": [{"synth": "venus", "length": 3, "seed": 5, "days": [2, 3], "knobs": {"load": 0.3}}],
        "schedulers": list(SCHEDULERS),
        "eta": [0.85, 0.9],
        "tables": [{"name": "overall", "by": ["eta", "scheduler"], "values": ["ajct", "ajct_ratio", "afr"]}],
        "figures": [
            {"name": "bars", "kind": "bars", "y": ["afr", "agu"], "where": {"eta": 0.9}},
            {"name": "lines", "kind": "lines", "x": "eta", "y": ["ajct_ratio"]},
            {"name": "points", "kind": "points", "x": "migrations_per_job", "y": ["ajct_ratio"], "panels": "eta"},
        ],
        "rankings": [{"name": "top", "subject": "compass-abs", "field": ["gfs", "fgd"]}],
    }
    if "schedulers" in changes:
        content |= {"tables": [], "figures": [], "rankings": []}
    return Study.model_validate(content | changes)
