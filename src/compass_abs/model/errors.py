"""Errors that a user can act on: each names the thing, the value, and the remedy."""


class CompassError(Exception):
    """Any mistake in what was asked of us; the command line prints it and exits with 2."""


class InvalidJobError(CompassError):
    """A job whose demand makes no sense or cannot fit a node."""


class UnknownJobError(CompassError):
    """A job that is not running here."""


class DuplicateJobError(CompassError):
    """A job id that is running already."""


class UnknownNodeError(CompassError):
    """A node that the cluster does not have."""


class PlacementError(CompassError):
    """A placement, move or release that the cluster's state does not allow."""


class InvariantError(CompassError):
    """The state contradicts itself: a defect, with the history of the jobs involved."""
