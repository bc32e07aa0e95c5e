# SPDX-License-Identifier: Apache-2.0
"""The report of object transfers, which is parsed when it is first read."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn


class Routes(list[Any]):
    """The entries of a report's "routes": the bytes that each route carried.

    `Routes` is a list of dictionaries, as docs/report.md describes. A `Routes` also works
    like a dictionary from route to bytes: ``routes["page_cache"]``, `get`, `keys`, `values`,
    `items`, ``in`` and ``==``. Iteration yields the entries of the list.
    """

    def by_name(self) -> dict[str, int]:
        """Return the bytes by route, such as {"page_cache": 4096}."""
        found: dict[str, int] = {}
        for entry in self:
            found[str(entry["route"])] = found.get(str(entry["route"]), 0) + int(entry["bytes"])
        return found

    def __getitem__(self, key: Any) -> Any:
        return self.by_name()[key] if isinstance(key, str) else super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return key in self.by_name() if isinstance(key, str) else super().__contains__(key)

    def __eq__(self, other: object) -> bool:
        return self.by_name() == other if isinstance(other, Mapping) else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the bytes of a route, or the default."""
        return self.by_name().get(name, default)

    def keys(self) -> KeysView[str]:
        """Return the routes that carried bytes."""
        return self.by_name().keys()

    def values(self) -> ValuesView[int]:
        """Return the bytes of each route."""
        return self.by_name().values()

    def items(self) -> ItemsView[str, int]:
        """Return each route with its bytes."""
        return self.by_name().items()


def read(raw: bytes) -> dict[str, Any]:
    """Parse a report of the library into a dictionary."""
    report: dict[str, Any] = json.loads(raw)
    if "routes" in report:
        report["routes"] = Routes(report["routes"] or ())
    return report


def _fixed(self: Report, *_: Any, **__: Any) -> NoReturn:
    raise TypeError("a report is read-only (fix: change a copy, dict(report))")


class Report(dict[str, Any]):
    """The report of one call: a read-only dictionary with the main entries as attributes.

    docs/report.md lists the keys. Later releases add keys and rename none. `json.dumps`
    accepts a report.
    """

    __slots__ = ("_is_read",)

    def __init__(self, raw: bytes) -> None:
        super().__init__(unread=raw)  # not empty: json.dumps skips the entries of an empty dictionary
        self._is_read = False

    def _all(self) -> dict[str, Any]:
        """Return the entries. The first call parses them."""
        if not self._is_read:
            raw = super().get("unread")
            if raw is not None:  # otherwise another thread has just parsed it
                super().update(read(raw))
            super().pop("unread", None)
            self._is_read = True
        return super()  # type: ignore[return-value]

    def __getitem__(self, key: str) -> Any:
        return self._all().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return self._all().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        return self._all().__iter__()

    def __reversed__(self) -> Iterator[str]:
        return self._all().__reversed__()

    def __len__(self) -> int:
        return self._all().__len__()

    def __eq__(self, other: object) -> bool:
        return dict(self) == (dict(other) if isinstance(other, Report) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        return dict(self) | (dict(other) if isinstance(other, Report) else other)

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the entry of that name, or the default."""
        return self._all().get(key, default)

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """Return the names of the entries."""
        return self._all().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return the entries."""
        return self._all().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return each name with its entry."""
        return self._all().items()

    def copy(self) -> dict[str, Any]:
        """Return the entries as a dictionary that can be changed."""
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the JSON text, because the entries of a report cannot be set."""
        return Report, (json.dumps(self).encode(),)

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _fixed

    @property
    def bytes(self) -> int:
        """The number of bytes that were moved."""
        return int(self.get("bytes", 0))

    @property
    def seconds(self) -> float:
        """The time in seconds from the first byte to the last, without `open_seconds` and `commit_seconds`."""
        return float(self.get("seconds", 0.0))

    @property
    def gbps(self) -> float:
        """The rate of the transfer in decimal gigabytes per second."""
        return float(self.get("gbps", 0.0))

    @property
    def routes(self) -> Routes:
        """``report["routes"]``: the bytes that each route carried."""
        found: Routes | None = self.get("routes")
        return Routes() if found is None else found

    @property
    def via(self) -> str:
        """How the bytes came from the server: "door" or "http"."""
        return str(self.get("via", ""))

    @property
    def served(self) -> dict[str, Any]:
        """How the server got an object that another S3 server keeps.

        The keys are "from", "age_seconds" and "verified"; the dictionary is empty for other objects.
        """
        return dict(self.get("served") or {})

    @property
    def refusals(self) -> list[dict[str, Any]]:
        """The faster routes that were not taken, each with the keys "what", "on", "reason" and "fix"."""
        return list(self.get("refusals") or ())

    @property
    def etag(self) -> str:
        """The object's ETag."""
        return str(self.get("etag", ""))

    @property
    def version(self) -> str:
        """The object's version; empty in a bucket without versioning."""
        return str(self.get("version", ""))

    def __repr__(self) -> str:
        ways = ", ".join(f"{name} {size}" for name, size in self.routes.items())
        return f"<{self.get('op', 'move')} of {self.bytes} bytes via {self.via or 'nothing'} in {self.seconds:.6f} s ({ways or 'no bytes'})>"
