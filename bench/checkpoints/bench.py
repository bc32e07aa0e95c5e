# SPDX-License-Identifier: Apache-2.0
"""Holds what the rows of one process share: the device, the state on it, and the files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbench.device import Device
from nbench.measure import in_words

from . import states
from .files import Files
from .states import Spec

Say = Callable[[str], None]


class Bench:
    """One process of the benchmark."""

    def __init__(self, given: argparse.Namespace, say: Say) -> None:
        self.given, self.say = given, say
        self.rounds: int = given.rounds
        self.timeout: float = given.timeout
        self.spec = Spec(given.size, given.ranks)
        self.device = Device(given.device)
        self.files = Files(Path(given.workdir), self.spec, given.limit, say)
        self._state: Any = None
        self._target: Any = None
        self._started: set[str] = set()

    def state(self) -> Any:
        """Return the state on the device. The first call makes it."""
        if self._state is None:
            self.say(f"making {self.spec.bytes / 1e9:.2f} GB of state on {self.device.name}")
            self._state = states.whole(self.spec, self.device.torch_name)
            self.device.collect()
        return self._state

    def target(self) -> Any:
        """Return a second state of the same form, which receives loads."""
        if self._target is None:
            self._target = states.blank(self.state())
        return self._target

    def free_target(self) -> None:
        """Free the memory of the second state. The allocator keeps it for results of loads."""
        self._target = None
        self.device.collect()

    def first(self, what: str, step: Callable[[], object]) -> None:
        """Run something that is not measured, once in this process: the first use of an engine sets it up.

        An error is told; the rounds record it again.
        """
        if what in self._started:
            return
        self._started.add(what)
        try:
            step()
        except Exception as problem:  # noqa: BLE001  the rounds record it
            self.say(f"  the first {what} failed: {in_words(problem)}")
        self.device.collect()
