# SPDX-License-Identifier: Apache-2.0
"""Gives a CUDA device and host memory the same interface.

The allocator is brought into the same state for every method. Before a row, memory for the largest result is taken
from the driver and given back to torch's caching allocator, which keeps it. No timed call then pays for cudaMalloc,
whether it asks for one large block or for hundreds of small ones.
"""

from __future__ import annotations

import gc
import importlib
from typing import Any

SLACK = 64 << 20  # beyond the file's size, for alignment and rounding
_SMALL = 512 << 10  # torch serves requests of up to 1 MiB from a pool of their own


def optional(name: str) -> Any:
    """Return a module if it can be imported, else None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Device:
    """The destination of tensors: `name` is "host" or "cuda:N".

    `torch` and `numpy` are the modules or None; a CUDA device needs torch.
    """

    def __init__(self, name: str, *, use_torch: bool = True) -> None:
        self.name = name
        self.torch: Any = optional("torch") if use_torch else None
        self.numpy: Any = optional("numpy")
        if self.is_cuda:
            if self.torch is None or not self.torch.cuda.is_available():
                raise RuntimeError(f"{name}: torch sees no CUDA device (use --device host)")
            self.torch.cuda.set_device(self.name)
            self.torch.zeros(1, device=self.name)  # the context exists from here on
            self.sync()

    @property
    def is_cuda(self) -> bool:
        """Return whether this is a GPU."""
        return self.name.startswith("cuda")

    @property
    def torch_name(self) -> str:
        """Return torch's name for the device."""
        return self.name if self.is_cuda else "cpu"

    def sync(self) -> None:
        """Wait until everything queued on the device is done."""
        if self.is_cuda:
            self.torch.cuda.synchronize(self.name)

    def prepare(self, nbytes: int) -> None:
        """Fill the caching allocator with nbytes and some slack, all of it unused."""
        self.collect()
        if not self.is_cuda:
            return
        torch = self.torch
        torch.cuda.empty_cache()
        held = [torch.empty(nbytes + SLACK, dtype=torch.uint8, device=self.name)]
        held += [torch.empty(_SMALL, dtype=torch.uint8, device=self.name) for _ in range(256)]
        self.sync()
        del held

    def empty(self, nbytes: int) -> Any:
        """Return an uninitialised array of bytes on the device."""
        if self.torch is not None:
            return self.torch.empty(nbytes, dtype=self.torch.uint8, device=self.torch_name)
        if self.numpy is not None:
            return self.numpy.empty(nbytes, dtype="uint8")
        return bytearray(nbytes)

    def collect(self) -> None:
        """Free unreferenced memory into the allocator's cache."""
        gc.collect()
        self.sync()

    def give_back(self) -> None:
        """Return the allocator's cache to the driver."""
        self.collect()
        if self.is_cuda:
            self.torch.cuda.empty_cache()

    def reset_peak(self) -> int:
        """Reset the peak of allocated memory and return the bytes allocated now."""
        if not self.is_cuda:
            return 0
        self.torch.cuda.reset_peak_memory_stats(self.name)
        return int(self.torch.cuda.memory_allocated(self.name))

    def peak(self) -> int:
        """Return the most bytes allocated since reset_peak; 0 on host."""
        return int(self.torch.cuda.max_memory_allocated(self.name)) if self.is_cuda else 0
