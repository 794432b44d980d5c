"""What a result should carry with it: the command, versions, machine and time."""

import datetime
import os
import platform
import shlex
import sys
from typing import Any

import numpy as np
import torch

import posterity


def facts() -> dict[str, Any]:
    """The command, the versions, the machine and the time, for `metrics.json` and the report."""
    return {
        "command": command(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "posterity": posterity.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "machine": {
            "system": platform.platform(terse=True),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def command() -> str:
    """The command as it was typed, with the program's plain name."""
    return shlex.join(["posterity", *sys.argv[1:]])


def described(made: dict[str, Any]) -> dict[str, str]:
    """The same for a reader, line by line."""
    return {
        "command": made["command"],
        "when": made["created"],
        "versions": ", ".join(f"{key} {value}" for key, value in made["versions"].items()),
        "machine": ", ".join(f"{key} {value}" for key, value in made["machine"].items() if value),
    }
