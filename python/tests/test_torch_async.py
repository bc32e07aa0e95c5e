# SPDX-License-Identifier: Apache-2.0
"""AsyncSaver on the host: no torn parameters, back-pressure, errors, bounded memory, ends of processes, several ranks."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import ClosedError, InvalidError, NebulaioError, OutOfMemoryError
from support import PACKAGE, is_in, python, run_python, until
from torch_states import assert_equal, trained
from torch_worlds import run_world

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]

LONG = 60.0
"""Seconds after which a test has failed that waits for another thread."""


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Makes savers, and ends them behind the test."""
    from nebulaio.torch import AsyncSaver

    made = []

    def build(**options: Any) -> Any:
        made.append(AsyncSaver(**options))
        return made[-1]

    yield build
    for saver in made:
        try:
            saver.close()
        except NebulaioError:
            pass  # a test of errors


class Gate:
    """A planner of torch.distributed.checkpoint that waits before a save's first step until it is opened."""

    def __new__(cls, log: list[str] | None = None) -> Any:
        from torch.distributed.checkpoint import DefaultSavePlanner

        class Planner(DefaultSavePlanner):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.opened = threading.Event()
                self.reached = threading.Event()
                self.seen: list[Any] = []

            def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
                self.reached.set()
                assert self.opened.wait(LONG)
                if log is not None:
                    log.append("write")
                self.seen = [weakref.ref(one) for one in state_dict.values() if hasattr(one, "untyped_storage")]
                super().set_up_planner(state_dict, storage_meta, is_coordinator)

        return Planner()


def state_of(torch: Any, model: Any, optimizer: Any) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}


def loaded(torch: Any, path: Path, like: Any) -> Any:
    """A checkpoint as stock torch reads it, into memory of the shapes of `like`."""
    from torch.distributed.checkpoint import FileSystemReader, load
    from torch.utils._pytree import tree_map

    found = tree_map(lambda one: torch.zeros_like(one) if isinstance(one, torch.Tensor) else one, like)
    load(found, storage_reader=FileSystemReader(path), no_dist=True)
    return found


def copied(torch: Any, state: Any) -> Any:
    from torch.utils._pytree import tree_map

    return tree_map(lambda one: one.detach().clone() if isinstance(one, torch.Tensor) else one, state)


def step(torch: Any, model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.rand(4, 8)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "options", [{}, {"snapshot": "device"}, {"snapshot": "staging"}, {"snapshot": "staging", "memory": 0},
                {"memory": 500}],
    ids=["auto", "device", "staging", "nothing staged", "some staged"],
)
def test_a_running_training_never_tears_a_checkpoint(torch: Any, tmp_path: Path, make: Any,
                                                     options: dict[str, Any]) -> None:
    model, optimizer = trained(torch)
    saver = make(**options)
    expected = {}
    for number in range(6):
        saver.wait_before_step()
        step(torch, model, optimizer)
        state = state_of(torch, model, optimizer)
        expected[number] = copied(torch, state)
        saver.save(state, tmp_path / f"step-{number}", step=number)
    saver.wait()
    for number, state in expected.items():
        assert_equal(torch, loaded(torch, tmp_path / f"step-{number}", state), state)


def test_changes_right_after_the_call_do_not_reach_the_file(torch: Any, tmp_path: Path, make: Any) -> None:
    gate = Gate()
    saver = make(snapshot="device")
    state = {"w": torch.arange(1000.0), "turned": torch.arange(12.0).reshape(3, 4).t(), "list": [torch.ones(3), 5],
             "plain": {"a": [1, 2]}}
    expected = copied(torch, state)
    save = saver.save(state, tmp_path / "a", planner=gate)
    saver.wait_before_step()
    for tensor in (state["w"], state["turned"], state["list"][0]):
        tensor.fill_(-1)
    state["plain"]["a"].append(3)
    state["list"][1] = 6
    assert not save.done()
    gate.opened.set()
    report = save.wait()
    found = loaded(torch, tmp_path / "a", expected)
    assert bytes(found["turned"].contiguous().numpy()) == bytes(expected["turned"].contiguous().numpy())
    assert_equal(torch, {key: found[key] for key in ("w", "list", "plain")},
                 {key: expected[key] for key in ("w", "list", "plain")})
    assert report["snapshot"]["kind"] == "device" and report["snapshot"]["direct_bytes"] == 0
    assert report["snapshot"]["staged_bytes"] == 4000 + 48 + 12


@pytest.mark.parametrize("limit", [0, 4096])
def test_wait_before_step_waits_for_the_last_byte(torch: Any, tmp_path: Path, make: Any, limit: int) -> None:
    """With no room for a copy, the parameters are free when they are written."""
    log: list[str] = []
    gate = Gate(log)
    saver = make(snapshot="staging", memory=limit)
    weights = torch.arange(10_000.0)
    save = saver.save({"w": weights, "small": torch.ones(3)}, tmp_path / "a", planner=gate)

    def train() -> None:
        saver.wait_before_step()
        log.append("step")
        weights.fill_(-1)

    thread = threading.Thread(target=train)
    thread.start()
    assert gate.reached.wait(LONG) and until(lambda: is_in(thread, "wait", "wait", "wait_before_step")) and log == []
    gate.opened.set()
    thread.join(LONG)
    assert log == ["write", "step"]
    report = save.wait()
    assert torch.equal(loaded(torch, tmp_path / "a", {"w": weights})["w"], torch.arange(10_000.0))
    assert report["stall"]["before_step"] > 0 and report["snapshot"]["direct_bytes"] >= 40_000


def test_wait_before_step_waits_for_copies_in_the_background(torch: Any, tmp_path: Path, make: Any,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    from nebulaio.torch import _snapshot

    log: list[str] = []
    begun, opened = threading.Event(), threading.Event()
    real = _snapshot.copy_tensor

    def slow(target: Any, tensor: Any) -> None:
        begun.set()
        assert opened.wait(LONG)
        log.append("copy")
        real(target, tensor)

    monkeypatch.setattr(_snapshot, "copy_tensor", slow)
    monkeypatch.setattr(_snapshot, "SMALL", 100)
    gate = Gate(log)
    saver = make(snapshot="staging")
    weights = torch.arange(100.0)
    save = saver.save({"w": weights}, tmp_path / "a", planner=gate)

    def train() -> None:
        saver.wait_before_step()
        log.append("step")
        weights.fill_(-1)

    thread = threading.Thread(target=train)
    thread.start()
    assert begun.wait(LONG) and until(lambda: is_in(thread, "wait", "wait", "wait_before_step")) and log == []
    opened.set()
    thread.join(LONG)  # the step goes on before the write has begun
    assert log == ["copy", "step"]
    gate.opened.set()
    assert save.wait()["snapshot"] ["direct_bytes"] == 0
    assert torch.equal(loaded(torch, tmp_path / "a", {"w": weights})["w"], torch.arange(100.0))


def test_small_tensors_are_copied_at_once(torch: Any, tmp_path: Path, make: Any) -> None:
    """Forward changes the buffers of BatchNorm, before any call of wait_before_step."""
    model, optimizer = trained(torch)
    gate = Gate()
    state = {"model": model.state_dict(), "large": torch.zeros(1 << 19)}
    expected = copied(torch, state)
    save = make(snapshot="staging").save(state, tmp_path / "a", planner=gate)
    model(torch.rand(4, 8))
    assert not torch.equal(model[1].running_mean, expected["model"]["1.running_mean"])
    gate.opened.set()
    save.wait()
    assert_equal(torch, loaded(torch, tmp_path / "a", expected), expected)


def test_the_next_save_waits_for_the_one_in_flight(torch: Any, tmp_path: Path, make: Any) -> None:
    log: list[str] = []
    gate = Gate(log)
    saver = make()
    first = saver.save({"w": torch.ones(3)}, tmp_path / "a", planner=gate)
    later: list[Any] = []

    def save_more() -> None:
        later.append(saver.save({"w": torch.zeros(3)}, tmp_path / "b"))
        log.append(f"second, first is done: {first.done()}")

    thread = threading.Thread(target=save_more)
    thread.start()
    assert gate.reached.wait(LONG) and until(lambda: is_in(thread, "wait", "wait", "_start"))
    gate.opened.set()
    thread.join(LONG)
    assert log == ["write", "second, first is done: True"]
    assert later[0].wait()["stall"]["back_pressure"] > 0
    assert first.report["stall"]["back_pressure"] < later[0].report["stall_seconds"]


def test_two_saves_may_be_in_flight(torch: Any, tmp_path: Path, make: Any) -> None:
    saver = make(in_flight=2, memory=8192)
    gates = [Gate(), Gate()]
    saves = [saver.save({"w": torch.full((3,), float(number))}, tmp_path / str(number), planner=gates[number])
             for number in range(2)]
    gates[1].opened.set()
    assert not saves[0].done() and not saves[1].done()  # one behind the other: their collectives must not mix
    gates[0].opened.set()
    assert saver.wait()["checkpoint"] == str(tmp_path / "1")
    for number in range(2):
        assert torch.equal(loaded(torch, tmp_path / str(number), {"w": torch.ones(3)})["w"],
                           torch.full((3,), float(number)))


@pytest.mark.parametrize("call", ["save", "wait_before_step", "wait", "close", "handle"])
def test_an_error_surfaces_once_at_the_next_call(torch: Any, tmp_path: Path, make: Any, call: str) -> None:
    saver = make()
    (tmp_path / "file").write_bytes(b"")
    save = saver.save({"w": torch.ones(3)}, tmp_path / "file" / "step-1")
    save._ended.wait(LONG)
    calls: dict[str, Callable[[], Any]] = {
        "save": lambda: saver.save({"w": torch.ones(3)}, tmp_path / "next"),
        "wait_before_step": saver.wait_before_step,
        "wait": saver.wait,
        "close": saver.close,
        "handle": save.wait,
    }
    with pytest.raises(NebulaioError, match=r"save checkpoint .*file/step-1: ") as caught:
        calls[call]()
    assert caught.value.__cause__ is not None
    assert not (tmp_path / "next").exists()
    if call == "close":
        with pytest.raises(ClosedError):
            saver.wait()
        return
    saver.wait_before_step()
    assert saver.save({"w": torch.ones(3)}, tmp_path / "next").wait()["done"]
    assert save.report["done"] is False


def test_two_errors_surface_one_after_the_other(torch: Any, tmp_path: Path, make: Any) -> None:
    saver = make(in_flight=2)
    (tmp_path / "file").write_bytes(b"")
    gate = Gate()
    saves = [saver.save({"w": torch.ones(3)}, tmp_path / "file" / str(number), planner=gate) for number in range(2)]
    gate.opened.set()
    for save in saves:
        save._ended.wait(LONG)
    for number in range(2):
        with pytest.raises(NebulaioError, match=f"file/{number}: "):
            saver.wait()
    saver.wait()


def test_parameters_are_free_before_the_commit(torch: Any, tmp_path: Path, make: Any) -> None:
    """The step goes on when the data files are written, although the checkpoint is not complete yet."""
    from torch.distributed.checkpoint import DefaultSavePlanner

    reached, opened = threading.Event(), threading.Event()

    class Slow:
        def __reduce__(self) -> Any:  # pickled with the metadata, behind the data
            reached.set()
            assert opened.wait(LONG)
            return (int, ())

    class Planner(DefaultSavePlanner):  # type: ignore[misc]
        def create_global_plan(self, plans: Any) -> Any:
            plans, metadata = super().create_global_plan(plans)
            metadata.planner_data = {**(metadata.planner_data or {}), "slow": Slow()}
            return plans, metadata

    saver = make(snapshot="staging", memory=0)
    save = saver.save({"w": torch.ones(3)}, tmp_path / "a", planner=Planner())
    saver.wait_before_step()
    assert reached.wait(LONG) and not save.done() and not (tmp_path / "a" / ".metadata").exists()
    opened.set()
    assert save.wait()["done"]


def test_a_full_disk_leaves_the_last_checkpoint(torch: Any, tmp_path: Path, make: Any) -> None:
    import resource

    saver = make()
    saver.save({"w": torch.ones(3)}, tmp_path / "a").wait()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
        saver.save({"w": torch.zeros(1 << 20)}, tmp_path / "a")
        with pytest.raises(NebulaioError, match=r"save checkpoint .*/a: "):
            saver.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert torch.equal(loaded(torch, tmp_path / "a", {"w": torch.zeros(3)})["w"], torch.ones(3))


def test_memory_is_bounded_kept_and_freed(torch: Any, tmp_path: Path, make: Any) -> None:
    saver = make(snapshot="staging", memory=50_000)
    state = {f"w{number}": torch.rand(2000) for number in range(20)}
    address = None
    for number in range(3):
        saver.save(state, tmp_path / str(number))
        report = saver.wait()
        staging = saver._stagings[0]
        assert 0 < staging.size <= 50_000 and not staging.taken
        address = address or staging._region.data_ptr()
        assert staging._region.data_ptr() == address  # kept for the next save
        assert report["snapshot"]["staged_bytes"] == 6 * 8000 and report["snapshot"]["direct_bytes"] == 14 * 8000
    saver.close()
    assert staging.size == 0


def test_snapshots_are_freed(torch: Any, tmp_path: Path, make: Any) -> None:
    gate = Gate()
    gate.opened.set()
    saver = make()
    saver.save({"w": torch.rand(2000)}, tmp_path / "a", planner=gate).wait()
    seen = gate.seen
    del gate  # torch's planner keeps its last state
    gc.collect()
    assert len(seen) == 1 and seen[0]() is None


def test_prepare_allocates_before_the_first_save(torch: Any, tmp_path: Path, make: Any) -> None:
    saver = make(memory=1 << 20)
    state = {"w": torch.rand(2000)}
    saver.prepare(state)
    address = saver._stagings[0]._region.data_ptr()
    saver.save(state, tmp_path / "a").wait()
    assert saver._stagings[0]._region.data_ptr() == address


def test_shared_tensors_are_copied_once(torch: Any, tmp_path: Path, make: Any) -> None:
    one = torch.rand(1000)
    save = make().save({"a": one, "b": one, "c": one[:], "d": torch.nn.Parameter(one)}, tmp_path / "a")
    assert save.wait()["snapshot"]["staged_bytes"] == 4000
    found = loaded(torch, tmp_path / "a", {name: torch.zeros(1000) for name in "abcd"})
    assert all(torch.equal(found[name], one) for name in "abcd")


@pytest.mark.parametrize(
    ("asked", "wanted", "free", "kind", "words"),
    [
        ("auto", {"cuda:0": 100}, 1000, "device",
         "100 bytes fit into the 1000 free bytes of cuda:0 with a reserve of 50"),
        ("auto", {"cuda:0": 951}, 1000, "staging",
         "cuda:0 has 1000 free bytes, and a copy needs 951 with a reserve of 50"),
        ("auto", {"cuda:0": 950, "cpu": 500}, 1000, "device", "950 bytes fit"),
        ("auto", {"cuda:0": 1, "cpu": 501}, 1000, "staging", "501 bytes of CPU tensors exceed the limit of 500"),
        ("auto", {"cpu": 500}, 0, "device", "all tensors are on the CPU"),
        ("auto", {}, 0, "device", "all tensors are on the CPU"),
        ("staging", {"cuda:0": 1}, 1000, "staging", "asked for"),
        ("device", {"cuda:0": 100, "cpu": 501}, 1000, "device", "asked for"),
        ("device", {"cuda:0": 951}, 1000, None, "cuda:0 has 1000 free bytes.*snapshot='staging'"),
    ],
)
def test_the_kind_of_a_snapshot(torch: Any, monkeypatch: pytest.MonkeyPatch, asked: str, wanted: dict[str, int],
                                free: int, kind: str | None, words: str) -> None:
    from nebulaio.torch import _snapshot

    monkeypatch.setattr(_snapshot, "free_memory", lambda device: (free, 2000))
    if kind is None:
        with pytest.raises(OutOfMemoryError, match=words):
            _snapshot.choose(asked, wanted, 500, 50)
        return
    choice = _snapshot.choose(asked, wanted, 500, 50)
    assert choice.kind == kind and words in choice.reason


def test_wrong_arguments(torch: Any, tmp_path: Path, make: Any) -> None:
    for options in ({"snapshot": "gpu"}, {"memory": -1}, {"memory": "1"}, {"reserve": True}, {"in_flight": 0}):
        with pytest.raises(InvalidError, match=next(iter(options))):
            make(**options)
    saver = make()
    with pytest.raises(InvalidError, match="state_dict is a list"):
        saver.save([1], tmp_path / "a")
    with pytest.raises(InvalidError, match="step=-1"):
        saver.save({"w": torch.ones(3)}, tmp_path / "a", step=-1)
    with pytest.raises(InvalidError, match="cannot be copied"):
        saver.save({"w": torch.ones(3), "lock": threading.Lock()}, tmp_path / "a")
    assert saver.wait() is None and saver.report is None and os.listdir(tmp_path) == []
    saver.save({"w": torch.ones(3)}, tmp_path / "a").wait()  # its memory was given back
    saver.close()
    saver.close()
    with pytest.raises(ClosedError):
        saver.save({"w": torch.ones(3)}, tmp_path / "a")


def test_a_guarded_optimizer_waits_by_itself(torch: Any, tmp_path: Path, make: Any) -> None:
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.Adam(model.parameters())
    step(torch, model, optimizer)
    saver = make(snapshot="staging", memory=0)
    saver.guard(optimizer)
    log: list[str] = []
    gate = Gate(log)
    state = state_of(torch, model, optimizer)
    expected = copied(torch, state)
    saver.save(state, tmp_path / "a", planner=gate)

    def train() -> None:
        step(torch, model, optimizer)
        log.append("step")

    thread = threading.Thread(target=train)
    thread.start()
    assert gate.reached.wait(LONG)
    gate.opened.set()
    thread.join(LONG)
    assert log == ["write", "step"]
    saver.close()
    assert_equal(torch, loaded(torch, tmp_path / "a", expected), expected)
    step(torch, model, optimizer)  # the hook is gone: the closed saver would raise


def test_stateful_objects_and_the_default_saver(torch: Any, tmp_path: Path) -> None:
    from nebulaio.torch import async_save, default_saver

    class Counter:
        def __init__(self) -> None:
            self.count = torch.tensor(3)

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.count = state["count"]

    counter = Counter()
    save = async_save({"counter": counter, "model": torch.nn.Linear(2, 2)}, tmp_path / "a", step=4)
    default_saver().wait_before_step()
    counter.count += 1
    report = default_saver().wait()
    assert report is not None and report["step"] == 4 and report["checkpoint"] == save.checkpoint == str(tmp_path / "a")
    assert report["bytes"] == sum(report["routes"].values()) > 0
    assert int(loaded(torch, tmp_path / "a", {"counter": {"count": torch.tensor(0)}})["counter"]["count"]) == 3
    default_saver().close()
    assert default_saver().report is None


EXIT = """
import sys, torch, nebulaio.torch
saver = nebulaio.torch.AsyncSaver(snapshot="staging")
saver.save({"w": torch.ones(1 << 20)}, sys.argv[1])
print("end of the program")
if len(sys.argv) > 2:
    raise SystemExit(3)
"""


def test_the_end_of_the_interpreter_waits_for_the_save(torch: Any, tmp_path: Path) -> None:
    assert python(EXIT, tmp_path / "a") == "end of the program\n"
    assert torch.equal(loaded(torch, tmp_path / "a", {"w": torch.zeros(1 << 20)})["w"], torch.ones(1 << 20))
    done = run_python(EXIT, tmp_path / "b", "leave")
    assert done.returncode == 3 and (tmp_path / "b" / ".metadata").exists()
    (tmp_path / "file").write_bytes(b"")
    done = run_python(EXIT, tmp_path / "file" / "c")
    assert done.returncode == 0
    assert "nebulaio: save checkpoint" in done.stderr and "no later call has raised this error" in done.stderr


FORK = """
import os, sys, torch, threading, nebulaio.torch
from torch.distributed.checkpoint import DefaultSavePlanner
opened = threading.Event()
class Planner(DefaultSavePlanner):
    def set_up_planner(self, *args, **options):
        opened.wait()
        super().set_up_planner(*args, **options)
saver = nebulaio.torch.AsyncSaver()
first = saver.save({"w": torch.ones(3)}, sys.argv[1] + "/parent", planner=Planner())
child = os.fork()
if child == 0:
    saver.wait_before_step()
    assert saver.wait() is None
    saver.save({"w": torch.zeros(3)}, sys.argv[1] + "/child").wait()
    saver.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert not first.done()
opened.set()
first.wait()
saver.close()
print("both")
"""


def test_a_forked_child_has_saves_of_its_own(torch: Any, tmp_path: Path) -> None:
    assert python(FORK, tmp_path) == "both\n"
    for name, value in (("parent", 1.0), ("child", 0.0)):
        assert torch.equal(loaded(torch, tmp_path / name, {"w": torch.ones(3)})["w"], torch.full((3,), value))


INTERRUPT = """
import sys, torch, threading, nebulaio.torch
from torch.distributed.checkpoint import DefaultSavePlanner
opened = threading.Event()
class Planner(DefaultSavePlanner):
    def set_up_planner(self, *args, **options):
        opened.wait()
        super().set_up_planner(*args, **options)
saver = nebulaio.torch.AsyncSaver(snapshot="staging", memory=0)
saver.save({"w": torch.ones(3)}, sys.argv[1], planner=Planner())
try:
    print("begun", flush=True)
    saver.wait_before_step()
except KeyboardInterrupt:
    print("interrupted", flush=True)
opened.set()
saver.close()
print("closed", flush=True)
"""


def test_ctrl_c_ends_a_wait_and_not_the_save(torch: Any, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", INTERRUPT, str(tmp_path / "a")],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=LONG)[0] == "interrupted\nclosed\n"
        finally:
            process.kill()
    assert torch.equal(loaded(torch, tmp_path / "a", {"w": torch.zeros(3)})["w"], torch.ones(3))


WORLD = """
from torch.distributed._shard import sharded_tensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
mesh = init_device_mesh("cpu", (world,))
whole = torch.arange(40.0).reshape(10, 4)
saver = nebulaio.torch.AsyncSaver(snapshot=os.environ["KIND"], memory=int(os.environ["MEMORY"]))
for step in range(3):
    saver.wait_before_step()
    if step == 0:
        weight, same = (distribute_tensor(whole.clone(), mesh, [place]) for place in (Shard(0), Replicate()))
        plain = torch.ones(5)
    else:
        with torch.no_grad():
            weight.to_local().add_(1)
            same.to_local().add_(1)
            plain.add_(1)
    assert dist.all_gather_object([None] * world, step) is None  # a collective of the training meanwhile
    shard = sharded_tensor.Shard.from_tensor_and_offsets(torch.full((2, 3), rank + step * 1.0), [rank * 2, 0], rank)
    old = sharded_tensor.init_from_local_shards([shard], (2 * world, 3))
    state = {"weight": weight, "same": same, "plain": plain, "step": step, "old": old}
    saver.save(state, f"{folder}/step-{step}", step=step)
report = saver.wait()
assert report["done"] and report["write"]["world"] == world, report
saver.close()
for step in range(3):
    found = {"weight": torch.zeros(10, 4), "same": torch.zeros(10, 4), "plain": torch.zeros(5), "step": -1, "old": torch.zeros(4, 3)}
    dcp.load(found, checkpoint_id=f"{folder}/step-{step}")
    assert torch.equal(found["weight"], whole + step) and torch.equal(found["same"], whole + step), found
    assert torch.equal(found["plain"], torch.ones(5) + step) and found["step"] == step
    assert found["old"][:, 0].tolist() == [step, step, step + 1, step + 1], found
"""


@pytest.mark.parametrize(("kind", "memory"), [("device", "100000"), ("staging", "64")])
def test_two_ranks_save_while_they_train(tmp_path: Path, kind: str, memory: str) -> None:
    run_world(WORLD, tmp_path, KIND=kind, MEMORY=memory)


FAILING = """
from nebulaio.errors import NebulaioError
from torch.distributed.checkpoint import DefaultSavePlanner
class Failing(DefaultSavePlanner):
    def resolve_data(self, item):
        if rank == 1:
            raise OSError("the disk of rank 1 is gone")
        return super().resolve_data(item)
saver = nebulaio.torch.AsyncSaver()
state = {"own": torch.ones(4) * rank, f"rank{rank}": torch.ones(7)}
saver.save(state, folder + "/a", planner=Failing())
try:
    saver.save(state, folder + "/b")
    print("missed")
except NebulaioError as problem:
    assert "save checkpoint" in str(problem) and folder + "/a" in str(problem) and "rank 1: OSError: the disk" in str(problem), problem
class Lock:
    def __deepcopy__(self, memo):
        raise ValueError("not this one")
try:
    saver.save({**state, "lock": Lock()} if rank == 1 else state, folder + "/c")
    assert rank == 0
    saver.wait()
    print("missed")
except NebulaioError as problem:
    assert "not this one" in str(problem), problem
    assert rank == 1 or (folder + "/c" in str(problem) and "rank 1 has no snapshot" in str(problem)), problem
saver.save(state, folder + "/d")
saver.wait()
saver.close()
print(sorted(os.listdir(folder)), "rank", rank)
"""


def test_an_error_of_one_rank_is_told_to_all(tmp_path: Path) -> None:
    for rank, said in enumerate(run_world(FAILING, tmp_path)):
        assert "missed" not in said and f"rank {rank}" in said
    assert not (tmp_path / "a" / ".metadata").exists() and not (tmp_path / "b").exists() and not (
        tmp_path / "c").exists()
    assert (tmp_path / "d" / ".metadata").exists()
