# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch: training state out of GPU memory and back, in files that stock torch reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._async import AsyncSave, AsyncSaver, async_save
    from ._ptfile import load, save
    from ._rotation import Checkpoints

__all__ = ["AsyncSave", "AsyncSaver", "Checkpoints", "async_save", "load", "save"]

# Names that __getattr__ imports at first use, and the module of each.
_LATE = {
    "AsyncSave": "_async",
    "AsyncSaver": "_async",
    "Checkpoints": "_rotation",
    "async_save": "_async",
    "load": "_ptfile",
    "save": "_ptfile",
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
