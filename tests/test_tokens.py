"""A class for every token: all that scores, checks or stops early looks along the classes, and at the right labels."""

import copy
import math

import pytest
import torch
from torch import nn

import posterity
from common import generator
from posterity import diagnostics, evaluation
from posterity.diagnostics.checks import _constant
from posterity.diagnostics.diversity import overlap

CLASSES, TOKENS, ROWS = 5, 6, 40


class Scaled(nn.Module):
    """Outputs are the inputs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.weight * x


@pytest.fixture
def oracle():
    """Labels, and a prediction that gives 0.9 to the label of the next token."""
    y = torch.randint(CLASSES, (ROWS, TOKENS), generator=torch.Generator().manual_seed(0))
    logits = torch.full((ROWS, TOKENS, CLASSES), math.log(0.025))
    logits[:, :-1].scatter_(2, y[:, 1:, None], math.log(0.9))
    posterior = posterity.MAP(Scaled())
    posterior.likelihood = posterity.Tokens(shift=True)
    return posterity.predict(posterior, logits), y


def test_scores_of_a_language_model_are_about_the_next_token(oracle):
    prediction, y = oracle
    scores = evaluation.score(prediction, y)
    assert scores["error"] == 0
    assert scores["brier"] == pytest.approx(0.1**2 + 4 * 0.025**2, abs=1e-6)
    assert scores["ece"] == pytest.approx(0.1, abs=1e-5)
    assert scores["nll"] == pytest.approx(-5 * math.log(0.9), abs=1e-5)
    assert evaluation.temperature(prediction, y) < 1
    assert evaluation.calibrated_nll(prediction, y) < -math.log(0.9)
    assert float(evaluation.losses(prediction, y)["error"].sum()) == 0
    sets = evaluation.conformal_sets(prediction, y, 0.8, "lac").sets(prediction)[:, :, :-1]
    assert bool(sets.gather(1, y[:, None, 1:]).all())
    assert sets.sum(1).double().mean() == 1


def test_a_scaled_prediction_keeps_its_labels_in_their_places(oracle):
    prediction, y = oracle
    assert torch.allclose(evaluation.scaled(prediction, 1.0).log_prob(y), prediction.log_prob(y))


def test_a_sequence_with_nothing_to_compare_counts_in_no_mean(oracle):
    prediction, y = oracle
    y = y.clone()
    y[0, 1:] = -100  # the first label is compared with no output
    assert len(evaluation.scores.surprises(prediction, y)) == ROWS - 1


@pytest.fixture
def twins():
    """The same functions with the classes last, and along axis 1; and inputs."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    last = posterity.IBNN(network, 4, seed=0)
    last.likelihood = posterity.Tokens()
    first = posterity.IBNN(nn.Sequential(copy.deepcopy(network), Moved()), 4, seed=0)
    first.likelihood = posterity.Categorical()
    state = {name.replace("network.", "network.0."): value for name, value in last.state_dict().items()}
    first.load_state_dict(state)
    return last, first, torch.randn(20, 7, 4)


class Moved(nn.Module):
    def forward(self, x):
        return x.movedim(-1, 1)


def test_rows_stop_where_maps_of_the_same_numbers_do(twins):
    last, first, x = twins
    found = [posterity.predict(one, x, "auto", tolerance=0.05, seed=0) for one in (last, first)]
    assert torch.equal(found[0].probs, found[1].probs)
    assert torch.equal(found[0].samples, found[1].samples)


def test_functions_are_told_apart_by_their_classes(twins):
    last, first, x = twins
    numbers = [
        diagnostics.effective_number(one, x, generator=torch.Generator().manual_seed(0)) for one in (last, first)
    ]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)
    outputs = torch.randn(1, 6, 4, 3).repeat(2, 1, 1, 1)
    outputs[1] += torch.randn(6, 4, 1)  # changes no probability
    assert torch.allclose(overlap(outputs, posterity.Tokens()), torch.ones(2, 2))


def test_replicated_data_have_the_classes_of_the_model():
    shares = torch.tensor([0.8, 0.15, 0.05])
    posterior = posterity.MAP(Scaled())
    posterior.likelihood = posterity.Tokens()
    y = torch.repeat_interleave(torch.arange(3), (600 * shares).round().long())
    y = y[torch.randperm(600, generator=torch.Generator().manual_seed(0))].view(200, 3)
    x = shares.log().expand(200, 3, 3)
    check = diagnostics.predictive_check(posterior, y, x, generator=torch.Generator().manual_seed(1))
    made = diagnostics.predictive_check(posterity.predict(posterior, x), y, generator=torch.Generator().manual_seed(1))
    for found in (check, made):
        assert "does not reproduce" not in str(found)


def test_the_best_constant_answer_is_that_of_the_classes():
    y = (torch.arange(900).view(300, 3) % 9 == 0).long()
    share = float(y.double().mean())
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert _constant(posterity.Tokens(), torch.zeros(4, 300, 3, 2), y) == pytest.approx(3 * entropy)
    assert math.isfinite(_constant(posterity.Tokens(shift=True), torch.zeros(4, 300, 3, 9), y * 8))


def test_what_cannot_be_distilled_says_so(twins):
    last, _, x = twins
    with pytest.raises(posterity.Error, match="not Tokens"):
        posterity.distil(last, copy.deepcopy(last.network), x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32])
def test_labels_of_any_whole_type_can_be_shifted(dtype):
    ids = torch.randint(0, 5, (6, 4), generator=generator())
    network = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    posterior = posterity.MAP(network)
    posterity.fit(posterior, (ids, ids.to(dtype)), posterity.Tokens(shift=True), epochs=1, progress=False)
    prediction = posterity.predict(posterior, ids)
    torch.testing.assert_close(prediction.log_prob(ids.to(dtype)), prediction.log_prob(ids))
