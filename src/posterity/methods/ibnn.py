"""iBNN: the posterior lives on the inputs of layers (Trinh, Kaski & Heinonen 2020, arXiv:2010.13498).

    f_ℓ = σ_ℓ( U_ℓ (z_ℓ ∘ f_{ℓ−1}) + b_ℓ ),   q(z) = (1/K) Σ_k N(μ_k, diag σ_k²),   p(z) = N(1, s²)

over the concatenation z of the noise of all layers: a row of the batch takes one component k in every layer. The
weights U, b are points; the 2·K·nodes numbers μ and ρ, σ = softplus(ρ), are thousands where weights are millions.
With γ > 0 this is the entropic node-BNN of Trinh et al. (ICML 2022).

The defaults are not the paper's: they were chosen on validation splits of eight data sets
(docs/results/defaults.md). The paper's settings are in `IBNN.recipe`. For large networks that train for long take a
higher γ: with K = 4 and γ = 40, VGG-16 is ahead of the paper's K = 16 in error, likelihood and calibration on CIFAR-10
and CIFAR-100 (docs/reproductions/ibnn.md).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posterity import inputs, mixtures, shares
from posterity.errors import Error
from posterity.functions import Functions
from posterity.interaction import needs_own_passes
from posterity.layers import Selector, own_parameters, select, walk
from posterity.likelihoods import wide
from posterity.pairs import mirrored
from posterity.posterior import (
    Description,
    Entry,
    Posterior,
    as_generator,
    count,
    deviation,
    flag,
    inverse_softplus,
    one_of,
    positive,
    randn,
    randperm,
    standard_deviations,
)
from posterity.sites import Sites
from posterity.state import home

KLS = ("mixture_mean", "bound", "mean_of_kls", "monte_carlo")
NOISES = {"input": ("input",), "output": ("output",), "both": ("input", "output")}

#: Table 2 of the paper: (σ0, s, λ0, weight decay, λ1), for SGD with Nesterov momentum, batches of 128, 300 epochs.
RECIPES = {
    "vgg16-cifar10": (0.75, 0.3, 0.05, 5e-4, 1.2),
    "vgg16-cifar100": (0.75, 0.3, 0.05, 3e-4, 1.6),
    "wrn28x10-cifar10": (0.5, 0.1, 0.1, 5e-4, 2.4),
    "wrn28x10-cifar100": (0.5, 0.1, 0.1, 5e-4, 4.8),
}


class IBNN(Posterior):
    """Multiplicative noise on the inputs of every layer (and on bare matrices), from a mixture of K Gaussians.

    Args:
        network: any module with layers or matrices (see `posterity.layers`); it is trained as part of the posterior.
        components: K.
        samples: S, training draws per datum.
        prior_std: s, of the prior N(1, s²): a number, or one for each node.
        init_std: σ0: the means start at N(1, σ0²).
        init_noise: the standard deviations start at |N(init_noise, (0.4 · init_noise)²)|; the paper's is 0.05.
        kl: the divergence: "bound", "mixture_mean" (the paper's), "mean_of_kls" or "monte_carlo"; what each rewards
            is in `posterity.mixtures`.
        gamma: weight of the entropic regulariser: the loss gains −γ · H[q] / N. With 0 the objective is a bound of the
            evidence; above 0 it is that of a posterior at temperature 1 + γ.
        noise: where: "input" (the paper's), "output", or "both".
        bias_noise: one multiplier of the bias for each layer that has one.
        per_layer: a component for each layer (eq. 18), not one for the whole network.
        assignment: "paper" gives all S samples of a datum the component of that datum (Algorithm 1); "authors" gives
            row r of the B·S rows component r mod K, as their code does.
        layers: which layers carry noise: a name pattern, a type of module, several of these, "first", "last", or a
            function of name and module (see `posterity.layers.select`).
        output: which part of the network's result is the answer, where it returns several.
        seed: of the initialisation; or `generator`.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.IBNN(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)), components=4)
        >>> posterior.means.shape  # of 2 + 16 nodes, where there are 99 weights
        torch.Size([4, 18])
        >>> posterior.draw(8)(torch.randn(5, 2)).shape
        torch.Size([8, 5, 3])
    """

    prior_std: Tensor
    #: Noise must keep up with the weights: a high rate is what the paper calls crucial.
    relative_rate = 10.0
    validation_ramp = 500
    space = (
        ("posterior", "components", [1, 2, 4, 8, 16, 32]),
        ("posterior", "init_std", 0.02, 0.8),
        ("posterior", "prior_std", 0.03, 0.6),
        ("fit", "lr_posterior", 1e-3, 0.3),
        ("posterior", "gamma", 0.1, 100.0),
    )

    def __init__(
        self,
        network: nn.Module,
        components: int = 4,
        *,
        samples: int = 1,
        prior_std: float | Sequence[float] | Tensor = 0.1,
        init_std: float = 0.1,
        init_noise: float = 0.05,
        kl: str = "bound",
        gamma: float = 4.0,
        noise: str = "input",
        bias_noise: bool = False,
        per_layer: bool = False,
        assignment: str = "paper",
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, output=output)
        self.components = count(components, "components")
        self.kl = one_of(kl, KLS, "kl")
        self.assignment = one_of(assignment, ("paper", "authors"), "assignment")
        self.where = one_of(noise, tuple(NOISES), "noise")
        self.gamma = positive(gamma, "gamma", zero=True)
        self.per_layer, self.bias_noise = flag(per_layer, "per_layer"), flag(bias_noise, "bias_noise")
        self.init_std, self.init_noise = deviation(init_std, "init_std", zero=True), deviation(init_noise, "init_noise")
        self.reasons = select(network, layers)
        names = [name for name, reason in self.reasons.items() if reason is None]
        if not names:
            raise Error(
                "IBNN needs a layer (Linear, convolution, …) or a matrix to put noise on; this network has none."
            )
        self.kinds = NOISES[noise] + (("bias",) if bias_noise else ())
        self.sites = Sites(network, self.kinds, names)
        self.passes: dict[Any, bool] = {}
        like = inputs.like(network).detach()
        shape, generator = (self.components, self.sites.size), as_generator(seed, generator)
        prior = standard_deviations(prior_std, like, self.sites.size, "node")
        self.register_buffer("prior_std", prior, persistent=False)
        self.means = nn.Parameter(1 + self.init_std * randn(shape, like, generator))
        stds = (self.init_noise * (1 + 0.4 * randn(shape, like, generator))).abs().clamp(min=1e-3)
        self.spreads = nn.Parameter(inverse_softplus(stds))
        self.draws = self.components * max(5, -(-40 // self.components))
        self.rate = float(self.components)

    @property
    def bounds_evidence(self) -> bool:  # type: ignore[override]
        """Whether it is a bound: the divergence of the average of components is none (see `posterity.mixtures`)."""
        return self.kl != "mixture_mean"

    @property
    def stds(self) -> Tensor:
        """σ = softplus(ρ), `[components, nodes]`."""
        return F.softplus(self.spreads)

    @property
    def nodes(self) -> int:
        """How many numbers one draw of the noise has."""
        return self.sites.size

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under noise that is fresh for every row and sample, `[samples, batch, ...]`."""
        self.sites.find_rows(self.network, x)
        rows = self.sites.rows(x)
        noise = shares.part(self._training_noise(shares.whole(rows), generator))
        if inputs.rows(x) is None or (self.samples > 1 and needs_own_passes(self, x, self.passes)):
            each = zip(inputs.copies(x, self.samples), noise.unflatten(0, (-1, self.samples)).unbind(1), strict=True)
            return torch.stack([inputs.output(self.sites.run(self.network, *draw), self.output) for draw in each])
        if self.samples > 1:
            x = inputs.apply(x, lambda tensor: tensor.repeat_interleave(self.samples, 0))
        result = self.sites.run(self.network, x, noise)
        out = inputs.output(result, self.output)
        return out.view(rows, self.samples, *out.shape[1:]).transpose(0, 1)

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """The divergence of the chosen form, in nats; by layer where components are drawn by layer."""
        return torch.stack([self._kl(m, s, p, generator) for m, s, p in self._blocks()]).sum()

    def entropy(self) -> Tensor:
        """A lower bound of the entropy of q, in nats."""
        return torch.stack([mixtures.entropy_bound(m, s) for m, s, _ in self._blocks()]).sum()

    def penalty(self, generator: torch.Generator | None = None) -> Tensor:
        """divergence − γ · entropy."""
        if self.gamma and self.kl == "bound":
            return torch.stack([mixtures.bound(m, s, p, 1 + self.gamma) for m, s, p in self._blocks()]).sum()
        divergence = self.divergence(generator)
        return divergence - self.gamma * self.entropy() if self.gamma else divergence

    def draw(self, n: int, generator: torch.Generator | None = None, pairs: bool = False) -> Functions:
        """n functions, spread over the components as evenly as n allows, the remainder at random.

        With `pairs`, every second function of a component has the noise of the one before it, with the sign turned.
        """
        n = count(n, "n")
        with torch.no_grad():
            noise = randn((n, self.nodes), self.means, generator)
            noise = mirrored(noise, self.components) if pairs else noise
            start, parts = 0, []
            shared = self._spread(n, generator)
            for site in self.sites:
                k = self._spread(n, generator)[randperm(n, generator)] if self.per_layer else shared
                part, k = slice(start, start + site.size), k.to(self.means.device)
                parts.append(self.means[k, part] + self.stds[k, part] * noise[:, part])
                start += site.size
        return self._functions(torch.cat(parts, dim=1))

    def mean(self) -> Functions:
        """The network under the mean of the mixture, (1/K) Σ_k μ_k."""
        return self._functions(self.means.detach().mean(0, keepdim=True))

    def describe(self) -> Description:
        """Layers with noise at their inputs or outputs; parameters that stay points, and why."""
        sites, lines = {site.name: site for site in self.sites}, []
        for name, module, _ in walk(self.network):
            if name not in self.reasons:
                continue
            site = sites.get(name)
            reason = self.reasons[name] or (site.missing if site else f"it has no {self.where} that carries noise")
            words = reason or (site.words() if site else "")
            lines.append(Entry(name, type(module).__name__, not reason, words))
            for full, p in own_parameters(name, module).items():
                key = full.removeprefix(f"{name}.")
                if full in sites:
                    lines.append(Entry(full, str(tuple(p.shape)), True, sites[full].words()))
                    continue
                drawn = not reason and site is not None and site.multiplies(key)
                why = "a product with the noise" if drawn else self.reasons.get(full) or reason
                why = why or "a point, which this noise does not multiply"
                lines.append(Entry(full, str(tuple(p.shape)), drawn, why))
        return Description(lines)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values; `layers` as the names that were chosen."""
        return {
            "components": self.components,
            "samples": self.samples,
            "prior_std": self.prior_std.tolist(),
            "init_std": self.init_std,
            "init_noise": self.init_noise,
            "kl": self.kl,
            "gamma": self.gamma,
            "noise": self.where,
            "bias_noise": self.bias_noise,
            "per_layer": self.per_layer,
            "assignment": self.assignment,
            "layers": self.sites.names,
            "output": self.output,
        }

    def variational(self) -> Iterator[nn.Parameter]:
        """μ and ρ."""
        return iter((self.means, self.spreads))

    @staticmethod
    def recipe(name: str, components: int = 16) -> dict[str, dict[str, Any]]:
        """A setting of the paper's table 2: `{"posterior": arguments of IBNN, "fit": arguments of fit}`.

        The paper's λ1 is one number for every K; here the posterior's rate is per component, hence λ1 / K.
        """
        init_std, prior_std, lr, decay, rate = RECIPES[one_of(name, tuple(RECIPES), "recipe")]
        return {
            "posterior": {
                "components": components,
                "samples": 2,
                "prior_std": prior_std,
                "init_std": init_std,
                "init_noise": 0.05,
                "kl": "mixture_mean",
                "gamma": 0.0,
            },
            "fit": {
                "epochs": 300,
                "batch_size": 128,
                "optimizer": "sgd",
                "lr": lr,
                "lr_posterior": rate / components,
                "weight_decay": decay,
                "schedule": "piecewise",
                "schedule_posterior": "constant",
                "beta": ("linear", 200 / 300),
            },
        }

    def _training_noise(self, rows: int, generator: torch.Generator | None) -> Tensor:
        """Noise `[rows · samples, nodes]`, the samples of a row side by side, without gathering the parameters."""
        k, s = self.components, self.samples
        if self.assignment == "authors":
            noise = randn(((rows * s + k - 1) // k, k, self.nodes), self.means, generator)
            return (self.means + self.stds * noise).flatten(0, 1)[: rows * s]
        noise = randn(((rows + k - 1) // k, k, s, self.nodes), self.means, generator)
        means, stds = self._turned(self.means, self.stds, generator)
        return (means.unsqueeze(1) + stds.unsqueeze(1) * noise).flatten(0, 1)[:rows].flatten(0, 1)

    def _turned(self, means: Tensor, stds: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Start at another component each time: no row belongs to one of them, and the first get no more rows."""
        layers = [site.size for site in self.sites] if self.per_layer else [self.nodes]
        device = home(generator) or means.device
        first = torch.randint(self.components, (len(layers),), generator=generator, device=device)
        if not self.per_layer and not first.is_cuda and not torch.compiler.is_compiling():
            return means.roll(-int(first), 0), stds.roll(-int(first), 0)
        first = first.to(means.device)
        order = (torch.arange(self.components, device=means.device).unsqueeze(1) + first) % self.components
        if not self.per_layer:
            return means[order[:, 0]], stds[order[:, 0]]
        parts = zip(order.unbind(1), means.split(layers, 1), stds.split(layers, 1), strict=True)
        turned = [(mean[rows], std[rows]) for rows, mean, std in parts]
        return torch.cat([mean for mean, _ in turned], 1), torch.cat([std for _, std in turned], 1)

    def _spread(self, n: int, generator: torch.Generator | None) -> Tensor:
        """n component indices, each as often as the others or once more."""
        whole, rest = divmod(n, self.components)
        return torch.cat(
            [torch.arange(self.components).repeat(whole), randperm(self.components, generator)[:rest].cpu()]
        )

    def _functions(self, noise: Tensor) -> Functions:
        return Functions(
            self.network,
            len(noise),
            names=self.sites.names,
            kinds=self.kinds,
            direct=self.sites.direct,
            noise=noise,
            output=self.output,
        )

    def _blocks(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Means, standard deviations and the prior's, for each mixture: one, or one for each layer."""
        means, stds, prior = wide(self.means), F.softplus(wide(self.spreads)), wide(self.prior_std)
        sizes = [site.size for site in self.sites] if self.per_layer else [self.nodes]
        parts = means.split(sizes, 1), stds.split(sizes, 1), prior.expand(self.nodes).split(sizes)
        return list(zip(*parts, strict=True))

    def _kl(self, means: Tensor, stds: Tensor, prior_std: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.kl == "monte_carlo":
            return mixtures.monte_carlo_kl(means, stds, prior_std, generator=generator)
        forms = {
            "mixture_mean": mixtures.mixture_mean_kl,
            "bound": mixtures.bound,
            "mean_of_kls": mixtures.mean_of_kls,
        }
        return forms[self.kl](means, stds, prior_std)
