# SPDX-License-Identifier: Apache-2.0
"""Arrays of bytes in host or GPU memory, from NumPy, torch or CuPy, and views of them with other types."""

from __future__ import annotations

import importlib
import math
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from . import _npy
from .errors import DeviceError, OutOfMemoryError, UnsupportedError


class Memory(Protocol):
    """What allocates the arrays of batches."""

    on_host: bool
    stream: Any  # the CUDA stream of all arrays; None on the host

    def active(self) -> AbstractContextManager[Any]:
        """Return a context in which the package's current device and stream are those of the arrays."""

    def empty(self, size: int) -> Any:
        """Return an array of bytes whose content is not set."""

    def typed(self, array: Any, header: _npy.Header) -> Any:
        """Return the part of an array of bytes that a .npy header describes, with its type and shape."""


class NumpyMemory:
    """Host memory."""

    on_host = True
    stream = None

    def __init__(self) -> None:
        self._numpy = importlib.import_module("numpy")

    def active(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def empty(self, size: int) -> Any:
        try:
            return self._numpy.empty(size, self._numpy.uint8)
        except MemoryError as cause:
            raise OutOfMemoryError(f"allocate {size} bytes of host memory: {cause}") from cause

    def typed(self, array: Any, header: _npy.Header) -> Any:
        count = math.prod(header.shape)
        return self._numpy.frombuffer(array, header.dtype, count, header.offset).reshape(header.shape)


class TorchMemory:
    """Memory of a GPU from torch's caching allocator, on a stream of its own."""

    on_host = False

    def __init__(self, torch: Any, number: int) -> None:
        self._torch, self._device = torch, torch.device("cuda", number)
        self.stream = torch.cuda.Stream(self._device)

    def active(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._torch.cuda.stream(self.stream)  # makes its device current, too
        return context

    def empty(self, size: int) -> Any:
        try:
            return self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
        except RuntimeError as cause:
            kind = OutOfMemoryError if isinstance(cause, self._torch.cuda.OutOfMemoryError) else DeviceError
            raise kind(f"allocate {size} bytes on {self._device}: {cause}") from cause

    def typed(self, array: Any, header: _npy.Header) -> Any:
        part = array[header.offset : header.offset + header.size]
        dtype = getattr(self._torch, header.dtype, None)
        if dtype is None:
            raise UnsupportedError(
                f"torch {self._torch.__version__} has no type {header.dtype} (fix: install torch 2.3 or newer)"
            )
        if header.offset % dtype.itemsize:
            part = part.clone()  # a type needs its alignment, and this header has an odd length
        return part.view(dtype).reshape(header.shape)


class CupyMemory:
    """Memory of a GPU from CuPy's pool, on a stream of its own."""

    on_host = False

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy, self._number = cupy, number
        with cupy.cuda.Device(number):
            self.stream = cupy.cuda.Stream(non_blocking=True)

    def active(self) -> AbstractContextManager[Any]:
        return _Both(self._cupy.cuda.Device(self._number), self.stream)

    def empty(self, size: int) -> Any:
        try:
            return self._cupy.empty(size, self._cupy.uint8)
        except self._cupy.cuda.memory.OutOfMemoryError as cause:
            raise OutOfMemoryError(f"allocate {size} bytes on cuda:{self._number}: {cause}") from cause

    def typed(self, array: Any, header: _npy.Header) -> Any:
        part = array[header.offset : header.offset + header.size]
        if header.offset % self._cupy.dtype(header.dtype).itemsize:
            part = part.copy()
        return part.view(header.dtype).reshape(header.shape)


class _Both:
    """Two contexts as one."""

    def __init__(self, outer: Any, inner: Any) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner.__enter__()

    def __exit__(self, *problem: Any) -> None:
        self._inner.__exit__(*problem)
        self._outer.__exit__(*problem)


def cuda_memory(number: int) -> Memory:
    """Return memory of a GPU from torch or CuPy: the one that the process has imported, or else an installed one.

    Raises UnsupportedError if neither can be imported.
    """
    makers: dict[str, Any] = {"torch": TorchMemory, "cupy": CupyMemory}
    problems = []
    for name in sorted(makers, key=lambda name: name not in sys.modules):
        try:
            module = importlib.import_module(name)
        except ImportError as cause:
            problems.append(f"{name}: {cause}")
            continue
        made: Memory = makers[name](module, number)
        return made
    raise UnsupportedError(
        f"allocate memory of cuda:{number}: torch or CuPy is needed, and cannot be imported: {'; '.join(problems)} "
        "(fix: install one of them, or pass device='cpu')"
    )
