# SPDX-License-Identifier: Apache-2.0
"""Framework "numba": CUDA device arrays, as views of one allocation per file.

On the host, Numba works on NumPy arrays: use the framework "numpy" there.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .._device import index
from .._handles import Destination, TensorLayout
from ..errors import DeviceError, InvalidError, OutOfMemoryError
from .numpy import numpy_dtypes
from .plain import PlainFramework


class NumbaFramework(PlainFramework):
    """Framework "numba"."""

    name = "numba"

    def __init__(self, numba: Any) -> None:
        self._cuda = importlib.import_module("numba.cuda")
        self._numpy = importlib.import_module("numpy")
        self._index = 0  # of the device that memory was last allocated on

    def prefer(self, device: str) -> str:
        if device == "host":
            raise InvalidError(
                "load to host: framework 'numba' makes CUDA device arrays only "
                "(fix: pass a CUDA device, or framework 'numpy', whose arrays Numba takes)"
            )
        if device == "cuda" and self._cuda.is_available():
            return f"cuda:{self._cuda.get_current_device().id}"
        return device

    def dtypes(self, names: set[str]) -> dict[str, Any]:
        # Numba's device arrays have NumPy's own types, none of ml_dtypes'.
        return {name: dtype for name, dtype in numpy_dtypes(self._numpy, names).items() if dtype.kind in "biufc"}

    def allocate(self, size: int, align: int, device: str) -> Destination:
        if device == "host":
            raise DeviceError(
                "load to auto: the library finds no usable CUDA device, and framework 'numba' makes CUDA device "
                "arrays only (fix: see nebulaio.devices(); or pass framework 'numpy')"
            )
        if not self._cuda.is_available():
            raise DeviceError(
                f"load to {device}: the library can use it, but Numba finds no usable CUDA "
                "(fix: see python -m numba -s; or pass another framework)"
            )
        try:
            self._index = index(device)
            with self._cuda.gpus[self._index]:
                array = self._cuda.device_array(max(size, 1) + align, dtype=self._numpy.uint8)
        except Exception as cause:
            full = isinstance(cause, MemoryError) or "OUT_OF_MEMORY" in str(cause)
            kind = OutOfMemoryError if full else DeviceError
            raise kind(f"allocate {size} bytes on {device}: {cause}") from cause
        address = int(array.__cuda_array_interface__["data"][0])
        return Destination(array, address + -address % align, size)

    def stream(self, device: str) -> int:
        return 0  # the legacy default stream is Numba's

    def views(
        self, tensors: Sequence[TensorLayout], destinations: Sequence[Destination], dtypes: dict[str, Any]
    ) -> dict[str, Any]:
        uint8 = self._numpy.dtype("uint8")
        described: dict[str, dict[str, Any]] = {}
        for tensor in tensors:
            place = destinations[tensor["file"]]
            dtype = dtypes.get(tensor["dtype"])
            shape = (tensor["size"],) if dtype is None else tuple(tensor["shape"])
            described[tensor["name"]] = {
                "shape": shape,
                "typestr": (dtype or uint8).str,
                "data": (place.address + tensor["offset"] if tensor["size"] else 0, False),
                "strides": None,
                "version": 3,
            }
        with self._cuda.gpus[self._index]:
            return {
                tensor["name"]: self._cuda.from_cuda_array_interface(
                    described[tensor["name"]], owner=destinations[tensor["file"]].array
                )
                for tensor in tensors
            }
