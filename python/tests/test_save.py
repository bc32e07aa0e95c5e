# SPDX-License-Identifier: Apache-2.0
"""Saves through the real library: every dtype and shape back byte for byte, by us and by the reference."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nebulaio
import nebulaio.safetensors.numpy
import numpy
import pytest
import safetensors
import safetensors.numpy
import serving
from nebulaio import _process
from nebulaio._frameworks import held
from nebulaio.errors import (
    InvalidError,
    NebulaioError,
    NotFoundError,
    UnsupportedError,
    from_status,
)
from nebulaio.safetensors import inspect, load_file, save_file
from support import in_threads, python, random_entry
from test_numpy import NUMPY, ml_dtypes


def array(dtype: str, shape: list[int], seed: int = 1) -> Any:
    return numpy.frombuffer(random_entry(seed, dtype, shape)[2], dtype=NUMPY[dtype]).reshape(shape).copy()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def same(left: Any, right: Any) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def test_every_dtype_and_shape(tmp_path: Path) -> None:
    shapes: list[list[int]] = [[], [1], [7], [3, 5], [2, 3, 4], [0], [4, 0, 2], [300, 1000]]
    tensors = {
        f"{dtype}.{number}": array(dtype, shape, number)
        for dtype in NUMPY
        for number, shape in enumerate(shapes)
    }
    path = tmp_path / "t.safetensors"
    seen: list[tuple[int, int]] = []
    save_file(tensors, path, {"format": "np", "ü": "\n"}, progress=lambda done, total: seen.append((done, total)))
    report = nebulaio.last_report()
    assert report is not None
    assert (report["direction"], report["bytes"], report["tensors"]) == ("save", path.stat().st_size, len(tensors))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    out = load_file(path, "cpu", framework="numpy")
    assert sorted(out) == sorted(tensors)
    assert all(same(out[name], tensors[name]) for name in tensors)
    assert inspect(path)["metadata"] == {"format": "np", "ü": "\n"}
    assert int.from_bytes(path.read_bytes()[:8], "little") % 4096 == 4096 - 8
    assert names(tmp_path) == ["t.safetensors", "t.safetensors.crc64nvme"]


def test_the_reference_reads_it(tmp_path: Path) -> None:
    tensors = {
        "a": array("F32", [17, 33]),
        "b": array("I64", [3]),
        "scalar": array("F64", []),
        "none": array("F16", [0, 2]),
        "flag": array("BOOL", [9]),
    }
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    save_file(tensors, ours, {"k": "v"})
    safetensors.numpy.save_file(tensors, theirs, {"k": "v"})
    read = safetensors.numpy.load_file(ours)
    assert all(same(read[name], tensors[name]) for name in tensors)
    with safetensors.safe_open(ours, "np") as file:
        assert file.metadata() == {"k": "v"}
    data = [path.read_bytes()[8 + int.from_bytes(path.read_bytes()[:8], "little") :] for path in (ours, theirs)]
    assert data[0] == data[1]  # the same order too


def test_nothing_to_save(tmp_path: Path) -> None:
    path = tmp_path / "empty.safetensors"
    save_file({}, path)
    assert load_file(path, "cpu", framework="numpy") == {}
    assert safetensors.numpy.load_file(path) == {}


def test_things_with_an_array_interface(tmp_path: Path) -> None:
    class Wraps:
        def __init__(self, inner: Any) -> None:
            self.__array_interface__ = inner.__array_interface__
            self.inner = inner

    inner = array("F32", [4, 5])
    path = tmp_path / "t.safetensors"
    save_file({"wraps": Wraps(inner), "buffer": bytearray(b"abc"), "view": memoryview(b"defg")}, path)
    out = load_file(path, "cpu", framework="numpy")
    assert same(out["wraps"], inner)
    assert (out["buffer"].tobytes(), out["view"].tobytes()) == (b"abc", b"defg")


@pytest.mark.parametrize(
    ("tensors", "kind", "says"),
    [
        ({"t": numpy.zeros(2, numpy.complex128)}, UnsupportedError, "'t'.*complex128"),
        ({"t": numpy.array(["a"])}, UnsupportedError, "'t'"),
        ({"t": 5}, InvalidError, "'t'.*int"),
        ({"t": None}, InvalidError, "'t'.*NoneType"),
        ({1: array("U8", [1])}, InvalidError, "name 1"),
        ({"a\0b": array("U8", [1])}, InvalidError, "NUL"),
        ({"\ud800": array("U8", [1])}, InvalidError, "half a character"),
        ({"__metadata__": array("U8", [1])}, InvalidError, "reserved"),
        ({"n" * 4097: array("U8", [1])}, InvalidError, "4097 bytes.*at most 4096"),
        ([array("U8", [1])], InvalidError, "list, expected a dict"),
    ],
)
def test_what_is_refused(tmp_path: Path, tensors: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        save_file(tensors, tmp_path / "t.safetensors")
    with pytest.raises(kind, match=says):
        nebulaio.safetensors.numpy.save(tensors)
    assert names(tmp_path) == []


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, ["a"], {"a": "\ud800"}])
def test_metadata_is_text(tmp_path: Path, metadata: Any) -> None:
    with pytest.raises(InvalidError, match="metadata"):
        save_file({}, tmp_path / "t.safetensors", metadata)


def content(path: Path) -> tuple[bytes, bytes]:
    """The header's text and the data; ours has more spaces behind the text, so that the data begins at a page."""
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    return whole[8:end].rstrip(b" "), whole[end:]


ODD = {
    "turned": array("F32", [4, 6]).T,
    "Fortran": numpy.asfortranarray(array("F32", [4, 6])),
    "every second": array("F32", [8])[::2],
    "backwards": array("F32", [8])[::-1],
    "columns": array("I64", [6, 5])[:, 1:3],
    "spread": numpy.broadcast_to(array("F32", [3]), (4, 3)),
    "masked": numpy.ma.masked_array(array("F32", [6]), [1, 0] * 3),
    "a turned masked one": numpy.ma.masked_array(array("F32", [4, 6]), array("BOOL", [4, 6])).T,
    "big-endian": array("F32", [5]).astype(">f4"),
    "a turned big-endian one": array("I16", [4, 6]).astype(">i2").T,
    "a big-endian scalar": numpy.array(3, ">i8"),
    "nothing, turned": numpy.zeros((3, 0), "f4").T,
}


@pytest.mark.parametrize("name", ODD)
def test_arrays_of_any_order(tmp_path: Path, name: str) -> None:
    """Each is saved as the reference saves its values in order.

    Given as they are, the reference (0.8.0) writes other bytes for some of them: it
    takes the first bytes at their address, in whatever order they lie.
    """
    data = ODD[name].data if isinstance(ODD[name], numpy.ma.MaskedArray) else ODD[name]
    plain = numpy.array(data, data.dtype.newbyteorder("<"), order="C")
    save_file({"t": ODD[name], "u": array("U8", [3])}, tmp_path / "ours.safetensors")
    safetensors.numpy.save_file({"t": plain, "u": array("U8", [3])}, tmp_path / "theirs.safetensors")
    assert content(tmp_path / "ours.safetensors") == content(tmp_path / "theirs.safetensors")
    if ODD[name].flags.c_contiguous:
        safetensors.numpy.save_file({"t": ODD[name], "u": array("U8", [3])}, tmp_path / "given.safetensors")
        assert content(tmp_path / "ours.safetensors") == content(tmp_path / "given.safetensors")


def test_arrays_that_share_memory(tmp_path: Path) -> None:
    whole = array("F32", [10])
    for tensors in ({"a": whole, "b": whole}, {"a": whole[2:5], "b": whole}, {"a": whole[:6], "b": whole[5:]}):
        save_file(tensors, tmp_path / "ours.safetensors")
        safetensors.numpy.save_file(tensors, tmp_path / "theirs.safetensors")
        assert content(tmp_path / "ours.safetensors") == content(tmp_path / "theirs.safetensors")


def test_paths(tmp_path: Path) -> None:
    for path in ("", "a\0b"):
        with pytest.raises(InvalidError, match="empty or contain NUL"):
            save_file({}, path)
    with pytest.raises(NotFoundError, match="no directory"):
        save_file({}, tmp_path / "none" / "t.safetensors")
    with pytest.raises(InvalidError, match="a directory"):
        save_file({}, tmp_path)
    odd = tmp_path / os.fsdecode(b"\xff\xfe.safetensors")
    save_file({"t": array("U8", [3])}, odd)
    assert odd.exists()


def test_replaces_the_file_a_link_leads_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to("target")
    save_file({"t": array("U8", [3])}, link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert load_file(link, "cpu", framework="numpy")["t"].shape == (3,)


def test_without_checksums_none_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"t": array("U8", [3])}, path)
    assert (tmp_path / "t.safetensors.crc64nvme").exists()
    save_file({"t": array("U8", [4])}, path, checksum=False)
    assert names(tmp_path) == ["t.safetensors"]


def test_many_threads(tmp_path: Path) -> None:
    tensors = [{"t": array("F32", [100, 100 + number], number)} for number in range(6)]

    def run(number: int) -> None:
        for _ in range(3):
            save_file(tensors[number], tmp_path / f"{number}.safetensors")
            save_file(tensors[number], tmp_path / "all.safetensors")

    in_threads(run, 6)
    for number in range(6):
        assert same(load_file(tmp_path / f"{number}.safetensors", "cpu", framework="numpy")["t"], tensors[number]["t"])
    last = load_file(tmp_path / "all.safetensors", "cpu", framework="numpy")["t"]
    assert any(same(last, tensor["t"]) for tensor in tensors)
    assert len(names(tmp_path)) == 14


def test_progress_that_raises_cancels(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"t": array("U8", [5])}, path)
    before = path.read_bytes()

    def stop(done: int, total: int) -> None:
        if done < total:
            raise ZeroDivisionError

    big = numpy.zeros(64 << 20, numpy.uint8)
    try:
        save_file({"big": big}, path, progress=stop)
    except ZeroDivisionError:
        assert path.read_bytes() == before
        assert names(tmp_path) == ["t.safetensors", "t.safetensors.crc64nvme"]


def test_a_forked_child_saves(tmp_path: Path) -> None:
    code = """
import os, sys, numpy
from nebulaio.safetensors import save_file, load_file
save_file({'t': numpy.arange(5)}, sys.argv[1] + '/parent.safetensors')
child = os.fork()
if child == 0:
    save_file({'t': numpy.arange(6)}, sys.argv[1] + '/child.safetensors')
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(len(load_file(sys.argv[1] + '/child.safetensors', 'cpu', framework='numpy')['t']))
"""
    assert python(code, tmp_path).strip() == "6"


@pytest.fixture
def scripted(fake: _process.Holder) -> Iterator[_process.Holder]:
    yield fake


def log(fake: _process.Holder) -> str:
    said: bytes = fake.load().functions.fake_log()
    return said.decode()


@pytest.mark.parametrize("status", range(1, 12))
def test_every_status_is_its_exception(scripted: _process.Holder, status: int) -> None:
    for step in ("start", "wait"):
        with pytest.raises(NebulaioError) as raised:
            save_file({"t": array("U8", [2])}, f"{step}={status}")
        assert type(raised.value) is type(from_status(status, ""))
    assert scripted.load().functions.fake_live() == 0


def test_leaving_early_waits_for_the_end(scripted: _process.Holder) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_file({"t": array("U8", [2])}, "slow", progress=stop)
    assert "save running cancel stopping stopping stopping ended report release-load" in log(scripted)


def test_ml_dtypes_are_known_without_asking(tmp_path: Path) -> None:
    save_file({"t": numpy.ones(3, ml_dtypes.bfloat16)}, tmp_path / "t.safetensors")
    assert inspect(tmp_path / "t.safetensors")["tensors"][0]["dtype"] == "BF16"


def test_gpu_memory_is_saved_from_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba's arrays do not say which GPU they are on: the driver does."""
    monkeypatch.setattr(held, "cuda_device", lambda _, address: f"cuda:{address}")

    class Array:
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (3, False), "version": 3}

    assert held.hold("w", Array((2, 5)))[1:6] == ("F32", (2, 5), "cuda:3", 3, 40)
    assert held.hold("w", Array((2, 0)))[1:6] == ("F32", (2, 0), "host", 0, 0)


SAVE = """
import os, sys
import nebulaio, numpy
from nebulaio.safetensors import load_file, save_file
nebulaio.devices()
os.environ.update(zip(('AWS_ENDPOINT_URL', 'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'), sys.argv[1:]))
save_file({'a': numpy.arange(4)}, 's3://bucket/saved')
print(load_file('s3://bucket/saved', 'cpu', framework='numpy')['a'].tolist())
"""


def test_a_save_to_a_bucket_sees_variables_that_python_has_set(tmp_path: Path) -> None:
    with serving.serving(tmp_path) as server:
        assert python(SAVE, server.endpoint, *server.keys.values()).split("\n")[0] == "[0, 1, 2, 3]"


def test_a_save_takes_a_client(tmp_path: Path) -> None:
    tensors = {"a": numpy.arange(4)}
    with serving.serving(tmp_path) as server, nebulaio.GPUDirectClient(server.endpoint, **server.keys) as client:
        save_file(tensors, "s3://bucket/by-client", client=client)
        assert same(load_file("s3://bucket/by-client", "cpu", framework="numpy", client=client)["a"], tensors["a"])
        for url, why in ((tmp_path / "f", "is a path"), ("nebula://elsewhere:1/bucket/key", "the client's endpoint"),
                         ("s3://", "not an object URL")):
            with pytest.raises(InvalidError, match=why):
                save_file(tensors, url, client=client)
        wrong = nebulaio.GPUDirectClient(server.endpoint, server.keys["access_key"], "not the secret")
        with pytest.raises(NebulaioError) as raised:
            save_file(tensors, "s3://bucket/by-client", client=wrong)
        assert "not the secret" not in str(raised.value)
        client.close()
        with pytest.raises(nebulaio.errors.ClosedError):
            save_file(tensors, "s3://bucket/by-client", client=client)
