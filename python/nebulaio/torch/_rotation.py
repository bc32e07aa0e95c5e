# SPDX-License-Identifier: Apache-2.0
"""`Checkpoints`: the checkpoints of a training run below one root, and which of them are kept."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import _checkpoints, _load
from .._handles import ProgressCallback
from ..errors import CorruptError, InvalidError, NebulaioError, NotFoundError
from ._async import AsyncSaver
from ._reader import StorageReader
from ._saving import AsyncSave, named_error
from ._telling import TellingWriter
from ._writer import StorageWriter

if TYPE_CHECKING:
    from typing_extensions import Self

dist: Any = importlib.import_module("torch.distributed")
dcp: Any = importlib.import_module("torch.distributed.checkpoint")
_CheckpointException: Any = importlib.import_module("torch.distributed.checkpoint.api").CheckpointException

_DIGITS = 10
_MOST = 10**_DIGITS - 1


class Checkpoints:
    """The checkpoints of a run: ROOT/step-0000000100/, ROOT/step-0000000200/ and so on.

        checkpoints = Checkpoints("run", keep_last=3, keep_every=1000)
        step = checkpoints.latest()
        if step is not None:
            checkpoints.load(state, step)
        ...
        checkpoints.async_save(step, state)

    In a world of several ranks, all ranks call `save`, `async_save`, `load`, `latest` and `wait` together. Rank 0
    reads the root and removes old checkpoints, and tells the others.

    Args:
        root: Directory, or s3://bucket/prefix. The first save creates a missing directory.
        keep_last: Number of newest complete checkpoints to keep. None keeps all, if `keep_every` is None too.
        keep_every: Keep also the checkpoints whose step is divisible by this number.
        saver: AsyncSaver for `async_save`. Default: one of its own, with default settings.
        client: GPUDirectClient for s3:// roots. Default: the settings of the environment.

    Old checkpoints are removed after each save, when the new one is durable. The last complete checkpoint, damaged
    ones, and directories to which a save may still write are never removed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        saver: AsyncSaver | None = None,
        client: Any = None,
    ) -> None:
        self.root = os.fsdecode(root)
        if not self.root or "\0" in self.root:
            raise InvalidError(f"checkpoints {self.root!r}: a path must not be empty or contain NUL")
        if client is not None and not _load.is_url(self.root):
            raise InvalidError(f"client= is given and {self.root!r} is a path (expected s3://bucket/prefix)")
        for name, value in (("keep_last", keep_last), ("keep_every", keep_every)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidError(f"{name}={value!r} is not a number from 1")
        self._keep_last = keep_last
        self._keep_every = keep_every
        self._client = client
        self._saver = saver
        self._own = saver is None
        self.pruned: dict[str, Any] | None = None  # what the last prune removed and kept

    def path(self, step: int) -> str:
        """Return the directory or URL of a step's checkpoint, which need not exist."""
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= _MOST:
            raise InvalidError(f"step={step!r} is not a whole number from 0 to {_MOST}")
        separator = "/" if _load.is_url(self.root) else os.sep
        return f"{self.root.rstrip(separator)}{separator}{_name(step)}"

    def save(self, step: int, state_dict: Mapping[str, Any], *, planner: Any = None) -> dict[str, Any]:
        """Save the checkpoint of a step, remove old ones, and return the report. On return it is durable."""
        self.wait()
        writer = StorageWriter(self.path(step), step=step, client=self._client)
        with _named("save", self.path(step)):
            dcp.save(dict(state_dict), storage_writer=writer, planner=planner, no_dist=not _is_world())
        self._prune_after_save()
        return dict(writer.report or {})

    def async_save(self, step: int, state_dict: Mapping[str, Any], *, planner: Any = None) -> AsyncSave:
        """Start to save the checkpoint of a step, as `AsyncSaver.save`. Old ones are removed when it is durable.

        Call `saver.wait_before_step()` before each optimizer step.
        """
        path = self.path(step)
        writer = TellingWriter(path, step=step, client=self._client)
        return self.saver._start(state_dict, path, step, writer, planner, self._prune_after_save)

    def load(
        self, state_dict: dict[str, Any], step: int | None = None, *, verify: bool = False, planner: Any = None
    ) -> int:
        """Load a checkpoint into the tensors of a state dictionary in place, and return its step.

        Args:
            state_dict: What to load, as torch.distributed.checkpoint takes it.
            step: Step of the checkpoint. None loads the latest one.
            verify: Whether to compare the content with its checksums.
            planner: A load planner of torch.distributed.checkpoint.

        Raises:
            NotFoundError: There is no complete checkpoint, or none of this step.
            CorruptError: With `verify`, the content is damaged. The error names the file and the tensors.
        """
        self.wait()
        wanted = self.latest() if step is None else step
        if wanted is None:
            raise NotFoundError(f"load the latest checkpoint of {self.root}: there is no complete one")
        reader = StorageReader(self.path(wanted), verify=verify, client=self._client)
        with _named("load", self.path(wanted)):
            dcp.load(state_dict, storage_reader=reader, planner=planner, no_dist=not _is_world())
        return wanted

    def latest(self) -> int | None:
        """Return the highest step with a complete checkpoint, or None. All ranks get the same answer."""
        answer: list[Any] = [None, None]
        if _rank() == 0:
            try:
                steps = self.steps()
                answer[0] = steps[-1] if steps else None
            except BaseException as problem:
                answer[1] = problem
                if not _is_world():
                    raise
        if _is_world():
            dist.broadcast_object_list(answer, src=0)
            if answer[1] is not None:
                raise answer[1]
        found: int | None = answer[0]
        return found

    def steps(self) -> list[int]:
        """Return the steps of all complete checkpoints, sorted. A missing root has none."""
        return [one["step"] for one in self.entries() if one["step"] is not None and one["name"] == _name(one["step"])]

    def entries(self, *, incomplete: bool = False) -> list[dict[str, Any]]:
        """Return what is known of each checkpoint: "path", "step", "time", "bytes", "world" and more."""
        try:
            return _checkpoints.list_checkpoints(self.root, self._client, all=incomplete)
        except NotFoundError:
            return []

    def prune(self, *, dry_run: bool = False) -> dict[str, Any]:
        """Remove old checkpoints now, and return what was removed and kept, each with its reason. Call it on one rank.

        Raises InvalidError if neither `keep_last` nor `keep_every` is set.
        """
        if self._keep_last is None and self._keep_every is None:
            raise InvalidError(f"prune {self.root}: keep_last and keep_every are both None (fix: set one of them)")
        return _checkpoints.prune_checkpoints(
            self.root, keep_last=self._keep_last, keep_every=self._keep_every, dry_run=dry_run, client=self._client
        )

    def verify(self, step: int | None = None, *, progress: ProgressCallback | None = None) -> dict[str, Any]:
        """Compare all bytes of a checkpoint with their checksums, and return the findings. None means the latest one.

        Raises:
            NotFoundError: There is no such checkpoint.
            CorruptError: The checkpoint is damaged or incomplete. The error names the first file and its tensors.
        """
        if step is None:
            steps = self.steps()
            if not steps:
                raise NotFoundError(f"verify the latest checkpoint of {self.root}: there is no complete one")
            step = steps[-1]
        found = _checkpoints.verify_checkpoint(self.path(step), self._client, progress)
        if found["verdict"] in ("damaged", "incomplete"):
            first = next(iter(found["problems"]), {"file": "", "message": found.get("reason", ""), "tensors": []})
            of = f" of {', '.join(first['tensors'])}" if first["tensors"] else ""
            raise CorruptError(f"verify {self.path(step)}: {found['verdict']}: {first['file']}{of}: {first['message']}")
        return found

    @property
    def saver(self) -> AsyncSaver:
        """The saver of `async_save`. The first use makes it, if none was given."""
        if self._saver is None:
            self._saver = AsyncSaver()
        return self._saver

    def wait(self) -> dict[str, Any] | None:
        """Wait for saves in the background, and return the report of the last one. Raises their errors."""
        return None if self._saver is None else self._saver.wait()

    def close(self) -> None:
        """Wait for saves in the background, and close the saver if it is this object's own."""
        if self._saver is not None:
            if self._own:
                self._saver.close()
            else:
                self._saver.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prune_after_save(self) -> None:
        """Remove old checkpoints on rank 0.

        The save is durable, so an error here is a warning. An exception on one rank would stop the others too.
        """
        if (self._keep_last is None and self._keep_every is None) or _rank() != 0:
            return
        try:
            self.pruned = self.prune()
        except (NebulaioError, OSError) as problem:
            warnings.warn(f"{problem} (the new checkpoint is durable; old ones were not removed)", stacklevel=2)


@contextlib.contextmanager
def _named(doing: str, path: str) -> Iterator[None]:
    """Turn the exception that torch makes of errors of ranks into the error of the first rank."""
    try:
        yield
    except _CheckpointException as cause:
        raise named_error(doing, path, cause) from cause


def _name(step: int) -> str:
    return f"step-{step:0{_DIGITS}d}"


def _is_world() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def _rank() -> int:
    return int(dist.get_rank()) if _is_world() else 0
