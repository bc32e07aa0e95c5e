# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with damaged, missing or foreign files, full disks, and saves that are killed."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import CorruptError, NebulaioError, UnsupportedError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import blank, load, refused, same, save, servers  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter, _manifest, _metadata, _opcodes, _pickles, _zips  # noqa: E402
from support import PACKAGE, PATIENCE  # noqa: E402


def state(scale: float = 1.0) -> dict[str, Any]:
    return {"a.w": torch.arange(3000.0) * scale, "b": torch.full((7, 5), scale, dtype=torch.bfloat16),
            "t": torch.ones(4, 6).t() * scale, "step": 3}


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.distcp"))


# --- damage ---


def test_a_flipped_bit_in_any_file_is_found(tmp_path: Path) -> None:
    """Each file of a checkpoint is damaged at random places. A verified load names the file, or loads what was saved."""
    good = tmp_path / "good"
    save(state(), StorageWriter(good))
    generator = random.Random(7)
    files = sorted(path.name for path in good.iterdir())
    assert len(files) == 7  # two data files and a manifest with checksums, and the metadata
    bad = tmp_path / "bad"
    for name in files:
        content = (good / name).read_bytes()
        places = {0, len(content) - 1, *(generator.randrange(len(content)) for _ in range(20))}
        for place in sorted(places):
            shutil.rmtree(bad, ignore_errors=True)
            shutil.copytree(good, bad)
            damaged = bytearray(content)
            damaged[place] ^= 1 << generator.randrange(8)
            (bad / name).write_bytes(damaged)
            with refused(name.removesuffix(".crc64nvme").replace(".", r"\.")):
                load(blank(state()), StorageReader(bad, verify=True))


def test_damaged_values_name_file_and_tensor(tmp_path: Path) -> None:
    save(state(), StorageWriter(tmp_path))
    told = json.loads(next(tmp_path.glob("checkpoint-*.json")).read_bytes())
    for item in told["items"]:
        path = tmp_path / told["files"][item["file"]]["name"]
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[item["offset"] + item["size"] // 2] ^= 16
        path.write_bytes(damaged)
        with refused(f"{path.name}[^\n]*{item['tensor']}"):
            load(blank(state()), StorageReader(tmp_path, verify=True))
        path.write_bytes(content)
    assert same(load(blank(state()), StorageReader(tmp_path, verify=True)), state())


def test_cut_and_missing_files_change_no_tensor(tmp_path: Path) -> None:
    for ours in (True, False):
        folder = tmp_path / str(ours)
        save(state(), StorageWriter(folder) if ours else dcp.FileSystemWriter(folder))
        for path in data_files(folder):
            content = path.read_bytes()
            target = blank(state())
            path.write_bytes(content[:-1])
            with refused(f"{path.name}.*bytes, expected"):
                load(target, StorageReader(folder))
            path.unlink()
            with refused(f"{path.name}.*no such file"):
                load(target, StorageReader(folder))
            assert not any(bool(value.any()) for value in target.values() if isinstance(value, torch.Tensor))
            path.write_bytes(content)


def test_metadata_of_another_run(tmp_path: Path) -> None:
    save(state(), StorageWriter(tmp_path / "a"))
    save(state(2.0), StorageWriter(tmp_path / "b"))
    mixed = tmp_path / "mixed"
    shutil.copytree(tmp_path / "a", mixed)
    shutil.copy(tmp_path / "b/.metadata", mixed / ".metadata")
    for verify in (False, True):
        with refused("checkpoint-.*manifest is missing|no manifest beside it"):
            load(blank(state()), StorageReader(mixed, verify=verify))
    # With the manifest too, the data files are missing.
    (manifest,) = (tmp_path / "b").glob("checkpoint-*.json")
    shutil.copy(manifest, mixed)
    with refused("no such file"):
        load(blank(state()), StorageReader(mixed))
    # A manifest under the name of another one.
    (mine,) = (tmp_path / "a").glob("checkpoint-*.json")
    shutil.copy(manifest, tmp_path / "a" / mine.name)
    with refused(f"{mine.name}.*belongs to save"):
        load(blank(state()), StorageReader(tmp_path / "a"))


def test_metadata_of_another_stock_run(tmp_path: Path) -> None:
    """The items have other dtypes and shapes than the metadata says."""
    first = {"w": torch.zeros(16, dtype=torch.float32), "x": torch.zeros(2, 3)}
    for other in ({"w": torch.zeros(16, dtype=torch.int32), "x": torch.zeros(2, 3)},
                  {"w": torch.zeros(16), "x": torch.zeros(3, 2)}):
        save(first, dcp.FileSystemWriter(tmp_path / "a"))
        save(other, dcp.FileSystemWriter(tmp_path / "b"))
        shutil.copy(tmp_path / "b/.metadata", tmp_path / "a/.metadata")
        with refused("of different saves|no end of a zip|zip"):
            load(blank(other), StorageReader(tmp_path / "a"))


def test_values_that_do_not_fit(tmp_path: Path) -> None:
    save({"w": torch.randn(6, 4)}, StorageWriter(tmp_path))
    with refused("w.*float32.*cannot become.*int32"):
        load({"w": torch.zeros(6, 4, dtype=torch.int32)}, StorageReader(tmp_path))
    with refused("Size mismatch.*w"):
        load({"w": torch.zeros(4, 6)}, StorageReader(tmp_path))
    with refused("Missing key.*x"):
        load({"x": torch.zeros(4, 6)}, StorageReader(tmp_path))
    with refused("w.*meta"):
        load({"w": Meta(torch.zeros(6, 4))}, StorageReader(tmp_path), planner=MetaPlanner())


class Meta(torch.Tensor):
    """A tensor that the planner resolves to a meta tensor."""


class MetaPlanner(dcp.DefaultLoadPlanner):
    def resolve_tensor(self, item: Any) -> Any:
        return torch.empty(tuple(item.lengths), device="meta")


def test_transformed_items_are_refused_with_advice(tmp_path: Path) -> None:
    save({"w": torch.ones(3)}, dcp.FileSystemWriter(tmp_path))
    metadata = StorageReader(tmp_path).read_metadata()
    for info in metadata.storage_data.values():
        info.transform_descriptors = ["stream.zstd/1"]
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with refused("'w'.*stream.zstd.*FileSystemReader"):
        load({"w": torch.zeros(3)}, StorageReader(tmp_path))


# --- hostile bytes ---


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/nebulaio-was-here",)


def test_a_hostile_pickle_runs_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    names = {"posix.system", "builtins.eval", "torch.hub.load", "builtins.getattr"}
    for module_name in sorted(names):
        module, _, name = module_name.rpartition(".")
        data = b"\x80\x04" + pickle.dumps(f"touch {witness}")[2:-1].replace(b"\x95", b"\x95")
        data = b"c" + module.encode() + b"\n" + name.encode() + b"\n(Vtouch " + str(witness).encode() + b"\ntR."
        (tmp_path / ".metadata").write_bytes(data)
        with pytest.raises(UnsupportedError, match=f"names {module_name}"):
            StorageReader(tmp_path).read_metadata()
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UnsupportedError, match="system"):
        StorageReader(tmp_path).read_metadata()
    with refused("system"):
        load({"w": torch.zeros(2)}, StorageReader(tmp_path))
    assert not witness.exists() and not Path("/tmp/nebulaio-was-here").exists()


def test_metadata_that_points_outside(tmp_path: Path) -> None:
    save({"w": torch.ones(3)}, dcp.FileSystemWriter(tmp_path))
    good = (tmp_path / ".metadata").read_bytes()
    for path, offset in (("../x.distcp", 0), ("/etc/passwd", 0), ("a\0b", 0), ("", 0), ("__0_0.distcp", -4),
                         ("__0_0.distcp", 1 << 70)):
        metadata = _metadata.load(good, "test")
        for info in metadata.storage_data.values():
            info.relative_path, info.offset = path, offset
        (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
        with refused("'w' lies"):
            load({"w": torch.zeros(3)}, StorageReader(tmp_path))


def test_a_pickle_cannot_ask_for_memory() -> None:
    """A place of the memo beyond the file would be an array of gigabytes."""
    for data in (b"\x80\x02Nr\xff\xff\xff\xff.", b"Np4000000000\n.", b"\x80\x04\x8e\xff\xff\xff\xff\x00\x00\x00\x00."):
        with pytest.raises(CorruptError):
            _metadata.load(data, "test")


def test_random_bytes_never_crash_the_parsers(tmp_path: Path) -> None:
    """Damaged metadata, manifests and archives raise errors of this package, and nothing else."""
    save(state(), StorageWriter(tmp_path / "a"))
    save({"w": torch.arange(6.0).reshape(2, 3)}, dcp.FileSystemWriter(tmp_path / "b"))
    (manifest,) = (tmp_path / "a").glob("checkpoint-*.json")
    (archive,) = data_files(tmp_path / "b")
    generator = random.Random(11)

    def located(data: bytes, layouts: _zips.Layouts) -> Any:
        parser = _zips.locate(len(data), len(data), "w", layouts)
        wanted = next(parser)
        while True:
            for offset, size in wanted:
                assert 0 <= offset and offset + size <= len(data)
            try:
                wanted = parser.send([data[offset : offset + size] for offset, size in wanted])
            except StopIteration as end:
                return end.value

    known = _zips.Layouts()  # has seen the intact archive, which must not hide a damage

    def parse_archive(data: bytes) -> Any:
        answers = []
        for layouts in (known, _zips.Layouts()):
            try:
                answers.append(located(data, layouts))
            except (NebulaioError, _pickles.NotPlainError) as problem:
                answers.append((type(problem), str(problem)))
        assert answers[0] == answers[1]
        return answers[0]

    parsers: list[tuple[bytes, Any]] = [
        ((tmp_path / "a/.metadata").read_bytes(), lambda data: _metadata.load(data, "test")),
        (manifest.read_bytes(), lambda data: _manifest.decode(data, "test").items.check()),
        (archive.read_bytes(), parse_archive),
    ]
    for content, parse in parsers:
        parse(content)
        for number in range(1500):
            data = bytearray(content)
            for _ in range(generator.randint(1, 4)):
                data[generator.randrange(len(data))] = generator.randrange(256)
            if number % 5 == 0:
                del data[generator.randrange(len(data)) :]
            try:
                parse(bytes(data))
            except (NebulaioError, _pickles.NotPlainError):
                continue


def test_a_damaged_entry_is_found_though_nobody_asks_for_it(tmp_path: Path) -> None:
    """A load of one tensor checks the manifest's entries of all others."""
    save(state(), StorageWriter(tmp_path))
    (manifest,) = tmp_path.glob("checkpoint-*.json")
    content = json.loads(manifest.read_bytes())
    (entry,) = [item for item in content["items"] if item["tensor"] == "b"]
    entry["offset"] = 1 << 40
    manifest.write_bytes(json.dumps(content).encode())
    with refused("are not in the checkpoint"):
        load({"a.w": torch.zeros(3000)}, StorageReader(tmp_path))


def test_metadata_with_shared_parts_is_equal(tmp_path: Path) -> None:
    """Equal shapes and names are one object in the pickle, and the metadata says the same."""
    many = {f"layers.{n}.w": torch.zeros(4, 3) for n in range(50)}
    save(many, dcp.FileSystemWriter(tmp_path))
    data = (tmp_path / ".metadata").read_bytes()
    metadata = _metadata.load(data, "test")
    dumped = _metadata.dump(metadata)
    for found in (_metadata.load(dumped, "test"), pickle.loads(dumped)):
        assert found.storage_data == metadata.storage_data and found.planner_data == metadata.planner_data
        assert list(found.state_dict_metadata) == list(metadata.state_dict_metadata)
        for name, entry in found.state_dict_metadata.items():
            wanted = metadata.state_dict_metadata[name]
            assert (entry.size, entry.chunks) == (wanted.size, wanted.chunks)
            assert entry.properties.dtype is wanted.properties.dtype
    assert len(dumped) < 0.7 * len(data)


def test_places_of_the_memo_are_checked_behind_long_runs() -> None:
    """Opcodes of known size are skipped together, and what follows them is still looked at."""
    for count in (0, 1, 4095, 4096, 4097, 70000):
        run = b"N0" * count
        _opcodes.check(b"\x80\x04" + run + b"N.")
        with pytest.raises(ValueError, match="place 4294967295"):
            _opcodes.check(b"\x80\x04" + run + b"Nr\xff\xff\xff\xff.")
        with pytest.raises(ValueError, match="is cut"):
            _opcodes.check(b"\x80\x04" + run + b"J\x01\x02")


# --- failed and killed saves ---


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    """The limit on the size of files fails a write in its middle, as a full disk does."""
    old = state()
    save(old, StorageWriter(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code = """
import sys, resource, signal, warnings, torch
warnings.simplefilter("ignore")
import torch.distributed.checkpoint as dcp
from nebulaio.torch import StorageWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    dcp.save({"a.w": torch.zeros(1 << 20), "step": 4}, storage_writer=StorageWriter(sys.argv[1]), no_dist=True)
except BaseException as problem:
    print(problem.failures[0][0])
"""
    said = run(code, tmp_path)
    assert "distcp" in said and ("too large" in said or "limit" in said), said
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert same(load(blank(old), StorageReader(tmp_path, verify=True)), old)


def test_a_full_file_system_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("this machine does not let tests mount")
    try:
        old = state()
        save(old, StorageWriter(folder))
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with refused("distcp.*(space|full)"):
            save({"a.w": torch.zeros(1 << 20)}, StorageWriter(folder))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert same(load(blank(old), StorageReader(folder, verify=True)), old)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def run(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def save_for_ever(folder: str, number: int, pipe: Any) -> None:
    """Save one checkpoint after the other, and acknowledge each."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    writer = StorageWriter(folder)
    while True:
        number += 1
        save({"w": torch.full((50000,), float(number)), "n": number}, writer)
        pipe.send(number)


def test_killed_saves_leave_the_last_acknowledged_checkpoint(tmp_path: Path) -> None:
    """A process saves again and again and is killed at random moments. What it has acknowledged, or newer, loads."""
    generator = random.Random(3)
    last = 0
    save({"w": torch.zeros(50000), "n": 0}, StorageWriter(tmp_path))
    for _ in range(12):
        ours, theirs = servers().Pipe()
        process = servers().Process(target=save_for_ever, args=(str(tmp_path), last, theirs))
        process.start()
        theirs.close()
        for _ in range(generator.randint(1, 5)):
            last = ours.recv()
        for _ in range(generator.randrange(200000)):  # a moment of random length within the next save
            pass
        process.kill()
        process.join()
        try:
            while True:
                last = ours.recv()
        except EOFError:
            ours.close()
        got = load({"w": torch.zeros(50000), "n": None}, StorageReader(tmp_path, verify=True))
        assert got["n"] in (last, last + 1)
        assert torch.equal(got["w"], torch.full((50000,), float(got["n"])))
        last = got["n"]
        assert load({"w": torch.zeros(50000), "n": None}, dcp.FileSystemReader(tmp_path))["n"] == last
    save({"w": torch.zeros(50000), "n": 0}, StorageWriter(tmp_path))
    assert len(list(tmp_path.iterdir())) == 5


def test_an_error_of_the_planner_leaves_nothing(tmp_path: Path) -> None:
    class Failing(dcp.DefaultSavePlanner):
        def resolve_data(self, item: Any) -> Any:
            if item.index.fqn == "step":
                raise ValueError("no such value")
            return super().resolve_data(item)

    with refused("no such value"):
        save(state(), StorageWriter(tmp_path), planner=Failing())
    assert list(tmp_path.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    with pytest.raises(CorruptError):
        _metadata.load(b"", "test")
