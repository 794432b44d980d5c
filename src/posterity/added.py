"""Dropout that is added to a network which has none: at the inputs of its layers."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from posterity import inputs
from posterity.errors import Error
from posterity.layers import Selector, select
from posterity.nodes import Bare, Site
from posterity.state import alone


class Added(Site):
    """Dropout at the inputs of a layer, while it is on.

    A recurrent layer or cell drops the same features at all time steps (Gal & Ghahramani 2016, arXiv:1512.05287). Where
    the network uses the layer's weights without calling it, their columns are dropped.
    """

    hooked = True

    def __init__(self, name: str, layer: nn.Module, rate: float) -> None:
        super().__init__(name, layer, ("input",))
        self.rate, self.on = rate, False
        self.mask: Tensor | None = None
        self.calls: list[str] | None = None

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Pre-hook: drop."""
        if not self.on:
            if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
                raise Error(
                    f"The layer {self.name!r} is computed again in the backward pass (gradient checkpointing), where "
                    "its dropout would be another one. Turn that off, or leave the layer out with layers=."
                )
            return None
        self.called = True
        if self.calls is not None:
            self.calls.append(self.name)
        if self.direct:
            return None
        changed, named = list(args), dict(kwargs)
        for at, value in self._given(args, kwargs).values():
            if isinstance(at, int):
                changed[at] = self._drop(layer, value)
            else:
                named[at] = self._drop(layer, value)
        return tuple(changed), named

    def _drop(self, layer: nn.Module, x: Any) -> Any:
        if isinstance(x, PackedSequence):
            order = x.unsorted_indices if x.sorted_indices is None else x.sorted_indices
            order = torch.arange(int(x.batch_sizes[0]), device=x.data.device) if order is None else order
            mask = F.dropout(torch.ones_like(x.data[: len(order)]), self.rate, True)
            index = torch.cat([order[:length] for length in x.batch_sizes.tolist()])
            return x._replace(data=x.data * mask[index])
        if isinstance(layer, nn.RNNCellBase):
            if self.mask is None:
                pair = torch.stack((x, torch.ones_like(x)), -1)
                self.mask = F.dropout1d(pair, self.rate, True)[..., 1]
            return x * self.mask
        if isinstance(layer, nn.RNNBase):  # whole features: time goes last
            time = x.dim() - 2 if layer.batch_first else 0
            return F.dropout1d(x.movedim(time, -1), self.rate, True).movedim(-1, time)
        return F.dropout(x, self.rate, True)


class AddedBare(Bare):
    """Dropout of the rows of a matrix that a module holds by itself, while it is on."""

    hooked = False

    def __init__(self, name: str, parameter: Tensor, rate: float) -> None:
        super().__init__(name, parameter)
        self.rate, self.on = rate, False
        self.mask: Tensor | None = None


Drop = Added | AddedBare


def add(network: nn.Module, names: list[str], rate: float) -> list[Drop]:
    """Inert hooks that drop the inputs of the named layers and matrices once they are switched on."""
    sites: list[Drop] = []
    modules = dict(network.named_modules())
    for name in names if rate else []:
        if name in modules:
            site = Added(name, modules[name], rate)
            modules[name].register_forward_pre_hook(site.before, with_kwargs=True)
            sites.append(site)
        else:
            sites.append(AddedBare(name, network.get_parameter(name), rate))
    return sites


def call(network: nn.Module, added: Sequence[Drop], x: Any, weights: Mapping[str, Tensor] | None = None) -> Any:
    """The network's result, with weights in place of its own; what it uses without calling a layer is dropped here."""
    swapped: dict[str, Tensor] = dict(weights or {})
    for site in added:
        site.mask = None
        if site.on and (site.direct or site.inner):
            like = next(p for p in network.parameters() if p.is_floating_point())
            site.set(F.dropout(like.new_ones(site.size), site.rate, True))
            swapped |= site.parameters(network)
            site.set(None)
    return inputs.call(network, x, swapped, ties=False)


@contextlib.contextmanager
def switched_on(added: Sequence[Drop], direct: list[str]) -> Iterator[None]:
    """Dropout is added in here, to the weights of the layers in `direct`; in one thread at a time."""
    with alone() if added else contextlib.nullcontext():
        for site in added:
            site.on, site.direct = True, site.name in direct
        try:
            yield
        finally:
            for site in added:
                site.on, site.mask = False, None


def in_order(network: nn.Module, added: Sequence[Drop], x: Any) -> list[str]:
    """The names of the layers that a pass calls, as they come."""
    calls: list[str] = []
    hooked = [site for site in added if isinstance(site, Added)]
    with switched_on(added, []):
        for site in hooked:
            site.called, site.calls = False, calls
        try:
            call(network, added, x)
        finally:
            for site in hooked:
                site.calls = None
    return calls


def reasons_against(network: nn.Module, layers: Selector) -> dict[str, str | None]:
    """The layers at which dropout can be added, and why others cannot: unless named, not at a matrix beside layers.

    Nor, unless they are named, is it added at the layer that runs first, where it would take data away: on tables of
    few columns that costs more than it tells. Passes tell which one that is (see `posterity.masks.Plans`).
    """
    reasons = select(network, layers)
    if layers is not None:
        return reasons
    modules = dict(network.named_modules())
    able = [name for name, reason in reasons.items() if reason is None]
    called = [name for name in able if name in modules]
    for name in set(able) - set(called) if called else ():
        reasons[name] = "dropout is added at layers; layers= can name a matrix too"
    return reasons
