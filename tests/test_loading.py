"""Training data: tensors, arrays, frames, data sets, loaders and streams; weights and labels of any kind."""

import random
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import posterity
from common import ConvNet, generator, mlp, seeded
from fitting import data, fit, make, same
from posterity.holdout import hold_out
from posterity.loading import Batches, default_batch_size


class Items(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return data()[0][i], data()[1][i]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(list(zip(*data(), strict=True)))

    def __len__(self):
        raise TypeError


def test_every_kind_of_data_trains():
    x, y = data()
    for kind in ((x.numpy(), y.numpy()), TensorDataset(x, y), Items(), DataLoader(Items(), 16, shuffle=True)):
        first, second = make(), make()
        fit(first, data=kind)
        fit(second, data=kind)
        assert same(first, second)
    assert same(*(_fitted(kind) for kind in ((x, y), TensorDataset(x, y))))
    with pytest.raises(posterity.Error, match="length"):
        fit(make(), data=DataLoader(Stream(), 8))


def _fitted(kind):
    posterior = make()
    fit(posterior, data=kind)
    return posterior


def test_the_data_size_scales_the_divergence_not_the_batch():
    recorded = []

    class Spy(posterity.MAP):
        def loss(self, *args, **kwargs):
            recorded.append(kwargs["size"])
            return super().loss(*args, **kwargs)

    fit(Spy(seeded(mlp)), batch_size=8, epochs=1)
    assert set(recorded) == {40}
    recorded.clear()
    fit(Spy(seeded(mlp)), batch_size=8, epochs=1, size=1234)
    assert set(recorded) == {1234}


def test_every_row_is_seen_once_an_epoch_and_a_lone_last_row_joins_the_others():
    x = torch.arange(33.0)[:, None]
    batches = Batches((x, x), 8, shuffle=True)
    sizes, rows = [], []
    for batch in batches.epoch(3):
        sizes.append(len(batch.x))
        rows += batch.x[:, 0].tolist()
    assert sizes == [8, 8, 8, 9]
    assert len(batches) == 4
    assert sorted(rows) == list(range(33))
    assert rows != sorted(rows)
    fit(posterity.MAP(ConvNet()), data=(torch.randn(33, 1, 6, 6), torch.zeros(33, dtype=torch.long)), batch_size=16)


def test_default_batch_sizes():
    assert [default_batch_size(n) for n in (1, 500, 2_000, 60_000)] == [16, 16, 64, 128]


def test_sample_weights_of_zero_remove_a_datum():
    x, y = data()
    weight = torch.ones(40)
    weight[20:] = 0
    spoiled = y.clone()
    spoiled[20:] = 0
    first, second = make(), make()
    fit(first, data=(x, y, weight))
    fit(second, data=(x, spoiled, weight))
    assert same(first, second)


def test_frames_and_lists_are_data_too():
    x, y = data()
    losses = []
    for given in (
        (x, y),
        (x.tolist(), y.tolist()),
        (pd.DataFrame(x.numpy()), pd.Series(y.numpy(), index=range(5, 45))),
    ):
        losses.append(posterity.fit(posterity.MAP(seeded(mlp)), given, epochs=2, seed=0, progress=False)[-1]["loss"])
    assert losses[0] == losses[1] == losses[2]
    with pytest.raises(posterity.Error, match="of the same length"):
        posterity.predict(posterity.MAP(seeded(mlp)), [[1.0, 2.0], [3.0]])
    backwards = x.numpy()[::-1].astype(">f4")
    prediction = posterity.predict(posterity.MAP(seeded(mlp)), backwards)
    torch.testing.assert_close(prediction.probs, posterity.predict(posterity.MAP(seeded(mlp)), x.flip(0)).probs)
    with pytest.raises(posterity.Error, match="hides some of its values"):
        posterity.predict(posterity.MAP(seeded(mlp)), np.ma.masked_greater(x.numpy(), 0))


class Noisy(Dataset):
    """Augments at random."""

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return data()[0][i] + 0.1 * torch.randn(5), data()[1][i]


def loaders():
    pair = TensorDataset(*data())
    return {
        "plain": lambda: DataLoader(pair, 8, shuffle=True),
        "own generator": lambda: DataLoader(pair, 8, shuffle=True, generator=generator(3)),
        "augmented": lambda: DataLoader(Noisy(), 8, shuffle=True),
        "dataset": Noisy,
    }


@pytest.mark.parametrize("kind", ["plain", "own generator", "augmented", "dataset"])
def test_a_seed_decides_what_a_loader_gives_and_a_stopped_run_resumes(tmp_path, kind):
    class Stop(Exception):
        pass

    class Stopping(posterity.IBNN):
        steps = 0

        def loss(self, *args, **kwargs):
            self.steps += 1
            if self.steps == 8:
                raise Stop
            return super().loss(*args, **kwargs)

    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(make())
        fit(results[-1], data=loaders()[kind](), batch_size=8, epochs=2)
    assert same(*results)
    with pytest.raises(Stop):
        fit(
            Stopping(seeded(mlp), 3, seed=0),
            data=loaders()[kind](),
            batch_size=8,
            epochs=2,
            checkpoint=tmp_path,
            checkpoint_every=0.0,
        )
    resumed = make()
    fit(resumed, data=loaders()[kind](), batch_size=8, epochs=2, checkpoint=tmp_path)
    assert same(results[0], resumed)


def test_data_without_a_length_train_by_size():
    history = fit(make(), data=Stream(), size=40, batch_size=8, epochs=2)
    assert [record["step"] for record in history] == [5, 10]


def test_whole_batches_without_a_length_are_told_what_is_missing():
    whole = DataLoader(Stream(), batch_size=None)
    with pytest.raises(posterity.Error, match="the number of batches"):
        fit(make(), data=whole, size=40, epochs=2)


@pytest.mark.filterwarnings("ignore:The data give more")
@pytest.mark.parametrize("size", [24, 40, 64], ids=["more than its size", "its size", "less than its size"])
def test_a_stream_of_any_length_resumes_in_the_epoch_in_which_it_was_stopped(tmp_path, size):
    class Stop(Exception):
        pass

    class Stopping(posterity.IBNN):
        def loss(self, *args, **kwargs):
            self.left -= 1
            if self.left < 0:
                raise Stop
            return super().loss(*args, **kwargs)

    settings = {"size": size, "batch_size": 8, "epochs": 3}
    whole = make()
    expected = fit(whole, data=Stream(), **settings)
    assert [record["step"] for record in expected] == [5, 10, 15]
    for left in (7, 5, 1):
        stopping = Stopping(seeded(mlp), 3, seed=0)
        stopping.left = left
        with pytest.raises(Stop):
            fit(stopping, data=Stream(), checkpoint=tmp_path, checkpoint_every=0.0, **settings)
    resumed = make()
    for _ in range(2):  # the second time there is nothing left to do
        history = fit(resumed, data=Stream(), checkpoint=tmp_path, **settings)
        assert [record["step"] for record in history] == [5, 10, 15]
        assert history.column("loss") == pytest.approx(expected.column("loss"))
        assert same(whole, resumed)


def test_the_rows_of_a_loader_are_those_that_it_gives():
    x, y = data(200)
    pairs, rows = TensorDataset(x, y), list(range(20))
    weighed = []
    for given, options in (
        ((x[:20], y[:20]), {"batch_size": 10}),
        (DataLoader(pairs, 10, sampler=SubsetRandomSampler(rows)), {}),
        (DataLoader(pairs, batch_sampler=BatchSampler(SubsetRandomSampler(rows), 10, False)), {}),
        (DataLoader(pairs, 10, sampler=rows), {}),
        (DataLoader(pairs, 10, sampler=SequentialSampler(rows)), {}),
        (DataLoader(pairs, batch_sampler=[rows[:10], rows[10:]]), {}),
        (DataLoader([(x[:10], y[:10]), (x[10:20], y[10:20])], batch_size=None), {"size": 20}),
    ):
        record = fit(posterity.BayesByBackprop(seeded(mlp), seed=0), data=given, epochs=1, beta=1.0, **options)[0]
        weighed.append(record["loss"] - record["nll"])
    assert weighed == pytest.approx([weighed[0]] * 7, rel=0.01)
    with pytest.raises(posterity.Error, match="gives whole batches: give size="):
        fit(make(), data=DataLoader([(x, y)], batch_size=None))


def test_a_loader_that_draws_its_order_says_so_in_a_prediction():
    x, y = data(30)
    posterior, pairs = posterity.MAP(seeded(mlp)), TensorDataset(x, y)
    posterior.likelihood = posterity.Categorical()
    for sampler in (SubsetRandomSampler(range(20)), WeightedRandomSampler([1.0] * 30, 30), RandomSampler(pairs)):
        for loader in (
            DataLoader(pairs, 10, sampler=sampler),
            DataLoader(pairs, batch_sampler=BatchSampler(sampler, 10, False)),
        ):
            with pytest.warns(UserWarning, match="in its order"):
                posterity.predict(posterior, loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterity.predict(posterior, DataLoader(pairs, 10, sampler=[3, 1, 2]))


class Times(IterableDataset):
    """So many times 40 rows; the first pass alone, if it is one that cannot start anew."""

    def __init__(self, times, again=True):
        self.times, self.again, self.passes = times, again, 0

    def __iter__(self):
        self.passes += 1
        rows = list(zip(*data(), strict=True))
        return iter(rows * self.times if self.again or self.passes == 1 else [])


def test_rates_follow_epochs_however_long_a_stream_is():
    expected = fit(make(), data=Times(1), size=40, batch_size=8)
    with pytest.warns(UserWarning, match="more than 5 batches, which size=40 stands for"):
        longer = fit(make(), data=Times(2), size=40, batch_size=8)
    shorter = fit(make(), data=Times(1), size=80, batch_size=8)
    assert [len(longer), longer[-1]["step"]] == [3, 30]
    for key in ("lr", "beta"):
        last = [history.column(key) for history in (expected, longer, shorter)]
        assert last[1] == last[0]
        assert last[2] == pytest.approx(last[0], abs=0.25 * max(last[0]))


@pytest.mark.parametrize(("given", "epoch"), [(Times(0), 1), (Times(1, again=False), 2)])
def test_an_epoch_without_a_batch_is_an_error(given, epoch):
    with pytest.raises(posterity.Error, match=f"no batch in epoch {epoch}: a stream must start anew"):
        fit(make(), data=given, size=40, batch_size=8)


def test_a_stream_may_have_a_length():
    class Counted(Times):
        def __len__(self):
            return 40

    assert [record["step"] for record in fit(make(), data=Counted(1), batch_size=8, epochs=2)] == [5, 10]


def test_a_run_does_not_go_on_with_batches_of_another_size(tmp_path):
    pairs = TensorDataset(*data())
    fit(make(), data=DataLoader(pairs, 8), checkpoint=tmp_path)
    with pytest.raises(posterity.Error, match="a run with another steps"):
        fit(make(), data=DataLoader(pairs, 32), checkpoint=tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_data_set_draws_differs_from_process_to_process(workers):
    class Drawn(Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, i):
            return torch.tensor([float(i), torch.rand(()), np.random.rand(), random.random()]), 0

    rows, noise = [], []
    for rank in (0, 1):
        loader = DataLoader(Drawn(), 8, shuffle=True, num_workers=workers)
        found = torch.cat([batch.x for batch in Batches(loader, None, True, None, rank, 2).epoch(5)])
        rows += found[:, 0].tolist()
        noise += found[:, 1:].flatten().tolist()
    assert sorted(rows) == list(range(16))
    assert len(set(noise)) == 48


def test_a_lone_last_row_of_a_dataset_does_not_stop_batch_statistics():
    pairs = [(torch.randn(1, 6, 6), i % 3) for i in range(33)]

    class Pairs(Dataset):
        def __len__(self):
            return 33

        def __getitem__(self, i):
            return pairs[i]

    fit(posterity.MAP(ConvNet()), data=Pairs(), batch_size=16, epochs=1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(posterity.Error, match="one has a single row: take larger batches, or a loader with drop_last"):
        fit(posterity.MAP(network), data=DataLoader(Pairs(), 16), epochs=1)


def test_weights_of_the_wrong_shape_do_not_broadcast():
    x, y = data()
    weight = torch.rand(40)
    first, second = make(), make()
    fit(first, data=(x, y, weight))
    fit(second, data=(x, y, weight[:, None]))
    assert same(first, second)
    with pytest.raises(posterity.Error, match="weight"):
        make().loss(x, y, size=40, weight=torch.ones(40, 2))


def test_answers_far_from_standard_are_worth_a_word():
    x = torch.randn(20, 5)
    for y, said in ((100 + x[:, :1], True), (1000 * x[:, :1], True), (x[:, :1], False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterity.fit(posterity.MAP(nn.Linear(5, 1)), (x, y), posterity.Gaussian(), epochs=1, progress=False)
        assert any("standardise them" in str(w.message) for w in caught) == said


def test_labels_of_which_none_is_observed_are_refused():
    with pytest.raises(posterity.Error, match="All labels are -100"):
        posterity.fit(posterity.MAP(mlp()), (torch.randn(4, 5), torch.full((4,), -100)), epochs=1)


def test_labels_may_lie_backwards_or_in_another_byte_order():
    x, y = data()
    ends = []
    for labels in (y.numpy(), y.numpy()[::-1].copy()[::-1], y.numpy().astype(">i8")):
        posterior = make()
        fit(posterior, data=(x.numpy(), labels))
        ends.append(posterior)
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])


class Rows(Dataset):
    """Each row's number, of so many."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        return torch.tensor([float(i)]), i % 3


class Streamed(IterableDataset):
    def __init__(self, rows, known=True):
        self.rows, self.known = Rows(rows), known

    def __iter__(self):
        return (self.rows[i] for i in range(len(self.rows)))

    def __len__(self):
        if not self.known:
            raise TypeError
        return len(self.rows)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 10, 16, 17, 18, 33])
def test_a_lone_last_row_joins_the_others_whatever_holds_the_data(rows):
    x = torch.arange(float(rows))[:, None]
    expected = [len(batch.x) for batch in Batches((x, x), 8, shuffle=True).epoch(3)]
    for kind in (Rows(rows), Streamed(rows), Streamed(rows, known=False)):
        batches = Batches(kind, 8, shuffle=True)
        found = list(batches.epoch(3))
        assert [len(batch.x) for batch in found] == expected
        assert sorted(torch.cat([batch.x for batch in found])[:, 0].tolist()) == list(range(rows))
        batches.size = rows
        assert len(batches) == len(expected)
        shares = [list(Batches(kind, 8, True, None, rank, 2).epoch(3)) for rank in (0, 1)]
        assert [one.share.rows for one in shares[0]] == expected
        if rows % 8 > 1:  # a batch of one row is in both processes
            halves = [part.x[:, 0] for pair in zip(*shares, strict=True) for part in pair]
            assert sorted(torch.cat(halves).tolist()) == list(range(rows))


def test_rows_held_out_have_their_part_of_each_class():
    """A class of a hundredth of the rows is held out in its part, whatever the seed, and keeps rows to learn from."""
    y = torch.cat([torch.zeros(790), torch.ones(200), torch.full((10,), 2), torch.tensor([3, 4])]).long()
    x = torch.arange(len(y), dtype=torch.float64)[:, None]
    chosen = []
    for seed in range(20):
        (train, labels), (held, held_labels) = hold_out((x, y), 0.1, seed)
        counts = torch.bincount(held_labels, minlength=5)
        assert counts[:3].tolist() == pytest.approx([79, 20, 1], abs=1)
        assert counts[3:].tolist() == [0, 0]
        assert len(held) == 100
        assert sorted(torch.cat([train, held])[:, 0].tolist()) == list(range(len(y)))
        assert all(torch.equal(y[rows[:, 0].long()], own) for rows, own in ((train, labels), (held, held_labels)))
        chosen.append(held[:, 0].tolist())
    assert len({tuple(sorted(rows)) for rows in chosen}) == 20
    every = [row for rows in chosen for row in rows]
    low = sum(row < 395 for row in every) / sum(row < 790 for row in every)
    assert low == pytest.approx(0.5, abs=4 * (0.25 / 1580) ** 0.5)  # four standard errors


@pytest.mark.parametrize("shape", [(), (1,)])
def test_rows_held_out_of_real_targets_have_their_part_of_each_range(shape):
    """Their mean differs from that of all by far less than that of as many rows by chance."""
    y = torch.randn(500, generator=generator()).reshape(-1, *shape)
    means = torch.stack([hold_out((y, y), "auto", seed)[1][1].mean() for seed in range(20)])
    by_chance = float(y.std()) / 50**0.5
    assert float((means - y.mean()).square().mean().sqrt()) < 0.4 * by_chance


def test_rows_held_out_of_targets_of_several_numbers_are_chosen_by_chance():
    y = torch.randn(100, 2, generator=generator())
    held = [hold_out((y, y), 0.2, seed)[1][0] for seed in (0, 0, 1)]
    assert torch.equal(held[0], held[1])
    assert not torch.equal(held[0], held[2])


def test_a_row_of_weight_two_is_the_row_twice():
    """In N times the loss and its gradient, of which the KL divergence counts once."""
    x, y = data(12)
    weight = torch.tensor([2.0, 0.0, 3.0, 1.0] * 3)
    twice = weight.long()
    ends = []
    for rows, labels, weights in ((x, y, weight), (x.repeat_interleave(twice, 0), y.repeat_interleave(twice), None)):
        posterior = posterity.BayesByBackprop(seeded(mlp), estimator="weights", init_std=0.3)
        loss = posterior.loss(rows, labels, size=len(rows), weight=weights, generator=generator()) * len(rows)
        loss.backward()
        ends.append(torch.cat([loss.detach()[None], *(p.grad.flatten() for p in posterior.variational())]))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-4)


def test_weights_that_let_the_prior_win_are_a_warning():
    x, y = data()
    for weight, total in ((torch.full((40,), 1 / 40), "sum to 1\\."), (torch.full((40,), 1e3), "sum to 40,000")):
        for given in ((x, y, weight), TensorDataset(x, y, weight), DataLoader(TensorDataset(x, y, weight), 8)):
            with pytest.warns(UserWarning, match=total) as told:
                fit(make(), data=given)
            assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = torch.zeros(40)
        few[:2] = 1.0  # the others are left out
        for weight in (few, torch.rand(40, generator=generator())):
            fit(make(), data=(x, y, weight), epochs=1)
            fit(make(), data=DataLoader(TensorDataset(x, y, weight), 8), validation=(x, y, weight / 40), epochs=1)
