# SPDX-License-Identifier: Apache-2.0
"""Programs that load a data set of objects with worker processes of torch's DataLoader."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import serving
from support import PACKAGE

BATCHES = 40
"""Objects below batches/: two batches of 32 and 8 for the loader of the block."""

# The block of GPUDirect's page, to the letter. Only the port is another.
BLOCK = """
import torch
from nebulaio.pytorch import GPUDirectDataset

class TrainingDataset(GPUDirectDataset):
    def __init__(self, bucket, prefix):
        super().__init__(
            endpoint="http://localhost:9000",
            bucket=bucket,
            prefix=prefix
        )

    def __getitem__(self, idx):
        # Data loaded directly to GPU via GPUDirect
        return self.load_to_gpu(f"batch_{idx}.pt")

dataset = TrainingDataset("training-data", "batches/")
loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=32,
    num_workers=4,
    pin_memory=False  # Not needed with GPUDirect
)
"""

EPOCHS = """
if __name__ == "__main__":
    import sys
    torch.multiprocessing.set_start_method(sys.argv[1])
    for epoch in range(2):
        values = []
        for batch in loader:
            assert batch.shape[1:] == (5, 7) and str(batch.device) == sys.argv[2], (batch.shape, batch.device)
            assert bool((batch == batch[:, :1, :1]).all())
            values += batch[:, 0, 0].tolist()
        assert values == list(range(40)), values
    print("two epochs on", dataset.device)
"""


def put_batches(torch: Any, server: serving.Server, bucket: str = "training-data") -> None:
    """Put the objects that the block loads. Object `i` holds a tensor of the number `i`."""
    for number in range(BATCHES):
        file = io.BytesIO()
        torch.save(torch.full((5, 7), number, dtype=torch.float32), file)
        server.put(bucket, f"batches/batch_{number}.pt", file.getvalue())


def run_block(folder: Path, server: serving.Server, rest: str, *arguments: object, before: str = "",
              **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the block and the code behind it as a program of its own. The keys are in the environment."""
    program = folder / "training.py"
    program.write_text(before + BLOCK.replace("http://localhost:9000", server.endpoint) + rest)
    keys = {"NEBULAIO_ACCESS_KEY": serving.ACCESS, "NEBULAIO_SECRET_KEY": serving.SECRET}
    # A spawned worker imports the program again, so it has to be a file.
    return subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONWARNINGS": "ignore", **keys, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
