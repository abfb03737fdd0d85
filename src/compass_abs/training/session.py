"""The checkpoint contract for PyTorch jobs: the few lines that make a training loop migratable.

    with training.session(model=net, optimizer=optimizer, scheduler=schedule, wrap=DDP) as s:
        for step in s.steps(1000):
            loss = s.model(next(batches)).mean()
            ...

Between two steps all ranks agree on whether to save, and what to do then. Standard library only until the program
itself has imported torch; a job without it may pass `extra` alone.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compass_abs.model import CompassError
from compass_abs.training import randomness
from compass_abs.training.contract import (
    Acknowledgement,
    ContractError,
    Directive,
    DirectiveKind,
    ProcessState,
    Request,
    RequestKind,
    Worker,
)
from compass_abs.training.group import Alone, Group, join
from compass_abs.training.leaving import Stopped, leave
from compass_abs.training.mailbox import GLANCE, Mailbox
from compass_abs.training.payload import CorruptCheckpointError
from compass_abs.training.saver import Outcome, Saver
from compass_abs.training.states import TrainingState
from compass_abs.training.store import CheckpointStore, FencedError, Manifest, Restored

#: How long a shared file system may take to show a checkpoint to another node.
_VISIBLE_WITHIN = 30.0


class Saving(StrEnum):
    """How periodic checkpoints are written; a requested one is always on disk before it is acknowledged."""

    BLOCKING = "blocking"
    BACKGROUND = "background"
    """Training goes on once the state is copied to host memory. The copy is kept, so that a requested checkpoint has
    to write only what has changed since: twice the state in host memory, for less time when it matters."""


class Session:
    """A training loop that can be stopped at any step and go on elsewhere, bit for bit on CPU.

    `model`, `optimizer` and `scheduler` (each one object with `state_dict`, or a mapping of several) are the same on
    all ranks and saved once; the model unwrapped. `extra` maps names to what differs by rank, the position in the
    data above all: objects with `state_dict`, torch generators, or dictionaries. `wrap` turns the model into its
    distributed form (`DDP`) once the process group stands, and anew when the gang is re-formed in place.
    """

    def __init__(
        self,
        *,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        extra: Mapping[str, Any] | None = None,
        wrap: Callable[[Any], Any] | None = None,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        saving: Saving = Saving.BLOCKING,
        keep: int = 2,
        backend: str | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.worker = worker or Worker.from_environment()
        #: Steps completed.
        self.step = 0
        #: Set it, and the controller can show it.
        self.loss: float | None = None
        #: The model to call: wrapped, when the job has more than one rank and `wrap` was given.
        self.model = model
        self.optimizer = optimizer
        self._module = model
        self._state = TrainingState(model, optimizer, scheduler, dict(extra or {}))
        self._wrap = wrap
        self._every_steps = every_steps
        self._every_seconds = every_seconds
        self._saving = saving
        self._keep = keep
        self._backend = backend
        self._group: Group = Alone()
        self._mailbox = Mailbox(self.worker)
        self._mailbox.mark("imported")
        self._store = CheckpointStore(self.worker.checkpoint_dir, self.worker.generation, self.worker.job_id, keep)
        self._saver = Saver(self._store)
        self._total = 0
        self._counted = False
        self._seen_at = 0.0
        self._agreed_at = 0.0
        self._agreed: Request | None = None
        self._saved_at = time.monotonic()
        self._random: dict[str, Any] | None = None
        #: What rank 0 has read to be sure of it, until it is restored.
        self._verified: Restored | None = None

    # ---- the loop

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are left of `total`; a step counts when its body has ended."""
        self._total = total
        if self._random is not None:
            # Whatever ran since the restore may have drawn random numbers.
            randomness.put_back(self._random)
        while self.step < total:
            self._counted = False
            yield self.step
            if not self._counted:
                self.step_done()

    def step_done(self) -> None:
        """Ends a step: saves, holds or stops if all ranks agree that it is time. `steps` calls it."""
        if self.should_checkpoint():
            self.checkpoint()

    def should_checkpoint(self) -> bool:
        """Ends a step; True on every rank when one of them was asked to save or it is time. Call `checkpoint` then."""
        self.step += 1
        self._counted = True
        self._random = None
        if not self._mailbox.resumed:
            self._mailbox.mark("first_step")
        self._mailbox.beat(ProcessState.RUNNING, step=self.step, total=self._total, loss=self.loss)
        mine = self._mailbox.poll()
        if mine is not None and self._seen_at == 0.0:
            self._seen_at = time.time()
        if not self._group.any(mine is not None or self._due()):
            return False
        offers: list[Request | None] = self._group.gather(mine)
        self._agreed = next((offer for offer in offers if offer is not None), None)
        self._agreed_at = time.time()
        return True

    def _due(self) -> bool:
        if self._every_steps is not None and self.step % self._every_steps == 0:
            return True
        return self._every_seconds is not None and time.monotonic() - self._saved_at >= self._every_seconds

    def checkpoint(self) -> None:
        """Saves, answers the request that all ranks agreed on, if any, and does what it asks for.

        All ranks call it at the same step. A checkpoint that can't be written (a full disk) leaves the job running.
        """
        request, self._agreed = self._agreed, None
        ranks = self._group.gather(self._state.of_rank())
        if request is None and self._saving is Saving.BACKGROUND:
            self._in_background(ranks)
            return
        mine = self._write(ranks) if self._group.rank == 0 else None
        outcome: Outcome = self._group.broadcast(mine)
        self._saved_at = time.monotonic()
        self._note(outcome)
        if request is not None:
            self._obey(request, outcome)

    def _write(self, ranks: list[dict[str, Any]]) -> Outcome:
        return self._saver.save(self._state.whole(self.step, ranks), self.step, self._group.size)

    def _in_background(self, ranks: list[dict[str, Any]]) -> None:
        if self._group.rank == 0:
            self._note(self._saver.latest())
            self._saver.start(self._state.whole(self.step, ranks), self.step, self._group.size)
        self._saved_at = time.monotonic()

    def _note(self, outcome: Outcome) -> None:
        if outcome.fenced:
            raise FencedError(outcome.error)
        if outcome.error:
            print(f"compass: step {self.step} could not be saved: {outcome.error}; training goes on", file=sys.stderr)
            self._mailbox.tell(ProcessState.RUNNING, step=self.step, warning=outcome.error)
        elif outcome.manifest is not None:
            path = self._path(outcome.manifest)
            self._mailbox.progress = replace(
                self._mailbox.progress, checkpoint=path, checkpoint_step=outcome.manifest.step, warning=""
            )

    def _path(self, manifest: Manifest) -> str:
        return str((self._store.directory / manifest.name).absolute())

    # ---- requests

    @property
    def can_rejoin(self) -> bool:
        """True when this process can meet a new gang without being restarted: alone, or we do the wrapping."""
        return self._group.size == 1 or self._wrap is not None

    def _obey(self, request: Request, outcome: Outcome) -> None:
        manifest = outcome.manifest
        leaves = request.kind is RequestKind.STOP or (
            request.kind is RequestKind.REFORM and (self.worker.instance in request.movers or not self.can_rejoin)
        )
        holds = not leaves and request.kind in (RequestKind.HOLD, RequestKind.REFORM)
        told = self._mailbox.answer(
            Acknowledgement(
                request=request.id,
                rank=self.worker.rank,
                generation=self.worker.generation,
                step=-1 if manifest is None else manifest.step,
                path="" if manifest is None else self._path(manifest),
                sha256="" if manifest is None else manifest.sha256,
                error=outcome.error,
                stays=holds and self.can_rejoin and manifest is not None,
                phases={"seen": self._seen_at or self._agreed_at, "agreed": self._agreed_at, "saved": time.time()},
            )
        )
        self._seen_at = 0.0
        # Nobody goes before everybody has acknowledged.
        if manifest is None or ((leaves or holds) and self._group.any(not told)):
            return
        if leaves:
            raise Stopped
        if holds:
            self._hold(request)

    def _hold(self, request: Request) -> None:
        self._mailbox.tell(ProcessState.HELD, step=self.step)
        while (directive := self._mailbox.directive(request.id)) is None:
            if self._mailbox.terminated:
                raise Stopped
            self._mailbox.beat(ProcessState.HELD)
            time.sleep(GLANCE)
        if directive.kind is DirectiveKind.STOP:
            raise Stopped
        if directive.kind is DirectiveKind.REJOIN:
            self._rejoin(directive)
        self._saved_at = time.monotonic()

    def _rejoin(self, directive: Directive) -> None:
        if not self.can_rejoin:
            raise ContractError(
                f"job {self.worker.job_id!r} was told to rejoin, but made its own process group; give `wrap=` to "
                "the session, or restart it from its checkpoint"
            )
        if directive.generation <= self.worker.generation:
            raise ContractError(
                f"generation {directive.generation} is not newer than {self.worker.generation}, which is to rejoin"
            )
        self._group.leave()
        self.worker = replace(
            self.worker,
            generation=directive.generation,
            control_dir=Path(directive.control_dir),
            master_addr=directive.master_addr,
            master_port=directive.master_port,
            resume_from="",
        )
        self._mailbox.unlisten()
        self._mailbox = Mailbox(self.worker)
        self._mailbox.listen()
        self._mailbox.tell(ProcessState.STARTING, step=self.step, total=self._total)
        self._store.generation = directive.generation
        self._meet(self.step)

    # ---- coming and going

    def __enter__(self) -> Self:
        self._mailbox.listen()
        self._mailbox.tell(ProcessState.STARTING)
        if self.worker.hold:
            self._wait_for_go()
        self._meet(None)
        return self

    def _wait_for_go(self) -> None:
        if self._wrap is not None and "torch" in sys.modules:
            # Wrapping imports 800 modules; better now than while the gang stands still.
            import_module("torch._dynamo")
            import_module("torch.nn.parallel.distributed")
        self._mailbox.tell(ProcessState.WAITING)
        self._mailbox.mark("waiting")
        while (message := self._mailbox.go()) is None:
            if self._mailbox.terminated:
                leave(0)
            self._mailbox.beat(ProcessState.WAITING)
            time.sleep(GLANCE)
        self.worker = replace(self.worker, resume_from=str(message.get("resume_from", "") or self.worker.resume_from))

    def _meet(self, in_memory: int | None) -> None:
        """Meets the gang and brings every rank to the same step; those that are there already keep what they have."""
        self._group = join(self.worker, self._backend)
        self._mailbox.mark("joined")
        if self._group.size == 1 < self.worker.world_size:
            # Processes that don't know each other can't share a checkpoint: each keeps its own.
            self._store.directory = self.worker.checkpoint_dir / f"rank-{self.worker.rank}"
        steps = self._group.gather(in_memory)
        plan = self._agree_on_start(steps) if self._group.rank == 0 else None
        plan = self._group.broadcast(plan)
        if isinstance(plan, CompassError):
            raise plan
        if plan.name and (in_memory is None or plan.everyone):
            self._restore(plan)
        elif in_memory is None:
            self._mailbox.tell(ProcessState.STARTING, step=0, resumed_at=0)
        else:
            self._mailbox.tell(ProcessState.STARTING, step=self.step, resumed_at=self.step)
        self._verified = None
        self._mailbox.mark("loaded")
        if self._wrap is not None and self._group.size > 1:
            self.model = self._wrap(self._module)
            self._mailbox.mark("wrapped")

    def _agree_on_start(self, steps: list[int | None]) -> "_Start | CompassError":
        """Which checkpoint to start from and who loads it."""
        warm = {step for step in steps if step is not None}
        try:
            self._store.claim()
            if None not in steps and len(warm) == 1:
                return _Start("")
            last = self._store.last
            if last is not None and warm == {last.step}:
                return _Start(last.name, everyone=False)
            self._verified = self._store.newest(self.worker.resume_from)
        except CompassError as error:
            return error
        if self._verified is None:
            if warm:
                return CorruptCheckpointError(f"{self._store.directory}: no checkpoint, but ranks hold steps {steps}")
            return _Start("")
        found = self._verified.manifest
        return _Start(found.name, self._verified.skipped, everyone=bool(warm) and warm != {found.step})

    def _restore(self, plan: "_Start") -> None:
        tree = self._load_patiently(plan.name) if self._verified is None else self._verified.tree
        ranks = tree["ranks"]
        if len(ranks) != self._group.size:
            raise CorruptCheckpointError(
                f"checkpoint {plan.name} is of {len(ranks)} ranks, but this job has {self._group.size}; "
                "start it with as many, or with another checkpoint folder"
            )
        self.step = tree["step"]
        self._random = self._state.restore(tree, ranks[self._group.rank])
        randomness.put_back(self._random)
        self._mailbox.tell(
            ProcessState.STARTING,
            step=self.step,
            resumed_at=self.step,
            resumed_from=str((self._store.directory / plan.name).absolute()),
            skipped=plan.skipped,
        )

    def _load_patiently(self, name: str) -> Any:
        """The checkpoint that rank 0 has verified, as soon as this node can see it."""
        deadline = time.monotonic() + _VISIBLE_WITHIN
        while True:
            try:
                return self._store.load(self._store.manifest(name))
            except CorruptCheckpointError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Stopped):
            self._mailbox.tell(ProcessState.FAILED, step=self.step, warning=f"{type(error).__name__}: {error}"[:500])
            self._mailbox.unlisten()
            return
        self._note(self._saver.latest(wait=self._group.rank == 0))
        self._mailbox.tell(ProcessState.STOPPED if error else ProcessState.FINISHED, step=self.step)
        self._mailbox.unlisten()
        self._group.leave()
        if error is not None:
            leave(0)


@dataclass(frozen=True, slots=True)
class _Start:
    """What rank 0 found to start from: a manifest's name, or "" for nothing."""

    name: str
    skipped: tuple[str, ...] = ()
    #: False when only the ranks without state load it.
    everyone: bool = False


#: `with training.session(model=...) as s:` reads like what it is.
session = Session
