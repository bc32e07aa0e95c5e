# SPDX-License-Identifier: Apache-2.0
"""The names of the installed safetensors package: each is here, takes the same arguments, and does the same."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import nebulaio.safetensors
import nebulaio.safetensors.numpy
import numpy
import pytest
import safetensors
import safetensors.numpy
from nebulaio import errors
from support import BITS, random_entry, write, write_sharded

torch_only = pytest.mark.torch
MODULES = ["", pytest.param(".torch", marks=torch_only), ".numpy"]


def both(suffix: str) -> tuple[ModuleType, ModuleType]:
    return importlib.import_module("safetensors" + suffix), importlib.import_module("nebulaio.safetensors" + suffix)


def public(module: ModuleType) -> dict[str, Any]:
    """The functions and classes that a module of the reference has for its users."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value)
        and str(getattr(value, "__module__", "")).startswith(("safetensors", "builtins", "None"))
        and not str(getattr(value, "__module__", "")).startswith("typing")
    }


def test_the_names_are_found() -> None:
    """So that an empty list does not pass for parity."""
    assert {"safe_open", "serialize", "serialize_file", "deserialize", "SafetensorError",
            "TensorSpec"} <= public(safetensors).keys()
    assert {"load", "load_file", "save", "save_file"} <= public(safetensors.numpy).keys()


@pytest.mark.parametrize("suffix", MODULES)
def test_every_name_takes_the_same_arguments(suffix: str) -> None:
    theirs, ours = both(suffix)
    top = importlib.import_module("nebulaio.safetensors")
    for name, value in public(theirs).items():
        mine = getattr(ours, name, None) or getattr(top, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            assert issubclass(mine, Exception)
            continue
        if name in ("PrefetchLoader", "PySafeSlice", "TensorMeta"):
            continue  # callers cannot make these: test_surface.py compares the calls that return them
        wanted = inspect.signature(value).parameters
        here = inspect.signature(mine).parameters
        for place, (argument, parameter) in enumerate(wanted.items()):
            assert argument in here, f"{name}({argument})"
            found = here[argument]
            assert found.kind == parameter.kind, f"{name}({argument})"
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                assert list(here)[place] == argument, f"{name}({argument})"
            if parameter.default in (parameter.empty, ...):
                continue  # the reference hides its defaults of Rust
            assert found.default == parameter.default, f"{name}({argument})"
        more = [one for argument, one in here.items() if argument not in wanted]
        assert all(one.kind is one.KEYWORD_ONLY and one.default is not one.empty for one in more), name


def test_methods_of_safe_open() -> None:
    names = [name for name in dir(safetensors.safe_open) if not name.startswith("_")]
    assert names and all(hasattr(nebulaio.safetensors.safe_open, name) for name in names)


def arrays() -> dict[str, Any]:
    rng = numpy.random.default_rng(1)
    kinds = ["bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "c8", "f8", "i8", "u8"]
    out: dict[str, Any] = {f"{kind}.{n}": rng.integers(0, 2, (n, 3)).astype(kind) for kind in kinds for n in (0, 1, 4)}
    return {**out, "scalar": numpy.array(3, "f4"), "\u00e9\n\x1f\"\\": numpy.ones(2)}


@pytest.mark.parametrize("metadata", [None, {}, {"k": "v\u00e9\n"}], ids=str)
def test_save_and_load_bytes(metadata: Any) -> None:
    ours = nebulaio.safetensors.numpy.save(arrays(), metadata)
    assert ours == safetensors.numpy.save(arrays(), metadata) and type(ours) is bytes
    assert nebulaio.safetensors.save(arrays(), metadata) == ours
    for out in (nebulaio.safetensors.numpy.load(ours), nebulaio.safetensors.load(ours, framework="numpy")):
        assert out.keys() == arrays().keys()
        for name, expected in safetensors.numpy.load(ours).items():
            assert (out[name].dtype, out[name].shape, out[name].tobytes()) == (expected.dtype, expected.shape,
                                                                               expected.tobytes())


def test_load_file_and_save_file_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    nebulaio.safetensors.numpy.save_file(arrays(), path, {"a": "b"})
    theirs = safetensors.numpy.load_file(path)
    for out in (nebulaio.safetensors.numpy.load_file(path),
                nebulaio.safetensors.numpy.load_file(path, backend="pread")):
        assert {name: array.tobytes() for name, array in out.items()} == {name: array.tobytes()
                                                                          for name, array in theirs.items()}
    with pytest.raises(errors.InvalidError, match="backend='x'"):
        nebulaio.safetensors.numpy.load_file(path, backend="x")


def test_deserialize() -> None:
    data = safetensors.numpy.save(arrays(), {"k": "v"})
    ours, theirs = nebulaio.safetensors.deserialize(data), safetensors.deserialize(data)
    assert dict(ours) == dict(theirs) and type(ours[0][1]["data"]) is type(theirs[0][1]["data"])
    assert nebulaio.safetensors.deserialize(bytes=bytearray(data)) == ours
    assert dict(nebulaio.safetensors.deserialize(safetensors.numpy.save({}))) == {}
    for bad in (b"", b"123", data[:20], data[:-1], data + b"x", b"\xff" * 8 + data[8:], b"\2" + bytes(7) + b"[]"):
        with pytest.raises(safetensors.SafetensorError):
            safetensors.deserialize(bad)
        with pytest.raises(nebulaio.safetensors.SafetensorError):
            nebulaio.safetensors.deserialize(bad)
        with pytest.raises(errors.CorruptError):
            nebulaio.safetensors.load(bad, framework="numpy")


def specs(module: ModuleType, held: dict[str, Any]) -> dict[str, Any]:
    return {
        name: module.TensorSpec(dtype=array.dtype.name, shape=array.shape, data_ptr=array.ctypes.data,
                                data_len=array.nbytes)
        for name, array in held.items()
    }


def test_serialize(tmp_path: Path) -> None:
    held = arrays()
    data = nebulaio.safetensors.serialize(specs(nebulaio.safetensors, held), {"k": "v"})
    assert data == bytes(safetensors.serialize(specs(safetensors, held), {"k": "v"}))
    path = tmp_path / "t.safetensors"
    nebulaio.safetensors.serialize_file(specs(nebulaio.safetensors, held), path, {"k": "v"})
    assert dict(safetensors.deserialize(path.read_bytes())) == dict(safetensors.deserialize(data))
    assert [one.name for one in tmp_path.iterdir()] == ["t.safetensors"]


def test_serialize_makes_nothing_that_cannot_be_read() -> None:
    held = numpy.zeros(1, numpy.uint8)

    def spec(dimensions: int) -> nebulaio.safetensors.TensorSpec:
        return nebulaio.safetensors.TensorSpec(dtype="uint8", shape=[1] * dimensions, data_ptr=held.ctypes.data,
                                               data_len=1)

    for tensors, metadata, says in (
        ({"__metadata__": spec(1)}, None, "reserved"),
        ({"n": spec(65)}, None, "65 dimensions, expected at most 64"),
        ({}, {"long": "x" * 100_000_000}, "expected at most 100000000"),
    ):
        with pytest.raises(errors.InvalidError, match=says):
            nebulaio.safetensors.serialize(tensors, metadata)
    assert len(nebulaio.safetensors.deserialize(nebulaio.safetensors.serialize({"n": spec(64)}))) == 1


def test_every_dtype_of_a_spec() -> None:
    with pytest.raises(safetensors.SafetensorError) as told:
        safetensors.TensorSpec(dtype="nope", shape=[1], data_ptr=1, data_len=1)
    names = str(told.value).rpartition("Supported dtypes: ")[2].split(", ")
    assert "float32" in names
    memory = numpy.arange(64, dtype="u1")
    given = {}
    for name in names:
        ours, theirs = (
            module.TensorSpec(dtype=name, shape=[2, 2], data_ptr=memory.ctypes.data, data_len=0)
            for module in (nebulaio.safetensors, safetensors)
        )
        for field in ("dtype", "shape", "data_ptr", "data_len"):
            assert getattr(ours, field) == getattr(theirs, field), (name, field)
        given[name] = BITS[ours.dtype] * ours.shape[0] * ours.shape[1] // 8
    both_ways = [
        module.serialize({name: module.TensorSpec(dtype=name, shape=[2, 2], data_ptr=memory.ctypes.data, data_len=size)
                          for name, size in given.items()})
        for module in (nebulaio.safetensors, safetensors)
    ]
    assert both_ways[0] == bytes(both_ways[1])
    with pytest.raises(nebulaio.safetensors.SafetensorError, match="expected one of bool"):
        nebulaio.safetensors.TensorSpec(dtype="nope", shape=[1], data_ptr=1, data_len=1)
    for module in (nebulaio.safetensors, safetensors):
        with pytest.raises(module.SafetensorError):
            module.serialize({"a": module.TensorSpec(dtype="float32", shape=[2, 3], data_ptr=1, data_len=4)})


@pytest.mark.parametrize("name", ["data_ptr", "data_len"])
def test_numbers_of_a_spec(name: str) -> None:
    class Sixteen:
        def __index__(self) -> int:
            return 16

    def spec(module: ModuleType, value: Any) -> Any:
        given: dict[str, Any] = {"dtype": "uint8", "shape": [16], "data_ptr": 1, "data_len": 16}
        return module.TensorSpec(**{**given, name: value})

    for good in (0, 16, True, Sixteen(), numpy.int32(16), (1 << 64) - 1):
        ours, theirs = (getattr(spec(module, good), name) for module in (nebulaio.safetensors, safetensors))
        assert ours == theirs and type(ours) is int
    for bad in (1.5, 16.0, "16", None, numpy.float32(16)):
        with pytest.raises(TypeError):
            spec(safetensors, bad)
        with pytest.raises(errors.ArgumentTypeError, match=f"{name}=.* is not a whole number"):
            spec(nebulaio.safetensors, bad)
    for bad in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            spec(safetensors, bad)
        with pytest.raises(errors.InvalidError, match=f"{name}=.* is out of range"):
            spec(nebulaio.safetensors, bad)


def test_shapes_and_addresses_of_a_spec() -> None:
    for extent in (-1, 1 << 64):
        with pytest.raises(errors.InvalidError, match="outside of 0 to 2"):
            nebulaio.safetensors.TensorSpec(dtype="uint8", shape=[extent, 0], data_ptr=1, data_len=0)
    null = nebulaio.safetensors.TensorSpec(dtype="uint8", shape=[4], data_ptr=0, data_len=4)
    with pytest.raises(errors.InvalidError, match="data_ptr is 0"):
        nebulaio.safetensors.serialize({"a": null})


@torch_only
def test_save_and_load_bytes_with_torch() -> None:
    import torch

    theirs, ours = both(".torch")
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "h": torch.ones(3, dtype=torch.bfloat16), "e": torch.empty(0, 2),
               "s": torch.tensor(1)}
    data = ours.save(tensors, {"k": "v"})
    assert data == theirs.save(tensors, {"k": "v"}) == nebulaio.safetensors.save(tensors, {"k": "v"})
    out = ours.load(data)
    assert out.keys() == tensors.keys() and all(torch.equal(out[name], tensor) and out[name].dtype is tensor.dtype
                                                for name, tensor in tensors.items())
    for bad, kind in (({"t": torch.ones(2, 3).T}, ValueError), ({"a": tensors["b"], "b": tensors["b"]}, RuntimeError)):
        for module in (ours, theirs):
            with pytest.raises(kind):
                module.save(bad)


def modules(torch: Any) -> dict[str, Any]:
    class Tied(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4)
            self.second = torch.nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.third = torch.nn.Linear(4, 2)
            self.third.weight = torch.nn.Parameter(torch.randn(4, 2).T)  # not contiguous
            self.register_buffer("part", self.first.bias.detach()[1:3])

    return {"plain": torch.nn.Linear(3, 5), "tied": Tied(), "nothing": torch.nn.ReLU()}


@torch_only
@pytest.mark.parametrize("kind", ["plain", "tied", "nothing"])
def test_modules(tmp_path: Path, kind: str) -> None:
    import torch

    theirs, ours = both(".torch")
    model = modules(torch)[kind]
    given = {"own": "words"}
    ours.save_model(model, tmp_path / "ours.safetensors", given)
    theirs.save_model(model, tmp_path / "theirs.safetensors", {"own": "words"})
    assert given == {"own": "words"}
    with safetensors.safe_open(tmp_path / "ours.safetensors",
                               "pt") as one, safetensors.safe_open(tmp_path / "theirs.safetensors", "pt") as other:
        assert one.metadata() == other.metadata() and one.keys() == other.keys()
        assert all(torch.equal(one.get_tensor(name), other.get_tensor(name)) for name in one.keys())
    for load, path in ((ours.load_model, "theirs"), (theirs.load_model, "ours"),
                       (nebulaio.safetensors.load_model, "theirs")):
        fresh = modules(torch)[kind]
        missing, unexpected = load(fresh, tmp_path / f"{path}.safetensors")
        assert not missing and not unexpected
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in fresh.state_dict().items())


@torch_only
def test_modules_that_do_not_fit(tmp_path: Path) -> None:
    import torch

    theirs, ours = both(".torch")
    path = tmp_path / "t.safetensors"
    theirs.save_file({"weight": torch.ones(5, 3), "other": torch.ones(1)}, path)
    for module in (ours, theirs):
        with pytest.raises(RuntimeError, match='Missing key\\(s\\) in state_dict: "bias"\n.*Unexpected key\\(s\\) in state_dict: "other"'):
            module.load_model(torch.nn.Linear(3, 5), path)
        missing, unexpected = module.load_model(torch.nn.Linear(3, 5), path, strict=False)
        assert (list(missing), list(unexpected)) == (["bias"], ["other"])
    parts = torch.nn.Module()
    whole = torch.ones(10)
    parts.register_buffer("a", whole[:6])
    parts.register_buffer("b", whole[4:])
    for module in (ours, theirs):
        with pytest.raises(RuntimeError):
            module.save_model(parts, tmp_path / "parts.safetensors")


@torch_only
def test_a_missing_device_is_the_host(tmp_path: Path) -> None:
    _, ours = both(".torch")
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [3])})
    assert ours.load_file(path, None)["a"].device.type == ours.load_file(path)["a"].device.type == "cpu"


SHARDS = {f"model-0000{n}-of-00003.safetensors": {f"t{n}": random_entry(n, "F32", [n, 3])} for n in (1, 2, 3)}


def test_shards_without_an_index(tmp_path: Path) -> None:
    index = write_sharded(tmp_path / "m", SHARDS)
    index.unlink()
    out = nebulaio.safetensors.load_model(index.parent, "cpu", framework="numpy")
    assert {name: array.tobytes() for name, array in out.items()} == {n: e[2] for shard in SHARDS.values()
                                                                      for n, e in shard.items()}
    (index.parent / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(errors.NotFoundError, match="1 of 3 shards are missing: .model-00002-of-00003"):
        nebulaio.safetensors.load_model(index.parent, "cpu", framework="numpy")


def test_files_that_hold_a_tensor_twice_need_an_index(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.safetensors", {"t": random_entry(1, "U8", [3])})
    with pytest.raises(errors.InvalidError, match="tensor .t. is in .*a.safetensors and in .*b.safetensors"):
        nebulaio.safetensors.load_model(tmp_path, "cpu", framework="numpy")


def test_shards_in_folders(tmp_path: Path) -> None:
    for folder in ("one", "two/deep"):
        (tmp_path / folder).mkdir(parents=True)
    shards = {"one/m.safetensors": {"a": random_entry(1, "U8", [3])},
              "two/deep/m.safetensors": {"b": random_entry(2, "U8", [3])},
              "m.safetensors": {"c": random_entry(3, "U8", [3])}}
    write_sharded(tmp_path, shards)
    out = nebulaio.safetensors.load_model(tmp_path, "cpu", framework="numpy")
    assert {name: array.tobytes() for name, array in out.items()} == {n: e[2] for shard in shards.values()
                                                                      for n, e in shard.items()}
