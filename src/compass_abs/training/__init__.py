"""The checkpoint contract for training jobs, and the Phys-Mix workloads.

    from compass_abs import training

Importing this imports no torch.
"""

from compass_abs.training.contract import Worker
from compass_abs.training.group import exact_ddp
from compass_abs.training.leaving import Stopped, leave
from compass_abs.training.session import Saving, Session, session

__all__ = ["Saving", "Session", "Stopped", "Worker", "exact_ddp", "leave", "session"]
