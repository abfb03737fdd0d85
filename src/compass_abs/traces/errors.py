"""What can be wrong with a trace, said so that the reader can mend it."""

from compass_abs.model import CompassError


class TraceError(CompassError):
    """A trace that cannot be found, read, cut or sized as asked."""


class BadValueError(Exception):
    """One value that makes no sense; whoever knows the file and the row turns it into a `TraceError`."""

    def __init__(self, column: str, value: object, expected: str) -> None:
        shown = repr(value)
        self.column = column
        super().__init__(f"{column} is {shown if len(shown) <= 80 else shown[:77] + '...'}, expected {expected}")
