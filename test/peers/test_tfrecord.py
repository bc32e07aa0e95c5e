# SPDX-License-Identifier: Apache-2.0
"""The packages tfrecord and tensorboard read our TFRecord files, and we read their files: every record is equal."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import made
import numpy as np
import ours
import pytest
import tfrecord
from tensorboard.compat.tensorflow_stub import errors
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from tfrecord.tools import tfrecord2idx

BLOBS = [b"", *made.blobs(100, 21), b"", b"b" * made.BIG]
FEATURES = {"image": "byte", "label": "int", "box": "float"}


def example(n: int) -> dict[str, tuple[Any, str]]:
    """Return the features of an example with values of all three types."""
    return {"image": (BLOBS[n], "byte"), "label": ([n, -n, 2**62], "int"), "box": ([0.5 * n, -1.0], "float")}


def checked(path: Path) -> list[bytes]:
    """Return the records of a file by tensorboard's reader, which compares both CRCs of each record."""
    reader, records = PyRecordReader_New(str(path)), []
    while True:
        try:
            reader.GetNext()
        except errors.OutOfRangeError:
            return records
        records.append(reader.record())


def parts(records: list[bytes]) -> list[ours.Sample]:
    return [ours.sample("", {"record": record}) for record in records]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A pack of ours with several shards."""
    source = ours.write(tmp_path / "source", [(f"{n:04d}", {"bin": blob}) for n, blob in enumerate(BLOBS)])
    return ours.pack("tfrecord", source, tmp_path / "out", shard_size=20_000)


def test_readers_read_ours(packed: Path) -> None:
    files = sorted(packed.glob("*.tfrecord"))
    assert len(files) > 5
    assert [record for path in files for record in checked(path)] == BLOBS
    assert [bytes(record) for path in files for record in tfrecord.reader.tfrecord_iterator(str(path))] == BLOBS
    assert ours.samples("tfrecord", packed) == parts(BLOBS)


def test_our_index_is_theirs(packed: Path, tmp_path: Path) -> None:
    for path in packed.glob("*.tfrecord"):
        tfrecord2idx.create_index(str(path), str(tmp_path / "idx"))
        assert (tmp_path / "idx").read_text() == Path(f"{path}.idx").read_text()
        if len(checked(path)) == 1:
            continue  # their reader cannot read any index of a single record
        shard = tfrecord.reader.tfrecord_iterator(str(path), f"{path}.idx", shard=(0, 1))
        assert [bytes(record) for record in shard] == checked(path)


def test_a_damaged_record_of_ours_is_found(packed: Path) -> None:
    """The reader that read our files in the tests above does compare CRCs."""
    path = sorted(packed.glob("*.tfrecord"))[1]
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # the last byte of the last record
    path.write_bytes(data)
    with pytest.raises(errors.DataLossError):
        checked(path)
    with pytest.raises(ours.Refused, match=f"{path.name}.*CRC"):
        ours.samples("tfrecord", packed)


def test_examples_that_we_packed_are_read(tmp_path: Path) -> None:
    records = [tfrecord.TFRecordWriter.serialize_tf_example(example(n)) for n in range(len(BLOBS))]
    source = ours.write(tmp_path / "source", [(f"{n:04d}", {"pb": record}) for n, record in enumerate(records)])
    out = ours.pack("tfrecord", source, tmp_path / "out")
    found = list(tfrecord.tfrecord_loader(str(out / "shard-00000.tfrecord"), None, FEATURES))
    assert len(found) == len(BLOBS)
    for n, features in enumerate(found):
        assert bytes(features["image"]) == BLOBS[n]
        assert features["label"].tolist() == [n, -n, 2**62]
        assert np.array_equal(features["box"], np.array([0.5 * n, -1.0], np.float32))


def test_we_read_tfrecord(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    names = [tmp_path / "in" / f"{shard}.tfrecord" for shard in range(4)]
    for shard, name in enumerate(names):
        writer = tfrecord.TFRecordWriter(str(name))
        for n in range(shard, len(BLOBS), 4):
            writer.write(example(n))
        writer.close()
        tfrecord2idx.create_index(str(name), f"{name}.idx")
    records = [tfrecord.TFRecordWriter.serialize_tf_example(example(n)) for shard in range(4)
               for n in range(shard, len(BLOBS), 4)]
    assert ours.samples("tfrecord", tmp_path / "in") == parts(records)
    assert parts([record for name in names for record in checked(name)]) == parts(records)


def test_a_compressed_file_is_refused(packed: Path) -> None:
    path = sorted(packed.glob("*.tfrecord"))[0]
    packed_again = path.with_name("small.tfrecord")
    packed_again.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ours.Refused, match=r"(?i)small\.tfrecord.*gzip"):
        ours.samples("tfrecord", packed_again)
