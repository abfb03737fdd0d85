"""Ports for a test cluster: another one may run at the same time."""

import random
import socket
from collections.abc import Iterable, Sequence


def free_ports(among: Sequence[int], offsets: Iterable[int]) -> int:
    """One of these ports from which on all that are this far from it are free."""
    wanted = tuple(offsets)
    while True:
        first = random.SystemRandom().choice(among)
        if not any(_is_taken(first + offset) for offset in wanted):
            return first


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False
