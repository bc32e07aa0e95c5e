# SPDX-License-Identifier: Apache-2.0
"""The place of this process in a training job: its rank and the number of ranks."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..errors import InvalidError


def place(rank: Any, world: Any) -> tuple[int, int]:
    """Return the rank and the number of ranks.

    Without both arguments, they come from torch.distributed if it is initialised, or else
    from the environment variables RANK and WORLD_SIZE, which torchrun sets. Without any of
    these, there is one rank.
    """
    if (rank is None) != (world is None):
        raise InvalidError(f"rank={rank!r} and world={world!r}: only one of them is given (fix: give both, or neither)")
    if rank is None:
        rank, world = _found()
    for name, value in (("rank", rank), ("world", world)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidError(f"{name}={value!r} is not a whole number")
    if not 0 <= rank < world:
        raise InvalidError(f"rank={rank} of world={world}: expected 0 to {world - 1}")
    return rank, world


def _found() -> tuple[int, int]:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not rank and not world:
        return 0, 1
    if not rank.isdecimal() or not world.isdecimal():
        raise InvalidError(
            f"environment variables RANK={rank!r} and WORLD_SIZE={world!r}: expected two whole numbers, or neither "
            "(fix: pass rank= and world= to the Loader)"
        )
    return int(rank), int(world)
