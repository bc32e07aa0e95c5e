# SPDX-License-Identifier: Apache-2.0
"""Framework "jax": memory from JAX's own allocator on a GPU, and from NumPy on the host.

A JAX array is immutable, and JAX has no uninitialised memory to fill. On a GPU, the
destination of a file is therefore a new array of bytes, which the engine fills before
any other code sees it. Each tensor is an alias of a part of this array, made through
DLPack, and keeps the array alive. On the host, the destination is a NumPy array, which
JAX uses in place.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any, Final

from .. import _dlpack
from .._device import index
from .._handles import Destination, TensorLayout
from ..errors import DeviceError, OutOfMemoryError
from .numpy import NumpyFramework, numpy_dtypes

_WIDE: Final = frozenset({"I64", "U64", "F64"})

# On a GPU, XLA uses the memory of an argument in place only at multiples of this address.
_ALIGN: Final = 16

# safetensors dtype -> DLPack's (code, bits).
_DLPACK: Final = {
    "BOOL": (6, 8),
    "U8": (1, 8), "U16": (1, 16), "U32": (1, 32), "U64": (1, 64),
    "I8": (0, 8), "I16": (0, 16), "I32": (0, 32), "I64": (0, 64),
    "F16": (2, 16), "F32": (2, 32), "F64": (2, 64), "BF16": (4, 16), "C64": (5, 64),
    "F8_E4M3": (10, 8), "F8_E4M3FNUZ": (11, 8), "F8_E5M2": (12, 8), "F8_E5M2FNUZ": (13, 8), "F8_E8M0": (14, 8),
}
_BYTE: Final = _DLPACK["U8"]


class JaxFramework:
    """Framework "jax"."""

    name = "jax"

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._numpy = importlib.import_module("numpy")
        self._host = NumpyFramework(self._numpy)

    def prefer(self, device: str) -> str:
        if device == "auto":
            return "cuda:0" if self._jax.default_backend() == "gpu" else "host"
        return "cuda:0" if device == "cuda" else device

    def dtypes(self, names: set[str]) -> dict[str, Any]:
        found = numpy_dtypes(self._numpy, names)
        if not self._jax.config.jax_enable_x64:
            # JAX would quietly keep 32 bits of each element.
            found = {name: dtype for name, dtype in found.items() if name not in _WIDE}
        return found

    def lacks(self, dtype: str) -> str:
        if dtype in _WIDE:
            return "has 64-bit types only after jax.config.update('jax_enable_x64', True)"
        return "has no type for it"

    def allocate(self, size: int, align: int, device: str) -> Destination:
        if device == "host":
            return self._host.allocate(size, max(align, 64), device)
        jax = self._jax
        try:
            array = jax.numpy.zeros(max(size, 1) + align, dtype="uint8", device=self._device(device))
            array.block_until_ready()
        except Exception as cause:
            full = "RESOURCE_EXHAUSTED" in str(cause)
            kind = OutOfMemoryError if full else DeviceError
            raise kind(f"allocate {size} bytes on {device}: {cause}") from cause
        address = int(array.unsafe_buffer_pointer())
        return Destination(array, address + -address % align, size)

    def stream(self, device: str) -> int:
        return 0  # fresh memory has been waited for: nothing is queued on it

    def views(
        self, tensors: Sequence[TensorLayout], destinations: Sequence[Destination], dtypes: dict[str, Any]
    ) -> dict[str, Any]:
        host = [isinstance(destination.array, self._numpy.ndarray) for destination in destinations]
        out: dict[str, Any] = {}
        for tensor in tensors:
            place = destinations[tensor["file"]]
            if host[tensor["file"]]:
                out.update(self._host.views([{**tensor, "file": 0}], [place], dtypes))
            elif tensor["dtype"] in dtypes:
                kind = _DLPACK[tensor["dtype"]]
                out[tensor["name"]] = _Part(place, tensor["offset"], tensor["shape"], kind, dtypes[tensor["dtype"]])
            else:
                out[tensor["name"]] = _Part(place, tensor["offset"], [tensor["size"]], _BYTE,
                                            self._numpy.dtype("uint8"))
        return out

    def final(self, view: Any) -> Any:
        if isinstance(view, _Part):
            return view.array(self._jax)
        return self._jax.device_put(view, self._jax.devices("cpu")[0], may_alias=True)

    def finals(self, views: dict[str, Any]) -> dict[str, Any]:
        return {name: self.final(view) for name, view in views.items()}

    def _device(self, device: str) -> Any:
        try:
            found = self._jax.local_devices(backend="gpu")
        except RuntimeError as cause:
            raise DeviceError(
                f"load to {device}: this jax {self._jax.__version__} finds no GPU: {cause} "
                "(fix: install jax with CUDA, or pass device='cpu')"
            ) from cause
        for one in found:
            if one.local_hardware_id == index(device):
                return one
        raise DeviceError(f"load to {device}: jax has {', '.join(map(str, found))} only")


class _Part:
    """A tensor in a destination of JAX's own memory, before its bytes have arrived."""

    def __init__(
        self, place: Destination, offset: int, shape: Sequence[int], kind: tuple[int, int], dtype: Any
    ) -> None:
        self._buffer = place.array
        self._address = place.address + offset
        self._shape = tuple(shape)
        self._kind, self._dtype = kind, dtype

    def array(self, jax: Any) -> Any:
        """Return the tensor: an alias, or a copy if XLA cannot use the address."""
        size = self._dtype.itemsize
        for extent in self._shape:
            size *= extent
        if size == 0:
            return jax.numpy.zeros(self._shape, self._dtype, device=next(iter(self._buffer.devices())))
        before = self._address % _ALIGN
        if before == 0:
            return jax.dlpack.from_dlpack(_Alias(self._buffer, self._address, self._shape, self._kind))
        raw = jax.dlpack.from_dlpack(_Alias(self._buffer, self._address - before, (before + size,), _BYTE))[before:]
        if self._dtype.kind == "b":
            return (raw != 0).reshape(self._shape)
        if self._dtype.kind == "c":
            return jax.lax.complex(*raw.view("float32").reshape(-1, 2).T).reshape(self._shape)
        return raw.view(self._dtype).reshape(self._shape)


class _Alias:
    """A part of a JAX array that can be exported through DLPack.

    The export is that of the whole array, which holds a reference to the memory and drops
    it without Python. Only address, shape and type in the capsule are changed. Shape and
    strides live in this object, because the consumer copies them.
    """

    def __init__(self, buffer: Any, address: int, shape: Sequence[int], kind: tuple[int, int]) -> None:
        self._buffer, self._address, self._kind = buffer, address, kind
        self._shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self._strides = (ctypes.c_int64 * max(len(shape), 1))()
        self._ndim = len(shape)
        step = 1
        for place in reversed(range(self._ndim)):
            self._strides[place] = step
            step *= shape[place]

    def __dlpack_device__(self) -> Any:
        return self._buffer.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._buffer.__dlpack__()
        tensor = _dlpack.tensor_in(capsule)
        tensor.data, tensor.byte_offset = self._address, 0
        tensor.ndim, (tensor.code, tensor.bits), tensor.lanes = self._ndim, self._kind, 1
        tensor.shape, tensor.strides = ctypes.addressof(self._shape), ctypes.addressof(self._strides)
        return capsule
