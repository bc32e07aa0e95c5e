# SPDX-License-Identifier: Apache-2.0
"""A storage writer that tells when the bytes of this rank have left their tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._writer import StorageWriter


class TellingWriter(StorageWriter):
    """Calls `on_written` as soon as all data files of this rank are written. The commit of the checkpoint follows."""

    on_written: Callable[[], object] | None = None

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write the items of this rank, and call `on_written`."""
        written = super().write_data(plan, planner)
        if self.on_written is not None:
            self.on_written()
        return written
