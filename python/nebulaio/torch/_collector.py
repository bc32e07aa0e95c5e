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
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
