"""Likelihoods against torch's own losses and distributions, and the shapes that must not broadcast in silence."""

import math

import pytest
import torch
from torch.nn import functional as F

import posterity
from common import generator

S, B, C = 3, 6, 4


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(S, B, *shape, generator=generator())


def test_categorical_meets_cross_entropy():
    out, y = logits(C), torch.arange(B) % C
    expected = torch.stack([-F.cross_entropy(o, y, reduction="none") for o in out])
    torch.testing.assert_close(posterity.Categorical().log_prob(out, y), expected)


def test_categorical_sums_over_the_positions_of_a_datum():
    out, y = logits(C, 2, 3), torch.randint(C, (B, 2, 3), generator=generator())
    expected = torch.stack([-F.cross_entropy(o, y, reduction="none").sum((1, 2)) for o in out])
    torch.testing.assert_close(posterity.Categorical().log_prob(out, y), expected)


def test_class_weights_multiply_their_class():
    out, y, weight = logits(C), torch.arange(B) % C, torch.tensor([0.5, 1.0, 2.0, 0.0])
    plain = posterity.Categorical().log_prob(out, y)
    torch.testing.assert_close(posterity.Categorical(weight=weight).log_prob(out, y), plain * weight[y])


def test_an_ignored_label_contributes_nothing():
    out, y = logits(C, 2), torch.arange(2 * B).view(B, 2) % C
    y[0] = -100
    y[1, 0] = -100
    log_prob = posterity.Categorical().log_prob(out, y)
    torch.testing.assert_close(log_prob[:, 0], torch.zeros(S))
    torch.testing.assert_close(log_prob[:, 1], out[:, 1].log_softmax(1)[:, y[1, 1], 1])
    other = posterity.Categorical(ignore=255)
    torch.testing.assert_close(other.log_prob(out, torch.where(y == -100, 255, y)), log_prob)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3)])
def test_bernoulli_meets_binary_cross_entropy(shape):
    out, y = logits(*shape), torch.rand(B, *shape, generator=generator()).round()
    expected = torch.stack(
        [-F.binary_cross_entropy_with_logits(o, y, reduction="none").reshape(B, -1).sum(1) for o in out]
    )
    torch.testing.assert_close(posterity.Bernoulli().log_prob(out, y), expected)


def test_gaussian_meets_the_normal_density():
    out, y = logits(2), torch.randn(B, 2)
    for std in (0.3, [0.3, 0.7]):
        expected = torch.distributions.Normal(out, torch.tensor(std)).log_prob(y).sum(2)
        torch.testing.assert_close(posterity.Gaussian(std=std).log_prob(out, y), expected)
    learned = posterity.Gaussian(initial=0.5)
    torch.testing.assert_close(learned.log_prob(out, y), torch.distributions.Normal(out, 0.5).log_prob(y).sum(2))
    assert [p.requires_grad for p in learned.parameters()] == [True]
    assert not list(posterity.Gaussian(std=0.1).parameters())


@pytest.mark.parametrize("size", [2, 3])
def test_heteroscedastic_takes_the_second_half_as_log_deviations(size):
    out, y = logits(2 * size), torch.randn(B, size)
    expected = torch.distributions.Normal(out[:, :, :size], out[:, :, size:].exp()).log_prob(y).sum(2)
    torch.testing.assert_close(posterity.Gaussian(heteroscedastic=True).log_prob(out, y), expected)


def test_heteroscedastic_deviations_stay_within_bounds_and_outputs_come_in_pairs():
    likelihood = posterity.Gaussian(heteroscedastic=True)
    _, log_std = likelihood.moments(torch.tensor([[[0.0, -1000.0], [0.0, 1000.0], [0.0, 15.0]]]))
    assert log_std.flatten().tolist() == [-10.0, 20.0, 15.0]
    for shape in ((S, B, 3), (S, B)):
        with pytest.raises(posterity.Error, match="even number"):
            likelihood.moments(torch.zeros(shape))


@pytest.mark.parametrize(("log_std", "back"), [(-12.0, -1.0), (25.0, 1.0)])
def test_a_deviation_beyond_its_bounds_comes_back(log_std, back):
    """The gradient of the loss is that at the bound."""
    outputs = torch.tensor([[[0.0, log_std]]], requires_grad=True)
    likelihood = posterity.Gaussian(heteroscedastic=True)
    (slope,) = torch.autograd.grad(-likelihood.log_prob(outputs, torch.tensor([[0.1]])).sum(), outputs)
    assert float(slope[0, 0, 1]) * back > 0.5
    infinite = torch.tensor([[[0.0, math.inf]]])
    assert float(likelihood.moments(infinite)[1]) == 20.0


@pytest.mark.parametrize(
    ("likelihood", "config"),
    [
        (posterity.Gaussian(), {"std": None, "heteroscedastic": False}),
        (posterity.Gaussian(heteroscedastic=True), {"std": None, "heteroscedastic": True}),
        (posterity.Gaussian(std=[0.5, 2.0]), {"std": pytest.approx([0.5, 2.0]), "heteroscedastic": False}),
        (posterity.Categorical([1.0, 2.0], ignore=7), {"weight": [1.0, 2.0], "ignore": 7}),
        (posterity.Bernoulli(), {}),
    ],
)
def test_the_config_holds_the_arguments(likelihood, config):
    assert likelihood.config() == config
    again = type(likelihood)(**likelihood.config())
    assert again.state_dict().keys() == likelihood.state_dict().keys()


def test_a_learned_noise_starts_at_one():
    assert float(posterity.Gaussian().log_std.detach()) == 0.0


@pytest.mark.parametrize("likelihood", [posterity.Categorical(), posterity.Bernoulli()])
def test_the_values_of_answers_are_not_looked_at_in_a_compiled_graph(likelihood):
    out, y = logits(C), torch.arange(B) % C
    if isinstance(likelihood, posterity.Bernoulli):
        y = out[0].sigmoid()
    compiled = torch.compile(likelihood.log_prob, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(out, y), likelihood.log_prob(out, y))


@pytest.mark.parametrize("batch", [1, 6])
def test_one_output_meets_answers_with_and_without_that_axis(batch):
    out, y = torch.randn(S, batch, 1), torch.randn(batch)
    for likelihood, answers in ((posterity.Gaussian(std=1.0), y), (posterity.Bernoulli(), (y > 0).float())):
        flat, column = likelihood.log_prob(out, answers), likelihood.log_prob(out, answers[:, None])
        assert flat.shape == (S, batch)
        torch.testing.assert_close(flat, column)
        torch.testing.assert_close(likelihood.log_prob(out.squeeze(2), answers), flat)
        torch.testing.assert_close(likelihood.log_prob(out.squeeze(2), answers[:, None]), flat)
    pair = torch.randn(S, batch, 2)
    assert posterity.Gaussian(heteroscedastic=True).log_prob(pair, y).shape == (S, batch)


def test_half_precision_is_widened():
    out, y = logits(C).to(torch.bfloat16), torch.arange(B) % C
    assert posterity.Categorical().log_prob(out, y).dtype == torch.float32
    assert posterity.Gaussian().log_prob(out, torch.zeros(B, C)).dtype == torch.float32
    assert posterity.Gaussian().log_prob(out.double(), torch.zeros(B, C)).dtype == torch.float64


@pytest.mark.parametrize(
    ("likelihood", "outputs", "y"),
    [
        (posterity.Categorical(), torch.zeros(S, B, C), torch.zeros(B + 1, dtype=torch.long)),
        (posterity.Categorical(), torch.zeros(S, B, C), torch.zeros(B)),
        (posterity.Categorical(), torch.zeros(S, B, C), torch.full((B,), C)),
        (posterity.Categorical(), torch.zeros(S, B, C), torch.full((B,), -1)),
        (posterity.Categorical(), torch.zeros(S, B), torch.zeros(B, dtype=torch.long)),
        (posterity.Bernoulli(), torch.zeros(S, B), torch.full((B,), 2.0)),
        (posterity.Bernoulli(), torch.zeros(S, B, 2), torch.zeros(B)),
        (posterity.Gaussian(), torch.zeros(S, B, 2), torch.zeros(B)),
        (posterity.Gaussian(), torch.zeros(S, B, 1), torch.zeros(())),
        (posterity.Gaussian(heteroscedastic=True), torch.zeros(S, B, 3), torch.zeros(B)),
    ],
)
def test_what_does_not_fit_is_an_error(likelihood, outputs, y):
    with pytest.raises(posterity.Error):
        likelihood.log_prob(outputs, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda: posterity.Gaussian(std=0.0),
        lambda: posterity.Gaussian(std=-1.0),
        lambda: posterity.Gaussian(std=float("nan")),
        lambda: posterity.Gaussian(std=[1.0, -1.0]),
        lambda: posterity.Gaussian(std=[1.0, float("inf")]),
        lambda: posterity.Gaussian(std=1.0, heteroscedastic=True),
        lambda: posterity.Categorical(weight=[-1.0, 1.0]),
    ],
)
def test_impossible_arguments_are_an_error(make):
    with pytest.raises(posterity.Error):
        make()


def test_sample_weights_multiply_their_datum():
    network = torch.nn.Linear(2, C)
    posterior, x, y = posterity.MAP(network), torch.randn(B, 2), torch.arange(B) % C
    weight = torch.rand(B)
    expected = (F.cross_entropy(network(x), y, reduction="none") * weight).mean()
    torch.testing.assert_close(posterior.loss(x, y, size=B, weight=weight), expected)


def test_one_label_that_is_neither_yes_nor_no_is_refused():
    with pytest.raises(posterity.Error, match="0 and 1"):
        posterity.Bernoulli().log_prob(torch.zeros(1, 3, 1), torch.tensor([[0.0], [1.0], [2.0]]))
