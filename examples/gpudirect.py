#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves an object between a NebulaIO server and memory, and prints which way the bytes took.

    nebulaio server --data ./data            with NEBULAIO_GPUDIRECT_ENABLED=true
    examples/gpudirect.py BUCKET [KEY]       endpoint and keys from NEBULAIO_ENDPOINT,
                                             NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY

With CuPy and a GPU the memory is the GPU's, else NumPy's. The bucket exists.
"""

import asyncio
import sys

from nebulaio import GPUDirectClient


def arrays():
    """CuPy where it finds a GPU, else NumPy."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        return cupy
    except Exception:  # not installed, or no driver
        import numpy

        return numpy


def main() -> None:
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: gpudirect.py BUCKET [KEY]   (the bucket exists)")
    bucket, key = sys.argv[1], (sys.argv[2:] or ["example.bin"])[0]
    xp = arrays()
    with GPUDirectClient() as client:
        print(client, "door:", client.status().get("door") or client.status()["refusal"]["reason"])

        source = xp.arange(4 << 20, dtype=xp.float32)
        report = client.write_from_gpu(bucket, key, source)
        print(f"written from {xp.__name__}: {report}")

        target = xp.zeros_like(source)
        report = client.read_to_gpu(bucket, key, target)
        print(f"read to {xp.__name__}:      {report}")
        for refusal in report.refusals:
            print(f"  a faster way that was not open: {refusal['what']}: {refusal['reason']}")
        assert (target == source).all()

        async def halves() -> None:
            half = target.nbytes // 2
            first = client.async_read(bucket, key, target, 0, half)
            second = client.async_read(bucket, key, target, half, buffer_offset=half)
            await asyncio.gather(first, second)

        target[:] = 0
        asyncio.run(halves())
        assert (target == source).all()
        print("the same by two reads at once, awaited;", [entry.key for entry in client.list(bucket, key)])


if __name__ == "__main__":
    main()
