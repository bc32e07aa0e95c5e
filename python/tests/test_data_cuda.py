# SPDX-License-Identifier: Apache-2.0
"""nebulaio.data.Loader on a real GPU; off by default, run with -m cuda."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from typing import Any

import numpy
import pytest
from nebulaio.data import Loader, decode
from nebulaio.errors import InvalidError
from support import python
from test_data import archives, content

pytestmark = [pytest.mark.cuda, pytest.mark.torch]

ROWS, WIDTH = 64, 1 << 20
LONG = 1_000_000_000
"""Clock cycles of a kernel that runs for about half a second."""

torch: Any = None  # imported by a fixture, because the file is collected without torch too


@pytest.fixture(scope="module", autouse=True)
def import_torch() -> None:
    global torch
    torch = importlib.import_module("torch")
    assert torch.cuda.is_available()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 4 MiB with their number in each element."""
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    numpy.save(path, numpy.repeat(numpy.arange(ROWS, dtype=numpy.int32)[:, None], WIDTH, 1))
    return path


def make(source: Any, **options: Any) -> Loader:
    return Loader(source, **{"batch_size": 4, "device": "cuda:0", "format": "npy", "seed": 3, **options})


def test_values_on_the_card(rows: Path, tmp_path: Path) -> None:
    with make(rows) as loader:
        assert loader.device == "cuda:0"
        for batch in loader:
            (got,) = batch.values()
            assert got.shape == (4, WIDTH) and got.dtype == torch.int32 and got.device == torch.device("cuda:0")
            assert torch.equal(got, batch.indices.to("cuda", torch.int32)[:, None].expand(-1, WIDTH))
        assert loader.report()["device"]["id"] == "cuda:0"
    with make(archives(tmp_path / "tars"), format="auto", decode={"cls": decode.raw}) as loader:
        for batch in loader:
            values = batch["txt"]
            assert values.values.is_cuda and values.device_offsets.is_cuda and not values.offsets.is_cuda
            numbers = batch.indices.tolist()
            assert [part.cpu().numpy().tobytes() for part in values] == [content(n, "txt") for n in numbers]
            assert batch["cls"] == [content(n, "cls") for n in numbers]


@pytest.mark.parametrize("side", [False, True])
def test_memory_is_not_reused_under_a_kernel(rows: Path, side: bool) -> None:
    """A kernel waits on a stream and then reads a batch that has died meanwhile."""
    with make(rows, ahead=4 * WIDTH * 4 * 2) as loader:
        stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
        for _ in range(3):
            sums, wanted = [], []
            for batch in loader:
                (got,) = batch.values()
                with torch.cuda.stream(stream):
                    if len(sums) % 4 == 0:
                        torch.cuda._sleep(LONG)
                    sums.append((got.amin(1), got.amax(1)))
                if side:
                    batch.record_stream(stream)
                wanted.append(batch.indices)
                del got, batch  # the memory goes back, and the next batches are read
            torch.cuda.synchronize()
            for (low, high), numbers in zip(sums, wanted):
                assert low.tolist() == high.tolist() == numbers.tolist()


def test_tensors_outlive_the_loader(rows: Path) -> None:
    loader = make(rows)
    kept = [(batch.indices.tolist(), next(iter(batch.values()))) for batch in loader]
    loader.close()
    del loader
    gc.collect()
    with make(rows, seed=9) as other:
        for _ in other:
            pass
    for numbers, got in kept:
        assert got[:, -1].tolist() == got[:, 0].tolist() == numbers


def test_memory_is_bounded(rows: Path) -> None:
    """Ten epochs use no more memory than what is read ahead."""
    with make(rows, ahead=4 * WIDTH * 4 * 2) as loader:
        for _ in loader:
            pass
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        for _ in range(10):
            for batch in loader:
                batch["row"].sum()
        del batch
        torch.cuda.synchronize()
        assert before - torch.cuda.mem_get_info()[0] < 4 * 4 * WIDTH * 4


def test_arrays_of_cupy(rows: Path) -> None:
    cupy = pytest.importorskip("cupy")
    with make(rows, framework="cupy") as loader:
        for batch in loader:
            (got,) = batch.values()
            assert isinstance(got, cupy.ndarray) and got[:, 7].tolist() == batch.indices.tolist()
    with pytest.raises(InvalidError, match="CUDA memory only"):
        make(rows, framework="cupy", device="cpu")


def test_dataset_without_workers(rows: Path) -> None:
    with make(rows) as loader:
        feed = torch.utils.data.DataLoader(loader.as_iterable_dataset(), batch_size=None)
        numbers = [n for item in feed for n in item["row"][:, 0].tolist()]
    assert sorted(numbers) == list(range(ROWS))


def test_cuda_in_a_forked_child(rows: Path) -> None:
    code = """
import os, sys
from nebulaio.data import Loader
from nebulaio.errors import ClosedError, ForkError
loader = Loader(sys.argv[1], batch_size=4, device="cuda:0", format="npy")
batch = next(iter(loader))
child = os.fork()
if child == 0:
    try:
        Loader(sys.argv[1], batch_size=4, device="cuda:0", format="npy")
    except ForkError as error:
        assert "spawn" in str(error)
    else:
        os._exit(1)
    try:
        next(iter(loader))
    except ClosedError:
        os._exit(0)
    os._exit(2)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), sum(1 for _ in loader))
"""
    assert python(code, rows) == "0 15\n"


def test_exit_with_tensors_and_an_open_loader(rows: Path) -> None:
    code = """
import sys, torch
from nebulaio.data import Loader
loader = Loader(sys.argv[1], batch_size=4, device="cuda:0", format="npy")
kept = [batch["row"] for batch in loader]
torch.cuda._sleep(100_000_000)
total = sum(one.sum() for one in kept)
print("end")
"""
    assert python(code, rows) == "end\n"
