# SPDX-License-Identifier: Apache-2.0
"""What a loss of power may leave of the files of a directory, from the system calls of the program that wrote them.

The rules are those of POSIX and no more: what was written to a file may be lost until the file is synced, and a name
that was made, moved or removed may be as before until its directory is synced.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_CALLS = (
    "openat,open,creat,write,pwrite64,pwritev,pwritev2,writev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,"
    "linkat,link,ftruncate,truncate,fallocate,copy_file_range,sendfile,io_uring_enter,syncfs,sync"
)
_WRITES = ("write", "pwrite64", "pwritev", "pwritev2", "writev", "ftruncate", "fallocate", "copy_file_range")
_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)\)\s+= (-?\d+)")
_BEGUN = re.compile(r"(\d+)\s+(\w+)\((.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"(\d+)\s+<\.\.\. (\w+) resumed>(.*)")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FILE = re.compile(r"\d+<([^>]*)>")


class Call(NamedTuple):
    """A system call that has succeeded. `begun` is the number of calls that had ended when it began."""

    name: str
    arguments: str
    begun: int


@dataclass(eq=False)
class Node:
    """A file: the calls that changed it, and how many of them are on the disk for sure. `number` counts files."""

    number: int
    changes: list[int] = field(default_factory=list)
    synced: int = 0


@dataclass
class Disk:
    """The files of one directory, as a program sees them and as they may be on the disk."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[tuple[int, str, Node | None]] = field(default_factory=list)
    made: int = 0
    syncs: int = 0  # of the directory

    def possible(self, name: str) -> set[Node | None]:
        """The files that a name may lead to after a loss of power; None means that there is no such name."""
        return {self.durable.get(name), *(node for _, changed, node in self.pending if changed == name)}

    def make(self, at: int, name: str) -> None:
        self.made += 1
        self.set(at, name, Node(self.made))

    def set(self, at: int, name: str, node: Node | None) -> None:
        if node is None:
            self.names.pop(name, None)
        else:
            self.names[name] = node
        self.pending.append((at, name, node))

    def sync(self, begun: int) -> None:
        """Make the names durable that were changed before a sync began."""
        for at, name, node in self.pending:
            if at < begun and node is not None:
                self.durable[name] = node
            elif at < begun:
                self.durable.pop(name, None)
        self.pending = [change for change in self.pending if change[0] >= begun]
        self.syncs += 1


def trace(command: list[str], folder: Path, log: Path, env: dict[str, str]) -> list[Call]:
    """Run a program and return its calls in the order in which they ended."""
    subprocess.run(["strace", "-f", "-y", "-s", "0", "-o", str(log), "-e", f"trace={_CALLS}", *command], check=True,
                   env=env, capture_output=True)
    calls: list[Call] = []
    begun: dict[str, tuple[str, str, int]] = {}
    for line in log.read_text(errors="replace").splitlines():
        if match := _BEGUN.match(line):
            begun[match[1]] = match[2], match[3], len(calls)
            continue
        if match := _RESUMED.match(line):
            name, first, at = begun.pop(match[1])
            line = f"{match[1]} {name}({first}{match[3]}"
        else:
            at = len(calls)
        found = _LINE.match(line)
        if found and int(found[4]) >= 0 and (str(folder) in found[3] or found[2] == "write"):
            calls.append(Call(found[2], found[3], at))
    return calls


def replay(calls: list[Call], folder: Path) -> Iterator[tuple[Call, str, Disk]]:
    """Yield each call with the name that it changes, and the disk after it. A name of "." is the directory itself."""
    disk = Disk()
    for at, call in enumerate(calls):
        texts = [os.path.abspath(text) for text in _TEXT.findall(call.arguments)]
        files = [path.partition(" (deleted)")[0] for path in _FILE.findall(call.arguments)]
        inside = [os.path.relpath(path, folder) for path in texts if path.startswith(f"{folder}/")]
        opened = [os.path.relpath(path, folder) for path in files if path == str(folder)
                  or path.startswith(f"{folder}/")]
        name = ""
        if call.name in ("openat", "open", "creat") and inside:
            name = inside[0]
            if "O_CREAT" in call.arguments and name not in disk.names:
                disk.make(at, name)
            elif "O_TRUNC" in call.arguments and name in disk.names:
                disk.names[name].changes.append(at)
        elif call.name in ("fsync", "fdatasync") and opened:
            name = opened[0]
            if name == ".":
                disk.sync(call.begun)
            elif name in disk.names:
                node = disk.names[name]
                node.synced = sum(change < call.begun for change in node.changes)
        elif call.name.startswith("rename") and len(inside) == 2:
            name = inside[1]
            disk.set(at, name, disk.names[inside[0]])
            disk.set(at, inside[0], None)
        elif call.name.startswith("unlink") and inside:
            name = inside[0]
            disk.set(at, name, None)
        elif call.name in _WRITES and opened:
            name = opened[-1] if call.name == "copy_file_range" else opened[0]
            if name in disk.names:
                disk.names[name].changes.append(at)
        elif call.name in ("io_uring_enter", "link", "linkat", "sendfile", "truncate") and (inside or opened):
            raise AssertionError(f"{call.name} is not in the model")
        elif not call.arguments.startswith("1<"):
            continue
        yield call, name, disk
