# SPDX-License-Identifier: Apache-2.0
"""Replaces safetensors.numpy with the same names, arguments and defaults. Only the import changes.

    >>> from nebulaio.safetensors.numpy import load_file, save_file

The argument `backend` is accepted and ignored. Errors are classes of `nebulaio.errors`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .. import _load, _save, _serialize
from .._modules import checked_backend
from .._safe_open import safe_open
from .._serialize import TensorSpec, deserialize, serialize, serialize_file

__all__ = ["TensorSpec", "deserialize", "load", "load_file", "safe_open", "save", "save_file", "serialize",
           "serialize_file"]


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, Any]:
    """Load one .safetensors file and return its arrays by name."""
    checked_backend(backend)
    _load.require_file(filename, "load_file", "nebulaio.safetensors.load_model for a model")
    return _load.load(filename, _load.Order("cpu", "numpy"), None)


def load(data: bytes) -> dict[str, Any]:
    """Return the arrays in the bytes of a .safetensors file."""
    return _serialize.load(data, "numpy")


def save_file(
    tensor_dict: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, *,
    checksum: bool = True
) -> None:
    """Save arrays to one durable .safetensors file. With `checksum`, write FILE.crc64nvme too."""
    _save.write(_save.prepare(tensor_dict), filename, metadata, checksum, None)


def save(tensor_dict: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a .safetensors file with these arrays."""
    return _serialize.save(tensor_dict, metadata)
