# SPDX-License-Identifier: Apache-2.0
"""GPUDirectReader in real DALI pipelines on the CPU; run with make test-dali."""

from __future__ import annotations

import importlib
import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import serving
from nebulaio.errors import CorruptError, DeviceError, InvalidError, NotFoundError, UnsupportedError
from support import run_python

pytest.importorskip("nvidia.dali", reason="DALI is not installed")
pytestmark = pytest.mark.dali

COUNT = 10


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def jpeg(number: int) -> bytes:
    """A picture of one grey, whose height tells it from others."""
    Image = pytest.importorskip("PIL.Image")

    file = io.BytesIO()
    Image.fromarray(numpy.full((8 + number, 16, 3), 20 * number, numpy.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server"), buckets=("bucket", "images")) as running:
        for number in range(COUNT):
            running.put("images", f"train/{number:02}.jpg", jpeg(number))
            running.put("bucket", f"arrays/{number:02}.npy", npy(numpy.full((3, 4), number, numpy.float32)))
            running.put("bucket", f"bytes/{number:02}", bytes([number] * (1 + number * 1000)))
        yield running


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, server: serving.Server) -> None:
    monkeypatch.setenv("NEBULAIO_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", serving.ACCESS)
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", serving.SECRET)


def pipeline(bucket: str = "bucket", batch: int = 4, device_id: int | None = None, decode: bool = False,
             **options: Any) -> Any:
    """A built pipeline around a reader with these options."""
    from nebulaio.dali import GPUDirectReader
    from nvidia.dali import fn, pipeline_def

    @pipeline_def
    def training_pipeline() -> Any:
        images = GPUDirectReader(bucket=bucket, **options)
        return fn.decoders.image(images, device="cpu") if decode else images

    made = training_pipeline(batch_size=batch, num_threads=2, device_id=device_id)
    made.build()
    return made


def epoch(pipe: Any) -> list[list[Any]]:
    """The batches of one epoch."""
    found = []
    while True:
        try:
            (output,) = pipe.run()
        except StopIteration:
            pipe.reset()
            return found
        found.append([numpy.array(sample) for sample in output])


def numbers(batches: list[list[Any]]) -> list[list[int]]:
    """What the objects of each batch are filled with."""
    return [[int(sample.flat[0]) for sample in batch] for batch in batches]


def test_the_block(server: serving.Server) -> None:
    """The block of GPUDirect's page to the letter, but for the port and device_id, and an iterator around it."""
    from nebulaio.dali import GPUDirectReader
    from nvidia.dali import pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def
    def training_pipeline() -> Any:
        images = GPUDirectReader(
            endpoint=server.endpoint,
            bucket="images",
            prefix="train/"
        )
        return images

    pipe = training_pipeline(batch_size=64, num_threads=4, device_id=None)

    (images,) = pipe.run()
    assert [bytes(numpy.array(one)) for one in images] == [jpeg(number) for number in range(COUNT)]

    @pipeline_def
    def arrays() -> Any:
        return GPUDirectReader(bucket="bucket", prefix="arrays/", pad_last_batch=True)

    running = DALIGenericIterator(arrays(batch_size=4, num_threads=2, device_id=None), ["data"], auto_reset=True)
    for _ in range(2):
        found = [batch[0]["data"] for batch in running]
        assert [one[:, 0, 0].tolist() for one in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]


def test_pictures_are_decoded() -> None:
    for options in ({}, {"device": "cpu"}):
        pictures = [one for batch in epoch(pipeline("images", prefix="train/", decode=True, **options))
                    for one in batch]
        assert [one.shape for one in pictures] == [(8 + number, 16, 3) for number in range(COUNT)]
        assert all(abs(float(one.mean()) - 20 * number) < 3 for number, one in enumerate(pictures))


@pytest.mark.parametrize("read_ahead", [0, 1, 2, 7, 100])
def test_values_and_epochs(read_ahead: int) -> None:
    pipe = pipeline(prefix="bytes/", read_ahead=read_ahead)
    for _ in range(3):
        batches = epoch(pipe)
        assert numbers(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        flat = [one for batch in batches for one in batch]
        assert all(one.tobytes() == bytes([number] * (1 + number * 1000)) for number, one in enumerate(flat))
    pipe = pipeline(prefix="arrays/", read_ahead=read_ahead, batch=3)
    batches = epoch(pipe)
    assert numbers(batches) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert all(one.dtype == numpy.float32 and one.shape == (3, 4) for batch in batches for one in batch)
    assert numbers(epoch(pipeline(prefix="arrays/", batch=8, batch_size=5))) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_shuffle_and_shards() -> None:
    whole = pipeline(prefix="bytes/", random_shuffle=True, seed=3)
    first, second = sum(numbers(epoch(whole)), []), sum(numbers(epoch(whole)), [])
    assert sorted(first) == sorted(second) == list(range(COUNT)) and first != second
    again = pipeline(prefix="bytes/", random_shuffle=True, seed=3, batch=7)
    assert [sum(numbers(epoch(again)), []) for _ in range(2)] == [first, second]
    assert sum(numbers(epoch(pipeline(prefix="bytes/", random_shuffle=True, seed=4))), []) != first
    shards = [pipeline(prefix="bytes/", random_shuffle=True, seed=3, shard_id=at, num_shards=3) for at in range(3)]
    for expected in (first, second):
        parts = [sum(numbers(epoch(one)), []) for one in shards]
        assert [len(part) for part in parts] == [4, 3, 3] and parts == [expected[at::3] for at in range(3)]
    padded = [pipeline(prefix="bytes/", shard_id=at, num_shards=3, pad_last_batch=True, batch=3) for at in range(3)]
    assert [numbers(epoch(one)) for one in padded] == [[[0, 3, 6], [9, 9, 9]], [[1, 4, 7], [7, 7, 7]],
                                                       [[2, 5, 8], [8, 8, 8]]]


def test_reports_tell_of_every_batch() -> None:
    reports: list[Any] = []
    epoch(pipeline(prefix="bytes/", report=reports.append))
    assert [len(one["objects"]) for one in reports] == [4, 4, 2]
    assert sum(one.bytes for one in reports) == sum(1 + number * 1000 for number in range(COUNT))
    assert {one["device"]["id"] for one in reports} == {"host"}


def test_two_readers_of_one_pipeline() -> None:
    from nebulaio.dali import GPUDirectReader
    from nvidia.dali import pipeline_def

    @pipeline_def
    def both() -> Any:
        return GPUDirectReader("bucket", "bytes/", name="first"), GPUDirectReader("bucket", "arrays/", name="second")

    pipe = both(batch_size=5, num_threads=1, device_id=None)
    for expected in ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]):
        for output in pipe.run():
            assert numbers([[numpy.array(one) for one in output]]) == [expected]


def test_arguments_are_checked(server: serving.Server) -> None:
    from nebulaio.dali import GPUDirectReader

    for options, words in (
        ({"device": "tpu"}, "'tpu' is not 'cpu' or 'gpu'"),
        ({"device": "gpu"}, "the pipeline has no GPU"),
        ({"batch_size": 5}, "batch_size=5: the pipeline's batch_size is 4"),
        ({"shard_id": 2, "num_shards": 2}, "shard_id=2 of num_shards=2"),
        ({"num_shards": 0}, "num_shards=0"),
        ({"num_shards": 11}, "10 objects cannot be shared by num_shards=11"),
        ({"read_ahead": -1}, "read_ahead=-1"),
        ({"read_ahead": None}, "read_ahead=None"),
        ({"random_shuffle": 1}, "random_shuffle=1"),
        ({"kind": "jpg"}, "kind='jpg'"),
        ({"report": 3}, "report=3 is not callable"),
        ({"suffix": ""}, "suffix=''"),
        ({"prefix": ""}, r"10 of 20 objects are .npy files.*suffix='.npy'"),
    ):
        with pytest.raises(InvalidError, match=words):
            pipeline(**{"prefix": "bytes/", **options})
    with pytest.raises(InvalidError, match="no pipeline is being defined"):
        GPUDirectReader("bucket")
    with pytest.raises(NotFoundError, match=r"s3://bucket/none/: .*it has 'arrays/', 'bytes/'"):
        pipeline(prefix="none/")
    with pytest.raises(NotFoundError, match=r"none of 10 objects ends with '.jpg': 10 end with '.npy'"):
        pipeline(prefix="arrays/", suffix=".jpg")
    with pytest.raises(DeviceError, match=r"cuda:77: .*device='cpu'"):
        pipeline(prefix="bytes/", device_id=77)


def test_objects_that_change_in_an_epoch(server: serving.Server) -> None:
    for number in range(8):
        server.put("bucket", f"going/{number}", bytes([number] * 9))
    def then(change: Callable[[], object]) -> None:
        """Run an epoch after a change that follows the listing."""
        server.put("bucket", "going/7", bytes(9))
        pipe = pipeline(prefix="going/", batch=2, read_ahead=0)
        pipe.run()
        change()
        epoch(pipe)

    then(lambda: server.put("bucket", "going/7", bytes(9)))
    for size in (10, 8, 0):
        with pytest.raises(CorruptError, match=f"s3://bucket/going/7: the object has {size} bytes, and had 9"):
            then(lambda: server.put("bucket", "going/7", bytes(size)))
    with pytest.raises(NotFoundError, match="s3://bucket/going/7: .*was there when the prefix was listed"):
        then(lambda: server.request("DELETE", "/bucket/going/7"))


def test_bad_arrays(server: serving.Server) -> None:
    for content, kind, words in (
        (npy(numpy.ones(3))[:-1], CorruptError, "23 bytes after its header, expected 24"),
        (npy(numpy.ones(3, ">f4")), UnsupportedError, "big-endian"),
        (b"", CorruptError, "begins with b''"),
    ):
        server.put("bucket", "bad/a.npy", content)
        with pytest.raises(kind, match=f"s3://bucket/bad/a.npy: .*{words}"):
            epoch(pipeline(prefix="bad/"))
    text = str({"descr": "<i2", "fortran_order": False, "shape": (2,)}).encode() + b" " * 5000
    server.put("bucket", "bad/a.npy", b"\x93NUMPY\x02\x00" + len(text).to_bytes(4,
                                                                                "little") + text + bytes([7, 0, 8, 0]))
    (batch,) = epoch(pipeline(prefix="bad/"))
    assert batch[0].tolist() == [7, 8]


def test_a_machine_without_dali() -> None:
    code = """
import sys
sys.modules["nvidia.dali.pipeline"] = None
from nebulaio.dali import GPUDirectReader
try:
    GPUDirectReader("bucket")
except NotImplementedError as problem:
    print(problem)
"""
    assert "pip install nvidia-dali" in run_python(code).stdout


def test_public_names_are_documented() -> None:
    module = importlib.import_module("nebulaio.dali")
    assert module.__all__ == ["GPUDirectReader", "Kind"]
    assert inspect.getdoc(module) and inspect.getdoc(module.GPUDirectReader)
