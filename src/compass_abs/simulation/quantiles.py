"""Percentiles of a stream in bounded memory: exact for as long as it is short, to one part in a thousand after that."""

import math
from array import array
from bisect import bisect_right
from itertools import accumulate

#: Values kept as they are: 512 KiB, and more jobs than a day of any published trace has.
EXACT = 65_536
#: Largest relative error of a percentile once values are folded into buckets.
ACCURACY = 0.001
_LOG_BASE = math.log((1 + ACCURACY) / (1 - ACCURACY))


class Quantiles:
    """Whole numbers ≥ 0, of which any percentile can be asked."""

    __slots__ = ("_buckets", "_exact", "_folded", "count", "total")

    def __init__(self) -> None:
        self._exact = array("q")
        #: Number of values by bucket: bucket b > 0 holds (base^(b-1), base^b], bucket 0 holds zeros and ones.
        self._buckets: dict[int, int] = {}
        self._folded = False
        self.count = 0
        self.total = 0

    def add(self, value: int) -> None:
        """One more value."""
        self.count += 1
        self.total += value
        self._exact.append(value)
        if len(self._exact) >= EXACT:
            self._fold()

    @property
    def exact(self) -> bool:
        """True while percentiles are those of the values themselves."""
        return not self._folded

    def mean(self) -> float:
        """The average; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> float:
        """The smallest value that at least this share of the values doesn't exceed; 0 of nothing."""
        if not self.count:
            return 0.0
        rank = max(1, math.ceil(share * self.count))
        if not self._folded:
            return float(sorted(self._exact)[rank - 1])
        self._fold()
        keys = sorted(self._buckets)
        upto = list(accumulate(self._buckets[key] for key in keys))
        key = keys[bisect_right(upto, rank - 1)]
        # The value whose relative distance to both ends of the bucket is the same.
        return 0.0 if key == 0 else math.exp(_LOG_BASE * key) * (1 - ACCURACY)

    def _fold(self) -> None:
        buckets = self._buckets
        for value in self._exact:
            key = math.ceil(math.log(value) / _LOG_BASE) if value > 1 else 0
            buckets[key] = buckets.get(key, 0) + 1
        self._exact = array("q")
        self._folded = True
