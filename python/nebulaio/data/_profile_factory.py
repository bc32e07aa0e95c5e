# SPDX-License-Identifier: Apache-2.0
"""Loaders with other settings: the caller's function, or a torch DataLoader built anew."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import InvalidError

SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
# What a setting is if the caller's function requires it and nothing else was asked for.
_PLAIN = {"num_workers": 0, "prefetch_factor": None, "pin_memory": False, "persistent_workers": False}
# Arguments of a DataLoader that are also its attributes, besides SETTINGS and those that group samples.
_KEPT = ("collate_fn", "timeout", "worker_init_fn", "multiprocessing_context", "generator", "pin_memory_device",
         "in_order")


def cuda() -> Any:
    """Return the module torch if the process has imported it and it has a usable CUDA device, else None."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_available() else None
    except AttributeError:  # torch is being imported, or is a stand-in
        return None


def is_torch_loader(loader: object) -> bool:
    """Report whether loader is a DataLoader of torch, without importing torch."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(loader, data.DataLoader)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch's warning about more workers than processors: whether they help is what is being measured."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create .* worker processes")
        yield


class Factory:
    """Makes loaders with given settings, from the function that the caller passed.

    `names` are the settings that can be changed. If the function takes none of them and returns a
    torch DataLoader, the DataLoader is built anew around the same data set.
    """

    def __init__(self, function: Callable[..., Iterable[Any]], call: str) -> None:
        if not callable(function):
            fix = "pass a function that returns the loader, such as `lambda: loader`"
            raise InvalidError(f"{call}: loader_factory is {type(function).__name__}, expected a function (fix: {fix})")
        self._function, self._call = function, call
        taken, required = _parameters(function)
        if unknown := sorted(required - set(SETTINGS)):
            raise InvalidError(
                f"{call}: loader_factory requires {', '.join(unknown)}, and only {', '.join(SETTINGS)} are passed "
                f"(fix: give {unknown[0]} a default, or wrap the function in a lambda)"
            )
        self._required = required
        self.takes_decode = "decode" in taken
        self.names = frozenset(taken & set(SETTINGS))
        self._rebuilds = False
        if not self.names:
            self._rebuilds = is_torch_loader(self.make({}))
            self.names = frozenset(SETTINGS) if self._rebuilds else frozenset()

    def make(self, settings: dict[str, Any], **more: Any) -> Any:
        """Return a loader with these settings; the others stay as the caller's function has them.

        Settings that contradict no workers are taken back: torch refuses prefetch_factor and
        persistent_workers with num_workers=0.
        """
        given = {name: value for name, value in settings.items() if name in self.names}
        if given.get("num_workers") == 0:
            given |= {name: _PLAIN[name] for name in ("prefetch_factor", "persistent_workers") if name in self.names}
        with quiet():
            if self._rebuilds:
                return _rebuild(self._iterable(self._function()), given)
            given |= {name: _PLAIN[name] for name in self._required - given.keys()}
            return self._iterable(self._function(**given, **more))

    def _iterable(self, loader: Any) -> Any:
        if not hasattr(loader, "__iter__"):
            raise InvalidError(
                f"{self._call}: loader_factory returned {type(loader).__name__}, expected an iterable of batches")
        return loader


def _parameters(function: Callable[..., Any]) -> tuple[set[str], set[str]]:
    """Return the names that a function takes as keywords, and those of them without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions of C do not say
        return set(), set()
    taken, required = set(), set()
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            taken |= {*SETTINGS, "decode"}
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            if parameter.default is parameter.empty:
                required.add(parameter.name)
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            taken.add(parameter.name)
            if parameter.default is parameter.empty:
                required.add(parameter.name)
    return taken, required


def _rebuild(loader: Any, settings: dict[str, Any]) -> Any:
    """Return a new torch DataLoader like loader, with other settings. Without settings, loader itself."""
    if not settings:
        return loader
    given = {name: getattr(loader, name) for name in SETTINGS} | settings
    if given["num_workers"] == 0:
        given |= {"prefetch_factor": None, "persistent_workers": False}
    kept = {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}
    if given["num_workers"] == 0:
        kept |= {"timeout": 0, "multiprocessing_context": None}  # torch refuses both without workers
    if not kept.get("pin_memory_device"):
        kept.pop("pin_memory_device", None)
    data = sys.modules["torch.utils.data"]
    if isinstance(loader.dataset, data.IterableDataset):
        kept |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif loader.batch_sampler is not None:
        kept["batch_sampler"] = loader.batch_sampler
    else:
        kept |= {"batch_size": None, "sampler": loader.sampler}
    return type(loader)(loader.dataset, **kept, **given)


def settings_of(loader: Any) -> dict[str, Any]:
    """Return the settings that a loader shows as attributes."""
    return {name: getattr(loader, name) for name in SETTINGS if hasattr(loader, name)}


def lanes_of(loader: Any) -> int:
    """Return the number of worker processes of a loader; 0 if batches are loaded in this process."""
    count = getattr(loader, "num_workers", 0)
    return count if isinstance(count, int) and count > 0 else 0
