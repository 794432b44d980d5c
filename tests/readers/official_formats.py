import gzip
import struct

import numpy as np


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    data = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_mnist(folder, train=40, test=20, seed=0):
    generator = np.random.default_rng(seed)
    for part, n in (("train", train), ("t10k", test)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", generator.integers(0, 256, (n, 28, 28)))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.arange(n) % 10)


def write_cifar(path, labels, label_bytes=1, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    columns = [np.zeros((len(labels), label_bytes - 1), np.uint8), np.array(labels, np.uint8)[:, None], pixels]
    path.write_bytes(np.concatenate(columns, axis=1).tobytes())
    return pixels.reshape(-1, 3, 32, 32)


def write_cifar10(folder):
    for i in range(1, 6):
        write_cifar(folder / f"data_batch_{i}.bin", range(10), seed=i)
    return write_cifar(folder / "test_batch.bin", range(10), seed=9)
