# SPDX-License-Identifier: Apache-2.0
"""Runs a server whose bucket has each sample as an object."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from .samples import COLUMN, Samples

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "door"))

import machine

BUCKET, PREFIX = "bench", "samples/"


@contextlib.contextmanager
def objects(samples: Samples, cli: str, folder: Path) -> Iterator[str]:
    """Yield the URL of the samples in a running server. The environment then has its address and keys.

    The objects are in the page cache, because the row that reads them is warm.
    """
    from nebulaio import GPUDirectClient

    folder.mkdir(parents=True, exist_ok=True)
    with machine.Server(cli, folder / "store") as server:
        server.make_bucket(BUCKET)
        keys = {"access_key": server.user, "secret_key": server.password}
        with contextlib.closing(GPUDirectClient(server.endpoint, door="require", device="host", **keys)) as client:

            def put(numbered: tuple[int, bytes]) -> None:
                n, content = numbered
                client.write_from_gpu(BUCKET, f"{PREFIX}{n:08d}.{COLUMN}", np.frombuffer(bytearray(content), np.uint8))

            with ThreadPoolExecutor(8) as pool:
                for _ in pool.map(put, enumerate(samples.contents())):
                    pass
        server.warm_all()
        os.environ.update({"NEBULAIO_ENDPOINT": server.endpoint, "NEBULAIO_ACCESS_KEY": server.user,
                           "NEBULAIO_SECRET_KEY": server.password})
        yield f"s3://{BUCKET}/{PREFIX}"
