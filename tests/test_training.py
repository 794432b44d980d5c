"""Training: schedules, histories, validation, precision, and stopping with a sentence."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity
from common import ConvNet, generator, mlp, seeded
from fitting import data, fit, make, same
from posterity import checkpoints, schedules
from posterity.training import TensorBoard


def test_a_seed_repeats_and_leaves_the_global_generator():
    before = torch.get_rng_state()
    first, second, other = make(), make(), make()
    fit(first)
    fit(second)
    fit(other, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert same(first, second)
    assert not same(first, other)


def test_without_a_seed_the_global_generator_decides():
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        posterior = make()
        fit(posterior, seed=None)
        results.append(posterior)
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


@pytest.mark.parametrize(
    ("method", "settings"),
    [(posterity.IBNN, {}), (posterity.BayesByHypernet, {"divergence": "nearest"})],  # the latter's moves with each draw
)
def test_history_has_one_record_an_epoch_with_both_terms(method, settings):
    true: list[float] = []

    class Spy(method):
        def terms(self, *args, **kwargs):
            log_prob, penalty = super().terms(*args, **kwargs)
            true.append(-float(log_prob.detach().mean()))
            return log_prob, penalty

    posterior = Spy(seeded(mlp), seed=0, **settings)
    history = fit(posterior, epochs=4, batch_size=4)
    assert history.column("epoch") == [1, 2, 3, 4]
    expected = [sum(true[10 * i : 10 * i + 10]) / 10 for i in range(4)]
    assert history.column("nll") == pytest.approx(expected, abs=1e-5)
    assert history[-1]["beta"] == 1.0
    assert history[0]["beta"] < 1.0
    assert history.seconds > 0
    assert not posterior.training


def test_a_loss_of_ones_own_has_its_likelihood_too():
    class Own(posterity.IBNN):
        def loss(self, x, y, likelihood=None, *, size, beta=1.0, weight=None, generator=None):
            log_prob = self.likelihood.log_prob(self(x), y)
            return float(beta) * self.penalty() / size - log_prob.mean()

    one, other = fit(Own(seeded(mlp), seed=0)), fit(posterity.IBNN(seeded(mlp), seed=0))
    assert one.column("nll") == pytest.approx(other.column("nll"), abs=1e-5)


def test_a_network_without_a_gradient_is_not_trained_in_silence():
    class Cut(nn.Linear):
        @torch.no_grad()
        def forward(self, x):
            return super().forward(x)

    with pytest.raises(RuntimeError, match="does not require grad"):
        fit(posterity.MAP(Cut(5, 3)))


def test_history_plots_itself(tmp_path):
    history = fit(make(), validation=data(20))
    assert len(history.plot().axes) == 2
    history.save(tmp_path / "history.json")
    assert "validation" in (tmp_path / "history.json").read_text()


def test_schedules():
    assert [schedules.piecewise(t) for t in (0, 0.5, 0.7, 0.9, 1.0)] == pytest.approx([1, 1, 0.505, 0.01, 0.01])
    assert [schedules.cosine(t) for t in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])
    assert [schedules.beta("linear")(t) for t in (0, 1 / 3, 2 / 3, 1)] == pytest.approx([0, 0.5, 1, 1])
    for given in (0.3, np.float64(0.3), torch.tensor(0.3, dtype=torch.float64)):
        assert schedules.beta(given)(0.9) == 0.3
    assert schedules.beta(lambda t: t**2)(0.5) == 0.25
    for bad in ("nonsense", -1.0, ("linear", 0), ("linear", "x"), True, None):
        with pytest.raises(posterity.Error):
            schedules.beta(bad)
    for bad in ("nonsense", 3.0):
        with pytest.raises(posterity.Error):
            schedules.rate(bad)


def test_the_rate_follows_the_schedule():
    history = fit(make(), epochs=10, batch_size=40, lr=0.1, schedule="cosine")
    assert history.column("lr") == pytest.approx([0.1 * schedules.cosine(i / 10) for i in range(10)])


def test_weight_decay_never_touches_variational_parameters():
    posterior = posterity.IBNN(seeded(mlp), 2, seed=0)
    plain = posterity.IBNN(seeded(mlp), 2, seed=0)
    zeros = torch.zeros(40, 5), torch.zeros(40, dtype=torch.long)
    for p, decay in ((posterior, 10.0), (plain, 0.0)):
        fit(p, data=zeros, weight_decay=decay, lr=1e-2, beta=0.0, epochs=2, lr_posterior=1e-2)
    norm = [float(p.network[0].weight.detach().norm()) for p in (posterior, plain)]
    assert norm[0] < 0.8 * norm[1]
    torch.testing.assert_close(posterior.means[:, :5], plain.means[:, :5])  # zero inputs: no gradient at all


def test_lr_posterior_drives_the_variational_parameters_alone():
    posterior = make()
    start = {k: v.clone() for k, v in posterior.state_dict().items()}
    fit(posterior, lr_posterior=0.0)
    assert torch.equal(posterior.means, start["means"])
    assert not torch.equal(posterior.network[0].weight, start["network.0.weight"])
    posterior = make()
    fit(posterior, lr=0.0, lr_posterior=1e-2)
    assert not torch.equal(posterior.means, start["means"])
    assert torch.equal(posterior.network[0].weight, start["network.0.weight"])


def test_held_out_rows_count_by_their_weights():
    """Those of weight 0 do not, so the epoch that is kept does not depend on them; and some must count."""
    x, y = data()
    weight = torch.linspace(0, 2, 40)
    posterior = posterity.MAP(seeded(lambda: nn.Linear(5, 3)))
    history = fit(posterior, data=(x, y), validation=(x, y, weight), epochs=1)
    surprise = -posterity.predict(posterior, x).log_prob(y)
    assert history[0]["validation"] == pytest.approx(float((weight * surprise).sum() / weight.sum()), rel=1e-5)
    again = posterity.MAP(seeded(lambda: nn.Linear(5, 3)))
    found = fit(again, data=(x, y), validation=(x, y, weight[:, None]), epochs=1)
    assert found[0]["validation"] == pytest.approx(history[0]["validation"])
    with pytest.raises(posterity.Error, match="all have weight 0"):
        fit(make(), validation=DataLoader(TensorDataset(x, y, torch.zeros(40)), 8), epochs=1)


@pytest.mark.parametrize(
    "wrong",
    [
        (torch.zeros(6, 4), torch.zeros(6, dtype=torch.long)),  # another number of features
        (torch.zeros(6, 5), torch.full((6,), 7)),  # a class that the network does not have
    ],
)
def test_a_mistake_in_held_out_data_comes_out_before_the_first_step(wrong):
    posterior = make()
    start = posterior.means.clone()
    with pytest.raises(posterity.Error):
        fit(posterior, validation=wrong)
    assert torch.equal(posterior.means, start)


def test_what_has_no_gradients_around_it_trains_and_one_callback_is_enough():
    x, y = data()
    seen = []
    with torch.no_grad():
        posterity.fit(
            posterity.MAP(seeded(mlp)), (x, y), epochs=2, progress=False, callbacks=lambda r, p: seen.append(r["epoch"])
        )
    assert seen == [1, 2]


def test_a_loss_that_is_not_finite_stops_with_a_sentence_and_keeps_the_checkpoint(tmp_path):
    class Breaking(posterity.IBNN):
        steps = 0

        def loss(self, *args, **kwargs):
            self.steps += 1
            return super().loss(*args, **kwargs) * (math.nan if self.steps == 6 else 1.0)

    posterior = Breaking(seeded(mlp), 3, seed=0)
    with pytest.raises(posterity.Error, match=r"step 5 .*likely cause"):
        fit(posterior, batch_size=8, checkpoint=tmp_path, checkpoint_every=0.0)
    assert checkpoints.read(tmp_path).progress["count"] == 5
    assert all(bool(p.isfinite().all()) for p in posterior.parameters())


def test_nan_in_the_data_is_named():
    x, y = data()
    x[3, 2] = math.nan
    with pytest.raises(posterity.Error, match="NaN"):
        fit(make(), data=(x, y))


def test_validation_keeps_the_best_epoch():
    x, y = data()
    posterior = make()
    history = fit(
        posterior, data=(x, y), validation=(x, 2 - y), epochs=8, lr=0.05, beta=1.0
    )  # it gets worse as it learns
    assert history.best == 1 + min(range(8), key=history.column("validation").__getitem__)
    nll = -float(posterity.predict(posterior, x, 15, generator()).log_prob(2 - y).mean())
    assert nll == pytest.approx(min(history.column("validation")), rel=0.3)


def test_a_share_can_be_held_out():
    history = fit(make(), validation=0.25, epochs=2)
    assert len(history.column("validation")) == 2
    for share in (0.0, 1.5, 0.999, "some"):
        with pytest.raises(posterity.Error):
            fit(make(), validation=share)


@pytest.mark.parametrize(("rows", "held"), [(2000, 200), (300, 50), (100, 20), (5, 1), (4, 0)])
def test_how_many_rows_are_held_out_by_themselves(rows, held):
    seen = set()

    class Seeing(posterity.MAP):
        def loss(self, x, y, *args, **kwargs):
            seen.update(y.tolist() if self.training else ())
            return super().loss(x, y, *args, **kwargs)

    data = torch.randn(rows, 2), torch.arange(rows)
    history = posterity.fit(Seeing(nn.Linear(2, rows)), data, epochs=1, validation="auto", seed=0, progress=False)
    assert len(seen) == rows - held
    assert len(history.column("validation")) == bool(held)


def test_callbacks_see_every_epoch(tmp_path):
    seen = []
    fit(make(), callbacks=[lambda record, posterior: seen.append(record["epoch"]), TensorBoard(tmp_path)])
    assert seen == [1, 2, 3]
    assert list(tmp_path.glob("events*"))


@pytest.mark.parametrize("arguments", [{"precision": "bf16"}, {"compile": "aot_eager"}, {"clip": 1.0}])
def test_mixed_precision_compiling_and_clipping_train(arguments):
    posterior = posterity.IBNN(seeded(ConvNet), 2, seed=0)
    x = torch.randn(32, 1, 6, 6, generator=generator())
    history = fit(posterior, data=(x, (x.mean((1, 2, 3)) > 0).long()), epochs=6, lr=1e-2, beta=0.0, **arguments)
    assert history[-1]["loss"] < history[0]["loss"]
    assert {p.dtype for p in posterior.parameters()} == {torch.float32}


@pytest.mark.parametrize(("method", "backend"), [(posterity.IBNN, "aot_eager"), (posterity.MAP, True)])
def test_a_compiled_loss_is_the_same_loss(method, backend):
    plain, compiled = method(seeded(mlp), seed=0), method(seeded(mlp), seed=0)
    histories = [fit(plain), fit(compiled, compile=backend)]
    assert histories[0].column("loss") == pytest.approx(histories[1].column("loss"), rel=1e-4)


def test_progress_shows_the_likelihood_first_and_the_divergence_apart(capsys):
    fit(make(), progress=True, epochs=40, beta=0.5)
    shown = capsys.readouterr().err
    assert "loss" not in shown
    assert 0 < shown.index("nll=") < shown.index("kl/N=") < shown.index("beta=0.500")


@pytest.mark.parametrize(
    "arguments",
    [
        {"epochs": -1},
        {"epochs": 1.5},
        {"seed": -1},
        {"optimizer": "nonsense"},
        {"optimizer": lambda groups: None},
        {"optimizer": lambda groups: torch.optim.SGD(groups[:1])},
        {"optimizer": lambda groups: torch.optim.SGD(groups, lr=0.5)},
        {"optimizer": lambda groups: torch.optim.SGD([p for group in groups for p in group["params"]])},
        {"optimizer": lambda groups: torch.optim.LBFGS(groups[0]["params"])},
        {"lr": -1.0},
        {"lr_posterior": math.nan},
        {"weight_decay": -1.0},
        {"clip": 0.0},
        {"size": -5},
        {"batch_size": 0},
        {"device": "cuda:7"},
        {"validation": TensorDataset(torch.zeros(4, 5))},
        {"data": DataLoader(TensorDataset(*data()), 64, drop_last=True)},
        {"schedule": "nonsense"},
        {"beta": "nonsense"},
        {"precision": "int3"},
        {"device": "abacus"},
        {"data": (torch.zeros(4, 5), torch.zeros(3, dtype=torch.long))},
        {"data": (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))},
        {"data": torch.zeros(4, 5)},
        {"data": "file.csv"},
    ],
)
def test_mistakes_get_a_sentence(arguments):
    with pytest.raises(posterity.Error):
        fit(make(), **arguments)


def test_frozen_parameters_stay_and_nothing_to_train_is_an_error():
    posterior = make()
    for parameter in posterior.network.parameters():
        parameter.requires_grad_(False)
    before = posterior.network[0].weight.clone()
    fit(posterior)
    assert torch.equal(posterior.network[0].weight, before)
    for parameter in posterior.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(posterity.Error, match="nothing to train"):
        fit(posterior)


def test_double_precision_trains():
    x, y = data()
    first, second = make(), make().double()
    fit(first, data=(x.double(), y))
    fit(second, data=(x, y))
    assert second.means.dtype == torch.float64
    torch.testing.assert_close(first.means, second.means.float(), atol=0.05, rtol=0)


def test_a_callers_accelerator_is_left_as_it_was():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    mine = Accelerator(mixed_precision="bf16", cpu=True)
    fit(make(), epochs=1)
    assert mine.mixed_precision == "bf16"
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_graph_is_for_devices_and_changes_nothing_here():
    posteriors = [posterity.MAP(seeded(mlp)) for _ in range(2)]
    x, y = torch.randn(20, 5, generator=generator()), torch.arange(20) % 3
    for posterior, graph in zip(posteriors, (False, True), strict=True):
        posterity.fit(posterior, (x, y), epochs=2, seed=0, device="cpu", graph=graph, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(*(p.parameters() for p in posteriors), strict=True))


def test_a_history_prints_in_one_line():
    x, y = torch.randn(20, 5), torch.arange(20) % 3
    history = posterity.fit(posterity.MAP(mlp()), (x, y), epochs=3, seed=0, progress=False)
    assert repr(history).startswith("History of 3 epochs, nll ")
    assert "\n" not in repr(history)
    assert "KL/N" not in repr(history)


def test_a_history_shows_a_fit_that_improves_as_one():
    """The loss rises with β where the divergence is large; the likelihood comes first and KL/N stands apart."""
    posterior = posterity.IBNN(seeded(mlp), 3, seed=0, init_std=0.01)
    history = fit(posterior, epochs=30, batch_size=8, lr=1e-2, lr_posterior=0.0)
    assert history[-1]["loss"] > history[0]["loss"]
    nll, kl = repr(history).split(", ")[1:3]
    assert nll == f"nll {history[0]['nll']:.4g} → {history[-1]['nll']:.4g}"
    assert history[-1]["nll"] < history[0]["nll"]
    assert kl == f"KL/N {history[0]['divergence'] / 40:.4g} → {history[-1]['divergence'] / 40:.4g}"
    for name in ("epoch", "step", "loss", "nll", "divergence", "beta", "lr", "seconds"):
        assert len(history.column(name)) == 30


def test_held_out_rows_without_a_finite_likelihood_never_choose_an_epoch():
    x, y = data()

    class Breaking(posterity.MAP):
        def draw(self, n, generator=None):
            functions, value = super().draw(n, generator), next(self.values)
            last = functions.network[-1].bias
            functions.network[-1].bias = nn.Parameter(last * value if math.isnan(value) else last)
            return functions

    posterior = Breaking(seeded(mlp))
    posterior.values = iter([1.0, math.nan, 1.0, 1.0, math.nan, math.nan])  # the first tries two rows
    history = fit(posterior, data=(x, y), validation=(x, y), epochs=5, batch_size=8, lr=0.01)
    found = history.column("validation")
    assert [math.isfinite(value) for value in found] == [False, True, True, False, False]
    assert history.best == 3
    assert found[2] < found[1]


def test_all_held_out_rows_without_a_finite_likelihood_are_a_warning_and_the_last_epoch_stays():
    x, y = torch.randn(20, 5, generator=generator()), torch.randn(20, 1, generator=generator())
    held = torch.full((20, 1), math.nan)
    held[:2] = 0.0
    likelihood = posterity.Gaussian(std=1.0)
    posterior, plain = (posterity.MAP(seeded(lambda: mlp(5, 1))) for _ in range(2))
    with pytest.warns(UserWarning, match="nan in every epoch"):
        history = fit(posterior, data=(x, y), likelihood=likelihood, validation=(x, held))
    fit(plain, data=(x, y), likelihood=likelihood)
    assert history.best is None
    assert same(posterior, plain)


def test_fp16_on_a_processor_is_said_to_change_nothing():
    with pytest.warns(UserWarning, match="changes nothing"):
        fit(make(), precision="fp16", epochs=1)


def test_parameters_that_lie_strided_in_memory_are_updated_by_their_own_gradients():
    """A fused AdamW of torch's mixes them up on a processor."""
    ends = []
    for strided in (False, True):
        network = seeded(mlp)
        last = network[-1]
        wide = torch.zeros(*last.weight.shape[:-1], 2 * last.weight.shape[-1])
        wide[..., ::2] = last.weight.detach()
        last.weight = nn.Parameter(wide[..., ::2] if strided else wide[..., ::2].contiguous())
        fit(posterity.MAP(network), epochs=1)
        ends.append(last.weight.detach().clone())
    torch.testing.assert_close(ends[0], ends[1])
