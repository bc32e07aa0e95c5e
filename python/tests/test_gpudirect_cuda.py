# SPDX-License-Identifier: Apache-2.0
"""GPUDirectClient on a real GPU, with buffers of every framework; off by default, run with -m cuda."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import serving
from nebulaio import GPUDirectClient
from nebulaio.errors import AccessError, InvalidError
from support import random_entry, write
from test_cufile_cuda import FRAMEWORKS, of_jax

pytestmark = pytest.mark.cuda

SIZE = 5_000_001


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server"), buckets=("bucket", "training-data", "results")) as running:
        yield running


@pytest.fixture(params=["door", "http"])
def client(request: pytest.FixtureRequest, server: serving.Server) -> Iterator[GPUDirectClient]:
    with GPUDirectClient(server.endpoint, **server.keys, door="require" if request.param == "door" else "off") as made:
        made.way = request.param  # type: ignore[attr-defined]
        yield made


def content(size: int = SIZE, seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)


def test_the_block_of_the_documentation(server: serving.Server) -> None:
    """GPUDirect's page: cuPy, unchanged apart from sizes and the port."""
    cp = pytest.importorskip("cupy")
    weights = numpy.random.default_rng(3).random(256**3, dtype=numpy.float32)
    server.put("training-data", "model/weights.bin", weights.tobytes())

    def some_gpu_computation(a: Any) -> Any:
        return a * 2 + 1

    # Initialize client
    client = GPUDirectClient(
        endpoint=server.endpoint,
        access_key=serving.ACCESS,
        secret_key=serving.SECRET
    )

    # Allocate GPU memory
    gpu_buffer = cp.zeros((256, 256, 256), dtype=cp.float32)

    # Direct read from storage to GPU
    client.read_to_gpu(
        bucket="training-data",
        key="model/weights.bin",
        gpu_buffer=gpu_buffer
    )

    # Process on GPU
    result = some_gpu_computation(gpu_buffer)

    # Direct write from GPU to storage
    client.write_from_gpu(
        bucket="results",
        key="output/processed.bin",
        gpu_buffer=result
    )

    assert cp.asnumpy(gpu_buffer).tobytes() == weights.tobytes()
    assert server.get("results", "output/processed.bin") == cp.asnumpy(result).tobytes()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_frameworks(client: GPUDirectClient, server: serving.Server, framework: Any) -> None:
    put, back = framework()
    want = content()
    report = client.write_from_gpu("bucket", "frameworks", put(want))
    assert report.bytes == SIZE and report["device"]["id"].startswith("cuda:") and report.via == client.way  # type: ignore[attr-defined]
    assert server.get("bucket", "frameworks") == want.tobytes()
    target = put(numpy.zeros(SIZE, numpy.uint8))
    if framework is of_jax:
        with pytest.raises(InvalidError, match="read-only"):
            client.read_to_gpu("bucket", "frameworks", target)
        return
    report = client.read_to_gpu("bucket", "frameworks", target)
    assert report.bytes == SIZE and report["device"]["id"].startswith("cuda:")
    assert (back(target) == want).all()
    client.read_to_gpu("bucket", "frameworks", target, 4097, 1_000_003, buffer_offset=77)
    assert (back(target)[77:1_000_080] == want[4097:1_004_100]).all()


@pytest.mark.parametrize("size", [0, 1, 4096, 16 << 10, (16 << 10) + 1, 1 << 20, (64 << 20) + 3])
def test_sizes(client: GPUDirectClient, server: serving.Server, size: int) -> None:
    cupy = pytest.importorskip("cupy")
    want = content(size, size)
    for write_it in (lambda: client.write_from_gpu("bucket", "sizes", cupy.asarray(want)),
                     lambda: server.put("bucket", "sizes", want.tobytes())):
        write_it()
        got = cupy.full(size + 9, 7, cupy.uint8)
        assert client.read_to_gpu("bucket", "sizes", got).bytes == size
        assert (cupy.asnumpy(got[:size]) == want).all() and (got[size:] == 7).all()


def test_after_the_stream(client: GPUDirectClient, server: serving.Server) -> None:
    """Work that is queued on a stream comes before the move; work after the call sees the bytes."""
    torch = pytest.importorskip("torch")
    want = content(64 << 20, 5)
    server.put("bucket", "stream", want.tobytes())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        target = torch.empty(want.size, dtype=torch.uint8, device="cuda")
        torch.cuda._sleep(50_000_000)
        target.fill_(9)  # would land on top of what is read, if it were not waited for
        client.async_read("bucket", "stream", target).result(60)
        copy = target.clone()
    stream.synchronize()
    assert (copy.cpu().numpy() == want).all()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        target.copy_(255 - target)
        client.write_from_gpu("bucket", "stream", target)
    assert server.get("bucket", "stream") == (255 - want).tobytes()


def test_many_and_awaited(client: GPUDirectClient, server: serving.Server) -> None:
    cupy = pytest.importorskip("cupy")
    want = content(1 << 20, 6)
    for i in range(10):
        server.put("bucket", f"many/{i}", numpy.roll(want, i).tobytes())
    buffers = [cupy.zeros(want.size, cupy.uint8) for _ in range(200)]
    report = client.read_many([("bucket", f"many/{i % 10}", buffer) for i, buffer in enumerate(buffers)])
    assert report.bytes == 200 * want.size
    for i, buffer in enumerate(buffers):
        assert (cupy.asnumpy(buffer) == numpy.roll(want, i % 10)).all()

    async def work() -> None:
        for buffer in buffers:
            buffer[:] = 0
        await asyncio.gather(*(client.async_read("bucket", f"many/{i % 10}", buffer)
                               for i, buffer in enumerate(buffers)))

    asyncio.run(work())
    for i, buffer in enumerate(buffers):
        assert (cupy.asnumpy(buffer) == numpy.roll(want, i % 10)).all()


def test_what_goes_wrong(client: GPUDirectClient, server: serving.Server) -> None:
    cupy = pytest.importorskip("cupy")
    server.put("bucket", "wrong", content().tobytes())

    class Claims:
        """Memory that is not what it says."""

        def __init__(self, address: int, size: int) -> None:
            self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    with pytest.raises(InvalidError, match=f"{SIZE}"):
        client.read_to_gpu("bucket", "wrong", cupy.zeros(SIZE - 1, cupy.uint8))
    allocated = cupy.cuda.runtime.malloc(64 << 20)
    cupy.cuda.runtime.free(allocated)
    for address in (allocated, 4096):
        with pytest.raises(InvalidError, match=f"0x{address:x}"):
            client.read_to_gpu("bucket", "wrong", Claims(address, SIZE))
        with pytest.raises(InvalidError, match=f"0x{address:x}"):
            client.write_from_gpu("bucket", "freed", Claims(address, SIZE))
    host = content()
    with pytest.raises(InvalidError):
        client.read_to_gpu("bucket", "wrong", Claims(host.ctypes.data, SIZE))
    good = cupy.zeros(SIZE, cupy.uint8)
    assert client.read_to_gpu("bucket", "wrong", good).bytes == SIZE
    assert (cupy.asnumpy(good) == content()).all()


def test_a_device_that_the_server_does_not_allow(tmp_path: Any) -> None:
    cupy = pytest.importorskip("cupy")
    with serving.serving(tmp_path, NEBULAIO_GPUDIRECT_DEVICE_IDS="63") as server, GPUDirectClient(server.endpoint, **server.keys, door="require") as client:
        server.put("bucket", "device", content().tobytes())
        with pytest.raises(AccessError, match="device"):
            client.read_to_gpu("bucket", "device", cupy.zeros(SIZE, cupy.uint8))
        assert client.read_to_gpu("bucket", "device", bytearray(SIZE)).bytes == SIZE


def test_cufile_reads_the_object(server: serving.Server) -> None:
    """By libcufile, which gets the descriptors that the door has passed."""
    cupy = pytest.importorskip("cupy")
    from nebulaio.errors import DeviceError, UnsupportedError

    server.put("bucket", "cufile", content().tobytes())
    got = cupy.zeros(SIZE, cupy.uint8)
    with GPUDirectClient(server.endpoint, **server.keys, door="require") as client:
        try:
            report = client.read_to_gpu("bucket", "cufile", got, route="cufile")
        except (UnsupportedError, DeviceError) as why:
            pytest.skip(f"libcufile does not work here: {why}")
    assert all(route.startswith("cufile_") for route in report.routes.keys()) and (cupy.asnumpy(got) == content()).all()


def test_models(client: GPUDirectClient, server: serving.Server, tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    entries = {f"layer.{i}": random_entry(i, "F32", [64, 1000 + i]) for i in range(8)}
    server.put("bucket", "model.safetensors", write(tmp_path / "m.safetensors", entries).read_bytes())
    tensors = client.load_model("bucket", "model.safetensors", "cuda")
    assert {name: t.cpu().numpy().tobytes() for name, t in tensors.items()} == {name: e[2]
                                                                                for name, e in entries.items()}
    assert all(t.device == torch.device("cuda", 0) for t in tensors.values())


def test_the_buffer_is_kept(server: serving.Server) -> None:
    cupy = pytest.importorskip("cupy")
    want = content(256 << 20, 8)
    with GPUDirectClient(server.endpoint, **server.keys) as client:
        client.write_from_gpu("bucket", "kept", want)
        futures = [client.async_read("bucket", "kept", cupy.zeros(want.size, cupy.uint8)) for _ in range(3)]
        gc.collect()
        others = [cupy.full(want.size, 3, cupy.uint8) for _ in range(2)]
        assert all(future.result(120).bytes == want.size for future in futures)
        assert all((other == 3).all() for other in others)  # no read has landed in memory that was given up
