# SPDX-License-Identifier: Apache-2.0
"""Row `async`: a loop of matrix products with an Adam step, and saves of its state.

Each contender makes one first save, which is checked, and then one save for each round. Before each save, some steps
run without a save: the steps during the save are compared with their median. Every step ends with a wait for the
stream of the training, as a loop that reads its loss does. A stall is the time that the loop spends in the call that
starts a save, in the copies that hold up its stream, and in the wait before the optimizer's step.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbench.measure import in_words

from . import loads, saves, states
from .background import HostWatch, Ours, Saver, Stock
from .bench import Bench
from .rounds import Clock

LAYERS = 8
ALONE = 15  # steps without a save, before each save
LEAST = 5  # steps after the start of a save


class Loop:
    """A model of square matrices with Adam, whose parameters and optimizer state have about `size` bytes."""

    def __init__(self, device: Any, size: int, tokens: int) -> None:
        import torch

        self.torch: Any = torch
        self.device = device
        width = max(64, int(math.sqrt(size / 3 / 4 / LAYERS)) // 64 * 64)  # float32: parameters and two moments
        torch.manual_seed(1)
        self.model: Any = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)))
        self.model.to(device.torch_name)
        self.optimizer: Any = torch.optim.Adam(self.model.parameters(), lr=1e-6, fused=device.is_cuda or None)
        self.input = torch.rand(tokens, width, device=device.torch_name)
        for _ in range(3):
            self.step()

    @property
    def bytes(self) -> int:
        """Return the bytes of parameters and moments."""
        return 3 * sum(int(one.numel() * one.element_size()) for one in self.model.parameters())

    def state(self) -> dict[str, Any]:
        """Return the state as a training would save it: views of the parameters and moments themselves."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def step(self, before: Callable[[], object] = lambda: None) -> tuple[float, float]:
        """Run one step, with a call before the optimizer's step. Returns the seconds of the step and of the call.

        The seconds of the step do not include those of the call.
        """
        start = time.perf_counter()
        self.optimizer.zero_grad()
        with self.torch.autocast(self.input.device.type, self.torch.bfloat16, enabled=self.device.is_cuda):
            out = self.model(self.input)
        out.float().square().mean().backward()
        called = time.perf_counter()
        before()
        waited = time.perf_counter() - called
        self.optimizer.step()
        self.sync()
        return time.perf_counter() - start - waited, waited

    def sync(self) -> None:
        """Wait for the stream of the training, and for no other."""
        if self.device.is_cuda:
            self.torch.cuda.current_stream(self.device.name).synchronize()


def run(bench: Bench, clock: Clock) -> dict[str, Any]:
    """Measure the stall of saves in the background, the steps beside them, and the memory that they take."""
    given, device = bench.given, bench.device
    loop = Loop(device, given.async_size, given.tokens)
    memory = given.async_memory or math.ceil(loop.bytes * 1.05) + (1 << 20)
    contenders: dict[str, Callable[[], Saver]] = {
        "ours, device": lambda: Ours("device", memory),
        "ours, staging": lambda: Ours("staging", memory),
        "dcp.async_save": lambda: Stock(device.is_cuda),
    }
    result: dict[str, Any] = {"bytes": loop.bytes, "memory": memory, "blocking_s": [], "contenders": {}}
    bench.files.room(2 * loop.bytes)
    few = {"weight": loop.model[0].weight.detach()}
    bench.first("save, ours", lambda: saves.save(few, saves.writer("ours", bench.files.scratch)))
    share = clock.left() / len(contenders)
    for number, (name, make) in enumerate(contenders.items()):
        later = Clock(clock.left() - share * (len(contenders) - 1 - number))
        result["blocking_s"].append(_blocking(bench, loop))
        found: dict[str, Any] = {"saves": [], "failed": []}
        result["contenders"][name] = found
        try:
            _contender(bench, loop, name, make, found, later)
        except Exception as problem:  # noqa: BLE001  recorded as the result
            found["failed"].append(in_words(problem))
            bench.say(f"  {name} failed: {in_words(problem)}")
        device.give_back()
    bench.files.clear_scratch()
    return result


def _blocking(bench: Bench, loop: Loop) -> float:
    """Return the seconds of our save that holds up the loop."""
    bench.files.clear_scratch()
    loop.sync()
    start = time.perf_counter()
    saves.save(loop.state(), saves.writer("ours", bench.files.scratch))
    seconds = time.perf_counter() - start
    bench.files.clear_scratch()
    bench.say(f"  a save that the loop waits for: {seconds:.3f} s")
    return seconds


def _contender(
    bench: Bench, loop: Loop, name: str, make: Callable[[], Saver], found: dict[str, Any], clock: Clock
) -> None:
    path, device = bench.files.scratch, bench.device
    bench.files.clear_scratch()
    expected = copy.deepcopy(loop.state())
    watch = HostWatch()
    with watch:
        saver = make()
        try:
            found["first"] = one_save(loop, saver, path)
        except BaseException:
            saver.close()
            raise
    try:
        found.update(process_bytes=watch.process, machine_bytes=watch.machine)
        _check(loop, path, expected, found)
        del expected
        bench.say(
            f"  {name}: first save {_words(found['first'])}, bits {found['bits']}, "
            f"host memory {watch.process / 1e9:.2f} GB"
        )
        for number in range(bench.rounds):
            if number and found["saves"][-1]["seconds"] * 1.5 > clock.left():
                break
            bench.files.clear_scratch()
            device.collect()
            before = device.reset_peak()
            alone = [loop.step()[0] for _ in range(ALONE)]
            base = device.peak()
            device.reset_peak()
            one = one_save(loop, saver, path)
            one["gpu_bytes"] = max(0, device.peak() - max(base, before))
            one["alone_s"] = statistics.median(alone)
            one["slower"] = one["step_s"] / one["alone_s"] - 1
            found["saves"].append(one)
            bench.say(f"  {name}: save {number + 1} {_words(one)}, alone {one['alone_s'] * 1e3:.1f} ms")
    finally:
        saver.close()


def one_save(loop: Loop, saver: Saver, path: Path) -> dict[str, Any]:
    """Start a save, run steps until the checkpoint is durable, and return what the loop has noticed."""
    state = loop.state()
    loop.sync()
    start = time.perf_counter()
    saver.save(state, path)
    loop.sync()  # the stream of the training waits for copies on the device
    call = time.perf_counter() - start
    steps: list[float] = []
    waits = ended = 0.0
    while True:
        running = not saver.done()
        if not running:
            ended = ended or time.perf_counter()
            if len(steps) >= LEAST:
                break
        seconds, waited = loop.step(saver.before_step)
        waits += waited
        if running or len(steps) < LEAST:
            steps.append(seconds)
    report = saver.wait()
    return {"seconds": ended - start, "stall_s": call + waits, "call_s": call, "wait_s": waits,
            "steps": len(steps), "step_s": statistics.median(steps), "report": report}


def _check(loop: Loop, path: Path, expected: Any, found: dict[str, Any]) -> None:
    """Compare a checkpoint with the state at the time of its save. Raises an error if they differ."""
    target = states.blank(expected)
    loads.load("ours", path, target)
    loop.device.sync()
    found["bits"] = states.bits(target, expected)
    if found["bits"] != "equal":
        raise RuntimeError(f"the checkpoint is not the state at the time of the save: {found['bits']}")


def _words(one: dict[str, Any]) -> str:
    return (f"{one['seconds']:.2f} s, stall {one['stall_s'] * 1e3:.1f} ms, "
            f"{one['steps']} steps of {one['step_s'] * 1e3:.1f} ms")
