"""A node and what is on it."""

from enum import StrEnum

from compass_abs.model.job import Instance


class NodeStatus(StrEnum):
    """Whether a node takes part in scheduling."""

    UP = "up"
    CORDONED = "cordoned"
    """Keeps what it runs, gets nothing new."""
    DRAINING = "draining"
    """Is being emptied."""
    LOST = "lost"
    """Gone, with everything that ran on it."""


class Node:
    """`free` GPUs of a fixed capacity and the instances that hold the others."""

    __slots__ = ("contents", "free", "index", "name", "pinned", "status")

    def __init__(self, index: int, name: str, capacity: int) -> None:
        self.index = index
        self.name = name
        self.free = capacity
        self.status = NodeStatus.UP
        #: GPUs of each instance on this node.
        self.contents: dict[Instance, int] = {}
        #: How many of them may not move.
        self.pinned = 0

    def __repr__(self) -> str:
        return f"Node({self.name!r}, free={self.free}, {self.status}, {self.contents})"
