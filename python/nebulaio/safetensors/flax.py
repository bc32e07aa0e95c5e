# SPDX-License-Identifier: Apache-2.0
"""Replaces safetensors.flax with the same names, arguments and defaults. Only the import changes.

The tensors are JAX arrays on JAX's default device.

The argument `backend` is accepted and ignored. Errors are classes of `nebulaio.errors`. The
import raises ImportError if JAX is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _arrays

__all__ = ["load", "load_file", "save", "save_file"]

_jnp = _arrays.framework("jax.numpy", "flax")
_numpy = _arrays.framework("numpy", "flax")


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, Any]:
    """Load one .safetensors file and return its tensors by name."""
    return _arrays.load_file(filename, backend, _jnp.asarray)


def load(data: bytes) -> dict[str, Any]:
    """Return the tensors in the bytes of a .safetensors file."""
    return _arrays.load(data, _jnp.asarray)


def save_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, *,
    checksum: bool = True
) -> None:
    """Save tensors to one durable .safetensors file. With `checksum`, write FILE.crc64nvme too."""
    _arrays.save_file(tensors, filename, metadata, _numpy.asarray, checksum)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a .safetensors file with these tensors."""
    return _arrays.save(tensors, metadata, _numpy.asarray)
