# SPDX-License-Identifier: Apache-2.0
"""One save in the background: the handle that the caller has, and the work of its thread."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import CancelledError, NebulaioError
from ._snapshot import Snapshot

dist: Any = importlib.import_module("torch.distributed")
dcp: Any = importlib.import_module("torch.distributed.checkpoint")


class AsyncSave:
    """A save that was started by `AsyncSaver.save`. All methods may be called by any thread."""

    def __init__(self, checkpoint: str, step: int | None) -> None:
        self.checkpoint = checkpoint
        self._step = step
        self._copied = threading.Event()  # the training may change its parameters
        self._ended = threading.Event()
        self._error: NebulaioError | None = None
        self._told = False  # the error was raised in a thread of the caller
        self._lock = threading.Lock()
        self._stall = {"back_pressure": 0.0, "snapshot": 0.0, "before_step": 0.0}
        self._found: dict[str, Any] = {}

    def done(self) -> bool:
        """Return whether the save has ended, successfully or not. After success, the checkpoint is durable."""
        return self._ended.is_set()

    def wait(self) -> dict[str, Any]:
        """Wait until the checkpoint is durable, and return the report. Raises the error of a failed save."""
        self._ended.wait()
        if self._error is not None:
            self._told = True
            raise self._error
        return self.report

    @property
    def report(self) -> dict[str, Any]:
        """What the save has cost so far: stall, snapshot and write. docs/checkpoints.md lists the keys."""
        with self._lock:
            stall = dict(self._stall)
        return {
            "checkpoint": self.checkpoint,
            "step": self._step,
            "done": self.done() and self._error is None,
            "stall_seconds": sum(stall.values()),
            "stall": stall,
            **self._found,
        }

    def _count(self, what: str, seconds: float) -> None:
        with self._lock:
            self._stall[what] += seconds

    def _has_news(self) -> bool:
        """Return whether the save has failed, and no call has raised its error yet."""
        return self._ended.is_set() and self._error is not None and not self._told


class Work:
    """The background part of one save."""

    def __init__(
        self,
        save: AsyncSave,
        writer: Any,
        planner: Any,
        group: Any,
        previous: AsyncSave | None,
        then: Callable[[], object] | None,
    ) -> None:
        self.snapshot: Snapshot | None = None
        self._save = save
        self._writer = writer
        self._planner = planner
        self._group = group
        self._previous = previous
        self._then = then
        self._refusal: str | None = None

    def refuse(self, cause: BaseException) -> None:
        """Note that this rank has no snapshot, so that no other rank waits for it."""
        self._refusal = f"{type(cause).__name__}: {cause}"

    def abandon(self) -> None:
        """Free the snapshot and end the save. Nothing was written."""
        if self.snapshot is not None:
            self.snapshot.release()
        self._save._copied.set()
        self._save._ended.set()

    def run(self) -> None:
        """Finish the snapshot and write the checkpoint. The save's error is kept for the next call of the saver."""
        save = self._save
        try:
            self._run()
        except BaseException as cause:  # noqa: BLE001 - raised by the next call of the saver
            save._error = named_error("save", save.checkpoint, cause)
        finally:
            self.abandon()

    def _run(self) -> None:
        save, snapshot = self._save, self.snapshot
        if snapshot is not None and self._refusal is None:
            snapshot.finish()
            if not snapshot.direct:
                save._copied.set()
            self._describe(snapshot)
        if self._previous is not None:
            self._previous._ended.wait()  # collectives of two saves must not mix
        self._agree()
        assert snapshot is not None
        self._writer.on_written = save._copied.set
        began = time.perf_counter()
        dcp.save(
            snapshot.state,
            storage_writer=self._writer,
            planner=self._planner,
            process_group=self._group,
            no_dist=self._group is None,
        )
        report = dict(self._writer.report or {})
        save._found.update(
            {
                "write_seconds": time.perf_counter() - began,
                "bytes": report.get("bytes", 0),
                "routes": _routes(report),
                "write": report,
            }
        )
        if self._then is not None:
            self._then()

    def _describe(self, snapshot: Snapshot) -> None:
        stalled = snapshot.gpu_seconds() if snapshot.choice.kind == "device" else 0.0
        self._save._count("snapshot", stalled)  # the training's stream has waited for these copies
        self._save._found["snapshot"] = {
            "kind": snapshot.choice.kind,
            "reason": snapshot.choice.reason,
            "seconds": max(snapshot.seconds, snapshot.gpu_seconds()),
            "device_bytes": snapshot.on_device,
            "staged_bytes": snapshot.staged,
            "direct_bytes": snapshot.direct,
        }

    def _agree(self) -> None:
        """Raise an error on all ranks if one rank has no snapshot."""
        if self._group is None:
            return
        told: list[str | None] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(told, self._refusal, group=self._group)
        for rank, refusal in enumerate(told):
            if refusal is not None:
                raise CancelledError(f"rank {rank} has no snapshot: {refusal}")


def _routes(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes by route of all files of a save."""
    found: dict[str, int] = {}
    for job in report.get("jobs", ()):
        for entry in job.get("routes") or ():
            found[entry["route"]] = found.get(entry["route"], 0) + int(entry["bytes"])
    return found


def named_error(doing: str, name: str, cause: BaseException) -> NebulaioError:
    """Return an error of the same kind that names the checkpoint. `doing` is "save" or "load"."""
    inner, text = cause, ""
    failures = getattr(cause, "failures", None)  # of torch's CheckpointException: rank -> (error, traceback)
    if isinstance(failures, dict) and failures:
        rank = min(failures)
        inner = failures[rank][0]
        text = f"rank {rank}: " if dist.is_initialized() else ""
    kind = type(inner) if isinstance(inner, NebulaioError) else NebulaioError
    said = str(inner) if isinstance(inner, NebulaioError) else f"{type(inner).__name__}: {inner}"
    error = kind(f"{doing} checkpoint {name}: {text}{said}")
    error.__cause__ = cause
    return error
