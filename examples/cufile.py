# SPDX-License-Identifier: Apache-2.0
"""kvikio's example, by changing one import: arrays to a file and back.

    pip install ./python numpy        # and cupy, on a machine with a GPU
    python examples/cufile.py FOLDER

The safetensors users who asked for GPUDirect Storage were shown kvikio.CuFile
with a CuPy array. The calls below are the same; only the import has changed.
Without a GPU the arrays are NumPy's, in host memory.
"""

import os
import sys

import nebulaio as kvikio  # was: import kvikio


def arrays():
    """CuPy where it works, else NumPy."""
    try:
        import cupy

        cupy.zeros(1)
        return cupy
    except Exception as why:
        import numpy

        print(f"no CuPy here ({type(why).__name__}: {why}): NumPy, in host memory")
        return numpy


def main(folder: str) -> None:
    xp = arrays()
    path = os.path.join(folder, "test-file")
    a = xp.arange(10_000_000)

    f = kvikio.CuFile(path, "w")
    print("written", f.write(a), "bytes")
    f.close()

    b = xp.empty_like(a)
    f = kvikio.CuFile(path, "r")
    f.read(b)
    f.close()
    assert (a == b).all()

    # As a context manager, and two reads at once.
    c = xp.empty_like(a)
    with kvikio.CuFile(path, "r") as f:
        half = len(c) // 2
        first = f.pread(c[:half])
        second = f.pread(c[half:], file_offset=c[:half].nbytes)
        print("read", first.get(), "and", second.get(), "bytes")
    assert (a == c).all()

    # What kvikio does not tell: which way the bytes came.
    report = kvikio.last_report()
    for route in report["routes"]:
        print(f"  {route['bytes']} bytes by {route['route']} to {report['device']['id']}")
    for refusal in report["refusals"]:
        print(f"  {refusal['what']} was not taken: {refusal['reason']} (fix: {refusal.get('fix', '-')})")
    os.remove(path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
