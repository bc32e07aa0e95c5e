# SPDX-License-Identifier: Apache-2.0
"""Framework "numpy": host memory only. bfloat16 and 8-bit floats need the package ml_dtypes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .._handles import Destination, TensorLayout
from ..errors import InvalidError, OutOfMemoryError
from .plain import NAMES, SHORT_FLOATS, PlainFramework


def numpy_dtypes(numpy: Any, names: set[str]) -> dict[str, Any]:
    """Return NumPy's dtype for each safetensors dtype in names, if NumPy has one."""
    found = {name: numpy.dtype(NAMES[name]) for name in names if name in NAMES}
    if not names.isdisjoint(SHORT_FLOATS):
        try:
            ml_dtypes = importlib.import_module("ml_dtypes")
        except ImportError:
            return found
        for name in names & SHORT_FLOATS.keys():
            scalar = getattr(ml_dtypes, SHORT_FLOATS[name], None)
            if scalar is not None:
                found[name] = numpy.dtype(scalar)
    return found


def lacks(dtype: str) -> str:
    """Explain why NumPy has no dtype for a safetensors dtype. bfloat16 and 8-bit floats need another package."""
    if dtype in SHORT_FLOATS and not _has_ml_dtypes():
        return "has no type for it without the package ml_dtypes (pip install ml_dtypes)"
    return "has no type for it"


def _has_ml_dtypes() -> bool:
    try:
        importlib.import_module("ml_dtypes")
    except ImportError:
        return False
    return True


class NumpyFramework(PlainFramework):
    """Framework "numpy"."""

    name = "numpy"

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def prefer(self, device: str) -> str:
        if device in ("auto", "host"):
            return "host"
        raise InvalidError(
            f"load to {device}: framework 'numpy' holds host memory only "
            "(fix: pass device='cpu', or framework 'pt' or 'cupy')"
        )

    def dtypes(self, names: set[str]) -> dict[str, Any]:
        return numpy_dtypes(self._numpy, names)

    def allocate(self, size: int, align: int, device: str) -> Destination:
        try:
            array = self._numpy.empty(size + align, dtype=self._numpy.uint8)
        except MemoryError as cause:
            raise OutOfMemoryError(f"allocate {size} bytes on {device}: {cause}") from cause
        array = array[-array.ctypes.data % align :][: max(size, 1)]
        return Destination(array, array.ctypes.data, size)

    def stream(self, device: str) -> int:
        return 0

    def lacks(self, dtype: str) -> str:
        return lacks(dtype)

    def views(
        self, tensors: Sequence[TensorLayout], destinations: Sequence[Destination], dtypes: dict[str, Any]
    ) -> dict[str, Any]:
        ndarray = self._numpy.ndarray
        uint8 = self._numpy.uint8
        out: dict[str, Any] = {}
        for tensor in tensors:
            dtype = dtypes.get(tensor["dtype"])
            array = destinations[tensor["file"]].array
            if dtype is None:
                out[tensor["name"]] = ndarray(tensor["size"], uint8, array, tensor["offset"])
            else:
                out[tensor["name"]] = ndarray(tensor["shape"], dtype, array, tensor["offset"])
        return out
