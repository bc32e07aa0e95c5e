# SPDX-License-Identifier: Apache-2.0
"""nebulaio.data.Loader delivers the samples that the peers have written: every sample is equal."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import litdata_packs as packs
import made
import numpy as np
import ours
import pytest
import test_mds
import test_megatron
import test_tfrecord
import test_webdataset
import tfrecord
from nebulaio import data
from nebulaio.errors import UnsupportedError


def loaded(path: Path, shuffle: str = "stored", **options: Any) -> list[ours.Sample]:
    """Return the samples of an epoch."""
    found = []
    loader = data.Loader(str(path), batch_size=16, device="cpu", framework="numpy", shuffle=shuffle, epochs=1,
                         drop_last=False, **options)
    with contextlib.closing(loader):
        for batch in loader:
            columns = {name: [np.ascontiguousarray(part).tobytes() for part in column]
                       for name, column in batch.items()}
            for n, key in enumerate(batch.sample_keys):
                found.append(ours.sample(key, {name: parts[n] for name, parts in columns.items()}))
    return found


def bytes_of(samples: list[ours.Sample]) -> list[dict[str, tuple[int, str]]]:
    """Return the parts of samples without their keys, for formats that have none."""
    return [parts for _, parts in samples]


@pytest.mark.parametrize("shuffle", ["stored", "full", "blocks"])
def test_loads_webdataset(tmp_path: Path, shuffle: str) -> None:
    keys = made.KEYS + [f"many/{n:05d}" for n in range(60)]
    samples = [(key, {"jpg": blob, "cls": b"%d" % n})
               for n, (key, blob) in enumerate(zip(keys, [b"b" * made.BIG, *made.blobs(66, 3)]))]
    with test_webdataset.shard_writer(tmp_path / "in", maxcount=9) as writer:
        for key, parts in samples:
            writer.write({"__key__": key, **parts})
    found, expected = loaded(tmp_path / "in", shuffle), [ours.sample(key, parts) for key, parts in samples]
    assert found == expected if shuffle == "stored" else found != expected and sorted(found) == sorted(expected)


def test_loads_streaming(tmp_path: Path) -> None:
    blobs = [b"", *made.blobs(60, 5), b"b" * made.BIG]
    columns = {"blob": "bytes", "n": "int", "text": "str", "box": "ndarray:float32:2,3"}
    boxes = [np.full((2, 3), n, np.float32) for n in range(len(blobs))]
    with test_mds.mds_writer(tmp_path / "in", columns, size_limit=1 << 15) as writer:
        for n, blob in enumerate(blobs):
            writer.write({"blob": blob, "n": n, "text": "größe" * (n % 3), "box": boxes[n]})
    expected = [
        ours.sample("", {"blob": blob, "n": struct.pack("<q", n), "text": ("größe" * (n % 3)).encode(),
                         "box": boxes[n].tobytes()})
        for n, blob in enumerate(blobs)
    ]
    assert bytes_of(loaded(tmp_path / "in")) == bytes_of(expected)


@pytest.mark.parametrize("name", ["few", "small", "one"])
def test_loads_litdata(litdata_packs: Path, name: str) -> None:
    assert bytes_of(loaded(litdata_packs / name)) == bytes_of(
        [ours.sample("", packs.leaves(n)) for n in range(len(packs.BLOBS))])


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_loads_megatron(tmp_path: Path, dtype: str) -> None:
    documents = test_megatron.documents(dtype, 20)
    test_megatron.build(tmp_path / "in" / "data", documents, dtype)
    expected = [ours.sample("", {"tokens": sequence.tobytes()}) for document in documents for sequence in document]
    assert bytes_of(loaded(tmp_path / "in")) == bytes_of(expected)


def test_loads_tfrecords(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    writer = tfrecord.TFRecordWriter(str(tmp_path / "in" / "a.tfrecord"))
    for n in range(40):
        writer.write(test_tfrecord.example(n))
    writer.close()
    records = [tfrecord.TFRecordWriter.serialize_tf_example(test_tfrecord.example(n)) for n in range(40)]
    assert bytes_of(loaded(tmp_path / "in")) == bytes_of(test_tfrecord.parts(records))


def test_compressed_shards_are_refused(tmp_path: Path) -> None:
    with test_mds.mds_writer(tmp_path / "in", {"b": "bytes"}, compression="zstd") as writer:
        writer.write({"b": b"x" * 1000})
    with pytest.raises(UnsupportedError, match="zstd"):
        loaded(tmp_path / "in")
