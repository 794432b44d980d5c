"""Where the files of a data set lie: on this machine, in the cache, or at the official source."""

import hashlib
import http.client
import os
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from posterity.errors import Error

_CHUNK = 1 << 16
_ATTEMPTS = 3
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Download:
    """A file at its official source: the addresses that hold it, and its MD5 where one is published there."""

    name: str
    urls: tuple[str, ...]
    md5: str | None = None
    limit: int = 300_000_000


@dataclass(frozen=True)
class Collection:
    """The files of a data set: ``members`` in ``folder`` below a data folder, or in one of ``places``.

    ``downloads`` hold the members themselves or, as a ``.tar.gz``, all of them. A member may also lie there
    without its ``.gz``; an archive's ``extras`` are taken where they are there. Where the source has another
    format and no published hash, ``convert`` makes the members from the one download (``convert(file, folder)``),
    and raises ``Error`` unless what it read has the known hash.
    ``note`` says what else a user who makes the files must know.
    """

    name: str
    folder: str
    members: tuple[str, ...]
    extras: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()
    convert: Callable[[Path, Path], None] | None = None
    note: str = ""


def cache() -> Path:
    """Return the folder for downloads: POSTERITY_CACHE, or ~/.cache/posterity."""
    return Path(os.environ.get("POSTERITY_CACHE") or "~/.cache/posterity").expanduser()


def find(collection: Collection, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the first folder that holds every member, or None.

    Searched are ``data_dir``, the environment's POSTERITY_DATA, the collection's own places and the cache.
    """
    roots = [Path(root).expanduser() for root in (data_dir, os.environ.get("POSTERITY_DATA")) if root]
    given = [root / collection.folder for root in roots]
    folders = [*given, *map(Path, collection.places), cache() / collection.folder]
    return next((folder for folder in folders if _complete(folder, collection)), None)


def get(collection: Collection, data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> Path:
    """Return the folder with the members, downloaded to the cache where they are nowhere else."""
    if (folder := find(collection, data_dir)) is not None:
        return folder
    advice = (
        f"Put {', '.join(collection.members)} into {collection.folder}/ below a data folder, "
        "and name that folder by --data-dir, data_dir= or the environment variable POSTERITY_DATA."
    ) + (f" {collection.note}" if collection.note else "")
    if not download or not collection.downloads:
        raise Error(f"The files of {collection.name!r} are not on this machine. {advice}")
    folder = cache() / collection.folder
    try:
        for item in collection.downloads:
            if collection.convert is not None:
                _converted(item, collection.convert, folder)
            elif item.name.endswith(".tar.gz"):
                archive = fetch(item, cache() / item.name)
                members, extras = (
                    [f"{collection.folder}/{name}" for name in names]
                    for names in (collection.members, collection.extras)
                )
                extract(archive, cache(), members, extras)
                archive.unlink()
            elif not (folder / item.name).is_file():
                fetch(item, folder / item.name)
    except (Error, OSError) as error:
        raise Error(f"The files of {collection.name!r} could not be downloaded. {error} {advice}") from error
    return folder


def _converted(item: Download, convert: Callable[[Path, Path], None], folder: Path) -> None:
    """Download a file and make the members in ``folder`` from it; none appears unless all are right."""
    source = fetch(item, cache() / item.name)
    try:
        with tempfile.TemporaryDirectory(dir=cache()) as made:
            convert(source, Path(made))
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(Path(made).iterdir()):
                os.replace(path, folder / path.name)
    finally:
        source.unlink()


def fetch(item: Download, path: Path) -> Path:
    """Download a file to ``path`` and check its MD5, where it has one; a broken download goes on where it stopped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    problem = "There is no address to load it from."
    for url in item.urls:
        for _ in range(_ATTEMPTS):
            resumed = part.exists()
            try:
                _transfer(url, part, item.limit)
            except (OSError, http.client.HTTPException) as error:
                problem = f"{url}: {error}."
                # 416: nothing follows what is there already, which is then all of the file, or too much.
                if not (isinstance(error, urllib.error.HTTPError) and error.code == 416 and resumed):
                    if isinstance(error, urllib.error.URLError):
                        break  # no connection, or no such file
                    continue
            if item.md5 in (None, _md5(part)):
                os.replace(part, path)
                return path
            part.unlink()
            problem = f"{url}: the MD5 differs from the published {item.md5}, so the file was deleted."
            if not resumed:
                break
    raise Error(problem)


def _transfer(url: str, part: Path, limit: int) -> None:
    """Load the rest of a file into ``part``; raise OSError if the connection ends early."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "posterity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        # A server without Range answers 200 with the whole file.
        if response.status != 206 or not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        from tqdm import tqdm

        quiet = sys.stderr is None or not sys.stderr.isatty()
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=part.stem, disable=quiet)
        with bar, part.open("ab" if have else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                have += len(chunk)
                if have > limit:
                    break
        if have > limit:
            part.unlink()
            raise Error(f"{url}: the file is larger than {limit:,} bytes.")
        if total is not None and have < total:
            raise OSError(f"the connection ended after {have:,} of {total:,} bytes; try again to go on from there")


def extract(
    archive: Path, folder: Path, names: list[str], extras: Sequence[str] = (), limit: int = 1_000_000_000
) -> None:
    """Take the regular files with exactly these names out of a ``.tar.gz``, and nothing else.

    All of ``names`` must be there, ``extras`` may; ``limit`` bounds the bytes of all members together, taken or not.
    """
    wanted = set(names)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            total = 0
            for member in tar:
                total += member.size
                if total > limit:
                    raise Error(f"The archive {archive.name} unpacks to more than {limit:,} bytes.")
                source = tar.extractfile(member) if member.isreg() and member.name in {*wanted, *extras} else None
                if source is None:
                    continue
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(path.name + ".part")
                with part.open("wb") as file:
                    while chunk := source.read(_CHUNK):
                        file.write(chunk)
                os.replace(part, path)
                wanted.discard(member.name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Error(f"The archive {archive.name} is damaged: {error}.") from error
    if wanted:
        raise Error(f"The archive {archive.name} lacks {', '.join(sorted(wanted))}.")


def _complete(folder: Path, collection: Collection) -> bool:
    return all(
        (folder / member).is_file() or (folder / member.removesuffix(".gz")).is_file() for member in collection.members
    )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
