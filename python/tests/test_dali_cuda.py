# SPDX-License-Identifier: Apache-2.0
"""GPUDirectReader hands arrays of a real GPU to DALI; off by default, run with -m cuda where DALI is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import serving
from test_data_parts import npy

pytest.importorskip("nvidia.dali", reason="DALI is not installed")
pytestmark = [pytest.mark.cuda, pytest.mark.dali]

COUNT, SIZE = 50, 300_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    random = numpy.random.default_rng(1)
    with serving.serving(tmp_path_factory.mktemp("server"), buckets=("bucket",)) as running:
        for number in range(COUNT):
            running.put("bucket", f"bytes/{number:02}", bytes([number]) + random.bytes(SIZE - 1 + number))
            running.put("bucket", f"arrays/{number:02}.npy", npy(numpy.full((300, 250), number, numpy.float32)))
        yield running


def pipeline(server: serving.Server, prefix: str, device: str | None, memory: str, **options: Any) -> Any:
    from nebulaio import _device_arrays, dali
    from nvidia.dali import pipeline_def

    module = pytest.importorskip(memory)
    made = {"torch": _device_arrays.TorchMemory, "cupy": _device_arrays.CupyMemory}[memory]

    @pipeline_def
    def training_pipeline() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_device_arrays, "cuda_memory", lambda number: made(module, number))
            images = dali.GPUDirectReader("bucket", prefix, endpoint=server.endpoint, **server.keys, device=device,
                                          **options)
        return images

    return training_pipeline(batch_size=8, num_threads=2, device_id=0)


def epoch(pipe: Any) -> list[Any]:
    found = []
    while True:
        try:
            (output,) = pipe.run()
        except StopIteration:
            pipe.reset()
            return found
        assert "GPU" in type(output).__name__
        found += [numpy.array(sample) for sample in output.as_cpu()]


@pytest.mark.parametrize("memory", ["torch", "cupy"])
@pytest.mark.parametrize("read_ahead", [0, 3])
@pytest.mark.parametrize("device", ["gpu", None])
def test_device_arrays(server: serving.Server, memory: str, read_ahead: int, device: str | None) -> None:
    reports: list[Any] = []
    pipe = pipeline(server, "bytes/", device, memory, read_ahead=read_ahead, report=reports.append)
    for _ in range(2):
        found = epoch(pipe)
        assert [int(one[0]) for one in found] == list(range(COUNT))
        assert all(one.tobytes() == server.get("bucket", f"bytes/{number:02}") for number, one in enumerate(found))
    assert {one["device"]["id"] for one in reports} == {"cuda:0"}
    arrays = epoch(pipeline(server, "arrays/", device, memory, read_ahead=read_ahead))
    assert all(one.shape == (300, 250) and (one == number).all()
               for number, one in enumerate(arrays)) and len(arrays) == COUNT


def test_the_block_with_an_iterator_of_torch(server: serving.Server) -> None:
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    pipe = pipeline(server, "arrays/", None, "torch", pad_last_batch=True, random_shuffle=True)
    running = DALIGenericIterator(pipe, ["data"], auto_reset=True)
    for _ in range(2):
        seen: set[float] = set()
        for (batch,) in running:
            assert str(batch["data"].device) == "cuda:0" and bool((batch["data"] == batch["data"][:, :1, :1]).all())
            seen |= set(batch["data"][:, 0, 0].tolist())
        assert seen == set(map(float, range(COUNT)))
