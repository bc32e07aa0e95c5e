# SPDX-License-Identifier: Apache-2.0
"""GPUDirectClient over the fake library: arguments, errors, futures, interrupts, fork; no server is needed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import gc
import threading
import weakref
from typing import Any

import nebulaio
import numpy
import pytest
from nebulaio import GPUDirectClient, _process
from nebulaio._futures import Transfer, TransferCancelled
from nebulaio.errors import AccessError, CancelledError, ClosedError, InvalidError, NotFoundError
from support import interrupt_when, is_in, python, until

KEYS = {"access_key": "a", "secret_key": "s"}


@pytest.fixture
def client(fake: _process.Holder) -> GPUDirectClient:
    return GPUDirectClient("http://localhost:9000", **KEYS)


def test_nothing_is_loaded_before_the_first_use() -> None:
    code = """
import sys
from nebulaio import GPUDirectClient
client = GPUDirectClient("http://localhost:1", "a", "s", device="cuda:0", buffer_pool_size="1GiB")
assert 'nebulaio.so' not in open('/proc/self/maps').read()
assert not {'torch', 'numpy', 'cupy', 'asyncio', 'concurrent.futures'} & set(sys.modules), sorted(sys.modules)
client.close()
"""
    python(code)


def test_reads_and_writes(client: GPUDirectClient, fake: _process.Holder) -> None:
    buffer = bytearray(8)
    report = client.read_to_gpu("bucket", "key", buffer)
    assert buffer == bytes(range(8)) and report["fake"] is True
    assert client.write_from_gpu(bucket="bucket", key="key", gpu_buffer=b"0123")["fake"] is True
    client.read_to_gpu("bucket", "key", buffer, offset=3, size=2, buffer_offset=6)
    assert buffer == bytes([0, 1, 2, 3, 4, 5, 0, 1])
    assert nebulaio.last_report() == {"fake": True, "status": 0}
    client.close()
    del report
    gc.collect()
    assert fake.load().functions.fake_live() == 0


@pytest.mark.parametrize("status, kind", [(2, InvalidError), (3, FileNotFoundError), (3, NotFoundError),
                                          (4, PermissionError), (4, AccessError), (11, ClosedError)])
@pytest.mark.parametrize("step", ["start", "wait"])
def test_errors_are_the_packages_own(client: GPUDirectClient, status: int, kind: type[Exception], step: str) -> None:
    with pytest.raises(kind, match="scripted"):
        client.read_to_gpu("bucket", f"{step}={status}", bytearray(4))
    with pytest.raises(kind, match="scripted"):
        client.write_from_gpu("bucket", f"{step}={status}", b"0123")
    with pytest.raises(kind, match="scripted"):
        client.stat("bucket", f"{step}={status}")
    if step == "wait":
        assert isinstance(client.async_read("bucket", f"wait={status}", bytearray(4)).exception(30), kind)
    else:
        with pytest.raises(kind, match="scripted"):
            client.async_read("bucket", f"start={status}", bytearray(4))


def test_refused_arguments(client: GPUDirectClient) -> None:
    frozen = numpy.zeros(4, numpy.uint8)
    frozen.flags.writeable = False
    for call, why in (
        (lambda: client.read_to_gpu("", "key", bytearray(4)), "bucket=''"),
        (lambda: client.read_to_gpu("bucket", "", bytearray(4)), "key=''"),
        (lambda: client.read_to_gpu("bucket", "a\0b", bytearray(4)), "NUL"),
        (lambda: client.read_to_gpu("bucket", b"key", bytearray(4)), "key=b'key'"),  # type: ignore[arg-type]
        (lambda: client.read_to_gpu("bucket", "key", b"0123"), "read-only"),
        (lambda: client.read_to_gpu("bucket", "key", frozen), "read-only"),
        (lambda: client.read_to_gpu("bucket", "key", numpy.zeros((4, 4))[:, ::2]), "not contiguous"),
        (lambda: client.read_to_gpu("bucket", "key", [1, 2]), "is not a buffer"),
        (lambda: client.read_to_gpu("bucket", "key", None), "is not a buffer"),
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), size=5),
         "5 bytes at buffer_offset 0: the buffer has only 4"),
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), buffer_offset=5), "buffer_offset 5"),
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), offset=-1), "offset=-1"),
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), offset=1 << 64), "offset="),
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), size=1.5), "size=1.5"),  # type: ignore[arg-type]
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), version=""), "version=''"),
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), verify=1), "verify=1"),  # type: ignore[arg-type]
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), route="fast"), "route"),  # type: ignore[arg-type]
        (lambda: client.read_to_gpu("bucket", "key", bytearray(4), stream="7"), "stream"),
        (lambda: client.write_from_gpu("bucket", "key", b"0123", size=5), "5 bytes"),
        (lambda: client.write_from_gpu("bucket", "key", b"0123", metadata={"a": 1}), "metadata"),  # type: ignore[dict-item]
        (lambda: client.read_many([("bucket", "key")]), "not a tuple"),
        (lambda: client.read_many(["abc"]), "not a tuple"),
        (lambda: client.read_to_gpus("bucket", "key", []), "no buffers"),
        (lambda: client.read_to_gpus("bucket", "key", [bytearray(4), bytearray(3)]), "equal size"),
        (lambda: client.async_read("bucket", "key", bytearray(4), callback=3), "callback=3"),  # type: ignore[arg-type]
        (lambda: client.list("bucket", limit=-1), "limit=-1"),
        (lambda: client.list("bucket", prefix=3), "prefix=3"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidError, match=why):
            call()
    for bad, why in (
        ({"access_key": "a"}, "secret_key"),
        ({"endpoint": 3}, "endpoint"),
        ({"timeout": 0}, "timeout=0"),
        ({"connections": -1}, "connections=-1"),
        ({"device": "gpu"}, "device 'gpu'"),
        ({"buffer_pool_size": "much"}, "buffer_pool_size"),
        ({"device_ids": [-1]}, "device_ids"),
        ({"verify": None}, "verify"),
    ):
        with pytest.raises(InvalidError, match=why):
            GPUDirectClient(**bad)  # type: ignore[arg-type]


def test_secrets_are_not_shown(client: GPUDirectClient) -> None:
    text = repr(GPUDirectClient("http://localhost:9000", "AKIA", "do-not-show", door="off"))
    assert text == "GPUDirectClient(endpoint='http://localhost:9000', access_key='AKIA', door='off')"


def test_options_of_its_own_make_a_system_of_its_own(client: GPUDirectClient, fake: _process.Holder) -> None:
    client.status()
    other = GPUDirectClient(**KEYS, buffer_pool_size="64MiB", queue_depth=7)
    other.status()
    another = GPUDirectClient(**KEYS, buffer_pool_size=64 << 20, queue_depth=7)
    another.status()
    assert client._open().system is fake.open()
    assert other._open().system is another._open().system is not fake.open()
    assert other._open().system.devices()["options"] == {"buffer_pool_size": 64 << 20, "queue_depth": 7}


def test_closed(client: GPUDirectClient) -> None:
    with client as same:
        assert same is client and not client.closed
        client.read_to_gpu("bucket", "key", bytearray(4))
    assert client.closed and "closed" in repr(client)
    client.close()
    for use in (client.status, lambda: client.stat("b", "k"), lambda: client.list("b"),
                lambda: client.read_to_gpu("b", "k", bytearray(1))):
        with pytest.raises(ClosedError):
            use()


def test_futures(client: GPUDirectClient, fake: _process.Holder) -> None:
    buffers = [bytearray(8) for _ in range(20)]
    told: list[tuple[Any, str]] = []
    futures = [client.async_read("bucket", "key", b,
                                 callback=lambda f: told.append((f, threading.current_thread().name))) for b in buffers]
    assert all(isinstance(f, concurrent.futures.Future) for f in futures)
    for future in concurrent.futures.as_completed(futures, 30):
        assert future.result()["fake"] is True and future.exception() is None
    assert all(f.done() and not f.cancelled() and not f.cancel() and not f.running() for f in futures)
    assert all(b == bytes(range(8)) for b in buffers)
    assert until(lambda: len(told) == 20)
    assert {f for f, _ in told} == set(futures)
    late: list[Any] = []
    futures[0].add_done_callback(late.append)
    assert late == [futures[0]]
    del future, futures, late
    told.clear()
    client.close()
    gc.collect()
    assert until(lambda: fake.load().functions.fake_live() == 0)


def test_the_buffer_lives_as_long_as_its_move(client: GPUDirectClient) -> None:
    class Array(numpy.ndarray):  # type: ignore[type-arg]
        pass

    array = numpy.zeros(8, numpy.uint8).view(Array)
    gone = threading.Event()
    weakref.finalize(array, gone.set)
    future = client.async_read("bucket", "slow", array)
    del array
    gc.collect()
    assert not gone.is_set() and not future.done()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.01)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(30)
    assert future.cancelled() and isinstance(future.exception(), concurrent.futures.CancelledError)
    assert until(lambda: gc.collect() is not None and gone.is_set())


def test_awaited(client: GPUDirectClient) -> None:
    async def work() -> None:
        buffers = [bytearray(4) for _ in range(5)]
        reports = await asyncio.gather(*(client.async_read("bucket", "key", b) for b in buffers))
        assert [r["fake"] for r in reports] == [True] * 5 and all(b == bytes(range(4)) for b in buffers)
        report = await client.async_write("bucket", "key", b"0123")
        assert report["fake"] is True
        with pytest.raises(FileNotFoundError):
            await client.async_read("bucket", "wait=3", bytearray(4))
        future = client.async_read("bucket", "slow", bytearray(4))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_awaited(future)), 0.05)
        assert until(future.done)  # the wait was given up, and the move with it
        assert future.cancelled()
        future = client.async_read("bucket", "slow", bytearray(4))
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(work())


async def _awaited(future: Transfer) -> Any:
    return await future


def test_a_callback_that_exits_ends_no_thread_but_its_own(client: GPUDirectClient,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []

    def leave(_: object) -> None:
        raise SystemExit(3)

    first = client.async_read("bucket", "key", bytearray(4), callback=leave)
    first.add_done_callback(told.append)  # behind it
    first.result(30)
    client.async_read("bucket", "key", bytearray(4)).result(30)
    assert told == [first] and "SystemExit" in caplog.text

    async def awaited() -> None:
        await asyncio.wait_for(client.async_read("bucket", "key", bytearray(4), callback=leave), 30)

    asyncio.run(awaited())
    with pytest.raises(SystemExit):
        first.add_done_callback(leave)  # at once, and here


def test_a_callback_that_fails_or_waits_harms_no_other(client: GPUDirectClient,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    found: list[BaseException] = []
    slow = client.async_read("bucket", "slow", bytearray(4))

    def wait(_: Any) -> None:
        try:
            slow.result()
        except BaseException as problem:  # noqa: BLE001
            found.append(problem)

    def fail(_: Any) -> None:
        raise RuntimeError("the callback's own")

    client.async_read("bucket", "key", bytearray(4), callback=fail).result(30)
    client.async_read("bucket", "key", bytearray(4), callback=wait).result(30)
    assert until(lambda: bool(found))
    assert isinstance(found[0], InvalidError) and "callback" in str(found[0])
    assert "the callback's own" in caplog.text
    slow.cancel()
    with pytest.raises(TransferCancelled):
        slow.result(30)


def test_close_waits_and_an_interrupt_cancels(client: GPUDirectClient, monkeypatch: pytest.MonkeyPatch) -> None:
    future = client.async_read("bucket", "slow", bytearray(4))
    closing = threading.Thread(target=client.close)
    closing.start()
    assert not future.done()
    future.cancel()
    closing.join(30)
    assert not closing.is_alive() and future.cancelled()


def test_interrupted_read(client: GPUDirectClient, fake: _process.Holder) -> None:
    functions = fake.load().functions

    def running() -> bool:
        return b"running" in functions.fake_log()

    with pytest.raises(KeyboardInterrupt):
        interrupt_when(running)
        client.read_to_gpu("bucket", "slow", bytearray(4))
    log = functions.fake_log().decode().split()
    assert log[-3:] == ["ended", "report", "release-load"]
    functions.fake_forget()
    with pytest.raises(KeyboardInterrupt):
        interrupt_when(running)
        client.stat("bucket", "slow")
    future = client.async_read("bucket", "slow", bytearray(4))
    with pytest.raises(KeyboardInterrupt):
        interrupt_when(lambda: is_in(threading.main_thread(), "wait", "result"))
        future.result()
    assert not future.done()  # the waiting was interrupted, not the move
    with pytest.raises(KeyboardInterrupt):
        # Both waits: that of the watcher, and that of its lock.
        interrupt_when(lambda: is_in(threading.main_thread(), "wait", "wait", "close"))
        client.close()
    assert future.cancelled()


FORKED = """
import os, sys, time
from nebulaio import GPUDirectClient
from nebulaio.errors import ClosedError
client = GPUDirectClient("http://localhost:9000", "a", "s")
client.read_to_gpu("bucket", "key", bytearray(4))
future = client.async_read("bucket", "slow", bytearray(4))
pid = os.fork()
if pid == 0:
    for use in (future.result, future.done, future.cancel, future.exception):
        try:
            use()
        except ClosedError:
            continue
        os._exit(3)
    buffer = bytearray(4)
    client.read_to_gpu("bucket", "key", buffer)
    done = client.async_read("bucket", "key", buffer).result(30)
    client.close()
    os._exit(0 if buffer == bytes(range(4)) and done["fake"] else 4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
future.cancel()
assert future.exception(30) is not None
print("both")
"""


def test_fork(fake_library: Any) -> None:
    assert python(FORKED, env={"NEBULAIO_LIBRARY": str(fake_library)}) == "both\n"


def test_the_end_of_the_process_waits_for_moves(fake_library: Any) -> None:
    code = """
import threading
from nebulaio import GPUDirectClient
client = GPUDirectClient("http://localhost:9000", "a", "s")
future = client.async_read("bucket", "slow", bytearray(4), callback=lambda f: print("ended", f.cancelled(), flush=True))
threading.Timer(0.2, future.cancel).start()
"""
    assert python(code, env={"NEBULAIO_LIBRARY": str(fake_library)}) == "ended True\n"


def test_models_by_url(client: GPUDirectClient, fake: _process.Holder) -> None:
    import nebulaio.safetensors as ns

    assert (client.load_model("bucket", "size=8", framework="numpy")["t"] == numpy.arange(8)).all()
    assert (ns.load_file("s3://bucket/size=8", framework="numpy", client=client)["t"] == numpy.arange(8)).all()
    assert [name for name, _ in ns.stream("s3://bucket/size=8", framework="numpy", client=client)] == ["t"]
    with ns.safe_open("s3://bucket/size=8", framework="np", client=client) as f:
        assert f.keys() == ["t"]
    assert ns.inspect("s3://bucket/size=8", client=client)["tensors"][0]["name"] == "t"
    assert ns.load_file("nebula://localhost:9000/bucket/size=8", framework="numpy", client=client)["t"].size == 8
    assert ns.load_file("s3://bucket/size=8", framework="numpy")["t"].size == 8  # by the environment's client
    for path, why in (
        ("model.safetensors", "is a path"),
        ("s3://", "not an object URL"),
        ("nebula:///bucket/key", "not an object URL"),
        ("nebula://other:1/bucket/key", "its endpoint is http://other:1"),
    ):
        with pytest.raises(InvalidError, match=why):
            ns.load_file(path, framework="numpy", client=client)
    with pytest.raises(InvalidError, match="several buckets"):
        ns.stream(["s3://a/size=8", "s3://b/size=8"], framework="numpy", client=client)
    with pytest.raises(InvalidError, match="some are not"):
        ns.stream(["s3://a/size=8", "size=8"], framework="numpy", client=client)


def test_layout_of_the_structs(library: str) -> None:
    """What the header says and what ctypes says are of one size; else the library refuses the struct."""
    from nebulaio import _abi

    assert ctypes.sizeof(_abi.ObjectRead) == 96 and ctypes.sizeof(_abi.ObjectWrite) == 56 and ctypes.sizeof(
        _abi.Peer) == 16
