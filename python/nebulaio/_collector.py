# SPDX-License-Identifier: Apache-2.0
"""Keeps Python's garbage collector away from plans."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep Python's garbage collector from running meanwhile.

    A plan makes many small objects, and every few thousand of them the collector would look at all objects of torch.
    Afterwards, also after an error, the collector is on if it was on before. If the caller has switched it off, it stays
    off. Several threads may be inside at once: collections may run again when the thread that came first leaves.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
