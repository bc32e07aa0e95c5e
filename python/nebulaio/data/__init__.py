# SPDX-License-Identifier: Apache-2.0
"""Feeds training loops: batches of samples in device memory, in any order, resumable exactly.

    >>> import numpy
    >>> from nebulaio.data import Loader
    >>> numpy.save("rows.npy", numpy.arange(40, dtype=numpy.float32).reshape(20, 2))
    >>> with Loader("rows.npy", batch_size=5, device="cpu", framework="numpy", format="npy") as loader:
    ...     shapes = [batch["row"].shape for batch in loader]    # one epoch
    >>> shapes
    [(5, 2), (5, 2), (5, 2), (5, 2)]

`Loader` reads WebDataset archives, MDS, litData, Megatron and TFRecord files, rows of
.npy and .safetensors files, and plain files, from this machine or a bucket. The threads
of the native library read ahead: there are no worker processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import decode as decode
    from ._batch import Batch, Ragged
    from ._loader import Loader

__all__ = ["Batch", "Loader", "Ragged", "decode"]

# Names that __getattr__ imports at first use, and the module of each.
_LATE = {
    "Batch": "_batch",
    "Loader": "_loader",
    "Ragged": "_batch",
    "decode": "decode",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_LATE[name]}")
    value = module if name == _LATE[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return every public name, imported or not."""
    return sorted({*globals(), *_LATE})
