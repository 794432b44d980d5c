"""Measurements, each a command: `python -m benchmarks.NAME`."""

import time

#: When the command was started, before anything large is imported.
BEGAN = time.perf_counter()
