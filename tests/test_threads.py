"""Several threads, and several processes, on one posterior: each gets what it would get alone."""

import concurrent.futures
import multiprocessing
import random
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import posterity
from common import generator, mlp, seeded
from posterity import folding, functions, state

THREADS, ROUNDS = 4, 3
X, Y = torch.randn(9, 5, generator=generator(1)), torch.arange(9) % 3


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


class Keeps(nn.Module):
    """Uses a layer without calling it, and writes down what it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.last = None

    def forward(self, x):
        self.last = torch.tanh(self.first(x))
        return self.head(torch.relu(nn.functional.linear(self.last, self.second.weight, self.second.bias)))


CASES = {
    "map": (posterity.MAP, mlp),
    "ibnn": (lambda net: posterity.IBNN(net, 2, seed=0), mlp),
    "ibnn, a layer that is not called": (lambda net: posterity.IBNN(net, 2, seed=0), Keeps),
    "bbb": (lambda net: posterity.BayesByBackprop(net, init_std=0.1), mlp),
    "bbb, one draw for all": (lambda net: posterity.BayesByBackprop(net, init_std=0.1, estimator="weights"), Keeps),
    "dropout": (posterity.MCDropout, with_dropout),
    "dropout that is added": (lambda net: posterity.MCDropout(net, 0.3), mlp),
    "ensemble": (lambda net: posterity.DeepEnsemble(net, 3, seed=0), mlp),
    "mnf": (lambda net: posterity.MNF(net, seed=0), mlp),
    "bbh": (lambda net: posterity.BayesByHypernet(net, seed=0), mlp),
    "livi": (lambda net: posterity.LIVI(net, seed=0), mlp),
}
FEW = ["ibnn", "bbb", "dropout that is added", "ensemble"]


def made(name: str) -> posterity.Posterior:
    build, network = CASES[name]
    return build(seeded(network))


def jobs(posterior):
    """What threads do with a posterior, each time with numbers of its own."""
    shared = posterior.draw(5, generator(0))

    def loss(seed: int) -> torch.Tensor:
        return posterior.loss(X, Y, size=9, generator=generator(seed)).detach()

    def draw(seed: int) -> torch.Tensor:
        return posterior.draw(4, generator(seed))(X).detach()

    def predict(seed: int) -> torch.Tensor:
        return posterity.predict(posterior, X, 6, generator(seed)).probs

    def call(seed: int) -> torch.Tensor:
        return shared(X[: 1 + seed % 8]).detach()

    def one_by_one(seed: int) -> torch.Tensor:
        return torch.cat([part.detach() for part in alone.stream(X)])

    alone = posterior.draw(3, generator(1))
    alone.fold_from = 0.0 if alone.noise is None or len(alone.sites.names) else None
    return [loss, draw, predict, call, one_by_one]


@pytest.fixture
def impatient():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def mistakes(posterior) -> list[str]:
    work = [(job, seed) for seed in range(ROUNDS) for job in jobs(posterior) for _ in range(2)]
    alone = [job(seed) for job, seed in work]
    start = threading.Barrier(THREADS)

    def part(first: int) -> list[str]:
        start.wait()
        order = work[first:] + work[:first]
        right = alone[first:] + alone[:first]
        return [job.__name__ for (job, seed), own in zip(order, right, strict=True) if not torch.equal(job(seed), own)]

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        tasks = [pool.submit(part, 7 * number) for number in range(THREADS)]
        return sorted({name for task in tasks for name in task.result()})


@pytest.mark.parametrize("name", CASES)
def test_threads_get_what_each_would_get_alone(name, impatient):
    assert mistakes(made(name).eval()) == []


def test_a_posterior_that_nobody_used_yet_is_used_by_several_threads_at_once(impatient):
    for name in FEW:
        expected = [job(3) for job in jobs(made(name).eval())]
        todo = jobs(made(name).eval())
        start = threading.Barrier(len(todo))

        def run(job, start=start):
            start.wait()
            return job(3)

        with concurrent.futures.ThreadPoolExecutor(len(todo)) as pool:
            found = list(pool.map(run, todo))
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True)), name


def test_gradients_of_losses_in_several_threads_are_those_of_each(impatient):
    for name in FEW:
        posterior = made(name)
        parameters = [p for p in posterior.parameters() if p.requires_grad]

        def gradient(seed, posterior=posterior, parameters=parameters):
            loss = posterior.loss(X, Y, size=9, generator=generator(seed))
            return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])

        gradient(0)
        expected = [gradient(seed) for seed in range(12)]
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(gradient, range(12)))
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True)), name


def test_functions_are_drawn_while_the_network_is_under_other_weights():
    posterior = made("bbb, one draw for all").eval()
    inside, drawn = threading.Event(), threading.Event()
    found = []

    class Waits(nn.Module):
        def forward(self, x):
            inside.set()
            drawn.wait(0.3)
            return x

    posterior.network.head = nn.Sequential(posterior.network.head)  # the same parameters, one level deeper
    plain = posterity.BayesByBackprop(posterior.network, init_std=1.0, estimator="weights").eval()
    plain.network.head.append(Waits())
    before = {name: p.clone() for name, p in plain.network.named_parameters()}

    def loss():
        plain.loss(X, Y, size=9, generator=generator(0))

    def draw():
        inside.wait()
        found.append(plain.draw(1, generator(0)))
        drawn.set()

    threads = [threading.Thread(target=target) for target in (loss, draw)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(before[name], p) for name, p in found[0].network.named_parameters())


class Answers(Dataset):
    """Rows and what a posterior and drawn functions say of them, found out by whoever loads them."""

    def __init__(self, posterior, functions) -> None:
        self.posterior, self.functions = posterior, functions

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int):
        x = X[row : row + 1]
        return self.functions(x).detach(), posterity.predict(self.posterior, x, 3, generator(row)).probs


class Collates:
    """Puts answers together, with those of functions of its own to the whole batch."""

    def __init__(self, functions) -> None:
        self.functions = functions

    def __call__(self, batch):
        return self.functions(X[: len(batch)]).detach().sum() + sum(one.sum() + two.sum() for one, two in batch)


def answer(posterior, functions, queue):
    torch.set_num_threads(1)
    queue.put([part.tolist() for part in Answers(posterior, functions)[4]])


@pytest.mark.parametrize("name", FEW)
def test_workers_of_a_loader_give_the_same_numbers(name):
    posterior = made(name).eval()
    data, collate = Answers(posterior, posterior.draw(4, generator(0))), Collates(posterior.draw(2, generator(1)))
    here, there = (list(DataLoader(data, 3, collate_fn=collate, num_workers=workers)) for workers in (0, 2))
    assert torch.equal(torch.stack(here), torch.stack(there))


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_other_processes_give_the_same_numbers(way):
    for name in FEW if way == "fork" else FEW[:1]:
        posterior = made(name).eval()
        functions = posterior.draw(4, generator(0))
        expected = [part.tolist() for part in Answers(posterior, functions)[4]]
        context = multiprocessing.get_context(way)
        queue = context.Queue()
        child = context.Process(target=answer, args=(posterior, functions, queue))
        child.start()
        assert queue.get(timeout=120) == expected
        child.join()


def test_a_process_that_is_forked_while_a_thread_works_can_work_too():
    posterior = made("ibnn").eval()
    functions = posterior.draw(4, generator(0))
    expected = [part.tolist() for part in Answers(posterior, functions)[4]]
    held, done = threading.Event(), threading.Event()

    def hold():
        with state.ONE_AT_A_TIME:
            held.set()
            done.wait(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=answer, args=(posterior, functions, queue))
    child.start()
    try:
        assert queue.get(timeout=30) == expected
    finally:
        done.set()
        thread.join()
        child.kill()
        child.join()


@pytest.mark.parametrize("name", [name for name in CASES if name != "map"])
def test_how_functions_run_makes_no_difference_but_rounding(name, monkeypatch):
    posterior = made(name).eval()
    x = torch.randn(24, 5, generator=generator(2))

    def outputs(**choices) -> list[torch.Tensor]:
        drawn = posterior.draw(12, generator(0))
        for choice, value in choices.items():
            setattr(drawn, choice, value)
        return [drawn(x).detach(), torch.cat([drawn(part).detach() for part in x.split(7)], 1)]

    expected = outputs()[0]
    ways = [{"rows_at_once": rows} for rows in (1, 16, 100, 10**6)] + [{"loops": True}]
    if not isinstance(posterior, posterity.MCDropout):
        ways += [{"fold_from": 0.0}, {"fold_from": float("inf")}, {"fold_from": 0.0, "rows_at_once": 1}]
    found = [(way, output) for way in ways for output in outputs(**way)]
    monkeypatch.setattr(functions, "MOST", 5)
    monkeypatch.setattr(functions, "ALONE", 3)
    monkeypatch.setattr(folding, "ROWS", (0, 0))
    found += [("small parts", output) for output in outputs()]
    for way, output in found:
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5, msg=str(way))


class Draws(Dataset):
    """Rows that are made different by the generators of torch, numpy and Python."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int):
        return X[row] + torch.rand(()) + np.random.rand() + random.random(), Y[row]


def trained(name: str, seed: int, **options) -> list[torch.Tensor]:
    """Parameters and history of a fit, of a data set that draws or of tensors, with held-out rows."""
    with state.ONE_AT_A_TIME:  # which seeds the generators of all threads
        posterior = made(name)
    options = {"epochs": 3, "batch_size": 4, "validation": (X, Y), "seed": seed, "progress": False} | options
    history = posterity.fit(posterior, Draws() if seed % 2 else (X, Y), **options)
    records = [torch.tensor(history.column(key), dtype=torch.float64) for key in ("nll", "divergence", "validation")]
    return [value.clone() for value in posterior.state_dict().values()] + records


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def states() -> list:
    return [torch.get_rng_state().tolist(), random.getstate(), [part.tolist() for part in np.random.get_state()[1:2]]]


@pytest.mark.parametrize("name", ["ibnn", "dropout", "ensemble", "bbb"])
def test_fits_in_threads_train_what_each_trains_alone(name, impatient):
    """While another thread predicts, with the same generators of the process."""
    jobs = [(seed, precision) for seed in (0, 1, 2) for precision in ("no", "bf16")]
    expected = [trained(name, seed, precision=precision) for seed, precision in jobs]
    before, done = states(), threading.Event()
    posterior = made(name).eval()

    def predict() -> None:
        while not done.is_set():
            posterity.predict(posterior, DataLoader(Draws(), 4), 3, generator(0))

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        beside = pool.submit(predict)
        try:
            found = list(pool.map(lambda job: trained(name, job[0], precision=job[1]), jobs))
        finally:
            done.set()
        beside.result()
    assert all(equal(one, other) for one, other in zip(expected, found, strict=True))
    assert states()[0] == before[0]


def test_a_callback_may_fit_and_predict_in_threads_of_its_own():
    expected, inner = trained("ibnn", 1), trained("ibnn", 3)
    within = []

    def callback(record, posterior):
        within.append(trained("ibnn", 3))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for probs in pool.map(lambda seed: posterity.predict(posterior, X, 3, generator(seed)).probs, range(4)):
                assert bool(probs.isfinite().all())
            within.append(pool.submit(trained, "ibnn", 3).result(timeout=60))

    assert equal(trained("ibnn", 1, callbacks=callback), expected)
    assert len(within) == 6
    assert all(equal(one, inner) for one in within)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_seed_decides_what_a_data_set_draws_by_numpy_and_python(workers):
    ends = []
    for seed in (1, 2):
        posterior = made("map")
        data = DataLoader(Draws(), 4, shuffle=True, num_workers=workers)
        random.seed(seed)
        np.random.seed(seed)
        now = states()
        posterity.fit(posterior, data, epochs=2, seed=0, progress=False)
        assert states() == now
        ends.append(list(posterior.state_dict().values()))
    assert equal(*ends)


def test_a_seed_decides_what_an_augmentation_draws_by_numpy_and_python():
    def noisy(x):
        return x + np.random.rand() + random.random()

    ends = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        ends.append(trained("map", 0, augment=noisy))
    assert equal(*ends)


def test_a_worker_that_is_forked_by_a_thread_that_has_the_lock_can_use_threads():
    posterior = made("ibnn").eval()
    expected = posterity.predict(posterior, X, 3, generator(0)).probs.tolist()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def work() -> None:
        torch.set_num_threads(1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            task = pool.submit(lambda: posterity.predict(posterior, X, 3, generator(0)).probs.tolist())
            queue.put(task.result(timeout=30))

    with state.ONE_AT_A_TIME:
        child = context.Process(target=work)
        child.start()
    try:
        assert queue.get(timeout=60) == expected
    finally:
        child.kill()
        child.join()
