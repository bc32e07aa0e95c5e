# SPDX-License-Identifier: Apache-2.0
"""mosaicml-streaming reads our MDS shards, and we read its shards: every sample is equal."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import made
import numpy as np
import ours
import pytest
from PIL import Image
from streaming import MDSWriter, StreamingDataset


def jpeg(seed: int) -> bytes:
    """Return a small picture."""
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, format="JPEG")
    return out.getvalue()


def shaped(value: np.ndarray) -> bytes:
    """Return an array as the encoding "ndarray" has it without a shape: number of dimensions, shape, elements."""
    return bytes([value.ndim << 2, *value.shape]) + value.tobytes()


# For each encoding: values, and how a value is encoded. The encodings are written here from their description.
VALUES: dict[str, tuple[list[Any], Any]] = {
    "bytes": ([b"", b"x" * 5000, bytes(range(256)), b"\0"], bytes),
    "str": (["", "größe", "鍵 🙂", "a\nb\0c"], str.encode),
    "int": ([0, -1, 2**63 - 1, -(2**63)], lambda v: struct.pack("<q", v)),
    "uint8": ([np.uint8(v) for v in (0, 1, 128, 255)], lambda v: v.tobytes()),
    "float32": ([np.float32(v) for v in (0, -1.5, 3e38, float("inf"))], lambda v: v.tobytes()),
    "str_int": ([0, -5, 10**40, 7], lambda v: str(v).encode()),
    "ndarray:float32:2,3": ([np.full((2, 3), v, np.float32) for v in (0, 1, 2.5, -3)], lambda v: v.tobytes()),
    "ndarray:int16": ([np.arange(v, dtype=np.int16) for v in (1, 2, 100, 7)], shaped),
    "ndarray": ([np.zeros((v, 2), np.float32) for v in (1, 2, 100, 7)], lambda v: b"\x22" + shaped(v)),
    "json": ([{}, [], {"ключ": [1, None, "z"]}, "text"], lambda v: json.dumps(v).encode()),
    "jpeg": ([jpeg(seed) for seed in range(4)], bytes),
    "pkl": ([{"a": 1}, None, (1, 2), b""], None),
}


def theirs(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Return the samples that StreamingDataset reads from a folder."""
    dataset = StreamingDataset(local=str(folder), shuffle=False, batch_size=1, **options)
    samples = [dataset[n] for n in range(len(dataset))]
    assert len(list(dataset)) == len(samples)
    return samples


def plain(value: Any) -> Any:
    """Return a value that == compares: pictures and arrays as their bytes."""
    if isinstance(value, Image.Image):
        return value.size, value.convert("RGB").tobytes()
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.shape, value.tobytes()
    return value


def picture(data: bytes) -> Any:
    return plain(Image.open(io.BytesIO(data)))


OURS = {name: pair for name, pair in VALUES.items() if pair[1]}


@pytest.mark.parametrize("hashes", ["", "sha1,sha256"])
def test_streaming_reads_ours(tmp_path: Path, hashes: str) -> None:
    """All encodings in one data set, in several shards."""
    names = {f"c{n:02d}": encoding for n, encoding in enumerate(OURS)}
    samples = [
        (f"{row:06d}", {name: OURS[e][1](OURS[e][0][row % 4]) for name, e in names.items()}) for row in range(40)
    ]
    source = ours.write(tmp_path / "source", samples)
    spec = " ".join(f"{name}={encoding}" for name, encoding in names.items())
    options = {"hashes": hashes} if hashes else {}
    out = ours.pack("mds", source, tmp_path / "out", columns=spec, shard_size=20_000, **options)
    assert len(list(out.glob("*.mds"))) > 3
    found = theirs(out, allow_unsafe_types=False, validate_hash=hashes.split(",")[0] or None)
    assert len(found) == 40
    for row, got in enumerate(found):
        assert set(got) == set(names)
        for name, encoding in names.items():
            value = OURS[encoding][0][row % 4]
            expected = picture(value) if encoding == "jpeg" else plain(value)
            assert plain(got[name]) == expected, (row, encoding)
    assert ours.samples("mds", out) == [ours.sample("", parts) for _, parts in samples]


def test_streaming_reads_big_and_empty_samples_of_ours(tmp_path: Path) -> None:
    blobs = [b"", *made.blobs(50, 3), b"b" * made.BIG, b""]
    source = ours.write(tmp_path / "source", [(f"{n:04d}", {"größe": blob}) for n, blob in enumerate(blobs)])
    out = ours.pack("mds", source, tmp_path / "out", columns="größe=bytes", shard_size=1 << 16)
    assert [found["größe"] for found in theirs(out)] == blobs


def mds_writer(folder: Path, columns: dict[str, str], **options: Any) -> MDSWriter:
    return MDSWriter(out=str(folder), columns=columns, progress_bar=False, **options)


@pytest.mark.parametrize("encoding", VALUES)
def test_we_read_streaming(tmp_path: Path, encoding: str) -> None:
    """Each encoding beside a column of bytes, which shifts the places of all values."""
    from streaming.base.format.mds.encodings import mds_encode

    values, encode = VALUES[encoding]
    if encoding == "jpeg":
        values = [Image.open(io.BytesIO(value)) for value in values]
        encode = None
    blobs = made.blobs(60, 5)
    with mds_writer(tmp_path / "in", {"value": encoding, "blob": "bytes"}, size_limit=8000) as writer:
        for n, blob in enumerate(blobs):
            writer.write({"value": values[n % 4], "blob": blob})
    encode = encode or (lambda value: mds_encode(encoding, value))
    expected = [ours.sample("", {"blob": blob, "value": encode(values[n % 4])}) for n, blob in enumerate(blobs)]
    assert ours.samples("mds", tmp_path / "in") == expected
    assert len(list((tmp_path / "in").glob("*.mds"))) > 3


def test_we_read_big_and_empty_samples_of_streaming(tmp_path: Path) -> None:
    blobs = [b"", b"b" * made.BIG, *made.blobs(200, 3), b""]
    with mds_writer(tmp_path / "in", {"größe": "bytes"}, size_limit=1 << 14, hashes=["sha1", "xxh64"]) as writer:
        for blob in blobs:
            writer.write({"größe": blob})
    assert ours.samples("mds", tmp_path / "in") == [ours.sample("", {"größe": blob}) for blob in blobs]


def test_our_shards_are_theirs_byte_by_byte(tmp_path: Path) -> None:
    rows = [{"a": n, "b": blob} for n, blob in enumerate(made.blobs(100, 7))]
    with mds_writer(tmp_path / "in", {"b": "bytes", "a": "int"}, size_limit=40_000, hashes=["sha1"]) as writer:
        for row in rows:
            writer.write(row)
    source = ours.write(
        tmp_path / "source", [(f"{n:04d}", {"a": struct.pack("<q", row["a"]), "b": row["b"]})
                              for n, row in enumerate(rows)]
    )
    out = ours.pack("mds", source, tmp_path / "out", columns="a=int b=bytes", shard_size=40_000, hashes="sha1")
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in (tmp_path / "in").iterdir())
    for path in out.iterdir():
        assert path.read_bytes() == (tmp_path / "in" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("compression", ["zstd:3", "gz", "snappy", "br"])
def test_compressed_shards_are_refused(tmp_path: Path, compression: str) -> None:
    with mds_writer(tmp_path / "in", {"b": "bytes"}, compression=compression) as writer:
        writer.write({"b": b"x" * 1000})
    with pytest.raises(ours.Refused, match=rf"(?s)shard\.00000\.mds.*{compression.split(':')[0]}"):
        ours.samples("mds", tmp_path / "in")
