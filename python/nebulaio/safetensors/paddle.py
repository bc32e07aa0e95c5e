# SPDX-License-Identifier: Apache-2.0
"""Replaces safetensors.paddle with the same names, arguments and defaults. Only the import changes.

The tensors are paddle.Tensor objects.

The argument `backend` is accepted and ignored. Errors are classes of `nebulaio.errors`. The
import raises ImportError if PaddlePaddle is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from . import _arrays

__all__ = ["load", "load_file", "save", "save_file"]

_paddle = _arrays.framework("paddle", "paddle")


def load_file(filename: str | os.PathLike[str], device: str = "cpu", *, backend: str = "mmap") -> dict[str, Any]:
    """Load one .safetensors file and return its tensors by name."""
    return _arrays.load_file(filename, backend, _placed(device))


def load(data: bytes, device: str = "cpu") -> dict[str, Any]:
    """Return the tensors in the bytes of a .safetensors file."""
    return _arrays.load(data, _placed(device))


def save_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, *,
    checksum: bool = True
) -> None:
    """Save tensors to one durable .safetensors file. With `checksum`, write FILE.crc64nvme too."""
    _arrays.save_file(tensors, filename, metadata, _host, checksum)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a .safetensors file with these tensors."""
    return _arrays.save(tensors, metadata, _host)


def _placed(device: str) -> Callable[[Any], Any]:
    """Return the conversion of an array to a tensor on a device. Paddle takes the bits of bfloat16 as uint16."""
    return lambda array: _paddle.to_tensor(array.view("uint16") if array.dtype.name == "bfloat16" else array,
                                           place=device)


def _host(tensor: Any) -> Any:
    """Return a tensor's values as an array in host memory."""
    array = tensor.detach().cpu().numpy()
    return array.view(_arrays.framework("ml_dtypes", "paddle").bfloat16) if tensor.dtype == _paddle.bfloat16 else array
