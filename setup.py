"""Ahead-of-time compilation of the hot modules by mypyc when COMPASS_NATIVE=1; all else is in pyproject.toml."""

import os

from setuptools import setup

# The same typed sources, compiled: what every event runs through. `schedulers/base.py` stays interpreted, so that
# users' own schedulers can derive from it.
HOT = [
    f"src/compass_abs/{name}.py"
    for name in (
        "model/index_set",
        "model/errors",
        "model/node",
        "model/decision",
        "model/cluster_state",
        "topology/topology",
        "topology/domain_state",
        "schedulers/anchor_based_space",
        "schedulers/slot_compaction",
        "schedulers/move_chains",
        "schedulers/housing",
        "schedulers/compass_abs",
        "schedulers/compass_literal",
        "schedulers/compass_residual",
        "schedulers/histogram",
        "schedulers/demand",
        "schedulers/hierarchical_operators",
        "schedulers/hierarchical_tiers",
    )
]

if os.environ.get("COMPASS_NATIVE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(HOT, opt_level="3"))
else:
    setup()
