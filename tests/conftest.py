"""Settings shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci")

#: The real traces are not ours to ship: they lie beside the checkout, or where COMPASS_TRACES says.
TRACES = Path(os.environ.get("COMPASS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces; the test is skipped where there is none."""
    if not TRACES.is_dir():
        pytest.skip(f"no real traces in {TRACES}; set COMPASS_TRACES to the folder that holds them")
    return TRACES
