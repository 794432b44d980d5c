"""Held-out rows in training: how often they are measured, what that costs, and what is seen of work that takes long."""

import itertools
import math
import re

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import posterity
from common import generator, mlp, seeded
from fitting import data, fit, same
from posterity import checkpoints, progress
from posterity.validation import LEAST, Plan, plan


def ibnn(seed: int = 0) -> posterity.IBNN:
    return posterity.IBNN(seeded(mlp, seed), 2, seed=0)


MAKERS = {
    "map": lambda: posterity.MAP(seeded(mlp)),
    "ensemble": lambda: posterity.DeepEnsemble(seeded(mlp), 3, seed=0),
    "bbb": lambda: posterity.BayesByBackprop(seeded(mlp)),
    "ibnn": ibnn,
    "ibnn, three samples": lambda: posterity.IBNN(seeded(mlp), 2, samples=3, seed=0),
}


@pytest.mark.parametrize("name", MAKERS)
def test_held_out_rows_cost_a_third_of_training_at_most(name):
    """In rows times draws; unless they are measured as rarely, and with as few draws, as they ever are."""
    posterior = MAKERS[name]()
    for epochs, rows, held in itertools.product((1, 2, 5, 11, 70, 500), (16, 900, 50_000), (1, 100, 5_000, 10**6)):
        chosen = plan(posterior, epochs, rows, held)
        due = [epoch for epoch in range(1, epochs + 1) if chosen.due(epoch, epochs)]
        assert due[-1] == epochs
        assert min(4, posterior.draws) <= chosen.draws <= min(32, posterior.draws)
        cost = len(due) * held * chosen.draws / (epochs * rows * posterior.samples)
        assert cost <= (1 + chosen.every / epochs) / 3 or len(due) < 2 * LEAST, (epochs, rows, held)
        assert len(due) >= min(epochs, LEAST)
    assert plan(posterior, 70, 900, 100).draws >= min(8, posterior.draws)


def test_what_is_measured_is_what_was_planned():
    """Functions that are drawn on held-out rows are counted, and the epochs that have a record of them."""
    drawn = []

    class Counting(posterity.IBNN):
        def draw(self, n, generator=None, **options):
            drawn.append(n)
            return super().draw(n, generator, **options)

    posterior = Counting(seeded(mlp), 2, seed=0)
    history = fit(posterior, data=data(180), validation=data(30), epochs=48, batch_size=90)
    chosen = plan(posterior, 48, 180, 30)
    assert chosen == Plan(8, 4)  # an epoch affords two draws of the held-out rows
    measured = [record["epoch"] for record in history if "validation" in record]
    assert measured == list(range(4, 49, 4))
    assert drawn == [4] + 12 * [8]  # the first tries two rows
    assert history.best == min((record for record in history if "validation" in record), key=_validation)["epoch"]
    assert "validation" in repr(history)


def _validation(record):
    return record["validation"]


@pytest.mark.parametrize("stop", [5, 13, 14, 20])
def test_a_run_that_is_measured_now_and_then_resumes_and_ends_bit_identical(tmp_path, stop):
    arguments = {"data": data(90), "validation": data(30), "epochs": 12, "batch_size": 45, "lr": 0.05, "beta": 0.0}
    whole = ibnn()
    expected = fit(whole, **arguments)
    assert 1 < len(expected.column("validation")) < 12

    class Stop(Exception):
        pass

    class Stopping(posterity.IBNN):
        steps = 0

        def loss(self, *args, **kwargs):
            self.steps += 1
            if self.steps > stop:
                raise Stop
            return super().loss(*args, **kwargs)

    with pytest.raises(Stop):
        fit(Stopping(seeded(mlp), 2, seed=0), checkpoint=tmp_path, checkpoint_every=0.0, **arguments)
    resumed = ibnn(seed=5)
    history = fit(resumed, checkpoint=tmp_path, **arguments)
    assert same(whole, resumed)
    assert [[r[k] for k in r if k != "seconds"] for r in history] == [
        [r[k] for k in r if k != "seconds"] for r in expected
    ]
    assert history.best == expected.best


class Slow:
    """A clock by which everything takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        self.now += 1.0
        return self.now


class Rows(Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int):
        return data()[0][i]


@pytest.mark.parametrize("slow", [False, True])
def test_a_prediction_that_takes_long_shows_how_far_it_is(capsys, monkeypatch, slow):
    posterior = ibnn()
    clock = Slow()
    if slow:
        monkeypatch.setattr(progress.time, "time", clock.time)
    x, y = data()
    for given in (x, (x,), Rows(), DataLoader(TensorDataset(x, y), 8), x.numpy()):
        for samples in (6, "auto"):
            prediction = posterity.predict(posterior, given, samples, generator(), batch_size=8, progress=True)
            assert len(prediction) == 40
            shown = capsys.readouterr().err
            assert bool(re.search(r"prediction:[^\r]* [1-9][\d.]*/40\.0", shown)) == slow, (given, shown)
            assert bool(shown) == slow
    posterity.predict(posterior, x, 6, generator(), batch_size=8, progress=False)
    posterity.predict(posterior, x, 6, generator(), batch_size=8)  # standard error is no terminal here
    assert capsys.readouterr().err == ""


def test_training_shows_which_stage_it_is_in(capsys, monkeypatch):
    monkeypatch.setattr(progress.time, "time", Slow().time)
    fit(ibnn(), validation=data(20), progress=True)
    shown = capsys.readouterr().err
    assert 0 <= shown.index("training:") < shown.index("validation:") < shown.rindex("training:")
    assert "/20.0" in shown  # held-out rows


def test_a_search_goes_by_the_epochs_that_were_measured(tmp_path):
    pytest.importorskip("optuna")
    from posterity.tuning import Search

    search = Search("ibnn", data(200), lambda: mlp(), posterity.Categorical, tmp_path, epochs=20, batch_size=90)
    search.run(1)
    (trial,) = search.finished
    assert math.isfinite(trial.value)
    assert trial.value == trial.intermediate_values[trial.user_attrs["epoch"]]


def test_a_stream_of_held_out_rows_is_measured_too():
    held = DataLoader(TensorDataset(*data(20)), 8)
    history = fit(ibnn(), validation=held, epochs=2)
    assert len(history.column("validation")) == 2
    assert torch.isfinite(torch.tensor(history.column("validation"))).all()


def test_a_checkpoint_whose_best_epoch_has_no_likelihood_goes_on_without_it(tmp_path):
    """Older ones kept an epoch of NaN."""
    arguments = {"validation": data(20), "epochs": 3, "lr": 0.05}
    whole = ibnn()
    fit(whole, checkpoint=tmp_path, **arguments)
    state = checkpoints.read(tmp_path)
    state.best.update(validation=math.nan, epoch=1, state={k: v * math.nan for k, v in state.posterior.items()})
    checkpoints.write(tmp_path, state)
    resumed = ibnn()
    with pytest.raises(posterity.Error, match="no number"):
        fit(resumed, checkpoint=tmp_path, **arguments)
    state.best["state"] = {name: 2 * value for name, value in state.posterior.items()}
    checkpoints.write(tmp_path, state)
    assert fit(resumed, checkpoint=tmp_path, **arguments).best is None
    assert same(resumed, whole)
