# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as directories and prefixes: commit, list, verify and prune. `nebulaio.torch` uses these functions."""

from __future__ import annotations

import base64
import ctypes
import json
import os
from collections.abc import Mapping
from typing import Any

from . import _abi, _handles, _process, _save
from .errors import InvalidError


class _Answer(_handles.Job):
    """A job about checkpoints. The report of the job is the answer."""

    def __init__(self, system: _process.System, function: str, path: bytes, options: dict[str, Any]) -> None:
        super().__init__(system, None)
        self._function, self._path, self._options = function, path, json.dumps(options).encode()

    def _start(self) -> None:
        start = getattr(self.system.functions, self._function)
        _abi.call(start, self.system.handle, self._path, self._options, ctypes.byref(self.number))

    def _keep_report(self) -> None:
        return  # last_report covers only moves of tensor data


def _ask(
    function: str,
    path: str | os.PathLike[str],
    options: dict[str, Any],
    client: Any,
    progress: _handles.ProgressCallback | None = None,
) -> Any:
    """Return the answer of a function about the checkpoints at a path."""
    name = os.fsencode(path)
    if not name or b"\0" in name:
        raise InvalidError(f"open checkpoint {os.fspath(path)!r}: a path must not be empty or contain NUL")
    server = _save.server_of(path, client)
    if server is not None:
        options["client"] = server
    system = _process.current().open() if client is None else client._open().system
    with _Answer(system, function, name, options) as job:
        job.wait(progress)
        return json.loads(_abi.text(system.functions.nebulaio_report, job.number.value))


def commit_checkpoint(
    path: str | os.PathLike[str], manifest: Mapping[str, Any], metadata: bytes, client: Any = None
) -> dict[str, Any]:
    """Make a checkpoint complete whose data files are written and durable.

    The library writes the manifest, then puts `.metadata` in place, and then removes the files of
    older saves from the directory. Each step is durable before the next.

    Args:
        path: Directory that exists, or `s3://bucket/prefix`.
        manifest: The fields "id", "step", "world", "files" and "items". The library adds the others.
        metadata: The content of `.metadata`.
        client: GPUDirectClient for a checkpoint in a bucket.

    Returns:
        The path, the id, the number of files and bytes, and the files that were removed.
    """
    options = {"manifest": json.dumps(manifest), "metadata": base64.b64encode(metadata).decode()}
    found: dict[str, Any] = _ask("nebulaio_checkpoint_commit_start", path, options, client)
    return found


def list_checkpoints(root: str | os.PathLike[str], client: Any = None, *, all: bool = False) -> list[dict[str, Any]]:  # noqa: A002
    """Return the checkpoints of a root, sorted by step, then by time. The last one with a step is the latest.

    Args:
        root: Directory of checkpoints, one checkpoint, or `s3://bucket/prefix`.
        client: GPUDirectClient for checkpoints in a bucket.
        all: Also return checkpoints that are not complete.

    Returns:
        For each checkpoint its "name", "path", "step", "complete", "format", "time", "bytes", "files", "world",
        "checksums" and, if it is not complete, "reason".
    """
    found: list[dict[str, Any]] = _ask("nebulaio_checkpoint_list_start", root, {"all": bool(all)}, client)
    return found


def verify_checkpoint(
    path: str | os.PathLike[str], client: Any = None, progress: _handles.ProgressCallback | None = None
) -> dict[str, Any]:
    """Read all files of a checkpoint and compare them with their checksums. Damage raises no error.

    Args:
        path: Checkpoint, file of torch.save or .safetensors, or `s3://bucket/prefix`.
        client: GPUDirectClient for a checkpoint in a bucket.
        progress: Called with the bytes that were compared and the bytes to compare.

    Returns:
        The "verdict" ("good", "damaged", "incomplete" or "no checksums"), the list of "problems" with "file", "message"
        and "tensors", and the fields of `list_checkpoints`.
    """
    found: dict[str, Any] = _ask("nebulaio_checkpoint_verify_start", path, {}, client, progress)
    return found


def prune_checkpoints(
    root: str | os.PathLike[str],
    *,
    keep_last: int | None = None,
    keep_every: int | None = None,
    dry_run: bool = False,
    client: Any = None,
) -> dict[str, Any]:
    """Remove old checkpoints from a root, and what killed saves left there.

    Only directories named `step-<number>` are removed. The last complete checkpoint, damaged ones,
    and directories to which a save may still write stay.

    Args:
        root: Directory of checkpoints, or `s3://bucket/prefix`.
        keep_last: Number of newest complete checkpoints to keep.
        keep_every: Keep checkpoints with a step that is divisible by this number.
        dry_run: Remove nothing.
        client: GPUDirectClient for checkpoints in a bucket.

    Returns:
        The lists "removed" and "kept", each entry with its "reason", and the "bytes" of the removed files.
    """
    options: dict[str, Any] = {"dry_run": bool(dry_run)}
    for name, value in (("keep_last", keep_last), ("keep_every", keep_every)):
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 62:
                raise InvalidError(f"prune checkpoints: {name}={value!r} is not a number from 1")
            options[name] = value
    found: dict[str, Any] = _ask("nebulaio_checkpoint_prune_start", root, options, client)
    return found
