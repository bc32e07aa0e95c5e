# SPDX-License-Identifier: Apache-2.0
"""Framework "pt": memory from torch's caching allocator, of which each tensor has a part as its storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._device import index
from .._handles import Destination, TensorLayout
from ..errors import DeviceError, OutOfMemoryError
from .plain import NAMES, SHORT_FLOATS, PlainFramework

# safetensors dtype -> name in torch; a torch without the name does not support it.
_NAMES = {**NAMES, **SHORT_FLOATS, "F4": "float4_e2m1fn_x2"}


class TorchFramework(PlainFramework):
    """Framework "pt"."""

    name = "pt"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def prefer(self, device: str) -> str:
        if device == "auto" and self._torch.version.cuda is None:
            return "host"
        if device == "cuda":
            return f"cuda:{self._torch.cuda.current_device()}" if self._torch.cuda.is_available() else device
        return device

    def dtypes(self, names: set[str]) -> dict[str, Any]:
        found = {name: getattr(self._torch, _NAMES.get(name, ""), None) for name in names}
        return {name: dtype for name, dtype in found.items() if dtype is not None}

    def allocate(self, size: int, align: int, device: str) -> Destination:
        torch = self._torch
        if device != "host":
            self._require_cuda(device)
        # CUDA's allocator gives blocks of 512 bytes; the host's may need room to align.
        room = align if device == "host" or align > 512 else 0
        where = "cpu" if device == "host" else device
        try:
            array = torch.empty(max(size + room, 1), dtype=torch.uint8, device=where)
        except RuntimeError as cause:
            full = device == "host" or isinstance(cause, torch.cuda.OutOfMemoryError)
            kind = OutOfMemoryError if full else DeviceError
            raise kind(f"allocate {size} bytes on {device}: {cause}") from cause
        skip = -array.data_ptr() % align
        if skip or room:
            array = array[skip:][: max(size, 1)]
        return Destination(array, array.data_ptr(), size)

    def stream(self, device: str) -> int:
        if device == "host":
            return 0
        return int(self._torch.cuda.current_stream(index(device)).cuda_stream)

    def views(
        self, tensors: Sequence[TensorLayout], destinations: Sequence[Destination], dtypes: dict[str, Any]
    ) -> dict[str, Any]:
        uint8 = self._torch.uint8
        typed: dict[tuple[int, str], tuple[Any, Any, int]] = {}
        out: dict[str, Any] = {}
        for tensor in tensors:
            key = (tensor["file"], tensor["dtype"])
            shape = tensor["shape"]
            if key[1] == "F4" and "F4" in dtypes:
                if shape[-1] % 2:
                    key = (key[0], "")
                else:
                    shape = [*shape[:-1], shape[-1] // 2]
            if key[1] not in dtypes:
                shape = [tensor["size"]]
            known = typed.get(key)
            if known is None:
                array = destinations[key[0]].array
                new = array.new_empty(0, dtype=dtypes.get(key[1], uint8)).new_empty
                known = typed[key] = (new, array.untyped_storage(), array.storage_offset())
            new, storage, first = known
            strides = (1,) if len(shape) == 1 else _contiguous(shape)
            begin = first + tensor["offset"]
            # A storage of its own: others take tensors of one storage for one tensor, and save only the first of them.
            own = storage[begin : begin + tensor["size"]]
            out[tensor["name"]] = new(0).set_(own, 0, shape, strides)
        return out

    def _require_cuda(self, device: str) -> None:
        torch = self._torch
        if torch.cuda.is_initialized():
            return
        if torch.version.cuda is None:
            raise DeviceError(
                f"load to {device}: this torch {torch.__version__} is built without CUDA "
                "(fix: install torch with CUDA, or pass device='cpu')"
            )
        if not torch.cuda.is_available():
            raise DeviceError(
                f"load to {device}: the library can use it, but torch {torch.__version__} finds no usable CUDA "
                "(fix: see torch.cuda.is_available(); or pass device='cpu')"
            )


def _contiguous(shape: list[int]) -> tuple[int, ...]:
    """Return row-major strides in elements. A dimension of 0 counts as 1, as in torch."""
    if len(shape) == 2:
        return (shape[1] or 1, 1)
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent or 1
    return tuple(reversed(strides))
