"""Images that are shifted and mirrored in every step."""

import pytest
import torch

import posterity
from common import ConvNet, seeded
from posterity.augmentation import CropFlip


def images(n=400):
    return torch.arange(1.0, 1 + n * 2 * 5 * 4).view(n, 2, 5, 4)


def test_without_shift_and_mirror_nothing_changes():
    assert torch.equal(CropFlip(0, flip=False)(images()), images())


def test_half_of_the_images_are_mirrored():
    torch.manual_seed(0)
    x = images()
    out = CropFlip(0)(x)
    mirrored = (out == x.flip(3)).flatten(1).all(1)
    assert bool((mirrored | (out == x).flatten(1).all(1)).all())
    assert abs(int(mirrored.sum()) - 200) < 4 * 10


def test_every_image_is_one_of_the_shifted_ones_and_the_border_is_filled():
    torch.manual_seed(0)
    x, fill = images(300), [-1.0, -2.0]
    out = CropFlip(1, flip=False, fill=fill)(x)
    padded = torch.stack([torch.nn.functional.pad(x[:, c], (1, 1, 1, 1), value=fill[c]) for c in range(2)], 1)
    shifts = [padded[:, :, i : i + 5, j : j + 4] for i in range(3) for j in range(3)]
    same = torch.stack([(out == shifted).flatten(1).all(1) for shifted in shifts])
    assert bool(same.any(0).all())
    counts = same.sum(1)
    assert int(counts.min()) > 10  # of 33 on average


def test_both_at_once_lose_no_more_than_the_border():
    torch.manual_seed(0)
    out = CropFlip(2)(images(50))
    assert set(out.unique().tolist()) <= {0.0, *images(50).flatten().tolist()}


def test_what_is_no_image_is_an_error():
    with pytest.raises(posterity.Error, match="images"):
        CropFlip()(torch.zeros(3, 4))


def test_fit_changes_the_inputs_of_every_step_and_no_others():
    seen = []

    def watching(x):
        seen.append(x.clone())
        return x + 1

    posterior = posterity.MAP(seeded(ConvNet))
    x, y = torch.zeros(8, 1, 6, 6), torch.arange(8) % 3
    posterity.fit(posterior, (x, y), epochs=2, batch_size=4, augment=watching, validation=(x, y), seed=0, device="cpu")
    assert len(seen) == 4
    assert all(bool((part == 0).all()) for part in seen)
    other = posterity.MAP(seeded(ConvNet))
    posterity.fit(other, (x + 1, y), epochs=2, batch_size=4, seed=0, device="cpu")
    plain = posterity.MAP(seeded(ConvNet))
    posterity.fit(plain, (x, y), epochs=2, batch_size=4, augment=lambda x: x + 1, seed=0, device="cpu")
    for a, b in zip(other.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_checkpoint_of_another_augmentation_is_refused(tmp_path):
    x, y = torch.zeros(8, 1, 6, 6), torch.arange(8) % 3
    posterity.fit(posterity.MAP(seeded(ConvNet)), (x, y), epochs=1, seed=0, device="cpu", checkpoint=tmp_path)
    with pytest.raises(posterity.Error, match="augment"):
        posterity.fit(
            posterity.MAP(seeded(ConvNet)), (x, y), epochs=1, seed=0, device="cpu", checkpoint=tmp_path, augment=abs
        )
