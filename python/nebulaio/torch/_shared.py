# SPDX-License-Identifier: Apache-2.0
"""Finds the items that several ranks of one host read, so that storage delivers them once.

The ranks read such items through the page cache, and each begins at another place. So the rank that comes first to a
page reads it from storage, and the others find it in memory.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ._regions import Box

MOST_ITEMS = 1_000_000
"""The largest number of items of all ranks that are compared. The coordinator of a larger load would be slow."""


class Host(NamedTuple):
    """The host of a rank. Containers of one machine share its page cache, so the kernel's boot names the host."""

    name: str

    @classmethod
    def here(cls) -> Host:
        """Return the host of this process."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return cls(file.read().strip())
        except OSError:
            return cls(os.uname().nodename)


class Shared(NamedTuple):
    """The items of one rank that other ranks of its host read too."""

    items: frozenset[int]  # places in the plan
    place: int  # of this rank among those of the host
    ranks: int  # of the host

    @classmethod
    def none(cls) -> Shared:
        """Return what a rank shares that reads alone."""
        return cls(frozenset(), 0, 1)


def box_of(item: Any) -> Box:
    """Return the part of a stored item that a ReadItem wants."""
    return Box(tuple(item.storage_offsets), tuple(item.lengths))


def find(plans: Sequence[Any]) -> list[Shared]:
    """Return what each plan shares with the plans of its host. `storage_data` of a plan is its Host.

    Plans of more than MOST_ITEMS items together share nothing.
    """
    if sum(len(plan.items) for plan in plans) > MOST_ITEMS:
        return [Shared.none()] * len(plans)
    hosts: defaultdict[Any, list[int]] = defaultdict(list)
    for rank, plan in enumerate(plans):
        hosts[plan.storage_data].append(rank)
    found = [Shared.none()] * len(plans)
    for host, ranks in hosts.items():
        if len(ranks) < 2 or not isinstance(host, Host):
            continue
        shared = _overlapping([(rank, plans[rank].items) for rank in ranks])
        for place, rank in enumerate(ranks):
            found[rank] = Shared(frozenset(shared[rank]), place, len(ranks))
    return found


def _overlapping(plans: Iterable[tuple[int, Sequence[Any]]]) -> defaultdict[int, set[int]]:
    """Return the places of the items of each rank that have an element in common with an item of another rank."""
    wanted: defaultdict[Any, list[tuple[int, int, Box]]] = defaultdict(list)
    for rank, items in plans:
        for place, item in enumerate(items):
            wanted[item.storage_index].append((rank, place, box_of(item)))
    shared: defaultdict[int, set[int]] = defaultdict(set)
    for readers in wanted.values():
        if len({rank for rank, _, _ in readers}) < 2:
            continue
        for rank, place, box in readers:
            if any(rank != other and box.overlaps(far) for other, _, far in readers):
                shared[rank].add(place)
    return shared
