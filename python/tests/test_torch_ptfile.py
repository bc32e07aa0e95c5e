# SPDX-License-Identifier: Apache-2.0
"""nebulaio.torch.load and save on the host: the same bits as torch.load and torch.save, and what fails."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nebulaio
import pytest
import serving
from nebulaio.errors import CorruptError, DeviceError, InvalidError, NebulaioError, NotFoundError, UnsupportedError
from torch_states import assert_equal, random_state, trained

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Validating sparse tensor")]


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, server: serving.Server) -> None:
    monkeypatch.setenv("NEBULAIO_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", serving.ACCESS)
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", serving.SECRET)


def load(*arguments: Any, **options: Any) -> Any:
    """nebulaio.torch.load, where a warning means that torch has read the file instead."""
    import nebulaio.torch

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "load .*torch has read it")
        return nebulaio.torch.load(*arguments, **options)


def save(*arguments: Any, **options: Any) -> Any:
    import nebulaio.torch

    return nebulaio.torch.save(*arguments, **options)


@pytest.mark.parametrize("seed", range(12))
def test_states_have_the_same_bits_both_ways(torch: Any, tmp_path: Path, seed: int) -> None:
    state = random_state(torch, seed)
    torch.save(state, tmp_path / "theirs.pt")
    assert_equal(torch, load(tmp_path / "theirs.pt"), state)
    report = save(state, tmp_path / "ours.pt")
    assert report.bytes == (tmp_path / "ours.pt").stat().st_size
    for mmap in (False, True):
        assert_equal(torch, torch.load(tmp_path / "ours.pt", mmap=mmap), state)
    assert_equal(torch, load(tmp_path / "ours.pt", "cpu", verify=True, mmap=True), state)
    assert sorted(os.listdir(tmp_path)) == ["ours.pt", "ours.pt.crc64nvme", "theirs.pt"]


def test_ties_views_and_parameters_are_kept(torch: Any, tmp_path: Path) -> None:
    base = torch.arange(1000.0)
    made = {"view": base[10:500:7], "turned": base.reshape(20, 50).t(), "base": base,
            "one": torch.nn.Parameter(base[:3])}
    made["same"] = made["base"]
    save(made, tmp_path / "a.pt")
    for found in (load(tmp_path / "a.pt"), torch.load(tmp_path / "a.pt")):
        assert_equal(torch, found, made)
        assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == 1
        assert found["same"] is found["base"]
        assert found["turned"].stride() == (1, 50) and found["view"].storage_offset() == 10
        assert isinstance(found["one"], torch.nn.Parameter) and found["one"].requires_grad
        found["base"][17] = -1
        assert found["view"][1] == -1
    assert (tmp_path / "a.pt").stat().st_size < 40_000  # the shared memory is stored once


def test_model_and_optimizer_go_on_where_they_were(torch: Any, tmp_path: Path) -> None:
    model, optimizer = trained(torch)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()},
         tmp_path / "a.pt")
    found = load(tmp_path / "a.pt")
    assert type(found["model"]) is OrderedDict and found["model"]._metadata == model.state_dict()._metadata
    other, other_optimizer = trained(torch, seed=99)
    other.load_state_dict(found["model"])
    other_optimizer.load_state_dict(found["optimizer"])
    for one, its in ((model, optimizer), (other, other_optimizer)):
        its.zero_grad()
        one(torch.ones(4, 8)).sum().backward()
        its.step()
    assert_equal(torch, other.state_dict(), model.state_dict())
    assert_equal(torch, other_optimizer.state_dict(), optimizer.state_dict())


def test_whole_modules_need_weights_only_false(torch: Any, tmp_path: Path) -> None:
    model, _ = trained(torch)
    save(model, tmp_path / "model.pt")
    with pytest.raises(UnsupportedError, match=r"model.pt.*weights_only.*torch.nn.modules.*weights_only=False"):
        load(tmp_path / "model.pt")
    assert_equal(torch, load(tmp_path / "model.pt", weights_only=False).state_dict(), model.state_dict())


def test_a_model_of_transformers(torch: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers",
                                       reason="transformers is not installed; make test-torch installs it")
    settings = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=8)
    model = transformers.GPT2LMHeadModel(settings)  # its output layer is tied to the embeddings
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    found = load(tmp_path / "pytorch_model.bin")
    assert_equal(torch, found, model.state_dict())
    assert found["lm_head.weight"].data_ptr() == found["transformer.wte.weight"].data_ptr()
    save(model.state_dict(), tmp_path / "again.bin")
    assert_equal(torch, torch.load(tmp_path / "again.bin"), model.state_dict())


def test_map_location_as_torch_takes_it(torch: Any, tmp_path: Path) -> None:
    state = {"a": torch.arange(5.0), "b": torch.ones(3, dtype=torch.int8)}
    save(state, tmp_path / "a.pt")
    calls = []

    def function(storage: Any, location: str) -> Any:
        calls.append((location, bytes(storage.tolist())))  # a function sees the content, as with torch.load
        return storage if len(calls) % 2 else None

    for place in (None, "cpu", torch.device("cpu"), {"cuda:0": "cpu"}, {"cpu": "cpu"}, function,
                  lambda storage, _: storage.clone()):
        assert_equal(torch, load(tmp_path / "a.pt", place), state)
    assert calls == [("cpu", state["a"].numpy().tobytes()), ("cpu", b"\1\1\1")]
    for place in ("meta", {"cpu": "meta"}):
        found = load(tmp_path / "a.pt", place)
        assert found["a"].device.type == "meta" and found["a"].shape == (5,)
    offset = found["a"].untyped_storage()._checkpoint_offset
    assert (tmp_path / "a.pt").read_bytes()[offset : offset + 20] == state["a"].numpy().tobytes() and offset % 4096 == 0
    with pytest.raises(DeviceError, match=r"a.pt.*'nowhere'"):
        load(tmp_path / "a.pt", "nowhere")


def test_tensors_of_a_gpu_that_is_not_there(torch: Any, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    save({"a": torch.arange(5.0)}, tmp_path / "cpu.pt")
    content = (tmp_path / "cpu.pt").read_bytes()
    pickled = b"X\x03\x00\x00\x00cpu"
    assert content.count(pickled) == 1
    (tmp_path / "gpu.pt").write_bytes(content.replace(pickled, b"X\x03\x00\x00\x00xla").replace(b"xla", b"hpu"))
    (tmp_path / "cuda.pt").write_bytes(_with_location(torch, tmp_path, "cuda:0"))
    with pytest.raises(DeviceError, match=r"(?s)cuda.pt.*'cuda:0'.*map_location"):
        load(tmp_path / "cuda.pt")
    for place in ("cpu", {"cuda:0": "cpu"}, lambda storage, location: storage):
        assert_equal(torch, load(tmp_path / "cuda.pt", place), {"a": torch.arange(5.0)})


def _with_location(torch: Any, folder: Path, location: str) -> bytes:
    """A file as if its tensors had been on another device."""
    source, made = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.arange(5.0)}, source)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith("data.pkl"):
                content = content.replace(b"X\x03\x00\x00\x00cpu",
                                          b"X" + struct.pack("<I", len(location)) + location.encode())
            new.writestr(entry.filename, content)
    return made.getvalue()


def test_files_that_torch_has_to_read(torch: Any, tmp_path: Path) -> None:
    import nebulaio.torch

    state = {"a": torch.arange(5.0), "b": [1, "x"]}
    torch.save(state, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(state, tmp_path / "stored.pt")
    with zipfile.ZipFile(tmp_path / "stored.pt") as old, zipfile.ZipFile(tmp_path / "packed.pt", "w",
                                                                         zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    for name, reason in (("legacy.pt", "legacy format"), ("packed.pt", "compressed")):
        with pytest.warns(UserWarning, match=rf"{name}: torch has read it.*{reason}"):
            assert_equal(torch, nebulaio.torch.load(tmp_path / name), state)
    scripted = torch.jit.script(torch.nn.Linear(2, 3))
    torch.jit.save(scripted, tmp_path / "script.pt")
    with pytest.warns(UserWarning, match="TorchScript archive"):
        assert nebulaio.torch.load(tmp_path / "script.pt", weights_only=False)(torch.ones(1, 2)).shape == (1, 3)


def test_a_file_written_by_another_zip_writer(torch: Any, tmp_path: Path) -> None:
    state = {"a": torch.arange(5.0), "b": torch.ones(3, dtype=torch.bfloat16)}
    torch.save(state, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(tmp_path / "b.pt", "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    assert_equal(torch, load(tmp_path / "b.pt"), state)


def test_a_flipped_bit_is_found_and_its_tensor_named(torch: Any, tmp_path: Path) -> None:
    state = {"model": {"w": torch.rand(1 << 19), "b": torch.rand(1 << 19)},
             "optimizer": {"state": {0: {"exp_avg": torch.rand(1 << 19)}}}}
    save(state, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    for tensor, label in ((state["model"]["w"], "model.w"),
                          (state["optimizer"]["state"][0]["exp_avg"], "optimizer.state.0.exp_avg")):
        content = bytearray(whole)
        at = whole.index(tensor.numpy().tobytes()) + tensor.numel() * 2  # its middle, in a block of its own
        content[at] ^= 16
        (tmp_path / "a.pt").write_bytes(content)
        with pytest.raises(CorruptError, match=rf'a.pt: block.*tensor "{label}"'):
            load(tmp_path / "a.pt", verify=True)
        load(tmp_path / "a.pt")
    rng = random.Random(4)
    for at in [rng.randrange(len(whole)) for _ in range(40)] + [len(whole) - 10, 100, 4100]:
        content = bytearray(whole)
        content[at] ^= 1 << rng.randrange(8)
        (tmp_path / "a.pt").write_bytes(content)
        with pytest.raises(CorruptError, match=r"a.pt"):
            load(tmp_path / "a.pt", verify=True)
    (tmp_path / "a.pt").write_bytes(whole)
    assert_equal(torch, load(tmp_path / "a.pt", verify=True), state)


def test_verify_needs_checksums(torch: Any, tmp_path: Path) -> None:
    save({"a": torch.ones(3)}, tmp_path / "a.pt", checksum=False)
    assert os.listdir(tmp_path) == ["a.pt"]
    with pytest.raises(NotFoundError, match=r"a.pt.crc64nvme does not exist"):
        load(tmp_path / "a.pt", verify=True)


def test_cut_and_damaged_files_never_crash(torch: Any, tmp_path: Path) -> None:
    state = {"a": torch.arange(300.0), "b": {"c": [torch.ones(4, dtype=torch.int16)]}}
    torch.save(state, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    for length in [0, 1, 4, 100, *range(600, len(whole), 377), len(whole) - 1]:
        (tmp_path / "cut.pt").write_bytes(whole[:length])
        with pytest.raises(CorruptError, match=r"cut.pt.*no complete file of torch.save"):
            load(tmp_path / "cut.pt")
    rng = random.Random(7)
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3, 20])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        (tmp_path / "bad.pt").write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load(tmp_path / "bad.pt")
        except NebulaioError as problem:
            assert "bad.pt" in str(problem)


def test_damaged_pickles_never_crash(torch: Any, tmp_path: Path) -> None:
    """The pickle is damaged behind a good directory, so that its reader is reached each time."""
    torch.save({"a": torch.arange(30.0), "b": {"c": [torch.ones(4, dtype=torch.int16)], 7: "x"}}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as old:
        records = {entry.filename: old.read(entry) for entry in old.infolist()}
    (name,) = [one for one in records if one.endswith("data.pkl")]
    rng = random.Random(11)
    for _ in range(400):
        content = bytearray(records[name])
        for _ in range(rng.choice([1, 1, 2, 8])):
            content[rng.randrange(len(content))] = rng.choice([rng.randrange(256), *b"qrhjQPctR(.}]0e"])
        with zipfile.ZipFile(tmp_path / "bad.pt", "w") as new:
            for other, data in records.items():
                new.writestr(other, bytes(content) if other == name else data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load(tmp_path / "bad.pt")
        except NebulaioError as problem:
            assert "bad.pt" in str(problem)


def test_hostile_files_are_refused(torch: Any, tmp_path: Path) -> None:
    made = tmp_path / "made"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (made,)

    torch.save({"w": torch.ones(2), "x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(UnsupportedError, match=r"evil.pt.*weights_only.*pathlib"):
        load(tmp_path / "evil.pt")
    assert not made.exists()

    def pickled(name: str, content: bytes, storage: bytes = b"1234") -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            file.writestr("a/data.pkl", content)
            file.writestr("a/data/0", storage)
            file.writestr("a/version", b"3\n")
        return tmp_path / name

    reference = ("storage", torch.FloatStorage, "0", "cpu", 1 << 40)

    class Big(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return reference if value == "here" else None

    file = io.BytesIO()
    Big(file, protocol=2).dump({"w": "here"})
    with pytest.raises(CorruptError, match=r"big.pt.*1099511627776 elements and its record 4 bytes"):
        load(pickled("big.pt", file.getvalue()))
    with pytest.raises(CorruptError, match=r"memo.pt"):
        load(pickled("memo.pt", b"\x80\x02}r\xff\xff\xff\x7fh\x01."))
    depth = 0
    found = load(pickled("deep.pt", b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."))
    while found:
        depth, found = depth + 1, found[0]
    assert depth == 199_999
    with zipfile.ZipFile(tmp_path / "none.pt", "w") as archive:
        archive.writestr("a/other", b"")
    with pytest.raises(CorruptError, match=r"none.pt.*no record data.pkl"):
        load(tmp_path / "none.pt")
    sparse = tmp_path / "sparse.pt"
    with open(sparse, "wb") as hole:  # the directory claims half a terabyte of its own
        hole.write(b"PK\x03\x04")
        hole.truncate(1 << 39)
        hole.seek(0, 2)
        hole.write(b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 1, 1, 0xFFFFFFF0, 16, 0))
    with pytest.raises(CorruptError, match=r"sparse.pt"):
        load(sparse)


def test_a_file_that_changes_during_the_load(torch: Any, tmp_path: Path) -> None:
    state = {"a": torch.arange(300.0)}
    save(state, tmp_path / "a.pt")

    def replace(done: int, total: int) -> None:
        save({"a": torch.arange(300.0)}, tmp_path / "b.pt")
        os.replace(tmp_path / "b.pt", tmp_path / "a.pt")

    with pytest.raises(CorruptError, match="a.pt: it was changed during the load"):
        load(tmp_path / "a.pt", progress=replace)

    def rewrite(done: int, total: int) -> None:
        os.utime(tmp_path / "a.pt", ns=(1, 1))

    with pytest.raises(NebulaioError, match=r"a.pt: .*changed"):  # the engine notices it, or the load afterwards
        load(tmp_path / "a.pt", progress=rewrite)
    assert_equal(torch, load(tmp_path / "a.pt"), state)


def test_wrong_arguments_leave_nothing_behind(torch: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="missing.pt: there is no such file"):
        load(tmp_path / "missing.pt")
    with pytest.raises(InvalidError, match="not a regular file"):
        load(tmp_path)
    with pytest.raises(InvalidError, match="NUL"):
        load("a\0b")
    with pytest.raises(InvalidError, match="weights_only=3"):
        load(tmp_path / "missing.pt", weights_only=3)
    with pytest.raises(InvalidError, match=r"a.pt: torch cannot save a dict: .*lambda"):
        save({"a": torch.ones(3), "f": lambda: 0}, tmp_path / "a.pt")
    with pytest.raises(NotFoundError):
        save({"a": torch.ones(3)}, tmp_path / "no" / "such" / "a.pt")
    with pytest.raises(InvalidError, match="client= is given"):
        load(tmp_path / "a.pt", client=object())
    assert os.listdir(tmp_path) == []


def test_a_failed_save_keeps_the_old_file(torch: Any, tmp_path: Path) -> None:
    save({"a": torch.ones(3)}, tmp_path / "a.pt")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save({"a": torch.zeros(1 << 20)}, tmp_path / "a.pt", progress=stop)
    found = load(tmp_path / "a.pt")  # the old one, or the new one if the write was faster than its first progress
    assert found["a"].numel() in (3, 1 << 20)
    assert {name.partition(".crc")[0] for name in os.listdir(tmp_path)} == {"a.pt"}


def test_the_report_is_that_of_the_tensors(torch: Any, tmp_path: Path) -> None:
    save({"a": torch.ones(1000), "b": torch.ones(10)}, tmp_path / "a.pt")
    for verify in (False, True):
        load(tmp_path / "a.pt", verify=verify)
        report = nebulaio.last_report()
        assert report is not None and report["wanted_bytes"] == 4040


def test_objects_of_a_server(torch: Any, server: serving.Server, keys: None) -> None:
    state = random_state(torch, 3)
    state["large"] = torch.rand(1 << 19)
    save(state, "s3://bucket/run/a.pt")
    assert_equal(torch, torch.load(io.BytesIO(server.get("bucket", "run/a.pt"))), state)
    for verify in (False, True):
        assert_equal(torch, load("s3://bucket/run/a.pt", verify=verify), state)
    theirs = io.BytesIO()
    torch.save(state, theirs)
    server.put("bucket", "run/theirs.bin", theirs.getvalue())
    assert_equal(torch, load("s3://bucket/run/theirs.bin"), state)
    other = io.BytesIO()
    with zipfile.ZipFile(theirs) as old, zipfile.ZipFile(other, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    server.put("bucket", "run/other.pt", other.getvalue())
    assert_equal(torch, load("s3://bucket/run/other.pt"), state)
    with pytest.raises(NotFoundError, match="s3://bucket/run/none.pt|no such key"):
        load("s3://bucket/run/none.pt")
    with pytest.raises(InvalidError, match="names no object"):
        load("s3://bucket/")
    for length in (10, 5000, len(theirs.getvalue()) - 1):
        server.put("bucket", "run/cut.pt", theirs.getvalue()[:length])
        with pytest.raises(CorruptError, match="s3://bucket/run/cut.pt"):
            load("s3://bucket/run/cut.pt")


def test_only_the_ends_of_an_object_are_read_for_its_description(
    torch: Any, server: serving.Server, keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nebulaio.torch import _ranges

    state = {f"layer.{number}": torch.rand(1 << 16) for number in range(40)}
    save(state, "s3://bucket/big.pt")
    read: list[tuple[int, int]] = []
    real = _ranges.Ranges.read

    def counted(self: Any, ranges: Any) -> Any:
        read.extend(ranges)
        return real(self, ranges)

    monkeypatch.setattr(_ranges.Ranges, "read", counted)
    assert_equal(torch, load("s3://bucket/big.pt"), state)
    assert len(read) == 2 and sum(size for _, size in read) == 2 * _ranges.AHEAD
