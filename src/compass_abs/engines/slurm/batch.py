"""What a user's batch script finds on its nodes: Slurm's variables of the whole job, its output file, an `srun`.

Run as `python -I -S batch.py run JOB.json` under `instance.py`, standard library only: every instance of the gang runs
the script, as the first node of an ordinary job does. `srun` in it is `batch.py srun`: where Slurm's own would start a
step's tasks on all nodes of the job, each instance starts those of its node, with the numbers that they would have.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_C = ctypes.CDLL(None)
#: Sent to the whole group: whoever has something to save is asked himself. The shell may go, its programs are awaited.
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ALONE_NAMES = """
    bcast contiguous disable-status exact exclusive external help hold immediate interactive kill-on-bad-exit
    label nice no-allocate no-kill overcommit overlap oversubscribe preserve-env propagate pty quiet reboot
    resv-ports send-libs share spread-job test-only unbuffered usage use-min-nodes verbose version whole x11
"""
#: Options of srun that stand alone; all others have a value, behind `=` or as the next word.
_ALONE = frozenset(f"--{name}" for name in _ALONE_NAMES.split())
_ALONE_LETTERS = frozenset("EHIKOQVXZhklsuv")
_COUNTS = {"-n": "ntasks", "--ntasks": "ntasks", "-N": "nodes", "--nodes": "nodes", "-w": "nodelist"}
_COUNTS |= {"--nodelist": "nodelist", "--ntasks-per-node": "per_node"}


def job_variables(job: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """Slurm's variables of the job as its user submitted it, for this instance of it."""
    rank, nodes = int(environment["COMPASS_INSTANCE"]), environment["COMPASS_NODES"].split(",")
    number, per_node = str(job["id"]), int(job["tasks_per_node"])
    found = {"SLURM_JOB_ID": number, "SLURM_JOBID": number, "SLURM_JOB_NAME": job["name"]}
    found |= {"SLURM_SUBMIT_DIR": job["folder"], "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": str(per_node)}
    if int(environment.get("COMPASS_GENERATION", "1")) > 1:
        found["SLURM_RESTART_COUNT"] = str(int(environment["COMPASS_GENERATION"]) - 1)
    tasks = job["array"]
    if tasks:
        # A job of one node for each.
        found |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": str(tasks[rank])}
        found |= {"SLURM_ARRAY_TASK_COUNT": str(len(tasks))}
        found |= {"SLURM_ARRAY_TASK_MIN": str(min(tasks)), "SLURM_ARRAY_TASK_MAX": str(max(tasks))}
        rank, nodes = 0, [nodes[rank]]
    found |= dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), str(len(nodes)))
    found |= dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), ",".join(nodes))
    found |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), str(per_node * len(nodes)))
    times = f"(x{len(nodes)})" if len(nodes) > 1 else ""
    return found | {
        "SLURM_NODEID": str(rank),
        "SLURM_PROCID": str(rank * per_node),
        "SLURM_TASKS_PER_NODE": f"{per_node}{times}",
    }


def output_file(job: dict[str, Any], variables: dict[str, str], rank: int) -> str:
    """Where the script's user expects its output; those of further instances have their number behind it."""
    pattern = job["output"] or ("slurm-%A_%a.out" if job["array"] else "slurm-%j.out")
    task = variables.get("SLURM_ARRAY_TASK_ID", "")
    values = {"j": str(job["id"]), "J": str(job["id"]), "A": str(job["id"]), "x": job["name"], "%": "%"}
    values |= {"a": task, "u": job["user"], "n": "0", "t": "0", "s": "batch", "b": task}
    values["N"] = variables["SLURM_JOB_NODELIST"].split(",")[0]
    found, position = "", 0
    while position < len(pattern):
        character = pattern[position]
        if character == "%":
            end = position + 1
            while end < len(pattern) and pattern[end].isdigit():
                end += 1
            value = values.get(pattern[end : end + 1])
            if value is not None:
                found += value.zfill(int(pattern[position + 1 : end] or 0))
                position = end + 1
                continue
        found += character
        position += 1
    alone = "%a" in pattern and bool(job["array"])
    return os.path.join(job["folder"], found) + ("" if alone or not rank else f".{rank}")  # noqa: PTH118


def link_output(path: str) -> None:
    """Puts a link to this instance's log there; what is there already and isn't such a link stays."""
    try:
        log = os.readlink("/proc/self/fd/1")  # noqa: PTH115 - pathlib costs start-up time
        if os.path.islink(path):  # noqa: PTH114
            os.unlink(path)  # noqa: PTH108
        os.symlink(log, path)  # noqa: PTH211
    except OSError as error:
        sys.stderr.write(f"compass: the output is not at {path}: {error.strerror}\n")


def run(job: dict[str, Any]) -> NoReturn:
    """Runs the script. When it is asked to end, and its shell does so at once, waits for the programs that save."""
    variables = job_variables(job, dict(os.environ))
    if job["output"] != "/dev/null":
        link_output(output_file(job, variables, int(os.environ["COMPASS_INSTANCE"])))
    environment = {**os.environ, **variables, "PATH": f"{job['programs']}:{os.environ['PATH']}"}
    asked: list[int] = []
    for number in _ASKED:
        signal.signal(number, lambda came, frame: asked.append(came))
    _C.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # It goes with this process, as this one does with its own parent.
    shell = subprocess.Popen(job["command"], env=environment, preexec_fn=_die_with_parent)
    code = shell.wait()
    if code >= 0 or -code not in asked:
        sys.stdout.flush()
        os._exit(code if code >= 0 else 128 - code)
    worst = None
    while True:
        try:
            _, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(128 - code if worst is None else worst)
        left = os.waitstatus_to_exitcode(status)
        worst = max(worst or 0, left if left >= 0 else 128 - left)


def _die_with_parent() -> None:
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Those options of srun that matter here, and the command."""
    found: dict[str, str] = {}
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            alone = name in _ALONE or name.startswith("--no-")
        else:
            name, equals, value = word[:2], word[2:], word[2:].removeprefix("=")
            alone = word[1] in _ALONE_LETTERS
        if not equals and not alone:
            value = words[position] if position < len(words) else ""
            position += 1
        if name in _COUNTS:
            found[_COUNTS[name]] = value
    return found, words[position:]


def step(words: list[str]) -> int:
    """Runs the tasks of a step that are this node's; the worst of their exit codes."""
    options, command = parse(words)
    if not command:
        sys.stderr.write("srun: compass: no command\n")
        return 1
    nodes, here = os.environ["SLURM_JOB_NODELIST"].split(","), int(os.environ["SLURM_NODEID"])
    per_node = int(os.environ["SLURM_NTASKS_PER_NODE"])
    wanted = options.get("nodes", "").partition("-")[0]
    total = int(options["ntasks"]) if options.get("ntasks", "").isdigit() else 0
    asked = [name for name in options.get("nodelist", "").split(",") if name]
    if len(nodes) > 1 and (wanted == "1" or (total == 1 and not wanted) or (asked and set(asked) != set(nodes))):
        only = asked[0] if asked else nodes[0]
        if only != nodes[here]:
            return elsewhere(only, nodes, command)
        nodes, here, per_node = [only], 0, total or 1
    elif options.get("per_node", "").isdigit():
        per_node = int(options["per_node"])
    elif total:
        per_node = -(-total // len(nodes))
    count = len(nodes) * per_node
    variables = dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"), str(count))
    variables |= {"SLURM_NNODES": str(len(nodes)), "SLURM_STEP_NUM_NODES": str(len(nodes)), "SLURM_STEP_ID": "0"}
    tasks = []
    for local in range(per_node):
        mine = {"SLURM_PROCID": str(here * per_node + local), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(here)}
        if per_node > 1:
            mine |= {"RANK": mine["SLURM_PROCID"], "WORLD_SIZE": str(count), "LOCAL_RANK": str(local)}
            mine["LOCAL_WORLD_SIZE"] = str(per_node)
        try:
            tasks.append(subprocess.Popen(command, env={**os.environ, **variables, **mine}))
        except OSError as error:
            sys.stderr.write(f"srun: compass: can't start {command[0]!r}: {error.strerror}\n")
            return 127
    # They are in the same group, and get the signals themselves.
    for number in _ASKED:
        signal.signal(number, lambda came, frame: None)
    return max(code if code >= 0 else 128 - code for code in [task.wait() for task in tasks])


def elsewhere(node: str, nodes: list[str], command: list[str]) -> int:
    """A step of another node: run there, by its own instance. The address that scripts ask for is known here, too."""
    if os.path.basename(command[0]) == "hostname":  # noqa: PTH119
        options = set(command[1:])
        if not options & {"-i", "-I", "--ip-address", "--all-ip-addresses"}:
            print(node)
        elif node == nodes[0] and "MASTER_ADDR" in os.environ:
            print(os.environ["MASTER_ADDR"])
        else:
            print(socket.gethostbyname(node))
    else:
        sys.stderr.write(f"srun: compass: {command[0]} runs on {node} only\n")
    return 0


def main() -> None:
    """As the module's docstring has it."""
    if sys.argv[1] == "srun":
        sys.exit(step(sys.argv[2:]))
    with open(sys.argv[2], encoding="utf-8") as file:  # noqa: PTH123
        run(json.load(file))


if __name__ == "__main__":
    main()
