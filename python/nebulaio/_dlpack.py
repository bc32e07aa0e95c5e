# SPDX-License-Identifier: Apache-2.0
"""Access to the tensor inside a DLPack capsule."""

from __future__ import annotations

import ctypes
from typing import Any, Final


class DLTensor(ctypes.Structure):
    """DLTensor of the DLPack header, the first field of the DLManagedTensor in a capsule."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


# Bound separately: a declaration on ctypes.pythonapi would apply to the whole process.
_POINTER: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object,
                                    ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def tensor_in(capsule: Any) -> DLTensor:
    """Return the tensor in an unconsumed capsule. The tensor lives as long as the capsule.

    Raises ValueError if the capsule holds no tensor.
    """
    return DLTensor.from_address(_POINTER(capsule, b"dltensor"))


def integers(address: int | None, count: int) -> list[int] | None:
    """Return the int64 values of a shape or of strides, or None."""
    return None if not address else list((ctypes.c_int64 * count).from_address(address))
