# SPDX-License-Identifier: Apache-2.0
"""The address and size of the memory of any framework's array.

No framework is imported here. Arrays are recognised by their interface: torch
tensors, the CUDA array interface (CuPy, Numba, JAX), the buffer protocol (NumPy,
bytes, mmap), and DLPack.
"""

from __future__ import annotations

import ctypes
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from . import _dlpack
from .errors import InvalidError

_CPU: Final = 1
_CUDA: Final = 2
_CUDA_HOST: Final = 3
_CUDA_MANAGED: Final = 13


class Memory:
    """A contiguous range of bytes on one device, which this object keeps alive.

    `device` is "host" or "cuda:N". Queued work on `stream` may still use the memory. A
    `stream` of 0 is the legacy default stream.
    """

    def __init__(self, owner: object, address: int, size: int, device: str, readonly: bool, stream: int = 0) -> None:
        self.owner = owner
        self.address = address
        self.size = size
        self.device = device
        self.readonly = readonly
        self.stream = stream


class Known:
    """Facts about devices, shared by all buffers of one call."""

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}  # torch's current stream by device index
        self.checked: set[str] = set()  # devices that may be used


def memory_of(buffer: Any, writable: bool, known: Known | None = None) -> Memory:
    """Return the memory of an array, tensor or buffer.

    Raises InvalidError if the object has no memory, is not contiguous, or is read-only
    although `writable` is set.
    """
    found = _torch(buffer, known)
    if found is None:
        found = _cuda_array(buffer)
    if found is None:
        found = _host_buffer(buffer)
    if found is None:
        found = _by_dlpack(buffer)
    if found is None:
        raise InvalidError(
            f"{type(buffer).__name__} is not a buffer (expected a CUDA array, a torch tensor, "
            "an object with the buffer protocol such as a numpy array, or one with __dlpack__)"
        )
    if writable and found.readonly:
        raise InvalidError(
            f"{type(buffer).__name__} is read-only (fix: pass a writable array; arrays of JAX are always read-only: "
            "read into a cupy array and convert it with jax.dlpack.from_dlpack)"
        )
    return found


def stream_number(stream: Any) -> int:
    """Return the number of a stream given as an int or a stream of cupy, torch or numba."""
    for name in ("ptr", "cuda_stream", "handle"):
        inner = getattr(stream, name, None)
        if inner is not None:
            stream = getattr(inner, "value", inner)  # numba wraps it in ctypes
            break
    if stream is None:
        return 0
    if isinstance(stream, int) and not isinstance(stream, bool) and 0 <= stream < 1 << 64:
        return stream
    raise InvalidError(
        f"stream {stream!r} is not a CUDA stream (expected its number, or a stream of cupy, torch or numba)")


def _contiguous(shape: Sequence[int], strides: Sequence[int] | None, itemsize: int) -> bool:
    """Return whether the elements are contiguous in C or Fortran order. Strides are in bytes."""
    if strides is None or 0 in shape:
        return True
    for dimensions in (range(len(shape) - 1, -1, -1), range(len(shape))):
        expected = itemsize
        for i in dimensions:
            if shape[i] != 1 and strides[i] != expected:
                break
            expected *= shape[i]
        else:
            return True
    return False


def _refuse_gaps(buffer: Any) -> InvalidError:
    return InvalidError(
        f"{type(buffer).__name__} is not contiguous: there are gaps between its elements "
        "(fix: pass a contiguous copy, or move it row by row)"
    )


def _torch(buffer: Any, known: Known | None = None) -> Memory | None:
    torch = sys.modules.get("torch")
    tensor: Any = getattr(torch, "Tensor", ())
    if torch is None or not isinstance(buffer, tensor):
        return None
    if buffer.layout is not torch.strided or buffer.is_nested:
        raise InvalidError(
            f"tensor of layout {buffer.layout}, nested: {buffer.is_nested} (expected a dense one; fix: .to_dense())"
        )
    if buffer.is_conj() or buffer.is_neg():
        raise InvalidError(
            "tensor with lazy conjugation or negation: its bytes are not its values "
            "(fix: pass it with .resolve_conj().resolve_neg())"
        )
    if not (buffer.is_contiguous() or (buffer.dim() == 2 and buffer.t().is_contiguous())):
        raise _refuse_gaps(buffer)
    size, device = buffer.numel() * buffer.element_size(), buffer.device
    if device.type == "cpu":
        return Memory(buffer, buffer.data_ptr(), size, "host", False)
    if device.type != "cuda":
        raise InvalidError(f"tensor on {device} (expected one on the CPU or a CUDA device)")
    number = device.index
    stream = known.streams.get(number) if known else None
    if stream is None:
        stream = int(torch.cuda.current_stream(device).cuda_stream)
        if known:
            known.streams[number] = stream
    return Memory(buffer, buffer.data_ptr(), size, f"cuda:{number}", False, stream)


def _cuda_array(buffer: Any) -> Memory | None:
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if not isinstance(interface, dict):
        return None
    shape = tuple(int(n) for n in interface["shape"])
    itemsize = int(interface["typestr"][2:])
    if not _contiguous(shape, interface.get("strides"), itemsize):
        raise _refuse_gaps(buffer)
    address, readonly = interface["data"]
    size = math.prod(shape) * itemsize
    stream = interface.get("stream")
    device = cuda_device(buffer, int(address or 0))
    return Memory(buffer, int(address or 0), size, device, bool(readonly), int(stream or 0))


def cuda_device(buffer: Any, address: int) -> str:
    """Return the device of CUDA memory, from its framework or else from the driver."""
    number = getattr(getattr(buffer, "device", None), "id", None)
    if isinstance(number, int) and type(buffer).__module__.split(".")[0] == "cupy":
        return f"cuda:{number}"
    describe = getattr(buffer, "__dlpack_device__", None)
    if describe is not None:
        kind, number = describe()
        if int(kind) in (_CUDA, _CUDA_MANAGED):
            return f"cuda:{int(number)}"
    if address == 0:
        return "cuda"
    ordinal = ctypes.c_int(-1)
    device_ordinal = 9
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        status = driver.cuPointerGetAttribute(ctypes.byref(ordinal), device_ordinal, ctypes.c_uint64(address))
    except (OSError, AttributeError) as cause:
        raise InvalidError(f"{type(buffer).__name__}: cannot find out its device: {cause}") from cause
    if status != 0 or ordinal.value < 0:
        raise InvalidError(f"{type(buffer).__name__} at 0x{address:x} is not memory of a CUDA device (status {status})")
    return f"cuda:{ordinal.value}"


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


# Bound separately: a declaration on ctypes.pythonapi would apply to the whole process.
_GET_BUFFER: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_RELEASE_BUFFER: Final = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))
_ANY_CONTIGUOUS: Final = 0x98
_FORMAT: Final = 0x4
_FIELD_NAME: Final = re.compile(rb":[^:]*:")


class _HostBuffer:
    """A buffer that is locked against resizing while this object exists."""

    def __init__(self, exporter: object) -> None:
        self.view = _PyBuffer()
        self._held = False
        try:
            _GET_BUFFER(exporter, ctypes.byref(self.view), _ANY_CONTIGUOUS | _FORMAT)
        except (BufferError, ValueError):  # NumPy has no format string for bfloat16, dates and similar types
            _GET_BUFFER(exporter, ctypes.byref(self.view), _ANY_CONTIGUOUS)
        self._held = True

    def __del__(self, release: Any = _RELEASE_BUFFER, byref: Any = ctypes.byref) -> None:
        # Bind the functions here: at interpreter exit the module's names are gone.
        if self._held:
            self._held = False
            release(byref(self.view))


def _host_buffer(buffer: Any) -> Memory | None:
    try:
        held = _HostBuffer(buffer)
    except TypeError:
        return None  # no buffer protocol
    except (BufferError, ValueError) as cause:
        raise _refuse_gaps(buffer) from cause
    view = held.view
    if b"O" in _FIELD_NAME.sub(b"", view.format or b""):
        raise InvalidError(
            f"{type(buffer).__name__} holds references to Python objects, which cannot be stored in a file "
            "(fix: pass an array of numbers, such as .astype(float))"
        )
    return Memory((buffer, held), int(view.buf or 0), int(view.len), "host", bool(view.readonly))


def _by_dlpack(buffer: Any) -> Memory | None:
    export = getattr(buffer, "__dlpack__", None)
    if export is None:
        return None
    capsule = export()
    try:
        tensor = _dlpack.tensor_in(capsule)
    except ValueError as cause:
        raise InvalidError(f"{type(buffer).__name__}: its DLPack capsule holds no tensor: {cause}") from cause
    if not 0 <= tensor.ndim <= 64:
        raise InvalidError(f"{type(buffer).__name__}: DLPack says {tensor.ndim} dimensions")
    shape = _dlpack.integers(tensor.shape, tensor.ndim) or []
    itemsize = (tensor.bits * tensor.lanes + 7) // 8
    steps = _dlpack.integers(tensor.strides, tensor.ndim)
    strides = None if steps is None else [step * itemsize for step in steps]
    if not _contiguous(shape, strides, itemsize):
        raise _refuse_gaps(buffer)
    if tensor.device_type in (_CUDA, _CUDA_MANAGED):
        device = f"cuda:{tensor.device_id}"
    elif tensor.device_type in (_CPU, _CUDA_HOST):
        device = "host"
    else:
        raise InvalidError(
            f"{type(buffer).__name__}: DLPack device type {tensor.device_type} (expected the CPU or CUDA)")
    # The capsule is not consumed: it frees the export when it goes.
    return Memory((buffer, capsule), int(tensor.data or 0) + int(tensor.byte_offset), math.prod(shape) * itemsize,
                  device, False)
