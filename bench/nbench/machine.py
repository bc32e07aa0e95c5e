# SPDX-License-Identifier: Apache-2.0
"""Collects facts about the measured machine: hardware, kernel, driver and versions.

A figure means nothing without its machine, so every results file contains these facts. Unknown facts are left empty,
never guessed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

Facts = dict[str, object]


def facts(workdir: str | os.PathLike[str], cli: str | None = None) -> Facts:
    """Return everything about this machine that the figures depend on."""
    return {
        "date": now(),
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "ram_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "thp": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "file_system": file_system(workdir),
        "gpu": gpu(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "safetensors": version("safetensors"),
        "numpy": version("numpy"),
        "nebulaio": version("nebulaio"),
        "nebulaio_cli": cli_version(cli),
    }


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def version(package: str) -> str:
    """Return the version of an installed or importable package, or "" if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
    try:
        return str(getattr(__import__(package), "__version__", "unknown"))
    except Exception:  # noqa: BLE001  a package that breaks on import is as good as absent here
        return ""


def cli_version(cli: str | None) -> str:
    """Return the version that the command-line program prints."""
    return _command([cli, "version"]).splitlines()[0] if cli and _command([cli, "version"]) else ""


def cpu_model() -> str:
    """Return the name of the processor."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model", "CPU implementer")):
            return line.partition(":")[2].strip()
    return platform.processor()


def gpu() -> Facts:
    """Return name, driver, memory and PCIe link of the first GPU; empty without a GPU."""
    if shutil.which("nvidia-smi") is None:
        return {}
    fields = ("name", "driver_version", "memory.total", "pcie.link.gen.max", "pcie.link.gen.current",
              "pcie.link.width.max", "pcie.link.width.current")
    found: Facts = {}
    for field in fields:  # one by one: an unknown field makes nvidia-smi refuse all of them
        line = _command(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", "-i", "0"])
        if line and "N/A" not in line and "not" not in line.lower():
            found[field] = line.splitlines()[0].strip()
    return found


def file_system(path: str | os.PathLike[str]) -> str:
    """Return type, device and options of the file system of a path."""
    best = ("", "")
    real = os.path.realpath(path)
    for line in _read("/proc/self/mounts").splitlines():
        parts = line.split(" ")
        if len(parts) < 4:
            continue
        point = parts[1].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, f"{parts[2]} on {parts[0]} ({parts[3]})")
    return best[1]


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _command(arguments: list[str]) -> str:
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
