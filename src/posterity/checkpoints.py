"""Checkpoints of a training run: one safetensors file, replaced in one piece, never a pickle."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posterity.errors import Error

NAME = "checkpoint.safetensors"
FORMAT = 2
#: What an optimiser keeps of a parameter.
KEPT: dict[type[torch.optim.Optimizer], set[str]] = {
    torch.optim.AdamW: {"step", "exp_avg", "exp_avg_sq"},
    torch.optim.SGD: {"momentum_buffer"},
}


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
    if not path.is_file():
        raise Error(f"The checkpoint {path} is no file.")
    try:
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {})["posterity"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if head["format"] != FORMAT:
            raise Error(f"The checkpoint {path} has format {head['format']}; this version reads {FORMAT}.")
        _check(head, tensors)
        parts = {
            part: {k.removeprefix(f"{part}/"): v for k, v in tensors.items() if k.startswith(f"{part}/")}
            for part in ("extra", "posterior", "optimizer", "best")
        }
        best = None if head["best"] is None else {**head["best"], "state": parts["best"]}
        return State(head["settings"], head["progress"], parts["extra"], parts["posterior"], parts["optimizer"], best)
    except Error:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise Error(f"The checkpoint {path} is damaged ({str(error)[:200]}): remove it to start anew.") from error


def _check(head: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Raise a ValueError where a head is not of the form that `write` gives it, or a parameter is no number."""
    progress, best = head["progress"], head["best"]
    if not isinstance(head["settings"], dict) or not _whole(head["settings"].get("seed"), 2**63):
        raise ValueError("it has no settings")
    records = progress["history"]
    if not isinstance(records, list) or not all(isinstance(r, dict) and all(map(_number, r.values())) for r in records):
        raise ValueError("its history is no list of numbers by name")
    for name in ("count", "since"):
        if not _whole(progress[name]):
            raise ValueError(f"{name} is no number of steps")
    if not _number(progress["last_loss"]):
        raise ValueError("its loss is no number")
    groups = progress["groups"]
    if not isinstance(groups, list) or not all(isinstance(g, dict) and all(map(_number, g.values())) for g in groups):
        raise ValueError("its groups of parameters hold no numbers")
    if best is not None and not (_whole(best["epoch"]) and _number(best["validation"])):
        raise ValueError("its best epoch has no number")
    shapes = [{k[len(p) :]: v.shape for k, v in tensors.items() if k.startswith(p)} for p in ("posterior/", "best/")]
    if best is not None and shapes[0] != shapes[1]:
        raise ValueError("its best parameters are others than those of now")
    for key, value in tensors.items():  # those of the posterior are compared with its own, which may be no numbers
        if not key.startswith(("posterior/", "best/")) and bool(value.isnan().any()):
            raise ValueError(f"{key} holds what is no number")


def _number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**53)


def _whole(value: Any, most: int = 2**53) -> bool:
    return isinstance(value, int) and 0 <= value < most


class Saver:
    """Writes a checkpoint whenever enough time has passed since the last one."""

    def __init__(self, folder: str | Path | None, every: float) -> None:
        self.folder = None if folder is None else Path(folder)
        self.every, self.last = every, time.monotonic()
        if self.folder is not None:
            for stale in self.folder.glob(f"{NAME}.*.part"):
                stale.unlink(missing_ok=True)

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return self.folder is not None and time.monotonic() - self.last >= self.every

    def write(self, state: State) -> None:
        """Write a state, where there is a folder."""
        if self.folder is not None:
            write(self.folder, state)
            self.last = time.monotonic()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors by "<parameter's number>/<name>"."""
    flat = {}
    for index, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if value is not None:
                flat[f"{index}/{name}"] = torch.as_tensor(value)
    return flat


def group_numbers(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The numbers that an optimiser keeps for its groups: some count their steps there."""
    return [{name: v for name, v in group.items() if type(v) in (int, float)} for group in optimizer.param_groups]


def unflatten_optimizer(
    optimizer: torch.optim.Optimizer,
    flat: dict[str, Tensor],
    scatter: Callable[[Tensor, Tensor], Tensor],
    numbers: Sequence[dict[str, Any]],
) -> None:
    """Put the tensors of `flatten_optimizer` back; `scatter(value, parameter)` makes the part of one that is here.

    Tensors that this optimiser would not keep are a ValueError, where that is known. `numbers` are the groups'.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    wanted = _kept(optimizer)
    state: dict[int, dict[str, Any]] = {}
    for key, value in flat.items():
        index, _, name = key.partition("/")
        if not index.isdigit() or int(index) >= len(parameters):
            raise ValueError(f"there is no parameter {index[:20]} to optimise")
        parameter = parameters[int(index)]
        real = name == "step" or not parameter.is_complex()
        fits = value.is_floating_point() == real and value.shape == (() if name == "step" else parameter.shape)
        if wanted and (not fits or (name == "step" and not float(value) >= 0)):
            raise ValueError(f"{key[:50]} of the optimiser does not fit its parameter")
        own: Any = scatter(value, parameter) if name != "step" and value.shape == parameter.shape else value
        state.setdefault(int(index), {})[name] = own.item() if value.dtype == torch.int64 and not value.dim() else own
    if wanted and any(entry.keys() != wanted for entry in state.values()):
        raise ValueError(f"the optimiser's state is not that of {type(optimizer).__name__}")
    groups = optimizer.state_dict()["param_groups"]
    for group, found in zip(groups, numbers, strict=True) if not wanted else ():
        group |= {name: value for name, value in found.items() if type(group.get(name)) in (int, float)}
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _kept(optimizer: torch.optim.Optimizer) -> set[str]:
    """What an optimiser keeps of a parameter, where that is known."""
    also = {"max_exp_avg_sq"} if any(group.get("amsgrad") for group in optimizer.param_groups) else set()
    return KEPT[type(optimizer)] | also if type(optimizer) in KEPT else set()
