# SPDX-License-Identifier: Apache-2.0
"""Tensors one after the other: order, finality, early ends, errors; on the real and the fake library."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio import _process, errors
from nebulaio.errors import ClosedError
from nebulaio.safetensors import load_file, safe_open, stream, write_checksums
from support import Entry, interrupt_when, python, random_entry, write, write_sharded, write_sparse

SIZES = [1 << 20, 1, (4 << 20) + 3, 0, 4095, 4096, 4097, (2 << 20) - 1, 3]
ENTRIES: dict[str, Entry] = {f"t{n}": random_entry(n, "U8", [size]) for n, size in enumerate(SIZES)}
SHARDS: dict[str, dict[str, Entry]] = {
    f"model-0000{shard}-of-00003.safetensors": {
        f"layers.{shard}.{part}": random_entry(shard * 10 + number, dtype, [70, shard, 300])
        for number, (part, dtype) in enumerate({"w": "F32", "s": "U8", "n": "F64", "e": "F16"}.items())
    }
    for shard in (1, 2, 3)
}
ALL = {name: entry for entries in SHARDS.values() for name, entry in entries.items()}


def run(paths: Any, **options: Any) -> Any:
    return stream(paths, "cpu", framework="numpy", **options)


def check(out: Any, entries: dict[str, Entry]) -> list[Any]:
    """The tensors are these, in this order, each right when it comes and still at the end."""
    kept = []
    for (name, tensor), (want, (_, shape, data)) in zip(out, entries.items(), strict=True):
        assert (name, tensor.shape) == (want, tuple(shape))
        assert tensor.tobytes() == data
        kept.append(tensor)
    assert all(tensor.tobytes() == entry[2] for tensor, entry in zip(kept, entries.values(), strict=True))
    return kept


@pytest.mark.parametrize("route", ["auto", "buffered", "direct"])
@pytest.mark.parametrize("lookahead", [None, 0, 1])
def test_one_file_in_order(tmp_path: Path, route: str, lookahead: int | None) -> None:
    path = write(tmp_path / "t.safetensors", ENTRIES)
    try:
        check(run(path, route=route, lookahead=lookahead), ENTRIES)
    except errors.UnsupportedError:
        assert route == "direct"  # the file system under the test may have no direct reads
        return
    report = nebulaio.last_report()
    assert report is not None and report["bytes"] == sum(SIZES)


@pytest.mark.parametrize("lookahead", [None, 0, 1, 9])
@pytest.mark.parametrize("form", ["directory", "index", "list"])
def test_several_files(tmp_path: Path, lookahead: int | None, form: str) -> None:
    index = write_sharded(tmp_path / "m", SHARDS)
    paths: Any = {"directory": index.parent, "index": index,
                  "list": [str(index.parent / name) for name in SHARDS]}[form]
    check(run(paths, lookahead=lookahead), ALL)


@pytest.mark.parametrize("lookahead", [None, 1])
def test_a_list_keeps_its_order_and_names_may_repeat(tmp_path: Path, lookahead: int | None) -> None:
    first = write(tmp_path / "a.safetensors", {"x": random_entry(1, "U8", [5000]), "y": random_entry(2, "F32", [9])})
    second = write(tmp_path / "b.safetensors", {"x": random_entry(3, "U8", [70])})
    out = list(run([second, first], lookahead=lookahead))
    assert [(name, tensor.size) for name, tensor in out] == [("x", 70), ("x", 5000), ("y", 9)]


@pytest.mark.parametrize("lookahead", [None, 1])
def test_subset(tmp_path: Path, lookahead: int | None) -> None:
    folder = write_sharded(tmp_path / "m", SHARDS).parent
    check(run(folder, tensors=(glob for glob in ["layers.1.*", "*.e"]), lookahead=lookahead),
          {name: ALL[name] for name in ALL if name.startswith("layers.1.") or name.endswith(".e")})
    with pytest.raises(errors.NotFoundError, match="nothing"):
        run(folder, tensors=["nothing"], lookahead=lookahead)


def test_random_files(tmp_path: Path) -> None:
    import random

    for seed in range(10):
        rng = random.Random(seed)
        entries = {
            f"n{n}": random_entry(n, rng.choice(["U8", "F16", "F32", "F64"]), [rng.choice([0, 1, 3, 1000, 200_000])])
            for n in range(rng.randrange(1, 60))
        }
        check(run(write(tmp_path / f"{seed}.safetensors", entries, pad=1)), entries)


def test_nothing_to_yield(tmp_path: Path) -> None:
    assert list(run(write(tmp_path / "t.safetensors", {}))) == []
    empty = {"a": random_entry(1, "F64", [0]), "b": random_entry(1, "U8", [3, 0])}
    check(run(write(tmp_path / "e.safetensors", empty)), empty)


def test_memory_of_a_file_goes_with_its_tensors(tmp_path: Path) -> None:
    """Also while later files are still being yielded."""
    folder = write_sharded(tmp_path / "m", SHARDS).parent
    for lookahead in (None, 0, 1):
        owners: list[Any] = []
        for name, tensor in run(folder, lookahead=lookahead):
            base = tensor
            while base.base is not None:
                base = base.base
            owners.append(weakref.ref(base))
            if name == "layers.3.w":
                del tensor, base
                gc.collect()
                assert all(owner() is None for owner in owners[:8])
                assert owners[8]() is not None


def test_progress(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path / "m", SHARDS).parent
    total = sum(len(entry[2]) for entry in ALL.values())
    for lookahead in (None, 1):
        seen: list[tuple[int, int]] = []
        check(run(folder, lookahead=lookahead, progress=lambda *now, seen=seen: seen.append(now)), ALL)
        assert seen[-1] == (total, total)
        assert seen == sorted(seen) and {of for _, of in seen} == {total}


@pytest.mark.parametrize("lookahead", [None, 0, 1])
def test_leaving_early_cancels(tmp_path: Path, lookahead: int | None) -> None:
    big = write_sparse(tmp_path / "big.safetensors", 2 << 30)
    small = write(tmp_path / "small.safetensors", ENTRIES)
    for leave in ("break", "close", "with", "error", "forget"):
        kept = None
        if leave == "break":
            for _, kept in run([small, big], lookahead=lookahead):
                break
        elif leave == "with":
            with run([small, big], lookahead=lookahead) as out:
                kept = next(out)[1]
        elif leave == "error":
            with pytest.raises(LookupError):
                for _, kept in run([small, big], lookahead=lookahead):
                    raise LookupError
        else:
            out = run([small, big], lookahead=lookahead)
            kept = next(out)[1]
            if leave == "close":
                out.close()
                out.close()
                assert list(out) == []
            del out
        gc.collect()
        assert kept is not None and kept.tobytes() == ENTRIES["t0"][2]
        check(run(small), ENTRIES)


def test_closed_by_its_own_progress(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {f"t{n}": random_entry(n, "F32", [100]) for n in range(5)})
    out = stream(path, "cpu", framework="numpy", progress=lambda done, total: out.close())
    with pytest.raises(ClosedError):
        list(out)
    assert list(out) == []


def test_paths_of_bytes(tmp_path: Path) -> None:
    path = os.fsencode(write(tmp_path / "t.safetensors", {"t": random_entry(1, "F32", [100])}))
    for paths in (path, [path, path]):
        assert [name for name, _ in stream(paths, "cpu", framework="numpy")] == ["t"] * (1 if paths is path else 2)  # type: ignore[arg-type]
    assert list(load_file(path, "cpu", framework="numpy")) == ["t"]  # type: ignore[arg-type]
    with safe_open(path, "numpy") as f:  # type: ignore[arg-type]
        assert f.keys() == ["t"]


def test_never_started(tmp_path: Path) -> None:
    run(write_sparse(tmp_path / "big.safetensors", 2 << 30))
    check(run(write(tmp_path / "t.safetensors", ENTRIES)), ENTRIES)


def test_the_call_itself_fails(tmp_path: Path) -> None:
    for paths in ([], 7, [7], None):
        with pytest.raises(errors.InvalidError, match="not a path or a list of paths"):
            run(paths)
    with pytest.raises(errors.NotFoundError, match="gone"):
        run(tmp_path / "gone.safetensors")
    path = write(tmp_path / "t.safetensors", ENTRIES)
    with pytest.raises(errors.NotFoundError, match="gone"):
        run([path, tmp_path / "gone.safetensors"])
    for lookahead in (-1, 1.5, True, "1"):
        with pytest.raises(errors.InvalidError, match="lookahead="):
            run(path, lookahead=lookahead)
    with pytest.raises(errors.UnsupportedError, match="'packed': dtype F4"):
        run(write(tmp_path / "p.safetensors", {"packed": random_entry(2, "F4", [2, 8])}))


@pytest.mark.parametrize("lookahead", [None, 1])
def test_damage_is_raised_behind_what_is_good(tmp_path: Path, lookahead: int | None) -> None:
    entries = {f"t{n}": random_entry(n, "U8", [3 << 20]) for n in range(8)}
    path = write(tmp_path / "t.safetensors", entries)
    assert write_checksums(path) == [f"{path}.crc64nvme"]
    check(run(path, verify=True, lookahead=lookahead), entries)
    size = path.stat().st_size
    for place in (3, size // 2, size - 1):
        data = bytearray(path.read_bytes())
        data[place] ^= 16
        path.write_bytes(data)
        got = []
        if place == 3:
            with pytest.raises(errors.CorruptError):  # the header's length: it is refused before anything is read
                run(path, verify=True)
        else:
            with pytest.raises(errors.CorruptError, match=r"block \d+, bytes \d+ to \d+, differs .* tensor \"t"):
                for name, tensor in run(path, verify=True, lookahead=lookahead):
                    got.append(name)
                    assert tensor.tobytes() == entries[name][2]
            first_bad = (place - (size - 8 * (3 << 20))) // (3 << 20)
            assert got == list(entries)[: len(got)] and len(got) <= first_bad
            report = nebulaio.last_report()
            assert report is not None and "differs" in report["error"]
        data[place] ^= 16
        path.write_bytes(data)


def test_against_the_fake(fake: _process.Holder) -> None:
    functions = fake.load().functions
    for lookahead in (None, 0):
        functions.fake_forget()
        ((name, tensor),) = list(run("size=300", lookahead=lookahead))
        assert (name, bytes(tensor)) == ("t", bytes(i % 256 for i in range(300)))
        assert functions.fake_live() == 0
        assert "release-running" not in functions.fake_log().decode()


@pytest.mark.parametrize("lookahead", [None, 0])
@pytest.mark.parametrize("status", [1, 6, 7, 10])
def test_error_at_the_end_comes_behind_the_tensors(fake: _process.Holder, status: int, lookahead: int | None) -> None:
    out = run(f"late,size=9,wait={status}", lookahead=lookahead)
    name, tensor = next(out)
    assert bytes(tensor) == bytes(range(9))
    with pytest.raises(errors._BY_STATUS[status], match="scripted"):
        next(out)
    assert fake.load().functions.fake_live() == 0
    assert bytes(tensor) == bytes(range(9))
    assert list(out) == []


@pytest.mark.parametrize("lookahead", [None, 0])
@pytest.mark.parametrize("step", ["open", "select", "files", "start", "describe", "wait"])
def test_every_step_can_fail(fake: _process.Holder, step: str, lookahead: int | None) -> None:
    if step == "select" and lookahead is None:
        assert len(list(run("select=6", lookahead=lookahead))) == 1  # nothing is selected
    else:
        with pytest.raises(errors.ReadError, match="scripted"):
            list(run(f"{step}=6", lookahead=lookahead))
    assert fake.load().functions.fake_live() == 0
    assert "release-running" not in fake.load().functions.fake_log().decode()


def test_interrupt_inside_the_wait(fake: _process.Holder) -> None:
    out = run("slow")
    with pytest.raises(KeyboardInterrupt):
        sender = interrupt_when(lambda: b"running" in fake.load().functions.fake_log())
        next(out)
    sender.join()
    assert fake.load().functions.fake_live() == 0
    calls = fake.load().functions.fake_log().decode().split()
    assert calls[-4:] == ["ended", "report", "release-load", "release-model"]


def test_exception_in_progress_cancels(fake: _process.Holder) -> None:
    def progress(done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        list(run("slow", progress=progress))
    assert fake.load().functions.fake_live() == 0
    assert "release-running" not in fake.load().functions.fake_log().decode()


def test_a_forked_child_leaves_the_stream_alone(fake: _process.Holder) -> None:
    out = run("slow")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(out)
        except errors.ClosedError:
            code = 7
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    out.close()
    assert fake.load().functions.fake_live() == 0


def test_ctrl_c_in_the_consumer(tmp_path: Path) -> None:
    big = write_sparse(tmp_path / "big.safetensors", 4 << 30)
    code = """
import os, signal, sys
import numpy
from nebulaio.safetensors import stream
import nebulaio
sent = []
def progress(done, total):
    if not sent and done < total:
        sent.append(True)
        os.kill(os.getpid(), signal.SIGINT)
for _ in range(2):
    sent.clear()
    try:
        for name, tensor in stream(sys.argv[1], "cpu", framework="numpy", progress=progress):
            pass
    except KeyboardInterrupt:
        print("interrupted")
    assert nebulaio.last_report()["error"]
"""
    assert python(code, big).split() == ["interrupted"] * 2
