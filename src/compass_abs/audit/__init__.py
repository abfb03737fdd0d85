"""A look without touching at a cluster that something else schedules: readers, the audit, the shadow."""

from compass_abs.audit.audit import Audit, PoolAudit, audit
from compass_abs.audit.observation import (
    AuditError,
    Observation,
    PendingJob,
    Remark,
    RunningJob,
    Shape,
)
from compass_abs.audit.reading import load_observation, read_observation

__all__ = [
    "Audit",
    "AuditError",
    "Observation",
    "PendingJob",
    "PoolAudit",
    "Remark",
    "RunningJob",
    "Shape",
    "audit",
    "load_observation",
    "read_observation",
]
