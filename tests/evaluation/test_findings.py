"""What a report shows beyond scores: rows of predictions, curves under stress, promises, sizes of ensembles."""

import numpy as np
import pytest
import torch

import posterity
from common import generator, mlp, seeded
from posterity import evaluation
from posterity.datasets.columns import Column
from posterity.datasets.preprocessing import ImagePreprocessing, TablePreprocessing
from posterity.evaluation.sampling import representative_rows
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction


def random(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "prediction",
    [
        CategoricalPrediction(random(7, 3).log_softmax(1), random(7, seed=1).abs() * 0.01),
        BernoulliPrediction(random(7, 2).sigmoid(), random(7, 2, seed=1).abs() * 0.01),
        GaussianPrediction(random(4, 7, 2), random(4, 7, 2, seed=1).exp()),
    ],
    ids=["classes", "labels", "numbers"],
)
@pytest.mark.parametrize("rows", [slice(2, 5), torch.tensor([6, 0]), torch.arange(7) % 2 == 0, 3, -1])
def test_some_rows_of_a_prediction_are_the_prediction_of_these_rows(prediction, rows):
    some, numbers = prediction[rows], torch.arange(7)[rows].reshape(-1)
    assert type(some) is type(prediction)
    assert len(some) == len(numbers)
    for part in ("total", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(some, part), getattr(prediction, part)[numbers])
    y = prediction.probs.argmax(1) if isinstance(prediction, CategoricalPrediction) else prediction.aleatoric.round()
    torch.testing.assert_close(some.log_prob(y[numbers]), prediction.log_prob(y)[numbers])
    assert len(prediction) == 7


def classifier(**options):
    x = random(300, 4).float()
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0)
    posterior = posterity.DeepEnsemble(seeded(lambda: mlp(4, 3)), members=3, seed=0, **options)
    posterity.fit(posterior, (x[:200], y[:200]), epochs=20, lr=0.01, seed=0, device="cpu", progress=False)
    return posterior, x[200:], y[200:]


def test_ensembles_by_size_begin_with_the_mean_member_and_end_with_all():
    posterior, x, y = classifier()
    found = evaluation.by_size(posterior.draw(3), posterior.likelihood, x, y)
    assert len(found) == 3
    assert found[-1] == pytest.approx(evaluation.calibrated_nll(posterity.predict(posterior, x), y), abs=1e-5)
    outputs = posterior.draw(3)(x)
    alone = [
        evaluation.calibrated_nll(CategoricalPrediction.gather([one[None]], posterior.likelihood), y) for one in outputs
    ]
    assert found[0] == pytest.approx(sum(alone) / 3, abs=1e-5)
    assert min(alone) < max(alone)
    double = evaluation.by_size(posterior.double().draw(3), posterior.likelihood, x, y)
    assert double == pytest.approx(found, abs=1e-5)


def test_noise_begins_with_the_scores_themselves_and_ends_where_inputs_say_nothing():
    posterior, x, y = classifier()
    before = {key: value.clone() for key, value in posterior.state_dict().items()}
    found = evaluation.robustness(posterior, x, y, seed=1)
    assert set(found) == {"noise", "attack"}
    plain = evaluation.score(posterity.predict(posterior, x), y)
    for curve in found.values():
        assert curve[0]["strength"] == 0
        assert curve[0]["error"] == pytest.approx(plain["error"])
        assert curve[0]["nll"] == pytest.approx(plain["nll"], rel=1e-4)
        assert [line["strength"] for line in curve] == sorted({line["strength"] for line in curve})
        assert all(line["total"] == pytest.approx(line["aleatoric"] + line["epistemic"], abs=1e-5) for line in curve)
    # With inputs replaced by noise, answer and truth are independent: the chance to agree is Σ p(c) q(c).
    answers = posterity.predict(posterior, random(20_000, 4, seed=5).float()).probs.argmax(1)
    agree = sum(float((answers == c).double().mean() * (y == c).double().mean()) for c in range(3))
    assert abs(found["noise"][-1]["error"] - (1 - agree)) < 4 * (agree * (1 - agree) / len(y)) ** 0.5
    assert found["attack"][-1]["error"] > plain["error"]
    assert found == evaluation.robustness(posterior, x, y, seed=1)
    assert all(torch.equal(value, before[key]) for key, value in posterior.state_dict().items())


@pytest.mark.parametrize("order", ["ascending", "descending", "as they come"])
def test_the_rows_that_are_stressed_stand_for_all_however_the_file_is_sorted(order):
    """A network that says class 0 of everything, of 1,000 rows a quarter of which are of class 1."""
    net = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(net.weight)
    net.bias.data = torch.tensor([2.0, 0.0])
    y = (torch.arange(1000) % 4 == 3).long()
    y = y if order == "as they come" else y.sort(descending=order == "descending").values
    found = evaluation.robustness(posterity.MAP(net), random(1000, 2).float(), y)
    assert found["noise"][0]["error"] == found["attack"][0]["error"] == 0.25


class Centred(torch.nn.Module):
    """Logits of rows less the mean of all rows: what it says of one depends on the others."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def test_rows_that_interact_are_all_stressed():
    posterior = posterity.MAP(seeded(Centred))
    x, y = random(300, 2).float(), (torch.arange(300) > 200).long()
    plain = evaluation.score(posterity.predict(posterior, x), y)
    assert evaluation.robustness(posterior, x, y, rows=50)["noise"][0]["nll"] == pytest.approx(plain["nll"], rel=1e-4)


def test_stress_of_a_regression_sorted_by_its_target_begins_near_the_rmse_of_all_rows():
    """A network that says 0 of everything: the RMSE is the root of the targets' mean square."""
    net = torch.nn.Linear(2, 1)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    posterior = posterity.MAP(net)
    posterior.likelihood = posterity.Gaussian(std=1.0)
    y = random(1000, 1).float().sort(0).values
    found = evaluation.robustness(posterior, random(1000, 2).float(), y)["noise"][0]["rmse"]
    assert found == pytest.approx(float(y.square().mean().sqrt()), rel=0.05)  # every fifth quantile


def test_representative_rows_hold_each_class_in_its_share_and_each_row_with_the_same_chance():
    y = torch.repeat_interleave(torch.arange(10), 100)
    assert torch.bincount(y[representative_rows(y, 200)]).tolist() == [20] * 10
    assert torch.equal(representative_rows(y, 2000), torch.arange(1000))
    y = torch.tensor([3.0, 1.0, 1.0, 2.0, 5.0, 4.0, 9.0])
    counts = torch.zeros(7)
    for seed in range(2000):
        chosen = representative_rows(y, 3, seed)
        assert len(chosen.unique()) == 3
        counts[chosen] += 1
    p = 3 / 7  # a standard error of 0.011
    assert bool(((counts / 2000 - p).abs() < 4.5 * (p * (1 - p) / 2000) ** 0.5).all())
    assert len(representative_rows(torch.zeros(50, 4, 4), 20).unique()) == 20


def test_images_with_a_map_of_targets_are_not_rotated_which_would_leave_the_map_behind():
    posterior = posterity.MAP(torch.nn.Conv2d(3, 2, 1))
    posterior.preprocessing = ImagePreprocessing(
        channels=3, size=(8, 8), mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0], scale=1.0, classes=["a", "b"]
    )
    x, y = torch.rand(6, 3, 8, 8, generator=generator()), torch.zeros(6, 8, 8, dtype=torch.long)
    assert set(evaluation.robustness(posterior, x, y)) == {"noise", "corruption", "attack"}


def test_images_are_rotated_and_corrupted_too_and_an_attack_is_measured_in_pixels():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 2))
    posterior = posterity.MAP(net)
    posterior.preprocessing = ImagePreprocessing(
        channels=3, size=(8, 8), mean=[0.5, 0.4, 0.3], std=[0.1, 0.2, 0.4], scale=1.0, classes=["a", "b"]
    )
    std, mean = (torch.tensor(v).view(3, 1, 1) for v in ([0.1, 0.2, 0.4], [0.5, 0.4, 0.3]))
    x, y = (torch.rand(20, 3, 8, 8, generator=generator()) - mean) / std, torch.arange(20) % 2
    found = evaluation.robustness(posterior, x, y)
    assert set(found) == {"noise", "rotation", "corruption", "attack"}
    assert found["corruption"][0] == found["noise"][0]
    # Against a linear network the worst change is known: ε / std in each channel, by the sign of the weights.
    toward = (net[1].weight[0] - net[1].weight[1]).detach().view(3, 8, 8).sign() * (1 - 2 * y.view(-1, 1, 1, 1))
    line = found["attack"][2]
    worst = (x - line["strength"] / std * toward).clamp(
        torch.minimum(-mean / std, x), torch.maximum((1 - mean) / std, x)
    )
    expected = torch.nn.functional.cross_entropy(net(worst), y).detach()
    assert line["nll"] == pytest.approx(float(expected), rel=1e-4)
    assert set(evaluation.robustness(posterior, 9 * x, y)) == {"noise", "attack"}  # no pixels between 0 and 1


def calibrated(n, seed=0):
    """Predictions that are right just as often as they say, and the truth."""
    log_probs = (2 * random(n, 3, seed=seed)).log_softmax(1)
    y = torch.multinomial(log_probs.exp(), 1, generator=generator(seed + 1))[:, 0]
    return CategoricalPrediction(log_probs, torch.zeros(n)), y


def test_promises_are_made_from_one_half_and_judged_on_the_other():
    prediction, y = calibrated(2000)
    found = evaluation.promises(prediction, y)
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    half, rest = order[:1000], order[1000:]
    assert found["rows"] == 1000
    rule = evaluation.control_risk(prediction[half], y[half], 0.1)
    kept = rule.accept(prediction[rest])
    record = next(entry for entry in found["abstention"] if entry["risk"] == 0.1)
    assert record["kept"] == pytest.approx(float(kept.double().mean()))
    assert 0.2 < record["kept"] < 0.9
    wrong = prediction[rest].probs.argmax(1)[kept] != y[rest][kept]
    assert record["wrong"] == pytest.approx(float(wrong.double().mean()))
    # 95 % sets: coverage on 1,000 others has a standard error of 1 % (both halves).
    assert abs(found["sets"]["coverage"] - 0.95) < 4 * (0.95 * 0.05 * 2 / 1000) ** 0.5 + 0.01
    other = y.clone()
    other[rest] = (other[rest] + 1) % 3
    changed = evaluation.promises(prediction, other)
    assert [e["kept"] for e in changed["abstention"]] == [e["kept"] for e in found["abstention"]]
    assert changed["sets"]["size"] == found["sets"]["size"]
    assert changed["sets"]["coverage"] < found["sets"]["coverage"]


def test_intervals_that_are_too_narrow_by_far_are_stretched_to_their_promise():
    y = random(2000, 1)
    narrow = GaussianPrediction(torch.zeros(1, 2000, 1, dtype=torch.float64), torch.full((1, 2000, 1), 0.01).double())
    found = evaluation.promises(narrow, y)["intervals"]
    assert abs(found["coverage"] - 0.9) < 4 * (0.9 * 0.1 * 2 / 1000) ** 0.5
    assert found["width"] == pytest.approx(2 * 1.645, rel=0.1)


def test_nothing_is_promised_from_too_few_data_or_of_what_is_not_observed():
    prediction, y = calibrated(20)
    assert evaluation.promises(prediction, y) == {}
    prediction, y = calibrated(600)
    hidden = y.clone()
    hidden[300:] = -100
    assert evaluation.promises(prediction, hidden) == evaluation.promises(prediction[:300], y[:300])


def test_columns_are_put_in_words_as_the_table_had_them():
    columns = [
        Column("size", "number", mean=10.0, std=4.0, median=9.0, indicator=True),
        Column("kind", "category", categories=("a", None, "b")),
        Column("day", "date", mean=100.0, std=10.0),
    ]
    table = {
        "size": np.array([12.5, np.nan]),
        "kind": np.array(["b", None], dtype=object),
        "day": np.array(["1970-04-01", "2024-02-29"], dtype="datetime64[D]"),
    }
    preprocessing = TablePreprocessing(features=["size", "kind", "day"], columns=columns, target="y")
    assert preprocessing.decode(preprocessing.inputs(table)) == [
        {"size": "12.5", "kind": "b", "day": "1970-04-01"},
        {"size": "missing", "kind": "missing", "day": "2024-02-29"},
    ]
    unknown = preprocessing.inputs(table | {"kind": np.array(["c", "a"], dtype=object)})
    assert [row["kind"] for row in preprocessing.decode(unknown)] == ["another", "a"]
    prices = TablePreprocessing(
        features=["price"], columns=[Column("price", "number", mean=3e5, std=1e5, median=3e5)], target="y"
    )
    assert prices.decode(prices.inputs({"price": np.array([368_412.0])})) == [{"price": "368,400"}]
    pixels = TablePreprocessing(
        features=["pixel"], columns=[Column("pixel", "number", mean=5.3841, std=4.1873, median=5.0)], target="y"
    )
    values = np.array([0.0, 13.0, 0.001])  # in single precision the first comes back as -1.4e-7
    assert [row["pixel"] for row in pixels.decode(pixels.inputs({"pixel": values}))] == ["0", "13", "0.001"]


def test_the_gallery_spans_all_ranks_and_is_denser_where_data_are_uncertain():
    prediction, y = calibrated(500)
    gallery = evaluation.summarise(prediction, y)["gallery"]
    ranks = prediction.total.argsort().argsort()[[entry["index"] for entry in gallery]].tolist()
    assert ranks[0] == 0
    assert ranks[-1] == 499
    assert ranks == sorted(ranks)
    assert ranks[len(ranks) // 2] > 300
    for entry in gallery:
        assert entry["true"] == int(y[entry["index"]])
        assert entry["probs"] == sorted(entry["probs"], reverse=True)
        assert entry["probs"][0] == pytest.approx(float(prediction.probs[entry["index"]].max()), rel=1e-4)


def test_losses_are_what_the_scores_are_means_of():
    probs = random(50, 3).softmax(1)
    y = torch.arange(50) % 3
    prediction = CategoricalPrediction(probs.log(), torch.zeros(50))
    found, card = evaluation.losses(prediction, y), evaluation.scorecard(prediction, y)
    assert set(found) == {"error", "nll", "brier", "nll_calibrated"}
    for name, rows in found.items():
        assert rows.shape == (50,)
        assert float(rows.mean()) == pytest.approx(card[name], rel=1e-9), name
    assert float(torch.corrcoef(torch.stack([found["nll"], found["nll_calibrated"]]))[0, 1]) > 0.5


def test_losses_of_numbers_are_those_of_each_row():
    y = random(40, 1)
    prediction = GaussianPrediction(random(3, 40, 1, seed=1), random(3, 40, 1, seed=2).exp())
    found, card = evaluation.losses(prediction, y), evaluation.scorecard(prediction, y)
    assert set(found) == {"rmse", "nll", "crps", "interval_score90"}
    assert float(found.pop("rmse").mean().sqrt()) == pytest.approx(card["rmse"])
    for name, rows in found.items():
        assert rows.shape == (40,)
        assert float(rows.mean()) == pytest.approx(card[name], rel=1e-9), name
    assert float(evaluation.losses(prediction[:1], y[:1])["nll"]) == pytest.approx(
        evaluation.nll(prediction[:1], y[:1])
    )


def test_what_is_not_observed_has_no_loss():
    y = torch.tensor([0, -100, 1, 2])
    prediction = CategoricalPrediction(random(4, 3).log_softmax(1), torch.zeros(4))
    assert {name: len(rows) for name, rows in evaluation.losses(prediction, y).items()} == dict.fromkeys(
        ("nll", "nll_calibrated", "error", "brier"), 3
    )
