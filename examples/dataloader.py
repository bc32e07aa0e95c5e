# SPDX-License-Identifier: Apache-2.0
"""Measures real torch DataLoaders on the storage that an example looks at, with nebulaio.data.

Without torch, nothing is measured and the examples say so: their advice then comes from nebulaio bench alone.
The samples lie in one file that is made in the folder and removed again. Before each measurement the file is
dropped from the page cache, so that the figures are those of storage.
"""

import os
import pathlib
import sys
import tempfile
import time

from nebulaio_bench import Unusable, follows, say

SAMPLE = 256 << 10
BATCH = 16


def torch_or_none(bench):
    """The module torch, or None after a line that says why no DataLoader is measured."""
    if bench.torch == "no":
        say("No DataLoader is measured, as --torch no asks: the advice comes from nebulaio bench, whose workers are threads.")
        return None
    try:
        import torch
        import torch.utils.data
    except ImportError as err:
        if bench.torch == "require":
            raise Unusable(f"--torch require: {err} (fix: pip install -r examples/requirements.txt)") from err
        say(
            f"""No DataLoader is measured: {err}. The advice comes from nebulaio bench, whose workers are threads
            (fix: pip install -r examples/requirements.txt)."""
        )
        return None
    return torch


def nebulaio_data():
    """The module nebulaio.data: the installed one, or that of this checkout."""
    try:
        import nebulaio.data
    except ImportError:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
        import nebulaio.data
    return nebulaio.data


class Samples:
    """A map-style data set: sample i is SAMPLE bytes of a file, read with one request."""

    def __init__(self, path):
        self._path, self._file = path, None
        self._count = os.path.getsize(path) // SAMPLE

    def __len__(self):
        return self._count

    def __getitem__(self, number):
        import torch

        if self._file is None:  # each worker opens the file for itself
            self._file = open(self._path, "rb", buffering=0)
        return torch.frombuffer(bytearray(os.pread(self._file.fileno(), SAMPLE, number * SAMPLE)), dtype=torch.uint8)

    def __getstate__(self):
        return {**self.__dict__, "_file": None}


def bytes_of(text):
    """The number that a size such as 128MiB means."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * scale)
    return int(text)


def make_file(folder, size):
    """Make a file of random bytes and return its path."""
    handle, path = tempfile.mkstemp(prefix="nebulaio-dataloader-", dir=folder)
    with os.fdopen(handle, "wb") as file:
        piece = os.urandom(1 << 20)
        for _ in range(max(2, size >> 20)):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return path


def drop(path):
    """Drop a file from the page cache. Where the kernel keeps it, the column "from storage" shows it."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def tune(bench, step_seconds=None):
    """Tune a real DataLoader and print the evidence. Return the Tuning, or None without torch.

    With step_seconds, a step of that length consumes each batch, and the verdict of the loop is printed too.
    """
    torch = torch_or_none(bench)
    if torch is None:
        return None
    data = nebulaio_data()
    path = make_file(bench.dir, bytes_of(bench.size))
    try:
        samples = Samples(path)

        def loader(**settings):
            return torch.utils.data.DataLoader(samples, batch_size=BATCH, shuffle=True, **settings)

        def step(batch):
            time.sleep(step_seconds)

        say(f"A real DataLoader: batches of {BATCH} samples of {SAMPLE >> 10} KiB in random order, from a file that is not cached.")
        used = step if step_seconds else None
        tuning = data.autotune(loader, used, max_seconds=8 if bench.quick else 60, before=lambda: drop(path))
        print(str(tuning))
        if used:
            drop(path)
            found = data.profile(lambda **other: loader(**{**tuning.settings, **other}), used, seconds=0.2
                                 if bench.quick else 2)
            follows(found.sentence)
        return tuning
    finally:
        os.unlink(path)
