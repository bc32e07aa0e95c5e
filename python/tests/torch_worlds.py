# SPDX-License-Identifier: Apache-2.0
"""Worlds of several ranks on gloo for tests, each rank a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support import PACKAGE, PATIENCE

BEGIN = """
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import nebulaio, nebulaio.torch
rank, world = int(sys.argv[1]), int(sys.argv[2])
folder = sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=world)
"""

END = """
dist.destroy_process_group()
"""


def run_world(code: str, folder: Path, world: int = 2, timeout: float = PATIENCE, end: str = END,
              **environment: str) -> list[str]:
    """Run code on each rank, with `rank`, `world` and `folder` set, and return what each has printed.

    Fails the test when a rank fails or takes longer than timeout. A rank that hangs is killed.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as meeting:
        path = os.pathsep.join([str(PACKAGE), str(PACKAGE / "tests"), os.environ.get("PYTHONPATH", "")])
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", BEGIN + code + end, str(rank), str(world), str(folder),
                 os.path.join(meeting, "here")],
                env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1",
                     **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd="/",
            )
            for rank in range(world)
        ]
        said = []
        try:
            for rank, process in enumerate(ranks):
                out, errors = process.communicate(timeout=timeout)
                assert process.returncode == 0, f"rank {rank} exits with {process.returncode}\n{out}\n{errors[-4000:]}"
                said.append(out)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        return said
