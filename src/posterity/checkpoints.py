"""Checkpoints of a training run: one safetensors file, replaced in one piece, never a pickle."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posterity.errors import Error

NAME = "checkpoint.safetensors"
FORMAT = 1


class State(NamedTuple):
    """Where a run stands."""

    settings: dict[str, Any]
    progress: dict[str, Any]
    extra: dict[str, Tensor]
    posterior: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    best: dict[str, Any] | None


def write(folder: Path, state: State) -> None:
    """Write a state to the folder; whoever kills this leaves the old file or the new one, never half a file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {f"extra/{k}": v for k, v in state.extra.items()}
    tensors |= {f"posterior/{k}": v for k, v in state.posterior.items()}
    tensors |= {f"optimizer/{k}": v for k, v in state.optimizer.items()}
    head: dict[str, Any] = {
        "format": FORMAT,
        "settings": state.settings,
        "progress": state.progress,
        "best": None,
    }
    if state.best is not None:
        tensors |= {f"best/{k}": v for k, v in state.best["state"].items()}
        head["best"] = {"epoch": state.best["epoch"], "validation": state.best["validation"]}
    copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
    temporary = folder / f"{NAME}.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(copies, temporary, metadata={"posterity": json.dumps(head)})
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(folder / NAME)
    except (OSError, SafetensorError) as error:
        raise Error(
            f"Cannot write the checkpoint to {folder}: {error}. What was saved before is still there."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read(folder: str | Path) -> State | None:
    """The state in a folder, or None where there is none."""
    from safetensors import SafetensorError, safe_open

    path = Path(folder) / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {})["posterity"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if head["format"] != FORMAT:
            raise Error(f"The checkpoint {path} has format {head['format']}; this version reads {FORMAT}.")
        parts = {
            part: {k.removeprefix(f"{part}/"): v for k, v in tensors.items() if k.startswith(f"{part}/")}
            for part in ("extra", "posterior", "optimizer", "best")
        }
        best = None if head["best"] is None else {**head["best"], "state": parts["best"]}
        return State(head["settings"], head["progress"], parts["extra"], parts["posterior"], parts["optimizer"], best)
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError, OSError) as error:
        raise Error(f"The checkpoint {path} is damaged ({error}): remove it to start anew.") from error


class Saver:
    """Writes a checkpoint whenever enough time has passed since the last one."""

    def __init__(self, folder: str | Path | None, every: float) -> None:
        self.folder = None if folder is None else Path(folder)
        self.every, self.last = every, time.monotonic()
        if self.folder is not None:
            for stale in self.folder.glob(f"{NAME}.*.part"):
                stale.unlink(missing_ok=True)

    def maybe(self, state: Callable[[], State], force: bool = False) -> None:
        """Write `state()` if it is time to, or in any case."""
        if self.folder is not None and (force or time.monotonic() - self.last >= self.every):
            write(self.folder, state())
            self.last = time.monotonic()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors by "<parameter's number>/<name>"."""
    flat = {}
    for index, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if value is not None:
                flat[f"{index}/{name}"] = torch.as_tensor(value)
    return flat


def unflatten_optimizer(optimizer: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Put the tensors of `flatten_optimizer` back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        index, _, name = key.partition("/")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
