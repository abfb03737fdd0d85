"""A study as a small YAML file: which workloads, which schedulers, which tables and figures."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from compass_abs.experiments.columns import mistake_in
from compass_abs.experiments.errors import StudyError

if TYPE_CHECKING:
    import yaml

#: Parts of a study become files of this name.
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sample(_Part):
    """Every `every`-th day that has jobs, from the `start`-th on."""

    every: Annotated[int, Field(ge=1)]
    start: Annotated[int, Field(ge=1)] = 1


class Knobs(_Part):
    """What is turned on a synthetic workload; 1 leaves things as they were calibrated."""

    load: Annotated[float, Field(gt=0)] = 1.0
    #: Shares of instances with 1 GPU, of friendly sizes (2, 4), of unfriendly ones, and of whole nodes.
    mix: tuple[float, float, float, float] | None = None
    gangs: Annotated[float, Field(ge=0)] = 1.0
    largest_gang: int | None = None
    durations: Annotated[float, Field(gt=0)] = 1.0
    longest: float | None = None
    diurnal: Annotated[float, Field(ge=0)] = 1.0


class Workload(_Part):
    """Jobs to replay day by day: of a trace by name or file, or synthesised."""

    trace: str | None = None
    #: A model of `compass trace synth`, how many days of it to make, and its knobs.
    synth: str | None = None
    length: Annotated[int, Field(ge=1)] = 1
    knobs: Knobs = Knobs()
    seed: int = 0
    #: Which days: "all", a list, or a sample of them.
    days: Literal["all"] | Annotated[tuple[int, ...], Field(min_length=1)] | Sample = "all"
    #: Durations that the publisher cut.
    tail: Literal["as-published", "refilled"] = "as-published"
    #: A cluster of this many nodes, whatever η says: for one that exists.
    nodes: Annotated[int, Field(ge=1)] | None = None
    label: str = ""

    @field_validator("days", mode="wrap")
    @classmethod
    def _days_in_one_of_three_forms(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            raise ValueError(
                "expected all, a list of days such as [92, 100], or a sample such as {every: 6}"
            ) from error

    @model_validator(mode="after")
    def _one_source(self) -> "Workload":
        if (self.trace is None) == (self.synth is None):
            raise ValueError("give either `trace` (a name or a file) or `synth` (a preset)")
        if self.synth is None and (self.knobs != Knobs() or self.length != 1):
            raise ValueError("`knobs` and `length` belong to `synth`")
        if self.trace is None and self.tail != "as-published":
            raise ValueError("`tail` belongs to `trace`; synthetic durations were never cut")
        return self

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or self.trace or f"{self.synth} (synthetic)"


class TableSpec(_Part):
    """Means over days of some metrics, a line for each combination of `by`."""

    name: FileName
    title: str = ""
    by: Annotated[tuple[str, ...], Field(min_length=1)]
    values: tuple[str, ...]


class FigureSpec(_Part):
    """A picture of the same means: bars, lines over `x`, or points of one metric against another."""

    name: FileName
    kind: Literal["bars", "lines", "points"]
    title: str = ""
    x: str = "scheduler"
    y: Annotated[tuple[str, ...], Field(min_length=1)]
    #: A panel for each value of this column, besides one for each metric.
    panels: str | None = None
    #: Only the runs whose columns have these values.
    where: Mapping[str, Any] = {}
    log_x: bool = False


class RankingSpec(_Part):
    """How often `subject` is first in its field on a (day, η) pair, by coverage of the composition condition."""

    name: FileName
    title: str = ""
    subject: str
    #: Whom it is compared with; everybody but bounds when empty.
    field: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("afr", "ajct", "agu")
    #: Lower ends of the buckets of ρ, below 1.
    buckets: tuple[float, ...] = (0.99, 0.9, 0.7, 0.1, 0.0)


class WindowSpec(_Part):
    """Hours of the day that a case study looks into."""

    start: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    end: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> "WindowSpec":
        if self.end <= self.start:
            raise ValueError("`end` must come after `start`, both in hours since the day's midnight")
        return self


class Study(_Part):
    """A grid of runs and what to make of them."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    #: The question that it answers, for people.
    question: str = ""
    #: Section of the paper; empty for studies of our own.
    paper: str = ""
    workloads: Annotated[tuple[Workload, ...], Field(min_length=1)]
    schedulers: Annotated[tuple[str, ...], Field(min_length=1)]
    eta: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)] = (0.9,)
    #: Cluster sizes in nodes, instead of those that η gives.
    nodes: tuple[Annotated[int, Field(ge=1)], ...] = ()
    queues: Annotated[tuple[str, ...], Field(min_length=1)] = ("fifo",)
    #: Seconds that a migration delays a job.
    costs: Annotated[tuple[Seconds, ...], Field(min_length=1)] = (8.0,)
    #: Shares of jobs that may not be moved.
    pinned: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)] = (0.0,)
    #: Of each workload's days, only every so-many-th: for a quick look.
    sample: Annotated[int, Field(ge=1)] = 1
    window: WindowSpec | None = None
    #: Also replay the first day for an HTML page with pictures of the cluster.
    page: bool = False
    tables: tuple[TableSpec, ...] = ()
    figures: tuple[FigureSpec, ...] = ()
    rankings: tuple[RankingSpec, ...] = ()

    @field_validator("tables", "figures", "rankings", "workloads")
    @classmethod
    def _names_differ(cls, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        if twice := _twice([part.name for part in parts]):
            raise ValueError(f"two are called {twice[0]!r}; give one another name (of a workload: its `label`)")
        return parts

    @field_validator("schedulers", "eta", "nodes", "queues", "costs", "pinned")
    @classmethod
    def _values_differ(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if twice := _twice(values):
            raise ValueError(f"{twice[0]!r} stands there twice")
        return values

    @model_validator(mode="after")
    def _names_only_what_will_be_there(self) -> "Study":
        if (mistake := mistake_in(self)) is not None:
            raise ValueError(mistake)
        return self


def _twice(values: Sequence[Any]) -> list[Any]:
    """Those that there are two of."""
    return [value for i, value in enumerate(values) if value in values[:i]]


def sampled(study: Study, every: int) -> Study:
    """The study on every so-many-th of the days that it would have had."""
    return study.model_copy(update={"sample": study.sample * every})


def shipped_studies() -> tuple[str, ...]:
    """The names of the studies that come with the package, in the order of the paper."""
    return tuple(_order(path.name) for path in _shipped())


def _shipped() -> list[Path]:
    folder = Path(str(files("compass_abs.experiments") / "studies"))
    return sorted(folder.glob("*.yaml"))


def _order(name: str) -> str:
    """`03-composition.yaml` is the study `composition`."""
    return name.removesuffix(".yaml").partition("-")[2]


def load_study(name_or_path: str) -> Study:
    """A study by its name, or from a file of one's own."""
    return read_study(_find(name_or_path))


def study_text(name_or_path: str) -> str:
    """The YAML of a study."""
    return _find(name_or_path).read_text(encoding="utf-8")


def _find(name_or_path: str) -> Path:
    for path in _shipped():
        if _order(path.name) == name_or_path:
            return path
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    raise StudyError(f"there is no study {name_or_path!r}; known: {', '.join(shipped_studies())}, or give a YAML file")


def read_study(path: Path) -> Study:
    """The study in a file; errors name the file and the field."""
    import yaml

    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _loader())
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" line {place.line + 1}" if place is not None else ""
        raise StudyError(f"{path}{line}: this can't be read as YAML: {getattr(error, 'problem', error)}") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"{path}: this is no text in UTF-8") from error
    if not isinstance(content, dict):
        raise StudyError(f"{path}: expected fields such as `name`, `workloads` and `schedulers`, found {content!r:.60}")
    try:
        return Study.model_validate(content)
    except ValidationError as error:
        raise StudyError(f"{path}: {_first_mistake(error)}") from error


def _first_mistake(error: ValidationError) -> str:
    """The field, its value, and what is wrong with it."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    # Checks of the whole study name their field themselves.
    if not first["loc"]:
        return message
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {message}" if first["type"] == "missing" else f"{field} is {first['input']!r:.60}: {message}"


def _loader() -> "type[yaml.SafeLoader]":
    """Reads YAML as usual, but refuses a field that is given twice, of which YAML would silently take the last."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value]
            for key, _ in node.value:
                if names.count(key.value) > 1:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            return super().construct_mapping(node, deep)

    return Loader
