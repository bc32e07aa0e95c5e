# SPDX-License-Identifier: Apache-2.0
"""Replaces safetensors.mlx with the same names, arguments and defaults. Only the import changes.

The tensors are MLX arrays.

The argument `backend` is accepted and ignored. Errors are classes of `nebulaio.errors`. The
import raises ImportError if MLX is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _arrays

__all__ = ["load", "load_file", "save", "save_file"]

_mx = _arrays.framework("mlx.core", "mlx")
_numpy = _arrays.framework("numpy", "mlx")


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, Any]:
    """Load one .safetensors file and return its tensors by name."""
    return _arrays.load_file(filename, backend, _mx.array)


def load(data: bytes) -> dict[str, Any]:
    """Return the tensors in the bytes of a .safetensors file."""
    return _arrays.load(data, _mx.array)


def save_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, *,
    checksum: bool = True
) -> None:
    """Save tensors to one durable .safetensors file. With `checksum`, write FILE.crc64nvme too."""
    _arrays.save_file(tensors, filename, metadata, _host, checksum)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a .safetensors file with these tensors."""
    return _arrays.save(tensors, metadata, _host)


def _host(array: Any) -> Any:
    """Return an array's values as a NumPy array. NumPy cannot read bfloat16 from MLX, so its bits are copied."""
    if array.dtype == _mx.bfloat16:
        return _numpy.asarray(array.view(_mx.uint16)).view(_arrays.framework("ml_dtypes", "mlx").bfloat16)
    return _numpy.asarray(array)
