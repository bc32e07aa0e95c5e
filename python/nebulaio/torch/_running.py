# SPDX-License-Identifier: Apache-2.0
"""Reads that run at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from .. import _gather


class Running:
    """Reads that are started one after the other and waited for together.

    Leaving the context before the end of the reads cancels them and waits for them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds from the start of the first read to the end of the last one."""
        self._jobs: list[Any] = []
        self._stack = ExitStack()
        self._began = 0.0

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            for job in self._jobs:
                job.cancel()
        self._stack.close()

    def start(
        self, files: Sequence[str], segments: Sequence[Any], device: str, stream: int, verify: bool, client: Any
    ) -> None:
        """Start a read of segments."""
        self._began = self._began or time.perf_counter()
        job = _gather.start_read(files, segments, device=device, stream=stream, verify=verify, client=client)
        self._jobs.append(self._stack.enter_context(job))

    def wait_for_first(self) -> None:
        """Wait for the read that was started first, if there is one. Raises its error."""
        for job in self._jobs[:1]:
            job.wait(None)

    def wait(self) -> list[Any]:
        """Wait for all reads and return their reports. Raises the error of the first read that failed."""
        for job in self._jobs:
            job.wait(None)
        if self._jobs:
            self.seconds = time.perf_counter() - self._began
        self._stack.close()  # a job has its report when it is closed
        return [job.reported() for job in self._jobs]
