# SPDX-License-Identifier: Apache-2.0
"""Reads in the order of CUDA streams, and futures where there is no GPU.

    python examples/cufile_async.py FOLDER

Each of four streams reads its part of a file and then sums it: the sum is
queued right behind the read and sees its data, and no thread waits in between.
The route "cufile" lets libcufile do the reads when the streams get there; with
"auto" it does so only where it reaches the GPU directly, and elsewhere each read
is done when the call returns. Without CuPy the parts are NumPy arrays and the
reads run beside each other as futures.
"""

import os
import sys

import nebulaio

PARTS = 4
LENGTH = 1 << 20  # of a part, in elements of 8 bytes


def on_gpu(cupy, path: str, route: str) -> list:
    sums, moves = [], []
    with nebulaio.CuFile(path, route=route) as f:
        for part in range(PARTS):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                x = cupy.empty(LENGTH, dtype=cupy.int64)
                moves.append(f.raw_read_async(x, stream.ptr, file_offset=part * x.nbytes))
                sums.append(x.sum())  # behind the read, on the same stream
        for move in moves:
            assert move.check_bytes_done() == LENGTH * 8
    cupy.cuda.runtime.deviceSynchronize()
    return [int(s) for s in sums]


def on_host(numpy, path: str) -> list:
    parts = [numpy.empty(LENGTH, dtype=numpy.int64) for _ in range(PARTS)]
    with nebulaio.CuFile(path) as f:
        futures = [f.pread(x, file_offset=i * x.nbytes) for i, x in enumerate(parts)]
        for future in futures:
            assert future.get() == LENGTH * 8
    return [int(x.sum()) for x in parts]


def main(folder: str) -> None:
    import numpy

    path = os.path.join(folder, "numbers")
    numbers = numpy.arange(PARTS * LENGTH, dtype=numpy.int64)
    with nebulaio.CuFile(path, "w") as f:
        future = f.pwrite(numbers)
        print("writing", "is done" if future.done() else "goes on")
        future.get()
        f.sync()
    expected = [int(numbers[i * LENGTH : (i + 1) * LENGTH].sum()) for i in range(PARTS)]
    try:
        import cupy

        cupy.zeros(1)
    except Exception as why:
        print(f"no CuPy here ({type(why).__name__}): futures, in host memory")
        assert on_host(numpy, path) == expected
    else:
        for route in ("auto", "cufile"):
            try:
                assert on_gpu(cupy, path, route) == expected
                print(route, nebulaio.last_report()["routes"])
            except nebulaio.errors.UnsupportedError as why:
                print(f"{route}: {why}")
    print("sums", expected)
    os.remove(path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
