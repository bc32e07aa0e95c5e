# SPDX-License-Identifier: Apache-2.0
"""Parts of tensors into GPU memory, and checkpoints of tensors on several devices."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.cuda]
torch = pytest.importorskip("torch")

from checkpoint_support import load, save  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter  # noqa: E402


def test_tensors_on_both_devices_share_a_save(tmp_path: Path) -> None:
    state = {"gpu": torch.arange(5000.0, device="cuda"), "host": torch.arange(7),
             "turned": torch.randn(30, 20, device="cuda").t(), "n": 1}
    writer = StorageWriter(tmp_path)
    save(state, writer)
    assert writer.report is not None and writer.report["copied_items"] == 1
    got = {"gpu": torch.zeros(5000), "host": torch.zeros(7, dtype=torch.int64, device="cuda"),
           "turned": torch.zeros(30, 20, device="cuda").t(), "n": 0}
    reader = StorageReader(tmp_path, verify=True)
    load(got, reader)
    assert torch.equal(got["gpu"], state["gpu"].cpu()) and torch.equal(got["host"].cpu(), state["host"])
    assert torch.equal(got["turned"], state["turned"]) and got["n"] == 1
    assert reader.report is not None and reader.report["items"]["buffered"] == 1


def test_columns_of_large_tensors(tmp_path: Path) -> None:
    """A part of each row goes to the GPU without its neighbours."""
    from test_checkpoint_dcp import PartPlanner

    whole = torch.randn(512, 300, 16)
    save({"w": whole}, StorageWriter(tmp_path))
    for at, lengths in (((0, 100, 0), (512, 50, 16)), ((3, 0, 4), (500, 300, 8)), ((100, 20, 3), (7, 200, 1))):
        target = torch.zeros(lengths, device="cuda")
        reader = StorageReader(tmp_path)
        load({"w": target}, reader, planner=PartPlanner({"w": at}))
        part = tuple(slice(begin, begin + length) for begin, length in zip(at, lengths))
        assert torch.equal(target.cpu(), whole[part])
        assert reader.report is not None and reader.report["items"]["direct"] == 1
