# SPDX-License-Identifier: Apache-2.0
"""Tensors that were saved in rows: a planner sees one part of each, and every row arrives."""

from __future__ import annotations

import copy
import gc
import random
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import DTYPES, blank, load, random_tensor, refused, same, save  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter, _opcodes, _rows  # noqa: E402
from test_checkpoint_dcp import Part, PartPlanner, ShardPlanner  # noqa: E402
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex  # noqa: E402

Boxes = list[tuple[tuple[int, ...], tuple[int, ...]]]


def in_rows(shape: tuple[int, ...], cuts: list[int]) -> Boxes:
    """Boxes of whole rows between cuts."""
    edges = [0, *cuts, shape[0]]
    rest = shape[1:]
    return [((begin, *(0 for _ in rest)), (end - begin, *rest)) for begin, end in zip(edges, edges[1:])]


def saved(path: Path, ours: bool = True) -> dict[str, Any]:
    """Save tensors that are cut into rows, in another order than that of the rows."""
    generator = random.Random(7)
    wholes = {
        f"t{number}": random_tensor(generator, dtype, shape)
        for number, (dtype, shape) in enumerate(
            [(torch.float32, (8, 3)), (torch.bfloat16, (9, 2, 2)), (torch.int64, (5,))] * 8)
    }
    boxes = {fqn: in_rows(tuple(whole.shape), [1, 3, 4])[::-1] for fqn, whole in wholes.items()}
    save(dict(wholes), StorageWriter(path) if ours else dcp.FileSystemWriter(path), planner=ShardPlanner(wholes, boxes))
    return wholes


class Counting(dcp.DefaultLoadPlanner):
    """Counts the items of its plan, and loads through tensors of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.items = 0
        self.committed: list[str] = []

    def create_local_plan(self) -> Any:
        plan = super().create_local_plan()
        self.items = len(plan.items)
        return plan

    def transform_tensor(self, read_item: Any, tensor: Any) -> Any:
        return torch.zeros_like(super().transform_tensor(read_item, tensor))

    def commit_tensor(self, read_item: Any, tensor: Any) -> None:
        self.committed.append(read_item.dest_index.fqn)
        super().transform_tensor(read_item, self.lookup_tensor(read_item.dest_index)).copy_(tensor)


@pytest.mark.parametrize("ours", [True, False])
def test_a_plan_has_one_item_for_the_rows_of_a_tensor(tmp_path: Path, ours: bool) -> None:
    wholes = saved(tmp_path, ours)
    reader, planner = StorageReader(tmp_path), Counting()
    assert same(load(blank(wholes), reader, planner=planner), wholes)
    assert planner.items == len(wholes) and sorted(planner.committed) == sorted(wholes)
    assert reader.report is not None and reader.report["items"]["direct"] == 4 * len(wholes)
    # The metadata that a caller asks for has the stored parts.
    assert all(len(entry.chunks) == 4 for entry in StorageReader(tmp_path).read_metadata().state_dict_metadata.values())


@pytest.mark.parametrize("seed", range(6))
def test_random_rows(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    wholes: dict[str, Any] = {}
    for number in range(8):
        shape = tuple(generator.randint(2, 9) for _ in range(generator.randint(1, 3)))
        wholes[f"t{number}"] = random_tensor(generator, generator.choice(DTYPES), shape)
    boxes = {}
    for fqn, whole in wholes.items():
        cuts = sorted(generator.sample(range(1, whole.shape[0]), generator.randint(1, whole.shape[0] - 1)))
        boxes[fqn] = in_rows(tuple(whole.shape), cuts)
    save(dict(wholes), StorageWriter(tmp_path) if seed % 2 else dcp.FileSystemWriter(tmp_path),
         planner=ShardPlanner(wholes, boxes))
    for verify in (False, True) if seed % 2 else (False,):
        assert same(load(blank(wholes), StorageReader(tmp_path, verify=verify)), wholes)
        parts = {}
        for fqn, whole in wholes.items():
            at = tuple(generator.randrange(extent) for extent in whole.shape)
            parts[fqn] = Part(whole, at, tuple(generator.randint(1, extent - begin)
                                               for begin, extent in zip(at, whole.shape)))
        found = load(
            {fqn: part.blank() for fqn, part in parts.items()},
            StorageReader(tmp_path, verify=verify),
            planner=PartPlanner({fqn: part.at for fqn, part in parts.items()}),
        )
        assert same(found, {fqn: part.values() for fqn, part in parts.items()})


def test_rows_of_other_dtypes_and_strides(tmp_path: Path) -> None:
    wholes = saved(tmp_path)
    state = {fqn: torch.zeros_like(whole, dtype=torch.float64) for fqn, whole in wholes.items()}
    state["t0"] = torch.zeros(3, 8).t()
    found = load(state, StorageReader(tmp_path))
    assert all(torch.equal(found[fqn], whole.to(found[fqn].dtype)) for fqn, whole in wholes.items())


class Early(dcp.DefaultLoadPlanner):
    """Keeps the metadata as it was before the reader was set up."""

    def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
        super().set_up_planner(state_dict, copy.deepcopy(metadata), is_coordinator)


def test_a_planner_that_plans_with_the_stored_parts(tmp_path: Path) -> None:
    wholes = saved(tmp_path)
    assert same(load(blank(wholes), StorageReader(tmp_path), planner=Early()), wholes)


class Wrong(dcp.DefaultLoadPlanner):
    """Wants rows that the tensor does not have."""

    def create_local_plan(self) -> Any:
        plan = super().create_local_plan()
        object.__setattr__(plan.items[0], "storage_offsets", torch.Size((1, 0)))
        return plan


def test_rows_behind_the_last_one_are_refused(tmp_path: Path) -> None:
    wholes = saved(tmp_path)
    state = {"t0": torch.zeros_like(wholes["t0"])}
    with refused(r"up to \[9, 3\] of a tensor of shape \[8, 3\]"):
        load(state, StorageReader(tmp_path), planner=Wrong())


def test_a_part_without_a_place_is_refused(tmp_path: Path) -> None:
    class Forgetting(StorageReader):
        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            metadata = super().read_metadata(*args, **kwargs)
            del metadata.storage_data[MetadataIndex("t3", (3, 0))]
            return metadata

    wholes = saved(tmp_path)
    with refused("no place for a part of 't3'"):
        load(blank(wholes), Forgetting(tmp_path))


@pytest.mark.parametrize(
    "boxes",
    [
        [((0, 0), (2, 3)), ((3, 0), (1, 3))],  # a gap
        [((0, 0), (3, 3)), ((2, 0), (2, 3))],  # an overlap
        [((0, 0), (2, 3))] * 2,
        [((0, 0), (2, 3)), ((2, 0), (1, 3))],  # the last row is missing
        [((0, 0), (4, 1)), ((0, 1), (4, 2))],  # columns
        [((0, 0), (0, 3)), ((0, 0), (4, 3))],  # no rows
        [((1, 0), (1, 3)), ((2, 0), (2, 3))],
    ],
)
def test_parts_that_are_not_rows_stay(boxes: Boxes) -> None:
    chunks = [ChunkStorageMetadata(torch.Size(at), torch.Size(lengths)) for at, lengths in boxes]
    assert _rows._joined((4, 3), chunks) is None


@pytest.mark.parametrize("wanted", [True, False])
def test_the_collector_is_as_before_after_a_load(tmp_path: Path, wanted: bool) -> None:
    wholes = saved(tmp_path)
    was_on = gc.isenabled()
    try:
        (gc.enable if wanted else gc.disable)()
        load(blank(wholes), StorageReader(tmp_path))
        assert gc.isenabled() is wanted
        with refused("up to"):
            load({"t0": torch.zeros_like(wholes["t0"])}, StorageReader(tmp_path), planner=Wrong())
        assert gc.isenabled() is wanted
    finally:
        (gc.enable if was_on else gc.disable)()


@pytest.mark.parametrize("size", [0, 1, 10, 79, 80, 81, 255])
def test_opcodes_behind_short_texts_are_checked(size: int) -> None:
    text = b"\x8c" + bytes([size]) + b"r" * size
    for count in (1, 2, 4096, 5000):
        _opcodes.check(b"\x80\x04" + text * count + b".")
        with pytest.raises(ValueError, match="place 4294967295"):
            _opcodes.check(b"\x80\x04" + text * count + b"r\xff\xff\xff\xff.")
        with pytest.raises(ValueError, match="is cut"):
            _opcodes.check(b"\x80\x04" + text * count + b"\x8c\x05abc.")
