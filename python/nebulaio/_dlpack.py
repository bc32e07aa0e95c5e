# SPDX-License-Identifier: Apache-2.0
"""The one structure of DLPack that is looked at: a tensor inside a capsule."""

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


# With types of its own: what is declared on ctypes.pythonapi is declared for the whole process.
_POINTER: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def tensor_in(capsule: Any) -> DLTensor:
    """The tensor in a capsule that nobody has consumed; it lives as long as the capsule.

    Raises ValueError for a capsule that has none.
    """
    return DLTensor.from_address(_POINTER(capsule, b"dltensor"))


def integers(address: int | None, count: int) -> list[int] | None:
    """The int64 values of a shape or of strides; None where there are none."""
    return None if not address else list((ctypes.c_int64 * count).from_address(address))
