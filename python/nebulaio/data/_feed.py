# SPDX-License-Identifier: Apache-2.0
"""The running part of a loader: the reads of the library, and the hooks of the batches that it delivers."""

from __future__ import annotations

from collections import deque
from typing import Any

from ._batch import Batch
from ._handles import Data, Engine
from ._hooks import Hooks, Inline, Pool
from ._settings import Settings, State


class Feed:
    """Takes batches from the library and runs their hooks. Only one thread at a time calls `take` and `restart`.

    After an error, the reads have ended. The next `take` starts them again at the state of
    the last delivered batch, so that batches which were taken and not delivered come again.
    """

    def __init__(self, data: Data, settings: Settings, hooks: Hooks) -> None:
        self._data = data
        self._settings = settings
        self._hooks = hooks
        self._engine: Engine | None = None
        self._runner: Inline | Pool | None = None
        self._started: deque[tuple[Batch, Any]] = deque()  # batches that the hooks work on
        self._reported: dict[str, Any] = {}  # the last report of an engine that has ended
        self._base: State = {}
        self.described: Engine  # the last engine, for its device, columns and number of batches

    def restart(self, state: State, allow_changed: bool) -> None:
        """Start the reads at a state, or at the start if it is empty. If the state is refused, nothing changes."""
        settings = self._settings
        options = dict(settings.options)
        if state:
            options.update(state=state, seed=0, allow_changed=allow_changed)
        if settings.epochs is not None:
            # The library needs at least one epoch. `take` ends before the first batch of one too many.
            options["epochs"] = max(settings.epochs - int(state.get("epoch", 0)), 1)
        engine = Engine(self._data, options, settings.views)
        try:
            settings.views.require(engine.device)
        except BaseException:
            engine.release()
            raise
        self.pause()
        self._engine = self.described = engine
        self._base = {**engine.start, **({} if not state else {"seed": state["seed"]})}
        if self._hooks:
            self._runner = Pool(self._hooks, settings.threads) if settings.threads else Inline(self._hooks)

    def pause(self, wait: bool = True) -> None:
        """End all reads and hooks. The next `take` starts them again. With `wait`, wait for running hooks."""
        engine, self._engine = self._engine, None
        runner, self._runner = self._runner, None
        self._started = deque()  # another thread may still use the old one
        if engine is not None:
            if engine.usable():
                self._reported = engine.report()
            engine.release()
        if runner is not None and self._data.system.usable():
            runner.close(wait)

    def report(self) -> dict[str, Any]:
        """Return the report of the running reads, or the last one."""
        engine = self._engine
        return dict(self._reported) if engine is None else engine.report()

    def take(self, state: State) -> tuple[Any, State, bool]:
        """Return what comes after a state, the state after it, and whether it is the last of its epoch.

        Raises StopIteration after the last epoch.
        """
        epochs = self._settings.epochs
        if epochs is not None and state["epoch"] >= epochs:
            raise StopIteration
        try:
            if self._engine is None:
                self.restart(state, True)
            assert self._engine is not None
            return self._next(self._engine)
        except StopIteration:
            raise
        except BaseException as problem:
            self.pause(wait=isinstance(problem, Exception))  # Ctrl-C does not wait for hooks
            raise

    def _next(self, engine: Engine) -> tuple[Any, State, bool]:
        runner, started = self._runner, self._started
        if runner is None:
            taken = engine.take(wait=True)
            assert taken is not None
            batch = Batch(taken, engine.columns, self._settings.views, self._base)
            return batch, batch.state, batch.last
        while len(started) < runner.depth:
            try:
                taken = engine.take(wait=not started)
            except StopIteration:
                if not started:
                    raise
                break
            if taken is None:
                break
            batch = Batch(taken, engine.columns, self._settings.views, self._base)
            started.append((batch, runner.start(batch)))
        batch, begun = started[0]
        result = runner.finish(begun)
        started.popleft()
        return result, batch.state, batch.last
