# SPDX-License-Identifier: Apache-2.0
"""The parts of the benchmark's machine: the server, the device, the page cache, the bare programs."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import platform
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np


class Server:
    """`nebulaio server` with its door open, on its own port."""

    user, password = "bench-user", "bench-password"

    def __init__(self, binary: str, data: Path, *flags: str) -> None:
        self.binary, self.data, self.flags = binary, data, flags

    def __enter__(self) -> Server:
        env = {**os.environ, "NEBULAIO_ROOT_USER": self.user, "NEBULAIO_ROOT_PASSWORD": self.password,
               "NEBULAIO_GPUDIRECT_ENABLED": "true"}
        self.log = open(str(self.data) + ".log", "wb")
        self.process = subprocess.Popen([self.binary, "server", "--data", str(self.data), "--address", "127.0.0.1:0",
                                         "--console-address", "127.0.0.1:0", "--json", *self.flags],
                                        env=env, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the server did not start:\n" + Path(self.log.name).read_text())
        self.endpoint = json.loads(line)["endpoint"]
        return self

    def __exit__(self, *_) -> None:
        self.process.terminate()
        self.process.wait()

    def make_bucket(self, name: str) -> None:
        import peers

        with urllib.request.urlopen(peers.signed(self, "PUT", "/" + name)):
            pass

    def cpu(self) -> float:
        """Return the processor seconds of the server so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def warm_all(self) -> None:
        """Read every file of the store into the page cache, because files written past the page cache are not in it."""
        for p in (*(self.data / "data").rglob("*"), *(self.data / "tmp").rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # it may just be moving to its place
                if p.is_file():
                    warm(p)

    def largest_file(self, size: int) -> Path:
        """Return the file of an object of that size at its final path, to which the server moves it after the reply."""
        for _ in range(200):
            for p in (self.data / "data").rglob("*"):
                if p.is_file() and p.stat().st_size == size:
                    return p
            time.sleep(0.05)
        raise SystemExit(f"no file of {size} bytes in {self.data}")


def pattern(n: int) -> bytes:
    """Return bytes without repetition."""
    return np.random.default_rng(6).integers(0, 1 << 63, (n + 7) // 8, dtype=np.uint64).tobytes()[:n]


def warm(path: Path) -> None:
    with open(path, "rb", buffering=0) as f:
        buf = bytearray(4 << 20)
        while f.readinto(buf):
            pass


def drop_caches(path: Path) -> None:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def build_bare(here: Path, work: Path) -> str:
    out = work / "bare"
    subprocess.run(["cc", "-O2", "-o", str(out), str(here / "bare.c"), "-lpthread"], check=True)
    return str(out)


def plain(report) -> object:
    """Return a report as plain data."""
    for name in ("to_dict", "as_dict"):
        if hasattr(report, name):
            return getattr(report, name)()
    return dict(report)


class Host:
    """Host memory as a device."""

    name, model = "host", "host memory"

    def empty(self, n):
        return np.empty(n, np.uint8)

    pinned = empty

    def fill(self, buffer, data):
        buffer[:] = np.frombuffer(data, np.uint8)

    def zero(self, buffer):
        buffer[:] = 0

    def copy_in(self, buffer, source):
        ctypes.memmove(buffer.ctypes.data, source.ctypes.data, buffer.nbytes)

    def from_bytes(self, buffer, data):
        buffer[:] = np.frombuffer(data, np.uint8)

    def digest(self, buffer) -> str:
        return hashlib.blake2b(buffer).hexdigest()

    def same(self, one, other) -> bool:
        return bool(np.array_equal(one, other))


class Torch:
    """A GPU as a device, through torch."""

    def __init__(self, name: str) -> None:
        import torch

        self.torch = torch
        self.name = name if ":" in name else name + ":0"
        self.device = torch.device(self.name)
        self.model = torch.cuda.get_device_name(self.device)

    def empty(self, n):
        t = self.torch.empty(n, dtype=self.torch.uint8, device=self.device)
        self.torch.cuda.synchronize()
        return t

    def pinned(self, n):
        return self.torch.ones(n, dtype=self.torch.uint8).pin_memory()

    def fill(self, buffer, data):
        buffer.copy_(self.torch.from_numpy(np.frombuffer(data, np.uint8).copy()))
        self.torch.cuda.synchronize()

    from_bytes = fill

    def zero(self, buffer):
        buffer.zero_()
        self.torch.cuda.synchronize()

    def copy_in(self, buffer, source):
        buffer.copy_(source, non_blocking=True)
        self.torch.cuda.synchronize()

    def digest(self, buffer) -> str:
        return hashlib.blake2b(buffer.cpu().numpy()).hexdigest()

    def same(self, one, other) -> bool:
        return bool(self.torch.equal(one, other))


def device(name: str):
    if name == "auto":
        try:
            import torch

            name = "cuda:0" if torch.cuda.is_available() else "host"
        except ImportError:
            name = "host"
    return Host() if name == "host" else Torch(name)


def describe(dev) -> dict:
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "")
    return {"device": dev.name, "model": dev.model, "cpus": os.cpu_count(), "cpu": cpu,
            "kernel": platform.release().split("-")[0], "python": platform.python_version()}
