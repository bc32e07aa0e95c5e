# SPDX-License-Identifier: Apache-2.0
"""Tensors of each framework over the memory of a batch. Nothing is copied.

Each framework keeps a reference to the object that describes the memory, and with it the
memory itself.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any, Protocol

from .. import _device
from ..errors import DeviceError, InvalidError, UnsupportedError
from ._handles import Memory


class Views(Protocol):
    """What a loader needs from a framework."""

    name: str

    def prefer(self, device: str) -> str:
        """Return the device to request, for "auto", "host", "cuda" or "cuda:N"."""

    def require(self, device: str) -> None:
        """Raise an error if the framework cannot use the device that the library has chosen."""

    def dtype(self, name: str) -> tuple[Any, int]:
        """Return the framework's type of that name and its size in bytes. Raises UnsupportedError."""

    def flat(self, memory: Memory, address: int, size: int) -> Any:
        """Return `size` bytes of a batch as a tensor of type uint8 with one dimension."""

    def typed(self, flat: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
        """Return a tensor with the same bytes, of another type and shape."""

    def integers(self, address: int, count: int) -> Any:
        """Return a copy of `count` numbers of 64 bits in host memory."""

    def on_device(self, numbers: Any, device: str) -> Any:
        """Return a copy of a host tensor on the device, or the tensor itself if it is there."""

    def bytes_of(self, tensor: Any) -> memoryview:
        """Return the bytes of a contiguous tensor. A tensor on a GPU is copied to the host."""

    def last_stream(self, device: str, others: list[Any]) -> int:
        """Return the current stream after it waits for the other streams."""


class _Described:
    """Memory of a batch, described for NumPy and for the CUDA array interface."""

    __slots__ = ("__array_interface__", "__cuda_array_interface__", "memory")

    def __init__(self, memory: Memory, address: int, size: int) -> None:
        self.memory = memory
        told = {"shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3}
        if memory.device == "host":
            self.__array_interface__ = told
        else:
            self.__cuda_array_interface__ = told


def _copied(address: int, count: int) -> bytearray:
    return bytearray(ctypes.string_at(address, 8 * count)) if count else bytearray()


class NumpyViews:
    """Arrays of NumPy, in host memory."""

    name = "numpy"

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def prefer(self, device: str) -> str:
        if device in ("auto", "host"):
            return "host"
        raise InvalidError(
            f"load batches to {device}: framework 'numpy' holds host memory only "
            "(fix: pass device='cpu', or framework 'torch' or 'cupy')"
        )

    def require(self, device: str) -> None:
        return

    def dtype(self, name: str) -> tuple[Any, int]:
        numpy = self._numpy
        try:
            found = numpy.dtype(name)
        except TypeError:
            try:
                found = numpy.dtype(getattr(importlib.import_module("ml_dtypes"), name))
            except (ImportError, AttributeError) as cause:
                raise UnsupportedError(
                    f"load batches: framework 'numpy' has no type {name} "
                    "(fix: install ml_dtypes, or pass framework 'torch')"
                ) from cause
        return found, found.itemsize

    def flat(self, memory: Memory, address: int, size: int) -> Any:
        if not size:
            return self._numpy.empty(0, self._numpy.uint8)
        return self._numpy.asarray(_Described(memory, address, size))

    def typed(self, flat: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
        return flat.view(dtype).reshape(shape)

    def integers(self, address: int, count: int) -> Any:
        return self._numpy.frombuffer(_copied(address, count), self._numpy.int64)

    def on_device(self, numbers: Any, device: str) -> Any:
        return numbers

    def bytes_of(self, tensor: Any) -> memoryview:
        return memoryview(tensor.view(self._numpy.uint8))

    def last_stream(self, device: str, others: list[Any]) -> int:
        return 0


class TorchViews:
    """Tensors of torch, in host memory or on a GPU."""

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._numpy: Any = None
        try:
            self._numpy = importlib.import_module("numpy")
        except ImportError:
            pass

    def prefer(self, device: str) -> str:
        torch = self._torch
        if device == "auto" and torch.version.cuda is None:
            return "host"
        if device == "cuda" and torch.cuda.is_available():
            return f"cuda:{torch.cuda.current_device()}"
        return device

    def require(self, device: str) -> None:
        torch = self._torch
        if device != "host" and not torch.cuda.is_available():
            raise DeviceError(
                f"load batches to {device}: the library can use it, but torch {torch.__version__} finds no usable CUDA "
                "(fix: install torch with CUDA, or pass device='cpu')"
            )

    def dtype(self, name: str) -> tuple[Any, int]:
        found = getattr(self._torch, name, None)
        if found is None:
            raise UnsupportedError(
                f"load batches: torch {self._torch.__version__} has no type {name} (fix: install a newer torch)"
            )
        return found, found.itemsize

    def flat(self, memory: Memory, address: int, size: int) -> Any:
        torch = self._torch
        if memory.device != "host":
            device = torch.device(memory.device)
            if not size:
                return torch.empty(0, dtype=torch.uint8, device=device)
            return torch.as_tensor(_Described(memory, address, size), device=device)
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        if self._numpy is not None:
            return torch.from_numpy(self._numpy.asarray(_Described(memory, address, size)))
        held = (ctypes.c_uint8 * size).from_address(address)
        setattr(held, "memory", memory)  # noqa: B010 - torch keeps the array, and the array keeps the memory
        return torch.frombuffer(held, dtype=torch.uint8)

    def typed(self, flat: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
        return flat.view(dtype).view(shape)

    def integers(self, address: int, count: int) -> Any:
        torch = self._torch
        return torch.frombuffer(_copied(address, count), dtype=torch.int64) if count else torch.empty(0,
                                                                                                      dtype=torch.int64)

    def on_device(self, numbers: Any, device: str) -> Any:
        return numbers if device == "host" else numbers.to(device)

    def bytes_of(self, tensor: Any) -> memoryview:
        if tensor.device.type != "cpu":
            tensor = tensor.cpu()
        flat = tensor.contiguous().view(-1).view(self._torch.uint8)
        if self._numpy is not None:
            return memoryview(flat.numpy())
        held = (ctypes.c_uint8 * flat.numel()).from_address(flat.data_ptr())
        setattr(held, "memory", flat)  # noqa: B010
        return memoryview(held).cast("B")

    def last_stream(self, device: str, others: list[Any]) -> int:
        current = self._torch.cuda.current_stream(_device.index(device))
        for other in others:
            current.wait_stream(other)
        return int(current.cuda_stream)


class CupyViews(NumpyViews):
    """Arrays of CuPy, on a GPU. Numbers in host memory are arrays of NumPy."""

    name = "cupy"

    def __init__(self, cupy: Any) -> None:
        super().__init__(importlib.import_module("numpy"))
        self._cupy = cupy

    def prefer(self, device: str) -> str:
        if device == "host":
            raise InvalidError(
                "load batches to host: framework 'cupy' holds CUDA memory only "
                "(fix: pass a CUDA device, or framework 'numpy' or 'torch')"
            )
        if device == "cuda":
            return f"cuda:{self._cupy.cuda.runtime.getDevice()}"
        return device

    def require(self, device: str) -> None:
        if device == "host":
            raise DeviceError(
                "load batches to auto: the library finds no usable CUDA device, and framework 'cupy' holds CUDA memory "
                "only (fix: see nebulaio.devices(); or pass framework 'numpy')"
            )

    def flat(self, memory: Memory, address: int, size: int) -> Any:
        cupy = self._cupy
        number = _device.index(memory.device)
        if not size:
            with cupy.cuda.Device(number):
                return cupy.empty(0, cupy.uint8)
        held = cupy.cuda.UnownedMemory(address, size, memory, number)
        return cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(held, 0))

    def on_device(self, numbers: Any, device: str) -> Any:
        with self._cupy.cuda.Device(_device.index(device)):
            return self._cupy.asarray(numbers)

    def bytes_of(self, tensor: Any) -> memoryview:
        return memoryview(self._cupy.asnumpy(tensor).view(self._numpy.uint8))

    def last_stream(self, device: str, others: list[Any]) -> int:
        with self._cupy.cuda.Device(_device.index(device)):
            current = self._cupy.cuda.get_current_stream()
            for other in others:
                current.wait_event(other.record())
            return int(current.ptr)


def choose(name: str) -> Views:
    """Return the views of a framework. "auto" means torch, or else CuPy if it was imported, or else NumPy.

    Raises UnsupportedError if the package of the framework cannot be imported.
    """
    if name == "auto":
        for package, make in (("torch", TorchViews), ("numpy", NumpyViews)):
            if package == "numpy" and "cupy" in sys.modules:
                return CupyViews(sys.modules["cupy"])
            try:
                found: Views = make(importlib.import_module(package))
            except ImportError:
                continue
            return found
        raise UnsupportedError("load batches: neither torch nor numpy can be imported (fix: install one of them)")
    makers: dict[str, tuple[str, Any]] = {
        "torch": ("torch", TorchViews),
        "pt": ("torch", TorchViews),
        "numpy": ("numpy", NumpyViews),
        "cupy": ("cupy", CupyViews),
    }
    if name not in makers:
        raise InvalidError(f"framework={name!r} is not known (expected 'auto', 'torch', 'numpy' or 'cupy')")
    package, maker = makers[name]
    try:
        made: Views = maker(importlib.import_module(package))
    except ImportError as cause:
        raise UnsupportedError(
            f"load batches: framework {name!r} needs the package {package}, which cannot be imported: {cause} "
            f"(fix: install {package}, or pass another framework: 'torch', 'numpy' or 'cupy')"
        ) from cause
    return made
