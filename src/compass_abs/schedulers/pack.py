"""kube-scheduler set to bin packing, as far as GPUs go."""

from typing import ClassVar

from compass_abs.schedulers.best_fit import BestFit


class MostAllocated(BestFit):
    """Pack: each instance goes to the node with the fewest free GPUs that holds it (kube-scheduler's MostAllocated).

    Scored by GPUs alone this is best fit, under the name by which a Kubernetes user knows it. Gangs are admitted
    whole, as a coscheduling plugin does.
    """

    name: ClassVar[str] = "pack"
    source: ClassVar[str] = "Kubernetes: NodeResourcesFit, scoringStrategy MostAllocated"
