"""What only a CUDA device can show."""

import pytest
import torch

import posterity
from common import ConvNet, generator, seeded

pytestmark = pytest.mark.gpu
METHODS = posterity.methods()


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_and_predicts_there(name, precision):
    x = torch.randn(64, 1, 6, 6, generator=generator())
    y = (x.mean((1, 2, 3)) > 0).long()
    posterior = METHODS[name](seeded(ConvNet), seed=0)
    history = posterity.fit(posterior, (x, y), epochs=8, lr=1e-2, beta=0.0, seed=0, precision=precision, progress=False)
    assert history[-1]["loss"] < history[0]["loss"]
    assert next(posterior.parameters()).is_cuda
    assert posterity.predict(posterior, x, 6).probs.device.type == "cpu"


@pytest.mark.parametrize("name", METHODS)
def test_draws_are_those_of_the_processor(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    x = torch.randn(5, 1, 6, 6, generator=generator())
    posterior = METHODS[name](seeded(ConvNet), seed=0)
    here = posterior.draw(6, generator=generator())(x)
    there = posterior.cuda().draw(6, generator=generator())(x.cuda())
    torch.testing.assert_close(there.cpu(), here, atol=1e-4, rtol=1e-4)
