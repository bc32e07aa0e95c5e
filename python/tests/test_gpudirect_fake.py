# SPDX-License-Identifier: Apache-2.0
"""GPUDirectClient on CUDA memory of a driver without a GPU, which is strict about contexts, streams and addresses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import serving
from support import ROOT, python

COMMON = """
import ctypes, os, sys
from nebulaio import GPUDirectClient
from nebulaio.errors import *

driver = ctypes.CDLL("libcuda.so.1")
def must(status): assert status == 0, status
must(driver.cuInit(0))
contexts = []
for number in range(2):
    context = ctypes.c_void_p()
    must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    contexts.append(context)

class on:
    def __init__(self, number): self.number = number
    def __enter__(self): must(driver.cuCtxPushCurrent_v2(contexts[self.number]))
    def __exit__(self, *_): must(driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))

class Array:
    '''CUDA memory as any framework shows it.'''
    def __init__(self, size, number=0, content=None, stream=None, readonly=False):
        self.size, self.number, self.readonly, self.stream = size, number, readonly, stream
        at = ctypes.c_uint64()
        with on(number): must(driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(max(size, 1))))
        self.at = at.value
        if content is not None: self.set(content)
    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.at, self.readonly), "version": 3, "stream": self.stream}
    def __dlpack_device__(self): return (2, self.number)
    def set(self, content):
        with on(self.number):
            must(driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.at), content, ctypes.c_size_t(len(content)), None))
            must(driver.cuStreamSynchronize(None))
    def get(self):
        out = ctypes.create_string_buffer(self.size)
        with on(self.number):
            must(driver.cuMemcpyDtoHAsync_v2(out, ctypes.c_uint64(self.at), ctypes.c_size_t(self.size), None))
            must(driver.cuStreamSynchronize(None))
        return out.raw
    def free(self):
        with on(self.number): must(driver.cuMemFree_v2(ctypes.c_uint64(self.at)))

def fails(kind, call, *words):
    try:
        call()
    except kind as problem:
        said = str(problem)
        assert all(word in said for word in words), said
        return said
    raise AssertionError("it did not fail")

client = GPUDirectClient(sys.argv[1], sys.argv[2], sys.argv[3], door=sys.argv[4])
door = sys.argv[4] == "require"
"""

MOVES = """
for size in (0, 1, 5000, 16384, 16385, 1 << 20, 3_000_001):
    data = os.urandom(size)
    source, target = Array(size, content=data), Array(size + 7, content=bytes(size + 7))
    report = client.write_from_gpu("bucket", "cuda", source)
    assert report.bytes == size and (size == 0 or report["device"]["id"] == "cuda:0"), dict(report)
    report = client.read_to_gpu("bucket", "cuda", target)
    assert report.bytes == size and report["device"]["id"] == "cuda:0", dict(report)
    assert target.get() == data + bytes(7), size
report = client.read_to_gpu("bucket", "cuda", target, 1000, 70_000, buffer_offset=3)
assert target.get()[3:70_003] == data[1000:71_000]
many = [Array(10_000) for _ in range(50)]
client.read_many([("bucket", "cuda", one, 10_000 * i, 10_000) for i, one in enumerate(many)])
assert all(one.get() == data[10_000 * i : 10_000 * (i + 1)] for i, one in enumerate(many))
futures = [client.async_read("bucket", "cuda", one, 10_000 * i, 10_000) for i, one in enumerate(many)]
assert sum(f.result(60).bytes for f in futures) == 500_000
"""

PEERS = """
data = os.urandom(3_000_001)
client.write_from_gpu("bucket", "peers", data)
for size in (100, len(data)):
    both = [Array(size, 0), Array(size, 1)]
    report = client.read_to_gpus("bucket", "peers", both, size=size)
    assert [one.get() == data[:size] for one in both] == [True, True]
other = Array(len(data), 1)
assert client.read_to_gpu("bucket", "peers", other)["device"]["id"] == "cuda:1"
assert other.get() == data
client.write_from_gpu("bucket", "peers", other)
"""

ERRORS = """
data = os.urandom(100_000)
client.write_from_gpu("bucket", "errors", data)
gone = Array(100_000)
gone.free()
fails(InvalidError, lambda: client.read_to_gpu("bucket", "errors", gone), hex(gone.at))
fails(InvalidError, lambda: client.write_from_gpu("bucket", "errors", gone), hex(gone.at))
short = Array(100_000)
short.size = 200_000  # the framework says more than the driver gave
fails(InvalidError, lambda: client.write_from_gpu("bucket", "errors", short), hex(short.at))
wrong = Array(100_000, 0)
wrong.number = 1  # says that it lies on another device than it does
fails(InvalidError, lambda: client.read_to_gpu("bucket", "errors", wrong), "cuda:0", "cuda:1")
frozen = Array(100_000, readonly=True)
fails(InvalidError, lambda: client.read_to_gpu("bucket", "errors", frozen), "read-only")
small = Array(99_999)
fails(InvalidError, lambda: client.read_to_gpu("bucket", "errors", small), "100000", "99999")
fails(FileNotFoundError, lambda: client.read_to_gpu("bucket", "none", small), "s3://bucket/none")
other = GPUDirectClient(sys.argv[1], sys.argv[2], sys.argv[3], device_ids=[1])
fails(InvalidError, lambda: other.read_to_gpu("bucket", "errors", small), "device_ids", "cuda:0")
good = Array(100_000)
client.read_to_gpu("bucket", "errors", good)
assert good.get() == data
"""

STREAMS = """
# Work that is queued before a move on a stream comes before it; the driver holds it back until it is told.
data, other = os.urandom(1 << 20), os.urandom(1 << 20)
stream = ctypes.c_void_p()
with on(0): must(driver.cuStreamCreate(ctypes.byref(stream), 1))
source = Array(1 << 20, content=bytes(1 << 20), stream=stream.value)
pinned = ctypes.create_string_buffer(data, 1 << 20)
with on(0): must(driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(source.at), pinned, ctypes.c_size_t(1 << 20), stream))
client.write_from_gpu("bucket", "stream", source)
got = bytearray(1 << 20)
client.read_to_gpu("bucket", "stream", got)
assert got == data
pinned2 = ctypes.create_string_buffer(other, 1 << 20)
with on(0): must(driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(source.at), pinned2, ctypes.c_size_t(1 << 20), stream))
client.async_read("bucket", "stream", source, stream=stream.value).result(60)
assert source.get() == data  # what was queued did not land on top of what was read
"""

BATCHES = """
# The batches of a DALI pipeline, with arrays of the driver in place of torch's.
import io, math, numpy
from contextlib import nullcontext
from types import SimpleNamespace
from nebulaio import _batches, _prefix

class Memory:
    on_host, stream = False, None
    def active(self): return nullcontext()
    def empty(self, size): return Array(size)
    def typed(self, array, header):
        content = array.get()[header.offset : header.offset + header.size]
        return numpy.frombuffer(content, header.dtype).reshape(header.shape)

def batches(prefix, is_array, read_ahead):
    objects = _prefix.list_objects(client, "bucket", prefix, None)
    order = _batches.Order(len(objects), 4, 0, 1, False, 0, False)
    source = _batches.Batches(client, "bucket", objects, Memory(), order, is_array=is_array, read_ahead=read_ahead, report=reports.append)
    for epoch in range(2):
        for number in range(3):
            yield from source(SimpleNamespace(epoch_idx=epoch, iteration=number))
        try:
            source(SimpleNamespace(epoch_idx=epoch, iteration=3))
        except StopIteration:
            continue
        raise AssertionError("the epoch did not end")
    yield from source(SimpleNamespace(epoch_idx=5, iteration=1))  # as after a restored checkpoint

contents = [os.urandom(1 + 5000 * number) for number in range(10)]
arrays = [numpy.full((number, 700), number, "<i4") for number in range(10)]
for number in range(10):
    client.write_from_gpu("bucket", f"raw/{number}", contents[number])
    file = io.BytesIO()
    numpy.save(file, arrays[number])
    client.write_from_gpu("bucket", f"npy/{number}.npy", file.getvalue())
for read_ahead in (0, 2, 9):
    reports = []
    assert [one.get() for one in batches("raw/", False, read_ahead)] == contents * 2 + contents[4:8]
    assert {one["device"]["id"] for one in reports} == {"cuda:0"}
    found = list(batches("npy/", True, read_ahead))
    assert all(numpy.array_equal(one, expected) for one, expected in zip(found, arrays * 2 + arrays[4:8])) and len(found) == 24
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    source = ROOT / "internal/device/fakegpu/csrc/libcuda.c"
    if not (ROOT / "internal").is_dir():
        pytest.skip("not in a checkout: the driver's source is not here")
    subprocess.run(["cc", "-shared", "-fPIC", "-pthread", "-O1", "-DFAKE_DEVICES=2", "-o", str(folder / "libcuda.so.1"),
                    str(source)], check=True)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("door", ["require", "off"])
@pytest.mark.parametrize("script", [MOVES, PEERS, ERRORS, STREAMS, BATCHES],
                         ids=["moves", "peers", "errors", "streams", "batches"])
def test_on_a_driver_without_a_gpu(driver: Path, server: serving.Server, door: str, script: str) -> None:
    python(COMMON + script, server.endpoint, serving.ACCESS, serving.SECRET, door, env={"LD_LIBRARY_PATH": str(driver)})


def test_a_device_that_the_server_does_not_allow(driver: Path, tmp_path: Path) -> None:
    script = """
data = os.urandom(100_000)
client.write_from_gpu("bucket", "device", data)
fails(AccessError, lambda: client.read_to_gpu("bucket", "device", Array(100_000, 0)), "device")
allowed = Array(100_000, 1)
client.read_to_gpu("bucket", "device", allowed)
assert allowed.get() == data
assert client.status()["settings"]["device_ids"] == [1]
"""
    with serving.serving(tmp_path, NEBULAIO_GPUDIRECT_DEVICE_IDS="1") as server:
        python(COMMON + script, server.endpoint, serving.ACCESS, serving.SECRET, "require",
               env={"LD_LIBRARY_PATH": str(driver)})
