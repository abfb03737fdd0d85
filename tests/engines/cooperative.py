"""A training program without training: speaks the checkpoint contract, counts steps, needs the standard library only.

python cooperative.py STEPS [SECONDS_PER_STEP]
"""

import os
import signal
import sys
import time
from pathlib import Path

from compass_abs.training import contract


def main() -> None:
    worker = contract.Worker.from_environment()
    steps = int(sys.argv[1])
    pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
    control, instance, generation = worker.control_dir, worker.instance, worker.generation
    assert control is not None
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    began = step = int(Path(worker.resume_from).read_text()) if worker.resume_from else 0
    answered = ""

    def report(state: contract.ProcessState) -> None:
        message = contract.Progress(worker.rank, generation, step, time.time(), state, os.getpid(), began, total=steps)
        contract.report(control, message)

    report(contract.ProcessState.STARTING)
    while step < steps:
        time.sleep(pause)
        step += 1
        print(f"generation {generation} step {step}", flush=True)
        report(contract.ProcessState.RUNNING)
        request = contract.read_request(control)
        if request is None or request.id == answered:
            continue
        answered = request.id
        path = worker.checkpoint_dir / f"{instance}-{step}.txt"
        path.write_text(str(step))
        hold = request.kind is contract.RequestKind.HOLD
        answer = contract.Acknowledgement(answered, worker.rank, generation, step, str(path), stays=hold)
        contract.acknowledge(control, answer)
        if not hold:
            continue
        report(contract.ProcessState.HELD)
        while (directive := contract.read_directive(control, instance, answered)) is None:
            time.sleep(0.005)
        if directive.kind is contract.DirectiveKind.STOP:
            return
        if directive.kind is contract.DirectiveKind.REJOIN:
            control, generation, began = Path(directive.control_dir), directive.generation, step
            report(contract.ProcessState.STARTING)
    report(contract.ProcessState.FINISHED)


main()
