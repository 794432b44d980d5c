"""Where a network can be made uncertain: all that carries noise in it, and one run of it under noise.

A site does nothing until it is given noise, and the network is never rewritten: layers get hooks that multiply their
inputs or outputs. What a network uses without calling a layer (a bare matrix, `F.linear(x, self.layer.weight)`, the
output projection of torch's attention) is multiplied itself, W diag(z), and the network called with the product: in
training then with one noise for all rows of the batch.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, rows
from posterity.errors import Error
from posterity.layers import select as select
from posterity.nodes import Bare, Folded, Site
from posterity.state import ONE_AT_A_TIME, alone, clean, untouched
from posterity.transforms import untransformed


class Sites:
    """The sites of a network, with one flat vector of noise for all of them, `[..., size]`.

    Args:
        network: its layers get hooks that do nothing outside of `run`.
        kinds: what carries noise: "input", "output", "bias".
        names: of layers and bare matrices.
        direct: those of them that the network uses without calling them, where that is known.
    """

    def __init__(
        self, network: nn.Module, kinds: tuple[str, ...], names: list[str], direct: list[str] | None = None
    ) -> None:
        self.sites: list[Site] = []
        modules = dict(network.named_modules())
        for name in names:
            if name not in modules:
                self.sites += [Bare(name, network.get_parameter(name))] if "input" in kinds else []
                continue
            site = Site(name, modules[name], kinds)
            if site.size:
                modules[name].register_forward_pre_hook(site.before, with_kwargs=True)
                modules[name].register_forward_hook(site.after)
                self.sites.append(site)
        self.encoders = rows.encoders(network)
        self.probed: tuple[int, ...] | None = None
        self.leading: dict[tuple[int, ...], int | None] = {}
        self.others: dict[tuple[int, ...], list[Any]] = {}
        self.known = direct is not None or not self._hooked
        for site in self._hooked:
            site.direct = site.name in (direct or ())

    def __iter__(self) -> Iterator[Site]:
        return iter(self.sites)

    @property
    def names(self) -> list[str]:
        """The names of the layers and bare matrices."""
        return [site.name for site in self.sites]

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(site.size for site in self.sites)

    @property
    def direct(self) -> list[str] | None:
        """The layers that the network uses without calling them, for any inputs; None as long as that is not known."""
        if not self.known:
            return None
        before = [[state[3] for state in states] for states in self.others.values()]
        now = [site.direct for site in self._hooked]
        return [s.name for s, *uses in zip(self._hooked, now, *before, strict=True) if any(uses)]

    @property
    def _hooked(self) -> list[Site]:
        return [site for site in self.sites if not isinstance(site, Bare)]

    def run(self, network: nn.Module, x: Any, noise: Tensor, weights: Mapping[str, Tensor] | None = None) -> Any:
        """The network's result under noise `[size]` or `[rows, size]`, and with weights in place of its own."""
        while True:
            with alone():
                try:
                    return self._run(network, x, noise, weights or {})
                except Folded as folded:
                    name = str(folded)
                finally:
                    for site in self.sites:
                        site.set(None)
            site = next(site for site in self.sites if site.name == name)
            before = dict(site.layouts)
            with ONE_AT_A_TIME, untransformed(network, x) as few:
                rows.find_order([site], network, few)
            if site.layouts == before:  # how many positions share the axis of rows differs from batch to batch
                site.shared = rows.APART

    def _run(self, network: nn.Module, x: Any, noise: Tensor, weights: Mapping[str, Tensor]) -> Any:
        swapped: dict[str, Tensor] = dict(weights)
        unsure = not self.known and torch.compiler.is_compiling()
        for site, part in zip(self.sites, noise.split([site.size for site in self.sites], dim=-1), strict=True):
            site.set(part)
            if site.direct or site.inner:
                swapped |= site.parameters(network)
            if unsure:
                site.called = False
        with rows.unnested(self.encoders), clean(network):
            result = inputs.call(network, x, swapped, ties=False)
        if unsure and not all(site.called or site.direct for site in self.sites):
            raise Error("Not all layers were called: run the functions once before they are compiled or exported.")
        return result

    def products(self, network: nn.Module, noise: Tensor) -> dict[str, Tensor]:
        """The weights and biases of the layers under noise `[size]`: W diag(z) x is W (z ∘ x)."""
        found: dict[str, Tensor] = {}
        for site, part in zip(self.sites, noise.split([site.size for site in self.sites]), strict=True):
            found |= site.products(network, part)
        return found

    def find_rows(self, network: nn.Module, x: Any) -> None:
        """Establish where the rows of the batch are at every site, and which layers are used without a call.

        Once, but again for inputs with another number of axes, which may take another way through the network.
        """
        axes = inputs.axes(x)
        if self.probed == axes:
            return
        hooked = self._hooked
        with ONE_AT_A_TIME:
            if self.probed is not None:
                self.others[self.probed] = [(s.layouts, s.shared, s.missing, s.direct) for s in hooked]
            known = self.others.get(axes)
            for site, state in zip(hooked, known or [({}, None, None, False) for _ in hooked], strict=True):
                site.layouts, site.shared, site.missing, site.direct = state
            self.probed = axes if known else None
            if known:
                return
            with untransformed(network, x) as x:
                self.leading[axes] = rows.find(hooked, network, x)
                missed = [site for site in hooked if not site.called]
                if missed and network.training:  # layers that training left out this time
                    with rows.evaluation_mode(network):
                        rows.find(missed, network, x)
                self._find_direct(network, x)
            self.probed = axes

    def rows(self, x: Any) -> int:
        """How many rows x has: those of its tensors, or of the one that has them; 1 where none of several has."""
        count, at = inputs.rows(x), self.leading.get(inputs.axes(x))
        return count if count is not None else 1 if at is None else len(inputs.tensors(x)[at])

    def find_direct(self, network: nn.Module, x: Any) -> None:
        """Establish, once, which layers the network uses without calling them."""
        if self.known:
            return
        hooked = self._hooked
        with ONE_AT_A_TIME, untransformed(network, x) as x:
            for site, calls in zip(hooked, rows.few(lambda x: rows.watch(hooked, network, x), x), strict=True):
                site.called = bool(calls)
            self._find_direct(network, x)

    def _find_direct(self, network: nn.Module, x: Any) -> None:
        find_direct([site for site in self._hooked if not site.direct], network, x)
        self.known = True


def find_direct(sites: Sequence[Site], network: nn.Module, x: Any) -> list[str]:
    """Of the layers that were not called, those whose weights have a gradient nevertheless: noise goes to these."""
    missed = [site for site in sites if not site.called]
    used = _used(network, x, [site.name for site in missed])
    if network.training:  # which may have left layers out this time
        with rows.evaluation_mode(network):
            used |= _used(network, x, [site.name for site in missed if site.name not in used])
    for site in missed:
        able = site.facts.linear and "weight" in network.get_submodule(site.name)._parameters
        site.direct = able and site.name in used
        if site.name in used and not able:
            site.missing = "the network uses it without calling it, so no noise reaches it"
            warnings.warn(
                f"The network uses the layer {site.name!r} without calling it, so no noise reaches it: describe() "
                "lists it as fixed.",
                stacklevel=4,
            )
        elif not site.direct:
            site.missing = "the network did not use it"
    return [site.name for site in missed if site.direct]


def _used(network: nn.Module, x: Any, names: list[str]) -> set[str]:
    """Those of the named layers that the network's result depends on; all, where there is no gradient to tell."""
    if not names:
        return set()
    owners, leaves = {}, {}
    for name in names:
        for key, p in network.get_submodule(name).named_parameters(name):
            if p.is_floating_point():
                owners[key], leaves[key] = name, p

    def gradients(x: Any) -> tuple[Tensor | None, ...]:
        with untouched(network, x), torch.inference_mode(False), torch.enable_grad():
            own = {key: p.detach().clone().requires_grad_() for key, p in leaves.items()}
            result = inputs.call(network, inputs.apply(x, Tensor.clone), own, ties=False)
            answers = [tensor.sum() for tensor in inputs.results(result) if tensor.requires_grad]
            return (
                torch.autograd.grad(answers, list(own.values()), allow_unused=True) if answers else (None,) * len(own)
            )

    try:
        found = rows.few(gradients, x)
    except rows.FAILURES:
        return set(names)
    return {owners[key] for key, gradient in zip(leaves, found, strict=True) if gradient is not None}
