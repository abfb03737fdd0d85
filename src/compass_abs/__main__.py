"""`python -m compass_abs` is `compass`."""

from compass_abs.cli.main import run

run()
