# SPDX-License-Identifier: Apache-2.0
"""GPUDirectDataset on a real GPU; off by default, run with -m cuda."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
import serving
from nebulaio.errors import CorruptError, DeviceError, UnsupportedError
from support import random_entry, write
from torch_loaders import EPOCHS, put_batches, run_block

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, torch: Any) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server"), buckets=("bucket", "training-data")) as running:
        put_batches(torch, running)
        yield running


def dataset(server: serving.Server, prefix: str, **options: Any) -> Any:
    from nebulaio.pytorch import GPUDirectDataset

    return GPUDirectDataset("bucket", prefix, endpoint=server.endpoint, **server.keys, **options)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_block_with_four_workers_and_two_epochs(tmp_path: Path, server: serving.Server, method: str) -> None:
    done = run_block(tmp_path, server, EPOCHS, method, "cuda:0")
    assert (done.returncode, done.stdout) == (0, "two epochs on cuda:0\n"), done.stderr[-3000:]


FORKED = """
if __name__ == "__main__":
    import sys, time
    from nebulaio.errors import ForkError
    if sys.argv[1] == "used":
        torch.ones(1, device="cuda")
    torch.multiprocessing.set_start_method("fork")
    begun = time.monotonic()
    running = iter(loader)
    try:
        next(running)
    except ForkError as problem:
        took = time.monotonic() - begun
        assert "multiprocessing_context='spawn'" in str(problem) and "num_workers=0" in str(problem), problem
        assert took < 5, took
        print("refused")
"""


@pytest.mark.parametrize("cuda", ["used", "unused"])
def test_a_forked_worker_is_refused_within_seconds(tmp_path: Path, server: serving.Server, cuda: str) -> None:
    """The parent has used CUDA itself, or only made the data set."""
    done = run_block(tmp_path, server, FORKED, cuda)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stdout + done.stderr[-3000:]


ON_HOST = """
if __name__ == "__main__":
    torch.ones(1, device="cuda")
    torch.multiprocessing.set_start_method("fork")
    data = GPUDirectDataset("training-data", "batches/", endpoint=dataset.client.endpoint, device="cpu")
    found = list(torch.utils.data.DataLoader(data, batch_size=20, num_workers=2))
    assert len(found) == 2 and all(str(one.device) == "cpu" for one in found)
    print("on the host")
"""


def test_a_forked_worker_loads_to_the_host(tmp_path: Path, server: serving.Server) -> None:
    done = run_block(tmp_path, server, ON_HOST)
    assert (done.returncode, done.stdout) == (0, "on the host\n"), done.stderr[-3000:]


@pytest.mark.parametrize("door", ["require", "off"])
@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0", 0])
def test_every_format(torch: Any, server: serving.Server, tmp_path: Path, door: str, device: Any) -> None:
    random = numpy.random.default_rng(1)
    raw = random.integers(0, 256, 3_000_001, dtype=numpy.uint8)
    array = random.random((700, 1000), dtype=numpy.float32)
    file = io.BytesIO()
    numpy.save(file, array)
    shared = torch.arange(600_000.0).reshape(600, 1000)
    whole = {"w": shared, "view": shared[3:5].t(), "more": [torch.ones(3, dtype=torch.bfloat16), 7],
             "none": torch.empty(0, 4)}
    saved = io.BytesIO()
    torch.save(whole, saved)
    entries = {f"t{n}": random_entry(n, "F16", [100 + n, 33]) for n in range(20)}
    model = write(tmp_path / "m", entries)
    for name, content in (("a.bin", raw.tobytes()), ("b.npy", file.getvalue()), ("c.pt", saved.getvalue()),
                          ("d.safetensors", model.read_bytes()), ("e", b"")):
        server.put("bucket", "formats/" + name, content)
    data = dataset(server, "formats/", device=device, door=door)
    assert data.device == "cuda:0"
    found = data.load_to_gpu("a.bin")
    assert found.device == torch.device("cuda:0") and numpy.array_equal(found.cpu().numpy(), raw)
    report = nebulaio.last_report()
    assert report is not None and report["device"]["id"] == "cuda:0"
    found = data.load_to_gpu("b.npy")
    assert found.device == torch.device("cuda:0") and numpy.array_equal(found.cpu().numpy(), array)
    found = data.load_to_gpu("c.pt")
    assert all(one.device == torch.device("cuda:0")
               for one in (found["w"], found["view"], found["more"][0], found["none"]))
    assert torch.equal(found["w"].cpu(), shared) and torch.equal(found["view"].cpu(),
                                                                 whole["view"]) and found["none"].shape == (0, 4)
    assert found["view"].stride() == whole["view"].stride() and found["view"].untyped_storage().data_ptr() == found[
        "w"].untyped_storage().data_ptr()
    tensors = data.load_to_gpu("d.safetensors")
    assert all(tensors[name].cpu().numpy().tobytes() == content for name, (_, _, content) in entries.items())
    assert data.load_to_gpu("e").shape == (0,)


def test_errors_leave_the_card_usable(torch: Any, server: serving.Server) -> None:
    server.put("bucket", "bad/a.pt", b"PK\x03\x04")
    server.put("bucket", "bad/b.npy", b"\x93NUMPY\x09\x00" + bytes(100))
    server.put("bucket", "bad/c", b"good")
    data = dataset(server, "bad/")
    with pytest.raises(CorruptError):
        data.load_to_gpu("a.pt")
    with pytest.raises(UnsupportedError):
        data.load_to_gpu("b.npy")
    with pytest.raises(DeviceError, match="cuda:99"):
        dataset(server, "bad/", device="cuda:99")
    assert data.load_to_gpu("c").tolist() == list(b"good")
