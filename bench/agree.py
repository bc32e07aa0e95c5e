#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `nebulaio bench` with programs that people already trust.

    agree.py fio DIR [--size 4G] [--pairs 7] --out DIR
        the same reads by fio and by nebulaio bench, in turn
    agree.py cuda CUDACOPY [--pairs 7] --out DIR
        copies by test/gpu/cudacopy.cu and by nebulaio bench ceilings

The two programs of a pair run directly one after the other, in alternating
order, so that a slow minute of the machine affects both. All figures are written
to --out as JSON and as a table. The comparison is run by hand, because no test
asserts a speed. The exit code is 1 if a median is outside the bound.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLI = os.environ.get("NEBULAIO_CLI") or str(Path(__file__).resolve().parent.parent / "bin" / "nebulaio")

# The same work for both programs. Each thread of fio reads its own part of one file
# once, as nebulaio's workers do.
CASES: list[dict[str, Any]] = [
    {"name": "sequential 1 MiB, direct, 4 threads", "pattern": "sequential", "block": 1 << 20, "workers": 4,
     "direct": True},
    {"name": "sequential 128 KiB, direct, 1 thread", "pattern": "sequential", "block": 128 << 10, "workers": 1,
     "direct": True},
    {"name": "sequential 1 MiB, page cache, 2 threads", "pattern": "sequential", "block": 1 << 20, "workers": 2,
     "direct": False},
    {"name": "random 4 KiB, direct, 8 threads", "pattern": "random", "block": 4 << 10, "workers": 8, "direct": True},
    {"name": "random 64 KiB, direct, 4 threads", "pattern": "random", "block": 64 << 10, "workers": 4, "direct": True},
    {"name": "random 4 KiB, direct, io_uring, 1 thread x 16", "pattern": "random", "block": 4 << 10, "workers": 1,
     "depth": 16, "direct": True},
]


def run(args: list[str]) -> str:
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(args)} failed with {done.returncode}:\n{done.stderr}{done.stdout[-2000:]}")
    return done.stdout


def by_fio(case: dict[str, Any], file: Path, seconds: float) -> float:
    size = file.stat().st_size // case["workers"] // case["block"] * case["block"]
    args = ["fio", "--output-format=json", "--name=agree", f"--filename={file}", "--readonly", "--thread",
            "--group_reporting",
            f"--rw={'read' if case['pattern'] == 'sequential' else 'randread'}", f"--bs={case['block']}",
            f"--numjobs={case['workers']}",
            f"--direct={int(case['direct'])}", f"--size={size}", f"--offset_increment={size}", "--time_based",
            f"--runtime={seconds}"]
    if case.get("depth"):
        args += ["--ioengine=io_uring", f"--iodepth={case['depth']}"]
    else:
        args += ["--ioengine=psync"]
    if not case["direct"]:
        args += ["--invalidate=0"]  # both read the file as it lies in the page cache
    job = json.loads(run(args))["jobs"][0]["read"]
    return job["bw_bytes"] / 1e9


def by_nebulaio(case: dict[str, Any], file: Path, seconds: float) -> float:
    args = [CLI, "bench", "read", str(file), "--json", "--pattern", case["pattern"], "--block-size", str(case["block"]),
            "--workers", str(case["workers"]), "--route", "direct" if case["direct"] else "buffered", "--time",
            f"{seconds}s", "--cache", "as-is",
            "--small-pages"]  # as fio's buffers are
    if case.get("depth"):
        args += ["--io", "uring", "--queue-depth", str(case["depth"])]
    return json.loads(run(args))["runs"][0]["gbps"]


def pairs(n: int, first: Callable[[], Any], second: Callable[[], Any]) -> list[tuple[Any, Any]]:
    out = []
    for i in range(n):
        if i % 2 == 0:
            a = first()
            b = second()
        else:
            b = second()
            a = first()
        out.append((a, b))
    return out


def summary(name: str, got: list[tuple[float, float]], bound: float) -> dict[str, Any]:
    ratios = [ours / theirs for theirs, ours in got]
    middle = statistics.median(ratios)
    return {
        "name": name, "pairs": len(got),
        "reference_gbps": statistics.median(t for t, _ in got), "nebulaio_gbps": statistics.median(o for _, o in got),
        "ratio_median": middle, "ratio_min": min(ratios), "ratio_max": max(ratios),
        "within": abs(middle - 1) <= bound, "reference": [t for t, _ in got], "nebulaio": [o for _, o in got],
    }


def fio(a: argparse.Namespace) -> list[dict[str, Any]]:
    out = []
    with tempfile.TemporaryDirectory(prefix="agree-", dir=a.dir) as tmp:
        file = Path(tmp) / "data.bin"
        run(["fio", "--name=make", f"--filename={file}", "--rw=write", "--bs=4M", f"--size={a.size}", "--direct=1",
             "--end_fsync=1", "--refill_buffers"])
        for case in CASES:
            if not case["direct"]:  # both then read memory: warm it once
                with file.open("rb") as f:
                    while f.read(4 << 20):
                        pass
            got = pairs(a.pairs, lambda: by_fio(case, file, a.seconds), lambda: by_nebulaio(case, file, a.seconds))
            out.append(summary(case["name"], got, 0.10))
            show(out[-1])
    return out


def cuda(a: argparse.Namespace) -> list[dict[str, Any]]:
    def plain() -> dict[str, list[float]]:
        return json.loads(run([a.program, "5"]))

    def ours() -> dict[str, list[float]]:
        with tempfile.TemporaryDirectory() as tmp:
            limits = json.loads(run([CLI, "bench", "ceilings", "--json", "--ceilings", f"{tmp}/c.json"]))["limits"]
        return {x["id"]: x["rounds"] for x in limits}

    got = pairs(a.pairs, plain, ours)
    out = []
    for way in ("h2d_pinned", "d2h_pinned"):
        out.append(summary(way, [(statistics.median(p[way]), statistics.median(o[way])) for p, o in got], 0.05))
        show(out[-1])
    return out


def show(s: dict[str, Any]) -> None:
    print(f"{s['name']:48} reference {s['reference_gbps']:7.3f}  nebulaio {s['nebulaio_gbps']:7.3f} GB/s  ratio {s['ratio_median']:.3f} "
          f"({s['ratio_min']:.3f} to {s['ratio_max']:.3f}, {s['pairs']} pairs)", flush=True)


def table(what: str, rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    lines = [f"# nebulaio bench against {what}", "", *(f"- {k}: {v}" for k, v in facts.items()), "",
             "| what | reference GB/s | nebulaio GB/s | ratio, median | smallest and largest | pairs |",
             "|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(
            f"| {r['name']} | {r['reference_gbps']:.3f} | {r['nebulaio_gbps']:.3f} | {r['ratio_median']:.3f} | "
                     f"{r['ratio_min']:.3f} to {r['ratio_max']:.3f} | {r['pairs']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    f = sub.add_parser("fio")
    f.add_argument("dir")
    f.add_argument("--size", default="4G")
    f.add_argument("--seconds", type=float, default=3)
    c = sub.add_parser("cuda")
    c.add_argument("program")
    for s in (f, c):
        s.add_argument("--pairs", type=int, default=7)
        s.add_argument("--out", type=Path, required=True)
    a = p.parse_args()
    if a.what == "fio" and not shutil.which("fio"):
        raise SystemExit("fio is not installed: apt install fio")
    facts = {"date": time.strftime("%Y-%m-%d"), "kernel": platform.release(), "cpus": os.cpu_count(),
             "nebulaio": run([CLI, "version"]).split()[2]}
    if a.what == "fio":
        facts["reference"] = run(["fio", "--version"]).strip()
        rows = fio(a)
    else:
        facts["reference"] = "test/gpu/cudacopy.cu: 16 copies of 256 MiB a round, timed by CUDA events"
        facts["gpu"] = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).strip()
        rows = cuda(a)
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / f"agree-{a.what}.json").write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")
    (a.out / f"agree-{a.what}.md").write_text(
        table({"fio": "fio", "cuda": "a plain CUDA program"}[a.what], rows, facts))
    return 0 if all(r["within"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
