"""Ways to damage files: blindly, byte by byte, and with a knowledge of what they hold.

A case is a folder: a mapping of names to bytes, or to a `Link`. Every function takes a `random.Random` and changes
nothing that it was given.
"""

import copy
import io
import json
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

CANARY = "posterity-fuzz-canary"
"""The file that a pickle or a module would make, in the working directory, were it loaded."""


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


Case = dict[str, bytes | Link]


class _Evil:
    def __reduce__(self) -> Any:
        return (open, (CANARY, "w"))


PICKLE = pickle.dumps(_Evil())
_NUMBERS = (0, -1, 1, 2**31, 2**32 - 1, 2**63, 2**64, -(2**63), 10**9, 10**400)
_NUMBERS += (1e308, -1e308, 1e-320, 0.5, -0.1, float("nan"), float("inf"), -float("inf"))  # type: ignore[assignment]
_TEXTS = ("", "x", "../../etc/passwd", "/etc/passwd", "os.system", "canary_module:Thing", "canary_module", "\ud800")
_TEXTS += ("__import__('os').system('true')", "y" * 100_000, "a\0b", "nan", "1e400", "%s%n", "__class__", "🦜" * 50)
_PLAIN = (None, True, False, [], {}, [[]], [None], {"": None}, "@deep@", "@digits@", *_NUMBERS, *_TEXTS)


def blind(content: bytes, other: bytes, r: random.Random) -> bytes:
    """One to four changes that know nothing of the format; `other` is a second file, to splice."""
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        content = r.choice(_BLIND)(content, other, r)
    return content


def _flip(content: bytes, other: bytes, r: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(r.choice((1, 1, 2, 8)) if changed else 0):
        changed[r.randrange(len(changed))] ^= 1 << r.randrange(8)
    return bytes(changed)


def _overwrite(content: bytes, other: bytes, r: random.Random) -> bytes:
    at, number = r.randrange(len(content) + 1), r.choice((0, 1, 0x7F, 0xFF, 2**15, 2**31 - 1, 2**32 - 1, 2**63 - 1))
    part = number.to_bytes(8, r.choice(("little", "big")))
    part = part[: r.choice((1, 2, 4, 8))] if r.random() < 0.5 else part[-r.choice((1, 2, 4, 8)) :]
    return content[:at] + part + content[at + len(part) :]


def _cut(content: bytes, other: bytes, r: random.Random) -> bytes:
    return content[: r.randrange(len(content) + 1)]


def _behead(content: bytes, other: bytes, r: random.Random) -> bytes:
    return content[r.randrange(len(content) + 1) :]


def _insert(content: bytes, other: bytes, r: random.Random) -> bytes:
    at = r.randrange(len(content) + 1)
    part = r.choice((r.randbytes(r.randrange(1, 40)), b"\0" * 9, b"\xff" * 9, PICKLE, b"{" * 2000, b"9" * 5000, b'"'))
    return content[:at] + part + content[at:]


def _repeat(content: bytes, other: bytes, r: random.Random) -> bytes:
    a, b = sorted(r.randrange(len(content) + 1) for _ in range(2))
    return content[:b] + content[a:b] * r.choice((1, 2, 20)) + content[b:]


def _delete(content: bytes, other: bytes, r: random.Random) -> bytes:
    a, b = sorted(r.randrange(len(content) + 1) for _ in range(2))
    return content[:a] + content[b:]


def _splice(content: bytes, other: bytes, r: random.Random) -> bytes:
    return content[: r.randrange(len(content) + 1)] + other[r.randrange(len(other) + 1) :]


_BLIND: tuple[Callable[[bytes, bytes, random.Random], bytes], ...]
_BLIND = (_flip, _flip, _flip, _overwrite, _overwrite, _cut, _behead, _insert, _repeat, _delete, _splice)


def change_json(value: Any, r: random.Random) -> bytes:
    """A value with one to three of its parts replaced, removed, added or nested, as text."""
    value = copy.deepcopy(value)
    for _ in range(r.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return dump(_odd(None, r), r)
        holder, key = r.choice(places)
        what = r.random()
        if what < 0.7:
            holder[key] = _odd(holder[key], r)
        elif what < 0.8:
            del holder[key]
        elif what < 0.9 and isinstance(holder, dict):
            holder[r.choice(_TEXTS)] = copy.deepcopy(holder[key])
        elif isinstance(holder, list):
            holder.extend([copy.deepcopy(holder[key])] * r.choice((1, 3, 50_000)))
        else:
            holder[key] = r.choice(([holder[key]], {"name": holder[key]}))
    return dump(value, r)


def dump(value: Any, r: random.Random) -> bytes:
    """JSON text; the marks in it become what `json.dumps` would not write."""
    text = json.dumps(value).replace('"@deep@"', "[" * (depth := r.choice((50, 3_000, 100_000))) + "]" * depth)
    return text.replace('"@digits@"', "9" * r.choice((400, 6_000))).encode()


def _places(value: Any) -> Any:
    """Where values are held, in all depths."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield value, key
        yield from _places(member)


def _odd(value: Any, r: random.Random) -> Any:
    """A value of the wrong kind or size."""
    if isinstance(value, int | float) and not isinstance(value, bool) and r.random() < 0.4:
        return r.choice((-value, value + 1, value * 10, value * 1000, float(value), str(value), value * 0.1))
    return r.choice(_PLAIN)


def change_header(content: bytes, r: random.Random) -> bytes:
    """A safetensors file with another header over the same numbers."""
    size = struct.unpack("<Q", content[:8])[0]
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = r.choice([key for key in header if key != "__metadata__"])
    entry, what = header[name], r.randrange(9)
    if what == 0:
        entry["shape"] = r.choice(([2**40], [-1], [2**31, 2**31, 2**31], [0], [], [1] * 5000, [1.5], ["a"], [2**64]))
    elif what == 1:
        entry["data_offsets"] = r.choice(([0, 2**62], [8, 0], [-4, 4], [0, 4], [0, len(body)], [0, len(body) + 1], [0]))
    elif what == 2:
        entry["dtype"] = r.choice(("F64", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "C64", "F4", "XX", "", "i32"))
    elif what == 3:
        header[r.choice(_TEXTS)] = entry
    elif what == 4:
        header[r.choice(_TEXTS)] = header.pop(name)
    elif what == 5:
        header["__metadata__"] = r.choice(
            ({"a": 1}, {"a": "b"}, [], {"posterity": "{}"}, {"posterity": "@deep@"}, None)
        )
    elif what == 6:
        del header[name]
    text = change_json(header, r) if what == 7 else dump(header, r)
    length = r.choice((0, 1, 2**31, 2**63, len(text) - 1, len(text) + 9)) if what == 8 else len(text)
    return struct.pack("<Q", length) + text + body


def change_tensors(content: bytes, r: random.Random) -> bytes:
    """A valid safetensors file with other numbers, shapes, kinds or names."""
    import torch
    from safetensors.torch import load, save

    size = struct.unpack("<Q", content[:8])[0]
    metadata, state = json.loads(content[8 : 8 + size]).get("__metadata__"), load(content)
    name = r.choice(sorted(state))
    value, what = state[name], r.randrange(8)
    if what < 3:
        number = r.choice((float("nan"), float("inf"), -1.0, 0.0, 1e38, -1e38, 1e-40, 1e6, -1e6, 100.0))
        flat = value.reshape(-1)
        at = slice(None) if r.random() < 0.5 else slice(0, 1)
        if value.is_floating_point():
            flat[at] = number
        elif flat.numel():
            flat[at] = r.choice((0, 1, -1, 100)) if value.dtype != torch.bool else True
    elif what == 3:
        kinds = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
        state[name] = value.to(r.choice(kinds))
    elif what == 4:
        shapes = (value.reshape(-1), value[None], value.reshape(-1)[:-1].clone(), value.reshape(-1)[:0].clone())
        state[name] = r.choice((*shapes, value.reshape(-1).repeat(3)))
    elif what == 5:
        del state[name]
    elif what == 6:
        state[r.choice(("x", "../x", "network.x", "posterior/x", "optimizer/x/y", "best/x"))] = value.clone()
    else:
        state[name] = state[r.choice(sorted(state))].clone()
    return save({key: tensor.contiguous() for key, tensor in state.items()}, metadata)


def change_npz(content: bytes, r: random.Random) -> bytes:
    """An NPZ file with one hostile member, or with its members changed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = r.choice(sorted(members))
    members[name] = r.choice((_npy_header, _npy_header, _npy_values, _npy_kind))(members[name], r)
    made = io.BytesIO()
    method = r.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZ2))
    with zipfile.ZipFile(made, "w", method) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
        if r.random() < 0.3:
            archive.writestr(r.choice(("../x.npy", "/x.npy", "x", "x.npy/y.npy", "y" * 70_000)[:4]), members[name])
    return made.getvalue()


def _npy_header(content: bytes, r: random.Random) -> bytes:
    """Another shape or kind, over the same bytes."""
    shape = r.choice(
        ("(1000000000000,)", "(-1,)", "(40, 100000000)", "(0, 2)", "()", "(40,)", "(40, 2, 2, 2)", "(4" * 40)
    )
    kind = r.choice(("<f8", "|O", "<i8", "|S5", "<U1000000", "|V9", "<M8[ns]", "<c16", "<f2", ">f4", "|b1", "nonsense"))
    text = f"{{'descr': '{kind}', 'fortran_order': {r.choice(('True', 'False', '7'))}, 'shape': {shape}, }}"
    text = r.choice((text, text, text, "__import__('os').system('true')", "[" * 5000, "{}"))
    body = PICKLE if kind == "|O" else content[r.choice((0, 80, 128)) :]
    return (
        b"\x93NUMPY"
        + r.choice((b"\1\0", b"\1\0", b"\2\0", b"\t\0"))
        + struct.pack("<H", len(text))
        + text.encode()
        + body
    )


def _npy_values(content: bytes, r: random.Random) -> bytes:
    """Other numbers."""
    array = np.load(io.BytesIO(content), allow_pickle=False).copy()
    flat = array.reshape(-1)
    at = slice(None) if r.random() < 0.3 else r.randrange(len(flat))
    number = r.choice((np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, 0.0, 2.0**63, -5.0))
    if array.dtype.kind == "f":
        flat[at] = number
    elif array.dtype.kind in "iu":
        flat[at] = r.choice((0, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min))
    return _npy(flat.reshape(array.shape))


def _npy_kind(content: bytes, r: random.Random) -> bytes:
    """The same array as another kind, or in another shape."""
    array = np.load(io.BytesIO(content), allow_pickle=False)
    kinds = ("f2", "f4", ">f8", "g", "c8", "i1", "u8", "S3", "U3", "?", "M8[D]", "m8[s]", "V4")
    views = (array[:0], array[None], array.ravel()[:1], array[..., None, None], array[:3], array.T, array.ravel()[0])
    with np.errstate(all="ignore"):
        try:
            return _npy(np.asarray(r.choice(views)) if r.random() < 0.5 else array.astype(r.choice(kinds)))
        except (TypeError, ValueError):
            return b""


def _npy(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.save(made, array, allow_pickle=False)
    return made.getvalue()


#: Bytes of a table at most: larger ones take their time for good reason.
LARGEST = 16_000_000


def change_csv(content: bytes, r: random.Random) -> bytes:
    """A table with hostile cells, lines or columns."""
    lines = content.split(b"\n")
    cells = (b"", b"\0", b"NaN", b"inf", b"-inf", b"1e400", b"9" * 5000, b'"', b'""', b'"a\nb"', b"\xff\xfe", b"\xe9")
    cells += (b"x" * 200_000, b"0x10", b"1_000", b"1,5", b"2020-01-01", b"9999-99-99", b"0001-01-01", b"=cmd|'/c'!A0")
    cells += (
        b"True",
        b"\xf0\x9f\xa6\x9c",
        b"-0",
        b"1e-400",
        b"1" * 400,
        b"\xd9\xa1\xd9\xa2",
        b";",
        b"\t",
        b"?",
        b"NULL",
    )
    cells += (b"9999-12-31T23:59:59+23:59", b"0001-01-01T00:00:00+23:59", b"infinity", b"2020-W01-1")
    for _ in range(r.choice((1, 1, 3, 30))):
        at = r.randrange(len(lines))
        fields = lines[at].split(b",")
        what, column = r.random(), r.randrange(len(fields))
        if what < 0.6:
            fields[column] = r.choice(cells)
        elif what < 0.7:
            fields = fields * r.choice((2, 100, 12_000)) if len(content) < 10_000 else fields[:1]
        elif what < 0.8:
            fields = fields[:column]
        elif what < 0.9:
            lines = [
                b",".join([*line.split(b",")[:column], r.choice(cells), *line.split(b",")[column + 1 :]])
                for line in lines[:300]
            ]
            continue
        lines[at] = b",".join(fields)
        if what > 0.9:
            lines.insert(at, r.choice((b"", b"#", b",,,,", b"\r", b"sep=;", b"a;b;c", b"\xef\xbb\xbf")))
    text = r.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r")).join(lines)[:LARGEST]
    if r.random() < 0.1:
        return text.decode("utf-8", "replace").encode(
            r.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32")), "replace"
        )
    return text


def change_png(content: bytes, r: random.Random) -> bytes:
    """A PNG file with other chunks, whose sums are right again."""
    if not content.startswith(b"\x89PNG"):
        return blind(content, content, r)
    chunks, at = [], 8
    while at + 12 <= len(content):
        length = struct.unpack(">I", content[at : at + 4])[0]
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    index = r.randrange(len(chunks))
    kind, body = chunks[index]
    if kind == b"IHDR" or r.random() < 0.4:
        sides = [r.choice((0, 1, 6, 10_000, 70_000, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
        depth, colour = r.choice((1, 2, 4, 8, 16, 3, 255)), r.choice((0, 2, 3, 4, 6, 7))
        chunks[0] = (b"IHDR", struct.pack(">IIBBBBB", *sides, depth, colour, 0, 0, r.choice((0, 1, 2))))
    elif kind == b"IDAT":
        chunks[index] = (
            kind,
            r.choice((zlib.compress(b"\0" * 20_000_000, 1), b"", zlib.compress(b"\xff" * 50), body[:9])),
        )
    else:
        chunks.insert(
            index, (r.choice((b"tEXt", b"iTXt", b"zTXt", b"eXIf", b"PLTE", b"acTL", b"tRNS")), r.randbytes(30))
        )
        chunks.insert(index, (b"zTXt", b"a\0\0" + zlib.compress(b"a" * 10_000_000, 9)))
    sums = b"".join(struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return content[:8] + sums
