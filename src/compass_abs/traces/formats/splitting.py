"""How a number of GPUs becomes instances, for files that give only the sum."""

from compass_abs.traces.gathering import LeftOut


def equal_instances(gpus: int, capacity: int) -> tuple[int, int] | LeftOut:
    """(instances, GPUs of each): ceil(n / capacity) equal ones, as in the paper's preprocessing.

    n = 12 is 2 × 6. When ceil(n / capacity) does not divide n (9, 20, ...) no homogeneous gang on the fewest nodes
    exists; the paper keeps homogeneous jobs only, so such a job is left out and counted.
    """
    if gpus == 0:
        return LeftOut.NO_GPU
    instances = -(-gpus // capacity)
    each, rest = divmod(gpus, instances)
    return LeftOut.UNEQUAL if rest else (instances, each)
