# SPDX-License-Identifier: Apache-2.0
"""Training data: find out what slows a training loop down, and which settings of its loader help.

    >>> from nebulaio.data import profile
    >>> found = profile(lambda: [b"sample"] * 8, step=lambda batch: sum(range(500_000)), seconds=0.01)
    >>> found.verdict
    'compute-bound'

The first use of a name imports its module. Neither torch nor the native library is needed for the import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._autotune import autotune
    from ._autotune_result import Candidate, Tuning
    from ._profile import profile
    from ._profile_result import Profile, Variant

__all__ = ["Candidate", "Profile", "Tuning", "Variant", "autotune", "profile"]

# Names that __getattr__ imports at first use, and the module of each.
_LATE = {
    "Candidate": "_autotune_result",
    "Profile": "_profile_result",
    "Tuning": "_autotune_result",
    "Variant": "_profile_result",
    "autotune": "_autotune",
    "profile": "_profile",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return every public name, imported or not."""
    return sorted({*globals(), *_LATE})
