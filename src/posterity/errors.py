"""What a user's mistake or a bad file raises."""

import importlib
import reprlib
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


_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 4
_SHORT.maxstring = _SHORT.maxother = 80
_LINE = 100  # characters of a value


def short(value: object) -> str:
    """A value as an error shows it, in one line: a large tensor or array by its shape, anything else as its start.

    Example:
        >>> from posterity.errors import short
        >>> short([0.5] * 1000)
        '[0.5, 0.5, 0.5, 0.5, ...]'
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and hasattr(value, "dtype") and any(size > 4 for size in shape):
        return f"{type(value).__name__} of shape {list(shape)}"
    return cut(_SHORT.repr(value), _LINE)


def cut(text: str, most: int = 300) -> str:
    """A text in one line, without its middle where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 2 - 1]} … {text[2 - most // 2 :]}"


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
