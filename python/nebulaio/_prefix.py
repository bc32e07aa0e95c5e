# SPDX-License-Identifier: Apache-2.0
"""The objects below a prefix of a bucket, for data sets: their keys, their sizes, and the share of one rank."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from . import _arguments
from ._listing import Listing
from .errors import CorruptError, InvalidError, NotFoundError

Tail = Literal["keep", "drop", "pad"]
"""What happens to the last objects if the number of objects is not a multiple of the number of ranks."""

_NAMED = 10  # entries that an error lists at most


class Objects(Sequence[str]):
    """The keys and sizes of a listing, in the order of their bytes.

    All keys are in one block of bytes. A list of strings has a reference count per key, so each forked
    worker would copy the whole list by reading it.
    """

    def __init__(self, found: Iterable[tuple[str, int]]) -> None:
        text = bytearray()
        self._ends = array("Q", [0])
        self._sizes = array("Q")
        for key, size in found:
            text += key.encode("utf-8", "surrogatepass")
            self._ends.append(len(text))
            self._sizes.append(size)
        self._text = bytes(text)

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, at: int) -> str:  # type: ignore[override]
        return self._bytes(at).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[at] for at in range(len(self)))

    def size(self, at: int) -> int:
        """Return the size in bytes of the object at an index."""
        return self._sizes[at]

    def find(self, key: str) -> int | None:
        """Return the index of a key, or None."""
        wanted = key.encode("utf-8", "surrogatepass")
        at = bisect_left(range(len(self)), wanted, key=self._bytes)
        return at if at < len(self) and self._bytes(at) == wanted else None

    def _bytes(self, at: int) -> bytes:
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._text[self._ends[at] : self._ends[at + 1]]


def list_objects(client: Listing, bucket: str, prefix: str, suffix: str | Sequence[str] | None) -> Objects:
    """List the objects with a prefix and a suffix. Keys that end with "/" stand for folders and are left out.

    Raises NotFoundError if there is no such object. The error says which objects there are instead.
    """
    endings = suffixes(suffix)
    passed: Counter[str] = Counter()  # the endings of keys that have another suffix

    def wanted() -> Iterator[tuple[str, int]]:
        for one in client.list(bucket, prefix):
            if one.key.endswith("/"):
                continue
            if endings is None or one.key.endswith(endings):
                yield one.key, one.size
            else:
                passed[_ending(one.key)] += 1

    objects = Objects(wanted())
    if len(objects):
        return objects
    place = f"s3://{bucket}/{prefix}"
    if passed:
        there = ", ".join(f"{count} end with {ending!r}" for ending, count in passed.most_common(_NAMED))
        raise NotFoundError(
            f"list {place}: none of {passed.total()} objects ends with {' or '.join(map(repr, endings or ()))}: "
            f"{there} (fix: correct suffix={suffix!r})"
        )
    raise NotFoundError(f"list {place}: the bucket has no object with this prefix; {_neighbours(client, bucket)}")


def suffixes(suffix: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the suffixes as a tuple. Raises InvalidError if one of them is not text, or empty."""
    if suffix is None:
        return None
    endings = (suffix,) if isinstance(suffix, str) else tuple(suffix)
    if not endings or not all(isinstance(one, str) and one for one in endings):
        raise InvalidError(f"suffix={suffix!r} is not the end of a key, such as '.npy', or a list of such texts")
    return endings


def _ending(key: str) -> str:
    """Return the suffix of a key, or a description if it has none."""
    name = key.rpartition("/")[2]
    dot = name.rfind(".")
    return name[dot:][:30] if dot > 0 else "no suffix"


def _neighbours(client: Listing, bucket: str) -> str:
    """Describe what a bucket has at its top, for an error."""
    there = [one.key for one in client.list(bucket, delimiter="/", limit=_NAMED + 1)]
    if not there:
        return "the bucket is empty (fix: write objects first, or correct the bucket)"
    more = ", ..." if len(there) > _NAMED else ""
    return f"it has {', '.join(map(repr, there[:_NAMED]))}{more} (fix: correct the prefix)"


class Share(Sequence[int]):
    """The indices of one rank: each `world_size`-th index of `count`, from `rank` on.

    With `tail` "keep", each index belongs to one rank, and the first ranks may have one index more. With
    "drop", the last indices belong to no rank. With "pad", some ranks get indices of the beginning again.
    """

    def __init__(self, count: int, rank: int, world_size: int, tail: Tail) -> None:
        world, number = _arguments.count("world_size", world_size), _arguments.count("rank", rank)
        if not world or number is None or number >= world:
            raise InvalidError(f"rank={rank!r} of world_size={world_size!r} (expected rank from 0 to world_size - 1)")
        if tail not in get_args(Tail):
            raise InvalidError(f"tail={tail!r} is not one of keep, drop, pad")
        if count < world and tail != "pad":
            raise InvalidError(
                f"{count} objects cannot be shared by world_size={world} ranks: some ranks would have none "
                "(fix: start fewer ranks, or pass tail='pad' to repeat objects)"
            )
        self._count, self._rank, self._world = count, number, world
        if tail == "keep":
            self._length = len(range(number, count, world))
        else:
            self._length = count // world if tail == "drop" else math.ceil(count / world)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: int) -> int:  # type: ignore[override]
        index = at + self._length if at < 0 else at
        if not 0 <= index < self._length:
            raise IndexError(f"index {at} is not below the {self._length} objects of rank {self._rank}")
        return (self._rank + index * self._world) % self._count


def check_unchanged(client: Listing, bucket: str, objects: Objects, at: int) -> None:
    """Raise NotFoundError if an object of a listing is gone, and CorruptError if it has another size now."""
    key, size = objects[at], objects.size(at)
    try:
        now = client.stat(bucket, key).size
    except NotFoundError as missing:
        raise NotFoundError(
            f"read s3://{bucket}/{key}: the object was there when the prefix was listed, and is gone "
            "(fix: list the prefix again: make the data set or the pipeline anew)"
        ) from missing
    if now != size:
        raise CorruptError(
            f"read s3://{bucket}/{key}: the object has {now} bytes, and had {size} when the prefix was listed "
            "(fix: list the prefix again: make the data set or the pipeline anew)"
        )
