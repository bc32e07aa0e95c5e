# SPDX-License-Identifier: Apache-2.0
"""The library's description of a model's files and tensors, and their destinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class FileLayout(TypedDict):
    """A file of a model and the size of its destination."""

    path: str
    size: int
    dest_size: int
    dest_align: int


class TensorLayout(TypedDict):
    """A tensor: its type, its shape, and its offset in the file's destination and in the file."""

    name: str
    dtype: str
    shape: list[int]
    file: int
    offset: int
    size: int
    file_offset: NotRequired[int]


class Places(TypedDict):
    """The device of a model, and the device memory that each file needs."""

    device: str
    files: list[FileLayout]


class Layout(Places):
    """The result of nebulaio_model_describe."""

    tensors: list[TensorLayout]
    metadata: dict[str, str]


class Destination(NamedTuple):
    """Memory for one file: the framework's array, the address in it, and the available bytes."""

    array: Any
    address: int
    size: int
