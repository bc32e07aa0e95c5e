# SPDX-License-Identifier: Apache-2.0
"""Framework "cupy": memory from CuPy's pool, arrays as views of this memory."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .._device import index
from .._handles import Destination, TensorLayout
from ..errors import DeviceError, InvalidError, OutOfMemoryError
from .numpy import numpy_dtypes
from .plain import PlainFramework


class CupyFramework(PlainFramework):
    """Framework "cupy"."""

    name = "cupy"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def prefer(self, device: str) -> str:
        if device == "host":
            raise InvalidError(
                "load to host: framework 'cupy' holds CUDA memory only "
                "(fix: pass a CUDA device, or framework 'numpy' or 'pt')"
            )
        if device == "cuda":
            try:
                return f"cuda:{self._cupy.cuda.runtime.getDevice()}"
            except self._cupy.cuda.runtime.CUDARuntimeError:
                return device  # the library says what is missing
        return device

    def dtypes(self, names: set[str]) -> dict[str, Any]:
        found = numpy_dtypes(importlib.import_module("numpy"), names)
        return {name: dtype for name, dtype in found.items() if self._accepts(dtype)}

    def allocate(self, size: int, align: int, device: str) -> Destination:
        cupy = self._cupy
        if device == "host":
            raise DeviceError(
                "load to auto: the library finds no usable CUDA device, and framework 'cupy' holds CUDA memory "
                "only (fix: see nebulaio.devices(); or pass framework 'numpy')"
            )
        room = align if align > 512 else 0  # what its pool aligns to by itself
        try:
            with cupy.cuda.Device(index(device)):
                array = cupy.empty(max(size + room, 1), dtype=cupy.uint8)
        except cupy.cuda.memory.OutOfMemoryError as cause:
            raise OutOfMemoryError(f"allocate {size} bytes on {device}: {cause}") from cause
        array = array[-int(array.data.ptr) % align :][: max(size, 1)]
        return Destination(array, int(array.data.ptr), size)

    def stream(self, device: str) -> int:
        with self._cupy.cuda.Device(index(device)):
            return int(self._cupy.cuda.get_current_stream().ptr)

    def views(
        self, tensors: Sequence[TensorLayout], destinations: Sequence[Destination], dtypes: dict[str, Any]
    ) -> dict[str, Any]:
        ndarray = self._cupy.ndarray
        uint8 = self._cupy.uint8
        starts = [destination.array.data for destination in destinations]
        out: dict[str, Any] = {}
        for tensor in tensors:
            dtype = dtypes.get(tensor["dtype"])
            start = starts[tensor["file"]] + tensor["offset"]
            if dtype is None:
                out[tensor["name"]] = ndarray((tensor["size"],), uint8, start)
            else:
                out[tensor["name"]] = ndarray(tuple(tensor["shape"]), dtype, start)
        return out

    def _accepts(self, dtype: Any) -> bool:
        """Return whether the installed CuPy has arrays of a dtype. bfloat16 and 8-bit floats depend on its version."""
        if dtype.kind in "biufc":
            return True
        try:
            self._cupy.ndarray((0,), dtype)
        except (TypeError, ValueError):
            return False
        return True
