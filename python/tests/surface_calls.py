# SPDX-License-Identifier: Apache-2.0
"""Prints what safetensors and nebulaio.safetensors do: surface_calls.py DIRECTORY.

The output is JSON, by package: the names of the package with their signatures, and the result of each call of a table,
or the classes of its exception. test_surface.py compares the packages.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

MODULES = ("", ".torch", ".numpy")
UNAVAILABLE = (".flax", ".tensorflow", ".paddle", ".mlx")


def shown(value: Any) -> Any:
    """A result in a form that JSON can carry and that both packages have in common."""
    if isinstance(value, torch.Tensor):
        return ["torch", str(value.dtype), str(value.device), list(value.shape),
                value.contiguous().view(-1).view(torch.uint8).tolist() if value.numel() else []]
    if isinstance(value, numpy.ndarray):
        return ["numpy", str(value.dtype), list(value.shape), value.tobytes().hex()]
    if isinstance(value, dict):
        return {str(name): shown(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [type(value).__name__, *[shown(one) for one in (sorted(value) if isinstance(value, set) else value)]]
    if isinstance(value, (bytes, bytearray)):
        return [type(value).__name__, len(value), hashlib.sha256(value).hexdigest()]
    if hasattr(value, "data_offsets"):
        return ["meta", value.dtype, value.shape, shown(value.data_offsets)]
    if hasattr(value, "get_dtype"):
        return "slice"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return type(value).__name__


def outcome(call: Callable[[], Any], error: type[Exception]) -> Any:
    try:
        return {"result": shown(call())}
    except Exception as problem:  # noqa: BLE001 - any exception is a result here
        kinds = [kind.__name__ for kind in type(problem).__mro__ if kind.__module__ == "builtins"
                 and kind not in (BaseException, object)]
        return {"raises": (["SafetensorError"] if isinstance(problem, error) else []) + kinds, "says": str(problem)}


def signature(value: Any) -> list[list[Any]] | None:
    """The name, kind and default of each argument. The reference hides the defaults of its native part."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[one.name, one.kind.name, "none" if one.default is one.empty else "hidden" if one.default is ...
             else repr(one.default)] for one in found]


def names(package: str) -> dict[str, Any]:
    """Every public name of the modules, with its signature, and the members of classes with theirs."""
    out: dict[str, Any] = {}
    for suffix in MODULES:
        module = importlib.import_module(package + suffix)
        for name, value in vars(module).items():
            where = str(getattr(value, "__module__", ""))
            if name.startswith("_") or inspect.ismodule(value) or where in ("typing", "collections", "__future__"):
                continue
            out[f"{suffix}.{name}"] = signature(value)
            if inspect.isclass(value) and not issubclass(value, Exception):
                for member in dir(value):
                    if not member.startswith("_") or member in ("__enter__", "__exit__", "__len__", "__iter__",
                                                                "__getitem__"):
                        out[f"{suffix}.{name}.{member}"] = signature(getattr(value, member))
    for suffix in UNAVAILABLE:
        out.update(written(package, suffix))
    return out


def written(package: str, suffix: str) -> dict[str, Any]:
    """The functions of a module whose framework is not installed, from its source."""
    place = Path(str(importlib.import_module(package).__file__)).with_name(suffix[1:] + ".py")
    out: dict[str, Any] = {}
    for node in ast.parse(place.read_text()).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        given, found = node.args, []
        defaults = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
        for one, default in zip(given.args, defaults, strict=True):
            found.append([one.arg, "POSITIONAL_OR_KEYWORD", "none" if default is None
                          else repr(ast.literal_eval(default))])
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            found.append([one.arg, "KEYWORD_ONLY", "none" if default is None else repr(ast.literal_eval(default))])
        out[f"{suffix}.{node.name}"] = found
    return out


def tensors() -> dict[str, Any]:
    """Torch tensors of all types that both packages have, in the order of a shuffled file."""
    made: dict[str, Any] = {}
    for number, kind in enumerate(("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16",
                                   "int32", "uint32", "int64", "uint64", "bool", "complex64", "float8_e4m3fn",
                                   "float8_e5m2")):
        bits = torch.arange(24, dtype=torch.uint8).add(number) if kind != "bool" else torch.arange(24, dtype=torch.uint8) % 2
        made[f"t.{kind}"] = bits.repeat(8).view(getattr(torch, kind)).view(6, -1)
    return {**made, "scalar": torch.tensor(7.0), "empty": torch.empty(0, 4), "\u00e9 \"quoted\"": torch.ones(3, 2)}


def calls(st: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """The table: each entry is one call."""
    path = folder / "reference.safetensors"
    data = path.read_bytes()
    plain = {name: tensor for name, tensor in tensors().items() if not name.startswith(("t.bf", "t.float8"))}
    arrays = {name: tensor.numpy() for name, tensor in plain.items()}
    table: dict[str, Callable[[], Any]] = {}

    def opened(framework: str = "pt", **named: Any) -> Any:
        return st.safe_open(path, framework, **named)

    def closed() -> Any:
        with opened() as file:
            pass
        return file

    for kind in ("keys", "offset_keys", "metadata", "get_tensors"):
        table[f"safe_open.{kind}"] = lambda kind=kind: getattr(opened(), kind)()
        table[f"closed.{kind}"] = lambda kind=kind: getattr(closed(), kind)()
        table[f"{kind} of a file without metadata"] = lambda kind=kind: getattr(
            st.safe_open(folder / "plain.safetensors", "pt"), kind)()
        table[f"{kind} of a file without tensors"] = lambda kind=kind: getattr(
            st.safe_open(folder / "nothing.safetensors", "pt"), kind)()
    for kind in ("get_tensor", "get_slice", "get_tensor_meta"):
        for name in (*tensors(), "nope", "", 1, None):
            table[f"{kind}({name!r})"] = lambda kind=kind, name=name: getattr(opened(), kind)(name)
        table[f"closed.{kind}"] = lambda kind=kind: getattr(closed(), kind)("scalar")
        table[f"closed.{kind} of nothing"] = lambda kind=kind: getattr(closed(), kind)("nope")
    for name in plain:
        table[f"numpy {name}"] = lambda name=name: opened("np").get_tensor(name)
        table[f"numpy slice {name}"] = lambda name=name: opened("numpy").get_slice(name)[...]
    for index in (
        0, -1, 5, 6, -7, slice(None), slice(1, 3), slice(-2, None), slice(0, 100), slice(4, 2), slice(None, None, 2),
        slice(1, None, 3), ..., (0, 1), (slice(1, 3), slice(2, 5)),
        (slice(None), 1), (..., 1), (1, ...), (slice(None), slice(None, None, 3)), (0, 0, 0), (), "x", 1.5,
        slice(None, None, 0), slice(None, None, -1), (..., ...), numpy.int64(2),
    ):
        for framework in ("pt", "numpy"):
            table[f"get_slice[{index!r}] {framework}"] = lambda index=index, framework=framework: opened(
                framework).get_slice("t.int32")[index]
    for name in ("scalar", "t.bfloat16", "empty"):
        for index in (slice(None), slice(0, 1), 0, ..., ()):
            table[f"get_slice({name})[{index!r}]"] = lambda name=name, index=index: opened().get_slice(name)[index]
    table["get_shape"] = lambda: opened().get_slice("t.int32").get_shape()
    table["get_dtype"] = lambda: [opened().get_slice(name).get_dtype() for name in tensors()]

    def kept() -> Any:
        with opened() as file:
            part = file.get_slice("t.int32")
        return part[1:3]

    table["a slice outlives its file"] = kept
    for framework in ("pt", "torch", "pytorch", "np", "numpy", "nope", None, 1):
        table[f"framework={framework!r}"] = lambda framework=framework: opened(framework).get_tensor("scalar")
    for device in ("cpu", None, "nope", "meta", -1, 1.5):
        table[f"device={device!r}"] = lambda device=device: opened(device=device).get_tensor("scalar")
        table[f"load_file device={device!r}"] = lambda device=device: st.torch.load_file(path, device=device)["scalar"]
    for backend in ("mmap", "pread", "nope", None, 1):
        table[f"backend={backend!r}"] = lambda backend=backend: opened(backend=backend).get_tensor("scalar")
        table[f"load_file backend={backend!r}"] = lambda backend=backend: st.torch.load_file(path,
                                                                                             backend=backend)["scalar"]
        table[f"numpy.load_file backend={backend!r}"] = lambda backend=backend: st.numpy.load_file(
            folder / "plain.safetensors", backend=backend)["scalar"]
    for wrong in (folder / "none.safetensors", folder, folder / "short.safetensors", folder / "bad.safetensors", 1,
                  None, b"x"):
        name = wrong.name if isinstance(wrong, Path) else repr(wrong)
        table[f"open {name if name != folder.name else 'a folder'}"] = lambda wrong=wrong: st.safe_open(wrong,
                                                                                                        "pt").keys()
        table[f"load_file {name if name != folder.name else 'a folder'}"] = lambda wrong=wrong: st.torch.load_file(
            wrong)
    table["open without a framework"] = lambda: st.safe_open(path, framework="pt", nope=1)
    table["load_file str"] = lambda: st.torch.load_file(str(path))
    table["load_file keyword"] = lambda: st.torch.load_file(filename=path, device="cpu")
    table["numpy.load_file"] = lambda: st.numpy.load_file(folder / "plain.safetensors")
    table["torch.load"] = lambda: st.torch.load(data)
    table["numpy.load"] = lambda: st.numpy.load((folder / "plain.safetensors").read_bytes())
    table["deserialize"] = lambda: {name: one for name, one in st.deserialize(data)}  # noqa: C416
    for bad in (b"", data[:7], data[:50], data[:-1], data + b"x", b"\2" + bytes(7) + b"[]", None, "text"):
        label = repr(bad) if bad is None or len(bad) < 9 else f"{len(bad) - len(data)} bytes more"
        table[f"deserialize {label}"] = lambda bad=bad: st.deserialize(bad)
        table[f"torch.load {label}"] = lambda bad=bad: st.torch.load(bad)
        table[f"numpy.load {label}"] = lambda bad=bad: st.numpy.load(bad)
    for metadata in (None, {}, {"a": "b"}, {"a": 1}, {1: "a"}, "text"):
        table[f"torch.save {metadata!r}"] = lambda metadata=metadata: st.torch.load(st.torch.save(tensors(), metadata))
        table[f"numpy.save {metadata!r}"] = lambda metadata=metadata: st.numpy.save(arrays, metadata)

        def saved(metadata: Any = metadata) -> Any:
            st.torch.save_file(tensors(), folder / "out.safetensors", metadata)
            with st.safe_open(folder / "out.safetensors", "pt") as file:
                return file.get_tensors(), file.metadata()

        table[f"torch.save_file {metadata!r}"] = saved
    shared = torch.ones(4, 4)
    for label, bad in (
        ("not contiguous", {"a": torch.ones(3, 4).T}), ("shared", {"a": shared, "b": shared}),
        ("parts", {"a": shared[:2], "b": shared[2:]}), ("no dictionary", [shared]),
        ("no tensor", {"a": 1}), ("a name", {1: shared}), ("sparse", {"a": torch.eye(3).to_sparse()}),
    ):
        table[f"torch.save {label}"] = lambda bad=bad: len(st.torch.save(bad))
        table[f"torch.save_file {label}"] = lambda bad=bad: st.torch.save_file(bad, folder / "bad-out.safetensors")
    table["numpy.save no array"] = lambda: st.numpy.save({"a": 1})
    table["save_file into no folder"] = lambda: st.torch.save_file({"a": shared}, folder / "no" / "file.safetensors")

    def model() -> Any:
        tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        tied[1].weight = tied[0].weight
        with torch.no_grad():
            for parameter in tied.parameters():
                parameter.fill_(2)
        return tied

    def models(change: Callable[[dict[str, Any]], None], strict: bool) -> Any:
        st.torch.save_model(model(), str(folder / "model.safetensors"), {"k": "v"})
        state = st.torch.load_file(folder / "model.safetensors")
        change(state)
        st.torch.save_file(state, folder / "model.safetensors")
        into = model()
        missing, unexpected = st.torch.load_model(into, folder / "model.safetensors", strict=strict)
        return sorted(state), sorted(missing), sorted(unexpected), dict(into.state_dict())

    for strict in (True, False):
        table[f"models {strict}"] = lambda strict=strict: models(lambda state: None, strict)
        table[f"models without a name {strict}"] = lambda strict=strict: models(lambda state: state.pop("0.bias")
                                                                                and None, strict)
        table[f"models with a name {strict}"] = lambda strict=strict: models(
            lambda state: state.update(more=torch.ones(1)), strict)
    array = numpy.arange(6, dtype="float32")
    for label, given in (
        ("float32", {"dtype": "float32", "shape": [2, 3]}), ("a tuple", {"dtype": "float32", "shape": (6,)}),
        ("nope", {"dtype": "nope", "shape": [6]}),
        ("negative", {"dtype": "float32", "shape": [-6]}), ("text", {"dtype": "float32", "shape": "x"}),
        ("no dtype", {"dtype": 1, "shape": [6]}), ("short", {"dtype": "float32", "shape": [7]}),
    ):

        def spec(given: Any = given) -> Any:
            return st.TensorSpec(**given, data_ptr=array.ctypes.data, data_len=array.nbytes)

        table[f"TensorSpec {label}"] = lambda spec=spec: [spec().dtype, spec().shape, spec().data_len]
        table[f"serialize {label}"] = lambda spec=spec: bytes(st.serialize({"a": spec()}, {"k": "v"}))
    table["TensorSpec without names"] = lambda: st.TensorSpec("float32", [6], array.ctypes.data, array.nbytes)
    table["serialize nothing"] = lambda: bytes(st.serialize({}))
    table["serialize no spec"] = lambda: st.serialize({"a": 1})
    table["serialize no dictionary"] = lambda: st.serialize([1])
    for name in ("TensorMeta", "PrefetchLoader", "PySafeSlice"):
        table[f"{name}()"] = lambda name=name: getattr(st, name)()
    for plan in (None, {}, {"nope": None}, {"scalar": None}, ["scalar"], "scalar", 1):
        table[f"prefetch({plan!r}) on the host"] = lambda plan=plan: dict(opened().prefetch(plan))
    for threads in (0, -1, "x", None, 1.5):
        table[f"prefetch threads={threads!r}"] = lambda threads=threads: dict(
            opened().prefetch({"scalar": None}, threads=threads))
    for device in ("cuda:0", "nope", -1, 1.5, "mps"):
        table[f"prefetch device={device!r}"] = lambda device=device: dict(
            opened().prefetch({"scalar": None}, device=device))
    table["prefetch by place"] = lambda: opened().prefetch(None, "cpu")
    table["closed.prefetch"] = lambda: closed().prefetch()
    table["storage_ptr and storage_size"] = lambda: [st.torch.storage_ptr(shared[2:]) == shared.data_ptr(),
                                                     st.torch.storage_size(shared[2:])]
    return table


def main() -> None:
    folder, out = Path(sys.argv[1]), {}
    for package in ("safetensors", "nebulaio.safetensors"):
        st: Any = importlib.import_module(package)
        for suffix in MODULES[1:]:
            importlib.import_module(package + suffix)
        found = {label: outcome(call, st.SafetensorError) for label, call in calls(st, folder).items()}
        out[package] = {"names": names(package), "calls": found}
    json.dump({"version": str(importlib.import_module("safetensors").__version__), **out}, sys.stdout)


if __name__ == "__main__":
    main()
