# SPDX-License-Identifier: Apache-2.0
"""Address, size and type of the tensors of any framework, as a save needs them."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .._buffers import cuda_device
from ..errors import InvalidError, UnsupportedError
from .plain import NAMES, SHORT_FLOATS
from .torch import _NAMES as _TORCH_NAMES


def _nothing() -> None:
    """Do nothing: there is no stream to wait for."""


class Held(NamedTuple):
    """A contiguous tensor: the address of its bytes, and the object that keeps them alive."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    address: int
    size: int
    kept: Any
    stream: int | None = None
    """CUDA stream with queued work that may still write the tensor, or None."""
    synchronize: Callable[[], object] = _nothing
    """Function that waits for the queued work of `stream`."""
    shareable: bool = False
    """Whether another tensor may share the memory."""


def hold(name: str, tensor: Any) -> Held:
    """Return the description of a tensor of torch, CuPy or NumPy, or of an object with an array interface.

    A NumPy array that is not contiguous, or not little-endian, is copied. Of a masked
    array, the data is used without the mask. Any other tensor that is not contiguous or has
    no memory raises InvalidError. A type that safetensors has no name for raises
    UnsupportedError.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _torch(torch, name, tensor)
    if getattr(tensor, "__cuda_array_interface__", None) is not None:
        return _cuda(name, tensor)
    return _host(name, tensor)


def _torch(torch: Any, name: str, tensor: Any) -> Held:
    if torch.nn.parameter.is_lazy(tensor):
        raise InvalidError(
            f"save tensor {name!r}: it has no shape yet (fix: run its lazy module once, or leave it out)")
    if tensor.is_nested:
        raise InvalidError(
            f"save tensor {name!r}: it is nested, expected one of one shape (fix: save its .unbind() one by one)")
    if tensor.layout is not torch.strided:
        raise InvalidError(
            f"save tensor {name!r}: its layout is {tensor.layout}, expected a dense one (fix: .to_dense())")
    if tensor.device.type == "meta":
        raise InvalidError(
            f"save tensor {name!r}: it is on meta, which has no bytes (fix: load or initialise it first)")
    if tensor.device.type not in ("cpu", "cuda"):
        tensor = tensor.to("cpu")
    if not tensor.is_contiguous():
        raise _scattered(name, tuple(tensor.shape), ".contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidError(
            f"save tensor {name!r}: its values are conjugated or negated only when they are read "
            "(fix: pass it with .resolve_conj().resolve_neg())"
        )
    dtype = next((key for key, value in _TORCH_NAMES.items() if getattr(torch, value, None) is tensor.dtype), None)
    if dtype is None:
        raise _untyped(name, tensor.dtype)
    shape = tuple(tensor.shape)
    if dtype == "F4":
        if not shape:
            raise InvalidError(f"save tensor {name!r}: two values of float4 share a byte, so that it needs a dimension")
        shape = (*shape[:-1], shape[-1] * 2)  # the file counts values, torch counts pairs
    size = tensor.numel() * tensor.itemsize
    address = _address(tensor) if size else 0
    if size and not address:
        raise InvalidError(
            f"save tensor {name!r}: a {type(tensor).__name__} without memory of its own, expected the tensor that it "
            "stands for (fix: pass that one: .full_tensor() of a DTensor, .dequantize() of a quantised one)"
        )
    if tensor.device.type == "cpu":
        return Held(name, dtype, shape, "host", address, size, tensor)
    stream = torch.cuda.current_stream(tensor.device)
    device = f"cuda:{tensor.device.index}"
    return Held(name, dtype, shape, device, address, size, tensor, int(stream.cuda_stream), stream.synchronize)


def _address(tensor: Any) -> int:
    """Return the address of the tensor's memory, or 0 if a wrapper has no memory of its own."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:  # some wrappers raise it instead of returning an address
        return 0


def _cuda(name: str, tensor: Any) -> Held:
    """Describe an array of CuPy, Numba, JAX or others by its __cuda_array_interface__."""
    told = tensor.__cuda_array_interface__
    shape = tuple(int(extent) for extent in told["shape"])
    dtype = getattr(tensor, "dtype", told["typestr"])
    kind = _numpy_name(importlib.import_module("numpy"), name, dtype)
    width = importlib.import_module("numpy").dtype(dtype).itemsize
    strides = told.get("strides")
    if strides is not None and not _row_major(shape, tuple(strides), width):
        raise _scattered(name, shape, "ascontiguousarray")
    size = math.prod(shape) * width
    address = int(told["data"][0]) if size else 0
    device = cuda_device(tensor, address) if size else "host"  # a tensor without bytes has no device
    stream: int | None = told.get("stream")
    synchronize: Callable[[], object] = _nothing
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(tensor, cupy.ndarray):
        with tensor.device:
            current = cupy.cuda.get_current_stream()
        stream, synchronize = int(current.ptr), current.synchronize
    elif stream is not None and hasattr(tensor, "stream"):
        synchronize = getattr(tensor.stream, "synchronize", _nothing)
    return Held(name, kind, shape, device, address, size, tensor, stream, synchronize)


def _host(name: str, tensor: Any) -> Held:
    """Describe a NumPy array, or an object that NumPy can view without a copy."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError as cause:
        raise UnsupportedError(
            f"save tensor {name!r}: a {type(tensor).__name__} is looked at through NumPy, which cannot be imported: "
            f"{cause} (fix: install numpy, or pass torch tensors)"
        ) from cause
    array = tensor
    if not isinstance(array, numpy.ndarray):
        if not any(hasattr(array, known) for known in ("__array_interface__", "__array__", "__dlpack__")):
            try:
                array = memoryview(array)
            except TypeError:
                raise InvalidError(
                    f"save tensor {name!r}: it is a {type(tensor).__name__}, expected a tensor of torch, CuPy or NumPy, "
                    "or an object with an array interface"
                ) from None
        array = numpy.asarray(array)
    if isinstance(array, numpy.ma.MaskedArray):
        array = array.data  # a file has no room for the mask
    if sys.byteorder != "little":
        raise UnsupportedError(f"save tensor {name!r}: this machine is big-endian, and files are little-endian")
    kind = _numpy_name(numpy, name, array.dtype.newbyteorder("="))
    array = numpy.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")  # copies only if it must
    address = array.ctypes.data if array.nbytes else 0
    return Held(name, kind, array.shape, "host", address, array.nbytes, (tensor, array), shareable=True)


def _numpy_name(numpy: Any, name: str, dtype: Any) -> str:
    """Return the safetensors name of a NumPy dtype."""
    found = numpy.dtype(dtype)
    for key, value in NAMES.items():
        if found == numpy.dtype(value):
            return key
    ml_dtypes = sys.modules.get("ml_dtypes")  # an array of its types has imported it
    for key, value in SHORT_FLOATS.items():
        scalar = getattr(ml_dtypes, value, None)
        if scalar is not None and found == numpy.dtype(scalar):
            return key
    raise _untyped(name, dtype)


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> bool:
    step = width
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 0:
            return True
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _scattered(name: str, shape: tuple[int, ...], fix: str) -> InvalidError:
    return InvalidError(
        f"save tensor {name!r}: its shape is {list(shape)} and its elements do not lie one after the other, "
        f"expected a contiguous tensor (fix: pass it with {fix})"
    )


def _untyped(name: str, dtype: Any) -> UnsupportedError:
    return UnsupportedError(
        f"save tensor {name!r}: safetensors has no name for {dtype} (fix: convert it to another type)")
