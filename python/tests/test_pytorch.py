# SPDX-License-Identifier: Apache-2.0
"""GPUDirectDataset on the host: formats, worker processes, ranks, and what fails."""

from __future__ import annotations

import inspect
import io
import multiprocessing
import pickle
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
import serving
from nebulaio.errors import (
    AccessError,
    CorruptError,
    DeviceError,
    ForkError,
    InvalidError,
    NebulaioError,
    NotFoundError,
    UnsupportedError,
)
from support import ROOT, random_entry, write
from torch_loaders import EPOCHS, put_batches, run_block

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, torch: Any) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server"), buckets=("bucket", "training-data", "empty")) as running:
        put_batches(torch, running)
        yield running


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, server: serving.Server) -> None:
    monkeypatch.setenv("NEBULAIO_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", serving.ACCESS)
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", serving.SECRET)


@pytest.fixture
def no_gpu(torch: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU; test_pytorch_cuda.py has the same for a GPU")


def dataset(*arguments: Any, **options: Any) -> Any:
    from nebulaio.pytorch import GPUDirectDataset

    return GPUDirectDataset(*arguments, **{"device": "cpu", **options})


def saved(torch: Any, value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    numpy.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_block_with_four_workers_and_two_epochs(tmp_path: Path, server: serving.Server, no_gpu: None,
                                                    method: str) -> None:
    done = run_block(tmp_path, server, EPOCHS, method, "cpu")
    assert (done.returncode, done.stdout) == (0, "two epochs on host\n"), done.stderr[-3000:]


def test_every_format_is_loaded(torch: Any, server: serving.Server, tmp_path: Path) -> None:
    whole = {"w": torch.arange(6.0).reshape(2, 3), "more": [torch.ones(3, dtype=torch.bfloat16), 7, "text"]}
    model = write(tmp_path / "m", {"a": random_entry(1, "F32", [3, 5]), "b": random_entry(2, "BF16", [7])})
    raw = bytes(range(256)) * 40
    contents = {"a.pt": saved(torch, whole), "b.npy": npy(numpy.arange(12, dtype="<i4").reshape(3, 4)),
                "c.safetensors": model.read_bytes(), "d.jpg": raw,
                "empty": b"", "old.pth": saved(torch, whole, _use_new_zipfile_serialization=False)}
    for name, content in contents.items():
        server.put("bucket", "formats/" + name, content)
    server.put("bucket", "formats/folder/", b"")  # stands for a folder and is no sample
    data = dataset("bucket", "formats/")
    assert data.names == sorted(contents) and len(data) == 6 and data.device == "host"
    for name in ("a.pt", "old.pth"):
        found = data.load_to_gpu(name)
        assert torch.equal(found["w"], whole["w"]) and torch.equal(found["more"][0],
                                                                   whole["more"][0]) and found["more"][1:] == [7,
                                                                                                               "text"]
    array = data.load_to_gpu("b.npy")
    assert array.dtype is torch.int32 and array.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    tensors = data.load_to_gpu("c.safetensors")
    assert tensors["a"].shape == (3, 5) and tensors["b"].dtype is torch.bfloat16
    assert bytes(tensors["a"].numpy().tobytes()) == random_entry(1, "F32", [3, 5])[2]
    assert bytes(data.load_to_gpu("d.jpg").numpy()) == raw and data.load_to_gpu("empty").shape == (0,)
    assert bytes(data.load_to_gpu("b.npy", kind="raw").numpy()) == contents["b.npy"]
    assert data[3].dtype is torch.uint8 and data[-1].keys() == whole.keys()
    report = nebulaio.last_report()
    assert report is not None and report["device"]["id"] == "host" and any("no GPU" in note for note in report["notes"])
    with pytest.raises(IndexError):
        data[6]
    with pytest.raises(InvalidError, match="kind='jpg'"):
        data.load_to_gpu("d.jpg", kind="jpg")
    for name in ("", 3, None):
        with pytest.raises(InvalidError, match="not the name of an object"):
            data.load_to_gpu(name)


NUMBERS = ["?", "u1", "i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8", "<c8", "<c16"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_of_numpy(torch: Any, server: serving.Server, dtype: str) -> None:
    for shape in ((), (1,), (0,), (3, 0, 2), (3, 5), (2, 3, 4)):
        array = numpy.random.default_rng(3).integers(0, 2, shape).astype(dtype)
        server.put("bucket", "numbers/a.npy", npy(array))
        found = dataset("bucket", "numbers/").load_to_gpu("a.npy")
        assert found.is_contiguous() and found.shape == shape
        assert numpy.array_equal(found.numpy(), array) and found.numpy().dtype == array.dtype


def test_a_long_header_of_an_array(server: serving.Server) -> None:
    text = str({"descr": "<i2", "fortran_order": False, "shape": (3,)}).encode()
    for spaces in (4096 - 12 - len(text), 4096, 60_000):
        head = text + b" " * spaces
        content = b"\x93NUMPY\x02\x00" + len(head).to_bytes(4, "little") + head + bytes([1, 0, 2, 0, 3, 0])
        server.put("bucket", "numbers/long.npy", content)
        assert dataset("bucket", "numbers/").load_to_gpu("long.npy").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "kind", "words"),
    [
        ("big.npy", npy(numpy.arange(3, dtype=">i4")), UnsupportedError, "big-endian.*'<i4'"),
        ("columns.npy", npy(numpy.asfortranarray(numpy.ones((2, 3)))), UnsupportedError,
         "Fortran order.*ascontiguousarray"),
        ("objects.npy", npy(numpy.array([{}, None]), allow_pickle=True), UnsupportedError,
         "Python objects.*could run code"),
        ("fields.npy", npy(numpy.zeros(2, [("a", "<i4"), ("b", "<f4")])), UnsupportedError, "has fields"),
        ("text.npy", npy(numpy.array(["ab", "c"])), UnsupportedError, "'<U2'"),
        ("short.npy", npy(numpy.ones(9))[:-1], CorruptError, "71 bytes after its header, expected 72"),
        ("long.npy", npy(numpy.ones(9)) + b"x", CorruptError, "73 bytes after its header, expected 72"),
        ("empty.npy", b"", CorruptError, "begins with b''"),
        ("other.npy", b"PK\x03\x04 something else", CorruptError, "begins with b'PK"),
        ("short.pt", b"PK\x03\x04", CorruptError, "no complete file of torch.save"),
        ("empty.pt", b"", CorruptError, "no complete file of torch.save"),
        ("text.pt", b"hello, this is no tensor", CorruptError, "no complete file of torch.save"),
        ("bad.safetensors", b"\xff" * 100, CorruptError, "header length"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_content_is_refused_with_its_name(server: serving.Server, name: str, content: bytes,
                                              kind: type[NebulaioError], words: str) -> None:
    server.put("bucket", "bad/" + name, content)
    data = dataset("bucket", "bad/")
    with pytest.raises(kind, match=f"(?s)s3://bucket/bad/{name}.*{words}"):
        data.load_to_gpu(name)


def test_a_pickle_that_would_run_code_is_refused(torch: Any, server: serving.Server, tmp_path: Path) -> None:
    made = tmp_path / "made"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (made,)

    for old in (False, True):
        server.put("bucket", "evil/a.pt", saved(torch, {"w": torch.ones(2), "x": Evil()},
                                                _use_new_zipfile_serialization=not old))
        with pytest.raises(UnsupportedError, match="s3://bucket/evil/a.pt.*weights_only.*add_safe_globals"):
            dataset("bucket", "evil/").load_to_gpu("a.pt")
        assert not made.exists()


def test_truncated_files_of_torch(torch: Any, server: serving.Server) -> None:
    whole = saved(torch, {"w": torch.arange(1000.0)})
    for length in (100, 1000, len(whole) // 2, len(whole) - 1):
        server.put("bucket", "bad/cut.pt", whole[:length])
        with pytest.raises(CorruptError, match="s3://bucket/bad/cut.pt"):
            dataset("bucket", "bad/").load_to_gpu("cut.pt")


def test_nothing_below_a_prefix(server: serving.Server) -> None:
    with pytest.raises(NotFoundError, match=r"s3://training-data/batch/: .*no object with this prefix; it has 'batches/'.*fix: correct the prefix"):
        dataset("training-data", "batch/")
    with pytest.raises(NotFoundError, match=r"s3://empty/: .*the bucket is empty"):
        dataset("empty")
    with pytest.raises(NotFoundError, match="no such bucket"):
        dataset("no-such-bucket", "batches/")
    with pytest.raises(NotFoundError, match=r"none of 40 objects ends with '.jpg' or '.png': 40 end with '.pt'"):
        dataset("training-data", "batches/", suffix=[".jpg", ".png"])
    for suffix in ("", [], [3], [".pt", ""]):
        with pytest.raises(InvalidError, match="suffix="):
            dataset("training-data", "batches/", suffix=suffix)
    assert len(dataset("training-data", "batches/", suffix=("_1.pt", "_2.pt"))) == 2


def test_a_name_that_is_not_there(server: serving.Server) -> None:
    with pytest.raises(NotFoundError, match=r"s3://training-data/batchesbatch_1.pt: .*follows the prefix 'batches', such as '/batch_0.pt'"):
        dataset("training-data", "batches").load_to_gpu("batch_1.pt")
    with pytest.raises(AccessError):
        dataset("training-data", "batches/", access_key="nobody", secret_key="nothing")


def test_objects_that_change_after_the_listing(torch: Any, server: serving.Server) -> None:
    for name in ("a.bin", "b.npy", "c.pt"):
        server.put("bucket", "changes/" + name, npy(numpy.ones(100)))
    data = dataset("bucket", "changes/")
    for content in (npy(numpy.ones(101)), npy(numpy.ones(99))):
        for name in data.names:
            server.put("bucket", "changes/" + name, content)
            with pytest.raises(CorruptError, match=rf"s3://bucket/changes/{name}: the object has {len(content)} bytes, and had 928.*anew"):
                data.load_to_gpu(name)
    for name in data.names:
        assert server.request("DELETE", "/bucket/changes/" + name)[0] == 204
        with pytest.raises(NotFoundError, match=rf"s3://bucket/changes/{name}: .*was there when the prefix was listed"):
            data.load_to_gpu(name)
    server.put("bucket", "changes/later.bin", b"12345")  # behind the listing, and found all the same
    assert data.load_to_gpu("later.bin").tolist() == list(b"12345")


def test_ranks_share_the_objects() -> None:
    everything = dataset("training-data", "batches/").names
    for world in (1, 3, 4, 40):
        shares = [dataset("training-data", "batches/", rank=rank, world_size=world).names for rank in range(world)]
        assert sorted(sum(shares, [])) == everything
    assert [len(dataset("training-data", "batches/", rank=rank, world_size=3, tail="drop"))
            for rank in range(3)] == [13, 13, 13]
    padded = [dataset("training-data", "batches/", rank=rank, world_size=3, tail="pad").names for rank in range(3)]
    assert [len(one) for one in padded] == [14, 14, 14] and set(sum(padded, [])) == set(everything)
    assert len(dataset("training-data", "batches/", rank=40, world_size=41, tail="pad")) == 1
    for options, words in (({"rank": 2, "world_size": 2}, "rank=2 of world_size=2"),
                           ({"world_size": 0}, "world_size=0"), ({"rank": -1}, "rank=-1"),
                           ({"rank": 0, "world_size": 41}, "some ranks would have none"),
                           ({"tail": "cut"}, "keep, drop, pad")):
        with pytest.raises(InvalidError, match=words):
            dataset("training-data", "batches/", **options)


def test_a_pickle_has_no_connection_and_no_keys_of_the_environment(torch: Any) -> None:
    data = dataset("training-data", "batches/", rank=1, world_size=2)
    data.load_to_gpu("batch_3.pt")
    text = pickle.dumps(data)
    assert serving.SECRET.encode() not in text
    again = pickle.loads(text)
    assert again.client._client is None and again.names == data.names and again.device == "host"
    assert torch.equal(again[5], data[5])
    again.close()
    again.close()
    assert torch.equal(data[5], data.load_to_gpu(data.names[5]))


def test_a_program_that_is_imported_again_makes_its_data_set_without_a_connection(
    monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server that had used CUDA could not start workers that use it."""
    with monkeypatch.context() as patch:
        patch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
        data = dataset("training-data", "batches/", rank=1, world_size=2, device="auto")
        assert data.client._client is None and data._found is None
        assert pickle.loads(pickle.dumps(data))._found is None
    assert len(data) == 20 and data.client._client is not None


def test_threads_share_a_data_set(torch: Any) -> None:
    data = dataset("training-data", "batches/")
    problems: list[BaseException] = []

    def work() -> None:
        try:
            assert [int(data.load_to_gpu(f"batch_{n}.pt")[0, 0]) for n in range(40)] == list(range(40))
        except BaseException as problem:  # noqa: BLE001 - raised in the test's thread
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert problems == []


def test_a_device_that_is_not_there(no_gpu: None) -> None:
    assert dataset("training-data", "batches/", device="auto").device == "host"
    for device in ("cuda", "cuda:3", 0):
        with pytest.raises(DeviceError, match=r"make a data set on cuda.*device='cpu'"):
            dataset("training-data", "batches/", device=device)
    with pytest.raises(InvalidError, match="'tpu'"):
        dataset("training-data", "batches/", device="tpu")


FAILURES = """
if __name__ == "__main__":
    import sys
    from nebulaio import GPUDirectClient
    from nebulaio.errors import *

    class Failing(TrainingDataset):
        wrong = 37
        def __getitem__(self, idx):
            if idx == self.wrong:
                raise ValueError(f"no sample {idx}")
            return super().__getitem__(idx)

    def fails(kind, data, *words):
        try:
            for batch in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
                pass
        except kind as problem:
            assert all(word in str(problem) for word in words), problem
            return
        raise AssertionError("it did not fail")

    failing = Failing("training-data", "batches/")
    fails(ValueError, failing, "no sample 37", "worker process")
    failing.wrong = None
    assert sum(len(batch) for batch in torch.utils.data.DataLoader(failing, batch_size=8, num_workers=2)) == 40
    print("an exception of the user's code ends the epoch alone")

    dataset[0]  # the library is in use here before the workers are forked
    for number in (3, 20, 39):
        dataset.load_to_gpu(f"batch_{number}.pt")
    writer = GPUDirectClient(dataset.client.endpoint)
    writer.write_from_gpu("bucket", "going/batch_0.pt", b"x")
    writer.write_from_gpu("bucket", "going/batch_1.pt", b"xy")
    going = TrainingDataset("bucket", "going/")
    writer.write_from_gpu("bucket", "going/batch_0.pt", b"other")
    fails(CorruptError, going, "s3://bucket/going/batch_0.pt", "5 bytes, and had 1")
    print("so does an object that changes")
"""


def test_failures_in_workers(tmp_path: Path, server: serving.Server, no_gpu: None) -> None:
    done = run_block(tmp_path, server, FAILURES)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done.stdout + done.stderr[-3000:]


# torch finds no GPU with the driver of internal/device/fakegpu, which can only tell of one and move bytes. What torch
# says is set by hand, so the test shows the order of checks: the error comes before torch or the driver are called.
PRETENDED = """
import torch
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
"""

FORKED = """
if __name__ == "__main__":
    from nebulaio.errors import ForkError
    assert dataset.device == "cuda:0", dataset.device
    torch.multiprocessing.set_start_method("fork")
    onhost = GPUDirectDataset("training-data", "batches/", endpoint=dataset.client.endpoint, device="cpu")
    assert len(list(torch.utils.data.DataLoader(onhost, batch_size=20, num_workers=2))) == 2
    running = iter(loader)
    try:
        next(running)
    except ForkError as problem:
        assert "multiprocessing_context='spawn'" in str(problem) and "num_workers=0" in str(problem), problem
        assert "s3://training-data/batches/batch_" in str(problem), problem
        print("refused")
"""


def test_cuda_in_a_forked_worker_is_refused(tmp_path: Path, server: serving.Server) -> None:
    source = ROOT / "internal/device/fakegpu/csrc/libcuda.c"
    if not source.is_file():
        pytest.skip("not in a checkout: the driver's source is not here")
    subprocess.run(["cc", "-shared", "-fPIC", "-pthread", "-O1", "-o", str(tmp_path / "libcuda.so.1"), str(source)],
                   check=True)
    done = run_block(tmp_path, server, FORKED, before=PRETENDED, LD_LIBRARY_PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr[-3000:]


def test_a_data_set_on_a_gpu_is_not_made_in_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    from nebulaio import _process

    monkeypatch.setattr(_process.Holder, "cuda_is_lost", lambda self: True)
    for device in ("auto", "cuda", "cuda:0"):
        with pytest.raises(ForkError, match=f"make a data set on {device}: .*spawn"):
            dataset("training-data", "batches/", device=device)


def test_public_names_are_documented() -> None:
    import nebulaio.pytorch as module

    assert module.__all__ == ["GPUDirectDataset", "Kind", "Tail"]
    for value in (module, module.GPUDirectDataset, *vars(module.GPUDirectDataset).values()):
        if callable(value) and not value.__name__.startswith("_"):
            assert inspect.getdoc(value), value
