"""A set of small integers that gives its lowest member at once, whatever its size."""

from collections.abc import Iterator

# Bits in a word. Two levels of 512 cover 262,144 members before the summary outgrows a word; past that it
# only gets slower by what a longer integer costs (measured flat to 1,000,000).
_SHIFT = 9
_MASK = (1 << _SHIFT) - 1
# Looked up faster than shifted.
_BITS = [1 << k for k in range(_MASK + 1)]


class IndexSet:
    """An ordered set of indices below a fixed size: add, remove, lowest member in constant time.

    Choosing the lowest index, rather than the oldest entry, makes every choice a function of the placements
    alone, so that a restored scheduler decides as the one it replaces would have.
    """

    __slots__ = ("_summary", "_words", "size")

    def __init__(self, size: int) -> None:
        self._words = [0] * ((size >> _SHIFT) + 1)
        self._summary = 0
        #: How many members there are; read it, don't write it.
        self.size = 0

    def grow(self, size: int) -> None:
        """Makes room for indices below `size`."""
        missing = (size >> _SHIFT) + 1 - len(self._words)
        if missing > 0:
            self._words.extend([0] * missing)

    def add(self, index: int) -> None:
        """Adds an index that is not a member."""
        word = index >> _SHIFT
        old = self._words[word]
        if not old:
            self._summary |= 1 << word
        self._words[word] = old | _BITS[index & _MASK]
        self.size += 1

    def remove(self, index: int) -> None:
        """Removes an index that is a member."""
        word = index >> _SHIFT
        new = self._words[word] ^ _BITS[index & _MASK]
        self._words[word] = new
        if not new:
            self._summary ^= 1 << word
        self.size -= 1

    def hand_over(self, index: int, other: "IndexSet") -> None:
        """Removes a member and adds it to another set, in less time than one after the other."""
        word, bit = index >> _SHIFT, _BITS[index & _MASK]
        words = self._words
        left = words[word] ^ bit
        words[word] = left
        if not left:
            self._summary ^= 1 << word
        self.size -= 1
        words = other._words
        old = words[word]
        if not old:
            other._summary |= 1 << word
        words[word] = old | bit
        other.size += 1

    def discard(self, index: int) -> None:
        """Removes an index if it is a member."""
        if index in self:
            self.remove(index)

    def include(self, index: int) -> None:
        """Adds an index unless it is a member."""
        if index not in self:
            self.add(index)

    def first(self) -> int:
        """The lowest member; -1 when empty."""
        summary = self._summary
        if not summary:
            return -1
        word = (summary & -summary).bit_length() - 1
        bits = self._words[word]
        return (word << _SHIFT) + (bits & -bits).bit_length() - 1

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __contains__(self, index: int) -> bool:
        return bool((self._words[index >> _SHIFT] >> (index & _MASK)) & 1)

    def __iter__(self) -> Iterator[int]:
        """Members in ascending order. Don't change the set while iterating; copy with `list()` first."""
        summary = self._summary
        while summary:
            low = summary & -summary
            word = low.bit_length() - 1
            base = word << _SHIFT
            bits = self._words[word]
            while bits:
                bit = bits & -bits
                yield base + bit.bit_length() - 1
                bits ^= bit
            summary ^= low

    def __repr__(self) -> str:
        return f"IndexSet({list(self)})"
