# SPDX-License-Identifier: Apache-2.0
"""Measures the disk's highest write rate, and the savers that are compared with it.

`ceiling_write` writes a file of the same size: it reserves the space, writes with O_DIRECT from huge-page memory with
several threads, and ends with fdatasync. It writes the same random megabytes repeatedly and does nothing else. A
short sweep finds the two best settings, and both are timed in every round, as in `ceiling_raw`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import methods, stats
from .ceilings import Setting, Slots, best_settings, each_block
from .device import Device, optional

SWEEP = tuple(Setting(threads, kib << 10) for threads, kib in ((4, 4096), (8, 1024), (8, 4096), (16, 512), (16, 1024),
                                                               (16, 4096)))


def direct_write(path: Path, size: int, setting: Setting, slots: Slots) -> None:
    """Write a file of `size` bytes, rounded up to a page; it is durable on return."""
    end = -(-size // 4096) * 4096
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)

    def write(view: memoryview, start: int, want: int) -> None:
        if os.pwritev(fd, [view[:want]], start) != want:
            raise OSError(f"{path}: fewer than {want} bytes written at {start}")

    try:
        os.posix_fallocate(fd, 0, end)
        each_block(setting, slots, 0, end, write)
        os.fdatasync(fd)
    finally:
        os.close(fd)


class WriteCeiling:
    """The disk's rate for new files beside `path`: first a sweep, then the two best settings."""

    def __init__(self, path: Path, *, sweep_bytes: int, settings: Sequence[Setting] = SWEEP) -> None:
        self.path = path
        self.sweep: list[tuple[Setting, float]] = []
        self.slots = Slots(max(s.threads for s in settings), max(s.block for s in settings))
        try:
            noise = os.urandom(1 << 20)
            for view in self.slots.views:
                for at in range(0, len(view), len(noise)):
                    view[at : at + len(noise)] = noise[: len(view) - at]
            for setting in settings:
                start = time.perf_counter()
                self.run(setting, sweep_bytes)
                self.sweep.append((setting, stats.rate(sweep_bytes, time.perf_counter() - start)))
                remove(self.path)
        except BaseException:
            self.close()
            raise
        self.best = best_settings(self.sweep)

    def run(self, setting: Setting, size: int) -> None:
        """Write the file once; the caller removes it."""
        direct_write(self.path, size, setting, self.slots)

    def close(self) -> None:
        """Free the buffers and remove the file."""
        self.slots.close()
        remove(self.path)


def remove(path: Path) -> None:
    """Remove a file and its checksums, and wait until the removal is on the disk."""
    for name in (path, Path(f"{path}.crc64nvme")):
        name.unlink(missing_ok=True)
    os.sync()


def durable(path: Path) -> None:
    """Make a file durable that another library wrote, as a careful program would."""
    for name in (path, path.parent):
        fd = os.open(name, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@dataclass(frozen=True)
class Saver:
    """One way to save tensors. The file is durable when `save` returns."""

    name: str
    save: Callable[[dict[str, Any], Path], None]
    unavailable: str = ""
    method: str = "nebulaio"  # by which it is asked for


def savers(device: Device) -> list[Saver]:
    """Return our saver, and the reference implementation followed by fsync."""
    ours = methods.import_nebulaio()
    flavour = "torch" if device.torch is not None else "numpy"
    theirs = optional(f"safetensors.{flavour}")

    def save_theirs(tensors: dict[str, Any], path: Path) -> None:
        theirs.save_file(tensors, str(path))
        durable(path)

    return [
        Saver("nebulaio", lambda tensors, path: ours.save_file(tensors, path),
              "" if ours is not None and hasattr(ours, "save_file")
              else "the package nebulaio with save_file cannot be imported"),
        Saver("safetensors_fsync", save_theirs, "" if theirs else f"safetensors.{flavour} cannot be imported",
              "safetensors"),
    ]
