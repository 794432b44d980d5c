"""Hugging Face: models through the same calls, inside the Trainer, and in folders beside a pretrained model."""

import copy
import json
import math
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import posterity
from common import generator, seeded
from zoo import Tied

transformers = pytest.importorskip("transformers")
huggingface = posterity.huggingface


SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}


def bert(**options):
    defaults = {"vocab_size": 30, "max_position_embeddings": 12, "num_labels": 3}
    config = transformers.BertConfig(**defaults | SIZES | options)
    return seeded(lambda: transformers.BertForSequenceClassification(config))


def batch(rows=24, seed=1):
    """Sequences of up to eight tokens, whose class is that of the largest token."""
    ids = torch.randint(1, 30, (rows, 8), generator=generator(seed))
    mask = torch.ones_like(ids)
    mask[::3, 5:] = 0
    ids = ids * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": (ids.amax(1) % 3)}


def parts(data):
    return {name: value for name, value in data.items() if name != "labels"}, data["labels"]


def rows_of(data):
    """As tokenised data sets are: one mapping a row."""
    return [{name: value[i] for name, value in data.items()} for i in range(len(data["labels"]))]


def arguments(folder, **options):
    return transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to="none", disable_tqdm=True, logging_strategy="no", seed=0,
        **{"num_train_epochs": 2, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "save_strategy": "no"}
        | options,
    )  # fmt: skip


def same(one, other, x):
    a, b = (posterity.predict(p, x, 6, generator()) for p in (one, other))
    return torch.equal(a.log_probs, b.log_probs) and torch.equal(a.epistemic, b.epistemic)


@pytest.mark.parametrize("name", posterity.methods())
def test_every_method_takes_a_model_as_it_is(name):
    posterior = posterity.methods()[name](bert(), seed=0)
    data = batch()
    x, y = parts(data)
    history = posterity.fit(posterior, (x, y), epochs=1, batch_size=12, seed=0, progress=False)
    assert math.isfinite(history[0]["loss"])
    prediction = posterity.predict(posterior, x, 4, generator())
    assert prediction.probs.shape == (24, 3)
    torch.testing.assert_close(prediction.probs.sum(1), torch.ones(24))


def test_a_loader_of_mappings_and_a_mapping_in_memory_train_as_a_pair_does():
    data = batch()
    x, y = parts(data)
    ends = []
    for given in ((x, y), data, transformers.BatchEncoding(data)):
        posterior = posterity.IBNN(bert(), 2, seed=0)
        posterity.fit(posterior, given, epochs=2, batch_size=8, seed=3, device="cpu", progress=False)
        ends.append(posterior.means)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
    posterior = posterity.IBNN(bert(), 2, seed=0)
    loader = DataLoader(rows_of(data), 8, shuffle=True)
    losses = posterity.fit(posterior, loader, epochs=15, seed=3, device="cpu", progress=False, validation=data).column(
        "nll"
    )
    assert losses[-1] < losses[0]
    assert same(posterior, posterior, DataLoader(rows_of(data), 8))
    with pytest.raises(posterity.Error, match="labels"):
        posterity.fit(posterior, x, epochs=1)


def test_the_answers_are_no_argument_of_the_network():
    """A model that is given labels computes its own loss, in the type that it takes them for: here it must not."""
    network = bert(problem_type="regression")
    posterity.fit(posterity.MAP(network), batch(), epochs=1, progress=False)


def test_real_numbers_and_several_labels_work():
    x, y = parts(batch())
    real = posterity.IBNN(bert(num_labels=1), 2, seed=0)
    posterity.fit(real, (x, y.float()), posterity.Gaussian(), epochs=1, seed=0, progress=False)
    assert posterity.predict(real, x, 4).mean.shape == (24, 1)
    several = posterity.IBNN(bert(), 2, seed=0)
    posterity.fit(several, (x, nn.functional.one_hot(y, 3).float()), posterity.Bernoulli(), epochs=1, progress=False)
    assert posterity.predict(several, x, 4).probs.shape == (24, 3)


def test_the_trainer_does_what_fit_does(tmp_path):
    """One batch a step in the same order, without dropout or noise of draws: MAP ends in the same place."""
    data = batch(8)
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    by_fit, by_trainer = posterity.MAP(bert(**quiet)), posterity.MAP(bert(**quiet))
    posterity.fit(
        by_fit,
        data,
        epochs=5,
        batch_size=8,
        lr=1e-3,
        weight_decay=0.0,
        schedule="constant",
        device="cpu",
        progress=False,
    )
    options = {"num_train_epochs": 5, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    huggingface.Trainer(by_trainer, arguments(tmp_path, **options), train_dataset=rows_of(data)).train()
    for name, value in by_fit.state_dict().items():
        torch.testing.assert_close(by_trainer.state_dict()[name], value, atol=2e-5, rtol=1e-3)


def test_the_trainer_trains_evaluates_and_keeps_its_groups(tmp_path):
    data = batch(48)
    posterior = posterity.IBNN(bert(), 2, seed=0)
    args = arguments(tmp_path, num_train_epochs=12, weight_decay=0.1)
    trainer = huggingface.Trainer(
        posterior, args, lr_posterior=0.02, draws=6, train_dataset=rows_of(data), eval_dataset=rows_of(data),
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(1) == p.label_ids).mean())},
    )  # fmt: skip
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < before["eval_loss"]
    assert after["eval_accuracy"] > before["eval_accuracy"]
    assert trainer.evaluate()["eval_loss"] == after["eval_loss"]
    groups = trainer.optimizer.param_groups
    own = groups[-1]
    assert {id(p) for p in own["params"]} == {id(posterior.means), id(posterior.spreads)}
    assert (own["initial_lr"], own["weight_decay"]) == (0.02, 0.0)
    assert groups[0]["initial_lr"] == 1e-3
    assert groups[0]["weight_decay"] == 0.1
    assert sum(len(group["params"]) for group in groups) == len(list(posterior.parameters()))
    x, y = parts(data)
    expected = posterity.predict(posterior, x, 6, seed=0)
    torch.testing.assert_close(torch.tensor(trainer.predict(rows_of(data)).predictions), expected.log_probs)
    assert after["eval_loss"] == pytest.approx(-float(expected.log_prob(y).mean()), rel=1e-4)


def test_beta_follows_its_schedule_and_the_divergence_is_divided_by_the_size_of_the_data(tmp_path):
    seen = []

    class Recorded(posterity.IBNN):
        def loss(self, *args, **options):
            seen.append((options["beta"], options["size"]))
            return super().loss(*args, **options)

    posterior = Recorded(bert(), 2, seed=0)
    data = rows_of(batch(16))
    huggingface.Trainer(posterior, arguments(tmp_path), beta=("linear", 0.5), train_dataset=data).train()
    assert seen == [(0.0, 16), (0.5, 16), (1.0, 16), (1.0, 16)]
    huggingface.Trainer(posterior, arguments(tmp_path), beta=0.3, size=99, train_dataset=data).train()
    assert seen[4:] == [(0.3, 99)] * 4


def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path):
    ends = []
    for rows, steps in ((8, 1), (4, 2)):
        quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        posterior = posterity.MAP(bert(**quiet))
        options = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": steps, "optim": "sgd"}
        huggingface.Trainer(posterior, arguments(tmp_path, **options), train_dataset=rows_of(batch(8))).train()
        ends.append(posterior.network.classifier.weight)
    torch.testing.assert_close(*ends)


class TiedWords(Tied):
    """With a keyword for its input, as Trainers call a model."""

    def forward(self, input_ids):
        return super().forward(input_ids)


@pytest.mark.parametrize("make", [bert, lambda: seeded(TiedWords)], ids=["bert", "tied"])
def test_a_run_goes_on_from_a_checkpoint_and_ends_where_it_would_have(tmp_path, make):
    data = batch(16)
    if make is not bert:
        data = {"input_ids": data["input_ids"] % 10, "labels": data["input_ids"][:, 0] % 10}
    ends = []
    for resumed in (False, True):
        posterior = posterity.IBNN(make(), 2, seed=0)
        args = arguments(tmp_path, save_strategy="steps", save_steps=2)
        trainer = huggingface.Trainer(posterior, args, train_dataset=rows_of(data))
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2") if resumed else None)
        ends.append(posterior.state_dict())
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    if make is not bert:
        assert posterior.network.head.weight is posterior.network.embed.weight


def test_a_tied_tensor_stands_once_in_the_state_and_comes_back_whole():
    model, other = (huggingface.PosteriorModel(posterity.IBNN(seeded(TiedWords, s), 2, seed=s)) for s in (0, 1))
    state = model.state_dict()
    assert len(state) == len(model.posterior.state_dict()) - 1
    other.load_state_dict(state, strict=True)
    assert torch.equal(other.posterior.network.head.weight, model.posterior.network.embed.weight)


def test_the_best_checkpoint_comes_back(tmp_path):
    data = rows_of(batch(16))
    posterior = posterity.IBNN(bert(), 2, seed=0)
    options = {"save_strategy": "epoch", "eval_strategy": "epoch", "load_best_model_at_end": True}
    trainer = huggingface.Trainer(
        posterior, arguments(tmp_path, **options), draws=4, train_dataset=data, eval_dataset=data
    )
    trainer.train()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(trainer.state.best_metric, rel=1e-5)


def test_mistakes_in_the_trainer_get_a_sentence(tmp_path):
    with pytest.raises(posterity.Error, match="posterior"):
        huggingface.Trainer(bert(), arguments(tmp_path))
    with pytest.raises(posterity.Error, match="smoothing"):
        huggingface.Trainer(posterity.MAP(bert()), arguments(tmp_path, label_smoothing_factor=0.1))
    with pytest.raises(posterity.Error, match="size"):
        huggingface.PosteriorModel(posterity.MAP(bert())).train()(**batch())


def test_frozen_batch_statistics_stay_in_the_trainer():
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).requires_grad_(False)
    model = huggingface.PosteriorModel(posterity.IBNN(network, 2)).train()
    assert network[0].training
    assert not network[1].training
    assert not model.eval().posterior.training


@pytest.mark.parametrize("method", ["map", "dropout", "ibnn", "bbb", "mnf", "ensemble"])
def test_a_folder_gives_the_same_predictions(tmp_path, method):
    posterior = posterity.methods()[method](bert(), seed=0)
    data = batch()
    posterity.fit(posterior, data, epochs=1, seed=0, device="cpu", progress=False)
    huggingface.save_pretrained(posterior, tmp_path)
    state = torch.get_rng_state()
    for loaded in (huggingface.from_pretrained(tmp_path), posterity.load(tmp_path)):
        assert type(loaded) is type(posterior)
        assert not loaded.training
        assert same(loaded, posterior, parts(data)[0])
    assert torch.equal(torch.get_rng_state(), state)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"config.json", "model.safetensors", "posterity_config.json", "posterity.safetensors"}
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert all(torch.equal(v, posterior.network.state_dict()[k]) for k, v in network.state_dict().items())


@pytest.fixture
def base(tmp_path):
    """A pretrained encoder, without a head."""
    config = transformers.BertConfig(vocab_size=5000, **SIZES | {"hidden_size": 64, "intermediate_size": 256})
    seeded(lambda: transformers.BertModel(config)).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def kilobytes(folder):
    return sum(path.stat().st_size for path in folder.iterdir()) / 1000


def test_beside_a_frozen_base_only_the_head_and_the_noise_are_written(tmp_path, base):
    network = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    network.bert.requires_grad_(False)
    posterior = posterity.IBNN(network, 4, layers=["bert.pooler.dense", "classifier"], seed=0)
    data = batch()
    posterity.fit(posterior, data, epochs=2, seed=0, device="cpu", progress=False)
    folder = huggingface.save_pretrained(posterior, tmp_path / "added", base)
    assert kilobytes(base) > 1500
    assert kilobytes(folder) < 10
    assert not (folder / "model.safetensors").exists()
    assert same(huggingface.from_pretrained(folder), posterior, parts(data)[0])
    given = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    assert same(huggingface.from_pretrained(folder, given), posterior, parts(data)[0])
    with pytest.raises(posterity.Error, match="own folder"):
        huggingface.save_pretrained(posterior, base, base)


def test_beside_a_frozen_base_a_gaussian_head_is_kilobytes_too(tmp_path, base):
    network = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    network.bert.requires_grad_(False)
    posterior = posterity.BayesByBackprop(network, layers="classifier", seed=0)
    data = batch()
    posterity.fit(posterior, data, epochs=2, seed=0, device="cpu", progress=False)
    folder = huggingface.save_pretrained(posterior, tmp_path / "added", base)
    assert kilobytes(folder) < 6
    assert same(posterity.load(folder), posterior, parts(data)[0])


def test_a_head_that_the_base_lacks_is_written_even_if_it_could_be_drawn_again(tmp_path, base):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
        posterior = posterity.IBNN(network, 2, layers="classifier", seed=0)
        torch.manual_seed(0)
        folder = huggingface.save_pretrained(posterior, tmp_path / "added", base)
        torch.manual_seed(1)
        assert same(posterity.load(folder), posterior, parts(batch())[0])


@pytest.mark.parametrize("method", ["dropout", "ibnn", "bbb"])
def test_weights_that_moved_are_written_too(tmp_path, base, method):
    network = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    posterior = posterity.methods()[method](network, seed=0)
    data = batch()
    posterity.fit(posterior, data, epochs=1, seed=0, device="cpu", progress=False)
    folder = huggingface.save_pretrained(posterior, tmp_path / "added", base)
    assert same(posterity.load(folder), posterior, parts(data)[0])


def test_a_head_of_another_size_comes_back(tmp_path, base):
    bert(vocab_size=5000).save_pretrained(tmp_path / "three")
    from_three = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "three", num_labels=5, ignore_mismatched_sizes=True
    )
    posterior = posterity.IBNN(from_three, 2, seed=0)
    folder = huggingface.save_pretrained(posterior, tmp_path / "added", tmp_path / "three")
    assert same(posterity.load(folder), posterior, parts(batch())[0])


def test_a_likelihoods_noise_and_the_choice_of_layers_come_back(tmp_path):
    posterior = posterity.IBNN(bert(num_labels=1), 2, layers="*.output.dense", seed=0)
    posterior.likelihood = posterity.Gaussian(initial=0.3)
    loaded = posterity.load(huggingface.save_pretrained(posterior, tmp_path))
    assert torch.equal(loaded.likelihood.log_std, posterior.likelihood.log_std)
    assert loaded.sites.names == posterior.sites.names


def test_the_trainer_saves_what_is_loaded_by_one_call(tmp_path):
    posterior = posterity.IBNN(bert(), 2, seed=0)
    trainer = huggingface.Trainer(posterior, arguments(tmp_path), train_dataset=rows_of(batch()))
    trainer.train()
    trainer.save_model(str(tmp_path / "model"))
    assert same(posterity.load(tmp_path / "model"), posterior, parts(batch())[0])
    assert posterity.load(tmp_path / "model").training_size == len(batch()["labels"])
    tied = posterity.IBNN(seeded(TiedWords), 2, seed=0)
    huggingface.Trainer(tied, arguments(tmp_path)).save_model(str(tmp_path / "tied"))
    fresh = bert()
    with torch.no_grad():
        for p in fresh.parameters():
            p.normal_(generator=generator(9))
    assert same(posterity.load(tmp_path / "model", fresh), posterior, parts(batch())[0])
    x = {"input_ids": batch()["input_ids"] % 10}
    assert same(posterity.load(tmp_path / "tied", seeded(TiedWords, 1)), tied, x)


def test_a_network_of_another_shape_is_refused_where_the_folder_holds_the_model(tmp_path):
    huggingface.save_pretrained(posterity.MAP(bert()), tmp_path)
    with pytest.raises(posterity.Error, match="another architecture"):
        posterity.load(tmp_path, bert(num_labels=7))


def test_a_network_that_is_not_the_base_is_warned_of(tmp_path, base):
    network = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    folder = huggingface.save_pretrained(posterity.IBNN(network, 2, seed=0), tmp_path / "added", base)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterity.load(folder)
        posterity.load(folder, copy.deepcopy(network))
        other = copy.deepcopy(network)
        with torch.no_grad():
            other.bert.pooler.dense.weight.add_(1.0)
        with pytest.raises(UserWarning, match="laid over"):
            posterity.load(folder, other)


def test_folders_that_hold_no_model_say_what_to_do(tmp_path):
    trainer = huggingface.Trainer(
        posterity.IBNN(bert(), 2, seed=0), arguments(tmp_path), train_dataset=rows_of(batch())
    )
    trainer.train()
    trainer._save_checkpoint(trainer.model, trial=None)
    (checkpoint,) = tmp_path.glob("checkpoint-*")
    with pytest.raises(posterity.Error, match=r"resume_from_checkpoint.*save_model"):
        posterity.load(checkpoint)
    bert().save_pretrained(tmp_path / "plain")
    with pytest.raises(posterity.Error, match="without a posterior"):
        posterity.load(tmp_path / "plain", bert())


def change(folder, **values):
    path = folder / "posterity_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    "values",
    [
        {"architecture": "Trainer"},
        {"architecture": "os.system"},
        {"architecture": "PreTrainedModel"},
        {"architecture": "GPT2Model"},
        {"architecture": None},
        {"base": "no/such/folder/at/all"},
        {"base": 7},
        {"method": "nonsense"},
        {"format": 9},
        {"arguments": {"layers": ["not there"]}},
    ],
    ids=str,
)
def test_hostile_configurations_are_an_error(tmp_path, values):
    huggingface.save_pretrained(posterity.IBNN(bert(), 2, seed=0), tmp_path)
    change(tmp_path, **values)
    with pytest.raises(posterity.Error):
        posterity.load(tmp_path)


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a file of a stranger was executed",))


def test_no_code_of_a_stranger_runs(tmp_path):
    huggingface.save_pretrained(posterity.IBNN(bert(), 2, seed=0), tmp_path)
    config = tmp_path / "config.json"
    auto = {"AutoModelForSequenceClassification": "evil.Model", "AutoConfig": "evil.Config"}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"auto_map": auto}))
    (tmp_path / "evil.py").write_text("raise SystemExit('a file of a stranger was executed')")
    posterity.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(posterity.Error, match="base model"):
        posterity.load(tmp_path)
    (tmp_path / "posterity.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(posterity.Error, match="damaged"):
        posterity.load(tmp_path)


def test_networks_of_your_own_are_saved_by_the_library(tmp_path):
    with pytest.raises(posterity.Error, match=r"posterity\.save"):
        huggingface.save_pretrained(posterity.IBNN(seeded(TiedWords), 2), tmp_path)


def gpt2():
    config = transformers.GPT2Config(vocab_size=30, n_positions=12, n_embd=16, n_layer=2, n_head=2, eos_token_id=0)
    return seeded(lambda: transformers.GPT2LMHeadModel(config))


def test_a_language_model_predicts_the_next_token_with_its_uncertainty(tmp_path):
    data = batch(16)
    ids = data["input_ids"]
    labels = ids.masked_fill(data["attention_mask"] == 0, -100)
    network = gpt2().eval()
    with torch.no_grad():
        expected = 0.0
        for row, label in zip(ids, labels, strict=True):
            logits = network(input_ids=row[None]).logits[0, :-1]
            expected -= float(nn.functional.cross_entropy(logits, label[1:], ignore_index=-100, reduction="sum"))
    alone = posterity.MAP(network)
    alone.likelihood = posterity.Tokens(shift=True)
    inputs = {"input_ids": ids}
    assert float(posterity.predict(alone, inputs).log_prob(labels).sum()) == pytest.approx(expected, rel=1e-4)
    assert float(alone.loss(inputs, labels, size=1).detach()) == pytest.approx(-expected / 16, rel=1e-4)
    posterior = posterity.IBNN(network, 2, layers=["lm_head"], seed=0)
    history = posterity.fit(
        posterior, (inputs, labels), posterity.Tokens(shift=True), epochs=3, seed=0, device="cpu", progress=False
    )
    assert history[-1]["nll"] < history[0]["nll"]
    prediction = posterity.predict(posterior, inputs, 4, generator())
    assert prediction.probs.shape == (16, 30, 8)
    assert prediction.epistemic.shape == (16, 8)
    assert prediction.logits.shape == (16, 8, 30)
    folder = huggingface.save_pretrained(posterior, tmp_path / "lm")
    loaded = posterity.load(folder)
    assert loaded.likelihood.shift
    assert loaded.network.lm_head.weight is loaded.network.transformer.wte.weight
    assert same(loaded, posterior, inputs)


def test_a_class_for_every_token_is_trained_in_the_trainer(tmp_path):
    data = batch(16) | {"labels": batch(16)["input_ids"] % 3}
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=12, num_labels=3, **SIZES)
    posterior = posterity.IBNN(seeded(lambda: transformers.BertForTokenClassification(config)), 2, seed=0)
    posterior.likelihood = posterity.Tokens()
    trainer = huggingface.Trainer(
        posterior, arguments(tmp_path, num_train_epochs=6, learning_rate=5e-3), draws=4, train_dataset=rows_of(data)
    )
    before = trainer.predict(rows_of(data))
    trainer.train()
    after = trainer.predict(rows_of(data))
    assert after.predictions.shape == (16, 8, 3)
    assert after.metrics["test_loss"] < before.metrics["test_loss"]


def test_mistakes_with_tokens_get_a_sentence():
    tokens = posterity.Tokens()
    with pytest.raises(posterity.Error, match="every token"):
        tokens.log_prob(torch.zeros(2, 4, 3), torch.zeros(4, dtype=torch.long))
    x = [{"input_ids": torch.ones(2, n, dtype=torch.long)} for n in (4, 5)]
    posterior = posterity.MAP(gpt2())
    posterior.likelihood = tokens
    with pytest.raises(posterity.Error, match="pad"):
        posterity.predict(posterior, DataLoader(x, None))


def test_the_trainer_clips_each_member_of_an_ensemble_alone(tmp_path):
    data = batch()
    posterior = posterity.DeepEnsemble(bert(), 2, seed=0)
    with torch.no_grad():
        posterior.flat[1] *= 3
    trainer = huggingface.Trainer(posterior, arguments(tmp_path, max_grad_norm=0.01), train_dataset=rows_of(data))
    trainer.create_optimizer_and_scheduler(1)
    if not hasattr(transformers.Trainer, "_clip_grad_norm"):
        pytest.skip("this Trainer clips where it trains")
    trainer.model(**data)["loss"].backward()
    before = posterior.flat.grad.norm(dim=1)
    trainer._clip_grad_norm(trainer.model)
    assert bool((before > 0.01).all())
    torch.testing.assert_close(posterior.flat.grad.norm(dim=1), torch.full((2,), 0.01), rtol=1e-3, atol=0)
