# SPDX-License-Identifier: Apache-2.0
"""Measures the highest rate at which the disk gives the files of a checkpoint.

nbench.ceilings has the highest rate of the bus, and nbench.writing that of writes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from nbench import stats
from nbench.ceilings import Setting, Slots, best_settings, each_block

READ_SWEEP = tuple(Setting(threads, mib << 20) for threads, mib in ((4, 4), (8, 1), (8, 4), (16, 1), (16, 2), (32, 1)))
WRITE_SWEEP = tuple(Setting(threads, kib << 10) for threads, kib in ((8, 1024), (8, 4096), (16, 512), (16, 1024)))


class RawReads:
    """Reads files one after the other with O_DIRECT into huge pages, and does nothing else with the bytes.

    A sweep over parts of the files finds the two best settings. Drop the files from the page cache before.
    """

    def __init__(self, paths: Sequence[Path], sweep_bytes: int, settings: Sequence[Setting] = READ_SWEEP) -> None:
        self.paths = [path for path in paths if path.stat().st_size]
        self.slots = Slots(max(s.threads for s in settings), max(s.block for s in settings))
        self.sweep: list[tuple[Setting, float]] = []
        try:
            for number, setting in enumerate(settings):
                start = time.perf_counter()
                got = self.run(setting, number * sweep_bytes, sweep_bytes)
                self.sweep.append((setting, stats.rate(got, time.perf_counter() - start)))
        except BaseException:
            self.close()
            raise
        self.best = best_settings(self.sweep)

    def run(self, setting: Setting, first: int = 0, limit: int | None = None) -> int:
        """Read all bytes, or `limit` of them from about byte `first` of the files in a row. Returns the bytes read."""
        places = blocks([path.stat().st_size for path in self.paths], setting.block)
        skip = first // setting.block % len(places)
        places = places[skip:] + places[:skip]
        if limit is not None:
            places = places[: max(1, limit // setting.block)]
        descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in self.paths]

        def read(view: memoryview, start: int, _: int) -> None:
            file, offset, want = places[start // setting.block]
            got = os.preadv(descriptors[file], [view], offset)
            if got < want:
                raise OSError(f"{self.paths[file]}: {got} bytes at {offset}, not {want}")

        try:
            each_block(setting, self.slots, 0, len(places) * setting.block, read)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return sum(want for _, _, want in places)

    def close(self) -> None:
        """Free the buffers."""
        self.slots.close()


def blocks(sizes: Sequence[int], block: int) -> list[tuple[int, int, int]]:
    """Return number, offset and length of each block of files, in order."""
    return [(n, at, min(block, size - at)) for n, size in enumerate(sizes) for at in range(0, size, block)]
