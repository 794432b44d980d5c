"""Monte Carlo dropout: the masks that regularise training are kept at prediction, one set for each function."""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, shares
from posterity.added import add, call, reasons_against, switched_on
from posterity.errors import Error, short
from posterity.functions import Functions
from posterity.interaction import needs_own_passes
from posterity.layers import Selector, own_parameters, walk
from posterity.masks import Answer, Masks, Plan, Plans, fresh, none, rate_of
from posterity.posterior import DECAY, RATE, Description, Entry, Posterior, as_generator, count, positive
from posterity.state import clean, home, seeded


class MCDropout(Posterior):
    """Dropout as a posterior: a drawn function is the network under masks that stay (Gal & Ghahramani 2016).

    f(x) is the network with every dropout replaced by h ↦ m ∘ h / (1 − p), m ~ Bernoulli(1 − p). The dropout is the
    network's own: modules, functional calls, and that of attention weights. Where it has none, dropout with `rate` is
    added at the inputs of its linear and convolution layers but the first. In training masks are fresh for every row,
    as ever; a drawn function has one mask for all rows and all later calls. Everything else (batch statistics above
    all) is in evaluation mode in a drawn function.

    It trains the network that it is given. The divergence is 0, like that of `MAP`: weight decay stands for the prior.
    Gal's tie of the two is λ = (1 − p) l² / (2 N τ) for the penalty λ ‖W‖², prior length scale l and noise precision τ.

    Two dropouts are active in training alone: that between the layers of an nn.LSTM, GRU or RNN, and any that the
    network does not even call in evaluation mode (behind `if self.training:`).

    Args:
        network: any module.
        rate: p of the dropout that is added; the network's own keeps its own.
        samples: training draws per datum (S).
        layers: at which layers dropout is added: a name pattern, a type of module, several of these, "first", "last",
            or a function of name and module (see `posterity.layers.select`); by default all but the first that runs.
        output: which part of the network's result is the answer, where it returns several.
        seed: takes part in the contract, as `generator` does: nothing is random in the construction.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
        >>> posterior = posterity.MCDropout(network)
        >>> posterior.describe().uncertain
        ['2']
        >>> x, functions = torch.randn(5, 2), posterior.draw(10)
        >>> torch.equal(functions(x), functions(x))  # their masks stay
        True
    """

    space = (RATE, ("posterior", "rate", 0.01, 0.5), DECAY)

    def __init__(
        self,
        network: nn.Module,
        rate: float = 0.05,
        *,
        samples: int = 1,
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, output=output)
        as_generator(seed, generator)
        self.rate_added = positive(rate, "rate", zero=True)
        if self.rate_added >= 1:
            raise Error(f"rate must be below 1: the share of numbers that are dropped; got {short(rate)}.")
        self.own = {name for name, module in network.named_modules() if rate_of(module)}
        if self.own and layers is not None:
            raise Error("The network has dropout of its own, so none is added: layers= has nothing to choose from.")
        self.chosen = layers is not None
        self.reasons = {} if self.own else reasons_against(network, layers)
        names = [name for name, reason in self.reasons.items() if reason is None]
        self.added = add(network, names, self.rate_added)
        self.plans = Plans(spare=not self.chosen, wanted=bool(self.own) or self.rate_added > 0)
        self.passes: dict[Any, bool] = {}

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under masks that are fresh for every row and sample, `[samples, batch, ...]`."""
        rows = inputs.rows(x)
        plan = self.plans.find(self.network, self.added, x) if self.added else Plan((), None, [], [], {})
        added = [site for site in self.added if site.name in plan.added]
        own = rows is None or (self.samples > 1 and needs_own_passes(self, x, self.passes))
        if self.samples > 1 and not own:
            x = inputs.apply(x, lambda tensor: tensor.repeat(self.samples, *[1] * (tensor.dim() - 1)))
        mode = contextlib.nullcontext() if self.network.training else Answer(fresh)
        with seeded(generator, x), mode, switched_on(added, plan.direct):
            if own:
                each = inputs.copies(x, self.samples)
                return torch.stack([inputs.output(call(self.network, added, x), self.output) for x in each])
            with shares.copied(self.samples):
                out = inputs.output(call(self.network, added, x), self.output)
        return out.unflatten(0, (self.samples, -1))

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """Zero: weight decay stands for the prior."""
        return torch.zeros((), device=next(iter(self.parameters()), torch.zeros(())).device)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        """n functions, each with masks of its own for every input."""
        seeds = torch.randint(2**62, (count(n, "n"),), generator=generator, device=home(generator))
        like = next(iter(self.parameters()), torch.zeros(()))
        return Masked(self, n, seeds.to(like.device))

    def mean(self) -> Functions:
        """The network without dropout."""
        return Masked(self, 1, None)

    def describe(self) -> Description:
        """Where masks are drawn, and what is a point."""
        added, reasons = {site.name: site for site in self.added}, dict(self.reasons)
        for name, why in [one for plan in self.plans.known.values() for one in plan.missing.items()]:
            reasons[name] = why
            added.pop(name, None)
        for name in self._spared() & added.keys():
            del added[name]
            reasons[name] = "dropout is not added at the first layer, whose inputs are the data"
        lines = []
        for name, module, layer in walk(self.network):
            if layer not in (None, name):
                continue
            kind = type(module).__name__
            if name in self.own:
                lines.append(Entry(name, kind, True, f"the network's own dropout, p = {rate_of(module):g}"))
            elif name in added:
                lines.append(Entry(name, kind, True, f"dropout added at its input, p = {self.rate_added:g}"))
            elif isinstance(module, nn.RNNBase) and module.dropout:
                lines.append(Entry(name, kind, False, "dropout between its layers is in its kernel: in training only"))
            for key, p in own_parameters(name, module).items():
                drawn = key in added or (name in added and added[name].multiplies(key.removeprefix(f"{name}.")))
                reason = "a product with the mask" if drawn else reasons.get(key) or reasons.get(name)
                lines.append(Entry(key, str(tuple(p.shape)), drawn, reason or "a point: masks are drawn"))
        return Description(lines)

    def _spared(self) -> set[str]:
        """The layers that run first, so far as passes have shown it; before any, the one that is defined first."""
        plans = [plan for plan in self.plans.known.values() if plan.added]
        if not plans:
            return {site.name for site in self.added[: not self.chosen]} if len(self.added) > 1 else set()
        return {plan.first for plan in plans if plan.first} - {name for plan in plans for name in plan.added}

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values; `layers`, where it was given, as the names that were chosen."""
        layers = [site.name for site in self.added] if self.chosen and self.rate_added else None
        return {"rate": self.rate_added, "samples": self.samples, "layers": layers, "output": self.output}


class Masked(Functions):
    """Functions that differ in their dropout masks; `noise` holds one whole number a function, `[n]`.

    A mask is a hash of that number, of which dropout of the pass it is, and of the position in one row along each axis:
    nothing has to be known or kept of its shape, a row that is padded further keeps it, and what comes before the first
    dropout is computed once for all functions (but not where they must run one by one: a dropout may be anywhere in a
    module).
    """

    remembers = False

    def __init__(self, posterior: MCDropout, n: int, seeds: Tensor | None) -> None:
        super().__init__(posterior.network, n, noise=seeds, output=posterior.output)
        self.added = add(self.network, [site.name for site in posterior.added], posterior.rate_added)
        self.plans = posterior.plans

    def _prepare(self, x: Any) -> None:
        if self.noise is not None:
            self.plans.find(self.network, self.added, x)

    def _one(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
        if noise is None:
            with Answer(none):
                return inputs.output(inputs.call(self.network, x), self.output)
        plan = self.plans.find(self.network, self.added, x)
        added = [site for site in self.added if site.name in plan.added]
        with Answer(Masks(noise, plan.places)), switched_on(added, plan.direct), clean(self.network):
            return inputs.output(call(self.network, added, x, weights), self.output)
