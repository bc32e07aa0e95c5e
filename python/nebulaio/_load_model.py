# SPDX-License-Identifier: Apache-2.0
"""`load_model` combines two functions: NebulaIO's for a path, and that of safetensors for a torch module."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from . import _load, _modules
from ._arguments import Cache, Route
from ._device import DeviceLike
from ._frameworks import FrameworkName, UnsupportedPolicy
from ._handles import ProgressCallback
from ._slices import Shards, Slices

if TYPE_CHECKING:
    from .gpudirect import GPUDirectClient

Tensor = Any


@overload
def load_model(
    path: str | os.PathLike[str],
    device: DeviceLike = "auto",
    *,
    framework: FrameworkName | None = None,
    tensors: str | Iterable[str] | None = None,
    route: Route = "auto",
    cache: Cache = "auto",
    lenient: bool = False,
    unsupported: UnsupportedPolicy = "error",
    progress: ProgressCallback | None = None,
    verify: bool = False,
    slices: Slices | None = None,
    shards: Shards | None = None,
    client: GPUDirectClient | None = None,
) -> dict[str, Tensor]: ...


@overload
def load_model(
    model: Any, filename: str | os.PathLike[str], strict: bool = True, device: DeviceLike = "cpu", *,
    backend: str = "mmap"
) -> tuple[set[str], list[str]]: ...


def load_model(*arguments: Any, **options: Any) -> Any:
    """Load a model of one or many files and return all its tensors by name.

    `path` is a Hugging Face model directory, a *.safetensors.index.json, or a single
    .safetensors file. A directory without an index may contain files without numbers or one
    complete set of numbered shards. All files are read together. All other arguments are
    those of `load_file`.

    If the first argument is a torch module, `load_model` works like
    `safetensors.torch.load_model`: it fills the module from the file, and returns the missing
    and the unexpected names.
    """
    if "model" in options or (arguments and hasattr(arguments[0], "load_state_dict")):
        return _modules.load_model(*arguments, **options)
    return _load.load_tensors(*arguments, **options)
