"""The traces that have a name: what they are, where they lie, where they come from, and under which licence."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from compass_abs.traces.errors import TraceError

#: The folder of one's own copies; looked into first.
FOLDER_VARIABLE = "COMPASS_TRACES"
SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True, slots=True)
class Download:
    """One official file."""

    url: str
    #: Where it goes, relative to the folder of traces.
    path: str
    #: Hexadecimal; None where none is published. Those of Alibaba's files are of the commit that the address names.
    sha256: str | None = None
    #: The member to take out of the archive that `url` is; "" for a plain file.
    member: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """A trace that `compass` knows by name."""

    name: str
    title: str
    #: Where its file may lie in a folder of traces, the first that exists counts.
    files: tuple[str, ...]
    licence: str
    homepage: str = ""
    downloads: tuple[Download, ...] = ()
    capacity: int = 8
    #: Clock time of second 0 for relative files; the first midnight for dated ones.
    origin: datetime | None = None
    notes: tuple[str, ...] = ()
    synthetic: bool = False


_HELIOS = "https://github.com/S-Lab-System-Group/HeliosData"
_ACME = "https://github.com/InternLM/AcmeTrace"
_PHILLY = "https://github.com/msr-fiddle/philly-traces"
_ALIBABA_RAW = "https://github.com/alibaba/clusterdata/raw"
#: The commits at which the files had the hashes below.
_GFS_RAW = f"{_ALIBABA_RAW}/0d0f3f1efdbf1add6a7bcc63676eafbd1eb11f71/cluster-trace-v2026-spot-gpu"
_OPENB_RAW = f"{_ALIBABA_RAW}/7a6c496e4f4b6ce6150be8f881cb051bf2abff42/cluster-trace-gpu-v2023/csv"
_HELIOS_RAW = f"{_HELIOS}/raw/159f0caeec16600b9b6017862952a36aae01c43f/data"


def _helios(name: str, origin: datetime | None = None) -> Published:
    cluster = name.capitalize()
    return Published(
        name=name,
        title=f"Helios {cluster}, SenseTime 2020 (SC '21)",
        files=(f"{name}/cluster_log.csv", f"{cluster}/cluster_log.csv"),
        licence="CC-BY-4.0",
        homepage=_HELIOS,
        downloads=(Download(f"{_HELIOS_RAW}/{cluster}/cluster_log.csv", f"{name}/cluster_log.csv"),),
        origin=origin,
    )


def _acme(name: str) -> Published:
    return Published(
        name=name,
        title=f"Acme {name.capitalize()}, Shanghai AI Lab 2023 (NSDI '24)",
        files=(f"{name}/trace_{name}.csv", f"acme/trace_{name}.csv", f"job_trace/trace_{name}.csv"),
        licence="CC-BY-4.0",
        homepage=_ACME,
        downloads=(
            Download(
                f"{_ACME}/raw/6d6ac9cd15f3b01151ac6ba00ecddd9156f0dc73/data/job_trace/trace_{name}.csv",
                f"{name}/trace_{name}.csv",
            ),
        ),
    )


def _sample(name: str, title: str) -> Published:
    return Published(
        name=name, title=title, files=(f"{name}.csv",), licence="Apache-2.0, part of this project", synthetic=True
    )


PUBLISHED: tuple[Published, ...] = (
    # Day 1 is pinned: the paper counts from 2020-03-18.
    _helios("venus", datetime(2020, 3, 18)),
    _helios("saturn"),
    _helios("earth"),
    _helios("uranus"),
    Published(
        name="gfs",
        title="Alibaba spot-gpu 2026, the paper's GFS trace (ASPLOS '26)",
        files=("gfs/job_info_df.csv", "cluster-trace-v2026-spot-gpu/job_info_df.csv"),
        licence="none stated; published for research",
        homepage="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-v2026-spot-gpu",
        downloads=(
            Download(
                f"{_GFS_RAW}/job_info_df.csv",
                "gfs/job_info_df.csv",
                "113ccee4c28f5c3bbaaca974cd164b9280b7d4c39e53b745443b28eea05e03dd",
            ),
            Download(
                f"{_GFS_RAW}/node_info_df.csv",
                "gfs/node_info_df.csv",
                "1aba161961a5a4a1a61aa581383c5e5abe3400b59f8597ba8c4eef7597bc9d18",
            ),
        ),
    ),
    Published(
        name="philly",
        title="Microsoft Philly 2017, the published log (ATC '19)",
        files=("philly/cluster_job_log", "philly/cluster_job_log.json", "trace-data/cluster_job_log"),
        licence="CC-BY-4.0",
        homepage=_PHILLY,
        downloads=(
            Download(
                f"{_PHILLY}/raw/master/trace-data.tar.gz", "philly/cluster_job_log", member="trace-data/cluster_job_log"
            ),
        ),
    ),
    Published(
        name="philly-flat",
        title="Microsoft Philly 2017, total GPUs and durations only",
        files=("philly/philly_trace.csv",),
        licence="CC-BY-4.0 (data), MIT (conversion)",
        homepage="https://github.com/shuoshuc/RFold",
        downloads=(
            Download(
                "https://raw.githubusercontent.com/shuoshuc/RFold/b98145539be208ceae371ecaa0464e345c90234b/"
                "WorkloadGen/data/philly_trace.csv",
                "philly/philly_trace.csv",
            ),
        ),
        # The first submission of the published log, which the conversion made its second 0.
        origin=datetime(2017, 8, 14, 23, 27),
    ),
    _acme("kalos"),
    _acme("seren"),
    Published(
        name="kalos-converted",
        title="Acme Kalos, completed jobs only, converted",
        files=("kalos/converted_kalos_trace.csv",),
        licence="CC-BY-4.0",
        homepage="https://github.com/hyunnnchoi/AcmeTrace",
        downloads=(
            Download(
                "https://raw.githubusercontent.com/hyunnnchoi/AcmeTrace/30f09c6809393f07d43b238a5c98b432962d9b6d/"
                "data/converted_trace/converted_kalos_trace.csv",
                "kalos/converted_kalos_trace.csv",
            ),
        ),
    ),
    Published(
        name="openb",
        title="Alibaba cluster-trace-gpu-v2023, openb (FGD, ATC '23)",
        files=("openb/openb_pod_list_default.csv", "cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv"),
        licence="none stated; published for research",
        homepage="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023",
        downloads=tuple(
            Download(f"{_OPENB_RAW}/{file}", f"openb/{file}", sha256)
            for file, sha256 in (
                (
                    "openb_pod_list_default.csv",
                    "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
                ),
                (
                    "openb_node_list_gpu_node.csv",
                    "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
                ),
            )
        ),
        notes=("one pod is one job: the file does not say which pods belong together",),
    ),
    _sample("demo", "a contended day of 1,500 jobs, generated (bundled)"),
    _sample("phys-mix", "a session on 32 GPUs, generated (bundled)"),
)


def cache_folder() -> Path:
    """Where fetched traces are kept for this user."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "compass-abs" / "traces"


def folders() -> list[Path]:
    """Where named traces are looked for, in order."""
    own = os.environ.get(FOLDER_VARIABLE)
    return [*([Path(own)] if own else []), cache_folder(), SAMPLES]


def published(name: str) -> Published | None:
    """The entry of a name."""
    return next((entry for entry in PUBLISHED if entry.name == name), None)


def find(entry: Published) -> Path | None:
    """The file of a named trace on this machine."""
    for folder in [SAMPLES] if entry.synthetic else folders():
        for file in entry.files:
            if (folder / file).is_file():
                return folder / file
    return None


def locate(name_or_path: str | Path) -> tuple[Path, Published | None]:
    """The file that a name or a path stands for, and the entry of the name."""
    entry = published(name_or_path) if isinstance(name_or_path, str) else None
    if entry is not None:
        path = find(entry)
        if path is None:
            raise TraceError(
                f"trace {entry.name!r} is not on this machine: run `compass trace fetch {entry.name}`, or set "
                f"{FOLDER_VARIABLE} to a folder with {entry.files[0]}"
            )
        return path, entry
    path = Path(name_or_path)
    if not path.exists():
        names = ", ".join(e.name for e in PUBLISHED)
        raise TraceError(f"{path}: no such file, and no trace of that name; names are {names}")
    if not (path.is_file() or path.is_dir()):
        raise TraceError(f"{path}: pipes and devices can't be read, as a trace is looked at twice; store it in a file")
    return path, _entry_of(path)


def _entry_of(path: Path) -> Published | None:
    """The entry whose file this is, by its last two path components: traces/venus/cluster_log.csv is Venus."""
    tail = "/".join(path.resolve().parts[-2:]).lower()
    return next((e for e in PUBLISHED if any(f.lower() == tail for f in e.files)), None)
