"""Saving and loading: a folder with `config.json` and safetensors files, never a pickle.

config.json            format version, method and its arguments, likelihood, network recipe, preprocessing
posterior.safetensors  what the posterior adds to the network, and the likelihood's noise
network.safetensors    the network's own weights under its own names, unless network=False
"""

import contextlib
import json
import operator
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posterity import folders, inputs, networks
from posterity.errors import Error, short
from posterity.likelihoods import LIKELIHOODS, Likelihood
from posterity.methods import TABLE
from posterity.posterior import MOST_DRAWS, Posterior, checked
from posterity.randomness import turn

FORMAT = 1
_CONFIG, _POSTERIOR, _NETWORK = "config.json", "posterior.safetensors", "network.safetensors"
PREFIX = "network."
_LARGEST_CONFIG = 64 * 1024 * 1024
_FEW, _MOST_STEPS = 10_000, 1_000  # of what a configuration may ask for without as many numbers in the files

#: What can be saved and loaded, by name: the methods, and what adds itself.
SAVED: dict[str, type[Posterior]] = dict(TABLE)


def save(posterior: Posterior, folder: str | Path, *, network: bool = True, preprocessing: Any = None) -> Path:
    """Write a posterior to a folder, which is made where it is missing.

    Args:
        posterior: any method of `posterity.methods()`.
        folder: where.
        network: with False, only what the posterior adds is written, to be laid over trained weights: kilobytes.
        preprocessing: what turns raw rows into the network's inputs (`posterity.datasets` makes it); kept with it.

    Example:
        >>> import posterity
        >>> posterior = posterity.IBNN(posterity.networks.create("mlp", inputs=2, outputs=3))
        >>> folder = posterity.save(posterior, "model")
        >>> sorted(path.name for path in folder.iterdir())
        ['config.json', 'network.safetensors', 'posterior.safetensors']
    """
    checked(posterior)
    folder = Path(folder)
    _check_own(folder / _CONFIG)
    preprocessing = posterior.preprocessing if preprocessing is None else preprocessing
    config = {
        **description(posterior),
        "network": networks.recipe_of(posterior.network),
        "preprocessing": None if preprocessing is None else preprocessing.to_dict(),
        "holds_network": network,
    }
    if not network:
        config["laid_over"] = _beneath(posterior)
    text = as_json(config)
    state = posterior.state_dict()
    with replacing(folder) as made:
        if network:
            write(made / _NETWORK, {k.removeprefix(PREFIX): v for k, v in state.items() if k.startswith(PREFIX)})
        write(made / _POSTERIOR, added(posterior))
        (made / _CONFIG).write_text(text)
    if not network:
        (folder / _NETWORK).unlink(missing_ok=True)
    return folder


def _check_own(path: Path) -> None:
    """Refuse to replace the configuration of something else."""
    try:
        found = read_json(path) if path.is_file() else {"format": FORMAT}
    except Error:  # what is damaged may be replaced
        return
    if not isinstance(found, dict) or "format" not in found:
        raise Error(f"{path} is of something else, which would be lost: give another folder.")


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A place for new files of a folder: all of them are moved there at the end, or none where one cannot be written.

    The folder is made where it is missing.
    """
    from safetensors import SafetensorError

    made, new = None, not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(".part", ".", folder))
        yield made
        for path in made.iterdir():
            path.replace(folder / path.name)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Error(f"Cannot write the model to {folder}: {why}. What was there before is as it was.") from error
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):  # it holds files
                folder.rmdir()


def load(folder: str | Path, network: nn.Module | None = None) -> Posterior:
    """Read a posterior from a folder.

    Args:
        folder: what `save` or `save_pretrained` wrote, or a run's `models/<method>`.
        network: the same architecture; its weights come from the folder, unless that was saved with network=False.
            It can be left out where the folder says which of `posterity.networks` it is.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> def network():
        ...     return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> posterior = posterity.BayesByBackprop(network())
        >>> folder = posterity.save(posterior, "model")
        >>> again = posterity.load(folder, network())
        >>> torch.equal(again.means, posterior.means)
        True
    """
    folder = Path(folder)
    if (folder / "posterity_config.json").is_file():
        from posterity.pretrained import from_pretrained

        return from_pretrained(folder, network)
    config = {"network": None, "preprocessing": None, **read_config(folder / _CONFIG, {"holds_network": bool})}
    own = read(folder / _POSTERIOR)
    weights = read(folder / _NETWORK) if config["holds_network"] else {}
    given = network is not None
    if network is None:
        if config["network"] is None:
            raise Error(f"{folder} does not say what its network is: give load() the same architecture as network=.")
        if not config["holds_network"]:
            raise Error(f"{folder} holds no network weights: give load() the trained network as network=.")
        network = _rebuilt(config["network"], weights)
    if config["holds_network"]:
        check(network.state_dict(), weights, "network")
        if not given:
            network.to(next((v.dtype for v in weights.values() if v.is_floating_point()), torch.float32))
    posterior = attach(config, network, own, weights)
    if config.get("laid_over") not in (None, _beneath(posterior)):
        warnings.warn(
            f"{folder} was trained on a network with other weights (or weights of another type) than those it is now "
            "laid over: what it says is of no use unless they are those it was trained with.",
            stacklevel=2,
        )
    if config["preprocessing"] is not None:
        from posterity.datasets import Preprocessing

        posterior.preprocessing = Preprocessing.from_dict(config["preprocessing"])
    return posterior


def _beneath(posterior: Posterior) -> str:
    """What tells the network's weights apart, but for those that the posterior draws anew."""
    drawn = getattr(getattr(posterior, "weights", None), "shapes", ())
    state = posterior.network.state_dict()
    return inputs.fingerprint([state[name] for name in sorted(state) if name not in drawn])


def description(posterior: Posterior) -> dict[str, Any]:
    """What a configuration says of a posterior itself: format version, method and arguments, likelihood."""
    names = {cls: name for name, cls in SAVED.items()}
    if type(posterior) not in names:
        raise Error(f"{type(posterior).__name__} is not one of the methods that can be saved: {', '.join(SAVED)}.")
    likelihoods = {cls: name for name, cls in LIKELIHOODS.items()}
    if type(posterior.likelihood) not in likelihoods:
        raise Error(f"The likelihood {type(posterior.likelihood).__name__} cannot be saved: it is not the library's.")
    return {
        "format": FORMAT,
        "method": names[type(posterior)],
        "arguments": posterior.config(),
        "training_size": posterior.training_size,
        "likelihood": {"name": likelihoods[type(posterior.likelihood)], **posterior.likelihood.config()},
    }


def added(posterior: Posterior) -> dict[str, Tensor]:
    """What a posterior adds to its network, and the likelihood's noise."""
    return {name: value for name, value in posterior.state_dict().items() if not name.startswith(PREFIX)}


def attach(
    config: dict[str, Any], network: nn.Module, own: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> Posterior:
    """The posterior of a configuration around a network, with what it adds and the network's weights, in evaluation."""
    _check_sizes(config["arguments"], own, network)
    posterior = _build(SAVED[config["method"]], network, config["arguments"])
    posterior.likelihood = _likelihood(config["likelihood"])
    posterior.training_size = _whole(config.get("training_size"))
    check(added(posterior), own, "posterior")
    posterior.load_state_dict({**{PREFIX + k: v for k, v in weights.items()}, **own}, strict=False)
    posterior.to(next(network.parameters(), torch.zeros(())).device)
    return posterior.eval()


def as_json(config: dict[str, Any]) -> str:
    """A configuration as text."""
    try:
        return json.dumps(config, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Error(f"The posterior's arguments cannot be written as JSON: {error}.") from error


def storable(state: Mapping[str, Any]) -> None:
    """Refuse what is no tensor, which a module may keep by `get_extra_state`."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise Error(
                f"{name} is a {type(value).__name__} and cannot be saved: keep what a network needs in buffers."
            )


def write(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write tensors, within `replacing`; one with several names is written once."""
    from safetensors.torch import save_file

    storable(state)
    seen: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
    once = {}
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and key in seen:
            continue
        seen[key] = name
        once[name] = tensor.detach().to("cpu", copy=True).contiguous()
    path.touch()
    mode = path.stat().st_mode  # that of any new file, where safetensors would let nobody else read it
    save_file(once, path)
    path.chmod(mode)


def read(path: Path) -> dict[str, Tensor]:
    """The tensors in a file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise Error(f"{path} is missing: the folder is no complete model.")
    try:
        with path.open("rb"):  # safetensors takes a file that may not be read for one that is missing
            return load_file(path)
    except PermissionError as error:
        raise Error(f"{path} may not be read by you: {error.strerror}.") from error
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise Error(f"{path} is damaged: {error}") from error


def read_json(path: Path) -> Any:
    """What a file of a stranger holds as JSON."""
    try:
        if not path.is_file():  # a device has no end
            raise Error(f"{path} is no file.")
        if path.stat().st_size > _LARGEST_CONFIG:
            raise Error(f"{path} is too large: {path.stat().st_size:,} bytes.")
        return json.loads(path.read_text(encoding="utf-8"))
    except Error:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise Error(f"{path} is damaged: {error}") from error


def read_config(path: Path, more: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in a file; `more` are fields, and their kinds, that it must have beside a posterior's own."""
    if not path.is_file():
        what = folders.without_configuration(path.parent, path.name)
        raise Error(f"{path.parent} is no model folder: it has no {path.name}.{what}")
    config = read_json(path)
    if not isinstance(config, dict) or config.get("format") != FORMAT or config["format"] is True:
        version = config.get("format") if isinstance(config, dict) else None
        what = folders.of_something_else(config)
        raise Error(f"{path} has format {short(version)}; this version of posterity reads format {FORMAT}.{what}")
    for name, kind in {"method": str, "arguments": dict, "likelihood": dict, **more}.items():
        if not isinstance(config.get(name), kind):
            raise Error(f"{path} is damaged: {name!r} is missing or of the wrong kind.")
    if config["method"] not in SAVED:
        raise Error(f"{path} names the method {short(config['method'])}; known are {', '.join(SAVED)}.")
    return config


def _build(cls: type[Posterior], network: nn.Module, arguments: dict[str, Any]) -> Posterior:
    """The posterior of a configuration."""
    try:
        with turn():
            return cls(network, **arguments)
    except Error:
        raise
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError, ArithmeticError) as error:
        raise Error(f"The model's configuration does not fit its method or its network: {error}") from error


def _rebuilt(recipe: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """The network of a stranger's recipe: no more layers, and no larger ones, than there are weights for."""
    arguments = recipe.get("arguments") if isinstance(recipe, dict) else None
    for name, value in arguments.items() if isinstance(arguments, dict) else ():
        layers = len(value) if isinstance(value, list) else value if name == "depth" else 0
        if isinstance(layers, int) and layers > len(weights) + 2:
            raise Error(f"The network in the folder is of another architecture: {name} asks for {layers:.3g} layers.")
    with turn():
        with torch.device("meta"):
            outline = networks.rebuild(recipe)
        if sum(p.numel() for p in outline.parameters()) > sum(value.numel() for value in weights.values()):
            raise Error("The network in the folder is of another architecture: it has more weights than the file.")
        return networks.rebuild(recipe)


def _check_sizes(arguments: Mapping[str, Any], own: Mapping[str, Tensor], network: nn.Module) -> None:
    """Bound a method's sizes, which are a stranger's, before anything is made: by the numbers that there are for it."""
    most = max(_FEW, sum(value.numel() for value in own.values()))
    names = sum(1 for _ in network.modules()) + sum(1 for _ in network.parameters())
    for name, value in arguments.items():
        if isinstance(value, list) and sum(isinstance(member, str) for member in value) > names:
            raise Error(f"The model's configuration has {len(value)} {name}, more than the network.")
        sizes = [size for size in (value if isinstance(value, list) else [value]) if isinstance(size, int)]
        largest = {"samples": MOST_DRAWS, "neighbours": MOST_DRAWS, "steps": _MOST_STEPS, "depth": _MOST_STEPS}.get(
            name, most
        )
        products = sum(map(operator.mul, sizes, sizes[1:]))
        if len(sizes) > _MOST_STEPS or max(sizes, default=0) > largest or products > max(most, _FEW**2):
            raise Error(f"The model's configuration asks for {name}={str(value)[:40]}, which is too many.")


def _whole(size: Any) -> int | None:
    """N as a configuration has it; older ones, which have none, give None."""
    if size is None or (isinstance(size, int) and not isinstance(size, bool) and size > 0):
        return size
    raise Error(
        f"The model's configuration is damaged: training_size is {str(size)[:40]!r}, not a whole number above 0."
    )


def _likelihood(config: dict[str, Any]) -> Likelihood:
    name, arguments = config.get("name"), {k: v for k, v in config.items() if k != "name"}
    if not isinstance(name, str) or name not in LIKELIHOODS:
        raise Error(
            f"The model's configuration names the likelihood {short(name)}; known are {', '.join(LIKELIHOODS)}."
        )
    try:
        return LIKELIHOODS[name](**arguments)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise Error(f"The model's configuration does not fit its likelihood: {error}") from error


def check(own: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    """Refuse other names, shapes or kinds of numbers than there should be, before anything changes."""
    places = {value.data_ptr() for name, value in own.items() if name in found and value.numel()}
    missing = [name for name, value in own.items() if name not in found and value.data_ptr() not in places]
    extra = [name for name in found if name not in own]
    if missing or extra:
        raise Error(
            f"The {what} in the folder is of another architecture: "
            + (f"it lacks {', '.join(missing[:3])}" if missing else f"it also has {', '.join(extra[:3])}")
            + "."
        )
    for name, value in found.items():
        if value.shape != own[name].shape:
            raise Error(
                f"The {what} in the folder is of another architecture: {name} is {tuple(value.shape)} there and "
                f"{tuple(own[name].shape)} here."
            )
        if (value.is_floating_point(), value.is_complex()) != (own[name].is_floating_point(), own[name].is_complex()):
            raise Error(f"The {what} in the folder is damaged: {name} holds numbers of type {value.dtype}.")
        infinite = ~value.isfinite()  # as the given network's own may be, a mask of −∞ for example
        if bool(infinite.any()) and bool((infinite & own[name].isfinite().to(infinite.device)).any()):
            raise Error(f"The {what} in the folder is damaged: {name} holds NaN or infinite values.")
        if name.endswith("running_var") and bool((value < 0).any()):
            raise Error(f"The {what} in the folder is damaged: {name} holds negative variances.")
