"""A disk that is full: it is said so, nothing that was there is harmed, and with room the same call goes on."""

import contextlib
import errno
import resource

import pytest
import safetensors.torch
import torch

import posterity
from common import generator, mlp, seeded

X, Y = torch.randn(24, 5, generator=generator(1)), torch.arange(24) % 3


@contextlib.contextmanager
def small_files():
    """No file can grow beyond 200 bytes; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def full():
    """A file of tensors is half written when there is no more room."""

    def half(tensors, path, metadata=None):
        content = safetensors.torch.save(tensors, metadata)
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", half)
        yield


def train(folder, room=contextlib.nullcontext, lasts=10):
    """A run of four epochs that saves after each step; after `lasts` of them there is only so much room."""
    posterior = posterity.IBNN(seeded(mlp), 2, seed=0)
    with contextlib.ExitStack() as stack:

        def fill(record, posterior):
            if record["epoch"] == lasts:
                stack.enter_context(room())

        history = posterity.fit(
            posterior,
            (X, Y),
            epochs=4,
            batch_size=8,
            seed=0,
            device="cpu",
            checkpoint=folder,
            checkpoint_every=0.0,
            callbacks=[fill],
            progress=False,
        )
    return posterior, history


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize(("room", "why"), [(full, "No space left on device"), (small_files, "File too large")])
def test_a_run_ends_with_a_sentence_and_goes_on_when_there_is_room(tmp_path, room, why):
    expected, records = train(tmp_path / "whole")
    kept = {}

    @contextlib.contextmanager
    def noted():
        kept.update(files(tmp_path / "run"))
        with room():
            yield

    with pytest.raises(posterity.Error, match=f"checkpoint.*{why}.*What was saved before is still there"):
        train(tmp_path / "run", noted, lasts=2)
    assert list(kept) == ["checkpoint.safetensors"]
    assert files(tmp_path / "run") == kept
    posterior, history = train(tmp_path / "run")
    assert same(posterior, expected)
    assert [r["loss"] for r in history] == [r["loss"] for r in records]


@pytest.mark.parametrize(("room", "why"), [(full, "No space left on device"), (small_files, "File too large")])
def test_a_failed_save_leaves_the_model_that_was_there(tmp_path, room, why):
    first, second = (posterity.IBNN(seeded(mlp, seed), 2, seed=seed) for seed in (0, 1))
    posterity.save(first, tmp_path / "model")
    before = files(tmp_path / "model")
    for network in (True, False):
        with room(), pytest.raises(posterity.Error, match=why):
            posterity.save(second, tmp_path / "model", network=network)
        assert files(tmp_path / "model") == before
    assert same(posterity.load(tmp_path / "model", seeded(mlp, 2)), first)
    posterity.save(second, tmp_path / "model")
    assert same(posterity.load(tmp_path / "model", seeded(mlp, 2)), second)


def test_a_model_that_lacks_room_for_its_last_file_replaces_nothing(tmp_path, monkeypatch):
    first, second = (posterity.IBNN(seeded(mlp, seed), 2, seed=seed) for seed in (0, 1))
    folder = posterity.save(first, tmp_path / "model")
    before = files(folder)

    def refuse(self, text):
        self.write_bytes(text.encode()[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "write_text", refuse)
        with pytest.raises(posterity.Error, match="No space left"):
            posterity.save(second, folder)
    assert files(folder) == before


def test_a_new_model_that_finds_no_room_leaves_no_folder(tmp_path):
    with small_files(), pytest.raises(posterity.Error, match="File too large"):
        posterity.save(posterity.MAP(seeded(mlp)), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_pretrained_model_that_finds_no_room_leaves_what_was_there(tmp_path):
    transformers = pytest.importorskip("transformers")
    from posterity.pretrained import save_pretrained

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=12, **small)

    def make():
        return posterity.IBNN(transformers.BertForSequenceClassification(config), 2, seed=0)

    first, second = (seeded(make, seed) for seed in (0, 1))
    save_pretrained(first, tmp_path)
    before = files(tmp_path)
    with small_files(), pytest.raises(posterity.Error, match="Cannot write"):
        save_pretrained(second, tmp_path)
    assert files(tmp_path) == before
