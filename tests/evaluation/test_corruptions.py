import itertools
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import posterity
from common import generator
from posterity.datasets.preprocessing import ImagePreprocessing
from posterity.errors import Error
from posterity.evaluation import corruptions
from posterity.evaluation.corruptions import CORRUPTIONS, in_pixels, load_cifar_c, under

MIXING = [corruptions.gaussian_mixing, corruptions.salt_and_pepper_mixing]
PIXELS = [corruptions.additive_gaussian, corruptions.salt_and_pepper, corruptions.rotate, *CORRUPTIONS.values()]


def name(function):
    return function.__name__


def images(n=4, channels=3, side=32, seed=0):
    """Smooth pixels from 0 to 1, with black and white among them."""
    coarse = torch.rand(n, channels, 5, 5, generator=generator(seed), dtype=torch.float64)
    return (1.4 * nn.functional.interpolate(coarse, (side, side), mode="bilinear") - 0.2).clamp(0, 1)


def everyone(x, function):
    """A function of one number, element by element."""
    return torch.tensor([function(value) for value in x.flatten().tolist()], dtype=x.dtype).view(x.shape)


@pytest.mark.parametrize("corruption", [*MIXING, *PIXELS], ids=name)
def test_strength_zero_is_the_identity(corruption):
    x = images()
    assert torch.equal(corruption(x, 0, generator=generator()), x)


@pytest.mark.parametrize("corruption", [*MIXING, *PIXELS], ids=name)
def test_the_same_generator_gives_the_same_images_and_the_given_ones_stay(corruption):
    x = images()
    before, state, strength = x.clone(), torch.get_rng_state(), 3 if corruption in CORRUPTIONS.values() else 0.3
    once, again = (corruption(x, strength, generator=generator(5)) for _ in range(2))
    assert torch.equal(once, again)
    assert once.shape == x.shape
    assert once.dtype == x.dtype
    assert not torch.equal(once, x)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("corruption", PIXELS, ids=name)
def test_pixels_stay_between_black_and_white(corruption):
    worse = corruption(images(), 5 if corruption in CORRUPTIONS.values() else 0.9, generator=generator())
    assert float(worse.min()) >= 0
    assert float(worse.max()) <= 1


@pytest.mark.parametrize("corruption", PIXELS, ids=name)
def test_rounding_beyond_black_and_white_is_forgiven(corruption):
    """What standardising and its inverse leave: rates below zero would stop the Poisson noise."""
    x = images().float()
    worse = corruption(torch.where(x == 0, -1e-6, torch.where(x == 1, 1 + 1e-6, x)), 1, generator=generator())
    assert torch.equal(worse, corruption(x, 1, generator=generator()))


def test_gaussian_mixing_is_equation_28():
    x = 3 * torch.randn(2, 3, 4, 4, generator=generator(1))
    noise = torch.randn(2, 3, 4, 4, generator=generator(2))
    for gamma in corruptions.GAUSSIAN_LEVELS:
        expected = (1 - gamma) * x + gamma * noise
        assert torch.allclose(corruptions.gaussian_mixing(x, gamma, generator(2)), expected, atol=1e-6)


def test_salt_and_pepper_mixing_sets_two_shares_of_p_to_zero_and_one():
    x = 3 + torch.randn(10, 3, 40, 40, generator=generator(1), dtype=torch.float64)
    u = torch.rand(x.shape, generator=generator(2), dtype=torch.float64)
    for p in corruptions.SALT_AND_PEPPER_LEVELS:
        worse = corruptions.salt_and_pepper_mixing(x, p, generator(2))
        pairs = zip(x.flatten().tolist(), u.flatten().tolist(), strict=True)
        assert worse.flatten().tolist() == [0.0 if v < p else 1.0 if v > 1 - p else value for value, v in pairs]
        standard_error = math.sqrt(p * (1 - p) / x.numel())
        assert abs(float((worse == 0).double().mean()) - p) <= 4 * standard_error
        assert abs(float((worse == 1).double().mean()) - p) <= 4 * standard_error


def test_dead_pixels_lose_all_of_their_channels():
    x = 0.25 + 0.5 * images(20)
    worse = corruptions.salt_and_pepper(x, 0.3, generator())
    black, white = (worse == 0).all(1), (worse == 1).all(1)
    changed = (worse != x).any(1)
    assert torch.equal(changed, black | white)
    standard_error = math.sqrt(0.15 * 0.85 / changed.numel())
    assert abs(float(black.double().mean()) - 0.15) < 4 * standard_error
    assert abs(float(white.double().mean()) - 0.15) < 4 * standard_error


@pytest.mark.parametrize(("severity", "std"), [(1, 0.04), (2, 0.06), (3, 0.08), (4, 0.09), (5, 0.1)])
def test_gaussian_noise_has_the_spread_of_its_severity(severity, std):
    x = torch.full((5, 3, 32, 32), 0.5)
    noise = corruptions.gaussian_noise(x, severity, generator()) - x
    assert abs(float(noise.std()) - std) < 4 * std / math.sqrt(2 * x.numel())


@pytest.mark.parametrize(("severity", "c"), [(1, 500), (2, 250), (3, 100), (4, 75), (5, 50)])
def test_shot_noise_counts_photons(severity, c):
    x = torch.full((5, 3, 32, 32), 0.4, dtype=torch.float64)
    worse = corruptions.shot_noise(x, severity, generator())
    counts = worse * c
    variance = 0.4 / c
    assert torch.allclose(counts, counts.round(), atol=1e-9)
    assert abs(float(worse.mean()) - 0.4) < 4 * math.sqrt(variance / x.numel())
    # Var of the sample variance of Poisson(λ): (2 λ² + λ) / n, in units of counts⁴
    assert abs(float(counts.var()) - 0.4 * c) < 4 * math.sqrt((2 * (0.4 * c) ** 2 + 0.4 * c) / x.numel())


@pytest.mark.parametrize(("severity", "share"), [(1, 0.01), (2, 0.02), (3, 0.03), (4, 0.05), (5, 0.07)])
def test_impulse_noise_changes_its_share_of_elements(severity, share):
    x = torch.full((10, 3, 32, 32), 0.5)
    worse = corruptions.impulse_noise(x, severity, generator())
    for value in (0, 1):
        observed = float((worse == value).double().mean())
        assert abs(observed - share / 2) < 4 * math.sqrt(share / 2 / x.numel())


@pytest.mark.parametrize(("severity", "radius", "alias"), [(1, 0.3, 0.4), (3, 0.5, 0.6), (4, 1, 0.2), (5, 1.5, 0.1)])
def test_defocus_blur_is_a_softened_disk(severity, radius, alias):
    x = images(1, 1, 9)
    near = range(-8, 9)
    disk = {(i, j): float(i * i + j * j <= radius**2) for i in near for j in near}
    total = sum(disk.values())
    line = [math.exp(-(i**2) / (2 * alias**2)) for i in (-1, 0, 1)]
    blurred = {
        (i, j): sum(
            disk.get((i + a, j + b), 0.0) / total * line[a + 1] * line[b + 1] / sum(line) ** 2
            for a in (-1, 0, 1)
            for b in (-1, 0, 1)
        )
        for i in near
        for j in near
    }
    mirrored = np.pad(x[0, 0].numpy(), 8, mode="reflect")
    expected = [
        [sum(w * mirrored[8 + r + i, 8 + c + j] for (i, j), w in blurred.items()) for c in range(9)] for r in range(9)
    ]
    worse = corruptions.defocus_blur(x, severity)[0, 0]
    assert torch.allclose(worse, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize(("severity", "c"), [(1, 0.05), (2, 0.1), (3, 0.15), (4, 0.2), (5, 0.3)])
def test_brightness_raises_the_value_of_hsv(severity, c):
    import colorsys

    x = images(1, side=8)
    x[0, :, 0, 0] = 0
    worse = corruptions.brightness(x, severity)
    for row in range(8):
        for column in range(8):
            h, s, v = colorsys.rgb_to_hsv(*x[0, :, row, column].tolist())
            assert worse[0, :, row, column].tolist() == pytest.approx(colorsys.hsv_to_rgb(h, s, min(v + c, 1)))


@pytest.mark.parametrize(("severity", "c"), [(1, 0.75), (2, 0.5), (3, 0.4), (4, 0.3), (5, 0.15)])
def test_contrast_shrinks_towards_each_channels_mean(severity, c):
    x = images(2, side=6)
    worse = corruptions.contrast(x, severity)
    for image in range(2):
        for channel in range(3):
            plane = x[image, channel]
            mean = sum(plane.flatten().tolist()) / 36
            expected = everyone(plane, lambda value, mean=mean: (value - mean) * c + mean)
            assert torch.allclose(worse[image, channel], expected, atol=1e-12)


@pytest.mark.parametrize(("severity", "c"), [(1, 0.95), (2, 0.9), (3, 0.85), (4, 0.75), (5, 0.65)])
@pytest.mark.parametrize("side", [32, 28])
def test_pixelate_agrees_with_pillow(severity, c, side):
    x = images(1, 1, side).float()
    small = Image.fromarray(x[0, 0].numpy()).resize((int(side * c), int(side * c)), Image.Resampling.BOX)
    expected = torch.tensor(np.array(small.resize((side, side), Image.Resampling.BOX)))
    assert torch.allclose(corruptions.pixelate(x, severity)[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("corruption", CORRUPTIONS.values(), ids=name)
def test_a_higher_severity_changes_images_more(corruption):
    """Of unrelated pixels: in smooth images 27 pixels of 32 lie nearer to the whole than 28, in Pillow as well."""
    x = torch.rand(8, 3, 32, 32, generator=generator())
    moved = [float((corruption(x, s, generator=generator(3)) - x).square().mean()) for s in range(6)]
    assert all(a < b for a, b in itertools.pairwise(moved))


@pytest.mark.parametrize(("corruption", "levels"), [*zip(MIXING, [(0, 0.2, 0.6, 1), (0, 0.1, 0.3, 0.5)], strict=True),
    (corruptions.additive_gaussian, (0, 0.1, 0.3, 1)), (corruptions.salt_and_pepper, (0, 0.1, 0.5, 1)),
    (corruptions.rotate, (0, 5, 20, 45))])  # fmt: skip
def test_more_strength_changes_images_more(corruption, levels):
    x = images(8)
    moved = [float((corruption(x, level, generator=generator(3)) - x).square().mean()) for level in levels]
    assert all(a < b for a, b in itertools.pairwise(moved))


@pytest.mark.parametrize("quarters", [1, 2, 3, -1, 5])
@pytest.mark.parametrize("side", [7, 8])
def test_quarter_turns_are_those_of_rot90(quarters, side):
    x = images(2, side=side)
    assert torch.allclose(corruptions.rotate(x, 90 * quarters), torch.rot90(x, quarters, (2, 3)), atol=1e-9)


def test_a_rotation_keeps_the_shape_of_what_is_in_a_wide_image():
    """A square in the middle of a wide image, turned by a quarter, is the square turned by a quarter."""
    x = torch.zeros(1, 1, 9, 21, dtype=torch.float64)
    square = images(1, 1, 5)
    x[..., 2:7, 8:13] = square
    turned = corruptions.rotate(x, 90)
    assert torch.allclose(turned[..., 2:7, 8:13], torch.rot90(square, 1, (2, 3)), atol=1e-9)
    assert float(turned.sum()) == pytest.approx(float(square.sum()))


def test_in_pixels_works_on_what_was_standardised():
    x, mean, std = images(), [0.5, 0.4, 0.3], [0.2, 0.3, 0.1]
    shift, scale = (torch.tensor(v, dtype=x.dtype)[:, None, None] for v in (mean, std))
    worse = in_pixels(corruptions.shot_noise, mean, std)((x - shift) / scale, 4, generator=generator())
    assert torch.allclose(worse * scale + shift, corruptions.shot_noise(x, 4, generator()), atol=1e-9)
    grey = in_pixels(corruptions.contrast, 0.1, 0.3)((x - 0.1) / 0.3, 2)
    assert torch.allclose(grey * 0.3 + 0.1, corruptions.contrast(x, 2), atol=1e-9)


class Pixels(nn.Module):
    """The middle pixels, weighted."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * 16, 4)

    def forward(self, x):
        return self.head(nn.functional.adaptive_avg_pool2d(x, 4).flatten(1))


@pytest.fixture
def posterior():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = posterity.BayesByBackprop(Pixels())
    found.preprocessing = ImagePreprocessing(channels=3, size=(32, 32), scale=255.0, mean=[0.5] * 3, std=[0.25] * 3)
    return found


def test_under_gives_the_scores_of_the_corrupted_prediction(posterior):
    x = ((images(12) - 0.5) / 0.25).float()
    y = torch.arange(12) % 4
    lines = under(posterior, x, y, "contrast", samples=7, generator=generator(1))
    assert [line["severity"] for line in lines] == [0, 1, 2, 3, 4, 5]
    draws, _ = corruptions.seeds(2, generator(1))
    for line in lines:
        worse = in_pixels(corruptions.contrast, 0.5, 0.25)(x, int(line["severity"]))
        prediction = posterity.predict(posterior, worse, 7, generator(draws))
        assert line["error"] == float((prediction.probs.argmax(1) != y).double().mean())
        assert line["nll"] == pytest.approx(-float(prediction.log_prob(y).double().mean()))
        assert line["total"] == pytest.approx(line["aleatoric"] + line["epistemic"], abs=1e-6)
        assert line["epistemic"] == pytest.approx(float(prediction.epistemic.double().mean()))


def test_under_is_paired_and_repeatable(posterior):
    x = ((images(6) - 0.5) / 0.25).float()
    y = torch.arange(6) % 4
    state = torch.get_rng_state()
    lines = under(posterior, x, y, corruptions.gaussian_mixing, [0.5, 0.5, 0], samples=3, generator=generator(2))
    again = under(posterior, x, y, corruptions.gaussian_mixing, [0.5, 0.5, 0], samples=3, generator=generator(2))
    other = under(posterior, x, y, corruptions.gaussian_mixing, [0.5], samples=3, generator=generator(3))
    assert lines[0] == lines[1]
    assert lines == again
    assert lines[:1] != other
    assert lines[0] != lines[2]
    assert torch.equal(torch.get_rng_state(), state)


def test_under_takes_regression():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 1))
    posterior = posterity.BayesByBackprop(network)
    posterior.likelihood = posterity.Gaussian(std=0.5)
    lines = under(posterior, images(6, side=8).float(), torch.zeros(6, 1), corruptions.contrast, samples=4)
    assert {"rmse", "nll", "crps", "total"} <= set(lines[0])


def archive(folder, n=3, **parts):
    pixels = np.random.default_rng(0).integers(0, 256, (5 * n, 32, 32, 3), dtype=np.uint8)
    for part, array in ({"fog": pixels, "labels": np.arange(5 * n, dtype=np.uint8) % 10} | parts).items():
        np.save(folder / f"{part}.npy", array, allow_pickle=True)
    return pixels


def test_cifar_c_is_read_by_severity(tmp_path):
    pixels = archive(tmp_path)
    for severity in range(1, 6):
        x, y = load_cifar_c(tmp_path, "fog", severity)
        rows = slice(3 * severity - 3, 3 * severity)
        assert x.dtype == torch.uint8
        assert np.array_equal(x.permute(0, 2, 3, 1).numpy(), pixels[rows])
        assert y.tolist() == [i % 10 for i in range(rows.start, rows.stop)]
        assert y.dtype == torch.int64


@pytest.mark.parametrize("parts", [
    {"fog": np.zeros((15, 3, 32, 32), np.uint8)}, {"fog": np.zeros((15, 32, 32, 3))},
    {"fog": np.zeros((14, 32, 32, 3), np.uint8)}, {"fog": np.zeros((0, 32, 32, 3), np.uint8)},
    {"fog": np.array([{}] * 15, dtype=object)}, {"fog": np.uint8(3)},
    {"labels": np.zeros(14, np.uint8)}, {"labels": np.zeros(15)}, {"labels": np.array([None] * 15)},
])  # fmt: skip
def test_damaged_archives_are_refused(tmp_path, parts):
    archive(tmp_path, **parts)
    with pytest.raises(Error, match=r"npy"):
        load_cifar_c(tmp_path, "fog", 1)


def test_other_files_names_and_severities_are_refused(tmp_path):
    archive(tmp_path)
    (tmp_path / "inner").mkdir()
    archive(tmp_path / "inner")
    with pytest.raises(Error, match="plain word"):
        load_cifar_c(tmp_path / "inner", "../fog", 1)
    (tmp_path / "snow.npy").write_bytes(b"no array")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "fog.npy").read_bytes()[:1000])
    for word, severity in [("snow", 1), ("cut", 1), ("frost", 1), ("../fog", 1), ("", 1), ("..", 1), ("fog", 0), ("fog", 6)]:  # fmt: skip # noqa: E501
        with pytest.raises(Error):
            load_cifar_c(tmp_path, word, severity)


@pytest.mark.parametrize("corruption", PIXELS, ids=name)
@pytest.mark.parametrize("x", [2 * images(), images() - 0.5, images()[0], images() * math.nan, torch.zeros(2, 3, 8, 8, dtype=torch.uint8)])  # fmt: skip # noqa: E501
def test_what_is_no_pixel_is_refused(corruption, x):
    with pytest.raises(Error, match=r"Images|Pixels"):
        corruption(x, 1)


def test_bad_strengths_are_refused(posterior):
    x = images()
    for corruption in CORRUPTIONS.values():
        for severity in (-1, 6, 1.5, "1"):
            with pytest.raises(Error, match="severity"):
                corruption(x, severity)
    for corruption, strength in [(MIXING[0], 1.1), (MIXING[1], 0.6), (MIXING[0], -0.1), (PIXELS[0], -1), (PIXELS[1], 1.1), (PIXELS[2], math.nan)]:  # fmt: skip # noqa: E501
        with pytest.raises(Error):
            corruption(x, strength)
    with pytest.raises(Error, match="numbers"):
        corruptions.gaussian_mixing(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 0.5)
    with pytest.raises(Error, match="channel"):
        in_pixels(corruptions.contrast, [0.5, 0.5], 1.0)(x, 1)
    with pytest.raises(Error, match="no corruption"):
        under(posterior, x.float(), torch.zeros(4), "fog")
    posterior.preprocessing = None
    with pytest.raises(Error, match="in_pixels"):
        under(posterior, x.float(), torch.zeros(4), "contrast")
    with pytest.raises(Error, match="3 × 3"):
        corruptions.defocus_blur(x[..., :2, :2], 1)
