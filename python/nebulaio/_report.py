# SPDX-License-Identifier: Apache-2.0
"""What a move of objects tells afterwards, read only when it is looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Report(Mapping[str, Any]):
    """How the bytes of one call went; a dictionary that cannot be changed, with the main entries as attributes.

    docs/report.md lists the keys. Fields are added, never renamed.
    """

    __slots__ = ("_raw", "_read")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._read: dict[str, Any] | None = None

    def _all(self) -> dict[str, Any]:
        if self._read is None:
            self._read = json.loads(self._raw)
        return self._read

    def __getitem__(self, key: str) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @property
    def bytes(self) -> int:
        """How many bytes were moved."""
        return int(self.get("bytes", 0))

    @property
    def seconds(self) -> float:
        """From the first byte that could be moved to the last in place; what comes before and behind is in `open_seconds` and `commit_seconds`."""
        return float(self.get("seconds", 0.0))

    @property
    def gbps(self) -> float:
        """Decimal gigabytes per second."""
        return float(self.get("gbps", 0.0))

    @property
    def routes(self) -> dict[str, int]:
        """Bytes by the way they took, such as {"page_cache": 4096} or {"network": 4096}."""
        return {str(route["route"]): int(route["bytes"]) for route in self.get("routes") or ()}

    @property
    def via(self) -> str:
        """How the server was reached: "door" or "http"."""
        return str(self.get("via", ""))

    @property
    def refusals(self) -> list[dict[str, Any]]:
        """Faster ways that were not open: what, on, reason and fix of each."""
        return list(self.get("refusals") or ())

    @property
    def etag(self) -> str:
        """The object's ETag."""
        return str(self.get("etag", ""))

    @property
    def version(self) -> str:
        """The object's version; empty in a bucket without versions."""
        return str(self.get("version", ""))

    def __repr__(self) -> str:
        ways = ", ".join(f"{name} {size}" for name, size in self.routes.items())
        return f"<{self.get('op', 'move')} of {self.bytes} bytes via {self.via or 'nothing'} in {self.seconds:.6f} s ({ways or 'no bytes'})>"
