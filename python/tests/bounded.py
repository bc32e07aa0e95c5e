# SPDX-License-Identifier: Apache-2.0
"""Runs commands for a limited time, several at once, and ends every process that they leave behind.

Each command runs in a session of its own, under a process that watches it. The watcher is a subreaper: the kernel makes
it the parent of processes whose parent has ended. So the watcher finds every process of its command, whatever its
session is.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GRACE = float(os.environ.get("TEST_GRACE", "5"))
"""Seconds in which processes may end by themselves when their command has ended.

Helpers that read a pipe of their parent end within milliseconds, such as the resource tracker of multiprocessing.
"""

_LAST = 10.0  # seconds in which killed processes end, unless the kernel cannot end them
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_STOPS = (signal.SIGTERM, signal.SIGINT)
_MOST = 50  # processes that are named
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Command:
    """A command, the file for its output, and the seconds that it may take."""

    name: str
    words: list[str]
    log: Path
    limit: float
    environment: Mapping[str, str] | None = None  # default: the environment of this process


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # its exit code, or -N if signal N ended it
    seconds: float
    late: bool = False  # its time was over
    stopped: bool = False  # a signal stopped the whole run
    left: Sequence[str] = ()  # processes that it left behind, and that were killed


def run(commands: Iterable[Command], at_once: int, ended: Callable[[Command, Ended], None]) -> bool:
    """Run commands in their order, at most `at_once` at a time, and call `ended` at the end of each.

    SIGTERM and SIGINT stop the run: what runs is killed, and no other command begins. Then `run` returns False.
    The process of the caller must have no other thread, because that one could take the signals.
    """
    waiting, running, stopped = deque(commands), {}, False
    # Blocked signals wait until they are taken below. So none is lost between a look at the children and the wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_STOPS})
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                command = waiting.popleft()
                pid, answer = _watched(command)
                running[pid] = command, answer
            if signal.sigwaitinfo({signal.SIGCHLD, *_STOPS}).si_signo != signal.SIGCHLD:
                stopped = True
                waiting.clear()
                for pid in running:
                    os.kill(pid, signal.SIGTERM)
            for pid in list(running):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    command, answer = running.pop(pid)
                    ended(command, _answered(answer))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return not stopped


def _watched(command: Command) -> tuple[int, int]:
    """Start the watcher of a command. Return its process and the pipe on which it tells how the command ended."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            if os.getppid() == parent:  # a parent that ended before prctl sends no signal
                os.write(writer, json.dumps(vars(_Watcher().watch(command))).encode())
        except BaseException:  # noqa: BLE001 # this process must not go on in the code of its parent
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    return pid, reader


def _prctl(option: int, value: int) -> None:
    none = ctypes.c_ulong(0)
    if _libc.prctl(option, ctypes.c_ulong(value), none, none, none) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def _answered(answer: int) -> Ended:
    with open(answer, "rb") as pipe:
        said = pipe.read()
    # Only a watcher that was killed says nothing. The kernel does so if there is no memory.
    return Ended(**json.loads(said)) if said else Ended(-signal.SIGKILL, 0.0)


class _Watcher:
    """The life of one command."""

    def __init__(self) -> None:
        self._command = 0  # its process
        self._code: int | None = None
        self._alone = False  # no process is left
        self._stopped = False

    def watch(self, command: Command) -> Ended:
        """Run a command until it ends or its time is over. Then end all that is left of it."""
        begin = time.monotonic()
        self._command = _spawn(command)
        self._wait(lambda: self._code is not None, command.limit, _STOPS)
        late = self._code is None and not self._stopped
        if late:
            # Pytest prints the stacks of its threads, and a Go program those of its goroutines.
            os.kill(self._command, signal.SIGABRT)
            self._wait(lambda: self._code is not None, GRACE)
        code, seconds = self._code, time.monotonic() - begin
        left: list[str] = []
        if not late and not self._stopped and not self._wait(lambda: self._alone, GRACE):
            left = [_named(pid) for pid in _descendants(os.getpid())]
        left += [f"{name} (SIGKILL has not ended it)" for name in self._kill()]
        return Ended(-signal.SIGKILL if code is None else code, seconds, late, self._stopped, left[:_MOST])

    def _wait(self, reached: Callable[[], bool], seconds: float, stops: Iterable[int] = ()) -> bool:
        """Reap children until something is reached. Return whether it was, in time and before a signal to stop."""
        end = time.monotonic() + seconds
        self._reap()
        while not reached():
            told = signal.sigtimedwait({signal.SIGCHLD, *stops}, max(0.0, end - time.monotonic()))
            if told is None:
                return False
            if told.si_signo != signal.SIGCHLD:
                self._stopped = True
                return False
            self._reap()
        return True

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._command:
                    self._code = os.waitstatus_to_exitcode(ended[1])
            return
        self._alone = True

    def _kill(self) -> list[str]:
        """Kill all processes that are left. Return those that the kernel does not end."""
        end = time.monotonic() + _LAST
        self._reap()
        while not self._alone and time.monotonic() < end:
            for pid in _descendants(os.getpid()):  # in each round, because they may have started others
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait(lambda: self._alone, 0.1)
        return [] if self._alone else [_named(pid) for pid in _descendants(os.getpid())]


def _spawn(command: Command) -> int:
    """Start a command in a session of its own, with the signals as a shell would leave them. Return its process."""
    environment = os.environ if command.environment is None else command.environment
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(command.log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    defaults = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
    try:
        return os.posix_spawnp(command.words[0], command.words, environment, file_actions=files, setsid=True,
                               setsigmask=(), setsigdef=defaults)
    except OSError as why:
        command.log.write_text(f"{command.words[0]}: {why.strerror}\n")
        return os.posix_spawnp("sh", ["sh", "-c", "exit 127"], environment)


def _descendants(of: int) -> Iterator[int]:
    """Return all processes below one, without those that have ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                children.setdefault(int(parent), []).append(int(entry.name) if state not in "ZX" else -int(entry.name))
    found = deque(children.get(of, []))
    while found:
        pid = found.popleft()
        found.extend(children.get(abs(pid), []))
        if pid > 0:
            yield pid


def _named(pid: int) -> str:
    """Return the command line of a process, and the test that started it if its environment names one."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    line = " ".join(words.replace(b"\0", b" ").decode(errors="replace").split())[:500] or f"process {pid}"
    variables = dict(each.decode(errors="replace").partition("=")[::2] for each in told)
    test = variables.get("PYTEST_CURRENT_TEST")
    return f"{line}, started by {test}" if test else line
