# SPDX-License-Identifier: Apache-2.0
"""Torch and CuPy tensors on a real GPU; off by default, run with -m cuda."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio.errors import InvalidError, NebulaioError, OutOfMemoryError, UnsupportedError
from nebulaio.safetensors import load_file, load_model, safe_open, stream, write_checksums
from support import Entry, python, random_entry, write, write_sharded, write_sparse

pytestmark = pytest.mark.cuda

DTYPES = ["BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64",
          "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"]
STANDARD = [dtype for dtype in DTYPES if dtype != "BF16" and not dtype.startswith("F8")]


def entries(dtypes: list[str]) -> dict[str, Entry]:
    out = {}
    for number, dtype in enumerate(dtypes):
        for shape in ([], [number + 1, 3], [0, 2], [5, 7, 1000]):
            out[f"{dtype}.{len(shape)}.{len(out)}"] = random_entry(len(out), dtype, shape)
            out[f"odd.{len(out)}"] = random_entry(len(out), "U8", [number % 5 + 1])
    return out


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy")


def torch_bytes(torch: Any, tensor: Any) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).cpu().numpy()) if tensor.dim() else bytes(
        tensor.reshape(1).view(torch.uint8).cpu().numpy()
    )


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0", 0])
def test_torch_every_dtype(torch: Any, tmp_path: Path, device: Any) -> None:
    expected = entries(DTYPES)
    out = load_file(write(tmp_path / "t.safetensors", expected, pad=1), device)
    assert sorted(out) == sorted(expected)
    for name, (_, shape, data) in expected.items():
        assert out[name].device == torch.device("cuda:0")
        assert list(out[name].shape) == shape
        assert torch_bytes(torch, out[name]) == data, name
    report = nebulaio.last_report()
    assert report is not None and "cuda:0" in str(report)


def test_torch_device_object_and_sharded(torch: Any, tmp_path: Path) -> None:
    shards = {f"m-{n}.safetensors": {f"{n}.{k}": random_entry(n * 9 + k, "F16", [300, 700]) for k in range(9)}
              for n in range(4)}
    folder = write_sharded(tmp_path / "m", shards).parent
    out = load_model(folder, torch.device("cuda"))
    for part in shards.values():
        for name, (_, _, data) in part.items():
            assert torch_bytes(torch, out[name]) == data


def test_torch_accounts_for_the_memory(torch: Any, tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "big.safetensors", 256 << 20)
    load_file(path, "cuda")
    gc.collect()
    before = torch.cuda.memory_allocated()
    out = load_file(path, "cuda")
    assert torch.cuda.memory_allocated() - before >= 256 << 20
    del out
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_torch_other_streams_are_respected(torch: Any, tmp_path: Path) -> None:
    """Fresh memory may still be in use by queued work of the stream that it was allocated on."""
    expected = {"a": random_entry(1, "U8", [64 << 20])}
    path = write(tmp_path / "t.safetensors", expected)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            old = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
            torch.cuda._sleep(50_000_000)
            old.fill_(9)
            del old  # its memory comes back for the load while the fill is still queued
            out = load_file(path, "cuda")
            assert torch_bytes(torch, out["a"]) == expected["a"][2]
            del out


def test_torch_device_that_is_not_there(torch: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [10])})
    with pytest.raises(NebulaioError, match="cuda:99"):
        load_file(path, 99)


def test_cupy(cupy: Any, tmp_path: Path) -> None:
    expected = entries(STANDARD)
    out = load_file(write(tmp_path / "t.safetensors", expected, pad=1), "cuda", framework="cupy")
    for name, (_, shape, data) in expected.items():
        assert out[name].shape == tuple(shape)
        assert out[name].get().tobytes() == data, name


def test_cupy_narrow_floats_or_bytes(cupy: Any, tmp_path: Path) -> None:
    expected = {dtype: random_entry(1, dtype, [6]) for dtype in DTYPES if dtype not in STANDARD}
    path = write(tmp_path / "t.safetensors", expected)
    out = load_file(path, "cuda", framework="cupy", unsupported="bytes")
    for name, (_, _, data) in expected.items():
        assert out[name].view(cupy.uint8).get().tobytes() == data
    with pytest.raises(UnsupportedError):
        load_file(write(tmp_path / "p.safetensors", {"p": random_entry(1, "F4", [6])}), "cuda", framework="cupy")


def test_cupy_holds_no_host_memory(cupy: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [10])})
    with pytest.raises(InvalidError, match="cupy"):
        load_file(path, "cpu", framework="cupy")


FORK = """
import os, sys
import numpy, torch, nebulaio
from nebulaio.errors import ForkError
from nebulaio.safetensors import load_file
path, before = sys.argv[1], sys.argv[2]
if before == 'load':
    load_file(path, 'cuda')
elif before == 'probe':
    load_file(path, 'cpu', framework='numpy')
    nebulaio.devices()
elif before == 'torch':
    torch.zeros(1, device='cuda')
child = os.fork()
if child == 0:
    code = 1
    try:
        for device in ('cuda', 'auto', 0):
            try:
                load_file(path, device)
            except ForkError as error:
                assert 'spawn' in str(error)
            else:
                os._exit(4)
        load_file(path, 'cpu')
        code = 0
    finally:
        os._exit(code)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("before", ["load", "probe", "torch"])
def test_fork_after_cuda(tmp_path: Path, before: str) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [10])})
    python(FORK, path, before)


def test_fork_before_cuda(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [10])})
    code = """
import os, sys
import torch, nebulaio
from nebulaio.safetensors import load_file
child = os.fork()
if child == 0:
    os._exit(0 if load_file(sys.argv[1], 'cuda')['a'].is_cuda else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    python(code, path)


@pytest.mark.whole_card
def test_interrupt_leaves_the_device_usable(torch: Any, tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "big.safetensors", 8 << 30)

    def progress(done: int, total: int) -> None:
        if done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_file(path, "cuda", progress=progress)
    torch.cuda.synchronize()
    small = {"a": random_entry(1, "U8", [100_000])}
    assert torch_bytes(torch, load_file(write(tmp_path / "t.safetensors", small), "cuda")["a"]) == small["a"][2]


@pytest.mark.whole_card
def test_out_of_memory_is_ours(torch: Any, tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "huge.safetensors", 1 << 40)
    with pytest.raises(OutOfMemoryError, match="cuda:0"):
        load_file(path, "cuda")


@pytest.mark.parametrize("lookahead", [None, 0, 1])
def test_torch_stream(torch: Any, tmp_path: Path, lookahead: int | None) -> None:
    shards = {f"m-{n}.safetensors": {f"{n}.{k}": random_entry(n * 9 + k, "F16", [300, 700 + k]) for k in range(9)}
              for n in range(4)}
    folder = write_sharded(tmp_path / "m", shards).parent
    write_checksums(folder)
    expected = {name: entry for part in shards.values() for name, entry in part.items()}
    for verify in (False, True):
        names = []
        for name, tensor in stream(folder, "cuda", lookahead=lookahead, verify=verify):
            assert tensor.device == torch.device("cuda:0")
            assert torch_bytes(torch, tensor) == expected[name][2]
            names.append(name)
        assert names == list(expected)
    report = nebulaio.last_report()
    assert report is not None and report["device"]["id"] == "cuda:0" and report["verify"]["blocks"] > 0


def test_torch_stream_left_early(torch: Any, tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "big.safetensors", 1 << 30)
    small = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [1000, 1000])})
    for _ in range(3):
        for _, tensor in stream([small, path], "cuda"):
            break
        gc.collect()
        assert torch_bytes(torch, tensor) == random_entry(1, "F32", [1000, 1000])[2]


def test_torch_safe_open(torch: Any, tmp_path: Path) -> None:
    expected = entries(DTYPES)
    with safe_open(write(tmp_path / "t.safetensors", expected, pad=1), "pt", device="cuda:0") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            assert tensor.device == torch.device("cuda:0") and list(tensor.shape) == expected[name][1]
            assert torch_bytes(torch, tensor) == expected[name][2]


def test_numba(tmp_path: Path) -> None:
    cuda = pytest.importorskip("numba.cuda", reason="numba is not installed")
    if not cuda.is_available():
        pytest.skip("numba finds no usable CUDA")
    expected = entries(STANDARD)
    path = write(tmp_path / "t.safetensors", expected, pad=1)
    for out in (load_file(path, "cuda", framework="numba"), dict(stream(path, "cuda:0", framework="numba"))):
        assert sorted(out) == sorted(expected)
        for name, (_, shape, data) in expected.items():
            assert out[name].shape == tuple(shape)
            assert hasattr(out[name], "__cuda_array_interface__")
            assert out[name].copy_to_host().tobytes() == data, name
    name = max(out, key=lambda one: len(expected[one][2]))
    kept = out.pop(name)
    del out
    gc.collect()
    assert kept.copy_to_host().tobytes() == expected[name][2]
    with pytest.raises(InvalidError, match="framework 'numpy', whose arrays Numba takes"):
        load_file(path, "cpu", framework="numba")
    with pytest.raises(UnsupportedError, match="dtype BF16"):
        load_file(write(tmp_path / "b.safetensors", {"b": random_entry(1, "BF16", [3])}), "cuda", framework="numba")
