# SPDX-License-Identifier: Apache-2.0
"""The savers that row `async` compares: ours with both kinds of snapshot, and torch's `dcp.async_save`."""

from __future__ import annotations

import importlib
import threading
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from nbench.measure import host_memory


class Saver(ABC):
    """Saves a state while a training loop goes on. One save runs at a time."""

    @abstractmethod
    def save(self, state: Any, path: Path) -> None:
        """Start a save."""

    @abstractmethod
    def before_step(self) -> None:
        """Wait until the parameters may change."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether the save has ended."""

    @abstractmethod
    def wait(self) -> dict[str, Any]:
        """Wait until the checkpoint is durable, and return the saver's own report. Raises its error."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory of snapshots."""


class Ours(Saver):
    """nebulaio.torch.AsyncSaver."""

    def __init__(self, snapshot: Any, memory: int) -> None:
        from nebulaio.torch import AsyncSaver

        self._saver = AsyncSaver(snapshot=snapshot, memory=memory)
        self._save: Any = None

    def save(self, state: Any, path: Path) -> None:
        self._save = self._saver.save(state, path)

    def before_step(self) -> None:
        self._saver.wait_before_step()

    def done(self) -> bool:
        return bool(self._save.done())

    def wait(self) -> dict[str, Any]:
        report: dict[str, Any] = self._save.wait()
        return {key: value for key, value in report.items() if key != "write"}

    def close(self) -> None:
        self._saver.close()


class Stock(Saver):
    """dcp.async_save with a thread and torch's DefaultStager, which copies to pinned memory beside the loop."""

    def __init__(self, cuda: bool) -> None:
        self._cuda = cuda
        self._stager: Any = None
        self._copied: Any = None
        self._written: Any = None

    def save(self, state: Any, path: Path) -> None:
        dcp: Any = importlib.import_module("torch.distributed.checkpoint")
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        self.close()
        # A new one for each save: the second save with one of torch 2.11 failed with a KeyError on an H200.
        self._stager = DefaultStager(
            StagingOptions(use_pinned_memory=self._cuda, use_shared_memory=False, use_async_staging=True,
                           use_non_blocking_copy=self._cuda))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that one process saves alone
            started = dcp.async_save(
                state, storage_writer=dcp.FileSystemWriter(path, sync_files=True), async_stager=self._stager,
                async_checkpointer_type=AsyncCheckpointerType.THREAD,
            )
        self._copied = getattr(started, "staging_completion", None)
        self._written = getattr(started, "upload_completion", started)

    def before_step(self) -> None:
        if self._copied is not None:
            self._copied.result()
            self._copied = None

    def done(self) -> bool:
        return bool(self._written.done())

    def wait(self) -> dict[str, Any]:
        self._written.result()
        return {}

    def close(self) -> None:
        if self._stager is not None:
            self._stager.close()


class HostWatch:
    """Samples host memory inside a `with` block: that of this process, and that of the machine.

    Memory that CUDA allocates and pins is not resident memory of the process. The machine's available memory falls by
    it. Clean page cache counts as available.
    """

    def __init__(self, interval: float = 0.02) -> None:
        self.interval = interval
        self.process = self.machine = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> HostWatch:
        self._before = _private(), available()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._note()

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self._note()

    def _note(self) -> None:
        self.process = max(self.process, _private() - self._before[0])
        self.machine = max(self.machine, self._before[1] - available())


def _private() -> int:
    now = host_memory()
    return now["RssAnon"] + now["RssShmem"]


def available() -> int:
    """Return the bytes of the machine's memory that programs can still get."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
