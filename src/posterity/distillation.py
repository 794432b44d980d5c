"""Distillation: what a posterior says, in one network that says it in one pass.

The student is a network with the same outputs, z(x), and a second head beside its last layer, which gives their spread
s(x). Its functions are

    f_i(x) = z(x) + s(x) ∘ ε_i               real numbers, and logits of yes or no
    f_i(x) = z(x) + s(x) ∘ ε_i − ½ s(x)²     logits of classes,       ε_i ~ N(0, 1), one number for each output

so n of them cost one pass of the network. For classes, exp(s ε − ½ s²) is a factor of mean 1 on each probability, and
softmax z(x) is the mean prediction, but for what normalising changes: the student's network is a classifier by itself.

z and log s learn what `posterity.lessons` makes of the teacher's functions. A likelihood of these would put the
student's own misfit into its spread. A Dirichlet that learns from samples (Malinin et al. 2020, arXiv:1905.00076) fails
where a teacher is confident; targets made of the samples cure that (Ryabinin et al. 2021, arXiv:2105.06987), as here.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, storage
from posterity.errors import Error, short
from posterity.explaining import explained
from posterity.functions import Functions
from posterity.heads import beside, both, last
from posterity.interaction import keeps_whole
from posterity.lessons import aligned, everything, lessons, misfit, noisy, spread_out
from posterity.likelihoods import Categorical, Likelihood
from posterity.posterior import Description, Entry, Posterior, as_generator, count, randn
from posterity.preparing import is_raw, prepared
from posterity.progress import wanted
from posterity.state import clean
from posterity.tokens import Tokens
from posterity.training import fit

#: Spreads below this part of their root mean square are not told apart.
FLOOR = 0.01
#: Numbers that a part of the outputs may hold: those of n functions come part by part.
PART = 4_000_000


class Distilled(Posterior):
    """One network with the uncertainty of another posterior: what `posterity.distil` makes.

    Args:
        network: the student.
        layer: the name of its last layer, beside which the second head sits.
        outputs: the size of axis 1 of its answer (1 where that has no axis 1).
        samples: training draws per datum.
        output: which part of the network's result is the answer, where it returns several.
    """

    scales: Tensor

    def __init__(
        self, network: nn.Module, layer: str, outputs: int, *, samples: int = 1, output: str | int | None = None
    ) -> None:
        super().__init__(network, samples=samples, output=output)
        modules = dict(network.named_modules())
        if layer not in modules:
            raise Error(f"The student has no layer named {short(layer)}.")
        self.layer, self.outputs = layer, count(outputs, "outputs")
        self.head = beside(modules[layer])
        if self.outputs > max((p.numel() for p in self.head.parameters()), default=0):
            raise Error(f"The layer {layer!r} has fewer outputs than {outputs}.")
        # Of log(s + floor): the mean, the standard deviation, the largest; and the floor.
        self.register_buffer("scales", next(self.head.parameters()).new_zeros(4, self.outputs))

    @property
    def classes(self) -> bool:
        """Whether the outputs are logits of classes."""
        return isinstance(self.likelihood, Categorical)

    def heads(self, x: Any) -> tuple[Tensor, Tensor]:
        """z(x) and log(s(x) + floor), each of the shape of the network's answer."""
        return _scaled(*both(self.network, self.head, self.layer, self.output, x), self.scales)

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under noise that is fresh for every row and sample, `[samples, batch, ...]`."""
        z, log = self.heads(x)
        noise = randn((self.samples, *z.shape[:2], *(1,) * (z.dim() - 2)), z, generator)
        return noisy(z, _spread(log, self.scales), noise, self.classes)

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """Zero: the prior is the teacher's."""
        return torch.zeros((), device=self.scales.device)

    def terms(
        self, x: Any, y: Tensor, likelihood: Likelihood, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Minus the misfit to what the teacher said: y is its mean and log(spread + floor), `[batch, 2, ...]`."""
        z, log = self.heads(x)
        if y.shape != (len(z), 2, *z.shape[1:]):
            raise Error(
                f"A distilled posterior learns from a posterior, not from answers of shape {tuple(y.shape)}: "
                "call posterity.distil(posterior, student, data)."
            )
        mean, target = y.to(z.dtype).unbind(1)
        off = misfit(likelihood, (z, log), (mean, target), _spread(target, self.scales))
        return -off.unsqueeze(0), self.divergence()

    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        """n functions for one pass of the network; each has its own noise, and all of it is evenly spread."""
        return OnePass(self, spread_out(count(n, "n"), self.outputs, generator).to(self.scales))

    def mean(self) -> Functions:
        """The network itself."""
        return Functions(self.network, 1, output=self.output)

    def describe(self) -> Description:
        """The outputs are uncertain; no parameter is."""
        lines = [Entry(self.layer, type(self.head).__name__, True, "its outputs: a head beside it gives their spread")]
        for name, p in self.network.named_parameters():
            lines.append(Entry(name, f"{tuple(p.shape)}", False, "a point: the uncertainty is that of the outputs"))
        return Description(lines)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {"layer": self.layer, "outputs": self.outputs, "samples": self.samples, "output": self.output}

    def variational(self) -> Iterator[nn.Parameter]:
        """The second head's."""
        return self.head.parameters()

    def measure(self, mean: Tensor, spread: Tensor) -> Tensor:
        """log(spread + floor) of a teacher's, `[rows, ...]`, by which the second head is scaled from now on."""
        axes = [axis for axis in range(spread.dim()) if axis != 1]
        floor = FLOOR * (spread**2).mean(axes).sqrt().view(-1)
        floor = floor.maximum(1e-6 * mean.std(axes, correction=0).view(-1)).clamp(min=1e-9)
        log = (spread + aligned(floor, spread)).log()
        facts = (log.mean(axes), log.std(axes, correction=0), log.amax(axes))
        self.scales.copy_(torch.stack([*(fact.view(-1) for fact in facts), floor]))
        return log


class OnePass(Functions):
    """Functions that differ in the noise of the outputs, `[n, outputs]`: the network runs once for all of them."""

    noise: Tensor
    scales: Tensor
    one_pass = True

    def __init__(self, posterior: Distilled, noise: Tensor) -> None:
        pair = nn.ModuleDict({"student": posterior.network, "head": posterior.head})
        super().__init__(pair, len(noise), noise=noise, output=posterior.output)
        self.layer, self.classes = posterior.layer, posterior.classes
        self.register_buffer("scales", posterior.scales.detach())

    def parts(self, x: Any) -> Iterator[Any]:
        """x as it is."""
        yield x

    def stream(self, x: Any) -> Iterator[Tensor]:
        """The outputs, some functions at a time: `[some, batch, ...]`."""
        z, log = self._steady(self._one, self._fixed, {}, None, x).unbind(1)
        spread = _spread(log, self.scales)
        step = self.count if torch.compiler.is_compiling() else max(1, PART // max(1, z.numel()))
        for noise in self.noise.split(step):
            yield noisy(z, spread, aligned(noise, z), self.classes)

    def _one(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
        """Both heads, which all functions share: `[batch, 2, ...]`."""
        student, head = self.network.children()
        with clean(self.network):
            return torch.stack(_scaled(*both(student, head, self.layer, self.output, x), self.scales), 1)


def distil(
    posterior: Posterior,
    student: nn.Module,
    data: Any,
    *,
    samples: int | None = None,
    output: str | int | None = None,
    seed: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Distilled:
    """Teach one network what a posterior says: its prediction, and total, aleatoric and epistemic uncertainty.

    What comes back is a posterior like any other (`predict`, `draw`, `save`, `export`, …), of which one pass of the
    student gives any number of functions.

    Args:
        posterior: the teacher, trained; nothing of it changes.
        student: any network with the outputs of the teacher's, which ends in a layer (linear, convolution, …). It is
            trained; one that starts from the teacher's weights learns sooner and better.
        data: inputs: a tensor, an array or a mapping, `(x, y)` or `(x, y, weight)` as `fit` takes it, a Dataset or a
            DataLoader. Targets are left out; rows count by their weights. What a loader gives in one pass is kept in
            memory, beside what the teacher says of it.
        samples: functions of the teacher; by default as many as `predict` draws.
        output: which part of the student's result is the answer, where it returns several.
        seed: of all that is random here.
        progress: progress bars; by default where standard error is a terminal.
        options: those of `fit` (epochs, lr, device, checkpoint, …). `validation` needs data with answers.

    Example:
        >>> import copy, posterity, torch
        >>> from torch import nn
        >>> teacher = posterity.DeepEnsemble(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> x = torch.randn(60, 2)
        >>> student = posterity.distil(teacher, copy.deepcopy(teacher.network), x, epochs=1, progress=False)
        >>> prediction = posterity.predict(student, x, samples=50)  # for one pass of the student
        >>> prediction.probs.shape, prediction.epistemic.shape
        (torch.Size([60, 3]), torch.Size([60]))
    """
    if not isinstance(posterior, Posterior):
        raise Error(f"The teacher must be a posterior, posterity.IBNN(network) say; got {type(posterior).__name__}.")
    if isinstance(posterior.likelihood, Tokens):
        raise Error("distil takes one answer a row, or a map of them with its classes along axis 1: not Tokens.")
    own = {id(p) for p in posterior.parameters()}
    if not isinstance(student, nn.Module) or any(id(p) in own for p in student.parameters()):
        raise Error("The student must be a torch.nn.Module of its own: not the teacher's, but a copy.deepcopy of it.")
    if isinstance(options.get("validation"), float | str):
        raise Error("distil leaves answers out, so that none can be held out of the data: give validation=(x, y).")
    pair = isinstance(data, tuple) and data and is_raw(posterior, data[0])
    x, weight = everything((prepared(posterior, data[0]), *data[1:]) if pair else prepared(posterior, data))
    n = posterior.draws if samples is None else count(samples, "samples")
    mean, spread = lessons(posterior, posterior.draw(n, as_generator(seed, None, "distillation")), x, wanted(progress))
    few = x if keeps_whole(Functions(student, 1, output=output), x) else inputs.between(x, 0, 2)
    with explained(student, few):
        layer, outputs = last(student, few, output, mean.shape[1:])
    distilled = Distilled(student, layer, outputs, output=output)
    distilled.likelihood = copy.deepcopy(posterior.likelihood).requires_grad_(False)
    distilled.preprocessing = posterior.preprocessing
    y = torch.stack([mean, distilled.measure(mean, spread)], 1).float()
    fit(distilled, (x, y) if weight is None else (x, y, weight), seed=seed, progress=progress, **options)
    return distilled


def _scaled(z: Tensor, said: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """z, and what the second head said as log(s + floor)."""
    mean, std, *_ = (aligned(scale, z) for scale in scales)
    return z, mean + std * said


def _spread(log: Tensor, scales: Tensor) -> Tensor:
    """s from log(s + floor): at most twice the largest of the teacher's, wherever the inputs lie."""
    *_, largest, floor = (aligned(scale, log) for scale in scales)
    return (log.minimum(largest + math.log(2)).exp() - floor).clamp(min=0)


# Not a method of `posterity.methods()`, as it needs a teacher; but it is saved and loaded like one.
storage.SAVED["distilled"] = Distilled
