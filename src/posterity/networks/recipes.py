"""How a network notes what it was built with."""

from collections.abc import Mapping, Sequence
from typing import Any


def recipe(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's name and arguments, as JSON holds them.

    This must be called first, directly after `super().__init__()`: a variable that is set before would be an argument.

    Args:
        name: the one in the table of networks.
        given: `locals()` of the constructor.
    """
    arguments = {key: value for key, value in given.items() if key not in ("self", "__class__")}
    return {"name": name, "arguments": {key: _plain(value) for key, value in arguments.items()}}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
