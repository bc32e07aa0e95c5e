# SPDX-License-Identifier: Apache-2.0
"""nebulaio.CuFile on a real GPU, with buffers of every framework; off by default, run with -m cuda."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
from nebulaio import _buffers
from nebulaio.errors import InvalidError, UnsupportedError
from support import python

pytestmark = pytest.mark.cuda

SIZE = 5_000_001


def content(seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).integers(0, 256, SIZE, dtype=numpy.uint8)


def of_cupy() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    cupy = pytest.importorskip("cupy")
    return cupy.asarray, cupy.asnumpy


def of_torch() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    torch = pytest.importorskip("torch")
    return lambda a: torch.from_numpy(a).cuda(), lambda t: t.cpu().numpy()


def of_numba() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    cuda = pytest.importorskip("numba.cuda")
    return cuda.to_device, lambda a: a.copy_to_host()


def of_jax() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    jax = pytest.importorskip("jax")
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError as why:
        pytest.skip(f"jax has no CUDA here: {why}")

    def put(array: Any) -> Any:
        return jax.block_until_ready(jax.device_put(array, device))

    # Through CUDA memory: jax keeps a host copy of what it made from the host.
    def back(array: Any) -> Any:
        cupy = pytest.importorskip("cupy")
        return cupy.asnumpy(cupy.from_dlpack(array))

    return put, back


FRAMEWORKS = [of_cupy, of_torch, of_numba, of_jax]


@pytest.mark.parametrize("route", ["auto", "buffered", "direct", "cufile"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_there_and_back(tmp_path: Path, framework: Any, route: Any) -> None:
    to_device, to_host = framework()
    want = content()
    source = to_device(want)
    assert _buffers.memory_of(source, writable=False).device == "cuda:0"
    with nebulaio.CuFile(tmp_path / "f", "w", route=route) as f:
        try:
            assert f.write(source) == SIZE
        except UnsupportedError as why:
            pytest.skip(str(why))
        assert (numpy.fromfile(tmp_path / "f", numpy.uint8) == want).all()
        target = to_device(numpy.zeros(SIZE, numpy.uint8))
        if framework is of_jax:  # its arrays never change
            with pytest.raises(InvalidError, match="read-only.*jax.dlpack"):
                f.read(target)
            return
        assert f.read(target) == SIZE
        report = nebulaio.last_report()
        assert report is not None and report["device"]["id"] == "cuda:0"
        if route == "cufile":
            assert all(r["route"].startswith("cufile_") for r in report["routes"]), report["routes"]
        assert (to_host(target) == want).all()
        assert f.raw_read(target, 1001, 4097, 33) == 1001
        got = to_host(target)
        assert (got[33:1034] == want[4097:5098]).all() and got[32] == want[32] and got[1034] == want[1034]


@pytest.mark.parametrize("route", ["auto", "cufile"])
def test_streams_of_cupy(tmp_path: Path, route: Any) -> None:
    cupy = pytest.importorskip("cupy")
    want = content(2)
    with nebulaio.CuFile(tmp_path / "f", "w", route=route) as f:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            a = cupy.asarray(want)
            try:
                written = f.raw_write_async(a, stream.ptr)
            except UnsupportedError as why:
                pytest.skip(str(why))
            assert written.check_bytes_done() == SIZE
            b = cupy.zeros_like(a)
            read = f.raw_read_async(b, stream, SIZE - 4096, 4096)
            total = b.astype(cupy.int64).sum()  # queued behind the read, before it is waited for
            assert read.check_bytes_done() == SIZE - 4096
        stream.synchronize()
        assert int(total) == int(want[4096:].astype(numpy.int64).sum())


def test_streams_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    want = content(3)
    (tmp_path / "f").write_bytes(want.tobytes())
    stream = torch.cuda.Stream()
    with nebulaio.CuFile(tmp_path / "f") as f, torch.cuda.stream(stream):
        x = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
        read = f.raw_read_async(x, stream)
        total = x.long().sum()
        assert read.check_bytes_done() == SIZE
    assert int(total.item()) == int(want.astype(numpy.int64).sum())


def test_refused(tmp_path: Path) -> None:
    cupy = pytest.importorskip("cupy")
    with nebulaio.CuFile(tmp_path / "f", "w") as f:
        for bad in (cupy.zeros((8, 8))[:, ::2], cupy.zeros(8)[::-1]):
            with pytest.raises(InvalidError, match="contiguous"):
                f.read(bad)
        with pytest.raises(InvalidError, match="has only 8 bytes"):
            f.read(cupy.zeros(8, cupy.uint8), 9)


def test_dropped_futures_keep_their_buffers(tmp_path: Path) -> None:
    cupy = pytest.importorskip("cupy")
    want = content(4)
    with nebulaio.CuFile(tmp_path / "f", "w") as f:
        for part in range(5):
            f.pwrite(cupy.asarray(want[part * 1_000_000 : (part + 1) * 1_000_000]), file_offset=part * 1_000_000)
            gc.collect()
    got = numpy.fromfile(tmp_path / "f", numpy.uint8)
    assert (got == want[:5_000_000]).all()


@pytest.mark.parametrize("interface", ["sync", "async", "batch"])
def test_the_process_ends_cleanly(tmp_path: Path, interface: str) -> None:
    """With libcufile open, its statistics on and nothing closed by the caller."""
    pytest.importorskip("cupy")
    code = """
import sys, cupy, nebulaio
nebulaio.configure(cufile=sys.argv[2])
f = nebulaio.CuFile(sys.argv[1], "w", route="cufile")
try:
    f.write(cupy.arange(1000000))
    f.read(cupy.empty(1000000, "int64"))
except nebulaio.errors.UnsupportedError:
    pass
print("end")
"""
    assert python(code, tmp_path / "f", interface, env={"CUFILE_LOGFILE_PATH": str(tmp_path / "log")}).endswith("end\n")
