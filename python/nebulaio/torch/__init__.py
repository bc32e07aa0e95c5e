# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch: training state out of GPU memory and back, in files that stock torch reads.

`StorageWriter` and `StorageReader` plug into `torch.distributed.checkpoint`:

    >>> import torch, torch.distributed.checkpoint as dcp
    >>> from nebulaio.torch import StorageReader, StorageWriter
    >>> state = {"weight": torch.ones(4, 3), "step": 7}
    >>> metadata = dcp.save(state, storage_writer=StorageWriter("checkpoint"), no_dist=True)
    >>> state = {"weight": torch.zeros(4, 3), "step": 0}
    >>> dcp.load(state, storage_reader=StorageReader("checkpoint"), no_dist=True)
    >>> state["weight"].sum(), state["step"]
    (tensor(12.), 7)

`import nebulaio.torch` imports nothing. The first use of a name imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._async import AsyncSaver, async_save, default_saver
    from ._ptfile import load
    from ._ptsave import save
    from ._reader import StorageReader
    from ._rotation import Checkpoints
    from ._saving import AsyncSave
    from ._writer import StorageWriter

__all__ = [
    "AsyncSave",
    "AsyncSaver",
    "Checkpoints",
    "StorageReader",
    "StorageWriter",
    "async_save",
    "default_saver",
    "load",
    "save",
]

# Names that __getattr__ imports at first use, and the module of each.
_LATE = {
    "AsyncSave": "_saving",
    "AsyncSaver": "_async",
    "Checkpoints": "_rotation",
    "StorageReader": "_reader",
    "StorageWriter": "_writer",
    "async_save": "_async",
    "default_saver": "_async",
    "load": "_ptfile",
    "save": "_ptsave",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use. Raises ImportError if torch cannot be imported."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        import_module("torch")
    except ImportError as cause:
        raise ImportError(f"use nebulaio.torch: torch cannot be imported: {cause} (fix: pip install torch)") from cause
    value = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return every public name, imported or not."""
    return sorted({*globals(), *_LATE})
