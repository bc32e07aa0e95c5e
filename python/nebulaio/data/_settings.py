# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments of a loader, and the options of the library that they mean."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args

from .. import _arguments, _device, _load, _options, _process
from .._connection import with_environment
from ..errors import InvalidError
from . import _views
from ._job import place

Source = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
Shuffle = Literal["full", "blocks", "stored"]
Tail = Literal["drop", "pad", "short"]
FrameworkName = Literal["auto", "torch", "numpy", "cupy"]
State = dict[str, Any]
_ORDERS: dict[Any, str] = {True: "full", False: "stored"}


@dataclass
class Settings:
    """The checked arguments of a loader."""

    sources: list[bytes]
    opening: dict[str, Any]  # options of nebulaio_data_open_start
    options: dict[str, Any]  # options of nebulaio_loader_open
    views: _views.Views
    rank: int
    world: int
    threads: int
    epochs: int | None


def settings(given: Mapping[str, Any]) -> Settings:
    """Return the settings for the arguments of a Loader. Raises InvalidError for a wrong one."""
    sources = _sources(given["source"])
    wanted = _device.canonical(given["device"])
    if wanted != "host" and given["framework"] != "numpy":
        _process.current().require_cuda_after_fork(wanted)
    views = _views.choose(given["framework"])
    rank, world = place(given["rank"], given["world"])

    def number(name: str, least: int) -> int:
        return 0 if given[name] is None else whole(name, given[name], least)

    def size(name: str) -> int:
        return 0 if given[name] is None else _options.size(name, given[name])

    options: dict[str, Any] = {
        "batch": whole("batch_size", given["batch_size"], 1),
        "device": views.prefer(wanted),
        "shuffle": _choice("shuffle", _ORDERS.get(given["shuffle"], given["shuffle"]), Shuffle),
        "seed": whole("seed", given["seed"], 0),
        "rank": rank,
        "world": world,
        "worker": whole("worker", given["worker"], 0),
        "workers": whole("workers", given["workers"], 1),
        "tail": _tail(given["tail"], given["drop_last"]),
        "skip_bad": _arguments.truth("skip_bad", given["skip_bad"]),
        "shuffle_block": number("shuffle_block", 1),
        "shuffle_window": number("shuffle_window", 1),
        "ahead": size("ahead"),
        **_arguments.choices(given["route"], given["cache"]),
    }
    columns = given["columns"]
    if columns is not None:
        if isinstance(columns, str) or not all(isinstance(name, str) for name in columns) or not columns:
            raise InvalidError(
                f"columns={columns!r} is not a list of names, such as ['jpg', 'cls'] (None: all columns)")
        options["columns"] = list(columns)
    opening: dict[str, Any] = {
        "format": given["format"],
        "block": number("block", 0),
        "max_sample": size("max_sample"),
        "verify": _arguments.truth("verify", given["verify"]),
        "skip_bad": options["skip_bad"],
    }
    if any(_load.is_url(os.fsdecode(one)) for one in sources):
        opening["client"] = _account(given["endpoint"], given["access_key"], given["secret_key"], given["client"])
    epochs = None if given["epochs"] is None else whole("epochs", given["epochs"], 0)
    return Settings(sources, opening, options, views, rank, world, whole("threads", given["threads"], 0), epochs)


def _sources(source: Source) -> list[bytes]:
    """Return the sources as bytes."""
    given = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not given:
        raise InvalidError("open data: the list of sources is empty")
    found = []
    for one in given:
        if not isinstance(one, (str, os.PathLike)) or not os.fspath(one) or "\0" in os.fspath(one):
            raise InvalidError(f"open data {one!r}: expected a path, a URL or a pattern")
        found.append(os.fsencode(one))
    return found


def _account(endpoint: Any, access_key: Any, secret_key: Any, client: Any) -> dict[str, Any]:
    """Return the options of a client for data in a bucket."""
    if client is not None:
        if endpoint is not None or access_key is not None or secret_key is not None:
            raise InvalidError(
                "client is given together with endpoint, access_key or secret_key (fix: give one of them)")
        return with_environment(client._options, os.environ)
    if (access_key is None) != (secret_key is None):
        raise InvalidError("access_key and secret_key: only one of them is given (fix: give both, or neither)")
    given = {"endpoint": endpoint, "access_key": access_key, "secret_key": secret_key}
    words = {key: _arguments.word(key, value) for key, value in given.items() if value is not None}
    return with_environment(words, os.environ)


def whole(name: str, value: Any, least: int) -> int:
    """Return a whole number of at least `least`. Raises InvalidError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 63:
        return value
    raise InvalidError(f"{name}={value!r} is not a whole number of {least} or more")


def _choice(name: str, value: Any, kind: Any) -> str:
    if value in get_args(kind):
        return str(value)
    raise InvalidError(f"{name}={value!r} is not one of {', '.join(get_args(kind))}")


def _tail(tail: Any, drop_last: Any) -> str:
    if drop_last is None:
        return _choice("tail", "drop" if tail is None else tail, Tail)
    meant = "drop" if _arguments.truth("drop_last", drop_last) else "short"
    if tail is not None and tail != meant:
        raise InvalidError(
            f"tail={tail!r} and drop_last={drop_last}: they contradict each other (fix: give one of them)")
    return meant


_NUMBERS = ("seed", "epoch", "position", "samples", "shuffle_block", "shuffle_window")


def checked_state(state: Mapping[str, Any]) -> State:
    """Return a state in plain numbers and text. Raises InvalidError if it is not a state."""
    if not isinstance(state, Mapping) or not {"seed", "epoch", "position"} <= state.keys():
        raise InvalidError(f"state {state!r:.200} is not a state of Loader.state_dict(), with seed, epoch and position")
    found: State = {}
    for key, value in state.items():
        if key in _NUMBERS:
            found[key] = whole(f"state[{key!r}]", value, 0)
        else:
            found[key] = value
    return found
