"""A scheduler that is nothing but a placement rule of `histogram.py`."""

from abc import abstractmethod

from compass_abs.model import Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.histogram import Order, choose_nodes


class HistogramScheduler(Scheduler):
    """Admits a gang as soon as its instances fit, one after the other, each on the free count it prefers."""

    @abstractmethod
    def order(self, job: Job, situation: Situation) -> Order:
        """The free counts on which to put an instance of this job, best first."""

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job where its rule puts it; or says why not."""
        state = self.state
        if job.gpus > state.capacity:
            state.check_job(job)
        # Most that wait do so for lack of GPUs: that is seen without looking where they are.
        if job.instances * job.gpus > state.free_gpus:
            return self.blocked(job)
        nodes = choose_nodes(state, job.gpus, job.instances, self.order(job, situation))
        if nodes is None:
            return self.blocked(job)
        state.place(job, nodes)
        return Decision(job, tuple(nodes))
