"""Which parts of a network can be made uncertain, and which of them shall be.

A layer is a module of a type in `LAYERS`: what goes into it are nodes, which can carry noise. A matrix that a module
holds by itself (`nn.Parameter`) can carry noise too. `register` tells of other types of layers.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.utils import parametrize

from posterity.errors import Error, short


class Features(NamedTuple):
    """How a type of layer lays out its features.

    Args:
        inputs: for each argument that carries noise, in the order of the arguments, the attribute that holds its size.
        outputs: the attribute that holds the number of outputs; None where they carry no noise of their own.
        axis: of the features, counted from the end.
        linear: whether the layer is y = W x + b with the parameters `weight` and `bias`.
        transposed: whether W is kept as `[inputs, outputs, ...]`, not `[outputs, inputs, ...]`.
        inner: parameters inside the layer that meet nodes of their own: its name and the attribute with their number.
        meets: part of the names of the parameters that the inputs meet.
    """

    inputs: Mapping[str, str]
    outputs: str | None = None
    axis: int = -1
    linear: bool = False
    transposed: bool = False
    inner: Mapping[str, str] = {}
    meets: str = ""


def _conv(dims: int, transposed: bool = False) -> Features:
    return Features({"input": "in_channels"}, "out_channels", -1 - dims, True, transposed)


#: A type, or the full name of one that is not imported here.
LAYERS: dict[type[nn.Module] | str, Features] = {
    nn.Linear: Features({"input": "in_features"}, "out_features", linear=True),
    nn.Bilinear: Features({"input1": "in1_features", "input2": "in2_features"}, "out_features"),
    nn.Conv1d: _conv(1),
    nn.Conv2d: _conv(2),
    nn.Conv3d: _conv(3),
    nn.ConvTranspose1d: _conv(1, transposed=True),
    nn.ConvTranspose2d: _conv(2, transposed=True),
    nn.ConvTranspose3d: _conv(3, transposed=True),
    nn.RNNBase: Features({"input": "input_size"}, meets="weight_ih_l0"),
    nn.RNNCellBase: Features({"input": "input_size"}, meets="weight_ih"),
    nn.MultiheadAttention: Features(
        {"query": "embed_dim", "key": "kdim", "value": "vdim"}, inner={"out_proj.weight": "embed_dim"}
    ),
    "transformers.pytorch_utils.Conv1D": Features({"x": "nx"}, "nf", linear=True, transposed=True),
}


def register(
    kind: type[nn.Module] | str, inputs: Mapping[str, str], outputs: str | None = None, axis: int = -1
) -> None:
    """Let modules of a type (or of the full name of one) carry noise at their inputs, and at their outputs if named.

    Args:
        kind: `MyLayer`, or `"package.module.MyLayer"`; subclasses follow.
        inputs: the layer's first arguments that carry noise, each with the attribute that holds its number of features:
            `{"x": "in_features"}`.
        outputs: the attribute that holds the number of output features.
        axis: of the features in inputs and outputs, counted from the end.
    """
    LAYERS[kind] = Features(inputs, outputs, axis)


def features(layer: nn.Module) -> Features | None:
    """The layout of a layer that can carry noise, or None."""
    for base in type(layer).__mro__:
        facts = LAYERS.get(base) or LAYERS.get(f"{base.__module__}.{base.__qualname__}")
        if facts is not None:
            return facts
    return None


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer is one of torch's Linear and convolution layers, with their own forward: it is then linear."""
    kinds = [kind for kind, facts in LAYERS.items() if facts.linear and isinstance(kind, type)]
    return any(type(layer).forward is kind.forward for kind in kinds)  # a subclass need not be linear


Chooser = str | type[nn.Module]
Selector = Chooser | Sequence[Chooser] | Callable[[str, nn.Module], bool] | None


def select(network: nn.Module, layers: Selector = None) -> dict[str, str | None]:
    """All that noise could go to, and all other modules that hold parameters: None if it goes there, or why not.

    The keys are names of modules and, for matrices that a module holds by itself, of parameters.

    Args:
        network: any module.
        layers: which: a name pattern (`"encoder.*"`; of layers, of parameters, or of modules that hold them), a type
            of module (`nn.Conv2d`), several of these, `"first"` or `"last"` (in the order in which the network defines
            its layers; a layer of that name comes first), or a function of a module's name and the module.
    """
    reasons: dict[str, str | None] = {}
    owners: dict[str, str] = {}
    for name, module, layer in walk(network):
        own = own_parameters(name, module)
        if (layer is not None and layer != name) or not (own or layer is not None):
            continue
        check_sizes(name, own.values())
        reasons[name] = None if layer is not None else _reason(module)
        bare = [key for key, p in own.items() if layer is None and is_bare(module, p)]
        reasons.update(dict.fromkeys(bare))
        owners.update(dict.fromkeys([name, *bare], name))
    able = {name: name for name, reason in reasons.items() if reason is None}
    ends = {name: name for name in able if owners[name] == name}
    wanted = choose(network, layers, owners, ends or able)
    if able and not wanted & able.keys():
        why = next((f": {reasons[name]}" for name in reasons if name in wanted), "")
        raise Error(f"layers= chooses nothing that can carry noise{why}.")
    return {name: reason or (None if name in wanted else "left out by layers=") for name, reason in reasons.items()}


def select_parameters(network: nn.Module, layers: Selector = None) -> list[str]:
    """The names of the parameters in the layers that are chosen (see `select`).

    A tied parameter has one name, and is chosen with any layer that uses it.
    """
    owners: dict[str, str] = {}
    ends: dict[str, str] = {}
    for name, module, layer in walk(network):
        own = own_parameters(name, module)
        check_sizes(name, own.values())
        owners.update(dict.fromkeys(own, name))
        ends.update(dict.fromkeys(own, layer) if layer is not None else {})
    every = dict(network.named_parameters(remove_duplicate=False))
    wanted = {id(every[name]) for name in choose(network, layers, owners, ends or owners)}
    return [name for name, p in network.named_parameters() if id(p) in wanted]


def choose(network: nn.Module, layers: Selector, owners: Mapping[str, str], ends: Mapping[str, str]) -> set[str]:
    """What `layers` picks.

    Args:
        network: the network.
        layers: see `select`.
        owners: for each name of a module or parameter that can be picked, that of the module that holds it.
        ends: what "first" and "last" are taken from, in order, each with the name of its layer.
    """
    if layers is None:
        return set(owners)
    modules = dict(network.named_modules(remove_duplicate=False))
    if callable(layers) and not isinstance(layers, type):
        return {name for name, owner in owners.items() if layers(owner, modules[owner])}
    several = [layers] if isinstance(layers, (str, type)) else layers
    if not isinstance(several, Sequence) or not all(isinstance(one, (str, type)) for one in several):
        raise Error(
            "layers= takes a name pattern, a type of module, several of these, or a function of name and module."
        )
    picked: set[str] = set()
    for one in several:
        if isinstance(one, type):
            hits = {
                name for name, owner in owners.items() if any(isinstance(modules[at], one) for at in _around(owner))
            }
        elif one in ("first", "last") and one not in modules and one not in owners:
            order = list(ends.values())
            hits = {name for name in ends if ends[name] == order[0 if one == "first" else -1]}
        else:
            hits = {name for name, owner in owners.items() if any(_fits(at, one) for at in (name, *_around(owner)))}
        if not hits:
            known = list(dict.fromkeys(ends.values()))
            listed = ", ".join(f"{name!r} ({type(modules[name]).__name__})" for name in known[:5] if name in modules)
            raise Error(
                f"layers={short(one)} names no layer of this network; it has {listed}{', …' * (len(known) > 5)}."
            )
        picked |= hits
    return picked


def own_parameters(name: str, module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a module by full name: its own, those that its parametrised ones are computed from, and those
    inside a layer."""
    found: dict[str, Tensor] = dict(module.named_parameters(name, recurse=False, remove_duplicate=False))
    facts = features(module)
    for inner in () if facts is None else facts.inner:
        at = inner.rpartition(".")[0]
        found |= dict(module.get_submodule(at).named_parameters(_join(name, at), remove_duplicate=False))
    if parametrize.is_parametrized(module):
        for key, chain in module.parametrizations.items():  # type: ignore[union-attr,operator]
            found |= dict(chain.named_parameters(_join(name, f"parametrizations.{key}"), remove_duplicate=False))
    return found


def is_bare(module: nn.Module, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix that a module which is none of torch's holds by itself."""
    torchs = any(
        base.__module__.startswith("torch.nn.modules.") and not base.__module__.endswith((".container", ".module"))
        for base in type(module).__mro__
    )
    matrix = (parameter.is_floating_point() or parameter.is_complex()) and sum(size > 1 for size in parameter.shape) > 1
    return matrix and not torchs and any(p is parameter for p in module._parameters.values())


def walk(network: nn.Module) -> Iterator[tuple[str, nn.Module, str | None]]:
    """Every module with its name and, where it is one or part of one, that of its layer."""
    inside: dict[str, str] = {}
    for name, module in network.named_modules():
        if isinstance(module, parametrize.ParametrizationList) or _inside_parametrization(name):
            continue
        facts = features(module)
        for key in facts.inner if facts is not None and name not in inside else ():
            inside[_join(name, key.rpartition(".")[0])] = name
        yield name, module, inside.get(name, None if facts is None else name)


def _inside_parametrization(name: str) -> bool:
    return "parametrizations" in name.split(".")


def _reason(module: nn.Module) -> str:
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return f"the input of an {type(module).__name__} is a whole number: the layer after it carries the noise"
    return f"a {type(module).__name__} has no input that carries noise"


def check_sizes(name: str, parameters: Iterable[Tensor]) -> None:
    """An error where a lazy layer has no parameters yet."""
    if any(isinstance(p, nn.UninitializedParameter) for p in parameters):
        raise Error(f"The lazy layer {name!r} has no size yet: run the network once on an example first.")


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)


def _around(name: str) -> Iterator[str]:
    """The names of a module and of those that hold it."""
    while name:
        yield name
        name = name.rpartition(".")[0]
    yield ""


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)
