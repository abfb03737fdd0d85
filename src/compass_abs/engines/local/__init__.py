"""Virtual nodes on this machine, every instance a real process: for trying out, for tests, for one big server."""

from compass_abs.engines.local.engine import LocalEngine
from compass_abs.engines.local.warm import Warmth

__all__ = ["LocalEngine", "Warmth"]
