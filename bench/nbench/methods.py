# SPDX-License-Identifier: Apache-2.0
"""The loaders that are compared.

A method is a function from a path to a dict of tensors. All tensors are ready on the device when it returns.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import stfile
from .device import Device, optional

Tensors = dict[str, Any]
Load = Callable[[Path], Tensors]

DEFAULT = ("nebulaio", "safetensors", "safetensors_pread", "torch_mmap", "torch_gds")
CEILINGS = ("ceiling_pinned", "ceiling_raw")


@dataclass(frozen=True)
class Method:
    """One way to load a model. `unavailable` is the reason why it cannot run here, or ""."""

    name: str
    load: Load
    pickled: bool = False  # it reads the .pt copy
    unavailable: str = ""


def build(device: Device, name: str, **options: Any) -> Method:
    """Return the method with this name for a device. `options` go to nebulaio's load_file."""
    makers = {
        "nebulaio": _nebulaio,
        "safetensors": _safetensors,
        "safetensors_pread": _safetensors_pread,
        "torch_mmap": _torch_mmap,
        "torch_gds": _torch_gds,
    }
    return makers[name](device, **options)


def import_nebulaio() -> Any:
    """Return nebulaio.safetensors from the installed package or the source tree, or None."""
    checkout = Path(__file__).resolve().parents[2] / "python"
    module = optional("nebulaio.safetensors")
    if module is None and (checkout / "nebulaio").is_dir() and str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
        sys.modules.pop("nebulaio", None)
        module = optional("nebulaio.safetensors")
    return module


def last_report() -> dict[str, Any]:
    """Return the engine's report of the last load, or {} if there is none."""
    package = sys.modules.get("nebulaio")
    try:
        return dict(package.last_report() or {}) if package is not None else {}
    except Exception as problem:  # noqa: BLE001  a missing report must not end a measurement
        return {"error": f"{type(problem).__name__}: {problem}"}


def _nebulaio(device: Device, **options: Any) -> Method:
    module = import_nebulaio()
    given = {key: value for key, value in options.items() if value is not None}

    def load(path: Path) -> Tensors:
        tensors: Tensors = module.load_file(str(path), device=device.torch_name, framework="pt"
                                            if device.torch is not None else "numpy", **given)
        device.sync()
        return tensors

    return Method("nebulaio", load, unavailable="" if module else "the package nebulaio cannot be imported")


def _safetensors(device: Device, backend: str | None = None) -> Method:
    flavour = "torch" if device.torch is not None else "numpy"
    module = optional(f"safetensors.{flavour}")
    extra = {"backend": backend} if backend else {}

    def load(path: Path) -> Tensors:
        tensors: Tensors
        if device.torch is None:
            tensors = module.load_file(str(path), **extra)
            return tensors
        tensors = module.load_file(str(path), device=device.torch_name, **extra)
        if not device.is_cuda:
            # On the host this package returns views of a mapping that nothing has
            # read yet; a copy makes it deliver what the others deliver.
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        device.sync()
        return tensors

    name = "safetensors" + (f"_{backend}" if backend else "")
    return Method(name, load, unavailable="" if module else f"safetensors.{flavour} cannot be imported")


def _safetensors_pread(device: Device) -> Method:
    method = _safetensors(device, "pread")
    if not method.unavailable:
        import inspect

        module = optional(f"safetensors.{'torch' if device.torch is not None else 'numpy'}")
        if "backend" not in inspect.signature(module.load_file).parameters:
            return Method(method.name, method.load, unavailable="this safetensors has no backend option")
    return method


def _torch_mmap(device: Device) -> Method:
    torch = device.torch

    def load(path: Path) -> Tensors:
        mapped = torch.load(path, mmap=True, weights_only=True)
        if device.is_cuda:
            tensors = {name: tensor.to(device.name) for name, tensor in mapped.items()}
        else:
            tensors = {name: tensor.clone() for name, tensor in mapped.items()}
        device.sync()
        return tensors

    return Method("torch_mmap", load, pickled=True, unavailable="" if torch else "torch cannot be imported")


def _torch_gds(device: Device) -> Method:
    torch = device.torch
    why = ""
    if not device.is_cuda:
        why = "it needs a CUDA device"
    elif optional("torch.cuda.gds") is None:
        why = "this torch has no torch.cuda.gds"

    def load(path: Path) -> Tensors:
        header = stfile.read_header(path)
        whole = torch.empty(header.size, dtype=torch.uint8, device=device.name)
        file = torch.cuda.gds.GdsFile(str(path), os.O_RDONLY)
        try:
            file.load_storage(whole.untyped_storage(), 0)
        finally:
            del file
        tensors = {t.name: view(torch, whole, t) for t in header.tensors}
        device.sync()
        return tensors

    return Method("torch_gds", load, unavailable=why)


def view(torch: Any, whole: Any, tensor: stfile.Tensor) -> Any:
    """Return a tensor as a view of the file's bytes."""
    dtypes = {
        "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
        "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
        "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    }
    return whole[tensor.start : tensor.end].view(dtypes[tensor.dtype]).reshape(tensor.shape)
