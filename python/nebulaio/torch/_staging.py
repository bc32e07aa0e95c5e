# SPDX-License-Identifier: Apache-2.0
"""Host memory for snapshots, which is kept from one save to the next."""

from __future__ import annotations

import importlib
import os
import weakref
from typing import Any

from ..errors import OutOfMemoryError

torch: Any = importlib.import_module("torch")

_PAGE = 4096
_PORTABLE = 1  # cudaHostRegisterPortable: every GPU may copy to it


class Staging:
    """One region of host memory of at most `limit` bytes, and a copying stream for each GPU.

    The region has exactly the size of the largest snapshot so far. Torch's own pinned memory would be rounded up to
    a power of two, so the region is registered with CUDA instead.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = False
        self._unpin: weakref.finalize[..., Any] | None = None
        self._whole: Any = None
        self._region: Any = None
        self._streams: dict[Any, Any] = {}

    @property
    def pinned(self) -> bool:
        """Whether GPUs can copy to the region asynchronously."""
        return self._unpin is not None

    @property
    def size(self) -> int:
        """The bytes that the region has now."""
        return 0 if self._region is None else int(self._region.numel())

    def take(self, size: int, pinned: bool) -> Any:
        """Return a tensor of at least `size` bytes until `give_back`. The memory is pinned if `pinned` is set."""
        assert size <= self.limit, "a snapshot must not exceed the limit"
        if size > self.size or (pinned and not self.pinned and size):
            self.free()
            self._allocate(size, pinned)
        self.taken = True
        return self._region if self._region is not None else torch.empty(0, dtype=torch.uint8)

    def give_back(self) -> None:
        """End the use of the region. The memory stays for the next snapshot."""
        self.taken = False

    def stream(self, device: Any) -> Any:
        """Return the stream for copies of a GPU, the same for all snapshots."""
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def free(self) -> None:
        """Free the memory."""
        if self._unpin is not None:
            self._unpin()
        self._unpin = None
        self._region = self._whole = None

    def _allocate(self, size: int, pinned: bool) -> None:
        try:
            self._whole = torch.empty(size + _PAGE, dtype=torch.uint8)
        except RuntimeError as cause:
            raise OutOfMemoryError(
                f"allocate {size} bytes of staging memory: {cause} (fix: pass a smaller memory)") from cause
        skip = -self._whole.data_ptr() % _PAGE
        self._region = self._whole[skip : skip + size]
        if pinned:
            status = torch.cuda.cudart().cudaHostRegister(self._region.data_ptr(), self._region.numel(), _PORTABLE)
            if int(status) != 0:
                self._region = self._whole = None
                raise OutOfMemoryError(
                    f"pin {size} bytes of staging memory: CUDA error {int(status)} (fix: pass a smaller memory, "
                    "or raise the limit of locked memory)"
                )
            self._unpin = weakref.finalize(self, _unpin, self._whole, self._region.data_ptr(), os.getpid())
            self._unpin.atexit = False  # CUDA frees it at the end of the process


def _unpin(whole: Any, address: int, pid: int) -> None:
    """End the registration with CUDA, before the memory is freed. A forked child has no CUDA."""
    del whole  # kept until now
    if pid == os.getpid():
        torch.cuda.cudart().cudaHostUnregister(address)


def default_limit() -> int:
    """Return a quarter of the host memory that this process may still use."""
    available = 0
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) << 10
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            most = file.read().strip()
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as file:
            used = int(file.read())
        if most != "max":
            available = min(available, max(int(most) - used, 0))
    except (OSError, ValueError):
        pass  # no limit of a control group
    return available // 4
