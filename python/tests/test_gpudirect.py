# SPDX-License-Identifier: Apache-2.0
"""GPUDirectClient on host memory against a server of ours, through its door and over HTTP."""

from __future__ import annotations

import array
import asyncio
import ctypes
import mmap
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nebulaio
import nebulaio.safetensors as ns
import numpy
import pytest
import serving
from nebulaio import GPUDirectClient
from nebulaio.errors import AccessError, InvalidError, NebulaioError, NotFoundError, ReadError, UnsupportedError
from support import in_threads, python, random_entry, write, write_sharded

SIZES = [0, 1, 4095, 4096, 16 << 10, (16 << 10) + 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_001]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    if not os.access(serving.program(), os.X_OK):
        pytest.fail(f"{serving.program()} is not built (fix: `make build`, or set NEBULAIO_CLI)", pytrace=False)
    with serving.serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(params=["door", "http"])
def client(request: pytest.FixtureRequest, server: serving.Server) -> Iterator[GPUDirectClient]:
    """A client by each of the two ways; reports are checked to say so."""
    with GPUDirectClient(server.endpoint, **server.keys, door="require" if request.param == "door" else "off") as made:
        made.way = request.param  # type: ignore[attr-defined]
        yield made


def way(client: GPUDirectClient) -> str:
    return str(client.way)  # type: ignore[attr-defined]


def data(size: int, seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)


def test_the_block_of_the_documentation(server: serving.Server) -> None:
    """What GPUDirect's page shows with cuPy, with NumPy in its place and smaller."""
    cp = numpy
    for bucket in ("training-data", "results"):
        assert server.request("PUT", "/" + bucket)[0] == 200
    server.put("training-data", "model/weights.bin", data(1 << 20).tobytes())

    def some_gpu_computation(a: Any) -> Any:
        return a[::-1].copy()

    client = GPUDirectClient(
        endpoint=server.endpoint,
        access_key=serving.ACCESS,
        secret_key=serving.SECRET
    )
    gpu_buffer = cp.zeros((64, 64, 64), dtype=cp.float32)
    client.read_to_gpu(
        bucket="training-data",
        key="model/weights.bin",
        gpu_buffer=gpu_buffer
    )
    result = some_gpu_computation(gpu_buffer)
    client.write_from_gpu(
        bucket="results",
        key="output/processed.bin",
        gpu_buffer=result
    )
    assert gpu_buffer.tobytes() == data(1 << 20).tobytes()
    assert server.get("results", "output/processed.bin") == result.tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_sizes(client: GPUDirectClient, server: serving.Server, size: int) -> None:
    want = data(size, size)
    report = client.write_from_gpu("bucket", f"sizes/{way(client)}/{size}", want, content_type="text/plain",
                                   metadata={"who": "ärger"[1:]})
    assert report.bytes == size and report.via == way(client) and report["op"] == "write" and report.etag
    assert server.get("bucket", f"sizes/{way(client)}/{size}") == want.tobytes()
    got = numpy.full(size + 100, 7, numpy.uint8)
    report = client.read_to_gpu("bucket", f"sizes/{way(client)}/{size}", got)
    assert (got[:size] == want).all() and (got[size:] == 7).all()
    assert report.bytes == size and report.via == way(client) and sum(report.routes.values()) == size
    assert report["size"] == size and report["device"]["id"] == "host" and repr(report)
    assert nebulaio.last_report() == dict(report)
    # What a plain PUT has written, too.
    server.put("bucket", "put", want.tobytes())
    got[:] = 0
    assert client.read_to_gpu("bucket", "put", got).bytes == size and (got[:size] == want).all()


def test_ranges(client: GPUDirectClient, server: serving.Server) -> None:
    want = data(3_000_001, 4)
    server.put("bucket", "ranges", want.tobytes())
    rng = numpy.random.default_rng(5)
    for _ in range(12):
        offset, size, at = int(rng.integers(0, want.size)), int(rng.integers(0, 1_200_000)), int(rng.integers(0, 5000))
        size = min(size, want.size - offset)
        got = numpy.zeros(at + size + 11, numpy.uint8)
        report = client.read_to_gpu("bucket", "ranges", got, offset, size, buffer_offset=at)
        assert report.bytes == size and (got[at : at + size] == want[offset : offset + size]).all()
        assert not got[:at].any() and not got[at + size :].any()
    tail = numpy.zeros(100, numpy.uint8)
    assert client.read_to_gpu("bucket", "ranges", tail, offset=want.size - 60).bytes == 60
    assert (tail[:60] == want[-60:]).all()
    assert client.write_from_gpu("bucket", "part", want, size=1000, buffer_offset=17).bytes == 1000
    assert server.get("bucket", "part") == want[17:1017].tobytes()


def test_buffers_of_the_host(client: GPUDirectClient, server: serving.Server) -> None:
    server.put("bucket", "host", b"0123456789")
    for buffer in (bytearray(10), memoryview(bytearray(10)), (ctypes.c_char * 10)(), array.array("B", bytes(10)),
                   mmap.mmap(-1, 10)):
        assert client.read_to_gpu("bucket", "host", buffer).bytes == 10
        assert bytes(buffer) == b"0123456789"
    fortran = numpy.zeros((2, 5), numpy.uint8, order="F")
    assert client.read_to_gpu("bucket", "host", fortran).bytes == 10
    client.write_from_gpu("bucket", "host", b"bytes")
    assert server.get("bucket", "host") == b"bytes"
    bfloat = numpy.arange(9).astype(pytest.importorskip("ml_dtypes").bfloat16)
    client.write_from_gpu("bucket", "host", bfloat)
    assert server.get("bucket", "host") == bfloat.tobytes()


def test_many(client: GPUDirectClient, server: serving.Server) -> None:
    sizes = [0, 1, 100, 5000, 16384, 16385, 100_000, 1 << 20] * 20
    for number, size in enumerate(sizes[:8]):
        server.put("bucket", f"many/{number}", data(size, number).tobytes())
    buffers = [numpy.zeros(size, numpy.uint8) for size in sizes]
    report = client.read_many([("bucket", f"many/{i % 8}", buffer) for i, buffer in enumerate(buffers)])
    assert report.bytes == sum(sizes) and report.via == way(client) and len(report["objects"]) == len(sizes)
    for i, buffer in enumerate(buffers):
        assert (buffer == data(sizes[i], i % 8)).all()
    part = numpy.zeros(50, numpy.uint8)
    assert client.read_many([("bucket", "many/3", part, 7, 50),
                             ("bucket", "many/2", numpy.zeros(90, numpy.uint8), 10)]).bytes == 140
    assert (part == data(5000, 3)[7:57]).all()
    with pytest.raises(NotFoundError, match="many/none"):
        client.read_many([("bucket", "many/1", bytearray(1)), ("bucket", "many/none", bytearray(1))])
    with pytest.raises(InvalidError, match="no object"):
        client.read_many([])


def test_stat_and_list(client: GPUDirectClient, server: serving.Server) -> None:
    bucket = f"lists-{way(client)}"
    assert server.request("PUT", "/" + bucket)[0] == 200
    keys = [f"a/{i:02}" for i in range(7)] + ["a/deep/x", "b", "ünï/ключ", "z z+%"]
    for key in keys:
        server.put(bucket, key, key.encode())
    found = list(client.list(bucket))
    assert [one.key for one in found] == sorted(keys, key=str.encode)
    assert all(one.size == len(one.key.encode()) and one.etag and one.modified and not one.is_prefix for one in found)
    assert [one.key for one in client.list(bucket, "a/", "/")] == [*keys[:7], "a/deep/"]
    assert [one.key for one in client.list(bucket, delimiter="/") if one.is_prefix] == ["a/", "ünï/"]
    assert [one.key for one in client.list(bucket, after="a/05")][0] == "a/06"
    assert [one.key for one in client.list(bucket, limit=3)] == keys[:3]
    assert list(client.list(bucket, "none")) == [] and list(client.list(bucket, limit=0)) == []
    with pytest.raises(NotFoundError):
        next(client.list("no-such-bucket"))
    told = client.stat(bucket, "ünï/ключ")
    assert (told.bucket, told.key, told.size) == (bucket, "ünï/ключ", len("ünï/ключ".encode()))
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        client.stat(bucket, "nothing-here")
    for _ in range(2):  # a missing object is no error
        client.delete(bucket, "ünï/ключ")
        with pytest.raises(NotFoundError):
            client.stat(bucket, "ünï/ключ")
    with pytest.raises(NotFoundError):
        client.delete("no-such-bucket", "key")


def test_pages(client: GPUDirectClient, server: serving.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """More keys than a page has, by pages of two."""
    from nebulaio import _objects

    for i in range(5):
        server.put("bucket", f"pages/{i}", b"x")
    real, asked = _objects.ask, []

    def small(client: Any, function: str, *arguments: Any) -> Any:
        import json

        asked.append(function)
        options = json.loads(arguments[1])
        return real(client, function, arguments[0], json.dumps({**options, "limit": 2}).encode())

    monkeypatch.setattr(_objects, "ask", small)
    assert [one.key for one in client.list("bucket", "pages/")] == [f"pages/{i}" for i in range(5)]
    assert len(asked) == 3


def test_conditions(client: GPUDirectClient, server: serving.Server) -> None:
    key = f"conditions/{way(client)}"
    first = client.write_from_gpu("bucket", key, b"first" * 10_000, if_none_match="*")
    with pytest.raises(NebulaioError, match="(?i)precondition|condition"):
        client.write_from_gpu("bucket", key, b"second" * 10_000, if_none_match="*")
    with pytest.raises(NebulaioError, match="(?i)precondition|condition"):
        client.write_from_gpu("bucket", key, b"second" * 10_000, if_match='"0123"')
    assert server.get("bucket", key) == b"first" * 10_000
    client.write_from_gpu("bucket", key, b"second" * 10_000, if_match=first.etag)
    assert server.get("bucket", key) == b"second" * 10_000


def test_what_goes_wrong(client: GPUDirectClient, server: serving.Server) -> None:
    server.put("bucket", "wrong", data(100_000).tobytes())
    with pytest.raises(FileNotFoundError, match="s3://bucket/missing"):
        client.read_to_gpu("bucket", "missing", bytearray(10))
    with pytest.raises(NotFoundError, match="no-such-bucket"):
        client.read_to_gpu("no-such-bucket", "key", bytearray(10))
    with pytest.raises(NotFoundError, match="no-such-bucket"):
        client.write_from_gpu("no-such-bucket", "key", bytes(100_000))
    with pytest.raises(InvalidError, match="(?s)100000.*99999|99999.*100000"):
        client.read_to_gpu("bucket", "wrong", bytearray(99_999))
    with pytest.raises(InvalidError, match="(?s)100000.*10"):
        client.read_to_gpu("bucket", "wrong", bytearray(10))
    assert client.read_to_gpu("bucket", "wrong", bytearray(10), size=10).bytes == 10
    with pytest.raises(InvalidError):
        client.read_to_gpu("bucket", "wrong", bytearray(10), offset=100_001)
    with pytest.raises(InvalidError):
        client.read_to_gpu("bucket", "wrong", bytearray(20), offset=99_990, size=20)
    report = nebulaio.last_report()
    assert report is None or isinstance(report, dict)
    door = "require" if way(client) == "door" else "off"
    with GPUDirectClient(server.endpoint, serving.ACCESS, "not-the-secret", door=door) as other:
        with pytest.raises((AccessError, UnsupportedError, ReadError), match="(?i)key|signature|secret"):
            other.read_to_gpu("bucket", "wrong", bytearray(100_000))
    with GPUDirectClient(server.endpoint, "nobody-at-all", "whatever-it-is",
                         door=door) as other, pytest.raises(NebulaioError, match="(?i)key"):
        other.read_to_gpu("bucket", "wrong", bytearray(100_000))


def test_forbidden(client: GPUDirectClient, server: serving.Server) -> None:
    server.put("bucket", "private", data(100_000).tobytes())
    nobody = server.add_user(f"nobody-{way(client)}")
    with GPUDirectClient(server.endpoint, **nobody, door="require" if way(client) == "door" else "off") as other:
        for call in (
            lambda: other.read_to_gpu("bucket", "private", bytearray(100_000)),
            lambda: other.write_from_gpu("bucket", "private", bytes(100_000)),
            lambda: other.async_read("bucket", "private", bytearray(100_000)).result(60),
            lambda: other.read_many([("bucket", "private", bytearray(100_000))] * 2),
            lambda: other.stat("bucket", "private"),
            lambda: list(other.list("bucket")),
        ):
            with pytest.raises(PermissionError, match="(?i)denied|not allowed|forbidden|may not"):
                call()
    assert server.get("bucket", "private") == data(100_000).tobytes()


def test_no_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with GPUDirectClient(address, "a", "s", timeout=5, retries=1) as client, pytest.raises(NebulaioError,
                                                                                               match="refused"):
            client.read_to_gpu("bucket", "key", bytearray(4))
        with GPUDirectClient(address, "a", "s", door="require") as client, pytest.raises(NebulaioError,
                                                                                         match="door|discover|refused"):
            client.read_to_gpu("bucket", "key", bytearray(4))


def test_the_report_says_why_there_is_no_door(server: serving.Server) -> None:
    server.put("bucket", "refused", b"x" * 100_000)
    with GPUDirectClient(server.endpoint, **server.keys, door="/nowhere/to/be.sock") as client:
        with pytest.raises(NebulaioError, match="/nowhere/to/be.sock"):
            client.read_to_gpu("bucket", "refused", bytearray(100_000))
    with GPUDirectClient(server.endpoint, **server.keys, door="off") as client:
        report = client.read_to_gpu("bucket", "refused", bytearray(100_000))
        assert report.routes == {"network": 100_000}
        assert any(one["what"] == "door" for one in report.refusals)
    with GPUDirectClient(server.endpoint, **server.keys) as client:
        assert client.read_to_gpu("bucket", "refused", bytearray(100_000)).via == "door"
        assert client.status()["door"] == str(server.data / "gpudirect.sock")


def test_the_environments_client(server: serving.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("bucket", "environment", b"0123")
    for name, value in (("ENDPOINT", server.endpoint), ("ACCESS_KEY", serving.ACCESS), ("SECRET_KEY", serving.SECRET)):
        monkeypatch.setenv("NEBULAIO_" + name, value)
    code = """
from nebulaio import GPUDirectClient
buffer = bytearray(4)
with GPUDirectClient() as client:
    client.read_to_gpu("bucket", "environment", buffer)
print(bytes(buffer))
"""
    assert python(code) == "b'0123'\n"


def test_futures_and_awaits(client: GPUDirectClient, server: serving.Server) -> None:
    want = data(300_000, 9)
    server.put("bucket", "async", want.tobytes())
    done = threading.Semaphore(0)
    buffers = [numpy.zeros(want.size, numpy.uint8) for _ in range(16)]
    futures = [client.async_read("bucket", "async", buffer, callback=lambda _: done.release()) for buffer in buffers]
    for future, buffer in zip(futures, buffers):
        assert future.result(60).bytes == want.size and (buffer == want).all()
    assert all(done.acquire(timeout=60) for _ in futures)

    async def work() -> None:
        got = numpy.zeros(want.size, numpy.uint8)
        writes = [client.async_write("bucket", f"async/{i}", want) for i in range(3)]
        assert [report.bytes for report in await asyncio.gather(*writes)] == [want.size] * 3
        report = await client.async_read("bucket", "async/2", got)
        assert report.via == way(client) and (got == want).all()
        with pytest.raises(FileNotFoundError):
            await client.async_read("bucket", "async/none", got)

    asyncio.run(work())


def test_threads(client: GPUDirectClient, server: serving.Server) -> None:
    want = data(70_001, 11)
    server.put("bucket", "threads", want.tobytes())

    def work(number: int) -> None:
        got = numpy.zeros(want.size, numpy.uint8)
        for _ in range(10):
            got[:] = 0
            client.read_to_gpu("bucket", "threads", got)
            assert (got == want).all()
        client.write_from_gpu("bucket", f"threads/{number}", got)

    in_threads(work, 6)


def test_cancelled_write_leaves_what_was_there(client: GPUDirectClient, server: serving.Server) -> None:
    key = f"cancel/{way(client)}"
    server.put("bucket", key, b"before")

    def stop(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        client.write_from_gpu("bucket", key, numpy.zeros(64 << 20, numpy.uint8), progress=stop)
    assert server.get("bucket", key) == b"before"


def test_an_overwritten_object_stays_whole_for_its_reader(client: GPUDirectClient, server: serving.Server) -> None:
    old, new = data(8 << 20, 21), data(8 << 20, 22)
    server.put("bucket", "swap", old.tobytes())
    got = numpy.zeros(old.size, numpy.uint8)
    for _ in range(3):
        future = client.async_read("bucket", "swap", got)
        server.put("bucket", "swap", new.tobytes())
        try:
            future.result(60)
        except NebulaioError as problem:  # over HTTP it may change between two requests, which is told
            assert way(client) == "http", problem
            continue
        assert (got == old).all() or (got == new).all()


def test_models(client: GPUDirectClient, server: serving.Server, tmp_path: Path) -> None:
    entries = {f"layer.{i}": random_entry(i, "F32", [7, 100 + i]) for i in range(6)}
    one = write(tmp_path / "one.safetensors", entries)
    index = write_sharded(tmp_path / "sharded",
                          {"a.safetensors": dict(list(entries.items())[:3]),
                           "b.safetensors": dict(list(entries.items())[3:])})
    server.put("bucket", "models/one.safetensors", one.read_bytes())
    for file in index.parent.iterdir():
        server.put("bucket", f"models/sharded/{file.name}", file.read_bytes())

    def same(tensors: dict[str, Any]) -> None:
        assert {name: tensor.tobytes() for name, tensor in tensors.items()} == {name: entry[2]
                                                                                for name, entry in entries.items()}

    for key in ("models/one.safetensors", "models/sharded", "models/sharded/",
                "models/sharded/model.safetensors.index.json"):
        same(client.load_model("bucket", key, "cpu", framework="numpy"))
    same(ns.load_file("s3://bucket/models/one.safetensors", "cpu", framework="numpy", client=client))
    same(dict(ns.stream("s3://bucket/models/sharded", "cpu", framework="numpy", client=client, lookahead=0)))
    same(dict(ns.stream(["s3://bucket/models/sharded/a.safetensors", "s3://bucket/models/sharded/b.safetensors"], "cpu",
                        framework="numpy", client=client)))
    with ns.safe_open("s3://bucket/models/one.safetensors", framework="np", client=client) as file:
        assert file.get_tensor("layer.3").tobytes() == entries["layer.3"][2]
        assert file.get_slice("layer.0")[1:3].tobytes() == entries["layer.0"][2][400:1200]
    assert len(ns.inspect("s3://bucket/models/sharded", client=client)["tensors"]) == 6
    with pytest.raises(FileNotFoundError):
        client.load_model("bucket", "models/none.safetensors", "cpu", framework="numpy")


def test_ctrl_c_while_a_server_says_nothing() -> None:
    """One that takes connections and answers none of them."""
    code = """
import os, signal, socket, sys, threading, time
from nebulaio import GPUDirectClient
silent = socket.create_server(("127.0.0.1", 0))
client = GPUDirectClient(f"http://127.0.0.1:{silent.getsockname()[1]}", "a", "s", door="off", timeout=600)
for call in (
    lambda: client.read_to_gpu("bucket", "key", bytearray(10)),
    lambda: client.load_model("bucket", "key.safetensors", "cpu", framework="numpy"),
    lambda: client.stat("bucket", "key"),
    lambda: next(client.list("bucket")),
):
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        call()
    except KeyboardInterrupt:
        continue
    sys.exit("not interrupted")
print("interrupted")
"""
    assert python(code) == "interrupted\n"


FORK = """
import os, sys
from nebulaio import GPUDirectClient
client = GPUDirectClient(sys.argv[1], sys.argv[2], sys.argv[3], door=sys.argv[4])
buffer = bytearray(100000)
client.read_to_gpu("bucket", "fork", buffer)
pid = os.fork()
if pid == 0:
    mine = bytearray(100000)
    client.read_to_gpu("bucket", "fork", mine)
    client.async_read("bucket", "fork", mine).result(60)
    client.close()
    os._exit(0 if mine == buffer else 3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
client.read_to_gpu("bucket", "fork", buffer)
print("both")
"""


def test_fork(client: GPUDirectClient, server: serving.Server) -> None:
    server.put("bucket", "fork", data(100_000).tobytes())
    door = "require" if way(client) == "door" else "off"
    assert python(FORK, server.endpoint, serving.ACCESS, serving.SECRET, door) == "both\n"


def test_a_handle_without_a_place_is_not_kept(server: serving.Server) -> None:
    with GPUDirectClient(server.endpoint, **server.keys, door="require") as client:
        client.write_from_gpu("bucket", "no-place", data(100_000))
        opened = client._open()
        functions, err = opened.system.functions, ctypes.create_string_buffer(200)

        class Descriptors(ctypes.Structure):
            _fields_ = [("struct_size", ctypes.c_size_t), ("buffered", ctypes.c_int32), ("direct", ctypes.c_int32),
                        ("size", ctypes.c_uint64)]

        def held() -> int:
            return sum(str(server.data) in name for name in map(_linked, os.listdir("/proc/self/fd")))

        before = held()
        room = Descriptors(ctypes.sizeof(Descriptors), -1, -1, 0)
        status = functions.nebulaio_object_open(opened.number.value, b"bucket", b"no-place", None, b"host",
                                                ctypes.byref(room), None, err, len(err))
        assert status != 0 and b"NULL" in err.value
        assert held() == before
        queue = ctypes.c_uint64()
        assert functions.nebulaio_queue_open(ctypes.byref(queue), err, len(err)) == 0
        assert functions.nebulaio_queue_next(queue.value, 0, None, err, len(err)) != 0 and b"NULL" in err.value
        functions.nebulaio_release(queue.value, err, len(err))


def _linked(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""
