# SPDX-License-Identifier: Apache-2.0
"""What most frameworks have in common: a view of loaded memory is the tensor itself."""

from __future__ import annotations

from typing import Any


class PlainFramework:
    """Base of the frameworks whose views are their tensors. `Framework` documents the methods."""

    def lacks(self, dtype: str) -> str:
        return "has no type for it"

    def final(self, view: Any) -> Any:
        return view
