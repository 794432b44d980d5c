"""Training data: tensors, arrays, frames, data sets, loaders and streams; weights and labels of any kind."""

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
            return torch.stack([torch.tensor(float(i)), torch.rand(())]), 0

    rows, noise = [], []
    for rank in (0, 1):
        loader = DataLoader(Drawn(), 8, shuffle=True, num_workers=workers)
        found = torch.cat([batch.x for batch in Batches(loader, None, True, None, rank, 2).epoch(5)])
        rows += found[:, 0].tolist()
        noise += found[:, 1].tolist()
    assert sorted(rows) == list(range(16))
    assert len(set(noise)) == 16


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
