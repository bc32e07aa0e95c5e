# SPDX-License-Identifier: Apache-2.0
"""nebulaio process on a real GPU: python3 -m pytest -m cuda tests/test_process_cuda.py

The tests need a driver of CUDA 12.8 (570) or newer, torch, and root or kernel.yama.ptrace_scope 0.
PROCESS_GIB sets the GPU memory of the suspended process, 8 GiB by default.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import serving

pytestmark = [pytest.mark.cuda, pytest.mark.whole_card]

GIB = 1 << 30
SIZE = int(os.environ.get("PROCESS_GIB", "8"))
PIECE = 256 << 20

# Holds pieces of random values on the GPU. At each "check" it makes the values again and counts those that differ.
HOLDER = """
import sys, torch
pieces = int(sys.argv[1])
def make(seed):
    g = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randint(-2**31, 2**31 - 1, (%d // 4,), dtype=torch.int32, device="cuda", generator=g)
held = [make(i) for i in range(pieces)]
torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    print(sum(int((make(i) != held[i]).sum()) for i in range(pieces)), flush=True)
""" % PIECE

# Loads a file again and again with nebulaio, and compares each result.
LOADER = """
import sys, torch
from nebulaio.safetensors import load_file
path = sys.argv[1]
want = {k: v.clone() for k, v in load_file(path, "cuda:0").items()}
rounds = 0
while True:
    got = load_file(path, "cuda:0")
    assert all(torch.equal(got[k], v) for k, v in want.items()), "other values"
    del got
    rounds += 1
    print(rounds, flush=True)
"""

# Shares GPU memory with a second process by CUDA IPC.
SHARER = """
import sys, torch, torch.multiprocessing as mp
def hold(queue, done):
    kept = queue.get()
    done.put(int(kept.sum()))
    done.get()
if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    queue, done = ctx.Queue(), ctx.Queue()
    other = ctx.Process(target=hold, args=(queue, done), daemon=True)
    other.start()
    held = torch.ones(1 << 20, dtype=torch.int32, device="cuda")
    queue.put(held)
    done.get()
    print("ready", flush=True)
    for line in sys.stdin:
        print(int(held.sum()), flush=True)
    other.kill()
"""


class Target:
    """A process that answers lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the process has ended"
        return line

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("check\n")
        self.process.stdin.flush()

    def ask(self) -> str:
        self.tell()
        return self.line()


@contextmanager
def started(folder: Path, script: str, *args: str) -> Iterator[Target]:
    path = folder / "target.py"
    path.write_text(script)
    process = subprocess.Popen(
        [sys.executable, str(path), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )
    try:
        yield Target(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children as well: the script cannot end them anymore
        process.wait()


def command(*args: str, code: int | None = 0, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([serving.program(), "process", *args], capture_output=True, text=True, **kwargs)
    if code is not None:
        assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def result(*args: str) -> Any:
    return json.loads(command(*args, "--json").stdout)


def used() -> int:
    """Used memory of the first GPU by nvidia-smi, in bytes."""
    out = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
        capture_output=True, text=True, check=True,
    )
    return int(out.stdout.split()[0]) << 20


def state(target: Target) -> str:
    return str(result("status", str(target.pid))["state"])


def test_suspend_frees_the_gpu_and_resume_brings_the_values_back(tmp_path: Path) -> None:
    with started(tmp_path, HOLDER, str(SIZE * GIB // PIECE)) as target:
        assert target.line() == "ready"
        pid = str(target.pid)
        before = used()
        status = result("status", pid)
        assert status["state"] == "running", status
        assert not [o for o in status["obstacles"] if o["blocks"]], status["obstacles"]
        out = result("suspend", pid)
        print(json.dumps(out, indent=1))
        assert out["state"] == "suspended"
        assert out["gpu_bytes"] >= SIZE * GIB
        assert used() <= before - SIZE * GIB
        assert out["resident_after"] - out["resident_before"] >= SIZE * GIB * 9 // 10
        assert state(target) == "suspended"
        again = command("suspend", pid, code=2)
        assert "suspended already" in again.stderr
        target.tell()  # it waits for the GPU now, and answers after the resumption
        back = result("resume", pid)
        print(json.dumps(back, indent=1))
        assert back["state"] == "running"
        assert back["gpu_bytes"] >= SIZE * GIB
        assert target.line() == "0", "values differ after the resumption"
        assert used() >= before - GIB
        command("resume", pid, code=2)
        # A second time, by the same process.
        result("suspend", pid)
        result("resume", pid)
        assert target.ask() == "0"


def test_suspend_while_a_load_runs(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    subprocess.run([serving.program(), "generate", "--shapes", "qwen3-0.6b", "--out", str(path)],
                   check=True, capture_output=True)
    with started(tmp_path, LOADER, str(path)) as target:
        for _ in range(3):
            rounds = int(target.line())
            before = used()
            out = result("suspend", str(target.pid))
            assert out["state"] == "suspended"
            assert used() < before
            assert result("resume", str(target.pid))["state"] == "running"
            # Lines that were printed before the suspension may still be in the pipe.
            while int(target.line()) < rounds + 3:
                pass
        assert target.process.poll() is None


def test_refusals(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for op in ("suspend", "resume", "status"):
        assert "no such process" in command(op, str(dead.pid), code=3).stderr
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        assert "does not use CUDA" in command("suspend", str(sleeper.pid), code=9).stderr
    finally:
        sleeper.kill()
        sleeper.wait()
    with started(tmp_path, HOLDER, "1") as target:
        assert target.line() == "ready"
        if os.geteuid() == 0:
            public = Path("/var/tmp") / f"nebulaio-process-{os.getpid()}"
            shutil.copy(serving.program(), public)
            public.chmod(0o755)
            try:
                refused = subprocess.run(
                    [str(public), "process", "suspend", str(target.pid)], capture_output=True, text=True, user=65534,
                    group=65534, extra_groups=[], cwd="/",
                )
            finally:
                public.unlink()
            assert refused.returncode == 4, refused
            assert "may not trace it" in refused.stderr
        assert state(target) == "running"
        assert target.ask() == "0"


def test_memory_that_is_shared_by_ipc_is_refused(tmp_path: Path) -> None:
    with started(tmp_path, SHARER) as target:
        assert target.line() == "ready"
        status = result("status", str(target.pid))
        print(json.dumps(status, indent=1))
        refused = command("suspend", str(target.pid), code=None)
        print(refused.stderr)
        if int(status["driver"].split(".")[0]) >= 610:
            pytest.skip("this GPU driver can suspend processes that share memory")
        assert refused.returncode != 0, refused.stdout
        assert state(target) == "running"
        assert target.ask() == str(1 << 20)


def test_an_interrupt_leaves_a_known_state(tmp_path: Path) -> None:
    with started(tmp_path, HOLDER, "8") as target:
        assert target.line() == "ready"
        pid = str(target.pid)
        process = subprocess.Popen([serving.program(), "process", "suspend", pid], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
        # The interrupt came before the command listened to it, in the middle, or too late.
        assert process.returncode in (0, 130, -signal.SIGINT), stderr
        if process.returncode == 0:
            assert state(target) == "suspended"
            result("resume", pid)
        assert state(target) == "running"
        assert target.ask() == "0"
