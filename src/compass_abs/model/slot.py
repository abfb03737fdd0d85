"""A slot: what an anchor reserves of a node (section 4.2)."""

from typing import NamedTuple

from compass_abs.model.job import Instance


class Slot(NamedTuple):
    """A GPU block of a node: its anchor and the fillers of its vacancy."""

    width: int
    anchor: Instance
    fillers: tuple[Instance, ...]

    @property
    def instances(self) -> int:
        """How many instances move when the slot moves."""
        return 1 + len(self.fillers)
