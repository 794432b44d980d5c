"""The processes that train one posterior together: what they agree on, and where its parameters are."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posterity import shares
from posterity.errors import Error, short
from posterity.masks import KINDS, Answer, alpha_dropped
from posterity.state import ONE_AT_A_TIME


class Accelerate:
    """An Accelerator of one run's own, in the state that Accelerate keeps for a whole process and all its threads.

    Within `turn` that state is this run's; what a caller, or another run, had set up is there again afterwards.
    """

    def __init__(self, device: torch.device, precision: str) -> None:
        if precision not in ("no", "bf16", "fp16"):
            raise Error(f"precision must be 'no', 'bf16' or 'fp16'; got {short(precision)}.")
        if precision == "fp16" and device.type == "cpu":
            warnings.warn('On a processor precision="fp16" changes nothing: give "bf16" there.', stacklevel=3)
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState, GradientState, PartialState

        kept: Any = (AcceleratorState, PartialState, GradientState)
        self.states: list[dict[str, Any]] = [state._shared_state for state in kept]
        self.own: list[dict[str, Any]] = [{} for _ in kept]
        with self.turn():
            self.accelerator: Any = Accelerator(mixed_precision=precision, cpu=device.type == "cpu")

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """In here Accelerate's state is that of this run, and other threads wait."""
        with ONE_AT_A_TIME:
            before = self._replace(self.own)
            try:
                yield
            finally:
                self.own = self._replace(before)

    def _replace(self, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        before = [dict(state) for state in self.states]
        for state, value in zip(self.states, values, strict=True):
            state.clear()
            state.update(value)
        return before


def team() -> tuple[int, int]:
    """The number of this process and how many there are, as `torchrun` and `accelerate launch` tell."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Processes:
    """This process and the others, one of which is the main one. Alone, everything here is what it is without.

    Each holds all parameters (data parallel), or a part of them (sharded, where Accelerate was told to use FSDP), which
    are then gathered for every step.

    Args:
        accelerator: of the run.
    """

    def __init__(self, accelerator: Any) -> None:
        self.device, self.rank, self.count = accelerator.device, accelerator.process_index, accelerator.num_processes
        self.main = self.rank == 0
        self.sharded = self.count > 1 and os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")
        self.objective: Any = None
        self.numbers: list[nn.Parameter] = []
        self.hooks: list[tuple[nn.Module, dict[int, Any]]] = []

    def wrap(self, objective: nn.Module) -> Any:
        """The objective, such that its gradient is the mean over all processes."""
        self.objective = objective
        if self.count == 1:
            return objective
        if self.sharded:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            self.hooks = [(m, dict(m._load_state_dict_post_hooks)) for m in objective.modules()]
            mesh = init_device_mesh(self.device.type, (self.count,))
            self.numbers = [p for p in objective.parameters() if p.dim() == 0]  # which cannot be cut
            return fully_shard(objective, mesh=mesh, ignored_params=set(self.numbers))
        return nn.parallel.DistributedDataParallel(
            objective, device_ids=[self.device] if self.device.type == "cuda" else None, find_unused_parameters=True
        )

    def reduce(self) -> None:
        """After the backward pass: the mean of those gradients that are not reduced by then."""
        for number in self.numbers:
            if number.grad is not None:
                number.grad.copy_(self.mean(number.grad))

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise, in all of them, where the processes differ in one of these facts."""
        if self.count == 1:
            return
        found: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(found, dict(facts))
        if different := [name for name in facts if any(own[name] != found[0][name] for own in found)]:
            raise Error(
                f"The processes differ in {', '.join(different)}. Each calls fit with the same arguments and all "
                "of the data, of which it then takes its part of every batch: give seed=, and do not divide the data."
            )

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all processes."""
        return value.detach() if self.count == 1 else self._sum(value) / self.count

    def total(self, *values: float) -> list[float]:
        """The sums over all processes."""
        if self.count == 1:
            return list(values)
        return self._sum(torch.tensor(values, dtype=torch.float64, device=self.device)).tolist()

    def any(self, *flags: bool) -> list[bool]:
        """Whether each holds in any process."""
        return [value > 0 for value in self.total(*map(float, flags))]

    def _sum(self, value: Tensor) -> Tensor:
        value = value.detach().clone()
        torch.distributed.all_reduce(value)
        return value

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, all parameters are here."""
        if not self.sharded:
            yield
            return
        self.objective.unshard()
        try:
            yield
        finally:
            self.objective.reshard()

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors, each whole."""
        parts: Mapping[str, Any] = tensors
        return {name: value.full_tensor() if self._split(value) else value for name, value in parts.items()}

    def scatter(self, value: Tensor, like: Tensor) -> Tensor:
        """The part of a whole tensor that is here, where `like` is such a part of another."""
        if not self._split(like):
            return value
        from torch.distributed.tensor import distribute_tensor

        mesh: Any = like
        return distribute_tensor(value.to(like.device), mesh.device_mesh, mesh.placements)

    def end(self) -> None:
        """Parameters are plain and whole again, and buffers those of the main process."""
        if self.count == 1 or self.objective is None:
            return
        for module, hooks in self.hooks:  # those of the shards would wait for shards
            module._load_state_dict_post_hooks.clear()
            module._load_state_dict_post_hooks.update(hooks)
        made: dict[int, nn.Parameter] = {}
        for module in self.objective.modules():
            for name, value in module._parameters.items():
                if value is not None and self._split(value):
                    whole: Any = value
                    if id(value) not in made:
                        made[id(value)] = nn.Parameter(whole.full_tensor().detach(), value.requires_grad)
                    module._parameters[name] = made[id(value)]
        for buffer in self.objective.buffers():
            torch.distributed.broadcast(buffer, 0)

    def _split(self, value: Any) -> bool:
        return self.sharded and hasattr(value, "full_tensor")


class Dropouts(Answer):
    """Dropout of a network's own, also of attention: its masks are drawn for the whole batch, and each process takes
    those of its rows. (That between the layers of a recurrent one is out of reach.)"""

    def __init__(self) -> None:
        super().__init__(_own_rows)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Answer a dropout in training; anything else as it is."""
        kwargs = kwargs or {}
        training = kwargs.get("training", kwargs.get("train", args[2] if func in KINDS and len(args) > 2 else True))
        return super().__torch_function__(func, types, args, kwargs) if training else func(*args, **kwargs)


def _own_rows(x: Tensor, p: float, function: Any) -> Tensor:
    """x with what the whole batch's masks drop of the rows here."""
    if shares.copies(len(x)) is None:
        return function(x, p, True)  # type: ignore[no-any-return]
    # Masks are drawn in the order in which numbers lie in memory: the whole batch must lie as the rows here do.
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    shape = (shares.whole(len(x)), *x.shape[1:])
    ones = torch.empty_permuted(shape, order, dtype=x.dtype, device=x.device).fill_(1)
    masks = shares.part(function(ones, p, True))
    return alpha_dropped(x, masks > 0, p) if KINDS[function].alpha else x * masks
