# SPDX-License-Identifier: Apache-2.0
"""AsyncSaver, and load and save of .pt files, on a real GPU; off by default, run with -m cuda."""

from __future__ import annotations

import ctypes
import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import OutOfMemoryError
from torch_states import assert_equal, random_state, trained

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]

MIB = 1 << 20


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


def on_card(torch: Any, state: Any) -> Any:
    """The state with its dense tensors on the GPU, with the same strides and ties of storages."""
    storages: dict[int, Any] = {}

    def move(one: Any) -> Any:
        if isinstance(one, torch.Tensor) and one.layout is torch.strided:
            base = one.untyped_storage()
            if base.data_ptr() not in storages:
                storages[base.data_ptr()] = base.cuda()
            moved = torch.empty(0, dtype=one.dtype, device="cuda")
            moved.set_(storages[base.data_ptr()], one.storage_offset(), one.shape, one.stride())
            return torch.nn.Parameter(moved) if isinstance(one, torch.nn.Parameter) else moved
        if isinstance(one, dict):
            return type(one)((key, move(value)) for key, value in one.items())
        if isinstance(one, (list, tuple)):
            return type(one)(move(value) for value in one)
        return one

    return move(state)


def loaded(torch: Any, path: Path, like: dict[str, Any]) -> dict[str, Any]:
    from torch.distributed.checkpoint import FileSystemReader, load

    found = {name: torch.zeros(one.shape, dtype=one.dtype) for name, one in like.items()}
    load(found, storage_reader=FileSystemReader(path), no_dist=True)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_pt_files_have_the_same_bits_both_ways(torch: Any, tmp_path: Path, seed: int) -> None:
    from nebulaio.torch import load, save

    state = on_card(torch, random_state(torch, seed))
    torch.save(state, tmp_path / "theirs.pt")
    save(state, tmp_path / "ours.pt")
    for name in ("theirs.pt", "ours.pt"):
        for place in (None, "cuda", "cuda:0", torch.device("cuda", 0), "cpu", {"cuda:0": "cpu"}, {"cpu": "cuda:0"}):
            assert_equal(torch, load(tmp_path / name, place), torch.load(tmp_path / name, place))
        found = load(tmp_path / name, lambda storage, location: storage.cuda() if location == "cpu" else None)
        assert_equal(torch, found, torch.load(tmp_path / name, "cuda:0"))
    assert_equal(torch, load(tmp_path / "ours.pt", verify=True), state)
    assert load(tmp_path / "ours.pt")["tied"].device == torch.device("cuda", 0)


def test_a_save_sees_work_that_is_queued(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import load, save

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        weights = torch.zeros(4 * MIB, device="cuda")
        torch.cuda._sleep(200_000_000)
        weights.fill_(7)
        save({"w": weights}, tmp_path / "a.pt")
    assert bool((load(tmp_path / "a.pt", "cpu")["w"] == 7).all())


@pytest.mark.parametrize(
    "options", [{}, {"snapshot": "device"}, {"snapshot": "staging"}, {"snapshot": "staging", "memory": 3 * MIB},
                {"snapshot": "staging", "memory": 0}],
    ids=["auto", "device", "staging", "little staging", "no staging"],
)
def test_steps_on_the_card_never_tear_a_checkpoint(torch: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    from nebulaio.torch import AsyncSaver

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.BatchNorm1d(1024),
                                torch.nn.Linear(1024, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    expected = {}
    with AsyncSaver(**options) as saver:
        for number in range(5):
            optimizer.zero_grad()
            if options.get("memory") == 0:
                saver.wait_before_step()  # nothing is copied, so forward must not change the buffers of BatchNorm
            model(torch.rand(16, 1024, device="cuda")).square().sum().backward()
            saver.wait_before_step()
            optimizer.step()
            state = dict(model.state_dict())
            expected[number] = {name: one.to("cpu", copy=True) for name, one in state.items()}
            report = saver.save(state, tmp_path / str(number)).report
        report = saver.wait()
    for number, state in expected.items():
        assert_equal(torch, loaded(torch, tmp_path / str(number), state), state)
    kind = options.get("snapshot", "auto")
    assert report["snapshot"]["kind"] == ("device" if kind == "auto" else kind)
    if kind == "staging":
        assert report["snapshot"]["device_bytes"] == 0
        assert (report["snapshot"]["direct_bytes"] > 0) == ("memory" in options)
    else:
        assert report["snapshot"]["device_bytes"] > 4 * MIB and report["snapshot"]["direct_bytes"] == 0


def test_changes_right_after_the_call_do_not_reach_the_file(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import AsyncSaver

    with AsyncSaver(snapshot="device") as saver:
        weights = torch.zeros(64 * MIB, device="cuda")
        torch.cuda._sleep(100_000_000)
        weights.fill_(1)  # queued before the save
        saver.save({"w": weights}, tmp_path / "a")
        weights.fill_(2)  # queued after it, without wait_before_step
        saver.wait()
    assert bool((loaded(torch, tmp_path / "a", {"w": weights})["w"] == 1).all())


def test_memory_of_the_card_is_freed_even_if_a_planner_keeps_the_state(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import AsyncSaver
    from torch.distributed.checkpoint import DefaultSavePlanner

    planner = DefaultSavePlanner()
    weights = torch.zeros(64 * MIB, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with AsyncSaver(snapshot="device") as saver:
        saver.save({"w": weights}, tmp_path / "a", planner=planner)
        saver.wait()
        gc.collect()
        assert torch.cuda.memory_allocated() == before


def test_staging_memory_is_pinned_bounded_and_kept(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import AsyncSaver

    state = {str(number): torch.full((MIB,), float(number), device="cuda") for number in range(12)}
    saver = AsyncSaver(snapshot="staging", memory=20 * MIB)
    saver.prepare(state)
    staging = saver._stagings[0]
    address = staging._region.data_ptr()
    for number in range(3):
        saver.save(state, tmp_path / str(number))
        report = saver.wait()
        # torch asks about the begin of a tensor's storage, which here is before the first page of the region.
        region = torch.frombuffer((ctypes.c_char * staging.size).from_address(address), dtype=torch.uint8)
        assert report is not None and staging.pinned and region.is_pinned() and staging.size <= 20 * MIB
        assert staging._region.data_ptr() == address
        assert report["snapshot"]["staged_bytes"] == 20 * MIB and report["snapshot"]["direct_bytes"] == 28 * MIB
    saver.close()
    assert staging.size == 0 and not staging.pinned
    assert all(torch.equal(one, state[name].cpu()) for name, one in loaded(torch, tmp_path / "2", state).items())


def test_auto_takes_staging_if_the_card_is_full(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import AsyncSaver

    weights = torch.ones(8 * MIB, device="cuda")
    free, total = torch.cuda.mem_get_info()
    with AsyncSaver(reserve=total) as saver:
        saver.save({"w": weights}, tmp_path / "a")
        report = saver.wait()
        assert report is not None and report["snapshot"]["kind"] == "staging" and "cuda:0 has" in report["snapshot"][
            "reason"]
    with AsyncSaver(snapshot="device", reserve=total) as saver:
        with pytest.raises(OutOfMemoryError, match=r"cuda:0 has.*snapshot='staging'"):
            saver.save({"w": weights}, tmp_path / "b")
        assert not (tmp_path / "b").exists()


def test_tensors_of_the_card_and_of_the_host_together(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import AsyncSaver

    state = {"gpu": torch.rand(3 * MIB, device="cuda"), "cpu": torch.rand(3 * MIB),
             "turned": torch.rand(64, 32, device="cuda").t()}
    for kind in ("device", "staging"):
        expected = {name: one.cpu().clone() for name, one in state.items()}
        with AsyncSaver(snapshot=kind) as saver:
            saver.save(state, tmp_path / kind)
            saver.wait_before_step()
            for one in state.values():
                one.add_(1)
            saver.wait()
        for name, one in loaded(torch, tmp_path / kind, expected).items():
            assert torch.equal(one, expected[name])


def test_saves_of_two_threads_and_streams(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import AsyncSaver

    problems: list[BaseException] = []

    def train(number: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()), AsyncSaver() as saver:
                weights = torch.zeros(4 * MIB, device="cuda")
                for step in range(4):
                    saver.wait_before_step()
                    weights.fill_(number * 10 + step)
                    saver.save({"w": weights}, tmp_path / f"{number}-{step}")
        except BaseException as problem:  # noqa: BLE001 - raised in the test's thread
            problems.append(problem)

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    for number in range(2):
        for step in range(4):
            found = loaded(torch, tmp_path / f"{number}-{step}", {"w": torch.zeros(4 * MIB)})["w"]
            assert bool((found == number * 10 + step).all())


def test_a_trained_model_goes_on(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import Checkpoints

    model, optimizer = trained(torch)
    model.cuda()
    optimizer.load_state_dict(optimizer.state_dict())  # its state follows the parameters to the card
    with Checkpoints(tmp_path, keep_last=1) as checkpoints:
        checkpoints.async_save(3, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        checkpoints.wait()
        other, _ = trained(torch, seed=5)
        other.cuda()
        state = {"model": other.state_dict()}
        assert checkpoints.load(state, verify=True) == 3
    assert_equal(torch, dict(other.state_dict()), dict(model.state_dict()))
