import numpy as np
import pytest
import torch
from PIL import Image

from posterity import datasets
from posterity.datasets import folders
from posterity.errors import Error


def save(path, level=0, size=(20, 30), mode="RGB"):
    """Save an image of one grey level; size is (width, height)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, level).convert(mode).save(path)


def folder(root, mode="RGB", each=5, **options):
    for level, name in ((10, "cat"), (200, "dog")):
        for i in range(each):
            save(root / name / f"{i}.png", level + i, mode=mode, **options)
    return root


def test_subfolders_are_classes(tmp_path):
    data = datasets.load(folder(tmp_path / "pets"))
    assert data.name == "pets"
    assert data.preprocessing.classes == ["cat", "dog"]
    assert data.train[0].shape == (8, 3, 30, 20)
    assert data.test[1].tolist() == [0, 1]
    assert data.train[0].mean().item() == pytest.approx(0, abs=1e-5)
    assert data.train[0][data.train[1] == 0].max() < data.train[0][data.train[1] == 1].min()


def test_grey_images_have_one_channel_and_large_ones_shrink(tmp_path):
    root = folder(tmp_path / "pets", mode="L", size=(300, 150))
    save(root / "cat" / "odd.jpg", size=(40, 40), mode="L")
    assert datasets.load(root).train[0].shape[1:] == (1, 32, 64)
    save(root / "cat" / "colour.png", mode="RGB")
    assert datasets.load(root).train[0].shape[1:] == (3, 32, 64)


def test_train_and_test_folders_are_kept_apart(tmp_path):
    folder(tmp_path / "pets" / "train", each=5)
    folder(tmp_path / "pets" / "test", each=2)
    data = datasets.load(tmp_path / "pets")
    assert (len(data.train[1]), len(data.test[1])) == (10, 4)
    assert data.preprocessing.classes == ["cat", "dog"]


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    root = folder(tmp_path / "pets", mode="L", size=(4, 4))
    Image.fromarray(np.full((4, 4), 100 * 257, np.uint16)).save(root / "cat" / "deep.png")
    data = datasets.load(root)
    x, _ = datasets.read_inputs(root / "cat" / "deep.png", data.preprocessing)
    p = data.preprocessing
    assert ((x * p.std[0] + p.mean[0]) * 255).mean().item() == pytest.approx(100, abs=0.01)


def test_all_of_sixteen_bits_are_kept(tmp_path):
    root = tmp_path / "scans"
    ramp = np.arange(4096, dtype=np.uint16).reshape(64, 64)  # 12 bits, as those of computed tomography
    for name in ("sick", "well"):
        (root / name).mkdir(parents=True)
        for i in range(5):
            Image.fromarray(ramp).save(root / name / f"{i}.png")
    data = datasets.load(root)
    assert len(data.train[0][0].unique()) == 4096
    p = data.preprocessing
    levels = (data.test[0][0, 0].double() * p.std[0] + p.mean[0]) * 65_535
    assert torch.allclose(levels, torch.from_numpy(ramp.astype(float)), atol=0.01)


@pytest.mark.parametrize("channels", [1, 3])
def test_only_images_of_sixteen_bits_take_the_memory(tmp_path, channels):
    save(tmp_path / "shallow.png", 100, mode="L")
    deep = np.full((6, 4), 12_345, np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    shallow = folders.read_image(tmp_path / "shallow.png", (3, 2), channels)
    assert (shallow.dtype, shallow.shape, set(shallow.flat)) == (np.uint8, (channels, 3, 2), {100})
    read = folders.read_image(tmp_path / "deep.png", (3, 2), channels)
    assert (read.dtype, read.shape) == (np.float32, (channels, 3, 2))
    assert read == pytest.approx(12_345 / 257)


def test_images_of_sixteen_bits_are_turned_as_others(tmp_path):
    ramp = np.arange(24, dtype=np.uint16).reshape(6, 4)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.fromarray(ramp).save(tmp_path / "turned.png", exif=exif)
    read = folders.read_image(tmp_path / "turned.png", (4, 6), 1)
    assert read[0] == pytest.approx(np.rot90(ramp, -1) / 257)


@pytest.mark.parametrize("mode", ["RGBA", "P", "1", "LA"])
def test_every_mode_is_read(tmp_path, mode):
    assert torch.isfinite(datasets.load(folder(tmp_path / "pets", mode=mode)).train[0]).all()


def test_new_images_are_read_with_and_without_classes(tmp_path):
    data = datasets.load(folder(tmp_path / "pets"))
    save(tmp_path / "new" / "b.png", 200, size=(10, 10))
    save(tmp_path / "new" / "a.jpg", 10)
    x, y = datasets.read_inputs(tmp_path / "new", data.preprocessing)
    assert x.shape == (2, 3, 30, 20)
    assert y is None
    assert x[0].max() < x[1].min()
    x, y = datasets.read_inputs(tmp_path / "pets", data.preprocessing)
    assert y.tolist() == [0] * 5 + [1] * 5
    x, y = datasets.read_inputs(tmp_path / "new" / "b.png", data.preprocessing)
    assert (len(x), y) == (1, None)


def test_new_images_of_an_unknown_class_are_an_error(tmp_path):
    data = datasets.load(folder(tmp_path / "pets"))
    save(tmp_path / "new" / "fish" / "a.png")
    with pytest.raises(Error, match="'fish'"):
        datasets.read_inputs(tmp_path / "new", data.preprocessing)


def test_hidden_and_other_files_are_passed_over(tmp_path):
    root = folder(tmp_path / "pets")
    save(root / ".cache" / "a.png")
    (root / "cat" / "notes.txt").write_text("not an image")
    (root / "cat" / "._1.png").write_bytes(b"junk")
    (root / "empty").mkdir()
    with pytest.warns(UserWarning, match="holds no images"):
        data = datasets.load(root)
    assert len(data.train[1]) + len(data.test[1]) == 10


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b"junk", lambda b: b[:60], lambda b: b[:30] + b"\xff" + b[31:]]
)
def test_a_damaged_image_is_named(tmp_path, damage):
    root = folder(tmp_path / "pets")
    path = root / "dog" / "3.png"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Error, match=r"dog.3\.png"):
        datasets.load(root)


@pytest.mark.parametrize("kind", ["EPS", "PPM", "TIFF"])
def test_a_file_of_another_format_named_png_is_refused(tmp_path, kind):
    root = folder(tmp_path / "pets")
    Image.new("RGB", (20, 30)).save(root / "dog" / "3.png", format=kind)
    with pytest.raises(Error, match=r"3\.png"):
        datasets.load(root)


def test_an_image_of_too_many_pixels_is_not_unpacked(tmp_path):
    root = folder(tmp_path / "pets")
    save(root / "dog" / "huge.png", size=(12_000, 9_000), mode="1")
    with pytest.warns(Image.DecompressionBombWarning), pytest.raises(Error, match=r"huge\.png"):
        datasets.load(root)


def test_folders_without_classes_say_what_is_expected(tmp_path):
    with pytest.raises(Error, match="one folder for each class"):
        datasets.load(tmp_path)
    save(tmp_path / "a.png")
    with pytest.raises(Error, match="one folder for each class"):
        datasets.load(tmp_path)
    for i in range(6):
        save(tmp_path / "cat" / f"{i}.png")
    with pytest.raises(Error, match="only the class 'cat'"):
        datasets.load(tmp_path)
    with pytest.raises(Error, match="only be classified"):
        datasets.load(tmp_path, task="regression")


def test_a_table_model_refuses_a_folder_and_digits_refuse_image_files(tmp_path):
    root = folder(tmp_path / "pets")
    with pytest.raises(Error, match="is a folder"):
        datasets.read_inputs(root, datasets.load("toy/cubic").preprocessing)
    with pytest.raises(Error, match="trained on arrays"):
        datasets.read_inputs(root, datasets.load("digits").preprocessing)
    with pytest.raises(Error, match="no file or folder"):
        datasets.read_inputs(tmp_path / "nowhere", datasets.load("toy/cubic").preprocessing)
