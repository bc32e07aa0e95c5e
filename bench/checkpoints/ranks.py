# SPDX-License-Identifier: Apache-2.0
"""Saves a state in parts, by a world of gloo processes.

Each rank holds its rows of every tensor as a DTensor in host memory. Run as `python -m checkpoints.ranks TASK`, with
the task in JSON, once for each rank. `save` starts the world.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from .states import STEP, Spec, parts

BENCH = Path(__file__).resolve().parents[1]
KINDS = ("stock", "ours")  # the writers: torch's FileSystemWriter, and nebulaio.torch.StorageWriter


class WorldError(Exception):
    """A rank of a world failed."""


def save(spec: Spec, wanted: dict[str, Path], timeout: float) -> dict[str, float]:
    """Save the state once with each wanted writer, and return the seconds of each save.

    `wanted` has the directory for each of `KINDS`. The files of stock torch may still be in the page cache alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        task = {"size": spec.size, "ranks": spec.ranks, "store": f"{folder}/store",
                "wanted": {kind: str(path) for kind, path in wanted.items()}}
        ranks = [_start(task, rank, Path(folder)) for rank in range(spec.ranks)]
        deadline = time.monotonic() + timeout
        try:
            for rank, process in enumerate(ranks):
                if process.wait(max(deadline - time.monotonic(), 1)) != 0:
                    raise WorldError(f"rank {rank}: {_tail(Path(folder, f'{rank}.err'))}")
        except subprocess.TimeoutExpired:
            raise WorldError(f"the world of {spec.ranks} ranks has not saved after {timeout:.0f} s") from None
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        found: dict[str, float] = json.loads(Path(folder, "0.out").read_text().splitlines()[-1])
        return found


def _start(task: dict[str, Any], rank: int, folder: Path) -> subprocess.Popen[bytes]:
    paths = [str(BENCH), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": ":".join(paths), "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "checkpoints.ranks", json.dumps({**task, "rank": rank})]
    with open(folder / f"{rank}.out", "wb") as out, open(folder / f"{rank}.err", "wb") as err:
        return subprocess.Popen(command, env=env, stdout=out, stderr=err)


def _tail(path: Path) -> str:
    return " ".join(path.read_text(errors="replace").split())[-400:]


def work(task: dict[str, Any]) -> dict[str, float]:
    """Save the part of one rank, and return the seconds of each save."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    warnings.simplefilter("ignore")
    spec, rank = Spec(task["size"], task["ranks"]), task["rank"]
    dist.init_process_group("gloo", init_method=f"file://{task['store']}", rank=rank, world_size=spec.ranks)
    mesh = init_device_mesh("cpu", (spec.ranks,))
    model = {
        name: DTensor.from_local(
            mine, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=strides(shape)
        )
        for name, shape, mine in parts(spec, rank)
    }
    seconds = {}
    for kind, path in task["wanted"].items():
        dist.barrier()
        start = time.perf_counter()
        dcp.save({"model": model, "step": STEP}, storage_writer=writer(kind, path))
        seconds[kind] = time.perf_counter() - start
    dist.destroy_process_group()
    return seconds


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return (shape[1], 1) if len(shape) == 2 else (1,)


def writer(kind: str, path: str) -> Any:
    """Return the writer of a kind. That of stock torch syncs nothing: these files need not be durable."""
    if kind == "ours":
        from nebulaio.torch import StorageWriter

        return StorageWriter(path)
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")

    return dcp.FileSystemWriter(path, sync_files=False)


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1]))), flush=True)
