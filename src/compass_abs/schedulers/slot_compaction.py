"""Which slots to move so that at most one slotted node has room: halves, level by level.

Deviation from the paper's Compact, whose width-4 and width-2 passes can leave three partial nodes where none is needed
(+6×(g=1), +1×(g=2), +2×(g=4): a pool node, {2,4} and {4}). Lemma A.4 takes {4} to have 2 GPUs left, and the width-2
pass never sees a node without a width-2 slot as a host.

The correction treats slots as binary numbers. At level b (2, 4, ... G/2) a node is *odd* when floor(width / b) is odd.
Two odd nodes become even by moving one b-block, that is slots of width b in all, from the emptier to the fuller; then
at most one is odd. What the levels so far left over sits on one node, the *carry* (width mod b ≠ 0), and is joined
with the odd node, whose free space is at least b. After the last level every node but the carry is full or empty of
slots: with G a power of two at most one slotted node keeps room. That is the paper's bound, now proven for every state.
"""

from collections.abc import Sequence

from compass_abs.model import Slot


def cheapest_block(slots: Sequence[Slot], width: int) -> list[Slot] | None:
    """Slots of exactly this width in all that make the fewest instances move; None if there are none.

    Package-merge: pairing the cheapest units of each width into units of twice the width is optimal, since widths are
    powers of two.
    """
    units: list[list[Slot]] = []
    level = 2
    while True:
        units += [[slot] for slot in slots if slot.width == level]
        units.sort(key=_instances)
        if level == width:
            return units[0] if units else None
        units = [units[k] + units[k + 1] for k in range(0, len(units) - 1, 2)]
        level *= 2


def remainder(slots: Sequence[Slot], width: int) -> list[Slot]:
    """Slots that make up a node's width modulo a power of two."""
    chosen: list[Slot] = []
    left = sum(slot.width for slot in slots) % width
    for slot in sorted(slots, key=lambda s: (-s.width, s.instances)):
        if slot.width <= left:
            chosen.append(slot)
            left -= slot.width
    return chosen


def _instances(unit: list[Slot]) -> int:
    return sum(slot.instances for slot in unit)
