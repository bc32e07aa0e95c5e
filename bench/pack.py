#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the time of `nebulaio pack --format tar` with the time of GNU tar on the same files.

Each round drops the page cache, runs one of the two programs, and ends with `sync`, whose time counts. GNU tar does
not sync what it writes, and `nebulaio pack` does, so only the times with `sync` are comparable. The rounds alternate
between the programs. The program needs root to drop the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

SEED = 16


def make(folder: Path, files: int) -> None:
    """Write files of 1 to 64 KiB to folders of 1,000 files each. An existing data set of this size is kept."""
    done = folder.with_suffix(".complete")
    if done.exists() and done.read_text() == str(files):
        return
    shutil.rmtree(folder, ignore_errors=True)
    rng = random.Random(SEED)
    noise = rng.randbytes(1 << 20)
    for i in range(files):
        place = folder / f"{i // 1000:04d}"
        if i % 1000 == 0:
            place.mkdir(parents=True)
        size = rng.randint(1 << 10, 64 << 10)
        at = rng.randrange(len(noise) - size)
        (place / f"{i:08d}.jpg").write_bytes(noise[at : at + size])
    os.sync()
    done.write_text(str(files))


def drop() -> None:
    """Write dirty pages to disk and drop the page cache, with directories and inodes."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def timed(command: list[str]) -> tuple[float, float]:
    """Return the seconds of a command alone, and with the sync after it."""
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    alone = time.monotonic() - began
    os.sync()
    return alone, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nebulaio", default="build/nebulaio", help="the program to measure")
    folder = Path("/var/tmp/nebulaio-pack-bench")
    parser.add_argument("--folder", type=Path, default=folder, help="folder for the files")
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="number of cores that each program may use")
    parser.add_argument("--keep", action="store_true", help="keep the source files for the next run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    source, out = args.folder / "files", args.folder / "out"
    if not args.json:
        print(f"making {args.files} files below {source}", file=sys.stderr)
    args.folder.mkdir(parents=True, exist_ok=True)
    make(source, args.files)
    pin = ["taskset", "-c", f"0-{args.cores - 1}"]
    pack = [args.nebulaio, "pack", str(source), str(out / "pack"), "--format", "tar"]
    runs: dict[str, list[str]] = {
        "GNU tar": ["tar", "-C", str(source), "-cf", str(out / "all.tar"), "."],
        "nebulaio pack": [*pack, "--no-verify"],
        "nebulaio pack, verified": pack,
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, command in runs.items():
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            drop()
            times[name].append(timed(pin + command))
            if not args.json:
                print(f"{name}: {times[name][-1][0]:.1f} s, {times[name][-1][1]:.1f} s with sync", file=sys.stderr)
    shutil.rmtree(out, ignore_errors=True)
    if not args.keep:
        shutil.rmtree(args.folder)

    def median(name: str, which: int) -> float:
        return statistics.median(t[which] for t in times[name])

    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "tar": subprocess.run(["tar", "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0],
        "date": time.strftime("%Y-%m-%d"),
        "files": args.files,
        "rounds": args.rounds,
        "seconds": {n: [round(t[0], 2) for t in ts] for n, ts in times.items()},
        "seconds_with_sync": {n: [round(t[1], 2) for t in ts] for n, ts in times.items()},
        "ratio": {n: round(median(n, 0) / median("GNU tar", 0), 3) for n in runs},
        "ratio_with_sync": {n: round(median(n, 1) / median("GNU tar", 1), 3) for n in runs},
    }
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{result['machine']}, {result['tar']}, {args.files} files, median of {args.rounds}")
    print(f"{'':26}{'seconds':>10}{'ratio':>8}{'with sync':>12}{'ratio':>8}")
    for name in runs:
        print(
            f"{name:26}{median(name, 0):10.1f}{result['ratio'][name]:8.2f}"
            f"{median(name, 1):12.1f}{result['ratio_with_sync'][name]:8.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
