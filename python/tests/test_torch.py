# SPDX-License-Identifier: Apache-2.0
"""Torch tensors on the host from the real library: types, shapes, views, and what they cost."""

from __future__ import annotations

import gc
import random
import time
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio.errors import DeviceError, ForkError, UnsupportedError
from nebulaio.safetensors import load_file, safe_open, stream
from support import BITS, NO_MEMORY, Entry, odd_entries, python, random_entry, write, write_sparse

pytestmark = pytest.mark.torch

TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16",
    "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32",
    "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64",
}


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


def raw(torch: Any, tensor: Any) -> bytes:
    """The bytes of a contiguous tensor, read without knowing its type."""
    assert tensor.is_contiguous()
    storage = tensor.untyped_storage()
    first = tensor.storage_offset() * tensor.itemsize
    return bytes(storage[first : first + tensor.numel() * tensor.itemsize])


def check(torch: Any, out: dict[str, Any], entries: dict[str, Entry]) -> None:
    assert sorted(out) == sorted(entries)
    for name, (dtype, shape, data) in entries.items():
        assert out[name].dtype is getattr(torch, TORCH[dtype]), name
        assert list(out[name].shape) == shape, name
        assert raw(torch, out[name]) == data, name


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("shape", [[], [1], [7], [3, 5], [2, 3, 4], [1, 1, 1, 1, 9], [0], [4, 0, 2], [2, 0]])
def test_dtype_and_shape(torch: Any, tmp_path: Path, dtype: str, shape: list[int]) -> None:
    entries = {"t": random_entry(1, dtype, shape)}
    out = load_file(write(tmp_path / "t.safetensors", entries), "cpu")
    check(torch, out, entries)
    assert out["t"].stride() == torch.empty(shape).stride()


def test_all_dtypes_of_the_table_are_torchs(torch: Any) -> None:
    assert BITS.keys() - TORCH.keys() == {"F4", "F6_E2M3", "F6_E3M2"}


def test_mixed_and_misaligned(torch: Any, tmp_path: Path) -> None:
    entries = odd_entries(TORCH, 5, 7)
    out = load_file(write(tmp_path / "t.safetensors", entries, pad=1), torch.device("cpu"))
    check(torch, out, entries)
    assert all(tensor.data_ptr() % tensor.itemsize == 0 for tensor in out.values())


def test_equal_to_the_reference(torch: Any, tmp_path: Path) -> None:
    import safetensors.torch

    rng = random.Random(6)
    tensors = {}
    for number in range(60):
        dtype = rng.choice([name for name in TORCH if name not in ("F8_E8M0", "C64")])
        shape = [rng.randrange(1, 6) for _ in range(rng.randrange(0, 4))]
        data = bytearray(random_entry(number, dtype, shape)[2])
        tensors[f"{number}.{dtype}"] = torch.frombuffer(data, dtype=getattr(torch, TORCH[dtype])).reshape(shape)
    path = tmp_path / "t.safetensors"
    safetensors.torch.save_file(tensors, path)
    ours, theirs = load_file(path, "cpu"), safetensors.torch.load_file(path)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype is tensor.dtype and ours[name].shape == tensor.shape
        assert raw(torch, ours[name]) == raw(torch, tensor.contiguous())


def test_fp4_is_packed_in_pairs(torch: Any, tmp_path: Path) -> None:
    entry = random_entry(1, "F4", [3, 8])
    out = load_file(write(tmp_path / "t.safetensors", {"t": entry}), "cpu")["t"]
    assert out.dtype is torch.float4_e2m1fn_x2
    assert list(out.shape) == [3, 4]
    assert raw(torch, out) == entry[2]


@pytest.mark.parametrize(("dtype", "shape"), [("F6_E2M3", [4, 4]), ("F6_E3M2", [8]), ("F4", [2, 3])])
def test_what_torch_has_no_type_for(torch: Any, tmp_path: Path, dtype: str, shape: list[int]) -> None:
    entries = {"x": random_entry(1, dtype, shape), "y": random_entry(2, "F32", [3]), "z": random_entry(3, "F4", [4])}
    path = write(tmp_path / "t.safetensors", entries, pad=1)
    with pytest.raises(UnsupportedError, match=f"'x': dtype {dtype}"):
        load_file(path, "cpu")
    out = load_file(path, "cpu", unsupported="bytes")
    assert out["x"].dtype is torch.uint8 and out["x"].dim() == 1
    assert raw(torch, out["x"]) == entries["x"][2]
    assert raw(torch, out["y"]) == entries["y"][2]
    assert (out["z"].dtype, raw(torch, out["z"])) == (torch.float4_e2m1fn_x2, entries["z"][2])


def test_views_share_one_allocation_and_keep_it(torch: Any, tmp_path: Path) -> None:
    entries = {"a": random_entry(1, "F32", [1000]), "b": random_entry(2, "F16", [10, 10])}
    out = load_file(write(tmp_path / "t.safetensors", entries), "cpu")
    assert out["b"].data_ptr() - out["a"].data_ptr() == len(entries["a"][2])
    one = out.pop("a")
    one.fill_(3)
    assert raw(torch, out["b"]) == entries["b"][2]
    del out
    gc.collect()
    assert bool((one == 3).all())


def test_tensors_are_ordinary(torch: Any, tmp_path: Path) -> None:
    """Parameters, arithmetic, saving with the reference: all as with tensors from anywhere."""
    import safetensors.torch

    path = write(tmp_path / "t.safetensors", {n: (d, s, bytes(len(b))) for n, (d, s, b) in _floats().items()})
    out = load_file(path, "cpu")
    layer = torch.nn.Linear(4, 3)
    layer.load_state_dict({"weight": out["w"], "bias": out["b"]}, assign=True)
    layer(torch.ones(2, 4)).sum().backward()
    assert layer.weight.grad is not None
    again = tmp_path / "again.safetensors"
    safetensors.torch.save_file(out, again)
    check(torch, load_file(again, "cpu"), {n: (d, s, bytes(len(b))) for n, (d, s, b) in _floats().items()})


def _floats() -> dict[str, Entry]:
    return {"w": random_entry(1, "F32", [3, 4]), "b": random_entry(2, "F32", [3])}


def test_default_device_and_modes_do_not_matter(torch: Any, tmp_path: Path) -> None:
    entries = _floats()
    path = write(tmp_path / "t.safetensors", entries)
    with torch.device("meta"):
        check(torch, load_file(path, "cpu"), entries)
    with torch.inference_mode():
        check(torch, load_file(path, "cpu"), entries)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0])
def test_cuda_without_a_gpu_is_an_error(torch: Any, tmp_path: Path, device: Any) -> None:
    if torch.cuda.is_available():
        return  # test_cuda.py has this machine's case
    path = write(tmp_path / "t.safetensors", _floats())
    with pytest.raises(nebulaio.errors.NebulaioError) as caught:
        load_file(path, device)
    assert isinstance(caught.value, (DeviceError, UnsupportedError, nebulaio.errors.NotFoundError))
    assert not isinstance(caught.value, ForkError)


@pytest.mark.parametrize("device", ["cuda", "auto", 0])
def test_torchs_own_bad_fork_is_a_fork_error(
    torch: Any, tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.safetensors", _floats())
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(ForkError, match="spawn"):
        load_file(path, device)
    check(torch, load_file(path, "cpu"), _floats())


def test_no_memory_is_our_error(torch: Any, tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "large.safetensors", 4 << 30)
    assert "on host" in python(NO_MEMORY, path, "pt")


def test_views_are_cheap(torch: Any, tmp_path: Path) -> None:
    """Making views is done while bytes flow and must not outlast them."""
    from nebulaio import _frameworks, _process
    from nebulaio._handles import Model

    entries = {f"model.layers.{n}.weight": random_entry(n, "BF16", [16, 8]) for n in range(2000)}
    path = write(tmp_path / "t.safetensors", entries)
    maker = _frameworks.get("pt")
    with Model(_process.current().open(), path, {"device": "host"}) as model:
        layout = model.describe()
    dtypes = _frameworks.choose(maker, layout["tensors"], "error")
    destinations = [maker.allocate(file["dest_size"], file["dest_align"], "host") for file in layout["files"]]
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()  # of this thread alone, however busy the machine is
        maker.views(layout["tensors"], destinations, dtypes)
        best = min(best, time.thread_time() - start)
    per_tensor = best / len(entries) * 1e6
    assert per_tensor < 20, f"{per_tensor:.1f} us a tensor"  # about 3 on an idle machine


@pytest.mark.parametrize("lookahead", [None, 0])
def test_stream_into_a_module(torch: Any, tmp_path: Path, lookahead: int | None) -> None:
    """As vLLM's loaders do: copy each tensor into its parameter as it comes."""
    module = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 100))
    entries = {name: random_entry(n, "F32", list(p.shape)) for n, (name, p) in enumerate(module.named_parameters())}
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in stream(write(tmp_path / "t.safetensors", entries), "cpu", lookahead=lookahead):
            parameters.pop(name).copy_(tensor)
    assert not parameters
    check(torch, {name: p.detach() for name, p in module.named_parameters()}, entries)


def test_stream_every_dtype(torch: Any, tmp_path: Path) -> None:
    entries = {dtype: random_entry(n, dtype, [n + 1, 3]) for n, dtype in enumerate(TORCH)}
    check(torch, dict(stream(write(tmp_path / "t.safetensors", entries, pad=1), "cpu")), entries)


def test_safe_open_as_the_reference(torch: Any, tmp_path: Path) -> None:
    import safetensors

    path = write(tmp_path / "t.safetensors", {dtype: random_entry(n, dtype, [n, 3]) for n, dtype in enumerate(TORCH)})
    with safe_open(path, framework="pt", device="cpu") as ours, safetensors.safe_open(path, "pt") as theirs:
        assert ours.keys() == theirs.keys()
        for name in theirs.keys():
            one, other = ours.get_tensor(name), theirs.get_tensor(name)
            assert (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
            assert raw(torch, one) == raw(torch, other)
            assert raw(torch, ours.get_slice(name)[:]) == raw(torch, other)
