"""Folders that hold no model that can be loaded: what they are, and what to do with them."""

from pathlib import Path
from typing import Any

from posterity.checkpoints import NAME


def without_configuration(folder: Path, name: str) -> str:
    """A sentence on a folder that has no configuration of this name."""
    inside = sorted(found.parent for found in folder.glob(f"models/*/{name}"))
    if inside:
        return f" Did you mean {' or '.join(map(str, inside[:3]))}?"
    if (folder / NAME).is_file():
        return (
            " It is a checkpoint of fit: build the same posterior, call fit with the same arguments and "
            "checkpoint=this folder, which goes on from there, and save the posterior with posterity.save."
        )
    if (folder / "trainer_state.json").is_file():
        return (
            " It is a checkpoint of a Trainer: go on with trainer.train(resume_from_checkpoint=this folder), and write "
            "a folder that load opens with trainer.save_model(folder)."
        )
    return ""


def of_something_else(config: Any) -> str:
    """A sentence on a configuration that is not of a posterior."""
    if isinstance(config, dict) and "format" not in config and {"model_type", "architectures"} & config.keys():
        return (
            " It is a model of transformers without a posterior: load it with its from_pretrained, and make "
            "a posterior of it, such as posterity.IBNN(model)."
        )
    return ""
