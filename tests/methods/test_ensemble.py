"""Deep ensembles against what they must be: MAP, several times."""

import copy

import pytest
import torch
from scipy import optimize, stats
from torch import nn

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity.methods import ensemble
from posterity.methods.ensemble import DeepEnsemble
from posterity.methods.map import MAP


class Rooted(nn.Module):
    """A network whose root has an initialisation of its own, a parameter that no module draws, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.bare = nn.Parameter(3 + 0.5 * torch.randn(40, 50))
        self.constant = nn.Parameter(torch.zeros(3))
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.layer.weight, mean=100.0)

    def forward(self, x):
        return self.normed(self.layer(x)) + self.frozen + self.bare.mean() + self.constant.sum()


def test_members_are_fresh_and_the_given_network_stays_as_it_was():
    network = seeded(Rooted)
    before = copy.deepcopy(network.state_dict())
    posterior = DeepEnsemble(network, 3, seed=0)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    networks = [network, *(posterior.member(m) for m in range(3))]
    for a, first in enumerate(networks):
        for second in networks[a + 1 :]:
            for name in ("layer.weight", "layer.bias", "normed.parametrizations.weight.original1", "bare"):
                assert not torch.equal(first.get_parameter(name), second.get_parameter(name)), name
            assert torch.equal(first.frozen, second.frozen)
            assert torch.equal(first.constant, second.constant)


def test_the_roots_own_initialisation_comes_last():
    posterior = DeepEnsemble(seeded(Rooted), 2, seed=0)
    assert all(float(posterior.member(m).layer.weight.detach().mean()) > 90 for m in range(2))
    resnet = DeepEnsemble(posterity.networks.create("resnet", depth=8), 1, seed=0).member(0)
    expected = (2 / (9 * 64)) ** 0.5
    assert float(resnet.layer3[0].conv2.weight.detach().std()) == pytest.approx(expected, rel=0.02)


def test_a_parameter_that_no_module_draws_keeps_its_mean_and_spread():
    network = seeded(Rooted)
    posterior = DeepEnsemble(network, 2, seed=0)
    for m in range(2):
        bare = posterior.member(m).bare.detach()
        error = 0.5 / 2000**0.5
        assert float(bare.mean()) == pytest.approx(float(network.bare.detach().mean()), abs=5 * error)
        assert float(bare.std()) == pytest.approx(float(network.bare.detach().std()), abs=5 * error / 2**0.5)
    reasons = {entry.name: entry.reason for entry in posterior.describe()}
    assert "normal distribution" in reasons["bare"]
    assert "as its module does" in reasons["layer.weight"]
    assert "constant" in reasons["constant"]
    assert posterior.describe().fixed == {"frozen": "frozen"}


@pytest.mark.parametrize("make", [mlp, ConvNet])
def test_a_member_is_what_map_makes_of_the_same_initialisation(make):
    shape = (5,) if make is mlp else (1, 6, 6)
    x, y = torch.randn(40, *shape, generator=generator()), torch.arange(40) % 3
    posterior = DeepEnsemble(seeded(make), 3, seed=0)
    alone = [MAP(posterior.member(m)) for m in range(3)]
    for each in (posterior, *alone):
        posterity.fit(each, (x, y), epochs=4, batch_size=16, lr=0.01, seed=1, device="cpu", progress=False)
    for m, single in enumerate(alone):
        state = posterior.member(m).state_dict()
        for name, value in single.network.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(alone[0].network.state_dict()[name], alone[1].network.state_dict()[name], atol=1e-2)


def test_together_equals_one_by_one(monkeypatch):
    x, y = torch.randn(40, 5, generator=generator()), torch.arange(40) % 3
    runs = []
    for most in (100_000, 0):
        monkeypatch.setitem(ensemble.TOGETHER, "cpu", most)
        posterior = DeepEnsemble(seeded(mlp), 4, seed=0)
        assert ensemble.together(posterior.network, posterior.weights.size) == (most > 0)
        posterity.fit(posterior, (x, y), epochs=4, batch_size=16, lr=0.01, seed=1, device="cpu", progress=False)
        runs.append((posterior.flat.detach(), posterior.draw(4)(x)))
    for a, b in zip(*runs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_linear_members_agree_on_the_least_squares_solution():
    g = generator(3)
    x = torch.randn(64, 3, generator=g)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3 * torch.randn(64, 1, generator=g)
    posterior = DeepEnsemble(nn.Linear(3, 1), 4, seed=0)
    likelihood = posterity.Gaussian(std=0.3)
    posterior.likelihood = likelihood
    start = posterity.predict(posterior, x)
    posterity.fit(
        posterior,
        (x, y),
        likelihood,
        epochs=300,
        batch_size=64,
        lr=0.05,
        weight_decay=0.0,
        seed=0,
        device="cpu",
        progress=False,
    )
    exact = torch.linalg.lstsq(torch.cat([x, torch.ones(64, 1)], 1), y).solution
    for m in range(4):
        member = posterior.member(m)
        torch.testing.assert_close(torch.cat([member.weight[0], member.bias]), exact[:, 0], rtol=0, atol=1e-3)
    assert float(posterity.predict(posterior, x).epistemic.max()) < 1e-5 * float(start.epistemic.max())


def test_a_heteroscedastic_ensemble_predicts_a_mixture():
    x = torch.randn(5, 4, generator=generator())
    posterior = DeepEnsemble(seeded(lambda: mlp(4, 2)), 3, seed=0)
    posterior.likelihood = posterity.Gaussian(heteroscedastic=True)
    prediction = posterity.predict(posterior, x)
    outputs = torch.stack([posterior.member(m)(x) for m in range(3)]).detach()
    mean, std = outputs[..., :1], outputs[..., 1:].exp()
    torch.testing.assert_close(prediction.mean, mean.mean(0))
    total = (std**2 + mean**2).mean(0) - mean.mean(0) ** 2
    torch.testing.assert_close(prediction.total, total)
    torch.testing.assert_close(prediction.std, total.sqrt())
    for row in range(5):
        means, stds = mean[:, row, 0].double().numpy(), std[:, row, 0].double().numpy()

        def below(q, means=means, stds=stds):
            return stats.norm.cdf(q, means, stds).mean() - 0.9

        assert float(prediction.quantile(0.9)[row, 0]) == pytest.approx(optimize.brentq(below, -50, 50), abs=1e-4)


def test_draws_are_spread_over_members_and_each_is_computed_once():
    posterior = DeepEnsemble(seeded(mlp), 4, seed=0)
    x = torch.randn(6, 5, generator=generator())
    each = torch.stack([posterior.member(m)(x) for m in range(4)]).detach()

    def times(outputs):
        return [sum(torch.allclose(out, one, atol=1e-6) for out in outputs) for one in each]

    assert posterior.draws == 4
    assert times(posterior.draw(posterior.draws)(x)) == [1, 1, 1, 1]
    functions = posterior.draw(10, generator())
    assert len(functions) == len(functions(x)) == 10
    assert sorted(times(functions(x))) == [2, 2, 3, 3]
    assert functions.count == 4
    firsts = {tuple(times(posterior.draw(1, generator(seed))(x))) for seed in range(40)}
    assert len(firsts) == 4
    functions.rows_at_once = 7
    assert sorted(times(functions(x))) == [2, 2, 3, 3]
    parts = list(functions.stream(x))
    assert len(parts) == 4
    torch.testing.assert_close(torch.cat(parts), functions(x))


def test_a_network_runs_together_where_it_is_small_and_dense():
    assert ensemble.together(mlp(), 1)
    assert ensemble.together(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), 1)
    assert not ensemble.together(nn.Conv2d(1, 1, 1), 1)
    assert not ensemble.together(nn.GRU(1, 1), 1)


@pytest.mark.parametrize("adversarial", [None, 0.1])
def test_members_that_run_together_keep_the_batch_statistics_that_each_has_alone(adversarial):
    def network():
        return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    x, y = torch.randn(8, 5, generator=generator()), torch.arange(8) % 3
    vectorised, alone = (DeepEnsemble(seeded(network), 3, adversarial=adversarial, seed=0) for _ in range(2))
    alone.vectorised = False
    for posterior in (vectorised, alone):
        for _ in range(3):
            posterior.zero_grad()
            posterior.train().loss(x, y, size=8).backward()
            posterior.eval().loss(x, y, size=8)
    assert vectorised.vectorised
    assert vectorised.buffer_names
    torch.testing.assert_close(dict(vectorised.named_buffers()), dict(alone.named_buffers()))
    torch.testing.assert_close(vectorised.flat.grad, alone.flat.grad)
    assert float(vectorised.get_buffer("buffer2")[0]) == (6 if adversarial else 3)


def test_a_network_that_fails_together_counts_its_batches_once():
    class Waiting(nn.Module):
        def forward(self, x):
            return x * (1 + (float(x.detach().sum()) > 0))  # nothing that vmap can do

    network = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), Waiting(), nn.Linear(8, 3))
    posterior = DeepEnsemble(network, 2, seed=0).train()
    posterior.loss(torch.randn(8, 5, generator=generator()), torch.arange(8) % 3, size=8)
    assert not posterior.vectorised
    assert posterior.get_buffer("buffer2").tolist() == [1, 1]


def test_some_members_with_batch_statistics_keep_their_own():
    network = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    posterior = DeepEnsemble(network, 3, samples=1, seed=0).train()
    posterior.loss(torch.randn(8, 5, generator=generator()), torch.arange(8) % 3, size=8, generator=generator())
    assert sorted(posterior.get_buffer("buffer2").tolist()) == [0, 0, 1]
    assert posterior.vectorised  # for when all take part


def test_one_function_of_a_network_with_buffers_is_one_member():
    posterior, x = DeepEnsemble(seeded(ConvNet), 3, seed=0).eval(), torch.randn(4, 1, 6, 6, generator=generator())
    drawn = posterior.draw(1, generator())(x)[0]
    assert sum(torch.allclose(drawn, posterior.member(m).eval()(x), atol=1e-6) for m in range(3)) == 1


def test_buffers_are_described_as_no_part_of_the_posterior():
    fixed = DeepEnsemble(seeded(ConvNet), 2, seed=0).describe().fixed
    assert {name for name, _ in ConvNet().named_buffers()} <= set(fixed)


def test_members_without_convolutions_keep_batch_statistics_of_their_own():
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))

    posterior, x = DeepEnsemble(seeded(make), 3, seed=0).train(), torch.randn(8, 5, generator=generator())
    members = [posterior.member(m).train() for m in range(3)]
    posterior(x)
    for m, member in enumerate(members):
        member(x)
        torch.testing.assert_close(posterior.member(m)[1].running_mean, member[1].running_mean)


def test_each_member_keeps_batch_statistics_of_its_own():
    posterior = DeepEnsemble(seeded(ConvNet), 3, seed=0)
    x, y = torch.randn(8, 1, 6, 6, generator=generator()), torch.arange(8) % 3
    posterior.train().loss(x, y, size=8).backward()
    for m in range(3):
        member = DeepEnsemble(seeded(ConvNet), 3, seed=0).member(m).train()
        member(x)
        torch.testing.assert_close(posterior.member(m).norm.running_mean, member.norm.running_mean)
    assert posterior.buffer2.tolist() == [1, 1, 1]
    assert torch.equal(posterior.network.norm.running_mean, torch.zeros(4))
    posterior.eval().loss(x, y, size=8)
    assert posterior.buffer2.tolist() == [1, 1, 1]
    for m, out in enumerate(posterior.draw(3)(x)):
        torch.testing.assert_close(out, posterior.member(m).eval()(x))


def test_the_loss_is_the_sum_over_members():
    posterior = DeepEnsemble(seeded(mlp), 3, seed=0)
    x, y = torch.randn(8, 5, generator=generator()), torch.arange(8) % 3
    losses = [nn.functional.cross_entropy(posterior.member(m)(x), y) for m in range(3)]
    torch.testing.assert_close(posterior.loss(x, y, size=8), sum(losses))
    weight = torch.rand(8, generator=generator())
    each = [nn.functional.cross_entropy(posterior.member(m)(x), y, reduction="none") for m in range(3)]
    torch.testing.assert_close(posterior.loss(x, y, size=8, weight=weight), sum((e * weight).mean() for e in each))


def test_with_fewer_samples_than_members_each_step_takes_other_members():
    posterior = DeepEnsemble(seeded(mlp), 3, samples=1, seed=0)
    x, y = torch.randn(8, 5, generator=generator()), torch.arange(8) % 3
    losses = [float(3 * nn.functional.cross_entropy(posterior.member(m)(x), y).detach()) for m in range(3)]
    seen = {round(float(posterior.loss(x, y, size=8, generator=generator(seed)).detach()), 4) for seed in range(30)}
    assert seen == {round(loss, 4) for loss in losses}


@pytest.mark.parametrize("make", [mlp, ConvNet])
def test_adversarial_training_is_half_on_each_members_own_worst_step(make):
    shape, step = ((5,) if make is mlp else (1, 6, 6)), 0.1
    x, y = torch.randn(8, *shape, generator=generator()), torch.arange(8) % 3
    posterior = DeepEnsemble(seeded(make).eval(), 2, adversarial=step, seed=0).eval()
    total = torch.zeros(())
    for m in range(2):
        member, moved = posterior.member(m).eval(), x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(nn.functional.cross_entropy(member(moved), y), moved)
        clean, worst = (nn.functional.cross_entropy(member(v), y) for v in (x, x + step * slope.sign()))
        assert bool(worst > clean)
        total = total + (clean + worst) / 2
    loss = posterior.loss(x, y, size=8)
    torch.testing.assert_close(loss, total)
    assert posterior.vectorised
    loss.backward()
    together, posterior.flat.grad, posterior.vectorised = posterior.flat.grad, None, False
    posterior.loss(x, y, size=8).backward()
    torch.testing.assert_close(together, posterior.flat.grad)  # one by one
    assert x.grad is None
    assert not x.requires_grad
    posterior.train().loss(x, y, size=8).backward()


def test_adversarial_training_leaves_inputs_without_a_slope_and_gives_them_no_gradient():
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("seen", torch.tensor([0.0, 0.0, 1.0, 1.0]))

        def forward(self, x):
            return self.layer(x * self.seen)

    posterior = DeepEnsemble(seeded(Half), 2, adversarial=0.1, seed=0)
    x = torch.randn(8, 4, generator=generator()).requires_grad_()
    loss = posterior.loss(x, torch.arange(8) % 3, size=8)
    loss.backward()
    assert bool(loss.isfinite())
    assert x.grad is None


def test_adversarial_training_refuses_inputs_that_cannot_move():
    posterior = DeepEnsemble(nn.Sequential(nn.Embedding(5, 3)), 2, adversarial=0.1, seed=0)
    with pytest.raises(posterity.Error, match="floating"):
        posterior.loss(torch.tensor([0, 1]), torch.tensor([0, 1]), size=2)
    with pytest.raises(posterity.Error, match="adversarial"):
        DeepEnsemble(mlp(), adversarial=-1.0)


def test_frozen_layers_are_shared_with_their_statistics():
    network = seeded(ConvNet)
    network.norm.running_mean.fill_(2.0)
    network.norm.requires_grad_(False)
    posterior = DeepEnsemble(network, 2, seed=0)
    assert torch.equal(posterior.member(1).norm.running_mean, torch.full((4,), 2.0))
    assert not posterior.member(1).norm.weight.requires_grad
    network.norm.requires_grad_(True)  # one that is trained starts afresh, statistics too
    assert torch.equal(DeepEnsemble(network, 2, seed=0).member(1).norm.running_mean, torch.zeros(4))
    assert "norm.weight" not in posterior.weights.names
    with pytest.raises(posterity.Error, match="requires a gradient"):
        DeepEnsemble(seeded(mlp).requires_grad_(False))


def test_a_frozen_module_keeps_its_own_buffers_and_not_those_of_its_children():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.scale = nn.BatchNorm1d(3), nn.Parameter(torch.ones(3), requires_grad=False)
            self.register_buffer("shift", torch.full((3,), 5.0))

        def reset_parameters(self) -> None:
            self.shift.zero_()

        def forward(self, x):
            return self.norm(x * self.scale + self.shift)

    network = Outer()
    network.norm.running_mean.fill_(2.0)
    member = DeepEnsemble(network, 2, seed=0).member(0)
    assert torch.equal(member.shift, torch.full((3,), 5.0))
    assert torch.equal(member.norm.running_mean, torch.zeros(3))


def test_a_reset_is_called_if_it_needs_no_arguments():
    class Layer(nn.Linear):
        def reset_parameters(self, value: float = 7.0) -> None:
            nn.init.constant_(self.weight, value)

    class Other(nn.Linear):
        def reset_parameters(self, *values: float) -> None:
            nn.init.constant_(self.weight, 5.0)

    class Needy(nn.Linear):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.in_features = self.out_features = 2
            self.weight, self.bias = nn.Parameter(torch.eye(2)), nn.Parameter(torch.zeros(2))

        def reset_parameters(self, value: float) -> None:
            raise AssertionError

    network = nn.Sequential(Layer(2, 2), Other(2, 2), Needy())
    with torch.no_grad():
        for layer in network[:2]:
            layer.weight.copy_(torch.eye(2))
    member = DeepEnsemble(network, 1, seed=0).member(0)
    assert torch.equal(member[0].weight, torch.full((2, 2), 7.0))
    assert torch.equal(member[1].weight, torch.full((2, 2), 5.0))


def test_tied_weights_stay_tied_in_every_member():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.relu(self.a(x)))

    posterior, x = DeepEnsemble(seeded(Tied), 2, seed=0), torch.randn(3, 4)
    assert posterior.weights.size == 16 + 8
    for m, out in enumerate(posterior.draw(2)(x)):
        member = posterior.member(m)
        assert member.a.weight is member.b.weight
        torch.testing.assert_close(out, member(x))


def test_a_trained_ensemble_is_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.setitem(posterity.storage.TABLE, "ensemble", DeepEnsemble)
    posterior = DeepEnsemble(seeded(ConvNet), 3, seed=0)
    x, y = torch.randn(20, 1, 6, 6, generator=generator()), torch.arange(20) % 3
    posterity.fit(posterior, (x, y), epochs=2, lr=0.01, seed=0, device="cpu", progress=False)
    loaded = posterity.load(posterity.save(posterior, tmp_path / "model"), seeded(ConvNet, 5))
    assert loaded.members == 3
    torch.testing.assert_close(loaded.draw(3)(x), posterior.draw(3)(x), rtol=0, atol=0)


def test_the_loss_compiles():
    x, y = torch.randn(20, 5, generator=generator()), torch.arange(20) % 3
    posterior = DeepEnsemble(seeded(mlp), 3, seed=0)
    loss = torch.compile(posterior.loss, backend="aot_eager")
    torch.testing.assert_close(loss(x, y, size=20), posterior.loss(x, y, size=20))


def test_the_config_tells_which_layers_differ():
    assert DeepEnsemble(seeded(mlp), 2, seed=0).config()["layers"] is None
    posterior = DeepEnsemble(seeded(mlp), 2, layers="last", seed=0)
    assert posterior.config()["layers"] == posterior.weights.names == ["2.weight", "2.bias"]


class Centred(nn.Module):
    """Less a running mean, which it replaces (a plain assignment) or changes in place."""

    def __init__(self, place: bool, images: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3) if images else nn.Linear(5, 4)  # convolutions run one by one on a processor
        self.last = nn.LazyLinear(3)
        self.place = place
        self.register_buffer("mean", torch.zeros(4, 1, 1) if images else torch.zeros(4))

    def forward(self, x):
        h = self.first(x)
        if self.training:
            now = 0.9 * self.mean + 0.1 * h.detach().mean([d for d in range(h.dim()) if d != 1]).view_as(self.mean)
            if self.place:
                self.mean.copy_(now)
            else:
                self.mean = now
        return self.last((h - self.mean).flatten(1))


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("place", [False, True])
@pytest.mark.parametrize("adversarial", [None, 0.1])
def test_members_keep_buffers_that_are_replaced_and_those_that_are_changed(images, place, adversarial):
    x = torch.randn(6, 1, 5, 5, generator=generator()) if images else torch.randn(6, 5, generator=generator())
    network = Centred(place, images)
    network(x)
    posterior = DeepEnsemble(network, members=3, adversarial=adversarial, seed=0)
    posterior.train()
    networks = [posterior.member(m).train() for m in range(3)]
    y = torch.arange(6) % 3
    posterior.loss(x, y, size=6).backward()
    for m, alone in enumerate(networks):
        moved = x.clone().requires_grad_()
        nn.functional.cross_entropy(alone(moved), y).backward()
        if adversarial is not None:
            alone(x + adversarial * moved.grad.sign())
        torch.testing.assert_close(posterior.buffer0[m], alone.mean)
        assert bool((posterior.buffer0[m] != 0).all())
    assert posterior.vectorised


def test_a_mistake_does_not_end_vectorising():
    posterior = DeepEnsemble(seeded(mlp), members=2, seed=0)
    with pytest.raises(RuntimeError):
        posterior(torch.randn(4, 77))
    assert posterior.vectorised


def test_an_input_without_a_say_stays_where_it_is():
    class Masked(nn.Linear):
        def forward(self, x, mask):
            return super().forward(x)

    x, mask = torch.randn(4, 5, generator=generator()), torch.ones(4)
    posterior = DeepEnsemble(seeded(lambda: Masked(5, 3)), members=2, adversarial=0.1, seed=0)
    alone = DeepEnsemble(seeded(lambda: nn.Linear(5, 3)), members=2, adversarial=0.1, seed=0)
    y = torch.arange(4) % 3
    torch.testing.assert_close(posterior.loss((x, mask), y, size=4), alone.loss(x, y, size=4))


def test_an_ensemble_clips_each_member_alone():
    """Rows of one member are large, so that its gradient is clipped and the others' are as before."""
    x, y = torch.randn(40, 5, generator=generator()), torch.arange(40) % 3
    posterior = DeepEnsemble(seeded(mlp), 3, seed=0)
    with torch.no_grad():
        posterior.flat[1] *= 30
    alone = [MAP(posterior.member(m)) for m in range(3)]
    for each in (posterior, *alone):
        arguments = {"epochs": 4, "batch_size": 16, "optimizer": "sgd", "lr": 0.1, "clip": 0.5}
        posterity.fit(each, (x, y), seed=1, progress=False, **arguments)
    for m, single in enumerate(alone):
        state = posterior.member(m).state_dict()
        for name, value in single.network.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)


def test_members_that_are_the_same_clip_what_they_share_as_one_alone():
    """The noise of the likelihood and the layers that are left out have a gradient of all members."""
    x = torch.randn(40, 5, generator=generator())
    y = 5 * x[:, :1]
    posterior = DeepEnsemble(seeded(lambda: mlp(5, 1)), 3, layers="first", seed=0)
    with torch.no_grad():
        posterior.flat[:] = posterior.flat[0]
    single = MAP(posterior.member(0))
    ends = []
    for each in (posterior, single):
        each.likelihood = posterity.Gaussian()
        loss = each.loss(x, y, size=40)
        loss.backward()
        each.clip_gradients(0.1)
        ends.append([p.grad for p in (*each.network[2].parameters(), *each.likelihood.parameters())])
    for shared, own in zip(*ends, strict=True):
        torch.testing.assert_close(shared / 3, own, rtol=1e-4, atol=1e-6)
    total = nn.utils.get_total_norm([p.grad for p in single.parameters()])
    assert float(total) == pytest.approx(0.1, rel=1e-4)


def test_the_history_of_an_ensemble_is_of_one_member():
    """At a rate of zero its negative log-likelihood and loss are the mean over those of its members."""
    x, y = torch.randn(40, 5, generator=generator()), torch.arange(40) % 3
    posterior = DeepEnsemble(seeded(mlp), 3, seed=0)
    single = [MAP(posterior.member(m)) for m in range(3)]
    found = [
        posterity.fit(each, (x, y), epochs=1, lr=0.0, weight_decay=0.0, seed=0, progress=False)[0]
        for each in (posterior, *single)
    ]
    for name in ("nll", "loss"):
        assert found[0][name] == pytest.approx(sum(record[name] for record in found[1:]) / 3, rel=1e-5)
