"""Tests in a process of their own."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def without_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test that forks in a process that sees no GPU: after a backward pass on one, no fork can train."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        if not torch.cuda.is_available():
            test(*args, **kwargs)
            return
        name = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", name]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        root = Path(__file__).parents[1]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout

    return run
