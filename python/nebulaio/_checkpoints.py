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
