# SPDX-License-Identifier: Apache-2.0
"""nebulaio.data.Loader with torch on host memory: tensors, DataLoader, torchdata and ranks of gloo."""

from __future__ import annotations

import gc
import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
from nebulaio.data import Batch, Loader, Ragged, decode
from nebulaio.errors import InvalidError
from support import python
from test_data import SAMPLES, archives, content

pytestmark = pytest.mark.torch
torch: Any = None  # imported by a fixture, because the file is collected without torch too


@pytest.fixture(scope="module", autouse=True)
def import_torch() -> None:
    global torch
    torch = importlib.import_module("torch")
    importlib.import_module("torch.utils.data")


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archives(tmp_path_factory.mktemp("tars"))


def make(source: Any, **options: Any) -> Loader:
    return Loader(source, **{"batch_size": 8, "device": "cpu", "tail": "short", "seed": 3, **options})


def test_tensors_of_torch(tars: Path, tmp_path: Path) -> None:
    with make(tars) as loader:
        for batch in loader:
            values = batch["txt"]
            assert values.values.dtype == torch.uint8 and values.values.device.type == "cpu"
            assert values.offsets.dtype == torch.int64 and values.device_offsets is values.offsets
            assert [part.numpy().tobytes() for part in values.unbind()] == [content(n, "txt")
                                                                            for n in batch.indices.tolist()]
        nested = torch.nested.nested_tensor_from_jagged(values.values, values.device_offsets)
        assert nested.size(0) == batch.size
    rows = torch.randn(30, 3, 2).to(torch.bfloat16)
    from nebulaio.safetensors import save_file

    save_file({"rows": rows, "label": torch.arange(30)}, tmp_path / "rows.safetensors")
    with make(tmp_path / "rows.safetensors", format="safetensors", batch_size=7) as loader:
        for batch in loader:
            assert batch["rows"].shape == (batch.size, 3, 2) and batch["rows"].dtype == torch.bfloat16
            assert torch.equal(batch["rows"], rows[batch.indices]) and torch.equal(batch["label"], batch.indices)


def test_tensors_without_numpy(tars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(tars) as loader:
        monkeypatch.setattr(loader._feed._settings.views, "_numpy", None)
        batch = next(iter(loader))
        assert [bytes(part) for part in batch.samples_of("txt")] == [content(n, "txt") for n in batch.indices.tolist()]
        kept = batch["txt"].values
        want = kept.clone()
        del batch
        gc.collect()
        for _ in loader:
            pass
        assert torch.equal(kept, want)


def test_tensors_outlive_the_loader(tars: Path) -> None:
    loader = make(tars)
    kept = [(batch.indices.tolist(), batch["txt"].values) for batch in loader]
    loader.close()
    del loader
    gc.collect()
    for indices, values in kept:
        assert values.numpy().tobytes() == b"".join(content(n, "txt") for n in indices)


def test_files_of_torch(tmp_path: Path) -> None:
    for n in range(5):
        torch.save({"x": torch.full((2, 3), float(n)), "y": n}, tmp_path / f"{n}.pt")
    with make(tmp_path, format="groups", decode={"pt": decode.pt}, collate=torch.utils.data.default_collate) as loader:
        (batch,) = loader
        assert batch["pt"]["x"].shape == (5, 2, 3) and batch["pt"]["x"][:, 0, 0].tolist() == batch["pt"]["y"].tolist()
        assert sorted(batch["__key__"]) == sorted(str(n) for n in range(5))


def epoch_of(loader: Any) -> list[list[str]]:
    return [batch["__key__"] for batch in loader]


@pytest.mark.parametrize(("context", "workers"),
                         [(None, 0), ("spawn", 2), ("forkserver", 2), ("fork", 3), ("fork", 11)])
def test_iterable_dataset(tars: Path, context: str | None, workers: int) -> None:
    """The workers together deliver each sample once, in the order of a single loader."""
    with make(tars) as loader:
        orders = [[batch.sample_keys for batch in loader] for _ in range(2)]
        loader.set_epoch(0)
        dataset = loader.as_iterable_dataset()
        more = {"multiprocessing_context": context, "persistent_workers": context != "fork"} if workers else {}
        batches = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, **more)
        for epoch, order in enumerate(orders):
            if context == "fork":
                dataset.set_epoch(epoch)
            assert epoch_of(batches) == order
        del batches


def test_items_of_a_dataset(tars: Path) -> None:
    with make(tars) as loader:
        batches = torch.utils.data.DataLoader(loader.as_iterable_dataset(), batch_size=None, num_workers=1,
                                              multiprocessing_context="fork")
        for item in batches:
            assert isinstance(item["txt"], Ragged) and torch.is_tensor(item["__index__"])
            assert [part.numpy().tobytes() for part in item["txt"]] == [content(n, "txt")
                                                                        for n in item["__index__"].tolist()]
    with make(tars, decode=lambda batch: int(batch.indices.sum())) as loader:
        assert sum(torch.utils.data.DataLoader(loader.as_iterable_dataset(), batch_size=None)) == sum(range(SAMPLES))
    with make(tars, device="cuda", framework="torch") if torch.cuda.is_available() else make(tars) as loader:
        dataset = loader.as_iterable_dataset()
        dataset._arguments["device"] = "cuda:0"
        batches = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
        with pytest.raises(InvalidError, match="num_workers=0"):
            next(iter(batches))


def test_node_of_torchdata(tars: Path) -> None:
    nodes = pytest.importorskip("torchdata.nodes")
    with make(tars) as loader:
        orders = [[batch.sample_keys for batch in loader] for _ in range(3)]
    with make(tars) as loader:
        feed = nodes.Loader(loader.as_node())
        assert [batch.sample_keys for batch in feed] == orders[0]
        running = iter(feed)
        first = [next(running).sample_keys for _ in range(3)]
        state = json.loads(json.dumps(feed.state_dict()))
    with make(tars) as loader:
        feed = nodes.Loader(loader.as_node())
        feed.load_state_dict(state)
        assert first + [batch.sample_keys for batch in feed] == orders[1]
        assert [batch.sample_keys for batch in feed] == orders[2]
        chained = nodes.Prefetcher(nodes.Mapper(loader.as_node(), lambda batch: batch.size), 2)
        assert sum(nodes.Loader(chained)) == SAMPLES


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader(tars: Path, workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    more = {"multiprocessing_context": "fork"} if workers else {}

    def batches(loader: Loader) -> Any:
        return stateful.StatefulDataLoader(loader.as_iterable_dataset(), batch_size=None, num_workers=workers, **more)

    with make(tars) as loader:
        order = [batch.sample_keys for batch in loader]
        loader.set_epoch(0)
        running = batches(loader)
        rows = iter(running)
        first = [next(rows)["__key__"] for _ in range(3)]
        state = running.state_dict()
        again = batches(loader)
        again.load_state_dict(state)
        assert first + epoch_of(again) == order
        del rows


RANKS = """
import datetime, json, multiprocessing, os, pathlib, signal, sys
import torch
import torch.distributed as dist

source, out, world, last = sys.argv[1], pathlib.Path(sys.argv[2]), 4, 2

def store(name, content):
    (out / (name + ".part")).write_text(json.dumps(content))
    os.replace(out / (name + ".part"), out / name)

def rank_of(rank, phase, state, step, victim):
    from nebulaio.data import Loader
    dist.init_process_group("gloo", init_method=f"file://{out}/meet-{phase}", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=200))
    loader = Loader(source, batch_size=3, device="cpu", seed=11, tail="short", epochs=last, decode=lambda batch: batch, threads=2)
    assert (loader.rank, loader.world) == (rank, world)
    if state is not None:
        loader.load_state_dict(state)
    for _ in range(last):
        for batch in loader:
            if (rank, step) == victim:
                os.kill(os.getpid(), signal.SIGKILL)  # with a batch that no checkpoint has
            total = torch.tensor([batch.size])
            dist.all_reduce(total)  # the step of training
            # The state and the samples of a step are stored together, as a checkpoint stores the model with the state.
            store(f"step-{step}-{rank}", {"epoch": batch.epoch, "keys": batch.sample_keys, "state": loader.state_dict()})
            step += 1
    dist.destroy_process_group()

def run(phase, state, step, victim):
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=rank_of, args=(rank, phase, state, step, victim)) for rank in range(world)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    return [one.exitcode for one in ranks]

codes = run(0, None, 0, (2, int(sys.argv[3])))
assert codes[2] == -signal.SIGKILL and all(codes), codes
step = 0
while all((out / f"step-{step}-{rank}").exists() for rank in range(world)):
    step += 1
# A step counts if all ranks have stored it. A later one is done again.
for path in out.glob("step-*"):
    if int(path.name.split("-")[1]) >= step:
        path.unlink()
states = [json.loads((out / f"step-{step - 1}-{rank}").read_text())["state"] for rank in range(world)]
assert states[0] == states[1] == states[2] == states[3], states
assert run(1, states[0], step, None) == [0] * world
print(step)
"""


def test_ranks_of_gloo_one_of_them_killed(tmp_path: Path) -> None:
    """Four ranks, two epochs, one rank is killed in the second: each sample comes once per epoch."""
    source, out = archives(tmp_path / "tars", count=5, samples=250), tmp_path / "out"
    out.mkdir()
    steps = -(-250 // 12)
    assert python(RANKS, source, out, steps + 7, timeout=900) == f"{steps + 7}\n"
    seen: dict[int, Counter[str]] = {0: Counter(), 1: Counter()}
    for path in out.glob("step-*"):
        stored = json.loads(path.read_text())
        seen[stored["epoch"]].update(stored["keys"])
    for epoch in seen.values():
        assert set(epoch.values()) == {1} and len(epoch) == 250


def test_batches_move_to_other_processes(tars: Path) -> None:
    """Batches are mappings, so that tools which walk over mappings accept them."""
    with make(tars) as loader:
        batch = next(iter(loader))
        assert isinstance(batch, Batch) and numpy.asarray(batch.indices).tolist() == batch.indices.tolist()
        assert {**batch}.keys() == set(batch)
