"""Deep ensembles: several networks, each trained from an initialisation of its own."""

import inspect
import operator
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from posterity import inputs
from posterity.branches import branches, side_by_side
from posterity.clipping import clip_members
from posterity.errors import Error
from posterity.folding import TOGETHER
from posterity.functions import Functions
from posterity.layers import LAYERS, Selector
from posterity.likelihoods import Likelihood
from posterity.posterior import (
    DECAY,
    RATE,
    Description,
    Entry,
    Posterior,
    as_generator,
    attempt,
    count,
    positive,
    randn,
    randperm,
)
from posterity.state import allow_again, clean, duplicate, forget, keeps_tensors, kept, refuse_again, seeded
from posterity.weights import Weights


class DeepEnsemble(Posterior):
    """M fresh initialisations of one architecture, trained on the same data (Lakshminarayanan et al. 2017).

    The loss is the sum of the members' losses on a shared batch, so each member is trained as MAP would train it; the
    divergence is 0 and weight decay stands for the prior (see `MAP`). With `adversarial` = ε a member's loss is half on
    x and half on x + ε sign(∇ₓ of its own loss), through which no gradient flows.

    The given network is a template and stays as it was. A member is a copy in which every module's own
    `reset_parameters` was called, the root's last. A parameter that none of them draws (and that is not constant) is
    drawn from a normal distribution with its mean and standard deviation; frozen parameters are shared as they are.
    Members of up to 100,000 weights (1,000,000 on a GPU) run together (vectorised), larger ones one by one, or in
    branches of a CUDA graph; the results are the same, but for the masks of a network's own dropout on a GPU. Buffers,
    such as batch statistics, each member has of its own.

    Args:
        network: any module.
        members: M.
        samples: members that take part in a training step, by default all; of fewer, other ones each time.
        adversarial: ε, in units of the inputs; None trains on x alone.
        layers: in which layers members differ: a name pattern, a type of module, several of these, "first", "last", or
            a function of name and module (see `posterity.layers.select`); the others are shared, and trained with all.
        output: which part of the network's result is the answer, where it returns several.
        seed: of the initialisations; or `generator`.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.DeepEnsemble(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)), members=3)
        >>> x = torch.randn(5, 2)
        >>> posterior.draw(3)(x).shape
        torch.Size([3, 5, 3])
        >>> posterior.member(0)(x).shape  # a network of its own
        torch.Size([5, 3])
    """

    space = (RATE, DECAY)

    def __init__(
        self,
        network: nn.Module,
        members: int = 5,
        *,
        samples: int | None = None,
        adversarial: float | None = None,
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        members = count(members, "members")
        super().__init__(network, samples=members if samples is None else samples, output=output)
        self.members = self.models = self.draws = self.distinct = members
        self.adversarial = None if adversarial is None else positive(adversarial, "adversarial")
        self.vectorised = True
        self.weights = Weights(network, layers, frozen=False)
        self.layers = None if layers is None else self.weights.names
        generator = as_generator(seed, generator)
        fresh = [_fresh(network, self.weights.names, generator) for _ in range(members)]
        self.how = {name: how for name, how in fresh[0][1].items() if name in self.weights.shapes}
        self.network = duplicate(network)
        forget(self.network)
        refuse_again(self.network, self.weights.names)
        for name, p in self.network.named_parameters():
            p.requires_grad_(p.requires_grad and name not in self.weights.shapes)
        self.flat = nn.Parameter(torch.stack([self.weights.join(dict(net.named_parameters())) for net, _ in fresh]))
        self.buffer_names = [name for name, _ in network.named_buffers()]
        for index, name in enumerate(self.buffer_names):
            self.register_buffer(f"buffer{index}", torch.stack([net.get_buffer(name) for net, _ in fresh]))

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs of all members, or of `samples` of them, `[samples, batch, ...]`."""
        return self._outputs(self._spread(self.samples, generator), x, generator)

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """Zero: weight decay stands for the prior."""
        return torch.zeros((), device=self.flat.device)

    def clip_gradients(self, norm: float) -> None:
        """Clip each member's gradient alone, as where it is trained alone."""
        if self.flat.grad is None:
            super().clip_gradients(norm)
        else:
            clip_members(self.flat, (p for p in self.parameters() if p is not self.flat), norm)

    def terms(
        self, x: Any, y: Tensor, likelihood: Likelihood, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Of the members' own likelihoods; with `adversarial`, half on x and half a step up each member's own loss."""
        if self.adversarial is None:
            return super().terms(x, y, likelihood, generator)
        return self._adversarial(x, y, likelihood, generator), self.penalty(generator)

    def _adversarial(self, x: Any, y: Tensor, likelihood: Likelihood, generator: torch.Generator | None) -> Tensor:
        """Log-likelihoods `[samples, batch]`, half on x, half a step up each member's own loss."""
        chosen, step = self._spread(self.samples, generator), self.adversarial
        x = inputs.apply(x, lambda t: t.detach().expand(len(chosen), *t.shape).clone())
        moving = [t.requires_grad_() for t in inputs.tensors(x) if t.is_floating_point()]
        if not moving or step is None:
            raise Error("Adversarial training moves the inputs: they must be floating-point numbers.")
        clean = likelihood.log_prob(self._outputs(chosen, x, generator, each=True), y)
        slopes = torch.autograd.grad(-clean.sum(), moving, retain_graph=True, materialize_grads=True)
        signs = iter([slope.sign() for slope in slopes])
        x = inputs.apply(x, lambda t: t.detach() + step * next(signs) if t.is_floating_point() else t)
        return (clean + likelihood.log_prob(self._outputs(chosen, x, generator, each=True), y)) / 2

    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        """n members, as evenly as n allows, the remainder at random; one that is drawn several times runs once."""
        return Members(self, self._spread(count(n, "n"), generator))

    def member(self, index: int) -> nn.Module:
        """A network of its own with the weights and buffers of one member."""
        network = duplicate(self.network)
        allow_again(network)
        own = dict(network.named_parameters()) | dict(network.named_buffers())
        with torch.no_grad():
            for name, value in self._states(slice(index, index + 1)).items():
                own[name].copy_(value[0])
        for name in self.weights.names:
            own[name].requires_grad_(True)
        return network

    def describe(self) -> Description:
        """How each parameter differs between members."""
        lines = []
        for name, p in self.network.named_parameters():
            shared = "left out by layers=: shared by all members" if p.requires_grad else "frozen"
            reason = f"one value for each of {self.members} members: {self.how[name]}" if name in self.how else shared
            lines.append(Entry(name, str(tuple(p.shape)), name in self.how, reason))
        for name, b in self.network.named_buffers():
            lines.append(Entry(name, str(tuple(b.shape)), False, "a buffer: each member keeps its own"))
        return Description(lines)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {
            "members": self.members,
            "samples": self.samples,
            "adversarial": self.adversarial,
            "layers": self.layers,
            "output": self.output,
        }

    def _states(self, chosen: slice | Tensor) -> dict[str, Tensor]:
        """Parameters and buffers of some members by name, each `[some, *shape]`."""
        return self.weights.split(self.flat[chosen]) | {name: kept[chosen] for name, kept in self._kept().items()}

    def _kept(self) -> dict[str, Tensor]:
        """The members' buffers by name, each `[members, *shape]`."""
        return {name: getattr(self, f"buffer{index}") for index, name in enumerate(self.buffer_names)}

    @property
    def _apart(self) -> bool:
        """Whether buffers are copied and put back: in training, but a compiled step changes them in place."""
        return self.network.training and not torch.compiler.is_compiling()

    def _outputs(self, chosen: list[int], x: Any, generator: torch.Generator | None, each: bool = False) -> Tensor:
        """Outputs of the chosen members, `[some, batch, ...]`; with `each`, x has a part `[batch, ...]` for each."""
        everyone, compiling = chosen == list(range(self.members)), torch.compiler.is_compiling()
        buffers, apart = self._kept(), self._apart  # an attempt that fails leaves no trace in the buffers
        with seeded(generator, x):
            whole = not buffers or (everyone and not compiling)  # those of a part could not be put back
            tried = self.vectorised and whole and together(self.network, self.weights.size)
            if tried:
                weights = self.weights.split(self.flat if everyone else self.flat[chosen])
                run = torch.func.vmap(self._call, in_dims=(0, 0 if each else None), randomness="different")
                state = weights | (_copies(buffers) if apart else buffers)
                given = inputs.apply(x, Tensor.clone)  # a network may write into it and fail
                done = attempt(self.network, lambda: run(state, given))
                if done is not None:
                    _put([buffers[name] for name in done[1]], list(done[1].values()))
                    return done[0]
            if each:
                parts = [inputs.apply(x, operator.itemgetter(i)) for i in range(len(chosen))]
            else:
                parts = inputs.copies(x, len(chosen))
            rows = self.flat.unbind(0)
            calls = [partial(self._alone, m, rows[m], part) for m, part in zip(chosen, parts, strict=True)]
            if not compiling and self._independent(chosen):  # torch 2.11 cannot follow the look, and nothing branches
                outputs = side_by_side(calls, self.flat.device)
            else:
                outputs = [call() for call in calls]
            self.vectorised &= not tried  # it failed where one by one did not
            return torch.stack(outputs)

    def _alone(self, member: int, row: Tensor, x: Any) -> Tensor:
        """One member's outputs, and in training its buffers are updated."""
        own, apart = {name: buffer[member] for name, buffer in self._kept().items()}, self._apart
        output, changed = self._call(self.weights.split(row) | (_copies(own) if apart else own), x)
        _put([own[name] for name in changed], list(changed.values()))
        return output

    def _independent(self, chosen: list[int]) -> bool:
        """Whether no member's call writes what another's reads, nor is given a gradient by both."""
        once = len(set(chosen)) == len(chosen)
        shared = any(p.requires_grad for p in self.network.parameters())
        return once and not shared and not keeps_tensors(self.network)

    def _call(self, state: dict[str, Tensor], x: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """A member's output and, in training, its buffers afterwards."""
        after: dict[str, Tensor] | None = {} if self._apart else None
        with clean(self.network):
            output = inputs.output(inputs.call(self.network, x, state, after=after), self.output)
        return output, {name: after[name] for name in self.buffer_names} if after is not None else {}

    def _spread(self, n: int, generator: torch.Generator | None) -> list[int]:
        """n members in ascending order, each as often as the others or once more."""
        whole, rest = divmod(n, self.members)
        extra = set(randperm(self.members, generator)[:rest].tolist()) if rest else set()
        return [m for m in range(self.members) for _ in range(whole + (m in extra))]


class Members(Functions):
    """Members of an ensemble as functions; each is computed once, however often it was drawn."""

    def __init__(self, posterior: DeepEnsemble, drawn: list[int]) -> None:
        distinct = sorted(set(drawn))
        everyone = len(distinct) == posterior.members
        states = posterior._states(slice(None) if everyone else torch.tensor(distinct))
        states |= {name: kept(states[name]) for name in posterior.weights.names if everyone}
        states |= {name: states[name].clone() for name in posterior.buffer_names}
        same = [name for name in posterior.buffer_names if bool((states[name] == states[name][:1]).all())]
        differ = {name: value for name, value in states.items() if name not in same}
        super().__init__(posterior.network, len(distinct), weights=differ, output=posterior.output)
        for name in same:
            module, _, key = name.rpartition(".")
            self.network.get_submodule(module)._buffers[key] = states[name][0]
        self.times = [drawn.count(m) for m in distinct]
        self.size = posterior.weights.size

    def __len__(self) -> int:
        return sum(self.times)

    def stream(self, x: Any) -> Iterator[Tensor]:
        """Outputs of some members at a time, each as often as it was drawn."""
        start = 0
        for outputs in super().stream(x):
            times = self.times[start : start + len(outputs)]
            start += len(outputs)
            repeated = [i for i, often in enumerate(times) for _ in range(often)]
            yield outputs if len(repeated) == len(outputs) else outputs[repeated]

    def _must_loop(self) -> bool:
        return super()._must_loop() or not together(self.network, self.size)


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A copy of each."""
    made = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    _put(list(made.values()), list(tensors.values()))
    return made


@torch.no_grad()
def _put(places: list[Tensor], values: list[Tensor]) -> None:
    """Put each value in its place, unless its shape is another; all of one type at once, for each is small."""
    pairs = defaultdict(list)
    for place, value in zip(places, values, strict=True):
        if value.shape == place.shape:
            pairs[place.dtype, value.dtype].append((place, value))
    for alike in pairs.values():
        torch._foreach_copy_([place for place, _ in alike], [value for _, value in alike])


def together(network: nn.Module, size: int) -> bool:
    """Whether members run vectorised: small ones do, without recurrent layers.

    Where launches cost little, in a CUDA graph, convolutions of several members are slower as one; on a CPU so are all
    layers but Linear.
    """
    device = next(network.parameters()).device.type
    if size > TOGETHER.get(device, TOGETHER["cpu"]):
        return False
    slow: tuple[type, ...] = (_ConvNd,) if branches() else ()
    if device == "cpu":
        slow = tuple(kind for kind in LAYERS if isinstance(kind, type) and kind is not nn.Linear)
    return not any(isinstance(module, (nn.RNNBase, nn.RNNCellBase, *slow)) for module in network.modules())


def _fresh(network: nn.Module, names: list[str], generator: torch.Generator | None) -> tuple[nn.Module, dict[str, str]]:
    """A copy of a network that is freshly initialised, and how each of the named parameters was."""
    fresh, how = duplicate(network), {}
    with torch.no_grad(), seeded(generator, tuple(p for p in network.parameters() if p.dim())):
        for module in reversed(list(fresh.modules())):
            reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
            if callable(reset) and not _required(reset):
                reset()
        given, drawn = dict(network.named_parameters()), dict(fresh.named_parameters())
        for name, p in drawn.items():
            if name not in names:
                p.copy_(given[name])
                continue
            how[name] = "drawn as its module does"
            if torch.equal(p, given[name]):
                how[name] = "constant at the start, in every member"
                if bool((p != p.reshape(-1)[:1]).any()):
                    how[name] = "drawn from a normal distribution with its mean and standard deviation"
                    p.copy_(p.mean() + p.std() * randn(tuple(p.shape), p))
        for old, new in zip(network.modules(), fresh.modules(), strict=True):
            own = list(old.parameters(recurse=False))
            if own and not any(p.requires_grad for p in own):
                for key, buffer in old.named_buffers(recurse=False):
                    new.get_buffer(key).copy_(buffer)
    return fresh, how


def _required(function: Any) -> bool:
    """Whether a function cannot be called without arguments."""
    return any(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        for p in inspect.signature(function).parameters.values()
    )
