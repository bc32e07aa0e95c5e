# SPDX-License-Identifier: Apache-2.0
"""Makes samples of equal size, and writes them in the forms that the loaders read.

Sample n is a piece of random bytes, and begins with its number n. So all samples differ, and any process can make any
sample quickly. The digest of a set of samples does not depend on their order: it is the sum of their hashes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

COLUMN = "bin"  # the extension and the column of the samples
SHARD = 64 << 20  # bytes of samples in a shard of each packed form
ROOM = 1 << 20  # different positions of pieces in the random bytes
PAGE = 4096


@dataclass(frozen=True)
class Samples:
    """A set of samples, in a folder that has one folder or file for each form."""

    folder: Path
    count: int
    size: int  # bytes of one sample

    @property
    def bytes(self) -> int:
        """Return the bytes of all samples."""
        return self.count * self.size

    def contents(self) -> Iterator[bytes]:
        """Yield the samples in order."""
        random = np.random.default_rng(6).bytes(self.size + ROOM)
        for n in range(self.count):
            at = n * 40503 % ROOM
            yield (struct.pack("<q", n) + random[at : at + self.size])[: self.size]

    def path(self, form: str) -> Path:
        """Return the folder or file of a form."""
        return self.folder / form

    def files(self, form: str) -> list[Path]:
        """Return the files of a form, sorted."""
        path = self.path(form)
        return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


class Digest:
    """The digest of a set of samples in any order."""

    def __init__(self) -> None:
        self.count, self.bytes, self.sum = 0, 0, 0

    def add(self, sample: Any) -> None:
        """Add the bytes of one sample."""
        self.sum = (self.sum + int.from_bytes(hashlib.blake2b(sample, digest_size=8).digest(), "little")) % (1 << 64)
        self.count += 1
        self.bytes += len(sample)

    def text(self) -> str:
        """Return the digest as text, with the number of samples and bytes."""
        return f"{self.count} samples, {self.bytes} bytes, {self.sum:016x}"


def digest(contents: Iterable[Any]) -> str:
    """Return the digest of samples."""
    total = Digest()
    for content in contents:
        total.add(content)
    return total.text()


def write_files(samples: Samples, out: Path) -> None:
    """Write one file for each sample, 1,000 files to a folder."""
    for n, content in enumerate(samples.contents()):
        folder = out / f"{n // 1000:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n:08d}.{COLUMN}").write_bytes(content)


def shards(samples: Samples) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Yield the samples with their numbers, shard by shard. Each shard must be read before the next."""
    contents = enumerate(samples.contents())
    each = max(1, SHARD // samples.size)
    for begin in range(0, samples.count, each):
        yield (next(contents) for _ in range(min(each, samples.count - begin)))


def write_tar(samples: Samples, out: Path) -> None:
    """Write WebDataset shards whose samples begin at multiples of 4096 bytes, as `nebulaio pack` aligns them."""
    out.mkdir()
    for number, shard in enumerate(shards(samples)):
        with open(out / f"shard-{number:06d}.tar", "wb") as file:
            for n, content in shard:
                file.write(padding(file.tell()))
                info = tarfile.TarInfo(f"{n:08d}.{COLUMN}")
                info.size, info.mode = len(content), 0o444
                file.write(info.tobuf(tarfile.USTAR_FORMAT))
                file.write(content)
                file.write(bytes(-len(content) % 512))
            file.write(bytes(1024))


def padding(position: int) -> bytes:
    """Return a PAX header with a comment, after which the data of the next member begins at a multiple of 4096."""
    if (position + 512) % PAGE == 0:
        return b""
    length = -(position + 1024) % PAGE
    length += PAGE if length < 512 else 0
    text = f"{length} comment=".encode()
    info = tarfile.TarInfo("././@PaxHeader")
    info.size, info.type = length, tarfile.XHDTYPE
    return info.tobuf(tarfile.USTAR_FORMAT) + text + b" " * (length - len(text) - 1) + b"\n"


def write_safetensors(samples: Samples, out: Path) -> None:
    """Write all samples into one file, with a tensor for each 64 MiB."""
    each = max(1, SHARD // samples.size)
    header, at = {}, 0
    for begin in range(0, samples.count, each):
        size = min(each, samples.count - begin) * samples.size
        header[f"part{begin:08d}"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % PAGE)
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for content in samples.contents():
            file.write(content)


def data_offset(path: Path) -> int:
    """Return where the samples begin in the file of write_safetensors."""
    with open(path, "rb") as file:
        return 8 + int(struct.unpack("<Q", file.read(8))[0])


def write_mds(samples: Samples, out: Path) -> None:
    """Write MDS shards with the writer of mosaicml-streaming."""
    from streaming import MDSWriter

    with MDSWriter(out=str(out), columns={COLUMN: "bytes"}, size_limit=SHARD, progress_bar=False) as writer:
        for content in samples.contents():
            writer.write({COLUMN: content})


def write_litdata(samples: Samples, out: Path) -> None:
    """Write chunks with the writer of litdata."""
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(out), chunk_bytes=SHARD)
    for n, content in enumerate(samples.contents()):
        writer[n] = content
    writer.done()
    writer.merge()


FORMS: dict[str, Callable[[Samples, Path], None]] = {
    "files": write_files, "tar": write_tar, "one.safetensors": write_safetensors, "mds": write_mds,
    "litdata": write_litdata,
}


def make(samples: Samples, form: str) -> None:
    """Write a form, unless it is there from an earlier run."""
    wanted = {"count": samples.count, "size": samples.size, "version": 1}
    note, path = samples.folder / f"{form}.json", samples.path(form)
    if note.exists() and json.loads(note.read_text()) == wanted:
        return
    note.unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    samples.folder.mkdir(parents=True, exist_ok=True)
    FORMS[form](samples, path)
    note.write_text(json.dumps(wanted))


def as_dict(samples: Samples) -> dict[str, Any]:
    """Return the set as plain data, for the command line of a child."""
    return {**asdict(samples), "folder": str(samples.folder)}
