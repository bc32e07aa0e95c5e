# SPDX-License-Identifier: Apache-2.0
"""Compare `nebulaio top` with nvidia-smi while a GPU works, and check what it says limits.

usage: top.py NEBULAIO [--seconds 20] [--gpu 0]

Two loads run one after the other: copies from pinned memory to the GPU, and multiplications of matrices. Beside each,
`top --json` and `nvidia-smi dmon` read the GPU every second. The means of utilisation, used memory and PCIe rates must
agree within 5 %, and each second must have the right verdict. Needs torch and nvidia-smi. The last line is a JSON object
with all figures; the exit code is 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

SETTLE = 3  # seconds in which a load settles
WITHIN = 0.05
IDLE_RATE = 50e6  # bytes per second below which a PCIe rate is noise

LOAD = """
import sys, time, torch
kind, gpu = sys.argv[1], int(sys.argv[2])
torch.cuda.set_device(gpu)
moved, began, said = 0, time.time(), time.time()
if kind == "copies":
    src = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    dst = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
else:
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)
print("ready", flush=True)
while True:
    if kind == "copies":
        dst.copy_(src, non_blocking=True)
        torch.cuda.synchronize()
        moved += src.numel()
    else:
        for _ in range(50):
            torch.mm(a, a, out=out)
        torch.cuda.synchronize()
    if time.time() - said >= 1:
        print(moved / (time.time() - began), flush=True)
        moved, began, said = 0, time.time(), time.time()
"""


def smi_rows(text: str) -> list[dict[str, float]]:
    """Parse the table of nvidia-smi dmon. Its first line names the columns; "-" is unknown."""
    names: list[str] = []
    rows = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            names = names or words[1:]
        elif len(words) == len(names):
            rows.append({n: float(w) for n, w in zip(names, words, strict=True) if w != "-"})
    return rows


def memory_used(gpu: int) -> float:
    out = subprocess.run(["nvidia-smi", f"--id={gpu}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                         check=True, capture_output=True, text=True).stdout
    return float(out) * (1 << 20)


def beside(cli: str, kind: str, gpu: int, seconds: int) -> dict[str, Any]:
    """Run a load, and read the GPU with top and nvidia-smi at the same time."""
    load = subprocess.Popen([sys.executable, "-c", LOAD, kind, str(gpu)], stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    try:
        if load.stdout.readline().strip() != "ready":
            raise SystemExit(f"top.py: the load {kind} did not start")
        time.sleep(SETTLE)
        top = subprocess.Popen([cli, "top", "--json", "--samples", str(seconds), "--server", "off"],
                               stdout=subprocess.PIPE,
                               text=True)
        smi = subprocess.Popen(["nvidia-smi", "dmon", "-i", str(gpu), "-s", "ut", "-d", "1", "-c", str(seconds)],
                               stdout=subprocess.PIPE, text=True)
        lines, _ = top.communicate()
        table, _ = smi.communicate()
        used = memory_used(gpu)
    finally:
        load.terminate()
        told, _ = load.communicate()
    return {"top": [json.loads(line) for line in lines.splitlines()], "smi": smi_rows(table), "memory": used,
            "told": [float(w) for w in told.split()]}


def judge(kind: str, want: str, gpu: int, r: dict[str, Any]) -> dict[str, Any]:
    """Compare the means, and count the right verdicts."""
    ours = [g for s in r["top"] for g in s["gpus"] if g["index"] == gpu]

    def mean(rows: list[dict[str, float]], name: str, unit: float = 1.0) -> float:
        values = [row[name] * unit for row in rows if name in row]
        return statistics.fmean(values) if values else -1.0

    pairs = {
        "utilisation": (mean(ours, "busy"), mean(r["smi"], "sm", 0.01)),
        "memory used": (mean(ours[-1:], "memory_used"), r["memory"]),
        "PCIe to the GPU": (mean(ours, "pcie_receive_rate"), mean(r["smi"], "rxpci", 1e6)),
        "PCIe from the GPU": (mean(ours, "pcie_send_rate"), mean(r["smi"], "txpci", 1e6)),
    }
    figures = {}
    for name, (top, smi) in pairs.items():
        noise = name.startswith("PCIe") and max(top, smi) < IDLE_RATE
        off = 0.0 if noise else abs(top - smi) / max(abs(smi), 1e-9)
        # nvidia-smi prints whole percents and MB/s.
        good = noise or off <= WITHIN or name == "utilisation" and abs(top - smi) <= 0.01
        figures[name] = {"top": top, "nvidia-smi": smi, "off": off, "good": good}
        print(f"{kind}: {name}: top {top:.4g}, nvidia-smi {smi:.4g}, {off:.1%} {'' if good else 'WRONG'}")
    said = [s["verdict"]["bound"] for s in r["top"]]
    own = statistics.fmean(s["own_cpu"] for s in r["top"])
    payload = statistics.fmean(r["told"]) if r["told"] else 0.0
    print(f"{kind}: {said.count(want)} of {len(said)} samples say {want}: {r['top'][-1]['verdict']['why']}")
    print(f"{kind}: the load moved {payload:.4g} bytes per second; top used {own:.2%} of a processor")
    good = said.count(want) == len(said) and own < 0.02 and all(f["good"] for f in figures.values())
    return {"figures": figures, "right": said.count(want), "of": len(said), "payload": payload, "own_cpu": own,
            "good": good}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cli")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--gpu", type=int, default=0)
    args = parser.parse_args()
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi counts
    result = {}
    for kind, want in (("copies", "copy-bound"), ("kernels", "compute-bound")):
        result[kind] = judge(kind, want, args.gpu, beside(args.cli, kind, args.gpu, args.seconds))
    print(json.dumps(result))
    return 0 if all(r["good"] for r in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
