# SPDX-License-Identifier: Apache-2.0
"""Loads a model file with the loaders of other projects.

A method is a function from a path to a dict of tensors, which are all ready on the device when it returns. Each one
is called as its own project documents it. A method that cannot be imported is left out, with the reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import methods, stfile
from .device import Device
from .methods import Load, Method, Tensors

Maker = Callable[[Device], Load]


def prefetch(threads: int) -> Maker:
    """Return the CUDA engine of safetensors 0.9 with this number of threads."""

    def maker(device: Device) -> Load:
        safe_open = importlib.import_module("safetensors").safe_open
        if not hasattr(safe_open, "prefetch"):
            raise ImportError("this safetensors has no prefetch; it needs 0.9 or newer")

        def load(path: Path) -> Tensors:
            with safe_open(str(path), "pt", device=device.torch_name) as file, file.prefetch(threads=threads) as loader:
                return dict(loader)

        return load

    return maker


def fastsafetensors(device: Device) -> Load:
    """Return fastsafetensors without cuFile, as vLLM calls it on machines without GPUDirect Storage."""
    package = importlib.import_module("fastsafetensors")
    kept: list[Any] = []

    def load(path: Path) -> Tensors:
        while kept:
            kept.pop().close()
        loader = package.SafeTensorsFileLoader(package.SingleGroup(), device.torch_name, nogds=True)
        kept.append(loader)
        loader.add_filenames({0: [str(path)]})
        buffers = loader.copy_files_to_device()
        kept.append(buffers)
        return {name: buffers.get_tensor(name) for name in loader.get_keys()}

    return load


def instanttensor(backend: str) -> Maker:
    """Return InstantTensor with its default backend (direct I/O) or another one by name."""

    def maker(device: Device) -> Load:
        package = importlib.import_module("instanttensor")
        names: Any = importlib.import_module("instanttensor._impl")
        given = {"backend": names.parse_backend(backend)} if backend else {}

        def load(path: Path) -> Tensors:
            with package.safe_open([str(path)], framework="pt", device=device.torch_name, copy=True, **given) as file:
                return dict(file.tensors())

        return load

    return maker


def runai(device: Device) -> Load:
    """Return Run:ai's streamer, straight to the device."""
    package = importlib.import_module("runai_model_streamer")

    def load(path: Path) -> Tensors:
        with package.SafetensorsStreamer() as streamer:
            streamer.stream_file(str(path), device=device.torch_name)
            return {name: tensor.to(device.torch_name) for name, tensor in streamer.get_tensors()}

    return load


def kvikio(device: Device) -> Load:
    """Return one read by kvikio into one block of device memory, of which the tensors are views."""
    package = importlib.import_module("kvikio")
    importlib.import_module("kvikio.defaults").set("num_threads", 16)

    def load(path: Path) -> Tensors:
        header = stfile.read_header(path)
        whole = device.empty(header.size)
        with package.CuFile(str(path), "r") as file:
            file.read(whole, header.size, 0)
        return {t.name: methods.view(device.torch, whole, t) for t in header.tensors}

    return load


def ours(device: Device) -> Load:
    """Return NebulaIO's load_file."""
    method = methods.build(device, "nebulaio")
    if not method.unavailable:
        _load_library()
    return method.load


def fetch(device: Device) -> Load:
    """Return NebulaIO behind safetensors' prefetch API."""
    _load_library()
    package = importlib.import_module("nebulaio.safetensors")

    def load(path: Path) -> Tensors:
        with package.safe_open(str(path), "pt", device=device.torch_name) as file, file.prefetch() as loader:
            return dict(loader)

    return load


def _nebulaio() -> Any:
    """Return the package nebulaio, installed or of the source tree."""
    methods.import_nebulaio()
    return importlib.import_module("nebulaio")


def _load_library() -> None:
    """Load NebulaIO's library before a load is timed, because the import of nebulaio does not load it."""
    _nebulaio().version()


def _configure(settings: str) -> None:
    """Set options of NebulaIO's library in this process, before its first use."""
    given: dict[str, Any] = {}
    for each in settings.split("+"):
        key, equals, value = each.partition("=")
        if not equals:
            raise ValueError(f"setting {each!r} (expected NAME=VALUE, such as workers=12)")
        given[key] = int(value) if value.isdigit() else value
    _nebulaio().configure(**given)


MAKERS: dict[str, Maker] = {
    "nebulaio": ours,
    "nebulaio_prefetch": fetch,
    "prefetch_8": prefetch(8),
    "prefetch_16": prefetch(16),
    "fastsafetensors": fastsafetensors,
    "instanttensor": instanttensor(""),
    "instanttensor_buffered": instanttensor("BUFFERED"),
    "runai": runai,
    "kvikio": kvikio,
}


def build(device: Device, name: str) -> Method:
    """Return the method with this name. It says why it is unavailable, if it cannot be imported.

    A name of ours may have settings for `nebulaio.configure`, such as "nebulaio:workers=12+io=uring".
    """
    kind, _, settings = name.partition(":")
    try:
        if settings:
            _configure(settings)
        inner = MAKERS[kind](device)
    except Exception as problem:  # noqa: BLE001  compiled parts of other projects fail in many ways
        return Method(name, lambda _: {}, unavailable=f"{type(problem).__name__}: {problem}")

    def load(path: Path) -> Tensors:
        tensors = inner(path)
        device.sync()
        return tensors

    return Method(name, load)


