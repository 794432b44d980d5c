"""What only a CUDA device can show."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity import branches

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


@pytest.mark.parametrize("name", METHODS)
def test_a_graph_gives_the_same_numbers(name, recwarn):
    """In float64: members are branches of a graph, and vectorised without; Adam makes much of what is rounding."""
    x = torch.randn(70, 1, 6, 6, generator=generator())  # the last batch of an epoch is smaller
    y = (x.mean((1, 2, 3)) > 0).long()
    trained, likelihoods = [], []
    for graph in (False, True):
        posterior = METHODS[name](seeded(ConvNet).double(), seed=0)
        history = posterity.fit(
            posterior, (x, y), epochs=6, batch_size=16, lr=1e-2, seed=0, graph=graph, progress=False
        )
        trained.append(torch.cat([p.detach().flatten() for p in posterior.parameters()]))
        likelihoods.append(torch.tensor(history.column("nll")))
    torch.testing.assert_close(*likelihoods, rtol=1e-3, atol=1e-3)
    assert not [warning for warning in recwarn if "CUDA graph" in str(warning.message)]
    torch.testing.assert_close(*trained, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "optimizer", [lambda g: torch.optim.RMSprop(g, eps=1e-3), lambda g: torch.optim.Adam(g, eps=1e-5)]
)
def test_an_optimiser_of_ones_own_is_captured(recwarn, optimizer):
    trained = []
    for graph in (False, True):
        posterior = posterity.MAP(seeded(mlp))
        x, y = torch.randn(64, 5, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
        how = {"epochs": 3, "batch_size": 16, "progress": False, "seed": 0}
        posterity.fit(posterior, (x, y), optimizer=optimizer, graph=graph, **how)
        trained.append(torch.cat([p.detach().flatten() for p in posterior.parameters()]))
    assert not [warning for warning in recwarn if "CUDA graph" in str(warning.message)]
    torch.testing.assert_close(*trained, rtol=1e-3, atol=1e-3)


def test_members_on_adversarial_inputs_are_captured(recwarn):
    posterior = posterity.DeepEnsemble(seeded(mlp), 3, adversarial=0.1, seed=0)
    x, y = torch.randn(64, 5), torch.arange(64) % 3
    posterity.fit(posterior, (x, y), epochs=3, batch_size=16, graph=True, progress=False)
    assert posterior.vectorised
    assert not [warning for warning in recwarn if "CUDA graph" in str(warning.message)]


@pytest.mark.parametrize("adversarial", [None, 0.1])
def test_members_in_branches_of_a_graph_are_those_of_one_by_one(recwarn, monkeypatch, adversarial):
    """On streams that wait for each other too little, numbers would differ, or from run to run.

    In float64: in float32 they do so by rounding too, since cuBLAS rounds by the streams that work beside it.
    """
    x, y = torch.randn(200, 1, 6, 6, generator=generator()), torch.arange(200) % 3
    trained, streams = [], branches.STREAMS
    for count in (1, streams, streams):
        monkeypatch.setattr(branches, "STREAMS", count)
        asked, make = set(), branches._stream
        monkeypatch.setattr(
            branches, "_stream", lambda device, index, a=asked, m=make: a.add(index) or m(device, index)
        )
        posterior = posterity.DeepEnsemble(seeded(ConvNet).double(), 5, adversarial=adversarial, seed=0)
        posterity.fit(posterior, (x, y), epochs=5, batch_size=20, seed=0, graph=True, progress=False)
        trained.append(torch.cat([p.detach().flatten() for p in posterior.state_dict().values()]))
        assert len(asked) == min(count, 5)
        monkeypatch.undo()
    assert not [warning for warning in recwarn if "CUDA graph" in str(warning.message)]
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(trained[2], trained[1], rtol=1e-6, atol=1e-6)


def test_a_step_with_coins_of_its_own_is_not_captured():
    class Coin(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * (1 + (torch.rand(()) < 0.5))

    posterior = posterity.MAP(Coin(3, 2))
    x, y = torch.randn(64, 3), torch.randint(2, (64,))
    with pytest.warns(UserWarning, match="cannot be captured"):
        posterity.fit(posterior, (x, y), epochs=3, batch_size=16, graph=True, progress=False)


def test_a_step_that_waits_for_the_device_runs_as_it_is():
    class Waiting(torch.nn.Linear):
        def forward(self, x):
            noisy = super().forward(x) + 0.01 * torch.randn(2, device=x.device)
            return noisy * (1 + (float(noisy.detach().sum()) > 0))

    x, y = torch.randn(64, 3), torch.randint(2, (64,))
    with pytest.warns(UserWarning, match="cannot be captured"):
        posterity.fit(posterity.MAP(Waiting(3, 2)), (x, y), epochs=3, batch_size=16, graph=True, progress=False)
    assert torch.randn(2, device="cuda").isfinite().all()


def test_the_nearest_neighbour_divergence_is_captured(recwarn):
    posterior = posterity.BayesByHypernet(seeded(mlp), divergence="nearest", centre=False, jitter=0.0, seed=0)
    x, y = torch.randn(64, 5), torch.arange(64) % 3
    posterity.fit(posterior, (x, y), epochs=3, batch_size=16, graph=True, progress=False)
    assert not [warning for warning in recwarn if "CUDA graph" in str(warning.message)]


def test_predictions_on_a_device_are_summarised():
    posterior = posterity.IBNN(seeded(mlp), seed=0).cuda()
    x, y = torch.randn(40, 5).cuda(), (torch.arange(40) % 3).cuda()
    posterity.evaluation.summarise(posterity.predict(posterior, x, 4), y)


def works_still():
    """No kernel has asserted: after one, no call of CUDA succeeds in this process."""
    torch.cuda.synchronize()
    return bool(torch.ones(3, device="cuda").sum() == 3)


@pytest.mark.parametrize("given", ["pair on the device", "pair", "dataset", "loader"])
def test_a_label_out_of_range_is_found_before_the_device_meets_it(given):
    x, y = torch.randn(64, 5), torch.arange(64) % 3
    y[50] = 3
    data = {
        "pair on the device": (x.cuda(), y.cuda()),
        "pair": (x, y),
        "dataset": TensorDataset(x, y),
        "loader": DataLoader(TensorDataset(x, y), 16),
    }[given]
    posterior = posterity.MAP(seeded(mlp))
    with pytest.raises(posterity.Error, match=r"y holds the class 3, but .* 3 classes"):
        posterity.fit(posterior, data, epochs=2, batch_size=16, seed=0, progress=False)
    assert all(bool(p.isfinite().all()) for p in posterior.parameters())
    with pytest.raises(posterity.Error, match="y holds the class 3"):
        posterior.loss(x.cuda(), y.cuda(), size=64)
    with pytest.raises(posterity.Error, match="y holds the class 3"):
        posterity.predict(posterior, x.cuda()).log_prob(y.cuda())
    assert works_still()


@pytest.mark.parametrize("way", ["graph", "compile"])
def test_a_label_out_of_range_in_a_recorded_step_stops_the_run_and_not_the_device(way):
    x, y = torch.randn(256, 5), torch.arange(256) % 3
    order = torch.randperm(256, generator=torch.Generator().manual_seed(posterity.loading.numpy_seed(0, 1, 0)))
    y[order[200]] = 7  # its batch comes after the step is recorded
    with pytest.raises(posterity.Error, match=r"y holds the class 7|NaN, huge values or unknown labels"):
        posterity.fit(
            posterity.MAP(seeded(mlp)), (x, y), epochs=2, batch_size=16, seed=0, progress=False, **{way: True}
        )
    assert works_still()


@pytest.mark.parametrize("name", METHODS)
def test_a_token_out_of_range_is_found_before_the_device_meets_it(name):
    make = lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3))  # noqa: E731
    x, y = torch.randint(9, (40, 3), generator=generator()), torch.arange(40) % 3
    wrong = x.clone()
    wrong[33, 1] = 9
    posterior = METHODS[name](seeded(make), seed=0)
    with pytest.raises(posterity.Error, match="out of range"):
        posterity.fit(posterior, (wrong, y), epochs=2, batch_size=8, seed=0, progress=False)
    posterity.fit(posterior, (x, y), epochs=2, batch_size=8, seed=0, progress=False)
    with pytest.raises(posterity.Error, match="out of range"):
        posterity.predict(posterior, wrong, 4, seed=0)
    assert posterity.predict(posterior, x, 4, seed=0).probs.isfinite().all()
    assert works_still()


class Messages(nn.Module):
    """Classes of nodes from themselves and from those that an edge leads to them from."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3)

    def forward(self, nodes, edges):
        hidden = torch.relu(self.first(nodes))
        source, target = edges
        return self.last(self.drop(hidden.index_add(0, target, hidden[source])))


@pytest.mark.parametrize("name", METHODS)
def test_a_graph_of_edges_does_there_what_it_does_on_a_processor(name):
    """Networks are tried on two and three rows, for which the numbers of the nodes are out of range."""
    x = torch.randn(30, 4, generator=generator()), torch.randint(30, (2, 80), generator=generator())
    loader = DataLoader([(x, torch.arange(30) % 3)], batch_size=None)
    found = []
    for device in ("cpu", "cuda"):
        posterior = METHODS[name](seeded(Messages), seed=0)
        try:
            posterity.fit(posterior, loader, size=30, epochs=3, seed=0, device=device, progress=False)
            found.append(posterity.predict(posterior, x, 4, seed=0).probs.shape)
        except posterity.Error as error:
            found.append(str(error))
    assert found[1] == found[0]
    assert works_still()


def test_nan_in_the_data_is_named_however_late_it_is_found():
    x, y = torch.randn(64, 5), torch.arange(64) % 3
    x[40, 2] = math.nan
    with pytest.raises(posterity.Error, match="NaN"):
        posterity.fit(posterity.IBNN(seeded(mlp), seed=0), (x, y), epochs=3, batch_size=8, seed=0, progress=False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.int32])
def test_labels_of_any_whole_type_are_taken(dtype):
    x, y = torch.randn(40, 5), (torch.arange(40) % 3).to(dtype)
    assert posterity.fit(posterity.MAP(seeded(mlp)), (x, y), epochs=1, progress=False)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(posterity.Error, match="no cuda:99 here"):
        posterity.fit(posterity.MAP(seeded(mlp)), (torch.randn(4, 5), torch.arange(4) % 3), device="cuda:99")
