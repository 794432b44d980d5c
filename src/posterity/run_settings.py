"""What a run of `fit` depends on, as its checkpoint keeps it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from posterity import fingerprints


@dataclasses.dataclass
class Settings:
    """What a run depends on; a checkpoint of other settings is refused."""

    epochs: int
    batch_size: int | None
    lr: float
    lr_posterior: float | None
    weight_decay: float
    optimizer: str
    precision: str
    clip: float | None
    schedule: str
    schedule_posterior: str
    beta: str
    augment: str | None
    seed: int
    size: int
    steps: int
    """In an epoch, which a loader decides."""
    posterior: dict[str, Any]
    likelihood: dict[str, Any]
    data: str | None = None
    functions: dict[str, str] = dataclasses.field(default_factory=dict)
    """Fingerprints of the schedules and of the user's functions."""

    def differences(self, found: Mapping[str, Any]) -> list[str]:
        """The names of what is another in the settings of a checkpoint; older ones do not have all of them."""
        own = dataclasses.asdict(self)
        found = {key: own[key] for key in ("data", "steps", "functions")} | dict(found)
        before = found["functions"] if isinstance(found["functions"], dict) else {}
        names = [name for name, value in own.items() if name != "functions" and found.get(name) != value]
        return names + [
            name for name, f in self.functions.items() if name not in names and fingerprints.differ(before.get(name), f)
        ]
