"""A job's life in words, from its records in the journal: for `compass describe`, its page and the API."""

from collections.abc import Iterable
from typing import Any

from compass_abs.controller.records import (
    CancelRequested,
    CheckpointBad,
    Checkpointed,
    ClearingBegun,
    Ended,
    Launched,
    MigrationBegun,
    MigrationEnded,
    Placed,
    Record,
    Requeued,
    Resumed,
    StepBegun,
    Submitted,
    Unplaced,
)

#: Records of a job that are read, the latest ones: one that saves every minute for a month has a long story.
MOST_READ = 200
_CLEARINGS = {"requeue": "what is left is ended, to start again", "fail": "is ended", "cancel": "is ended"}


def story(records: Iterable[Record]) -> list[dict[str, Any]]:
    """What happened to a job and when, the latest last."""
    told: list[dict[str, Any]] = []
    for record in records:
        words = _words(record)
        # A checkpoint that was asked for is reported by the job as well as acknowledged.
        if words and not (told and told[-1]["text"] == words):
            told.append({"time": record.time, "event": record.kind, "text": words})
    return told


def _words(record: Record) -> str:
    match record:
        case Submitted():
            return "submitted"
        case Placed():
            begins = f" from the checkpoint of step {record.resume_step}" if record.resume_from else ""
            return f"starts on {_list(record.nodes)}{begins} (generation {record.generation})"
        case Launched():
            return ""
        case Resumed():
            return f"trains (generation {record.generation})"
        case Unplaced():
            return f"start refused, waits again: {record.why}"
        case Checkpointed():
            return f"checkpoint of step {record.step}"
        case CheckpointBad():
            return f"checkpoint {record.path} counts as damaged: {record.why}"
        case ClearingBegun():
            return _with(_CLEARINGS.get(record.after, ""), record.why)
        case Requeued():
            lost = f", {record.lost_steps} steps lost" if record.lost_steps else ""
            return f"waits again{lost}"
        case CancelRequested():
            return "to be cancelled" + (f", says {record.who}" if record.who else "")
        case MigrationBegun():
            return f"migration {record.migration_id} to {_list(record.targets)} begins ({record.cause})"
        case StepBegun():
            return f"migration {record.migration_id}: {record.phase.replace('_', ' ')}"
        case MigrationEnded():
            seconds = f" after {sum(record.seconds.values()):.2f} s"
            return _with(f"migration {record.migration_id} {record.outcome.value}{seconds}", record.why)
        case Ended():
            return _with(record.outcome.value, record.why)
        case _:
            return ""


def _list(nodes: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(nodes))


def _with(what: str, why: str) -> str:
    return f"{what}: {why}" if what and why else what
