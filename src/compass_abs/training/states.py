"""What a checkpoint holds: the state that all ranks share, and what each rank has of its own."""

from collections.abc import Mapping
from typing import Any

from compass_abs.model import CompassError
from compass_abs.training import randomness


class TrainingState:
    """The objects of a training loop, and how their states are taken and put back."""

    def __init__(self, model: Any, optimizer: Any, scheduler: Any, extra: dict[str, Any]) -> None:
        self._shared = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
        self._extra = extra
        for name, thing in extra.items():
            if not any(hasattr(thing, method) for method in ("state_dict", "get_state")) and type(thing) is not dict:
                raise CompassError(
                    f"extra {name!r} is {type(thing).__name__}; expected an object with state_dict and "
                    "load_state_dict, a generator with get_state and set_state, or a dictionary"
                )

    def whole(self, step: int, ranks: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole checkpoint; tensors in it are the live ones."""
        shared = {name: _take(thing) for name, thing in self._shared.items()}
        return {**shared, "step": step, "ranks": ranks}

    def of_rank(self) -> dict[str, Any]:
        """What only this rank knows."""
        return {"random": randomness.capture(), "extra": {name: _take(thing) for name, thing in self._extra.items()}}

    def restore(self, tree: Mapping[str, Any], rank: Mapping[str, Any]) -> dict[str, Any]:
        """Puts everything back but the random states, which it returns: they come last."""
        for name, thing in self._shared.items():
            _put(thing, tree[name], name)
        for name, thing in self._extra.items():
            if name not in rank["extra"]:
                raise CompassError(f"the checkpoint has no extra {name!r}, only {sorted(rank['extra'])}")
            _put(thing, rank["extra"][name], name)
        random: dict[str, Any] = rank["random"]
        return random


def _take(thing: Any) -> Any:
    if thing is None:
        return None
    if hasattr(thing, "state_dict"):
        return _unwrapped(thing).state_dict()
    if hasattr(thing, "get_state"):
        return thing.get_state()
    return {key: _take(value) if hasattr(value, "state_dict") else value for key, value in thing.items()}


def _put(thing: Any, state: Any, name: str) -> None:
    if thing is None:
        return
    if state is None:
        raise CompassError(f"the checkpoint has no {name}; it was made by a job without one")
    if hasattr(thing, "load_state_dict"):
        _unwrapped(thing).load_state_dict(state)
    elif hasattr(thing, "set_state"):
        # A checkpoint's tensor may lie in mapped memory; generators want their own.
        thing.set_state(state.clone() if hasattr(state, "clone") else state)
    else:
        for key, value in state.items():
            if hasattr(thing.get(key), "load_state_dict"):
                _put(thing[key], value, f"{name}[{key!r}]")
            else:
                thing[key] = value


def _unwrapped(thing: Any) -> Any:
    """The module inside DDP, so that a checkpoint doesn't depend on how many ranks made it."""
    return thing.module if type(thing).__name__ in ("DistributedDataParallel", "DataParallel") else thing
