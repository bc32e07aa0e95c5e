# SPDX-License-Identifier: Apache-2.0
"""What the library says of a model's files and tensors, and the memory that they go to."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict


class FileLayout(TypedDict):
    """One file of a model and the destination that it needs."""

    path: str
    size: int
    dest_size: int
    dest_align: int


class TensorLayout(TypedDict):
    """One tensor: its type and shape, and where it lies in its file's destination."""

    name: str
    dtype: str
    shape: list[int]
    file: int
    offset: int
    size: int


class Places(TypedDict):
    """Where a model goes: its device, and what is needed there for each file."""

    device: str
    files: list[FileLayout]


class Layout(Places):
    """What nebulaio_model_describe says."""

    tensors: list[TensorLayout]
    metadata: dict[str, str]


class Destination(NamedTuple):
    """Memory for one file: the framework's array, the address in it, and the bytes from there."""

    array: Any
    address: int
    size: int
