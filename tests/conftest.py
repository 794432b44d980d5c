"""Markers, and the small cases that every method is tested on."""

import os

import pytest
import torch
from torch import Tensor, nn

from common import CASES, generator, seeded

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("realdata") and not os.environ.get("POSTERITY_DATA"):
            item.add_marker(pytest.mark.skip(reason="set POSTERITY_DATA to the folder of the real data sets"))
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor, Tensor]:
    """A small network, inputs and class labels for it."""
    make, shape = CASES[request.param]
    return seeded(make), torch.randn(7, *shape, generator=generator(1)), torch.arange(7) % 3


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """In continuous integration a skipped test is a failed one, but for those that need real data or a GPU."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not any(map(item.get_closest_marker, ("realdata", "gpu"))):
        report.outcome, report.longrepr = "failed", f"skipped: {report.longrepr}"
