"""Folders with what a posterior adds beside a pretrained model of Hugging Face.

config.json            the base model's configuration
model.safetensors      the base model, unless the folder refers to another one (`base=`)
posterity_config.json  format version, method and its arguments, likelihood, architecture, base
posterity.safetensors  what the posterior adds; with `base=` also the weights that are not the base's
"""

import contextlib
import copy
import json
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, storage
from posterity.errors import Error, require
from posterity.posterior import Posterior

transformers: Any = require("transformers")

CONFIG, ADDED = "posterity_config.json", "posterity.safetensors"


def save_pretrained(posterior: Posterior, folder: str | Path, base: str | Path | None = None) -> Path:
    """Write a posterior around a model of `transformers` to a folder.

    Args:
        posterior: any method of `posterity.methods()`.
        folder: where.
        base: the name or folder of the pretrained model that the network started from. Then only what differs from it
            is written: the posterior's own parameters, a new head, whatever else was trained. Without it the whole
            model is written beside them.
    """
    folder = Path(folder)
    network: Any = posterior.network
    name = type(network).__name__
    if _architecture(name) is not type(network):
        raise Error(f"{name} is no model of transformers: use posterity.save, and posterity.load with the network.")
    if base is not None and folder.resolve() == Path(base).resolve():
        raise Error(f"{folder} is the base model's own folder: choose another one.")
    text = storage.as_json(
        {**storage.description(posterior), "architecture": name, "base": None if base is None else str(base)}
    )
    own = storage.added(posterior)
    if base is not None:
        own |= {storage.PREFIX + key: value for key, value in _changed(network, str(base)).items()}
        text = storage.as_json({**json.loads(text), "laid_over": _beneath(posterior, own)})
    with storage.replacing(folder) as made:
        if base is None:
            network.save_pretrained(made)
        else:
            config = copy.deepcopy(network.config)
            config.architectures = [name]
            config.save_pretrained(made)
        storage.write(made / ADDED, own)
        (made / CONFIG).write_text(text)
    return folder


def from_pretrained(folder: str | Path, network: nn.Module | None = None) -> Posterior:
    """Read what `save_pretrained` wrote; no code of a stranger is run, and weights are safetensors only.

    To go on training, freeze again what was frozen: a folder does not say.

    Args:
        folder: where.
        network: the base model, where it is loaded already; by default it comes from the base that the folder names,
            which may be a download. Where the folder holds the whole model, the network takes its weights.
    """
    folder = Path(folder)
    config = storage.read_config(folder / CONFIG, {"architecture": str, "base": (str, type(None))})
    own = storage.read(folder / ADDED)
    changed = {key.removeprefix(storage.PREFIX): own.pop(key) for key in list(own) if key.startswith(storage.PREFIX)}
    base = config.get("base")
    if network is None:
        network = _network(config["architecture"], folder, base or str(folder))[0]
    elif base is None:
        changed = _network(config["architecture"], folder, str(folder))[0].state_dict()
        storage.check(network.state_dict(), changed, "network")
    state = network.state_dict()
    storage.check({key: value for key, value in state.items() if key in changed}, changed, "network")
    posterior = storage.attach(config, network, own, changed)
    if config.get("laid_over") not in (None, _beneath(posterior, changed)):
        warnings.warn(
            f"{folder} was saved beside the base model {base!r}, whose weights are not those that it is now laid over: "
            "its predictions are of no use. Leave network= out to load the base by its name.",
            stacklevel=3,
        )
    return posterior


def _beneath(posterior: Posterior, written: Iterable[str]) -> str:
    """What tells apart the weights of a base model that a folder does not hold."""
    drawn = getattr(getattr(posterior, "weights", None), "shapes", ())
    held = {name.removeprefix(storage.PREFIX) for name in written} | set(drawn)
    state = posterior.network.state_dict()
    return inputs.fingerprint([state[name] for name in sorted(state) if name not in held])


def _architecture(name: str) -> Any:
    """The model class of this name, or None."""
    found = getattr(transformers, name, None)
    return found if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel) else None


def _network(architecture: str, config: Any, weights: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model with the weights of a name or folder, and which of its tensors these lack."""
    cls = _architecture(architecture)
    if cls is None:
        raise Error(f"transformers {transformers.__version__} has no model {architecture!r}.")
    try:
        with _quiet(), torch.random.fork_rng(devices=[]):
            if isinstance(config, Path):
                found = cls.config_class.from_pretrained(config)
                if str(config) == weights:
                    _check_sizes(cls, found, config)
                config = found
            else:
                config = copy.deepcopy(config)
            options = {"output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
            network, info = cls.from_pretrained(weights, config=config, **options)
    except Error:
        raise
    except Exception as error:
        # A damaged configuration or file makes transformers raise too many kinds of exception to name them.
        raise Error(f"The base model {weights!r} cannot be loaded as {architecture}: {str(error)[:1000]}") from error
    return network, info


def _check_sizes(cls: Any, config: Any, folder: Path) -> None:
    """Refuse a stranger's configuration of more layers, or of more weights, than are in the folder."""
    from safetensors import safe_open

    files = [path for path in folder.glob("*.safetensors") if path.name != ADDED and path.is_file()]
    held, tensors = sum(path.stat().st_size for path in files), 0
    for path in files:
        with safe_open(path, framework="pt") as file:
            tensors += len(file.keys())
    layers = [value for key, value in config.to_dict().items() if "layer" in key and isinstance(value, int)]
    if files and max(layers, default=0) <= tensors:
        with torch.device("meta"):
            outline = cls(config)
        if sum(p.numel() for p in outline.parameters()) <= 2 * held:  # of half a byte at least
            return
    raise Error(f"The base model in {folder} lacks weights that its configuration asks for.")


def _changed(network: Any, base: str) -> dict[str, Tensor]:
    """The network's tensors that a base model lacks or has other values of."""
    original, info = _network(type(network).__name__, network.config, base)
    lacking = [*info["missing_keys"], *info["mismatched_keys"]]
    new = {key if isinstance(key, str) else key[0] for key in lacking}
    theirs = original.state_dict()

    def same(name: str, value: Tensor) -> bool:
        return name not in new and value.dtype == theirs[name].dtype and torch.equal(value.cpu(), theirs[name])

    return {name: value for name, value in network.state_dict().items() if not same(name, value)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers reports what a base model lacks; here that is expected."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
