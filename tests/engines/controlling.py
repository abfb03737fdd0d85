"""A controller with its API in a process of its own, to be killed at any moment.

python -m tests.engines.controlling STATE PORT ENGINE [ARGUMENT ...]   (engines: tests.engines.opening)
"""

import sys
from pathlib import Path

from compass_abs.controller.migration import Patience
from compass_abs.controller.reconcile import Config
from compass_abs.controller.server import Settings, serve
from tests.engines.opening import open_engine

#: Short enough for a test to see what happens when it runs out.
PATIENCE = Patience(checkpoint=15, stop=5, wait=30, start=30, first_step=45)


def main() -> None:
    state, port, kind, *arguments = sys.argv[1:]
    config = Config(scheduler="best-fit", patience=PATIENCE, settling=1.0)
    serve(Settings(Path(state), port=int(port), config=config), lambda: open_engine(kind, arguments))


main()
