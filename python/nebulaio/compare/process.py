# SPDX-License-Identifier: Apache-2.0
"""Runs jobs in child processes, which are forked or started anew.

A forked child has no CUDA context, no loaded library of NebulaIO and no thread. A child shares
the imported modules of its parent, so that a round does not wait for imports. If an import
has already used CUDA, which does not survive fork, children are started anew.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


class ChildFailed(Exception):
    """A job raised an error, died or exceeded its time. The message is its error."""


def forkable() -> bool:
    """Return whether this process may fork children that use a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and (torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()):
        return False
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/nvidia-uvm"):
                return False
        except OSError:
            continue  # closed meanwhile
    return True


def start(
    life: Callable[[], object], again: list[str], fds: tuple[int, ...], spawn: bool, close: tuple[int, ...] = ()
) -> int:
    """Start a process and return its process id.

    A forked process runs `life` with all descriptors but `close`. With `spawn`, the process
    is a new Python that runs the module and arguments `again` and has only `fds`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if spawn:
        for fd in fds:
            os.set_inheritable(fd, True)
        return os.posix_spawn(sys.executable, [sys.executable, "-m", *again], os.environ)
    gc.freeze()  # the child's garbage collector does not touch shared pages
    pid = os.fork()
    if pid:
        gc.unfreeze()
        return pid
    try:
        for fd in close:
            os.close(fd)
        life()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - a child never returns into the parent's code
        traceback.print_exc()
    finally:
        os._exit(0)


def run(job: Callable[[], Any], again: list[str], timeout: float, spawn: bool) -> Any:
    """Run a job in a process of its own and return its result, converted by JSON. Raises ChildFailed.

    With `spawn`, `again` names the module and the arguments that do the same job. The number
    of the descriptor for the answer is added as the last argument.
    """
    read, write = os.pipe()
    pid = start(lambda: answer(job, write), [*again, str(write)], (write,), spawn, close=(read,))
    os.close(write)
    text = ""
    try:
        text = _collect(read, time.monotonic() + timeout)
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise ChildFailed(f"it did not end within {timeout:.0f} s") from None
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(read)
        _, status = os.waitpid(pid, 0)
    try:
        found = json.loads(text)
    except ValueError:
        raise ChildFailed(f"it died with status {os.waitstatus_to_exitcode(status)}") from None
    if "error" in found:
        raise ChildFailed(found["error"])
    return found["result"]


def answer(job: Callable[[], Any], write: int) -> None:
    """Run a job in the child and write its result or its error for `run`."""
    try:
        found = {"result": job()}
    except BaseException as problem:  # noqa: BLE001 - told to the parent, which decides
        found = {"error": in_words(problem)}
    with os.fdopen(write, "w") as pipe:
        json.dump(found, pipe)


def in_words(problem: BaseException) -> str:
    """Return an exception as one line of text."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:1000]


def _collect(fd: int, deadline: float) -> str:
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise TimeoutError
        part = os.read(fd, 1 << 16)
        if not part:
            return b"".join(parts).decode()
        parts.append(part)
