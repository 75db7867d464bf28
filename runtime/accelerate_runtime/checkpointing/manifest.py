"""What a state's folder holds: each file with its size and checksum, and how many objects of each kind were saved."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..requirements import require_package
from .layout import MANIFEST, CheckpointError

FORMAT = 1
BLOCK = 1 << 20


@dataclass(frozen=True)
class FileRecord:
    """A file's size in bytes and its XXH3-128 checksum in hexadecimal."""

    size: int
    checksum: str


@dataclass
class Manifest:
    """The contents of `manifest.json`."""

    num_processes: int
    objects: dict[str, int]
    """How many models, optimizers, schedulers, scalers, loaders and registered objects were saved."""
    versions: dict[str, str]
    data_parts: int | None = None
    """Into how many parts the data was divided; None is one for each process."""
    files: dict[str, FileRecord] = field(default_factory=dict)

    def record(self, folder: Path, known: dict[str, str]) -> None:
        """Take stock of `folder`: read every file whose checksum is not `known` once."""
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name != MANIFEST:
                self.files[name] = FileRecord(path.stat().st_size, known.get(name) or checksum_of(path))

    def write(self, folder: Path) -> None:
        """Put the manifest into `folder`, whole or not at all, after everything else there is safe on the disk."""
        for path in folder.rglob("*"):
            if path.is_file():
                flush(path)
        new = folder / f"{MANIFEST}.new"
        new.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1), encoding="utf-8")
        flush(new)
        new.replace(folder / MANIFEST)
        flush(folder)

    def check_sizes(self, folder: Path) -> None:
        """Raise CheckpointError if a file is missing or has another size."""
        for name, record in self.files.items():
            path = folder / name
            if not path.is_file():
                raise CheckpointError(f"{path} is missing, which {MANIFEST} lists: the checkpoint is not whole.")
            if path.stat().st_size != record.size:
                raise CheckpointError(
                    f"{path} has {path.stat().st_size} bytes, but {record.size} were written: the checkpoint is "
                    "not whole."
                )


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`; None where there is none.

    Raises:
        CheckpointError: it cannot be read.
    """
    path = folder / MANIFEST
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if raw.pop("format") != FORMAT:
            raise CheckpointError(
                f"{path} is of a later format: load it with the version of accelerate_runtime that wrote it."
            )
        files = {name: FileRecord(**record) for name, record in raw.pop("files").items()}
        return Manifest(files=files, **raw)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}): the checkpoint is not whole.") from None


def hasher() -> Any:
    """A new checksum: XXH3-128 tells damage, at the speed of memory; it is no defence against an attacker."""
    require_package("xxhash", what="a training state")
    import xxhash

    return xxhash.xxh3_128()


def checksum_of(path: Path) -> str:
    """The checksum of a whole file."""
    checksum, block = hasher(), bytearray(BLOCK)
    view = memoryview(block)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(block):
            checksum.update(view[:size])
    return str(checksum.hexdigest())


def check(path: Path, found: str, wanted: str | None) -> None:
    """Raise CheckpointError if a file's checksum is not the one recorded (None: nothing was recorded)."""
    if wanted is not None and found != wanted:
        raise CheckpointError(
            f"{path} is damaged: its checksum is {found}, but {wanted} was written. Load another checkpoint before you "
            "train on: some of the prepared objects may hold its numbers by now."
        )


@contextmanager
def reading(path: Path, wanted: str | None) -> Iterator[None]:
    """Where reading a file fails in whatever way, say so if the file is damaged."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception:
        check(path, checksum_of(path), wanted)
        raise


def check_files(folder: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Read the files `names` and compare their checksums."""
    for name in names:
        if name in manifest.files:
            check(folder / name, checksum_of(folder / name), manifest.files[name].checksum)


def flush(path: Path) -> None:
    """Have the system write a file, or a folder's list of files, to the disk."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
