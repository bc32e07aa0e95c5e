# SPDX-License-Identifier: Apache-2.0
"""NumPy: host memory only; bfloat16 and the 8-bit floats where ml_dtypes is installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .._handles import Destination, TensorLayout
from ..errors import InvalidError, OutOfMemoryError
from .plain import PlainFramework

_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}

# Types whose layout in memory is the file's. ml_dtypes also has 4 and 6 bit
# floats, one to a byte, which a packed file cannot be viewed as.
_ML_NAMES = {
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


def numpy_dtypes(numpy: Any, names: set[str]) -> dict[str, Any]:
    """NumPy's dtype for each safetensors dtype in names that it has one for."""
    found = {name: numpy.dtype(_NAMES[name]) for name in names if name in _NAMES}
    if not names.isdisjoint(_ML_NAMES):
        try:
            ml_dtypes = importlib.import_module("ml_dtypes")
        except ImportError:
            return found
        for name in names & _ML_NAMES.keys():
            scalar = getattr(ml_dtypes, _ML_NAMES[name], None)
            if scalar is not None:
                found[name] = numpy.dtype(scalar)
    return found


def lacks(dtype: str) -> str:
    """Why NumPy has no dtype for a safetensors dtype: bfloat16 and the 8-bit floats come with another package."""
    if dtype in _ML_NAMES and not _has_ml_dtypes():
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
