# SPDX-License-Identifier: Apache-2.0
"""Training data: feed a training loop, and find out what slows it down.

    >>> import numpy
    >>> from nebulaio.data import Loader, profile
    >>> numpy.save("rows.npy", numpy.arange(40, dtype=numpy.float32).reshape(20, 2))
    >>> with Loader("rows.npy", batch_size=5, device="cpu", framework="numpy", format="npy") as loader:
    ...     shapes = [batch["row"].shape for batch in loader]    # one epoch
    >>> shapes
    [(5, 2), (5, 2), (5, 2), (5, 2)]
    >>> found = profile(lambda: [b"sample"] * 8, step=lambda batch: sum(range(500_000)), seconds=0.01)
    >>> found.verdict
    'compute-bound'

`Loader` reads WebDataset archives, MDS, litData, Megatron and TFRecord files, rows of
.npy and .safetensors files, and plain files, from this machine or a bucket. The threads
of the native library read ahead: there are no worker processes. `profile` says what a
training loop waits for, and `autotune` searches the settings of torch's DataLoader.

The first use of a name imports its module. Neither torch nor the native library is needed for the import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import decode as decode
    from ._autotune import autotune
    from ._autotune_result import Candidate, Tuning
    from ._batch import Batch, Ragged
    from ._loader import Loader
    from ._profile import profile
    from ._profile_result import Profile, Variant

__all__ = [
    "Batch",
    "Candidate",
    "Loader",
    "Profile",
    "Ragged",
    "Tuning",
    "Variant",
    "autotune",
    "decode",
    "profile",
]

# Names that __getattr__ imports at first use, and the module of each.
_LATE = {
    "Batch": "_batch",
    "Candidate": "_autotune_result",
    "Loader": "_loader",
    "Profile": "_profile_result",
    "Ragged": "_batch",
    "Tuning": "_autotune_result",
    "Variant": "_profile_result",
    "autotune": "_autotune",
    "decode": "decode",
    "profile": "_profile",
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
