"""Just-in-time compaction: best fit, and the cheapest moves exactly when the head of the queue needs them."""

from itertools import islice
from typing import Annotated, ClassVar

from compass_abs.fragmentation import inherent
from compass_abs.model import (
    ClusterState,
    Decision,
    Job,
    Migration,
    NodeStatus,
    Verdict,
)
from compass_abs.planner import Costs, Drain, Effort, Impossible, Limits, Obstacle, Plan, Room, Tidy, plan
from compass_abs.planner.allowance import Allowance, Denial
from compass_abs.planner.ledger import Ledger
from compass_abs.planner.policy import Objective, Policy, Tidiness
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.histogram import choose_nodes
from compass_abs.schedulers.parameters import Within

_Counted = Annotated[int | None, Within("instances; none for any number", least=0)]


class CompassJit(Scheduler):
    """Best fit; when the head is blocked although a packing exists, the cheapest moves that let it start.

    With every job movable and no budget set, the head waits only if no packing of the running jobs and itself
    exists on the nodes that are up. What may move and at what price is a `Policy`.
    """

    name: ClassVar[str] = "compass-jit"
    source: ClassVar[str] = "this project (docs/just-in-time.md)"

    def __init__(
        self,
        state: ClusterState,
        *,
        tidiness: Annotated[Tidiness, "when to move although nobody would start"] = Tidiness.NEVER,
        objective: Annotated[Objective, "what makes a plan cheap"] = Objective.MOVES,
        effort: Annotated[Effort, "how hard to look for the cheapest plan"] = Effort.BALANCED,
        pause: Annotated[float, Within("seconds that a move costs a gang", least=0)] = 8.0,
        priority_factor: Annotated[float, Within("price of a step of priority", least=1, most=1000)] = 4.0,
        spare_last: Annotated[float, Within("seconds before its end in which a job stays", least=0)] = 0.0,
        cooldown: Annotated[float, Within("seconds after its start or move in which it stays", least=0)] = 0.0,
        moves_in_flight: _Counted = None,
        moves_per_hour: _Counted = None,
        moves_per_job: _Counted = None,
        value: Annotated[float, Within("GPU-seconds saved for each one of disruption", least=0)] = 0.0,
        windows: Annotated[str, "times of day at which moves are allowed"] = "",
    ) -> None:
        super().__init__(state)
        self.policy = Policy.from_mapping(
            {
                "tidiness": tidiness,
                "objective": objective,
                "effort": effort,
                "pause": pause,
                "priority_factor": priority_factor,
                "spare_last": spare_last,
                "cooldown": cooldown,
                "moves_in_flight": moves_in_flight,
                "moves_per_hour": moves_per_hour,
                "moves_per_job": moves_per_job,
                "value": value,
                "windows": windows,
            }
        )
        self.ledger = Ledger()
        self._orders = [range(gpus, state.capacity + 1) for gpus in range(state.capacity + 1)]
        self._draining: list[int] = []
        self.rebuild()

    @classmethod
    def under(cls, state: ClusterState, policy: Policy) -> "CompassJit":
        """A scheduler under this policy."""
        scheduler = cls(state)
        scheduler.policy = policy
        return scheduler

    def repacks(self) -> bool:
        """True as long as the policy stands between no job and a plan for it."""
        policy = self.policy
        limits = (policy.moves_in_flight, policy.moves_per_hour, policy.moves_per_job)
        delays = policy.spare_last or policy.cooldown or policy.value or policy.windows
        return policy.effort is not Effort.FAST and not delays and all(limit is None for limit in limits)

    # ---- events

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job where it fits best, or moves what keeps it from fitting, or says why it must wait."""
        state = self.state
        state.check_job(job)
        nodes = self.choose(job)
        if nodes is not None:
            decision = self.start(job, nodes)
        else:
            decision = self._make_room(job, situation)
        if self._tidies(job, decision, situation):
            decision.after = self._tidy(situation)
        return decision

    def finish(self, job_id: str, situation: Situation) -> Decision:
        """Frees the job's GPUs; goes on emptying nodes that are being drained, and tidies where that is wanted."""
        decision = super().finish(job_id, situation)
        self.ledger.forget(job_id)
        for index in self._draining:
            decision.after += self._drain(index, situation)
        # While somebody waits, the queue is served next, and tidying first could move what that moves again.
        if self.policy.tidiness is Tidiness.ALWAYS and not situation.waiting:
            decision.after += self._tidy(situation)
        return decision

    def set_status(self, name: str, status: NodeStatus, situation: Situation) -> Decision:
        """Follows a node's status; a node that is to be drained is emptied at once if its instances fit elsewhere."""
        decision = super().set_status(name, status, situation)
        if status is NodeStatus.DRAINING:
            decision.after = self._drain(self.state.index_of[name], situation)
        return decision

    def undo(self, decision: Decision) -> None:
        """Takes back the latest decision, and what budgets noted of it."""
        for moves in (decision.after, decision.before):
            if moves:
                self.ledger.take_back(moves)
        super().undo(decision)

    def rebuild(self) -> None:
        """Finds the nodes that are being drained."""
        self._draining = [node.index for node in self.state.nodes if node.status is NodeStatus.DRAINING]

    # ---- what another shape of cluster answers differently

    def choose(self, job: Job) -> list[int] | None:
        """The nodes for a job where it fits as it is: those with the fewest free GPUs that suffice."""
        return choose_nodes(self.state, job.gpus, job.instances, self._orders[job.gpus])

    def plan_room(self, job: Job, allowance: Allowance, limits: Limits) -> Plan | Impossible:
        """The cheapest moves that make room for a job that doesn't fit as it is."""
        return plan(self.state, Room(job.instances, job.gpus), allowance, limits, self.policy.effort)

    def charges(self, allowance: Allowance) -> Costs:
        """What moves cost that nobody waits for."""
        return allowance

    # ---- a blocked head

    def _make_room(self, job: Job, situation: Situation) -> Decision:
        allowance = self.allowance(situation)
        limit = allowance.moves()
        outcome = self.plan_room(job, allowance, Limits(moves=limit))
        if isinstance(outcome, Impossible):
            return self._refuse(job, outcome, allowance)
        denial = self._denial(job, outcome, allowance, situation)
        if denial is not None:
            return self.refuse(job, Verdict.POLICY, denial.text, denial.until)
        moves = outcome.moves
        self._carry_out(moves, allowance)
        return self.start(job, outcome.nodes, before=moves)

    def _refuse(self, job: Job, outcome: Impossible, allowance: Allowance) -> Decision:
        """The refusal that an impossible plan stands for."""
        obstacle = outcome.obstacle
        if obstacle in (Obstacle.CAPACITY, Obstacle.PACKING):
            return self.refuse(job, Verdict.CAPACITY, "" if obstacle is Obstacle.CAPACITY else outcome.detail)
        if obstacle is Obstacle.EFFORT:
            return self.refuse(job, Verdict.FRAGMENTATION, outcome.detail)
        if obstacle is Obstacle.BUDGET:
            denial = allowance.exhausted(outcome.numbers["moves_needed"])
            return self.refuse(job, Verdict.POLICY, denial.text, denial.until)
        running = self._running_jobs()
        held = allowance.held(running.values())
        why = ", ".join(f"{number} {reason}" for reason, number in held.items())
        detail = f"{'pinned' if 'pinned' in held else 'protected'}: {outcome.detail}" + (f": {why}" if why else "")
        return self.refuse(job, Verdict.POLICY, detail, allowance.next_release(running))

    def _denial(self, job: Job, outcome: Plan, allowance: Allowance, situation: Situation) -> Denial | None:
        """Why a plan that exists may not be carried out now."""
        closed = allowance.closed()
        if closed is not None:
            needed = f"{len(outcome.moves)} moves would make room, but now is {closed.text}"
            return Denial(needed, closed.until)
        limit = allowance.moves()
        if limit is not None and len(outcome.moves) > limit:
            return allowance.exhausted(len(outcome.moves))
        wanted = self.policy.value
        if not wanted:
            return None
        cost = allowance.disruption(outcome.moves, self._running_jobs())
        fits = self.fits_by_itself(job, situation)
        wait = fits - situation.now if fits is not None else job.duration
        if wait is None or wait * job.total_gpus >= wanted * cost:
            return None
        text = (
            f"value: moves that cost {cost:.0f} GPU-seconds would save {wait * job.total_gpus:.0f} "
            f"of waiting, less than {wanted:g} times as much"
        )
        return Denial(text, fits)

    def fits_by_itself(self, job: Job, situation: Situation) -> float | None:
        """When enough running jobs will have ended for this one to fit without a move; None when that isn't known."""
        state, gpus = self.state, job.gpus
        free: dict[int, int] = {}
        room = state.room(gpus)
        known = sorted((end, job_id) for job_id, end in situation.ends.items() if job_id in state.gangs)
        for end, job_id in known:
            gang = state.gangs[job_id]
            for index in gang.nodes:
                node = state.nodes[index]
                if node.status is NodeStatus.UP:
                    before = free.get(index, node.free)
                    free[index] = before + gang.job.gpus
                    room += free[index] // gpus - before // gpus
            if room >= job.instances:
                return max(end, situation.now)
        return None

    # ---- moves that nobody waits for

    def _tidies(self, job: Job, decision: Decision, situation: Situation) -> bool:
        """Whether to tidy now: at the end of a pass through the queue, or after a start that leaves it empty."""
        if self.policy.tidiness is Tidiness.NEVER:
            return False
        if decision.reason is not None:
            return True
        others = any(waiting.id != job.id for waiting in islice(situation.waiting, 2))
        return self.policy.tidiness is Tidiness.ALWAYS and not others

    def _tidy(self, situation: Situation) -> tuple[Migration, ...]:
        """The cheapest moves to as few partial nodes as there can be with what may move."""
        state = self.state
        low, high = inherent(state.demand, state.capacity), state.partial_nodes
        if high <= low:
            return ()
        allowance = self.allowance(situation)
        limit = allowance.moves()
        if limit == 0 or allowance.closed() is not None:
            return ()
        best: Plan | None = None
        target = low
        while low < high:
            outcome = plan(state, Tidy(target), self.charges(allowance), Limits(moves=limit), self.policy.effort)
            if isinstance(outcome, Plan) and (limit is None or len(outcome.moves) <= limit):
                best, high = outcome, target
            else:
                # Pins, or a budget, keep some partial nodes from going: as few as possible then.
                low = target + 1
            target = (low + high) // 2
        if best is None:
            return ()
        moves = best.moves
        self._carry_out(moves, allowance)
        return moves

    def _drain(self, index: int, situation: Situation) -> tuple[Migration, ...]:
        """Empties a node, all or nothing."""
        if not self.state.nodes[index].contents:
            return ()
        allowance = self.allowance(situation)
        limit = allowance.moves()
        if allowance.closed() is not None:
            return ()
        outcome = plan(self.state, Drain((index,)), self.charges(allowance), Limits(moves=limit), self.policy.effort)
        if isinstance(outcome, Impossible) or (limit is not None and len(outcome.moves) > limit):
            return ()
        self._carry_out(outcome.moves, allowance)
        return outcome.moves

    # ---- shared pieces

    def allowance(self, situation: Situation) -> Allowance:
        """What may move now, and at what cost."""
        return Allowance(self.policy, self.ledger, situation.now, situation.ends, situation.progress)

    def _running_jobs(self) -> dict[str, Job]:
        return {job_id: gang.job for job_id, gang in self.state.gangs.items()}

    def carry_out(self, moves: tuple[Migration, ...]) -> None:
        """Moves these."""
        self.state.move_all(moves)

    def _carry_out(self, moves: tuple[Migration, ...], allowance: Allowance) -> None:
        if moves:
            self.carry_out(moves)
            self.ledger.add(allowance.entry(moves, self._running_jobs()))
