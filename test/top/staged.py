# SPDX-License-Identifier: Apache-2.0
"""Stage real situations on this machine and check what `nebulaio top` says about them.

usage: staged.py NEBULAIO [--workdir DIR] [--samples 20] [SITUATION...]

Each situation runs a load for a while: a busy disk, reads from the page cache, writers that wait for dirty pages, a
control group that its quota stops (as root), and nothing. `top --json` judges every second; all samples after the load
has settled must be right. Two more checks compare the rates of disks with iostat's arithmetic, and the processor time
that the view itself uses with 2 % of a processor. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import mmap
import os
import pathlib
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

MIB = 1 << 20
SETTLE = 3  # samples in which a load settles


class Skip(Exception):
    """The situation cannot be staged here; the text is the reason."""


def fork(work: Callable[[], None]) -> int:
    """Run a function in a child process until it is killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def made_file(path: pathlib.Path, size: int) -> pathlib.Path:
    """Make a file of random content, so that no layer below stores it as a hole."""
    block = os.urandom(8 * MIB)
    with path.open("wb") as f:
        for _ in range(size // len(block)):
            f.write(block)
        f.flush()
        os.fsync(f.fileno())
    return path


@contextlib.contextmanager
def busy_disk(work: pathlib.Path) -> Iterator[str]:
    path = made_file(work / "cold", 1024 * MIB)

    def read() -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        buf = mmap.mmap(-1, 256 << 10)
        while True:
            os.preadv(fd, [buf], random.randrange(0, 1024 * MIB // len(buf)) * len(buf))

    pids = [fork(read) for _ in range(8)]
    try:
        yield "storage-bound/busy disk"
    finally:
        end(pids)
        path.unlink()


@contextlib.contextmanager
def cached_reads(work: pathlib.Path) -> Iterator[str]:
    path = made_file(work / "warm", 256 * MIB)

    def read() -> None:
        fd = os.open(path, os.O_RDONLY)
        buf = mmap.mmap(-1, 8 * MIB)
        while True:
            for at in range(0, 256 * MIB, len(buf)):
                os.preadv(fd, [buf], at)

    pids = [fork(read) for _ in range(os.cpu_count() or 1)]
    try:
        yield "cpu-bound/page cache copies"
    finally:
        end(pids)
        path.unlink()


@contextlib.contextmanager
def dirty_pages(work: pathlib.Path) -> Iterator[str]:
    limit = next(int(line.split()[1]) for line in pathlib.Path("/proc/vmstat").read_text().splitlines()
                 if line.startswith("nr_dirty_threshold "))
    size = 2 * limit * mmap.PAGESIZE
    space = os.statvfs(work)
    if space.f_bavail * space.f_frsize < 2 * size:
        raise Skip(f"needs {2 * size >> 30} GiB of free disk space in {work}")
    paths = [work / f"dirty{i}" for i in range(2)]

    def write(path: pathlib.Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        block = os.urandom(4 * MIB)
        while True:
            for at in range(0, size // len(paths), len(block)):
                os.pwrite(fd, block, at)

    pids = [fork(lambda path=path: write(path)) for path in paths]  # type: ignore[misc]
    time.sleep(10)  # until the page cache is full of dirty pages
    try:
        yield "storage-bound/dirty pages"
    finally:
        end(pids)
        for path in paths:
            path.unlink()


def make_group(quota_us: int) -> pathlib.Path:
    """Make a control group with a CPU quota, of version 2 or 1."""
    name = f"nebulaio-top-{os.getpid()}"
    two, one = pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/cpu")
    try:
        control = two / "cgroup.subtree_control"
        if control.exists() and "cpu" in control.read_text().split():
            (two / name).mkdir()
            (two / name / "cpu.max").write_text(f"{quota_us} 100000")
            return two / name
        if (one / "cpu.cfs_quota_us").exists():
            (one / name).mkdir()
            (one / name / "cpu.cfs_quota_us").write_text(str(quota_us))
            return one / name
    except OSError as err:
        raise Skip(f"control groups cannot be made here: {err}") from err
    raise Skip("there is no controller of processors")


@contextlib.contextmanager
def throttled(_work: pathlib.Path) -> Iterator[str]:
    group = make_group(20_000)

    def spin() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        while True:
            pass

    pids = [fork(spin)]
    try:
        yield "cpu-bound/cgroup throttling"
    finally:
        end(pids)
        time.sleep(0.2)  # the kernel empties the group a little later
        group.rmdir()


@contextlib.contextmanager
def nothing(_work: pathlib.Path) -> Iterator[str]:
    busy = float(pathlib.Path("/proc/loadavg").read_text().split()[0])
    if busy > 0.5 * (os.cpu_count() or 1):
        raise Skip(f"other programs run: the load is {busy}")
    yield "nothing stands out/"


SITUATIONS = {"disk": busy_disk, "cache": cached_reads, "dirty": dirty_pages, "throttled": throttled,
              "nothing": nothing}


def samples(cli: str, count: int, interval: str = "1s") -> list[dict[str, Any]]:
    out = subprocess.run([cli, "top", "--json", "--samples", str(count), "--interval", interval, "--server", "off"],
                         check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def stage(cli: str, name: str, work: pathlib.Path, count: int) -> bool:
    with SITUATIONS[name](work) as want:
        got = samples(cli, count + SETTLE)[SETTLE:]
    said = [f"{s['verdict']['bound']}/{s['verdict'].get('cause', '')}" for s in got]
    right = said.count(want)
    print(f"{name}: {right} of {len(said)} samples say {want}; {got[-1]['verdict']['why']}")
    for other in sorted({s for s in said if s != want}):
        print(f"  {said.count(other)} say {other}")
    return right == len(said)


def diskstats() -> dict[str, list[int]]:
    return {w[2]: [int(x) for x in w[3:14]] for w in
            (line.split() for line in pathlib.Path("/proc/diskstats").read_text().splitlines())}


def compare(cli: str, work: pathlib.Path, seconds: int = 10) -> bool:
    """Compare a sample of ten seconds with what iostat computes from /proc/diskstats over the same time."""
    with busy_disk(work):
        time.sleep(2)
        proc = subprocess.Popen([cli, "top", "--json", "--samples", "1", "--interval", f"{seconds}s", "--server",
                                 "off"],
                                stdout=subprocess.PIPE, text=True)
        before, began = diskstats(), time.monotonic()
        text, _ = proc.communicate()
        after, took = diskstats(), time.monotonic() - began
    good = True
    for disk in json.loads(text)["disks"]:
        d = [b - a for a, b in zip(before[disk["name"]], after[disk["name"]], strict=True)]
        if d[0] < 100:
            continue
        iostat = {"read_rate": d[2] * 512 / took, "read_iops": d[0] / took, "read_latency": d[3] / d[0] / 1e3,
                  "depth": d[10] / took / 1e3, "busy": d[9] / took / 1e3}
        for key, want in iostat.items():
            off = disk[key] / want - 1
            good = good and abs(off) <= 0.05
            print(f"{disk['name']} {key}: top {disk[key]:.6g}, iostat's arithmetic {want:.6g}, {off:+.1%}")
    return good


def own_cost(cli: str, seconds: int = 20) -> bool:
    """Run the view on a terminal and count its processor time."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.execv(cli, [cli, "top"])
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        if select.select([fd], [], [], 0.2)[0]:
            os.read(fd, 1 << 16)
    os.write(fd, b"q")
    with contextlib.suppress(OSError):
        while os.read(fd, 1 << 16):
            pass
    _, _, used = os.wait4(pid, 0)
    share = (used.ru_utime + used.ru_stime) / seconds
    print(f"own cost: {share:.2%} of a processor over {seconds} s, start included")
    return share < 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cli")
    parser.add_argument("what", nargs="*",
                        help="disk, cache, dirty, throttled, nothing, iostat or cost; all by default")
    parser.add_argument("--workdir", default="/var/tmp")
    parser.add_argument("--samples", type=int, default=20)
    args = parser.parse_intermixed_args()
    checks = [*SITUATIONS, "iostat", "cost"]
    failed = []
    for name in args.what or checks:
        if name not in checks:
            parser.error(f"{name!r} is not a check; expected {', '.join(checks)}")
        with tempfile.TemporaryDirectory(dir=args.workdir, prefix="top-") as work:
            try:
                if name == "iostat":
                    good = compare(args.cli, pathlib.Path(work))
                elif name == "cost":
                    good = own_cost(args.cli)
                else:
                    good = stage(args.cli, name, pathlib.Path(work), args.samples)
            except Skip as why:
                print(f"{name}: skipped: {why}")
                continue
            if not good:
                failed.append(name)
    if failed:
        print(f"wrong: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
