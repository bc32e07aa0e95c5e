# SPDX-License-Identifier: Apache-2.0
"""A loss of power during a save: ours always leaves the old or the new checkpoint whole, and stock torch does not."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import powercut  # noqa: E402
from support import PACKAGE  # noqa: E402

SAVES = """
import os, sys, warnings
import torch
import torch.distributed.checkpoint as dcp
from nebulaio.torch import StorageWriter
warnings.simplefilter("ignore")
torch.set_num_threads(1)
for number in range(3):
    writer = StorageWriter(sys.argv[1]) if sys.argv[2] == "ours" else dcp.FileSystemWriter(sys.argv[1])
    state = {"w": torch.full((300000,), float(number)), "turned": torch.ones(4, 5).t(), "n": number}
    dcp.save(state, storage_writer=writer, no_dist=True)
    os.write(1, b"saved")
"""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[powercut.Call], Path]:
    """The calls of three saves of ours, and their directory."""
    return calls_of("ours", tmp_path_factory.mktemp("ours"))


def calls_of(kind: str, tmp_path: Path) -> tuple[list[powercut.Call], Path]:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folder = (tmp_path / "checkpoint").resolve()
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}"}
    try:
        calls = powercut.trace([sys.executable, "-c", SAVES, str(folder), kind], folder, tmp_path / "log", env)
    except powercut.subprocess.CalledProcessError as problem:
        if b"ptrace" in problem.stderr:
            pytest.skip("the kernel allows no ptrace here")
        raise AssertionError(problem.stderr.decode()) from None
    return calls, folder


def is_acknowledged(call: powercut.Call) -> bool:
    return call.name == "write" and call.arguments.startswith("1<") and call.arguments.endswith(", 5")


def checkpoints(calls: list[powercut.Call], folder: Path) -> list[dict[str, tuple[int, int]]]:
    """The files of each checkpoint when its save had returned: which they are, and how often each had been changed."""
    return [
        {
            name: (node.number, len(node.changes))
            for name, node in disk.names.items()
            if name.endswith((".distcp", ".json")) or name == ".metadata"
        }
        for call, _, disk in powercut.replay(calls, folder)
        if is_acknowledged(call)
    ]


def losses(calls: list[powercut.Call], folder: Path) -> list[str]:
    """What a loss of power can cost, at each call after the first save: neither the last checkpoint nor the new one."""
    made = checkpoints(calls, folder)
    assert len(made) == 3
    found = []
    acknowledged = -1
    for number, (call, name, disk) in enumerate(powercut.replay(calls, folder)):
        acknowledged += is_acknowledged(call)
        if acknowledged < 0:
            continue
        where = f"call {number} ({call.name} {name})"
        for metadata in disk.possible(".metadata"):
            which = next((k for k, one in enumerate(made) if metadata and one[".metadata"][0] == metadata.number), None)
            if which is None or which < acknowledged:
                found.append(f"{where}: .metadata may be {'missing' if metadata is None else 'an old one'}")
                continue
            for file, (node, changes) in made[which].items():
                for possible in [metadata] if file == ".metadata" else disk.possible(file):
                    if possible is None or possible.number != node:
                        found.append(f"{where}: {file} of save {which} may be missing")
                    elif (len(possible.changes), possible.synced) != (changes, changes):
                        found.append(f"{where}: the content of {file} of save {which} may be lost")
    return found


def test_ours_always_leaves_a_whole_checkpoint(ours: tuple[list[powercut.Call], Path]) -> None:
    calls, folder = ours
    assert len(calls) > 60
    assert losses(calls, folder) == []
    *_, (_, _, disk) = powercut.replay(calls, folder)
    assert disk.syncs > 10


def test_stock_torch_loses_checkpoints(tmp_path: Path) -> None:
    """Why there is a writer of our own. torch 2.11 also syncs the metadata while it is still empty."""
    calls, folder = calls_of("stock", tmp_path)
    found = losses(calls, folder)
    assert any(".metadata may be missing" in loss for loss in found)
    assert any("the content of __0_0.distcp" in loss for loss in found)  # the old data file is written over
    *_, (_, _, disk) = powercut.replay(calls, folder)
    assert disk.syncs == 0  # no name is ever made durable, not even after the save has returned
    empty = [
        name
        for call, name, disk in powercut.replay(calls, folder)
        if call.name == "fsync" and name == ".metadata.tmp" and not disk.names[name].changes
    ]
    if torch.__version__.startswith("2.11."):
        assert len(empty) == 3
    assert bool(empty) == any("the content of .metadata" in loss for loss in found)


def test_the_model_finds_a_missing_sync(ours: tuple[list[powercut.Call], Path]) -> None:
    """The proof above would fail if the last sync of the directory, or that of the metadata, were left out."""
    calls, folder = ours
    directory = [at for at, call in enumerate(calls) if call.name == "fsync" and call.arguments.endswith(f"<{folder}>")]
    metadata = [at for at, call in enumerate(calls) if call.name == "fsync" and "..metadata." in call.arguments]
    data = [at for at, call in enumerate(calls) if call.name == "fsync" and ".distcp." in call.arguments
            and ".tmp>" in call.arguments]
    assert len(metadata) == 3 and len(data) == 6
    for left_out in ({metadata[1]}, {data[2]}, set(directory[-3:]), set(directory)):
        kept = [call if at not in left_out else call._replace(name="nothing") for at, call in enumerate(calls)]
        assert losses(kept, folder), left_out
