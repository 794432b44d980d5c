"""Distillation: one pass of a student says what the teacher says, checked against teachers whose answers are known."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity
from common import ConvNet, generator, mlp, seeded
from pages import blocks
from posterity.distillation import Distilled, _spread
from posterity.lessons import aligned, distance, lesson, noisy, spread_out
from posterity.prediction import CategoricalPrediction
from posterity.streams import stream

QUICK = {"batch_size": 64, "seed": 0, "device": "cpu", "progress": False}
BRIEF = QUICK | {"epochs": 2}


class Line(posterity.Posterior):
    """f(x) = w x + b with w ~ N(1, ½²) and b ~ N(2, 0.1²): N(x + 2, x²/4 + 0.01) at every x, known exactly."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 1))
        self.likelihood = posterity.Gaussian(std=0.3)

    def draw(self, n, generator=None):
        w, b = torch.randn(2, n, generator=generator)
        weights = {"weight": (1 + w / 2).view(n, 1, 1), "bias": (2 + b / 10).view(n, 1)}
        return posterity.Functions(self.network, n, weights=weights)


def ranks(values):
    return values.flatten().argsort().argsort().double()


def spearman(a, b):
    return float(torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1])


def pupil(inputs=2, outputs=2):
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def inputs(rows=64, columns=5):
    return torch.randn(rows, columns, generator=generator(1))


@pytest.fixture(scope="module")
def rings():
    """Two rings that overlap, an IBNN that has learned them, and its student."""
    x = 1.5 * torch.randn(800, 2, generator=generator())
    y = (x.norm(dim=1) + 0.3 * torch.randn(800, generator=generator(1)) > 1.6).long()
    teacher = posterity.IBNN(seeded(lambda: nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))), seed=0)
    posterity.fit(teacher, (x, y), epochs=15, lr=1e-2, **QUICK)
    return teacher, posterity.distil(teacher, seeded(pupil), x, samples=100, epochs=50, lr=5e-3, **QUICK)


def test_a_known_gaussian_over_functions_is_recovered():
    """400 draws know the mean to 0.05 at the ends (½ · 2/√400), the spread to 3.5 % (1/√800): thrice that will do."""
    x = torch.linspace(-2, 2, 256).unsqueeze(1)
    distilled = posterity.distil(Line(), seeded(lambda: pupil(1, 1)), x, samples=400, epochs=120, lr=5e-3, **QUICK)
    prediction = posterity.predict(distilled, x, generator=generator())
    std = (x**2 / 4 + 0.01).sqrt()
    torch.testing.assert_close(prediction.mean, x + 2, rtol=0, atol=0.15)
    assert float((prediction.epistemic.sqrt() / std - 1).abs().mean()) < 0.1
    torch.testing.assert_close(prediction.aleatoric, torch.full_like(x, 0.09))
    assert spearman(prediction.epistemic, std) > 0.97


def test_the_student_of_a_single_function_has_no_epistemic_uncertainty():
    x = inputs()
    teacher = posterity.MAP(seeded(mlp))
    student = seeded(mlp, 1)
    distilled = posterity.distil(teacher, student, x, epochs=300, lr=1e-2, **QUICK)
    mine, yours = posterity.predict(distilled, x), posterity.predict(teacher, x)
    assert float(mine.epistemic.max()) < 1e-6
    torch.testing.assert_close(mine.probs, yours.probs, rtol=0, atol=0.05)


def test_a_student_ranks_inputs_as_its_teacher_does_and_predicts_as_well(rings):
    teacher, distilled = rings
    x = 1.5 * torch.randn(500, 2, generator=generator(5))
    y = (x.norm(dim=1) > 1.6).long()
    yours = posterity.predict(teacher, x, 200, generator())
    mine = posterity.predict(distilled, x, generator=generator())
    for name in ("total", "aleatoric", "epistemic"):
        assert spearman(getattr(mine, name), getattr(yours, name)) > 0.9, name
    assert float(mine.log_prob(y).mean()) == pytest.approx(float(yours.log_prob(y).mean()), rel=0.03)
    assert float(mine.epistemic.mean()) == pytest.approx(float(yours.epistemic.mean()), rel=0.2)


def test_the_network_by_itself_says_the_mean_prediction(rings):
    _, distilled = rings
    x = inputs(200, 2)
    mean = CategoricalPrediction.gather([distilled.mean()(x)], posterity.Categorical())
    torch.testing.assert_close(mean.probs, posterity.predict(distilled, x, 400, generator()).probs, rtol=0, atol=0.03)
    torch.testing.assert_close(distilled.mean()(x)[0], distilled.network(x))


def test_what_is_taught_of_classes_has_the_teachers_mean_and_information():
    g = generator()
    outputs = 2 * torch.randn(1, 40, 4, generator=g) + torch.rand(1, 40, 1, generator=g) * torch.randn(
        400, 40, 4, generator=g
    )
    said = CategoricalPrediction.gather([outputs.double()], posterity.Categorical())
    mean, spread = lesson([outputs[:100], outputs[100:]], posterity.Categorical())
    noise = spread_out(2000, 4, generator(2))
    found = CategoricalPrediction.gather([noisy(mean, spread, aligned(noise, mean), True)], posterity.Categorical())
    torch.testing.assert_close(found.probs, said.probs, rtol=0, atol=0.01)
    torch.testing.assert_close(found.epistemic, said.epistemic, rtol=0.15, atol=1e-4)


def test_what_is_taught_of_numbers_is_mean_and_standard_deviation():
    outputs = 100 + torch.randn(30, 6, 2, generator=generator())
    mean, spread = lesson([outputs[:1], outputs[1:]], posterity.Gaussian(std=1.0))
    torch.testing.assert_close(mean, outputs.double().mean(0))
    torch.testing.assert_close(spread, outputs.double().std(0, correction=0))
    assert not lesson([outputs[:1].expand(9, 6, 2)], posterity.Gaussian(std=1.0))[1].any()


def test_the_distance_of_predictions_by_hand():
    sure, surer = torch.tensor([[0.0, -9.0, -14.0]]).log_softmax(1), torch.tensor([[0.0, -12.0, -14.0]]).log_softmax(1)
    far = float(distance(posterity.Categorical(), surer, sure, torch.ones(1, 3)))
    assert 0.04 < far < 0.09  # 1e-4 nats, but their entropies differ by a factor of more than e²
    assert float(distance(posterity.Categorical(), sure + 5, sure, torch.ones(1, 3))) == pytest.approx(0, abs=1e-6)
    z, mean, spread = torch.tensor([[1.0]]), torch.tensor([[3.0]]), torch.tensor([[2.0]])
    assert float(distance(posterity.Gaussian(std=1.0), z, mean, spread)) == pytest.approx(2**2 / (2 * (2**2 + 1**2)))
    yes, no = 1 / (1 + math.exp(-3)), 1 / (1 + math.exp(3))
    kl = yes * math.log(yes * (1 + math.exp(-1))) + no * math.log(no * (1 + math.exp(1)))
    assert float(distance(posterity.Bernoulli(), z, mean, 0 * spread)) == pytest.approx(kl + 0.01 * 2**2, rel=1e-4)


def test_noise_is_standard_normal_and_spread_evenly():
    noise = spread_out(100, 3, generator())
    torch.testing.assert_close(noise.mean(0), torch.zeros(3).double(), rtol=0, atol=0.05)
    torch.testing.assert_close(noise.std(0), torch.ones(3).double(), rtol=0, atol=0.05)
    assert float(torch.corrcoef(noise.T).fill_diagonal_(0).abs().max()) < 0.1
    assert float(spread_out(10, 30_000, generator()).std()) == pytest.approx(1, abs=0.01)
    many = torch.cat([spread_out(2, 1, generator(seed)) for seed in range(500)])
    assert float(many.std()) == pytest.approx(1, abs=0.1)  # two at a time are draws too, not always ±1


def test_one_pass_for_any_number_of_functions(rings):
    _, distilled = rings
    functions = distilled.draw(50, generator())
    calls = []
    next(functions.network.children())[0].register_forward_hook(lambda *_: calls.append(1))
    x = inputs(30, 2)
    assert functions(x).shape == (50, 30, 2)
    assert len(calls) == 1
    torch.testing.assert_close(functions(x[:7]), functions(x)[:, :7])
    assert len(list(functions.stream(x))) == 1


def test_many_functions_come_part_by_part(rings, monkeypatch):
    functions, x = rings[1].draw(10, generator()), inputs(30, 2)
    whole = functions(x)
    monkeypatch.setattr("posterity.distillation.PART", 200)
    parts = list(functions.stream(x))
    assert [len(part) for part in parts] == [3, 3, 3, 1]
    torch.testing.assert_close(torch.cat(parts), whole)


def test_spread_is_at_most_twice_what_the_teacher_showed(rings):
    _, distilled = rings
    _, _, largest, floor = distilled.scales
    far = _spread(torch.full((4, 2), 50.0), distilled.scales)
    torch.testing.assert_close(far, (2 * largest.exp() - floor).expand(4, 2))
    assert not _spread(torch.full((4, 2), -50.0), distilled.scales).any()
    prediction = posterity.predict(distilled, 1e6 * inputs(30, 2), generator=generator())
    assert bool(prediction.probs.isfinite().all())


LIKELIHOODS = {
    "numbers": (posterity.Gaussian(std=0.2), lambda net: net, 2),
    "noise for each": (posterity.Gaussian(std=[0.1, 2.0]), lambda net: net, 2),
    "heteroscedastic": (posterity.Gaussian(heteroscedastic=True), lambda net: net, 4),
    "flat": (posterity.Gaussian(std=0.2), lambda net: nn.Sequential(net, nn.Flatten(0)), 1),
    "yes or no": (posterity.Bernoulli(), lambda net: nn.Sequential(net, nn.Flatten(0)), 1),
    "labels": (posterity.Bernoulli(), lambda net: net, 3),
    "classes": (posterity.Categorical(ignore=9), lambda net: net, 3),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood(name):
    likelihood, make, outputs = LIKELIHOODS[name]
    x = 2 * inputs(128, 1)
    teacher = posterity.IBNN(make(seeded(lambda: mlp(1, outputs))), prior_std=0.5, init_std=0.5, init_noise=0.3, seed=0)
    teacher.likelihood = likelihood
    student = make(seeded(lambda: pupil(1, outputs)))
    distilled = posterity.distil(teacher, student, x, samples=128, epochs=200, lr=5e-3, **QUICK)
    mine = posterity.predict(distilled, x, generator=generator())
    yours = posterity.predict(teacher, x, 128, stream(0, "distillation"))  # the functions that taught it
    assert type(mine) is type(yours)
    for part in ("total", "aleatoric", "epistemic"):
        a, b = getattr(mine, part), getattr(yours, part)
        assert a.shape == b.shape
        assert float(a.mean()) == pytest.approx(float(b.mean()), rel=0.15), part
        if float(b.std()) > 1e-6:
            assert spearman(a, b) > 0.9, part
    said = "mean" if isinstance(likelihood, posterity.Gaussian) else "probs"
    assert float((getattr(mine, said) - getattr(yours, said)).abs().mean()) < 0.05
    assert distilled.likelihood.config() == likelihood.config()


def test_maps_of_classes():
    make = lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))  # noqa: E731
    x = torch.randn(24, 1, 6, 6, generator=generator())
    teacher, student = posterity.IBNN(seeded(make), init_std=0.5, seed=0), make()
    distilled = posterity.distil(teacher, student, x, **BRIEF)
    prediction = posterity.predict(distilled, x, 7)
    assert prediction.probs.shape == (24, 3, 6, 6)
    assert prediction.epistemic.shape == (24, 6, 6)
    assert distilled.draw(3)(x[:2]).shape == distilled.forward(x[:2]).expand(3, 2, 3, 6, 6).shape


def same(a, b):
    torch.testing.assert_close(dict(a.state_dict()), dict(b.state_dict()), rtol=0, atol=0)


def test_a_seed_gives_the_same_student_and_leaves_the_global_generator_alone():
    x, teacher = inputs(), posterity.IBNN(seeded(mlp), seed=0)
    state = torch.get_rng_state()
    one, other, third = (posterity.distil(teacher, seeded(mlp, 1), x, **BRIEF | {"seed": s}) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    same(one, other)
    assert not torch.equal(one.network[0].weight, third.network[0].weight)
    torch.testing.assert_close(one.draw(5, generator())(x), other.draw(5, generator())(x), rtol=0, atol=0)


def test_every_kind_of_data_gives_the_same():
    x, y = inputs(), torch.arange(64) % 3
    teacher = posterity.IBNN(seeded(mlp), seed=0)
    expected = posterity.distil(teacher, seeded(mlp, 1), x, **BRIEF)
    for data in (x.numpy(), (x, y), TensorDataset(x), DataLoader(TensorDataset(x, y), batch_size=10)):
        same(posterity.distil(teacher, seeded(mlp, 1), data, **BRIEF), expected)


class Constant(nn.Module):
    """The same for every input."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(1, 1)

    def forward(self, x):
        return self.last(torch.zeros_like(x))


def test_rows_count_by_their_weights():
    """A constant student of a teacher that says 0 for one half and 1 for the other is at the weighted mean, 0.8."""
    teacher = posterity.MAP(nn.Linear(1, 1))
    teacher.likelihood = posterity.Gaussian(std=0.3)
    with torch.no_grad():
        teacher.network.weight.fill_(1.0)
        teacher.network.bias.zero_()
    x = (torch.arange(64) % 2).float().view(64, 1)
    data = (x, torch.zeros(64), 0.4 + 1.2 * x.flatten())
    for given in (data, TensorDataset(*data), DataLoader(TensorDataset(*data), batch_size=10)):
        student = posterity.distil(teacher, seeded(Constant), given, epochs=150, lr=0.05, **QUICK)
        assert posterity.predict(student, x, 1).mean[0].item() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("likelihood", [posterity.Categorical(), posterity.Bernoulli(), posterity.Gaussian(std=0.3)])
def test_rows_of_every_likelihood_take_weights(likelihood):
    teacher = posterity.IBNN(seeded(mlp), seed=0)
    teacher.likelihood = likelihood
    data = inputs(), torch.zeros(64), torch.linspace(0.5, 1.5, 64)
    student = posterity.distil(teacher, seeded(mlp, 1), data, **BRIEF)
    assert len(posterity.predict(student, inputs(), 4).total) == 64


def test_a_mapping_of_inputs_without_its_labels():
    class Keyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, features):
            return {"logits": self.body(features), "hidden": features}

    x = inputs()
    teacher = posterity.IBNN(seeded(Keyword), seed=0)
    data = {"features": x, "labels": torch.arange(64) % 3}
    distilled = posterity.distil(teacher, seeded(Keyword, 1), data, **BRIEF)
    assert distilled.layer == "body.2"
    assert posterity.predict(distilled, {"features": x}, 4).probs.shape == (64, 3)


def test_the_teacher_stays_as_it_was_and_the_student_can_be_a_copy():
    teacher = posterity.IBNN(seeded(ConvNet), seed=0)
    teacher.preprocessing = "as for the teacher"
    before = copy.deepcopy(teacher)
    x = torch.randn(40, 1, 6, 6, generator=generator())
    distilled = posterity.distil(teacher, copy.deepcopy(teacher.network), x, **BRIEF)
    same(teacher, before)
    assert (distilled.layer, distilled.preprocessing) == ("head", "as for the teacher")
    functions = distilled.draw(4, generator())
    torch.testing.assert_close(functions(x[:3]), functions(x)[:, :3])


def test_saved_and_loaded_it_says_the_same(tmp_path, rings):
    _, distilled = rings
    x = inputs(20, 2)
    posterity.save(distilled, tmp_path)
    again = posterity.load(tmp_path, pupil())
    assert type(again) is Distilled
    for name in ("probs", "total", "epistemic"):
        mine, yours = (getattr(posterity.predict(p, x, 9, generator()), name) for p in (again, distilled))
        torch.testing.assert_close(mine, yours, rtol=0, atol=0)
    assert "distilled" not in posterity.methods()


def test_a_learned_noise_is_saved_with_it(tmp_path):
    teacher = posterity.IBNN(seeded(lambda: mlp(5, 2)), seed=0)
    teacher.likelihood = posterity.Gaussian(initial=0.37)
    distilled = posterity.distil(teacher, mlp(5, 2), inputs(), **BRIEF)
    posterity.save(distilled, tmp_path)
    prediction = posterity.predict(posterity.load(tmp_path, mlp(5, 2)), inputs(), 5)
    torch.testing.assert_close(prediction.aleatoric, torch.full((64, 2), 0.37**2))


def test_it_is_exported_with_one_network_for_all_functions(tmp_path, rings):
    x = inputs(9, 2)
    made = posterity.export(rings[1], tmp_path / "model.pt2", x[:3], samples=30, seed=0)
    answer = torch.export.load(made.path).module()(x)
    expected = posterity.predict(rings[1], x, 30, seed=0)
    torch.testing.assert_close(answer["epistemic"], expected.epistemic, rtol=0, atol=1e-5)
    torch.testing.assert_close(answer["probs"], expected.probs, rtol=0, atol=1e-5)


def test_a_run_continues_from_its_checkpoint(tmp_path):
    x, teacher = inputs(), posterity.IBNN(seeded(mlp), seed=0)
    whole = posterity.distil(teacher, seeded(mlp, 1), x, **BRIEF)

    def stop(record, posterior):
        raise KeyboardInterrupt

    options = BRIEF | {"checkpoint": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        posterity.distil(teacher, seeded(mlp, 1), x, checkpoint_every=0, callbacks=[stop], **options)
    same(posterity.distil(teacher, seeded(mlp, 1), x, **options), whole)


def test_the_best_epoch_on_held_out_answers_is_kept():
    x, teacher, seen = inputs(), posterity.MAP(seeded(mlp)), []
    options = BRIEF | {"validation": (x, torch.arange(64) % 3), "callbacks": [lambda record, _: seen.append(record)]}
    posterity.distil(teacher, seeded(mlp, 1), x, **options)
    assert all("validation" in record for record in seen)


def test_it_takes_part_in_the_contract(rings):
    _, distilled = rings
    x = inputs(7, 2)
    assert distilled(x).shape == (1, 7, 2)
    assert float(distilled.divergence()) == 0
    assert distilled.describe().uncertain == ["4"]
    assert len(distilled.draw(1)) == 1
    with pytest.raises(posterity.Error, match=r"call posterity\.distil"):
        distilled.loss(x, torch.zeros(7, dtype=torch.long), size=7)


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 1)

    def forward(self, x):
        return self.conv(x).mean((2, 3))


class Odd(posterity.Likelihood):
    pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"posterior": mlp()}, "must be a posterior"),
        ({"student": "net"}, "must be a torch.nn.Module"),
        ({"student": mlp(5, 7)}, r"shape \(2, 7\), the posterior with \(2, 3\)"),
        ({"data": "text"}, "keeps no preprocessing to read files with"),
        ({"data": torch.zeros(0, 5)}, "have no rows|need rows"),
        ({"data": torch.full((3, 5), np.nan)}, "NaN"),
        ({"samples": 0}, "samples must be"),
        ({"validation": 0.1}, "give validation="),
        ({"validation": "auto"}, "give validation="),
        ({"data": torch.zeros(3, 6)}, "does not take these inputs"),
        ({"student": mlp(4, 3)}, "does not take these inputs"),
    ],
)
def test_mistakes_are_named(change, words):
    given = {"posterior": posterity.MAP(seeded(mlp)), "student": mlp(), "data": inputs()} | BRIEF | change
    with pytest.raises(posterity.Error, match=words):
        posterity.distil(given.pop("posterior"), given.pop("student"), given.pop("data"), **given)


def test_mistakes_in_the_student_are_named():
    teacher = posterity.MAP(seeded(mlp))
    with pytest.raises(posterity.Error, match="deepcopy"):
        posterity.distil(teacher, teacher.network, inputs())
    images = torch.zeros(4, 1, 6, 6)
    with pytest.raises(posterity.Error, match="must end in a layer"):
        posterity.distil(posterity.MAP(ConvNet()), Averaged(), images, **BRIEF)
    teacher.likelihood = Odd()
    with pytest.raises(posterity.Error, match="not Odd"):
        posterity.distil(teacher, mlp(), inputs(), **BRIEF)
    for layer, outputs in (("9", 3), ("2", 1_000_000_000_000)):
        with pytest.raises(posterity.Error):
            Distilled(mlp(), layer, outputs)


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {}
    with torch.random.fork_rng():
        for block in blocks("docs/guides/distil.md"):
            exec(compile(block, "docs/guides/distil.md", "exec"), space)
    assert spearman(space["mine"].epistemic, space["yours"].epistemic) > 0.9
