"""What can be wrong with a study or a sweep."""

from compass_abs.model import CompassError


class StudyError(CompassError):
    """A study that can't be read, or asks for what doesn't exist."""


class SweepError(CompassError):
    """A sweep that could not be carried out."""
