# SPDX-License-Identifier: Apache-2.0
"""Loads and saves tensors of frameworks that NebulaIO fills through NumPy arrays in host memory."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from .. import _load, _save, _serialize
from .._modules import checked_backend


def framework(name: str, module: str) -> Any:
    """Import a framework for a module of this package. Raises ImportError with the package to install."""
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        package = name.partition(".")[0]
        raise ImportError(
            f"import nebulaio.safetensors.{module}: the package {package} cannot be imported: {cause} (fix: pip install {package})",
            name=package,
        ) from cause


def load_file(filename: str | os.PathLike[str], backend: str, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Load a file and convert each array."""
    checked_backend(backend)
    _load.require_file(filename, "load_file", "nebulaio.safetensors.load_model for a model")
    return {name: convert(array) for name, array in _load.load(filename, _load.Order("cpu", "numpy"), None).items()}


def load(data: bytes, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Read the bytes of a file and convert each array."""
    return {name: convert(array) for name, array in _serialize.load(data, "numpy").items()}


def save_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None,
    convert: Callable[[Any], Any], checksum: bool
) -> None:
    """Convert each tensor to an array and save the arrays to a durable file."""
    _save.write(_save.prepare(_converted(tensors, convert)), filename, metadata, checksum, None)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None, convert: Callable[[Any], Any]) -> bytes:
    """Convert each tensor to an array and return the bytes of a file."""
    return _serialize.save(_converted(tensors, convert), metadata)


def _converted(tensors: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: convert(tensor) for name, tensor in _save.named(tensors)}
