"""Which pod of a user's serves as a run: the one that was there first, its owner's replacement, or a copy of ours."""

import time
from collections.abc import Callable
from pathlib import Path

from compass_abs.engines.kubernetes import owners, pods
from compass_abs.engines.kubernetes.client import Client, Object
from compass_abs.engines.kubernetes.gangs import Gang, GangStore
from compass_abs.engines.kubernetes.ledger import Ledger
from compass_abs.engines.kubernetes.manifest import successor
from compass_abs.engines.kubernetes.runs import PodRun
from compass_abs.engines.protocol import End, EndCause, EngineRefusalError, StartOrder
from compass_abs.training import contract

#: An owner that makes a pod anew does it within this time; Jobs wait longer after each failure, up to 6 min.
_PATIENCE = 420.0


class UsersPods:
    """Pods that users or their controllers made."""

    def __init__(self, client: Client, gangs: GangStore, ledger: Ledger, owner: str) -> None:
        self._client, self._gangs, self._ledger, self._owner = client, gangs, ledger, owner

    def gang_of(self, order: StartOrder) -> Gang:
        """The gang that a job stands for."""
        key = order.workload.command[1] if len(order.workload.command) > 1 else ""
        gang = self._gangs.load(key)
        if gang is None or order.run.number >= len(gang.members):
            raise EngineRefusalError(f"{order.run}: there is no gang of pods {key!r}")
        return gang

    def pod_for(
        self, run: PodRun, taken: Callable[[str], bool], create: Callable[[Object, PodRun], Object]
    ) -> Object | None:
        """An unbound pod for this run; None while its owner has made none. Refuses when there won't be any."""
        gang = self._gangs.load(run.gang)
        if gang is None:
            raise EngineRefusalError(f"{run.run}: its gang of pods is no longer known")
        number = run.run.number
        own = self._ledger.waits(*pods.key_of(gang.members[number]))
        is_first = own is not None and pods.metadata(own)["uid"] == gang.uids[number]
        if own is not None and is_first and not taken(gang.uids[number]) and self._fits(own, gang, number):
            # Nearly always. The rest looks at every pod that waits.
            return own
        marked = [pod for pod in self._ledger.waiting() if pods.run_of(pod, self._owner) == run.run]
        candidates = marked or [
            pod
            for pod in self._ledger.waiting()
            if self._fits(pod, gang, number) and not taken(pods.metadata(pod)["uid"])
        ]
        first = [pod for pod in candidates if pods.metadata(pod)["uid"] == gang.uids[number]]
        # Another member's own pod is for that member.
        others = [pod for pod in candidates if pods.metadata(pod)["uid"] not in gang.uids]
        found = next(iter(first or others), None) or self._bound_already(run, gang)
        if found is not None:
            return found
        if gang.alone:
            raise EngineRefusalError(f"{run.run}: its pod is gone; its Job makes another, which is a job of its own")
        if not gang.owned:
            return create(successor(gang.members[number], run, self._owner), run)
        return None

    def _fits(self, pod: Object, gang: Gang, number: int) -> bool:
        if pods.waits_for_a_gate(pod):
            return False
        if pods.metadata(pod)["uid"] == gang.uids[number]:
            return True
        member = owners.membership(pod)
        if member.key != gang.membership:
            return False
        return member.marks == gang.indices[number] or not any(gang.indices[number])

    def _bound_already(self, run: PodRun, gang: Gang) -> Object | None:
        """The pod that an earlier engine bound before it could write that down."""
        for (namespace, name), holding in self._ledger.holdings(run.node).items():
            if holding.run == run.run and namespace == gang.namespace:
                return self._client.find(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return None

    def out_of_patience(self, run: PodRun) -> bool:
        """True when its owner has had time enough."""
        return time.monotonic() > run.known_since + _PATIENCE

    @staticmethod
    def no_replacement(why: str) -> End:
        """The end of a run that has no pod."""
        return End(EndCause.EVICTED, detail=f"no pod took its place: {why}")

    def clear_control(self, run: PodRun) -> None:
        """Empties the control directory that the user's pod names of the last generation, and links to it."""
        gang = self._gangs.load(run.gang)
        if gang is None or not gang.control_dir:
            return
        folder = Path(gang.control_dir)
        number = run.run.number
        rank_files = [contract.acknowledgement_file(number), contract.progress_file(number)]
        for name in [*rank_files, contract.directive_file(number), contract.REQUEST_FILE]:
            (folder / name).unlink(missing_ok=True)
        self.link_control(run)

    def link_control(self, run: PodRun) -> None:
        """Links the run's control directory to the one that the user's pod names."""
        gang = self._gangs.load(run.gang)
        if gang is None or not gang.control_dir:
            return
        folder = Path(gang.control_dir)
        if run.control.exists() and not run.control.is_symlink() and not any(run.control.iterdir()):
            run.control.rmdir()
            run.control.symlink_to(folder)
