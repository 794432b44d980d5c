"""What a network keeps between calls: buffers, and what its modules write down (caches, counts, activations).

What was computed under noise or under drawn weights must not be found by the next call: some networks keep, in
evaluation mode, values that they computed from their parameters.
"""

import contextlib
import contextvars
import copy
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.device_checks import indices_checked
from posterity.errors import Error, short

#: Hooks read their noise from a site, and a call with other weights puts them in place of the network's own: two
#: threads must not do so at once, nor look at a network meanwhile. A process that is forked finds none under way.
ONE_AT_A_TIME = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=ONE_AT_A_TIME.acquire,
        after_in_parent=ONE_AT_A_TIME.release,
        after_in_child=lambda: _release_all(ONE_AT_A_TIME),
    )

_SHARING = contextvars.ContextVar("sharing", default=False)
_INTERNAL = frozenset(vars(nn.Module()))
_CONTAINERS = (dict, list, set)


class Snapshot:
    """The attributes of a network's modules, and what is in their dicts, lists and sets."""

    def __init__(self, network: nn.Module) -> None:
        self.kept: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = []
        for module in network.modules():
            own = vars(module)
            values = {key: own[key] for key in own.keys() - _INTERNAL}
            copies = {key: copy.copy(value) for key, value in values.items() if isinstance(value, _CONTAINERS)}
            self.kept.append((own, values, copies))

    def restore(self, everything: bool = False) -> None:
        """Make them what they were: all, or what holds tensors now, so that counts and flags stay."""
        for own, values, copies in self.kept:
            for key in own.keys() - _INTERNAL:
                if own[key] is not values.get(key) and (everything or _tensors(own[key])):
                    del own[key]
            for key, value in values.items():
                own.setdefault(key, value)
            for key, before in copies.items():
                _refill(values[key], before)


@contextlib.contextmanager
def unchanged(network: nn.Module) -> Iterator[None]:
    """No tensor that is made in here stays in an attribute of the network's modules, or in a container of one."""
    snapshot = Snapshot(network)
    try:
        yield
    finally:
        snapshot.restore()


def keeps_tensors(network: nn.Module) -> bool:
    """Whether modules hold tensors beside parameters and buffers, which one call may leave to the next."""
    return any(
        bool(_tensors(value))
        for module in network.modules()
        for key, value in vars(module).items()
        if key not in _INTERNAL
    )


def _release_all(lock: Any) -> None:
    """In a process that is forked while this thread has the lock: its other threads would wait for ever."""
    with contextlib.suppress(RuntimeError):
        while True:
            lock.release()


def alone() -> contextlib.AbstractContextManager[Any]:
    """No other thread is in here; a compiler, which knows no threads, sees nothing of it."""
    return contextlib.nullcontext() if torch.compiler.is_compiling() else ONE_AT_A_TIME


def clean(network: nn.Module) -> contextlib.AbstractContextManager[Any]:
    """`alone`, and `unchanged` where a network is evaluated: in training, what it keeps is its own business."""
    return alone() if network.training or torch.compiler.is_compiling() else _alone_and_unchanged(network)


@contextlib.contextmanager
def _alone_and_unchanged(network: nn.Module) -> Iterator[None]:
    with ONE_AT_A_TIME, unchanged(network):
        yield


@contextlib.contextmanager
def untouched(network: nn.Module, x: Any) -> Iterator[None]:
    """The same, with the network's buffers and torch's generators; an index out of range raises on any device."""
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    cuda = {tensor.device for tensor in inputs.tensors(x) if tensor.is_cuda}
    try:
        with alone(), torch.random.fork_rng(devices=list(cuda)), unchanged(network), indices_checked(x):
            yield
    finally:
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                if name in kept and buffer.shape == kept[name].shape:
                    buffer.copy_(kept[name])


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Functions that are drawn in here share the storage of what is trained: they may not be used outside."""
    token = _SHARING.set(True)
    try:
        yield
    finally:
        _SHARING.reset(token)


def kept(tensor: Tensor) -> Tensor:
    """The values of a parameter for a drawn function, which keeps them when the parameter is trained on."""
    return tensor.detach() if _SHARING.get() else tensor.detach().clone()


class Swaps:
    """A network under other parameters and buffers, one set after the other: their places are found once.

    It is what `inputs.call` does with weights, within `clean`, for a network that nobody changes between the sets.

    Args:
        network: whose parameters and buffers are replaced.
        ties: whether a tensor is replaced under all names that it has.
    """

    def __init__(self, network: nn.Module, ties: bool = True) -> None:
        self.places = {place.name: every if ties else [place] for every in inputs.places(network) for place in every}
        self.snapshot = None if network.training else Snapshot(network)

    @contextlib.contextmanager
    def holding(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """The network has these in here."""
        chosen = [(place.held, place.key, value) for name, value in weights.items() for place in self.places[name]]
        before = [held[key] for held, key, _ in chosen]
        try:
            for held, key, value in chosen:
                held[key] = value
            yield
        finally:
            for (held, key, _), own in zip(chosen, before, strict=True):
                held[key] = own
            if self.snapshot is not None:
                self.snapshot.restore()


def duplicate(network: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A copy of a network; what a forward pass left behind is copied without its graph, which could not be."""
    memo = {} if memo is None else memo
    for module in network.modules():
        for value in vars(module).values():  # most are dicts of hooks without any, which are slow to copy
            if type(value) is OrderedDict and not value:
                memo[id(value)] = OrderedDict()
        for tensor in _tensors([value for key, value in vars(module).items() if key not in _INTERNAL]):
            if _has_graph(tensor):
                memo[id(tensor)] = tensor.data
    return copy.deepcopy(network, memo)


def refuse_again(network: nn.Module, names: Iterable[str]) -> None:
    """Let the modules that hold these parameters, which a call swaps, refuse to run in a backward pass."""
    for name in dict.fromkeys(name.rpartition(".")[0] for name in names):
        network.get_submodule(name).register_forward_pre_hook(recomputed)


def allow_again(network: nn.Module) -> None:
    """Take `refuse_again` back, for a copy that has weights of its own."""
    for module in network.modules():
        for key in [key for key, hook in module._forward_pre_hooks.items() if hook is recomputed]:
            del module._forward_pre_hooks[key]


def recomputed(module: nn.Module, args: Any) -> None:
    """Pre-hook: an error in a backward pass, where a module has its own weights in place of those that were drawn."""
    if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
        raise Error(
            f"A {type(module).__name__} is computed again in the backward pass (gradient checkpointing), when its "
            "drawn weights are gone: gradients would be wrong. Turn that off, or leave the layer out with layers=."
        )


def _has_graph(tensor: Tensor) -> bool:
    try:
        return tensor.grad_fn is not None
    except RuntimeError:  # its base was changed in place since
        return True


def forget(network: nn.Module) -> None:
    """Let modules drop tensors that they keep while they are evaluated: those that do drop them in their `train()`.

    A `train()` that changes weights (merged adapters) is taken back.
    """
    for module in network.modules():
        kept = [value for key, value in vars(module).items() if key not in _INTERNAL and isinstance(value, dict)]
        if type(module).train is nn.Module.train or not _tensors(kept):
            continue
        modes = {part: part.training for part in module.modules()}
        snapshot, before = Snapshot(module), [(p, p.detach().clone()) for p in module.parameters()]
        module.train()
        with torch.no_grad():
            if not all(torch.equal(p, value) for p, value in before):
                snapshot.restore(everything=True)
                for p, value in before:
                    p.copy_(value)
        for part, mode in modes.items():
            part.training = mode


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in containers, and in those that they hold."""
    if isinstance(value, Tensor):
        return [value]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
    return [tensor for member in members for tensor in _tensors(member)]


def _refill(container: Any, before: Any) -> None:
    """Put back what was in a container."""
    same = len(container) == len(before) and (
        all(container.get(key) is value for key, value in before.items())
        if isinstance(before, dict)
        else all(a is b for a, b in zip(container, before, strict=True))
    )
    if same or not _tensors(container):
        return
    container.clear()
    if isinstance(container, list):
        container.extend(before)
    else:
        container.update(before)


def home(generator: torch.Generator | None) -> torch.device | None:
    """Where a generator lives; None for torch's own. A number in its place is an error."""
    if generator is not None and not isinstance(generator, torch.Generator):
        hint = "A number becomes one by torch.Generator().manual_seed(number), or goes into seed= where there is one."
        raise Error(f"generator must be a torch.Generator; got {short(generator)}. {hint}")
    return None if generator is None else generator.device


def random_states(x: Any) -> list[bytes]:
    """Where torch's generators stand: that of the processor, and those of the devices where x is."""
    return [generator.get_state().numpy().tobytes() for generator in _generators(x)]


def set_random_states(states: list[bytes], x: Any) -> None:
    """Put torch's generators back to where they stood."""
    for generator, state in zip(_generators(x), states, strict=True):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _generators(x: Any) -> list[torch.Generator]:
    """torch's own generators: that of the processor, and those of the CUDA devices where x is."""
    devices = sorted({tensor.get_device() for tensor in inputs.tensors(x) if tensor.is_cuda})
    return [torch.default_generator, *(torch.cuda.default_generators[index] for index in devices)]


@contextlib.contextmanager
def seeded(generator: torch.Generator | None, x: Any) -> Iterator[None]:
    """Let what takes no generator follow this one; the global generators are left as they were.

    Without a generator nothing is done. Threads take turns, as they share the global generators.
    """
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (), generator=generator, device=home(generator)))
    own = _generators(x)
    with alone(), torch.random.fork_rng(devices=[each.device.index for each in own[1:]]):
        for each in own:
            each.manual_seed(seed)
        yield


@contextlib.contextmanager
def led(generator: torch.Generator, x: Any) -> Iterator[None]:
    """`seeded` by where the generator stands, which is left to those who draw from it; where none does, it moves on."""
    device = home(generator)
    before = generator.get_state()
    with seeded(torch.Generator(device).set_state(before), x):
        yield
    if torch.equal(generator.get_state(), before):
        torch.randint(2, (), generator=generator, device=device)
