# SPDX-License-Identifier: Apache-2.0
"""Replaces safetensors.torch with the same names, arguments and defaults. Only the import changes.

    >>> from nebulaio.safetensors.torch import load_file, save_file

The default device is the CPU. The argument `backend` is accepted and ignored. Errors are
classes of `nebulaio.errors`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .. import _load, _save, _serialize
from .._device import DeviceLike
from .._modules import checked_backend, load_model, save_model, storage_ptr, storage_size
from .._safe_open import safe_open
from .._serialize import TensorSpec, deserialize, serialize, serialize_file

__all__ = [
    "TensorSpec", "deserialize", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model",
    "serialize",
    "serialize_file", "storage_ptr", "storage_size",
]


def load_file(filename: str | os.PathLike[str], device: DeviceLike | None = "cpu", *,
              backend: str = "mmap") -> dict[str, Any]:
    """Load one .safetensors file and return its tensors by name."""
    checked_backend(backend)
    _load.require_file(filename, "load_file", "nebulaio.safetensors.load_model for a model")
    return _load.load(filename, _load.Order("cpu" if device is None else device, "pt"), None)


def load(data: bytes) -> dict[str, Any]:
    """Return the tensors in the bytes of a .safetensors file, on the CPU."""
    return _serialize.load(data, "pt")


def save_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, *,
    checksum: bool = True
) -> None:
    """Save tensors to one durable .safetensors file. With `checksum`, write FILE.crc64nvme too."""
    _save.write(_save.prepare(tensors), filename, metadata, checksum, None)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a .safetensors file with these tensors."""
    return _serialize.save(tensors, metadata)
