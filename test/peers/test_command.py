# SPDX-License-Identifier: Apache-2.0
"""The peers read what `nebulaio pack` writes, and `nebulaio unpack` reads what the peers write: every sample is equal."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import made
import numpy as np
import ours
import pytest
import test_mds
import test_megatron
import test_tfrecord
import test_webdataset
import tfrecord
from PIL import Image

KEYS = made.KEYS + [f"many/{n:05d}" for n in range(60)]


def by_name(samples: list[tuple[str, dict[str, bytes]]]) -> dict[str, bytes]:
    """Return the files that samples are."""
    return {f"{key}.{name}": data for key, parts in samples for name, data in parts.items()}


def parts(seed: int = 1) -> list[tuple[str, dict[str, bytes]]]:
    """Return samples that all have the same parts, one for each kind of encoding."""
    return [
        (key, {
            "blob": blob, "cls": struct.pack("<q", n), "jpg": test_mds.jpeg(n % 3),
            "meta": json.dumps({"n": n, "ключ": key}).encode(),
            "txt": f"größe {n} 🙂".encode() * (n % 4),
        })
        for n, (key, blob) in enumerate(zip(KEYS, [b"b" * made.BIG, b"", *made.blobs(len(KEYS) - 2, seed)]))
    ]


ENCODINGS = [f"--encoding={name}" for name in ("cls=int", "jpg=jpeg", "meta=json", "txt=str")]


@pytest.mark.parametrize("flags", [[], ["--aligned"], ["--shuffle=7"]], ids=["plain", "aligned", "shuffled"])
def test_webdataset_reads_ours(tmp_path: Path, flags: list[str]) -> None:
    samples = made.columns(KEYS)
    out = ours.pack_command("tar", ours.write(tmp_path / "source", samples), tmp_path / "out", "--shard-size=64KiB",
                            *flags)
    assert len(list(out.glob("*.tar"))) > 5
    found = test_webdataset.theirs(out)
    assert sorted(found) == sorted(ours.sample(key, parts) for key, parts in samples)
    assert found == ours.samples("tar", out)
    assert ours.unpack_command(out, tmp_path / "again") == by_name(samples)


def test_we_unpack_webdataset(tmp_path: Path) -> None:
    samples = made.columns(KEYS)
    with test_webdataset.shard_writer(tmp_path / "in", maxcount=9) as writer:
        for key, columns in samples:
            writer.write({"__key__": key, **columns})
    assert ours.unpack_command(tmp_path / "in", tmp_path / "out") == by_name(samples)


def test_streaming_reads_ours(tmp_path: Path) -> None:
    samples = parts()
    out = ours.pack_command("mds", ours.write(tmp_path / "source", samples), tmp_path / "out", "--shard-size=64KiB",
                            *ENCODINGS)
    assert len(list(out.glob("*.mds"))) > 3
    found = {sample.pop("__key__"): sample for sample in test_mds.theirs(out)}
    assert set(found) == set(KEYS)
    for key, columns in samples:
        got = found[key]
        assert set(got) == set(columns)
        assert got["blob"] == columns["blob"] and got["txt"] == columns["txt"].decode()
        assert got["cls"] == struct.unpack("<q", columns["cls"])[0] and got["meta"] == json.loads(columns["meta"])
        assert isinstance(got["jpg"], Image.Image) and test_mds.plain(got["jpg"]) == test_mds.picture(columns["jpg"])
    assert ours.unpack_command(out, tmp_path / "again") == by_name(samples)


def test_we_unpack_streaming(tmp_path: Path) -> None:
    blobs = [b"", *made.blobs(100, 9), b"b" * made.BIG]
    with test_mds.mds_writer(tmp_path / "in", {"blob": "bytes", "n": "int"}, size_limit=1 << 15) as writer:
        for n, blob in enumerate(blobs):
            writer.write({"blob": blob, "n": n})
    found = ours.unpack_command(tmp_path / "in", tmp_path / "out")
    assert len(found) == 2 * len(blobs)
    assert [data for name, data in sorted(found.items()) if name.endswith(".blob")] == blobs
    assert [struct.unpack("<q", data)[0] for name, data in sorted(found.items())
            if name.endswith(".n")] == list(range(len(blobs)))


def test_readers_of_tfrecord_read_ours(tmp_path: Path) -> None:
    samples = parts()
    out = ours.pack_command("tfrecord", ours.write(tmp_path / "source", samples), tmp_path / "out",
                            "--shard-size=64KiB")
    names = sorted(out.glob("*.tfrecord"))
    assert len(names) > 3
    features = dict.fromkeys(["__key__", *samples[0][1]], "byte")
    found = {}
    for path in names:
        records = test_tfrecord.checked(path)  # compares the CRCs
        examples = list(tfrecord.tfrecord_loader(str(path), None, features))
        assert len(examples) == len(records)
        for example in examples:
            values = {name: bytes(value) for name, value in example.items()}
            found[values.pop("__key__").decode()] = values
    assert found == dict(samples)
    assert ours.unpack_command(out, tmp_path / "again") == by_name(samples)


def test_we_unpack_tfrecord(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    blobs = test_tfrecord.BLOBS
    for shard in range(3):
        writer = tfrecord.TFRecordWriter(str(tmp_path / "in" / f"{shard}.tfrecord"))
        for n in range(shard * 30, shard * 30 + 30):
            writer.write(test_tfrecord.example(n))
        writer.close()
    records = [tfrecord.TFRecordWriter.serialize_tf_example(test_tfrecord.example(n)) for n in range(90)]
    assert len(blobs) > 90
    found = ours.unpack_command(tmp_path / "in", tmp_path / "out")
    assert [data for _, data in sorted(found.items())] == records


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_megatron_reads_ours(tmp_path: Path, dtype: str) -> None:
    """Each .npy file is a document. A pack has several pairs of .bin and .idx files."""
    tokens = [np.random.default_rng(n).integers(0, 60_000, size).astype(dtype)
              for n, size in enumerate([1, 7, 4096, 3] * 20)]
    tokens.append(np.arange(made.BIG // 4).astype(dtype))
    (tmp_path / "source").mkdir()
    for n, document in enumerate(tokens):
        np.save(tmp_path / "source" / f"{n:04d}.npy", document)
    out = ours.pack_command("bin", tmp_path / "source", tmp_path / "out", "--shard-size=64KiB")
    prefixes = [path.with_suffix("") for path in sorted(out.glob("*.idx"))]
    assert len(prefixes) > 2
    found = [sequence for prefix in prefixes for _, sequence in test_megatron.theirs(prefix)]
    assert found == [ours.digest(document.tobytes()) for document in tokens]
    assert [sequence for prefix in prefixes for _, sequence in test_megatron.theirs(prefix, mmap=False)] == found


def test_we_unpack_megatron(tmp_path: Path) -> None:
    documents = test_megatron.documents("uint16", 20)
    test_megatron.build(tmp_path / "in" / "data", documents, "uint16")
    ours.unpack_command(tmp_path / "in", tmp_path / "out")
    found = [np.load(path) for path in sorted((tmp_path / "out").rglob("*.npy"))]
    sequences = [sequence for document in documents for sequence in document]
    assert [(a.dtype, a.shape, ours.digest(a.tobytes())) for a in found] == \
        [(a.dtype, a.shape, ours.digest(a.tobytes())) for a in sequences]


@pytest.mark.parametrize("compression", ["zstd", "gz"])
def test_compressed_shards_are_refused(tmp_path: Path, compression: str) -> None:
    with test_mds.mds_writer(tmp_path / "in", {"b": "bytes"}, compression=compression) as writer:
        writer.write({"b": b"x" * 1000})
    with pytest.raises(ours.Refused, match=compression):
        ours.unpack_command(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists() or not ours.files(tmp_path / "out")
