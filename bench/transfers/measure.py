# SPDX-License-Identifier: Apache-2.0
"""Measures one run of a client: wall time, CPU time of its processes, and whether every byte arrived."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PIECE = 4 << 20


@dataclass(frozen=True)
class Run:
    """One run of a client."""

    seconds: float
    cpu: float  # user and system seconds of the client and its children
    error: str = ""

    def as_dict(self) -> dict[str, float | str]:
        """Return the run as plain data."""
        return asdict(self)


def run(command: list[str], env: dict[str, str], log: Path, limit: float) -> Run:
    """Run the command and measure it. The CPU time includes the children that the command has waited for."""
    with open(log, "wb") as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        timer = threading.Timer(limit, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            timer.cancel()
        seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text(errors="replace").strip()
    error = f"exit code {process.returncode}: {text[-400:]}" if process.returncode else ""
    return Run(seconds, usage.ru_utime + usage.ru_stime, error)


def differs(source: Path, target: Path) -> str:
    """Compare a file or a folder with its copy byte by byte. Return "" or what differs."""
    if source.is_file():
        return _file_differs(source, target)
    wanted = sorted(p.relative_to(source) for p in source.rglob("*") if p.is_file())
    got = sorted(p.relative_to(target) for p in target.rglob("*") if p.is_file()) if target.is_dir() else []
    if wanted != got:
        return f"{len(got)} files arrived, expected {len(wanted)}"
    for name in wanted:
        if what := _file_differs(source / name, target / name):
            return what
    return ""


def _file_differs(source: Path, target: Path) -> str:
    if not target.is_file():
        return f"{target} does not exist"
    if source.stat().st_size != target.stat().st_size:
        return f"{target} has {target.stat().st_size} bytes, expected {source.stat().st_size}"
    with open(source, "rb") as one, open(target, "rb") as other:
        at = 0
        while piece := one.read(PIECE):
            if piece != other.read(PIECE):
                return f"{target} differs within {PIECE} bytes of offset {at}"
            at += len(piece)
    return ""
