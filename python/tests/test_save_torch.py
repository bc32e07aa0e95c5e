# SPDX-License-Identifier: Apache-2.0
"""Saves of torch tensors, on the host and, where there is one, on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio.errors import InvalidError, UnsupportedError
from nebulaio.safetensors import inspect, load_file, save_file
from support import random_entry
from test_torch import TORCH, raw, torch  # noqa: F401

pytestmark = pytest.mark.torch


def tensor(torch: Any, dtype: str, shape: list[int], seed: int = 1) -> Any:  # noqa: F811
    data = torch.frombuffer(bytearray(random_entry(seed, dtype, shape)[2] or b"\0"), dtype=torch.uint8)
    if 0 in shape:
        return torch.empty(shape, dtype=getattr(torch, TORCH[dtype]))
    return data.view(getattr(torch, TORCH[dtype])).reshape(shape)


def test_every_dtype_as_the_reference_has_it(torch: Any, tmp_path: Path) -> None:  # noqa: F811
    import safetensors.torch

    tensors = {
        f"{dtype}.{number}": tensor(torch, dtype, shape, number)
        for dtype in TORCH
        for number, shape in enumerate([[], [7], [3, 5], [0, 2], [200, 300]])
    }
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    save_file(tensors, ours, {"format": "pt"})
    safetensors.torch.save_file(tensors, theirs, {"format": "pt"})
    back, read = load_file(ours, "cpu"), safetensors.torch.load_file(ours)
    for name, value in tensors.items():
        for got in (back[name], read[name]):
            assert (got.dtype, got.shape) == (value.dtype, value.shape), name
            assert raw(torch, got) == raw(torch, value), name
    data = [path.read_bytes()[8 + int.from_bytes(path.read_bytes()[:8], "little") :] for path in (ours, theirs)]
    assert data[0] == data[1]


def test_packed_floats_count_values(torch: Any, tmp_path: Path) -> None:  # noqa: F811
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4")
    packed = torch.arange(24, dtype=torch.uint8).reshape(4, 6).view(torch.float4_e2m1fn_x2)
    path = tmp_path / "t.safetensors"
    save_file({"t": packed}, path)
    assert inspect(path)["tensors"][0]["shape"] == [4, 12]
    assert raw(torch, load_file(path, "cpu")["t"]) == raw(torch, packed)


def test_what_is_refused(torch: Any, tmp_path: Path) -> None:  # noqa: F811
    from torch._subclasses.fake_tensor import FakeTensorMode

    path = tmp_path / "t.safetensors"
    whole = torch.arange(12.0).reshape(3, 4)
    for tensors, kind, says in (
        ({"t": whole.T}, InvalidError, r"'t'.*\[4, 3\].*\.contiguous\(\)"),
        ({"t": whole[:, 1:3]}, InvalidError, "'t'.*contiguous"),
        ({"a": whole, "b": whole}, InvalidError, "share memory"),
        ({"a": whole, "b": whole[1]}, InvalidError, "share memory"),
        ({"t": whole.to_sparse()}, InvalidError, "'t'.*layout"),
        ({"t": whole.to("meta")}, InvalidError, "'t'.*meta"),
        ({"t": torch.zeros(2, dtype=torch.complex128)}, UnsupportedError, "'t'.*complex128"),
        ({"t": torch.zeros(2, dtype=torch.complex64).conj()}, InvalidError, "'t'.*resolve_conj"),
        ({"t": torch.nn.LazyLinear(3).weight}, InvalidError, "'t'.*no shape yet"),
        ({"t": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}, InvalidError, "'t'.*nested"),
        ({"t": FakeTensorMode().from_tensor(torch.ones(3))}, InvalidError, "'t'.*FakeTensor without memory"),
    ):
        with pytest.raises(kind, match=says):
            save_file(tensors, path)
    assert list(tmp_path.iterdir()) == []


def test_moves_of_bytes_that_are_not_the_values(torch: Any, tmp_path: Path) -> None:  # noqa: F811
    values = torch.tensor([1 + 2j, 3 - 4j])
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with nebulaio.CuFile(tmp_path / "f", "w") as f:
        for tensor, says in (
            (values.conj(), "resolve_conj"),
            (values.conj().imag, "resolve_neg"),
            (torch.ones(3).to_sparse(), "to_dense"),
            (ragged, "nested"),
        ):
            with pytest.raises(InvalidError, match=says):
                f.write(tensor)
            with pytest.raises(InvalidError, match=says):
                f.read(tensor)
        assert f.write(values.conj().resolve_conj()) == 16


def test_parts_of_one_storage_that_do_not_meet(torch: Any, tmp_path: Path) -> None:  # noqa: F811
    whole = torch.arange(12.0)
    path = tmp_path / "t.safetensors"
    save_file({"a": whole[:5], "b": whole[5:], "p": torch.nn.Parameter(torch.ones(3))}, path)
    out = load_file(path, "cpu")
    assert torch.equal(torch.cat([out["a"], out["b"]]), whole)


@pytest.mark.cuda
def test_from_every_gpu_and_the_host(torch: Any, tmp_path: Path) -> None:  # noqa: F811
    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    tensors = {
        f"{dtype}.{number}": tensor(torch, dtype, [number * 37 + 1, 61], number).to(device)
        for dtype in TORCH
        for number, device in enumerate(devices)
    }
    path = tmp_path / "t.safetensors"
    save_file(tensors, path)
    report = nebulaio.last_report()
    assert report is not None
    assert {source["device"] for source in report["save"]["sources"]} == {"memory", "host", *devices[1:]}
    out = load_file(path, "cpu")
    for name, value in tensors.items():
        assert raw(torch, out[name]) == raw(torch, value.cpu()), name


@pytest.mark.cuda
def test_waits_for_the_streams_work(torch: Any, tmp_path: Path) -> None:  # noqa: F811
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        value = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
        torch.cuda._sleep(200_000_000)
        value.fill_(7)
        save_file({"t": value}, tmp_path / "t.safetensors")
    assert bool((load_file(tmp_path / "t.safetensors", "cpu")["t"] == 7).all())
