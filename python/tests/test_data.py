# SPDX-License-Identifier: Apache-2.0
"""nebulaio.data.Loader on host memory with NumPy."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from nebulaio import _process
from nebulaio.data import Batch, Loader, Ragged, decode
from nebulaio.errors import (
    ClosedError,
    CorruptError,
    DecodeError,
    InvalidError,
    NotFoundError,
)
from support import in_threads, python

SAMPLES = 60


def content(number: int, column: str) -> bytes:
    """The bytes of one part of a sample. Some are empty."""
    return f"{column}{number}".encode() * (number % 5)


def archives(folder: Path, count: int = 3, samples: int = SAMPLES) -> Path:
    """WebDataset archives with the columns "txt" and "cls"."""
    folder.mkdir(exist_ok=True)
    each = samples // count
    for archive in range(count):
        with tarfile.open(folder / f"train-{archive:02d}.tar", "w") as tar:
            for number in range(archive * each, (archive + 1) * each):
                for column in ("txt", "cls"):
                    member = tarfile.TarInfo(f"{number:06d}.{column}")
                    member.size = len(content(number, column))
                    tar.addfile(member, io.BytesIO(content(number, column)))
    return folder


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archives(tmp_path_factory.mktemp("tars"))


def make(source: Any, **options: Any) -> Loader:
    return Loader(source, **{"batch_size": 8, "device": "cpu", "framework": "numpy", "tail": "short", "seed": 3,
                             **options})


def order_of(loader: Loader) -> list[list[str]]:
    """The keys of one epoch, batch by batch."""
    return [batch.sample_keys for batch in loader]


def handles(loader: Loader) -> int:
    """How many batches the process holds."""
    gc.collect()
    return sum(type(thing).__name__ == "Memory" and type(thing).__module__ == "nebulaio.data._handles"
               for thing in gc.get_objects())


def test_every_byte_of_two_epochs(tars: Path) -> None:
    with make(tars) as loader:
        orders = []
        assert len(loader) == 8 and loader.columns == ["cls", "txt"] or loader.columns == ["txt", "cls"]
        for epoch in range(2):
            assert loader.epoch == epoch
            seen: list[int] = []
            for batch in loader:
                assert isinstance(batch, Batch) and batch.epoch == epoch and batch.size == len(batch.indices)
                assert set(batch) == {"txt", "cls"} and dict(batch)["txt"] is batch["txt"]
                for column in batch:
                    values = batch[column]
                    assert isinstance(values, Ragged) and values.values.dtype == numpy.uint8
                    assert [part.tobytes() for part in values] == [content(n, column) for n in batch.indices]
                    assert values.lengths.tolist() == [len(content(n, column)) for n in batch.indices]
                assert batch.sample_keys == [f"{n:06d}" for n in batch.indices]
                seen += batch.indices.tolist()
            assert batch.last and sorted(seen) == list(range(SAMPLES))
            orders.append(seen)
        assert orders[0] != orders[1] != sorted(orders[1])
        report = loader.report()
        assert [epoch["samples"] for epoch in report["epochs"]] == [SAMPLES, SAMPLES]
        assert sum(route["bytes"] for route in report["total"]["routes"]) == report["total"]["bytes"]
        assert report["total"]["wait_seconds"] >= 0 and report["total"]["limiting"]
        assert "60 samples of tar" in repr(loader) and "on host" in repr(loader)


def test_the_orders(tars: Path) -> None:
    keys = [f"{n:06d}" for n in range(SAMPLES)]
    for shuffle in ("stored", False):
        with make(tars, shuffle=shuffle) as loader:
            assert sum(order_of(loader), []) == keys
    orders = {}
    for shuffle, more in (("full", {}), (True, {}), ("blocks", {"shuffle_block": 4, "shuffle_window": 2}),
                          ("full", {"seed": 4})):
        with make(tars, shuffle=shuffle, **more) as loader:
            found = sum(order_of(loader), [])
        assert sorted(found) == keys and found != keys
        orders[str((shuffle, more))] = found
    assert orders["('full', {})"] == orders["(True, {})"] and len({tuple(o) for o in orders.values()}) == 3


def test_the_tail(tars: Path) -> None:
    for tail, sizes in (("drop", [16] * 3), ("pad", [16] * 4), ("short", [16] * 3 + [12])):
        with make(tars, batch_size=16, tail=tail) as loader:
            assert [batch.size for batch in loader] == sizes and len(loader) == len(sizes)
    with make(tars, batch_size=16, tail=None, drop_last=False) as loader:
        assert len(loader) == 4
    with pytest.raises(InvalidError, match="contradict"):
        make(tars, tail="short", drop_last=True)


def test_fixed_shapes_are_one_array(tmp_path: Path) -> None:
    rows = numpy.random.default_rng(1).normal(size=(30, 4, 5)).astype(numpy.float32)
    numpy.save(tmp_path / "rows.npy", rows)
    with make(tmp_path / "rows.npy", format="npy", batch_size=7) as loader:
        (name,) = loader.columns
        for batch in loader:
            got = batch[name]
            assert got.dtype == numpy.float32 and got.shape == (batch.size, 4, 5) and got is batch[name]
            assert numpy.array_equal(got, rows[batch.indices])
    numpy.save(tmp_path / "flags.npy", rows[:, 0, 0] > 0)
    with make(tmp_path / "flags.npy", format="npy") as loader:
        for batch in loader:
            (got,) = batch.values()
            assert got.dtype == numpy.bool_ and numpy.array_equal(got, rows[batch.indices, 0, 0] > 0)


def test_typed_ragged_columns(tmp_path: Path) -> None:
    """Documents of a Megatron file are rows of tokens of different lengths."""
    documents = [numpy.arange(n, 2 * n + 1, dtype=numpy.int32) for n in range(20)]
    sizes = numpy.array([len(d) for d in documents], numpy.int32)
    pointers = numpy.concatenate([[0], numpy.cumsum(sizes[:-1], dtype=numpy.int64) * 4]).astype(numpy.int64)
    (tmp_path / "tokens.bin").write_bytes(b"".join(d.tobytes() for d in documents))
    head = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([4]) + (20).to_bytes(8, "little") + (21).to_bytes(8, "little")
    (tmp_path / "tokens.idx").write_bytes(head + sizes.tobytes() + pointers.tobytes() + numpy.arange(21, dtype=numpy.int64).tobytes())
    with make(tmp_path / "tokens.bin") as loader:
        for batch in loader:
            (values,) = batch.values()
            assert values.values.dtype == numpy.int32
            assert values.to_list() == [documents[n].tolist() for n in batch.indices]
            with pytest.raises(InvalidError, match="expected equal sizes"):
                values.dense()
    with make(tmp_path / "tokens.bin", block=8, batch_size=2) as loader:
        assert all(next(iter(batch.values())).shape == (batch.size, 8) for batch in loader)


def test_equal_sizes_are_dense(tmp_path: Path) -> None:
    for n in range(6):
        (tmp_path / f"{n}.raw").write_bytes(bytes([n]) * 12)
    with make(tmp_path, format="files", batch_size=6) as loader:
        (batch,) = loader
        (values,) = batch.values()
        assert values.dense().shape == (6, 12) and values.dense((3, 4))[:, 0, 0].tolist() == batch.indices.tolist()
        assert values[-1].tolist() == values[5].tolist()
        with pytest.raises(InvalidError, match=r"shape=\(5,\) has 5 elements, and each sample has 12"):
            values.dense((5,))
        with pytest.raises(IndexError):
            values[6]


def test_each_sample_once_after_every_stop(tars: Path) -> None:
    """A loader stopped after each batch goes on exactly, also with other batches and ranks."""
    with make(tars) as loader:
        whole, states = [], [loader.state_dict()]
        for batch in loader:
            whole.append(batch.sample_keys)
            states.append(loader.state_dict())
            assert states[-1] == batch.state
    for stop, state in enumerate(json.loads(json.dumps(states[:-1]))):
        with make(tars, state=state, seed=0) as loader:
            assert order_of(loader) == whole[stop:]
        rest = []
        for rank in range(3):
            with make(tars, batch_size=2, rank=rank, world=3, seed=99) as loader:
                loader.load_state_dict(state)
                rest += sum(order_of(loader), [])
        assert sorted(rest) == sorted(sum(whole[stop:], []))
    assert states[-1]["epoch"] == 1 and states[-1]["position"] == 0


def test_a_loop_that_breaks_goes_on(tars: Path) -> None:
    with make(tars) as loader:
        whole = order_of(loader)
        loader.set_epoch(0)
        first = []
        for batch in loader:
            first.append(batch.sample_keys)
            if len(first) == 3:
                break
        loader.set_epoch(0)  # the epoch that is running
        assert first + order_of(loader) == whole
        loader.set_epoch(0)
        assert order_of(loader) == whole and loader.epoch == 1


def test_the_number_of_epochs(tars: Path) -> None:
    with make(tars, epochs=2) as loader:
        assert [len(order_of(loader)) for _ in range(4)] == [8, 8, 0, 0]
        last = loader.state_dict()
    with make(tars, epochs=3, state=last) as loader:
        assert [len(order_of(loader)) for _ in range(2)] == [8, 0]
    with make(tars, epochs=2, state=last) as loader:
        assert order_of(loader) == []


def test_states_of_other_data_are_refused(tars: Path, tmp_path: Path) -> None:
    with make(tars) as loader:
        next(iter(loader))
        state = loader.state_dict()
        other = archives(tmp_path / "other", count=2)
        with make(other) as changed:
            with pytest.raises(InvalidError, match=r"fingerprint .*\(fix: open the data of the state"):
                changed.load_state_dict(state)
            before = changed.state_dict()
            assert before["position"] == 0
            changed.load_state_dict(state, allow_changed=True)
            assert changed.state_dict()["position"] == 8 and len(order_of(changed)) == 7
        with make(tars, shuffle="stored") as stored, pytest.raises(InvalidError, match="the state is of the shuffle"):
            stored.load_state_dict(state)
        for wrong in ({}, {"seed": 1}, {**state, "epoch": -1}, {**state, "position": "3"}, 7):
            with pytest.raises(InvalidError, match="state"):
                loader.load_state_dict(wrong)  # type: ignore[arg-type]
        assert loader.state_dict() == state


def test_columns_are_chosen(tars: Path) -> None:
    with make(tars, columns=["txt"]) as loader:
        assert loader.columns == ["txt"] and list(next(iter(loader))) == ["txt"]
        with pytest.raises(KeyError, match="'cls': the columns are 'txt'"):
            next(iter(loader))["cls"]
    with pytest.raises(NotFoundError, match="png.*txt"):
        make(tars, columns=["png"])


def test_tensors_outlive_batch_loader_and_data(tars: Path) -> None:
    loader = make(tars, ahead=1 << 20)
    kept = []
    for batch in loader:
        kept.append((batch.indices, batch["txt"][1], batch["txt"]))
    batch_after = batch
    loader.close()
    assert len(batch_after.sample_keys) == batch_after.size  # the data stays open for it
    del loader, batch, batch_after
    gc.collect()
    with make(tars) as other:
        order_of(other)  # would use freed memory again
    for indices, second, values in kept:
        assert second.tobytes() == content(indices[1], "txt")
        assert [part.tobytes() for part in values] == [content(n, "txt") for n in indices]


def test_memory_comes_back(tars: Path) -> None:
    with make(tars) as loader:
        before = handles(loader)
        batch = next(iter(loader))
        assert handles(loader) == before + 1
        values = batch["txt"].values[2:5]
        del batch
        assert handles(loader) == before + 1  # the slice keeps it
        del values
        assert handles(loader) == before


def test_a_loader_is_closed(tars: Path) -> None:
    loader = make(tars)
    epoch = iter(loader)
    next(epoch)
    loader.close()
    loader.close()
    assert loader.closed and "closed" in repr(loader) and loader.state_dict()["position"] == 8
    for use in (lambda: next(epoch), lambda: iter(loader), loader.report, lambda: loader.set_epoch(3)):
        with pytest.raises(ClosedError, match="make a new Loader"):
            use()
    with pytest.raises(TypeError, match="as_iterable_dataset"):
        pickle.dumps(loader)


def test_batches_can_be_pickled(tars: Path) -> None:
    with make(tars) as loader:
        batch = next(iter(loader))
        again = pickle.loads(pickle.dumps(batch))
        assert again.sample_keys == batch.sample_keys and again.state == batch.state and set(again) == set(batch)
        assert again["txt"].unbind()[1].tobytes() == batch["txt"][1].tobytes() and again.size == batch.size


def test_samples_can_be_read(tars: Path) -> None:
    with make(tars) as loader:
        assert loader.info["samples"] == SAMPLES and loader.info["format"] == "tar"
        sample = loader.sample(7)
        assert sample["key"] == "000007" and len(sample["parts"]) == 2
        assert loader.read(7, "txt") == content(7, "txt") and loader.read(5, "txt") == b""
        with pytest.raises(NotFoundError, match="png"):
            loader.read(7, "png")
        with pytest.raises(InvalidError, match="0 to 59"):
            loader.sample(SAMPLES)


@pytest.mark.parametrize("threads", [0, 3])
def test_hooks_of_columns(tars: Path, threads: int) -> None:
    used = set()

    def upper(sample: memoryview) -> str:
        used.add(threading.current_thread().name)
        return bytes(sample).decode().upper()

    with make(tars) as plain:
        keys = order_of(plain) + order_of(plain)
    with make(tars, decode={"txt": upper}, threads=threads) as loader:
        found = []
        for _ in range(2):
            for batch in loader:
                assert batch["txt"] == [content(n, "txt").decode().upper() for n in batch.indices]
                assert isinstance(batch["cls"], Ragged)
                assert loader.state_dict() == batch.state  # not that of the batches ahead
                found.append(batch.sample_keys)
    assert found == keys
    assert used == {"MainThread"} if threads == 0 else all(name.startswith("nebulaio-decode") for name in used)


def test_hooks_of_batches_and_collate(tars: Path) -> None:
    with make(tars, decode=lambda batch: batch.indices.sum()) as loader:
        assert sum(loader) == sum(range(SAMPLES))
    with make(tars, decode={"txt": decode.text}, collate=lambda samples: samples) as loader:
        for samples in loader:
            for sample in samples:
                number = int(sample["__key__"])
                assert sample["txt"] == content(number, "txt").decode() and bytes(sample["cls"]) == content(number,
                                                                                                            "cls")
    with pytest.raises(InvalidError, match="'png'"):
        make(tars, decode={"png": decode.raw})
    with pytest.raises(InvalidError, match="inside of it"):
        make(tars, decode=lambda batch: batch, collate=list)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_hook_that_fails(tars: Path, threads: int) -> None:
    """The error names the sample, the state is that of the last delivered batch, and a new loop goes on there."""
    bad = {"000033"}
    with make(tars) as plain:
        whole = order_of(plain)

    def check(sample: memoryview) -> bytes:
        for key in bad:
            if bytes(sample) == content(int(key), "txt"):
                raise ValueError("not an image")
        return bytes(sample)

    with make(tars, decode={"txt": check}, threads=threads) as loader:
        got = []
        epoch = iter(loader)
        with pytest.raises(DecodeError, match=r"column 'txt' of sample 33 \('000033' of .*train-01.tar\): ValueError: not an image") as failed:
            for batch in epoch:
                got.append(batch.sample_keys)
        assert isinstance(failed.value.__cause__, ValueError)
        assert next(epoch, None) is None and loader.state_dict()["position"] == 8 * len(got)
        bad.clear()
        assert got + order_of(loader) == whole
    assert not any(thread.name.startswith("nebulaio-decode") for thread in threading.enumerate())


def test_decoders(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.json").write_text(json.dumps({"n": n}))
        numpy.save(tmp_path / f"{n}.npy", numpy.full((n + 1, 2), n))
        (tmp_path / f"{n}.txt").write_text("ä" * n)
    with make(
        tmp_path,
        format="groups",
        decode={"json": decode.json, "npy": decode.npy, "txt": decode.text},
    ) as loader:
        (batch,) = loader
        for i, n in enumerate(batch.indices):
            assert batch["json"][i] == {"n": n} and batch["npy"][i].shape == (n + 1, 2) and batch["txt"][i] == "ä" * n


def test_ranks_share_the_samples(tars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    seen: Counter[str] = Counter()
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        with make(tars, batch_size=4) as loader:
            assert (loader.rank, loader.world) == (rank, 4) and f"rank {rank} of 4" in repr(loader)
            seen.update(sum(order_of(loader), []))
    assert set(seen.values()) == {1} and len(seen) == SAMPLES
    monkeypatch.setenv("RANK", "four")
    with pytest.raises(InvalidError, match="RANK='four'"):
        make(tars)
    with make(tars, rank=0, world=1) as loader:
        assert len(loader) == 8
    with pytest.raises(InvalidError, match="give both"):
        make(tars, rank=1)
    with pytest.raises(InvalidError, match="expected 0 to 1"):
        make(tars, rank=2, world=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 4.0}, "batch_size=4.0"),
        ({"shuffle": "some"}, "full, blocks, stored"),
        ({"tail": "cut"}, "drop, pad, short"),
        ({"framework": "tensorflow"}, "'torch', 'numpy' or 'cupy'"),
        ({"device": "cuda"}, "host memory only"),
        ({"columns": "txt"}, "list of names"),
        ({"ahead": "much"}, "'128MiB'"),
        ({"format": "zip"}, "expected one of"),
        ({"decode": 3}, "decode=3"),
        ({"threads": -1}, "threads=-1"),
        ({"route": "fast"}, "route='fast'"),
        ({"seed": -1}, "seed=-1"),
        ({"batch_size": 100, "tail": "drop"}, "do not fill one batch"),
    ],
)
def test_wrong_arguments(tars: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidError, match=says):
        make(tars, **options)
    assert not [job for job in _process.current().open().jobs.values() if type(job()).__name__ == "Engine"]


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="none"):
        make(tmp_path / "none")
    with pytest.raises((NotFoundError, InvalidError), match=str(tmp_path)):
        make(tmp_path)
    with pytest.raises(InvalidError, match="empty"):
        make([])


@pytest.mark.parametrize("spoil", ["truncate", "remove"])
def test_a_source_that_dies(tmp_path: Path, spoil: str) -> None:
    """A file goes away in the middle of an epoch: the error names the file and a sample of it."""
    folder = archives(tmp_path / "tars", count=30)
    with make(folder, batch_size=2, ahead=200, shuffle="stored") as loader:
        epoch = iter(loader)
        next(epoch)
        victim = folder / "train-29.tar"
        victim.unlink() if spoil == "remove" else os.truncate(victim, 100)
        with pytest.raises((NotFoundError, CorruptError), match=r"sample 5[89] .*train-29\.tar"):
            for _ in epoch:
                pass
        assert loader.state_dict()["position"] == 58
        assert loader.report()["total"]["samples"] == 58
        with pytest.raises((NotFoundError, CorruptError)):  # a new loop tries again
            next(iter(loader))
    with make([f"{folder}/train-{{00..28}}.tar", *([victim] if spoil == "truncate" else [])], skip_bad=True) as loader:
        assert sum(len(keys) for keys in order_of(loader)) == 58


def test_bad_samples_are_counted(tmp_path: Path) -> None:
    folder = archives(tmp_path / "tars", count=3)
    with make(folder, skip_bad=True, ahead=64, batch_size=1, shuffle="stored") as loader:
        epoch = iter(loader)
        next(epoch)
        (folder / "train-02.tar").unlink()
        rest = [key for batch in epoch for key in batch.sample_keys]
        # The four empty samples of the file need no file.
        assert len(rest) == 43 and loader.report()["total"]["skipped"] == 16
        assert "train-02.tar" in loader.report()["bad"][0]


def test_threads_share_a_loader(tars: Path) -> None:
    """Every batch goes to one of the threads."""
    seen: list[str] = []
    with make(tars, batch_size=1, epochs=1) as loader:

        def work(_: int) -> None:
            for batch in loader:
                assert batch["txt"][0].tobytes() == content(int(batch.sample_keys[0]), "txt")
                seen.extend(batch.sample_keys)

        in_threads(work, 4)
    assert sorted(seen) == [f"{n:06d}" for n in range(SAMPLES)]


def test_loaders_closed_by_another_thread(tars: Path) -> None:
    """Threads take batches while another thread moves and closes the loader. No batch is used after it was freed."""
    for round_ in range(40):
        hooks: dict[str, Any] = [{}, {"decode": lambda batch: batch},
                                 {"decode": lambda batch: batch, "threads": 2}][round_ % 3]
        loader = make(tars, batch_size=1 + round_ % 4, **hooks)
        begun = threading.Event()

        def work(_: int) -> None:
            try:
                while True:
                    for batch in loader:
                        assert batch["txt"].values.tobytes() == b"".join(content(n, "txt") for n in batch.indices)
                        begun.set()
            except ClosedError:
                return

        threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        begun.wait()
        if round_ % 2:
            loader.set_epoch(7)
        loader.close()
        for thread in threads:
            thread.join()


FORK = """
import os, sys, threading
from nebulaio.data import Loader
from nebulaio.errors import ClosedError
loader = Loader(sys.argv[1], batch_size=4, device="cpu", framework="numpy", rank=0, world=1)
epoch = iter(loader)
batch = next(epoch)
child = os.fork()
if child == 0:
    for use in (lambda: next(epoch), lambda: iter(loader), loader.report, lambda: loader.read(0, "txt"), lambda: batch.sample_keys):
        try:
            use()
        except ClosedError as error:
            assert "make a Loader in the child" in str(error), error
        else:
            os._exit(1)
    assert batch["txt"].values.size >= 0
    loader.close()
    with Loader(sys.argv[1], batch_size=4, device="cpu", framework="numpy") as mine:
        count = sum(1 for _ in mine)
    os._exit(0 if count == 15 else 2)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
print(1 + sum(1 for _ in epoch))
"""


def test_fork_after_use(tars: Path) -> None:
    assert python(FORK, tars) == "15\n"


def test_ctrl_c_loses_no_batch(tars: Path) -> None:
    code = """
import signal, sys
from nebulaio.data import Loader

loader = Loader(sys.argv[1], batch_size=4, device="cpu", framework="numpy", shuffle="stored", tail="short")
want = [batch.sample_keys for batch in loader]
loader.set_epoch(0)
real = loader._feed._engine.system.functions.nebulaio_loader_next

class Slow:
    # The library hands over a batch, and a signal arrives before Python sees it.
    __name__ = "nebulaio_loader_next"
    def __call__(self, *arguments):
        status = real(*arguments)
        if status == 0:
            calls.append(1)
            if len(calls) % 3 == 0:
                signal.raise_signal(signal.SIGINT)
        return status

class Functions:
    nebulaio_loader_next = Slow()
    def __getattr__(self, name):
        return getattr(functions, name)

calls = []
functions = loader._feed._engine.system.functions
loader._feed._engine.system.functions = Functions()
got, interrupts = [], 0
while len(got) < len(want):
    try:
        for batch in loader:
            got.append(batch.sample_keys)
    except KeyboardInterrupt:
        interrupts += 1
assert got == want, (got, want)
assert interrupts >= 4
print("no batch is lost")
"""
    assert python(code, tars) == "no batch is lost\n"


def test_ctrl_c_in_a_hook(tars: Path) -> None:
    code = """
import signal, sys, threading
from nebulaio.data import Loader
begun, go = threading.Event(), threading.Event()
def hook(batch):
    begun.set()
    go.wait()
    return batch.sample_keys
loader = Loader(sys.argv[1], batch_size=4, device="cpu", framework="numpy", decode=hook, threads=2, epochs=1)
def interrupt():
    begun.wait()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    next(iter(loader))
except KeyboardInterrupt:
    go.set()
    print(loader.state_dict()["position"], sum(map(len, loader)))
loader.close()
"""
    assert python(code, tars) == "0 60\n"


def test_exit_with_an_open_loader(tars: Path) -> None:
    """A process ends cleanly with an open loader, kept tensors and a daemon thread that waits for batches."""
    code = """
import sys, threading
from nebulaio.data import Loader
loader = Loader(sys.argv[1], batch_size=4, device="cpu", framework="numpy", decode=lambda b: b, threads=2)
kept = [next(iter(loader))["txt"] for _ in range(3)]
other = Loader(sys.argv[1], batch_size=1, device="cpu", framework="numpy")
begun = threading.Event()
def forever():
    while True:
        for batch in other:
            begun.set()
threading.Thread(target=forever, daemon=True).start()
begun.wait()
print("end")
"""
    assert python(code, tars) == "end\n"


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    yield


def test_without_torch(tars: Path, no_torch: None) -> None:
    with Loader(tars, batch_size=4, device="cpu") as loader:
        assert isinstance(next(iter(loader))["txt"].values, numpy.ndarray)
        with pytest.raises(NotImplementedError, match=r"fix: install torch\)"):
            loader.as_iterable_dataset()
    with pytest.raises(NotImplementedError, match="install torch"):
        Loader(tars, batch_size=4, framework="torch")
