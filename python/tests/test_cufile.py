# SPDX-License-Identifier: Apache-2.0
"""nebulaio.CuFile on host memory, against the real library; what it cannot be made to do, against the fake."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import threading
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
from nebulaio import _buffers, _process
from nebulaio.cufile import CuFile, IOFuture
from nebulaio.errors import ClosedError, InvalidError, NotFoundError, ReadError, UnsupportedError
from support import interrupt_when, python


def data(size: int, seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)


def test_kvikios_quickstart(tmp_path: Path) -> None:
    """What kvikio's documentation shows, with numpy in cupy's place."""
    a = numpy.arange(100)
    f = nebulaio.CuFile(tmp_path / "test-file", "w")
    assert f.write(a) == a.nbytes
    f.close()
    b = numpy.empty_like(a)
    f = nebulaio.CuFile(str(tmp_path / "test-file"), "r")
    assert f.read(b) == a.nbytes
    assert (a == b).all()
    f.close()
    d = numpy.empty_like(a)
    with nebulaio.CuFile(tmp_path / "test-file", "r") as f:
        first = f.pread(d[:50])
        second = f.pread(d[50:], file_offset=d[:50].nbytes)
        assert first.get() == d[:50].nbytes
        assert second.get() == second.get() == d[50:].nbytes
        assert first.done()
    assert (a == d).all()
    assert f.closed


@pytest.mark.parametrize("route", ["auto", "buffered", "direct"])
def test_ranges_at_any_offset(tmp_path: Path, route: Any) -> None:
    want = data(3_000_001)
    rng = numpy.random.default_rng(2)
    with CuFile(tmp_path / "f", "w", route=route) as f:
        try:
            f.write(want)
        except UnsupportedError:
            pytest.skip("this file system has no O_DIRECT")
        for _ in range(20):
            offset, size, at = (int(rng.integers(0, 1_000_000)) for _ in range(3))
            got = numpy.zeros(2_100_000, numpy.uint8)
            assert f.raw_read(got, size, offset, at) == size
            assert (got[at : at + size] == want[offset : offset + size]).all()
            assert not got[:at].any() and not got[at + size :].any()
            patch = data(size, seed=offset)
            assert f.raw_write(patch, file_offset=offset) == size
            want[offset : offset + size] = patch
        f.sync()
        assert f.size() == want.size
    assert (numpy.fromfile(tmp_path / "f", numpy.uint8) == want).all()


def test_short_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with CuFile(tmp_path / "f") as f:
        got = bytearray(8)
        assert f.read(got, file_offset=6) == 4
        assert got == b"6789\0\0\0\0"
        assert f.read(got, file_offset=10) == f.read(got, file_offset=1000) == f.read(got, 0) == 0


def test_buffers_of_the_host(tmp_path: Path) -> None:
    with CuFile(tmp_path / "f", "w") as f:
        assert f.write(b"bytes may be written from") == 25
        for buffer in (bytearray(25), mmap.mmap(-1, 25), memoryview(bytearray(25)), (ctypes.c_char * 25)()):
            assert f.read(buffer) == 25
            assert bytes(buffer) == b"bytes may be written from"
        fortran = numpy.zeros((5, 5), numpy.uint8, order="F")
        assert f.read(fortran) == 25


def test_refused_buffers(tmp_path: Path) -> None:
    frozen = numpy.zeros(10, numpy.uint8)
    frozen.flags.writeable = False
    with CuFile(tmp_path / "f", "w") as f:
        assert f.write(frozen) == 10
        for buffer, why in (
            (frozen, "read-only"),
            (b"0123456789", "read-only"),
            (numpy.zeros((4, 4))[:, ::2], "not contiguous"),
            (numpy.zeros(10)[::-1], "not contiguous"),
            (numpy.array([None, 1.5], object), "references to Python objects"),
            (numpy.zeros(3, [("a", "i4"), ("b", object)]), "references to Python objects"),
            (memoryview(numpy.array([None])), "references to Python objects"),
            ((ctypes.py_object * 2)(), "references to Python objects"),
            ([1, 2, 3], "is not a buffer"),
            (None, "is not a buffer"),
        ):
            with pytest.raises(InvalidError, match=why):
                f.read(buffer)
        array = numpy.zeros(10, numpy.uint8)
        numbers = numpy.arange(2)
        for size, offset, at in (
            (11, 0, 0), (1, 0, 10), (None, 0, 11), (-1, 0, 0), (1, -1, 0), (1, 0, -1), (1.5, 0, 0), (True, 0, 0),
            (1, 1 << 64, 0), (1, (1 << 64) + 3, 0), (1 << 64, 0, 0), (0, 0, 1 << 64), (numbers, 0, 0), (1, numbers, 0),
        ):
            with pytest.raises(InvalidError):
                f.raw_read(array, size, offset, at)  # type: ignore[arg-type]
        with pytest.raises(InvalidError, match="stream"):
            f.raw_read_async(array, 0)


def test_an_offset_beyond_64_bits_writes_nowhere(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with CuFile(tmp_path / "f", "r+") as f, pytest.raises(InvalidError, match="file_offset=18446744073709551616"):
        f.write(b"xx", file_offset=1 << 64)
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_arrays_whose_format_has_no_name(tmp_path: Path) -> None:
    with CuFile(tmp_path / "f", "w") as f:
        named = numpy.zeros(3, [("Offset", "i4"), ("O", "f4")])
        for array in (numpy.zeros(3, "M8[s]"), named, numpy.zeros(3, pytest.importorskip("ml_dtypes").bfloat16)):
            assert f.write(array) == f.read(array) == array.nbytes


def test_the_declarations_of_others_stay(tmp_path: Path) -> None:
    """ctypes.pythonapi is one object for the whole process: other packages declare and call on it too."""
    code = """
import ctypes, sys, numpy
from nebulaio import CuFile, _buffers
names = ("PyObject_GetBuffer", "PyBuffer_Release", "PyCapsule_GetPointer")
declared = lambda: [(getattr(ctypes.pythonapi, name).argtypes, getattr(ctypes.pythonapi, name).restype) for name in names]
before = declared()
with CuFile(sys.argv[1], "w") as f:
    f.write(bytearray(3))
_buffers._by_dlpack(numpy.zeros(3))
assert declared() == before, declared()
"""
    python(code, tmp_path / "f")


def test_refused_files(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        CuFile(tmp_path / "missing")
    with pytest.raises(InvalidError, match="directory"):
        CuFile(tmp_path)
    for flags in ("a", "rb", "", "x", "+"):
        with pytest.raises(InvalidError, match="flags"):
            CuFile(tmp_path / "f", flags)
    with pytest.raises(InvalidError, match="route"):
        CuFile(tmp_path / "f", "w", route="fast")  # type: ignore[arg-type]
    assert not (tmp_path / "f").exists()
    (tmp_path / "f").write_bytes(b"0123")
    with CuFile(tmp_path / "f") as f:
        with pytest.raises(PermissionError):
            f.write(b"x")
        assert os.fstat(f.fileno()).st_size == 4
        assert f.open_flags() & os.O_ACCMODE == os.O_RDONLY
    for use in (f.fileno, f.size, f.sync, f.open_flags, lambda: f.read(bytearray(1)), lambda: f.pread(bytearray(1))):
        with pytest.raises(ClosedError):
            use()
    f.close()


def test_cufile_needs_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123")
    with CuFile(tmp_path / "f", route="cufile") as f, pytest.raises(UnsupportedError, match="no GPU"):
        f.read(bytearray(4))


def test_reports(tmp_path: Path) -> None:
    with CuFile(tmp_path / "f", "w") as f:
        f.write(data(5000))
        report = nebulaio.last_report()
        assert report is not None and report["op"] == "write" and report["bytes"] == 5000
        assert report["path"] == str(tmp_path / "f") and [r["bytes"] for r in report["routes"]] == [5000]
        f.pread(numpy.zeros(5000, numpy.uint8)).get()
        report = nebulaio.last_report()
        assert report is not None and report["op"] == "read" and report["refusals"] == []


def test_a_dropped_future_goes_on_and_keeps_its_buffer(tmp_path: Path) -> None:
    want = data(8 << 20)
    f = CuFile(tmp_path / "f", "w")
    for i in range(8):
        f.pwrite(want[i << 20 : (i + 1) << 20].copy(), file_offset=i << 20)
    gc.collect()
    f.close()
    assert (numpy.fromfile(tmp_path / "f", numpy.uint8) == want).all()
    f = CuFile(tmp_path / "g", "w")
    f.pwrite(want.copy())
    del f
    gc.collect()
    assert (numpy.fromfile(tmp_path / "g", numpy.uint8) == want).all()


def test_many_threads(tmp_path: Path) -> None:
    want = data(4 << 20)
    got = numpy.zeros_like(want)
    with CuFile(tmp_path / "f", "w+") as f:
        futures: list[IOFuture] = []

        def one(i: int) -> None:
            part = slice(i << 18, (i + 1) << 18)
            assert f.write(want[part], file_offset=i << 18) == 1 << 18
            futures.append(f.pread(got[part], file_offset=i << 18))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(future.get() for future in futures) == want.size
    assert (got == want).all()


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    code = """
import os, sys
import nebulaio
from nebulaio.errors import ClosedError
f = nebulaio.CuFile(sys.argv[1], "w")
f.write(b"parent")
child = os.fork()
if child == 0:
    try:
        f.read(bytearray(6))
    except ClosedError as error:
        assert "another process" in str(error)
        f.close()
        with nebulaio.CuFile(sys.argv[1]) as own:
            got = bytearray(6)
            assert own.read(got) == 6 and got == b"parent"
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
f.write(b"PARENT")
f.close()
print(open(sys.argv[1]).read())
"""
    assert python(code, tmp_path / "f") == "PARENT\n"


def test_a_child_forked_while_threads_wait(tmp_path: Path) -> None:
    """Locks that threads of the parent held at the fork are never given back in the child."""
    code = """
import os, signal, sys
import nebulaio
from nebulaio.errors import ClosedError
f = nebulaio.CuFile(sys.argv[1], "w")
future = f.pwrite(b"parent")
with f._lock, future._move._lock:  # as threads that wait or begin a move hold them
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            future.get()
        except ClosedError:
            f.close()
            os._exit(0)
        os._exit(1)
    status = os.waitpid(child, 0)[1]
assert status == 0, status
assert future.get() == 6
f.close()
"""
    python(code, tmp_path / "f")


class Exported:
    """An array that offers nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self) -> object:
        return self.array.__dlpack__()


def test_dlpack(tmp_path: Path) -> None:
    want = numpy.arange(1000, dtype=numpy.float32).reshape(10, 100)
    with CuFile(tmp_path / "f", "w") as f:
        assert f.write(Exported(want)) == 4000
        got = numpy.zeros_like(want)
        assert f.read(Exported(got)) == 4000
        assert (got == want).all()
        with pytest.raises(InvalidError, match="contiguous"):
            f.read(Exported(got[:, ::2]))


class OnCUDA:
    """A CUDA array as frameworks describe theirs."""

    def __init__(self, **more: Any) -> None:
        described = {"shape": (4, 8), "typestr": "<f4", "data": (0x7000, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**described, **more}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 3)


def test_cuda_arrays_are_understood() -> None:
    memory = _buffers.memory_of(OnCUDA(stream=7), writable=True)
    assert (memory.address, memory.size, memory.device, memory.stream) == (0x7000, 128, "cuda:3", 7)
    for strides in ((32, 4), (4, 16)):
        assert _buffers.memory_of(OnCUDA(strides=strides), writable=True).size == 128
    for strides in ((64, 4), (32, 8), (-32, 4)):
        with pytest.raises(InvalidError, match="contiguous"):
            _buffers.memory_of(OnCUDA(strides=strides), writable=True)
    with pytest.raises(InvalidError, match="read-only"):
        _buffers.memory_of(OnCUDA(data=(1, True)), writable=True)
    assert _buffers.memory_of(OnCUDA(shape=(0, 8), data=(0, False)), writable=True).size == 0


def test_streams_are_understood() -> None:
    class Stream:
        def __init__(self, **fields: Any) -> None:
            self.__dict__.update(fields)

    assert _buffers.stream_number(5) == _buffers.stream_number(Stream(ptr=5)) == _buffers.stream_number(
        Stream(cuda_stream=5)) == 5
    assert _buffers.stream_number(Stream(handle=ctypes.c_void_p(5))) == 5
    assert _buffers.stream_number(None) == 0
    for bad in (-1, "x", True, 1.5):
        with pytest.raises(InvalidError):
            _buffers.stream_number(bad)


def scripted(folder: Path, name: str) -> CuFile:
    (folder / name).write_bytes(b"")
    return CuFile(folder / name, "r+")


def test_errors_of_a_move(fake: _process.Holder, tmp_path: Path) -> None:
    with scripted(tmp_path, "wait=6") as f:
        future = f.pread(bytearray(10))
        for _ in range(2):
            with pytest.raises(ReadError, match="scripted"):
                future.get()
        assert future.done()
        f.pwrite(b"nobody asks how it went")
    assert fake.load().functions.fake_live() == 0
    with scripted(tmp_path, "start=9") as f, pytest.raises(UnsupportedError, match="scripted"):
        f.pread(bytearray(10))
    assert fake.load().functions.fake_live() == 0


def test_ctrl_c(fake: _process.Holder, tmp_path: Path) -> None:
    """It cancels a read that is waited for; of a future it ends the waiting alone."""

    def interrupt_soon() -> None:
        fake.load().functions.fake_forget()
        interrupt_when(lambda: b"running" in fake.load().functions.fake_log())  # the move is waited for

    f = scripted(tmp_path, "slow")
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        f.read(bytearray(10))
    assert b"cancel" in fake.load().functions.fake_log()
    future = f.pread(bytearray(10))
    assert not future.done()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        future.get()
    assert b"cancel" not in fake.load().functions.fake_log()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        f.close()  # waits, and on Ctrl-C cancels
    assert b"cancel" in fake.load().functions.fake_log() and f.closed
    assert fake.load().functions.fake_live() == 0
