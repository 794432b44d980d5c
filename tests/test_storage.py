"""Model folders: what is written, what is read back, and what strangers' folders can do (nothing)."""

import json
import os
import pickle
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import posterity
from common import ConvNet, generator, mlp, seeded


@pytest.fixture
def folder(tmp_path):
    posterior = posterity.IBNN(seeded(mlp), 3, prior_std=0.2, seed=0)
    posterior.likelihood = posterity.Gaussian(initial=0.7)
    return posterity.save(posterior, tmp_path / "model")


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


class Squashed(posterity.networks.MLP):
    def forward(self, x):
        return super().forward(x.tanh())


def test_a_network_that_is_not_what_its_recipe_builds_must_be_given(tmp_path):
    """A subclass, or one whose parts were replaced, would come back as another function."""
    changed = posterity.networks.MLP(2, 3, [4])
    name = next(name for name, module in changed.named_modules() if isinstance(module, nn.ReLU))
    parent, _, key = name.rpartition(".")
    setattr(changed.get_submodule(parent), key, nn.Tanh())
    for place, network in (("subclass", Squashed(2, 3, [4])), ("changed", changed)):
        posterior = posterity.MAP(network)
        folder = posterity.save(posterior, tmp_path / place)
        with pytest.raises(posterity.Error, match="network"):
            posterity.load(folder)
        assert type(posterity.load(folder, network).network) is type(network)
    folder = posterity.save(posterity.MAP(posterity.networks.MLP(2, 3, [4])), tmp_path / "plain")
    assert isinstance(posterity.load(folder).network, posterity.networks.MLP)


def test_everything_comes_back(tmp_path):
    posterior = posterity.IBNN(
        seeded(ConvNet), 5, samples=2, prior_std=0.4, kl="mean_of_kls", gamma=1.5, noise="both", bias_noise=True,
        per_layer=True, assignment="authors", layers=["first", "head"], seed=0,
    )  # fmt: skip
    posterior.likelihood = posterity.Categorical(weight=[1.0, 2.0, 3.0], ignore=7)
    posterity.save(posterior, tmp_path)
    loaded = posterity.load(tmp_path, seeded(ConvNet, 1))
    assert loaded.config() == posterior.config()
    assert loaded.likelihood.config() == posterior.likelihood.config()
    assert all(torch.equal(v, loaded.state_dict()[k]) for k, v in posterior.state_dict().items())
    assert not loaded.training


def test_a_prior_for_each_node_comes_back(tmp_path):
    prior = torch.linspace(0.1, 0.5, 13)
    posterity.save(posterity.IBNN(seeded(mlp), 2, prior_std=prior), tmp_path)
    torch.testing.assert_close(posterity.load(tmp_path, seeded(mlp)).prior_std, prior)


@pytest.mark.parametrize(
    "likelihood",
    [
        posterity.Categorical(),
        posterity.Bernoulli(),
        posterity.Gaussian(std=0.3),
        posterity.Gaussian(std=[0.1, 0.2, 0.3]),
        posterity.Gaussian(initial=0.4),
        posterity.Gaussian(initial=[0.1, 0.2, 0.3]),
        posterity.Gaussian(heteroscedastic=True),
    ],
)
def test_likelihoods_come_back_with_their_noise(tmp_path, likelihood):
    posterior = posterity.MAP(seeded(mlp))
    posterior.likelihood = likelihood
    posterity.save(posterior, tmp_path)
    loaded = posterity.load(tmp_path, seeded(mlp)).likelihood
    assert type(loaded) is type(likelihood)
    assert all(torch.equal(v, loaded.state_dict()[k]) for k, v in likelihood.state_dict().items())


@pytest.mark.parametrize("name", ["bbb", "mnf", "bbh", "livi"])
def test_what_numpy_gave_is_saved(tmp_path, name):
    network = seeded(mlp)
    prior = np.full(sum(p.numel() for p in network.parameters()), 0.5, dtype=np.float32)
    options = {"noise_size": np.int64(3)} if name == "livi" else {}
    posterior = posterity.methods()[name](network, prior_std=prior, **options)
    posterity.save(posterior, tmp_path)
    assert posterity.load(tmp_path, seeded(mlp)).config() == posterior.config()


def test_the_librarys_networks_need_not_be_given(tmp_path):
    network = posterity.networks.LeNet(width=1)
    posterior = posterity.IBNN(network, 2, seed=0)
    posterity.save(posterior, tmp_path)
    state = torch.get_rng_state()
    loaded = posterity.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    x = torch.randn(2, 1, 28, 28)
    torch.testing.assert_close(loaded.draw(3, generator())(x), posterior.eval().draw(3, generator())(x))
    posterity.save(posterity.MAP(seeded(mlp)), tmp_path / "other")
    with pytest.raises(posterity.Error, match="architecture"):
        posterity.load(tmp_path / "other")


def test_what_a_posterior_adds_is_laid_over_trained_weights(tmp_path):
    trained = posterity.networks.VGG16()
    posterior = posterity.IBNN(trained, 4, seed=0)
    posterity.save(posterior, tmp_path, network=False)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size < 400_000 < 4 * sum(p.numel() for p in trained.parameters())
    assert not (tmp_path / "network.safetensors").exists()
    other = posterity.networks.VGG16()
    other.load_state_dict(trained.state_dict())
    x = torch.randn(2, 3, 32, 32)
    loaded = posterity.load(tmp_path, other)
    torch.testing.assert_close(loaded.draw(2, generator())(x), posterior.eval().draw(2, generator())(x))
    with pytest.raises(posterity.Error, match="weights"):
        posterity.load(tmp_path)


def test_the_configuration_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "config.json").write_text('{"port": 80}')
    with pytest.raises(posterity.Error, match="is of something else"):
        posterity.save(posterity.MAP(seeded(mlp)), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == {"port": 80}
    (tmp_path / "config.json").write_text('{"port')
    posterity.load(posterity.save(posterity.MAP(seeded(mlp)), tmp_path), seeded(mlp))


def test_what_is_laid_over_other_weights_warns(tmp_path):
    posterity.save(posterity.IBNN(seeded(mlp)), tmp_path, network=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterity.load(tmp_path, seeded(mlp))
    with pytest.warns(UserWarning, match="network with other weights"):
        posterity.load(tmp_path, mlp())


@pytest.mark.skipif(os.name == "nt", reason="modes of files are POSIX's")
def test_files_have_the_mode_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        folder = posterity.save(posterity.IBNN(seeded(mlp)), tmp_path / "m")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}


def test_tied_weights_are_written_once_and_stay_tied(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.tanh(self.a(x)))

    posterior = posterity.IBNN(seeded(Tied), 2, seed=0)
    posterity.save(posterior, tmp_path)
    assert len(load_file(tmp_path / "network.safetensors")) == 1
    loaded = posterity.load(tmp_path, seeded(Tied, 1))
    assert loaded.network.a.weight is loaded.network.b.weight
    x = torch.randn(3, 4)
    torch.testing.assert_close(loaded.draw(2, generator())(x), posterior.eval().draw(2, generator())(x))


def test_saving_twice_replaces(tmp_path):
    first, second = (posterity.IBNN(seeded(mlp, s), 2, seed=s) for s in (0, 1))
    posterity.save(first, tmp_path)
    posterity.save(second, tmp_path)
    assert torch.equal(posterity.load(tmp_path, seeded(mlp)).means, second.means)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "network.safetensors",
        "posterior.safetensors",
    ]


@pytest.mark.parametrize("name", ["config.json", "network.safetensors", "posterior.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "junk", "pickle", "folder"])
def test_damaged_files_are_an_error(folder, name, damage):
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(
            {
                "empty": b"",
                "cut": content[: len(content) // 2],
                "junk": os.urandom(500),
                "pickle": pickle.dumps(Evil()),
            }[damage]
        )
    with pytest.raises(posterity.Error):
        posterity.load(folder, seeded(mlp))


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a file of a stranger was executed",))


@pytest.mark.parametrize(
    "values",
    [
        {"format": 2},
        {"format": None},
        {"method": "nonsense"},
        {"method": ["ibnn"]},
        {"arguments": []},
        {"arguments": {"components": 10**9}},
        {"arguments": {"components": "3"}},
        {"arguments": {"components": 3, "surprise": 1}},
        {"arguments": {"components": 3, "prior_std": [0.1] * 7}},
        {"arguments": {"components": 3, "prior_std": "x"}},
        {"arguments": {"components": 3, "layers": ["not there"]}},
        {"arguments": {"components": 3, "layers": 7}},
        {"arguments": {"components": 2}},
        {"arguments": {"components": 3, "output": []}},
        {"arguments": {"components": 3, "prior_std": 10**400}},
        {"arguments": {"components": 3, "gamma": "x"}},
        {"format": True},
        {"likelihood": {"name": "os.system"}},
        {"likelihood": {"name": []}},
        {"likelihood": {"name": "gaussian", "std": -1}},
        {"likelihood": {"name": "gaussian", "surprise": 1}},
        {"likelihood": "gaussian"},
        {"holds_network": 1},
        {"preprocessing": {"kind": "nonsense"}},
        {"preprocessing": 7},
    ],
    ids=str,
)
def test_hostile_configurations_are_an_error(folder, values):
    change(folder, **values)
    with pytest.raises(posterity.Error):
        posterity.load(folder, seeded(mlp))


@pytest.mark.parametrize(
    "recipe",
    [
        {"name": "os.system", "arguments": {"command": "true"}},
        {"name": "mlp", "arguments": {"inputs": 10**9, "outputs": 10**9}},
        {"name": "mlp", "arguments": {"inputs": "a"}},
        {"name": "mlp"},
        "mlp",
        7,
    ],
    ids=str,
)
def test_hostile_networks_are_an_error(folder, recipe):
    change(folder, network=recipe)
    with pytest.raises(posterity.Error):
        posterity.load(folder)


def test_deeply_nested_json_is_an_error(folder):
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(posterity.Error):
        posterity.load(folder)


def test_another_architecture_is_an_error_and_changes_nothing(folder):
    for make in (lambda: mlp(6, 3), lambda: mlp(5, 4), ConvNet, lambda: nn.Linear(5, 3)):
        network = seeded(make)
        before = {k: v.clone() for k, v in network.state_dict().items()}
        with pytest.raises(posterity.Error, match="architecture"):
            posterity.load(folder, network)
        assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())


def test_other_tensors_in_the_posteriors_file_are_an_error(folder):
    path = folder / "posterior.safetensors"
    for change_of in (
        lambda s: s.pop("means"),
        lambda s: s.update(more=torch.ones(1)),
        lambda s: s.update({"network.0.weight": torch.ones(8, 5)}),
        lambda s: s.update(means=s["means"] * torch.nan),
        lambda s: s.update(means=s["means"].to(torch.int8)),
    ):
        kept = path.read_bytes()
        state = load_file(path)
        change_of(state)
        save_file(state, path)
        network = seeded(mlp)
        with pytest.raises(posterity.Error):
            posterity.load(folder, network)
        assert all(torch.equal(v, seeded(mlp).state_dict()[k]) for k, v in network.state_dict().items())
        path.write_bytes(kept)


def test_double_precision_comes_back(tmp_path):
    posterity.save(posterity.IBNN(posterity.networks.MLP(3, 2).double(), 2), tmp_path)
    assert posterity.load(tmp_path).means.dtype == torch.float64


def test_layers_whose_names_look_like_patterns_come_back(tmp_path):
    def make() -> nn.Module:
        return nn.ModuleDict({"a[0]": nn.Linear(3, 2), "b": nn.Linear(3, 2)})

    posterity.save(posterity.IBNN(make(), 2, layers=["a[0]"]), tmp_path)
    assert posterity.load(tmp_path, make()).sites.names == ["a[0]"]


def test_only_the_librarys_own_can_be_saved(tmp_path):
    class Mine(posterity.MAP):
        pass

    with pytest.raises(posterity.Error, match="Mine"):
        posterity.save(Mine(seeded(mlp)), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(posterity.Error, match="write"):
        posterity.save(posterity.MAP(seeded(mlp)), tmp_path / "file" / "model")


def test_a_folder_of_models_is_told_from_a_model(tmp_path):
    posterity.save(posterity.MAP(posterity.networks.MLP(2, 3)), tmp_path / "run" / "models" / "map")
    with pytest.raises(posterity.Error, match=r"Did you mean .*models/map\?"):
        posterity.load(tmp_path / "run")


class Masked(nn.Module):
    """With a mask of −∞, a buffer that is no number, and complex ones."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(5, 3)
        self.turn = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.register_buffer("mask", torch.full((6, 6), -torch.inf).triu(1))
        self.register_buffer("unknown", torch.full((2,), torch.nan))
        self.register_buffer("angles", torch.polar(torch.ones(5), torch.arange(5.0)))

    def forward(self, x):
        return self.last((x * self.turn * self.angles).real)


@pytest.mark.parametrize("method", ["map", "ibnn", "dropout"])
def test_masks_and_complex_numbers_come_back(tmp_path, method):
    x, y = torch.randn(40, 5, generator=generator()), torch.arange(40) % 3
    posterior = posterity.methods()[method](seeded(Masked), seed=0)

    def run(posterior, epochs):
        return posterity.fit(
            posterior, (x, y), epochs=epochs, seed=0, device="cpu", checkpoint=tmp_path / "run", progress=False
        )

    run(posterior, 2)
    again = posterity.methods()[method](seeded(Masked, 1), seed=0)
    run(again, 2)
    posterity.save(posterior, tmp_path / "model")
    loaded = posterity.load(tmp_path / "model", seeded(Masked, 1))
    for other in (again, loaded):
        for name, value in posterior.state_dict().items():
            assert torch.equal(value.nan_to_num(nan=7.0), other.state_dict()[name].nan_to_num(nan=7.0))
    weights = load_file(tmp_path / "model" / "network.safetensors")
    for name, value in (("last.bias", torch.full((3,), torch.nan)), ("mask", torch.full((6, 6), torch.inf))):
        save_file(weights | {name: value}, tmp_path / "model" / "network.safetensors")
        with pytest.raises(posterity.Error, match=f"{name} holds NaN or infinite values"):
            posterity.load(tmp_path / "model", seeded(Masked, 1))


def test_what_is_no_tensor_is_refused_before_training(tmp_path):
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

        def set_extra_state(self, state):
            pass

    posterior = posterity.MAP(Extra(5, 3))
    with pytest.raises(posterity.Error, match="_extra_state is a dict and cannot be saved"):
        posterity.save(posterior, tmp_path / "model")
    with pytest.raises(posterity.Error, match="_extra_state is a dict and cannot be saved"):
        posterity.fit(posterior, (torch.randn(8, 5), torch.arange(8) % 3), epochs=1, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("size", [0, -3, 2.5, "many", True, [7]])
def test_a_training_size_that_is_none_is_an_error_and_older_folders_have_none(tmp_path, size):
    posterity.save(posterity.MAP(nn.Linear(2, 3)), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in config.items() if key != "training_size"}))
    assert posterity.load(tmp_path, nn.Linear(2, 3)).training_size is None
    path.write_text(json.dumps(config | {"training_size": size}))
    with pytest.raises(posterity.Error, match="training_size"):
        posterity.load(tmp_path, nn.Linear(2, 3))
