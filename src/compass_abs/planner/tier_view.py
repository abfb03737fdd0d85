"""One level of domains as the planner sees nodes: members as GPUs, so that the same planner works on it.

An instance that lives on this level is an instance of so many members. A member that anything smaller uses is an
instance of one member, which moves with everything inside it and costs what that costs.
"""

from collections.abc import Sequence
from math import inf

from compass_abs.model import Cause, ClusterState, Instance, Job, Migration, NodeStatus
from compass_abs.planner.costs import FORBIDDEN, Charge, Costs
from compass_abs.planner.request import Wave
from compass_abs.topology import DomainState

#: Starts the names of jobs that stand for members here. No job of a user's has such a name.
_INTERNAL = "\0"


class TierView:
    """The domains of a level as nodes of a `ClusterState`, and where each item really is."""

    def __init__(self, state: DomainState, level: int, costs: Costs) -> None:
        topology = state.topology
        self.panels = state
        self.costs = costs
        self.size = topology.levels[level - 1].usable
        #: Panels of a member.
        self.member = 1 if level == 1 else topology.panels(level - 2)
        count = len(state.nodes) // (self.size * self.member)
        self.state = ClusterState(count, self.size)
        self.charges: dict[str, Charge] = {}
        #: What a member of an item costs at least to empty: gangs that pay once share that among all their members.
        self._shares: dict[str, float] = {}
        #: Members of each item now, and where its panels were at first.
        self.members: dict[Instance, list[int]] = {}
        self._origin: dict[Instance, list[int]] = {}
        self._free = [list(range(node * self.size, (node + 1) * self.size)) for node in range(count)]
        for job in state.whole.values():
            self._note_whole(job, level)
        for domain in range(count):
            for member in list(self._free[domain]):
                self._note_unit(member)

    def charge(self, job: Job) -> Charge:
        """What the planner is told that moving an item costs."""
        return self.charges[job.id]

    def small_prices(self, domain: int) -> list[tuple[float, int]]:
        """What it costs to empty members of a domain one by one: those that are free, or hold small jobs only."""
        prices = [(0.0, member) for member in self._free[domain]]
        for item in self.state.nodes[domain].contents:
            if self.state.gangs[item.job_id].job.movable and self._is_small(item):
                prices.append((self.charges[item.job_id].instance, self.members[item][0]))
        return prices

    def least_prices(self, domain: int) -> list[tuple[float, int]]:
        """What the same costs at least, of all members that may be emptied: a part of what is charged as a whole."""
        prices = [(0.0, member) for member in self._free[domain]]
        for item in self.state.nodes[domain].contents:
            if self.state.gangs[item.job_id].job.movable:
                price = self._shares[item.job_id]
                prices += [(price, member) for member in self.members[item]]
        return prices

    def take(self, domain: int, wanted: int) -> list[int]:
        """The lowest free members of a domain, now taken."""
        free = self._free[domain]
        taken, free[:wanted] = free[:wanted], []
        return taken

    def panels_of(self, members: Sequence[int]) -> list[int]:
        """The panels of these members."""
        return [member * self.member + offset for member in members for offset in range(self.member)]

    def waves(self, waves: Sequence[Wave], cause: Cause) -> tuple[Wave, ...]:
        """The planner's moves of items, as moves of what is inside them between panels."""
        found = []
        for wave in waves:
            if wave.together:
                for move in wave.moves:
                    self._give_back(self.members[move.instance])
            moves: list[Migration] = []
            for move in wave.moves:
                moves += self._moved(move.instance, move.target, cause, leaving=not wave.together)
            found.append(Wave(tuple(moves), wave.together))
        return tuple(found)

    # ---- reading the panels

    def _note_whole(self, job: Job, level: int) -> None:
        lives_on, units = self.panels.topology.demand(job.gpus)
        if lives_on < level:
            return
        panels = self.panels.gangs[job.id].nodes
        up = all(self.panels.nodes[panel].status is NodeStatus.UP for panel in panels)
        if lives_on == level:
            members = [panel // self.member for panel in panels[:: self.member]]
            charge = self.costs.charge(job)
            self._shares[job.id] = charge.gang / len(members) + charge.instance * self.member
            charge = Charge(charge.gang, charge.instance * units * self.member)
            self._note(job.id, units, members, charge, job.movable and up)
            return
        for first in range(0, len(panels), self.size * self.member):
            domain = panels[first] // (self.size * self.member)
            members = list(range(domain * self.size, (domain + 1) * self.size))
            self._note(f"{_INTERNAL}held {domain}", self.size, members, FORBIDDEN, False)

    def _note_unit(self, member: int) -> None:
        nodes = self.panels.nodes[member * self.member : (member + 1) * self.member]
        jobs: dict[str, int] = {}
        up = True
        for node in nodes:
            up = up and node.status is NodeStatus.UP
            for instance in node.contents:
                jobs[instance.job_id] = jobs.get(instance.job_id, 0) + 1
        if up and not jobs:
            return
        gang = each = share = 0.0
        for job_id, instances in jobs.items():
            job = self.panels.job(job_id)
            charge = self.costs.charge(job) if job.movable else FORBIDDEN
            gang, each = gang + charge.gang, each + charge.instance * instances
            share += charge.gang * instances / self.panels.gangs[job_id].job.instances
        movable = up and gang < inf and each < inf
        name = f"{_INTERNAL}unit {member}"
        self._shares[name] = share + each
        self._note(name, 1, [member], Charge(0.0, gang + each), movable)

    def _note(self, job_id: str, size: int, members: list[int], charge: Charge, movable: bool) -> None:
        instances = len(members) // size
        self.charges[job_id] = charge
        self.state.place(
            Job(job_id, instances, size, movable=movable), [member // self.size for member in members[::size]]
        )
        for number in range(instances):
            own = members[number * size : (number + 1) * size]
            self.members[Instance(job_id, number)] = own
            self._origin[Instance(job_id, number)] = self.panels_of(own)
            for member in own:
                self._free[member // self.size].remove(member)

    def _is_small(self, item: Instance) -> bool:
        whole = self.panels.whole
        return not any(
            inside.job_id in whole for panel in self._origin[item] for inside in self.panels.nodes[panel].contents
        )

    # ---- moving

    def _moved(self, instance: Instance, target: int, cause: Cause, *, leaving: bool) -> list[Migration]:
        old = self.members[instance]
        new = self.take(target, len(old))
        self.members[instance] = new
        moves = []
        for first, source, destination in zip(
            self._origin[instance], self.panels_of(old), self.panels_of(new), strict=True
        ):
            contents = self.panels.nodes[first].contents
            moves += [Migration(inside, source, destination, contents[inside], cause) for inside in sorted(contents)]
        if leaving:
            self._give_back(old)
        return moves

    def _give_back(self, members: Sequence[int]) -> None:
        free = self._free[members[0] // self.size]
        free += members
        free.sort()
