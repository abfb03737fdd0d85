"""Every random generator a step may draw from, saved and put back, so that a resumed run draws what the other would."""

import random
import sys
from typing import Any


def capture() -> dict[str, Any]:
    """States of Python's, NumPy's and torch's generators, as far as the program has loaded them."""
    states: dict[str, Any] = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = numpy.random.get_state()
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        # This process's own device: its peers save theirs.
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state()
    return states


def put_back(states: dict[str, Any]) -> None:
    """Sets the generators to these states."""
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
    if "torch" in states:
        import torch

        torch.set_rng_state(states["torch"].clone())
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["cuda"].clone())
