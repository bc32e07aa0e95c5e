# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint: stock torch loads ours, and we load those of stock torch."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import random
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import InvalidError, UnsupportedError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import DTYPES, blank, every_dtype, load, random_tensor, raw, refused, same, save  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter  # noqa: E402


def writers(path: Path) -> list[Any]:
    return [StorageWriter(path), dcp.FileSystemWriter(path)]


@pytest.mark.parametrize("ours", [True, False])
def test_either_side_reads_both(tmp_path: Path, ours: bool) -> None:
    state = every_dtype(1)
    save(state, StorageWriter(tmp_path) if ours else dcp.FileSystemWriter(tmp_path))
    for reader in (StorageReader(tmp_path), dcp.FileSystemReader(tmp_path)):
        assert same(load(blank(state), reader), state), reader


@pytest.mark.parametrize("release", ["2.11", "2.15"])
def test_checkpoints_that_other_releases_have_written(release: str) -> None:
    """The folder checkpoints has what FileSystemWriter of each release wrote. Stock torch 2.11 cannot read that of 2.15."""
    expected = {
        "w": torch.arange(12.0).reshape(3, 4), "half": torch.arange(6).to(torch.bfloat16),
        "turned": torch.arange(20.0).reshape(4, 5).t(), "nested": {"step": 7, "t": torch.tensor(3)},
    }
    assert same(load(blank(expected), StorageReader(Path(__file__).parent / "checkpoints" / f"torch-{release}")),
                expected)


def test_files_are_pages_with_sums_and_a_manifest(tmp_path: Path) -> None:
    state = {"w": torch.arange(5000.0), "b": torch.ones(3, 2, dtype=torch.bfloat16), "e": torch.empty(0), "n": 7}
    writer = StorageWriter(tmp_path, step=40)
    save(state, writer)
    (manifest,) = tmp_path.glob("checkpoint-*.nebulaio.json")
    told = json.loads(manifest.read_bytes())
    identity = told["id"]
    assert manifest.name == f"checkpoint-{identity}.nebulaio.json"
    name = f"__0_0_{identity}.distcp"
    assert {path.name for path in tmp_path.iterdir()} == {
        ".metadata", manifest.name, manifest.name + ".crc64nvme", name, name + ".crc64nvme",
    }
    assert (told["version"], told["format"], told["step"], told["world"]) == (1, "torch-dcp", 40, 1)
    data = (tmp_path / name).read_bytes()
    assert told["bytes"] == len(data) == told["files"][0]["size"]
    assert told["metadata"]["size"] == (tmp_path / ".metadata").stat().st_size
    items = {item["tensor"]: item for item in told["items"]}
    for key, dtype in (("w", "F32"), ("b", "BF16"), ("e", "F32")):
        item = items[key]
        assert (item["dtype"], item["shape"], item["at"]) == (dtype, list(state[key].shape), [0] * state[key].dim())
        assert data[item["offset"] : item["offset"] + item["size"]] == raw(state[key])
        assert item["offset"] % 4096 == 0
    assert items["n"]["dtype"] == "bytes"
    assert torch.load(io.BytesIO(data[items["n"]["offset"] :][: items["n"]["size"]])) == 7
    report = writer.report
    assert report is not None
    assert (report["bytes"], report["id"], report["items"], report["files"]) == (len(data), identity, 4, 1)
    assert report["checkpoint_bytes"] == len(data) and report["notes"] == []


def test_checksums_of_the_manifest_are_those_of_the_files(tmp_path: Path) -> None:
    from nebulaio.torch import _manifest

    save({"w": torch.arange(300.0)}, StorageWriter(tmp_path))
    told = json.loads(next(tmp_path.glob("checkpoint-*.json")).read_bytes())
    for file in [*told["files"], told["metadata"]]:
        assert _manifest.crc64nvme((tmp_path / file["name"]).read_bytes()) == file["crc64nvme"]


def test_each_item_is_an_archive_that_torch_loads(tmp_path: Path) -> None:
    state = every_dtype(2)["model"]
    save(state, StorageWriter(tmp_path))
    metadata = StorageReader(tmp_path).read_metadata()
    for index, info in metadata.storage_data.items():
        data = (tmp_path / info.relative_path).read_bytes()[info.offset : info.offset + info.length]
        assert same(torch.load(io.BytesIO(data), weights_only=True), state[index.fqn]), index.fqn
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
        assert [name.partition("/")[2] for name in names] == [
            "data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0", "version",
            ".data/serialization_id",
        ]


def test_views_of_one_storage_and_tensors_out_of_order(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    state = {"whole": base, "row": base[1], "columns": base[:, 2:5], "turned": base.t(),
             "flipped": base.permute(1, 0)[::2],
             "conj": torch.tensor([1 + 2j, 3 - 4j]).conj(), "parameter": torch.nn.Parameter(base[2:])}
    for number, writer in enumerate(writers(tmp_path)):
        if number:
            for path in tmp_path.iterdir():
                path.unlink()
        save(state, writer)
        for reader in (StorageReader(tmp_path), dcp.FileSystemReader(tmp_path)):
            got = load({key: torch.zeros_like(value, memory_format=torch.contiguous_format)
                        for key, value in state.items()}, reader)
            for key, value in state.items():
                assert torch.equal(got[key], value), key


def test_copies_of_tensors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nebulaio.torch import _written

    monkeypatch.setattr(_written, "COPIES", 4000)
    state = {f"t{number}": torch.randn(30, 20).t() for number in range(5)}
    writer = StorageWriter(tmp_path)
    save({**state, "plain": torch.ones(3)}, writer)
    assert writer.report is not None
    assert (writer.report["files"], writer.report["copied_items"]) == (6, 5)
    assert same(load(blank(state), dcp.FileSystemReader(tmp_path)), state)


def test_destinations_that_need_a_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nebulaio.torch import _loading

    monkeypatch.setattr(_loading, "BUFFER", 1000)  # every tensor takes several rounds
    state = {"a": torch.randn(40, 30), "b": torch.randn(5, 6, 7), "c": torch.arange(2000)}
    for writer in writers(tmp_path):
        save(state, writer)
        targets = {"a": torch.zeros(30, 40).t(), "b": torch.zeros(5, 6, 7, dtype=torch.bfloat16),
                   "c": torch.zeros(4000, dtype=torch.int64)[::2]}
        reader = StorageReader(tmp_path)
        load(targets, reader)
        assert torch.equal(targets["a"], state["a"]) and torch.equal(targets["c"], state["c"])
        assert torch.equal(targets["b"], state["b"].to(torch.bfloat16))
        assert reader.report is not None
        assert reader.report["items"]["buffered"] == 3 and len(reader.report["jobs"]) > 3


def test_boxes_of_many_runs_are_widened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nebulaio.torch import _regions

    monkeypatch.setattr(_regions, "MOST_RUNS", 3)
    whole = torch.randn(6, 5, 4, 3)
    save({"t": whole}, StorageWriter(tmp_path))
    got = load({"t": Part(whole, (1, 1, 1, 1), (4, 3, 2, 2)).blank()}, StorageReader(tmp_path),
               planner=PartPlanner({"t": (1, 1, 1, 1)}))
    assert torch.equal(got["t"], whole[1:5, 1:4, 1:3, 1:3])


class Part:
    """A box of a tensor."""

    def __init__(self, whole: Any, at: tuple[int, ...], lengths: tuple[int, ...]) -> None:
        self.whole, self.at, self.lengths = whole, at, lengths

    def blank(self) -> Any:
        return torch.zeros(self.lengths, dtype=self.whole.dtype)

    def values(self) -> Any:
        return self.whole[tuple(slice(begin, begin + length) for begin, length in zip(self.at, self.lengths))]


class PartPlanner(dcp.DefaultLoadPlanner):
    """Loads a box of each tensor, at the given offsets, as a rank with a shard does."""

    def __init__(self, at: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self._at = at

    def create_local_plan(self) -> Any:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
        from torch.distributed.checkpoint.planner import LoadPlan
        from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

        items = []
        for fqn, tensor in self.state_dict.items():
            chunk = ChunkStorageMetadata(torch.Size(self._at[fqn]), tensor.size())
            items += create_read_items_for_chunk_list(fqn, self.metadata.state_dict_metadata[fqn], [chunk])
        return LoadPlan(items)

    def lookup_tensor(self, index: Any) -> Any:
        return self.state_dict[index.fqn]


class ShardPlanner(dcp.DefaultSavePlanner):
    """Saves each tensor as boxes, as ranks with shards do: the state has them by name and offset."""

    def __init__(self, wholes: dict[str, Any], boxes: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]) -> None:
        super().__init__()
        self._wholes, self._boxes = wholes, boxes

    def create_local_plan(self) -> Any:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
        from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

        items = []
        for fqn, boxes in self._boxes.items():
            for at, lengths in boxes:
                chunk = ChunkStorageMetadata(torch.Size(at), torch.Size(lengths))
                data = TensorWriteData(chunk, TensorProperties(dtype=self._wholes[fqn].dtype), self._wholes[fqn].size())
                items.append(WriteItem(MetadataIndex(fqn, at), WriteItemType.SHARD, tensor_data=data))
        self.plan = SavePlan(items, planner_data={})
        return self.plan

    def resolve_data(self, item: Any) -> Any:
        box = item.tensor_data.chunk
        return Part(self._wholes[item.index.fqn], tuple(box.offsets), tuple(box.sizes)).values()


def random_boxes(generator: random.Random, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Boxes that cover a tensor once: each dimension is cut at random places."""
    cuts = []
    for extent in shape:
        inner = sorted(generator.sample(range(1, extent),
                                        generator.randint(0, min(2, extent - 1)))) if extent > 1 else []
        edges = [0, *inner, extent]
        cuts.append([(begin, end - begin) for begin, end in itertools.pairwise(edges)])
    return [(tuple(b for b, _ in parts), tuple(n for _, n in parts)) for parts in itertools.product(*cuts)]


@pytest.mark.parametrize("seed", range(12))
def test_random_shards_saved_and_random_boxes_loaded(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    wholes = {}
    for number in range(6):
        shape = tuple(generator.randint(1, 9) for _ in range(generator.randint(0, 4)))
        wholes[f"t{number}"] = random_tensor(generator, generator.choice(DTYPES), shape)
    boxes = {fqn: random_boxes(generator, tuple(whole.shape)) for fqn, whole in wholes.items()}
    writer = StorageWriter(tmp_path) if seed % 2 else dcp.FileSystemWriter(tmp_path)
    save(dict(wholes), writer, planner=ShardPlanner(wholes, boxes))
    for _ in range(5):
        parts = {}
        for fqn, whole in wholes.items():
            at = tuple(generator.randrange(extent) for extent in whole.shape)
            lengths = tuple(generator.randint(1, extent - begin) for begin, extent in zip(at, whole.shape))
            parts[fqn] = Part(whole, at, lengths)
        reader = StorageReader(tmp_path, verify=bool(seed % 2))
        got = load({fqn: part.blank() for fqn, part in parts.items()}, reader,
                   planner=PartPlanner({f: p.at for f, p in parts.items()}))
        assert same(got, {fqn: part.values() for fqn, part in parts.items()})
        # Only the wanted bytes are read into the tensors.
        assert reader.report is not None
        assert reader.report["wanted_bytes"] == sum(part.values().numel() * part.whole.dtype.itemsize
                                                    for part in parts.values())
    assert same(load(blank(wholes), dcp.FileSystemReader(tmp_path)), wholes)


def test_conversion_of_formats(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {"model": {"w": torch.randn(8, 3)}, "step": 3}
    save(state, StorageWriter(tmp_path / "dcp"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_to_torch_save(tmp_path / "dcp", tmp_path / "state.pt")
        assert same(torch.load(tmp_path / "state.pt", weights_only=False), state)
        rebuilt: dict[str, Any] = {}
        _load_state_dict(rebuilt, storage_reader=StorageReader(tmp_path / "dcp"), planner=_EmptyStateDictLoadPlanner(),
                         no_dist=True)
    assert same(rebuilt, state)


def test_partial_load_needs_only_its_files(tmp_path: Path) -> None:
    state = {"a": torch.arange(10.0), "b": torch.arange(20.0)}
    save(state, dcp.FileSystemWriter(tmp_path, single_file_per_rank=False))
    metadata = StorageReader(tmp_path).read_metadata()
    for index, info in metadata.storage_data.items():
        if index.fqn == "b":
            (tmp_path / info.relative_path).unlink()
    assert torch.equal(load({"a": torch.zeros(10)}, StorageReader(tmp_path))["a"], state["a"])


def test_a_save_replaces_what_was_there(tmp_path: Path) -> None:
    first, second = {"w": torch.ones(9), "x": torch.ones(2)}, {"w": torch.zeros(9)}
    save(first, dcp.FileSystemWriter(tmp_path))
    stock = {path.name for path in tmp_path.iterdir()}
    writer = StorageWriter(tmp_path)
    for state in (second, first, second):
        save(state, writer)
        assert same(load(blank(state), StorageReader(tmp_path, verify=True)), state)
        names = {path.name for path in tmp_path.iterdir()}
        assert len(names) == 5 and not (names & stock) - {".metadata"}


def test_the_library_lists_and_verifies_what_was_saved(tmp_path: Path) -> None:
    from nebulaio import _checkpoints

    for step in (3, 12):
        save({"w": torch.arange(50.0) * step, "step": step}, StorageWriter(tmp_path / f"step-{step:010d}", step=step))
    found = _checkpoints.list_checkpoints(tmp_path)
    assert [(one["step"], one["complete"], one["world"]) for one in found] == [(3, True, 1), (12, True, 1)]
    assert _checkpoints.verify_checkpoint(tmp_path / "step-0000000012")["verdict"] == "good"
    (data,) = (tmp_path / "step-0000000012").glob("*.distcp")
    damaged = bytearray(data.read_bytes())
    damaged[4100] ^= 1
    data.write_bytes(damaged)
    told = _checkpoints.verify_checkpoint(tmp_path / "step-0000000012")
    assert told["verdict"] == "damaged" and "w" in told["problems"][0]["tensors"]


def test_metadata_is_read_by_older_and_newer_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases after 2.11 add entries to the properties of a tensor, which 2.11 refuses. Ours has the common ones."""
    from torch.distributed.checkpoint.metadata import TensorProperties

    save({"w": torch.ones(2, 3), "x": torch.ones(4)}, StorageWriter(tmp_path))
    data = (tmp_path / ".metadata").read_bytes()
    states = []
    original = TensorProperties.__setstate__
    with monkeypatch.context() as patch:
        patch.setattr(TensorProperties, "__setstate__",
                      lambda self, state: (states.append(state), original(self, state))[1])
        pickle.loads(data)
    assert {len(state) for state in states} == {5}  # equal properties are written once
    with monkeypatch.context() as patch:
        now = TensorProperties.__getstate__
        patch.setattr(TensorProperties, "__getstate__", lambda self: (*now(self)[:5], None, "new", "newer"))
        save({"w": torch.ones(2, 3), "x": torch.ones(4)}, dcp.FileSystemWriter(tmp_path))
    metadata = StorageReader(tmp_path).read_metadata()
    assert type(metadata.state_dict_metadata["w"].properties) is TensorProperties
    assert metadata.state_dict_metadata["w"].properties.dtype is torch.float32
    assert torch.equal(load({"w": torch.zeros(2, 3)}, StorageReader(tmp_path))["w"], torch.ones(2, 3))


def test_a_save_to_another_place_than_the_writers(tmp_path: Path) -> None:
    writer, reader = StorageWriter(tmp_path / "a"), StorageReader(tmp_path / "a")
    state = {"w": torch.arange(5.0)}
    save(state, writer, checkpoint_id=tmp_path / "deep" / "er" / "b")
    assert not (tmp_path / "a").exists() and writer.checkpoint_id == str(tmp_path / "deep/er/b")
    assert same(load(blank(state), reader, checkpoint_id=str(tmp_path / "deep/er/b")), state)
    assert writer.storage_meta().checkpoint_id == writer.checkpoint_id


def test_leftovers_of_killed_saves_go_and_other_files_stay(tmp_path: Path) -> None:
    state = {"w": torch.ones(9)}
    save(state, StorageWriter(tmp_path))
    dead = ["__0_0_0123456789abcdef.distcp", "__3_1_0123456789abcdef.distcp.crc64nvme",
            "checkpoint-0123456789abcdef.nebulaio.json",
            ".metadata.0123456789abcdef.partial"]
    alive = ["notes.txt", "__0_0_0123456789abcdef.distcp.bak", "checkpoint-1.nebulaio.json"]
    for name in dead + alive:
        (tmp_path / name).write_bytes(b"x")
    save(state, StorageWriter(tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert not names & set(dead) and set(alive) <= names
    # A metadata file that cannot be read could name any file: nothing is removed for it.
    (tmp_path / ".metadata").write_bytes(b"?")
    (tmp_path / dead[0]).write_bytes(b"x")
    from nebulaio.torch import _leftovers, _place

    _leftovers.remove_dead(_place.open_place(tmp_path, None), None)
    assert (tmp_path / dead[0]).exists()


def test_async_save_in_a_thread(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    state = {"w": torch.randn(50, 4), "step": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.async_save(state, storage_writer=StorageWriter(tmp_path / "t"), no_dist=True,
                       async_checkpointer_type=AsyncCheckpointerType.THREAD).result()
    assert same(load(blank(state), dcp.FileSystemReader(tmp_path / "t")), state)


def test_plans_that_a_planner_has_cached(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.planner import SavePlanner

    try:
        for number in range(3):
            state = {"w": torch.full((6,), float(number)), "step": number}
            save(state, StorageWriter(tmp_path), planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
            assert same(load(blank(state), StorageReader(tmp_path, verify=True)), state)
            assert len(list(tmp_path.glob("*.distcp"))) == 1
    finally:
        for cache in ("_cached_save_plan", "_cached_final_save_plan", "_cached_all_plans", "_cached_global_plan",
                      "_cached_metadata"):
            getattr(SavePlanner, cache).clear()


def test_ranks_that_save_alone(tmp_path: Path) -> None:
    state = {"w": torch.arange(6.0)}
    for _ in range(2):
        save(state, StorageWriter(tmp_path), use_collectives=False)
    names = {path.name for path in tmp_path.iterdir()}
    assert "__0.metadata" in names and ".metadata" not in names and len(names) == 5
    metadata = StorageReader(tmp_path).read_metadata(rank=0)
    assert set(metadata.state_dict_metadata) == {"w"}


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    quantised = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    for value, kind, says in (
        (quantised, UnsupportedError, "'bad'.*quantised"),
        (torch.eye(3).to_sparse(), InvalidError, "'bad'.*layout"),
        (torch.empty(2, device="meta"), InvalidError, "'bad'.*meta"),
    ):
        with refused(f"{kind.__name__}: .*{says}"):
            save({"good": torch.ones(3), "bad": value}, StorageWriter(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_arguments_are_checked(tmp_path: Path) -> None:
    for make in (
        lambda: StorageWriter(""),
        lambda: StorageWriter(tmp_path, step=-1),
        lambda: StorageWriter(tmp_path, format="zip"),  # type: ignore[arg-type]
        lambda: StorageReader("a\0b"),
        lambda: StorageReader(tmp_path, client=object()),
        lambda: StorageReader(tmp_path, verify="yes"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidError):
            make()
    assert StorageReader.validate_checkpoint_id("s3://b/k") and StorageWriter.validate_checkpoint_id(tmp_path)
    assert not StorageReader.validate_checkpoint_id("gs://b/k") and not StorageReader.validate_checkpoint_id(7)


def test_tensor_subclasses_go_through_torch(tmp_path: Path) -> None:
    class Marked(torch.Tensor):
        pass

    state = {"w": torch.arange(6.0).as_subclass(Marked)}
    writer = StorageWriter(tmp_path)
    torch.serialization.add_safe_globals([Marked])
    globals()["Marked"] = Marked
    Marked.__module__, Marked.__qualname__ = __name__, "Marked"
    save(state, writer)
    assert writer.report is not None and "torch.save" in writer.report["notes"][0]
    for reader in (StorageReader(tmp_path), dcp.FileSystemReader(tmp_path)):
        got = load({"w": torch.zeros(6)}, reader)
        assert torch.equal(got["w"], torch.arange(6.0))
