"""What a user submits, as YAML or JSON: checked field by field, with the line of every mistake."""

import re
import reprlib
import shlex
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Annotated, Any, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from compass_abs.controller.job_file import JobSpecError, check_tree, line_of
from compass_abs.engines.protocol import CheckpointMode, Limits, Workload
from compass_abs.model import CAPACITIES, Job

#: Largest job file, in bytes: far above any honest one.
LARGEST_SPEC = 256 * 1024

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
#: Ours and torchrun's: set by the engine for every instance.
_RESERVED = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"}
    | {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 77, 77


def _seconds(value: Any) -> Any:
    """`90`, `"1h30m"`, `"2d"` in seconds."""
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip().replace(" ", "")) if value.strip() else None
    if found is None:
        raise ValueError(f"{value!r} is no duration; expected seconds, or a text like '90s', '1h30m', '2d'")
    return sum(float(part or 0) * unit for part, unit in zip(found.groups(), (86400, 3600, 60, 1), strict=True))


def _bytes(value: Any) -> Any:
    """`1024`, `"512MiB"`, `"4G"` in bytes."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"{value!r} is no size; expected bytes, or a text like '512MiB', '4GB'")
    number, unit = found.groups()
    power = " KMGT".index(unit[0].upper()) if unit else 0
    return int(float(number) * (1024 if unit and unit.lower().endswith("i") else 1000) ** power)


# Editors are told what a file may hold; the validators above turn that into what the rest works with.
_SECONDS_SCHEMA = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["1h30m"]}]}
_BYTES_SCHEMA = {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "examples": ["4GiB"]}]}
_COMMAND_SCHEMA = {
    "anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "string", "minLength": 1}],
    "description": "Program and arguments. A single text is split into words; no shell ever sees it.",
}
_ENV_SCHEMA = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number"]},
    "description": "Environment variables.",
}
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=10 * 365 * 86400), WithJsonSchema(_SECONDS_SCHEMA)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0, lt=1 << 60), WithJsonSchema(_BYTES_SCHEMA)]
Text = Annotated[str, Field(max_length=4096)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)


class CheckpointSpec(_Strict):
    """How the job can be paused and moved."""

    mode: CheckpointMode = Field(
        CheckpointMode.SESSION,
        description="session: uses compass_abs.training.session. signal: saves and exits with 0 on a signal. "
        "periodic: can't be asked, restarts from its own latest checkpoint.",
    )
    signal: Annotated[str, Field(pattern=r"^(USR1|USR2|TERM|INT|HUP)$")] = Field(
        "USR1", description="Signal of mode 'signal', without SIG."
    )
    dir: Text = Field("", description="Absolute folder for checkpoints; by default one that the engine makes.")
    timeout: Seconds | None = Field(None, description="How long saving may take.")
    grace: Seconds = Field(10.0, description="Seconds between the request to end and the kill.")
    resume_timeout: Seconds | None = Field(None, description="How long the first step after a move may take.")

    @field_validator("dir")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return _checked_folder(value)


class LimitsSpec(_Strict):
    """What one instance may use."""

    memory: Bytes | None = Field(None, description="Address space, e.g. '32GiB'.")
    open_files: Annotated[int, Field(ge=16, le=1 << 20)] | None = Field(None, description="Files open at once.")
    processes: Annotated[int, Field(ge=1, le=1 << 20)] | None = Field(
        None, description="Processes and threads of the user that it runs as."
    )
    file_size: Bytes | None = Field(None, description="Largest file it may write.")
    cpus: Annotated[float, Field(gt=0, le=4096)] | None = Field(
        None, description="Cores it may run on; the local engine rounds up."
    )


def _checked_folder(value: str) -> str:
    if value and (not value.startswith("/") or "\0" in value or ".." in PurePosixPath(value).parts):
        raise ValueError(f"{value!r} is not an absolute path without '..'")
    return value


class JobSpec(_Strict):
    """A training job: a gang of equal instances, each on one node."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="For people; need not be unique.")
    instances: Annotated[int, Field(ge=1, le=4096, strict=True)] = Field(1, description="Size of the gang.")
    gpus_per_instance: Annotated[int, Field(ge=1, le=max(CAPACITIES), strict=True)] = Field(
        1, description="GPUs of each instance, all on one node."
    )
    command: Annotated[
        tuple[Annotated[str, Field(max_length=32768)], ...],
        Field(min_length=1, max_length=4096),
        WithJsonSchema(_COMMAND_SCHEMA),
    ] = Field(description="Program and arguments. A single text is split into words; no shell ever sees it.")
    env: Annotated[
        dict[str, Annotated[str, Field(max_length=32768)]], Field(max_length=512), WithJsonSchema(_ENV_SCHEMA)
    ] = Field(default_factory=dict, description="Environment variables.")
    workdir: Text = Field("", description="Absolute folder to run in; by default one that the engine makes.")
    image: Text = Field("", description="Container image, for engines that run images.")
    pool: Annotated[str, Field(max_length=63)] = Field("", description="Pool of nodes; empty for the only one.")
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(0, description="Larger is moved last.")
    movable: bool = Field(True, description="False pins it to the nodes it starts on.")
    checkpoint: CheckpointSpec = CheckpointSpec.model_validate({})
    limits: LimitsSpec = LimitsSpec.model_validate({})
    max_duration: Seconds | None = Field(None, description="It is ended when it has run this long.")
    expected_duration: Seconds | None = Field(None, description="For schedulers and queues that use an estimate.")
    retries: Annotated[int, Field(ge=0, le=1000)] = Field(
        0, description="Restarts after a failure of its own. Restarts after a lost node don't count."
    )
    labels: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=64)] = Field(
        default_factory=dict
    )

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return tuple(shlex.split(value))
            except ValueError as error:
                raise ValueError(f"{value!r} can't be split into words: {error}") from None
        return value

    @field_validator("command")
    @classmethod
    def _executable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value[0] or any("\0" in word for word in value):
            raise ValueError("the first word must name a program, and no word may hold a NUL byte")
        return value

    @field_validator("env", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: str(text) if type(text) in (int, float) else text for name, text in value.items()}
        return value

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is no name for an environment variable")
            if name in _RESERVED or name.startswith("COMPASS_"):
                raise ValueError(f"{name} is set by the engine for every instance; leave it out")
            if "\0" in text:
                raise ValueError(f"the value of {name} holds a NUL byte")
        return value

    @field_validator("workdir")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return _checked_folder(value)

    @model_validator(mode="after")
    def _printable(self) -> Self:
        if _CONTROL.search(self.name):
            raise ValueError("name holds control characters")
        return self

    # ---- towards the rest of the controller

    @classmethod
    def from_record(cls, values: dict[str, Any]) -> "JobSpec":
        """The spec of a journal record."""
        return cls.model_validate(values)

    def to_record(self) -> dict[str, Any]:
        """What the journal keeps: only what differs from the defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def to_job(self, job_id: str, submitted: float) -> Job:
        """What a scheduler sees of it."""
        return Job(
            id=job_id,
            instances=self.instances,
            gpus=self.gpus_per_instance,
            submitted=submitted,
            duration=self.expected_duration,
            pool=self.pool,
            priority=self.priority,
            movable=self.movable,
        )

    def to_workload(self) -> Workload:
        """What an engine runs of it."""
        return Workload(
            command=self.command,
            environment=tuple(self.env.items()),
            workdir=self.workdir,
            image=self.image,
            checkpoint_dir=self.checkpoint.dir,
            mode=self.checkpoint.mode,
            signal=self.checkpoint.signal,
            limits=Limits(
                memory_bytes=self.limits.memory,
                open_files=self.limits.open_files,
                processes=self.limits.processes,
                file_bytes=self.limits.file_size,
                cpus=self.limits.cpus,
            ),
        )


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a job file, for editors."""
    schema = JobSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "COMPASS-ABS job"}


def parse_job(text: str, source: str = "job") -> JobSpec:
    """The job of a YAML (or JSON) text; a mistake is told with line and field."""
    if len(text.encode(errors="replace")) > LARGEST_SPEC:
        raise JobSpecError(f"{source}: a job file may have {LARGEST_SPEC} bytes at most")
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        if tree is not None:
            check_tree(tree, source)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise JobSpecError(f"{source}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise JobSpecError(f"{source}: not YAML: {error}") from None
    if not isinstance(values, dict) or tree is None:
        raise JobSpecError(f"{source}, line 1: expected fields like 'name: ...' and 'command: ...'")
    return check_job(values, source, tree)


def check_job(values: Any, source: str = "job", tree: yaml.Node | None = None) -> JobSpec:
    """The job of these values; a mistake is told with its field, and its line where a YAML tree is given."""
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        problems = [_problem(problem, source, tree) for problem in error.errors(include_url=False)]
        raise JobSpecError("; ".join(dict.fromkeys(problems))) from None


def _problem(problem: Any, source: str, tree: yaml.Node | None) -> str:
    """One line: where, which field, what is wrong."""
    where = [part for part in problem["loc"] if isinstance(part, str | int) and not str(part).startswith("function-")]
    line = line_of(tree, where) if tree is not None else None
    place = f"{source}, line {line}" if line else source
    field = ".".join(map(str, where)) or "job"
    kind, given = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        wrong = str(where[-1])
        close = get_close_matches(wrong, _names(where), n=1) or [n for n in _names(where) if n.startswith(wrong)]
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_names(where))}"
        return f"{place}: there is no field {field!r}; {hint}"
    if kind == "missing":
        return f"{place}: field {field!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return f"{place}: {field}: {message}"
    return f"{place}: {field} is {_SHORT.repr(given)}: {message[0].lower()}{message[1:]}"


def _names(where: list[str | int]) -> list[str]:
    nested: dict[str, type[BaseModel]] = {"checkpoint": CheckpointSpec, "limits": LimitsSpec}
    return list((nested.get(str(where[0]), JobSpec) if len(where) > 1 else JobSpec).model_fields)
