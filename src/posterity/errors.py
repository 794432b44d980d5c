"""What a user's mistake or a bad file raises."""

import importlib
from types import ModuleType


class Error(ValueError):
    """A mistake that a user can mend: the message says what is wrong and what to do.

    Example:
        >>> import posterity
        >>> posterity.IBNN("resnet")
        Traceback (most recent call last):
            ...
        posterity.errors.Error: The network must be a torch.nn.Module; got str.
    """


#: Packages that are not in the extra `all`.
EXTRAS = {"export": ("onnx", "onnxruntime", "onnxscript"), "huggingface": ("transformers",)}


def require(module: str) -> ModuleType:
    """Import an optional dependency, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = next((name for name, packages in EXTRAS.items() if package in packages), "all")
        raise Error(
            f"This needs the package {package!r}, which is not installed: "
            f"run  pip install 'posterity[{extra}]'  and try again."
        ) from error
