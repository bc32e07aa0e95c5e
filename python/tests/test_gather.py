# SPDX-License-Identifier: Apache-2.0
"""Reads of segments and writes of pieces through the real library."""

from __future__ import annotations

import ctypes
import os
import random
from pathlib import Path

import pytest
import serving
from held import hold
from nebulaio import _gather, _process
from nebulaio._gather import Piece, Segment
from nebulaio.errors import CancelledError, CorruptError, InvalidError, NotFoundError
from nebulaio.gpudirect import GPUDirectClient
from support import python


class Memory:
    """Host memory with an address."""

    def __init__(self, content: bytes) -> None:
        self.buffer = ctypes.create_string_buffer(content, max(len(content), 1))
        self.size = len(content)
        self.address = ctypes.addressof(self.buffer)

    def piece(self) -> Piece:
        return Piece(self.address, self.size, "host")

    def content(self) -> bytes:
        return self.buffer.raw[: self.size]


def wanted(content: bytes, s: Segment) -> bytes:
    """The bytes of a segment, read in the plainest way."""
    part = content[s.offset : s.offset + s.size]
    if not s.stride:
        return part
    return b"".join(part[i : i + s.width] for i in range(0, len(part), s.stride))


def test_a_written_file_is_whole_and_has_its_checksums(tmp_path: Path) -> None:
    pieces = [Memory(os.urandom(n)) for n in (4096, 0, 3 << 20, 1)]
    path = tmp_path / "a.bin"
    seen: list[tuple[int, int]] = []
    report = _gather.write(path, [m.piece() for m in pieces], progress=lambda *done: seen.append(done))
    content = b"".join(m.content() for m in pieces)
    assert path.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "a.bin.crc64nvme"]
    assert report["op"] == "write" and report["pieces"] == 4 and report.bytes == len(content)
    assert len(report["crc64nvme"]) == 16 and int(report["crc64nvme"], 16) >= 0
    assert seen[-1] == (len(content), len(content))
    again = _gather.write(path, [Piece(m.address, m.size, "cpu") for m in pieces], checksum=False)
    assert again["crc64nvme"] == report["crc64nvme"]
    assert os.listdir(tmp_path) == ["a.bin"]


def test_an_empty_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    report = _gather.write(path, [])
    assert path.read_bytes() == b"" and report["crc64nvme"] == "0" * 16
    assert _gather.read([path], [Segment(0, 0, 0, 0)], device="host", verify=True).bytes == 0
    assert _gather.read([path], [], device="host").bytes == 0
    with pytest.raises(
        InvalidError, match=r"segment 0 \(\"w\"\) of .*empty: has 1 bytes at offset 0; the file has 0 bytes"
    ):
        _gather.read([path], [Segment(0, 0, 1, Memory(b"x").address, label="w")], device="host")


@pytest.mark.parametrize("verify", [False, True])
def test_segments_of_any_order_arrive(tmp_path: Path, verify: bool) -> None:
    dice = random.Random(7)
    files = []
    for n in range(3):
        content = dice.randbytes(1_500_000 + n)
        memory = Memory(content)
        _gather.write(tmp_path / f"{n}.bin", [memory.piece()])
        files.append(content)
    segments, places = [], []
    for n in range(100):
        file = dice.randrange(3)
        offset = dice.randrange(len(files[file]))
        size = min(len(files[file]) - offset, dice.choice([0, 1, 100, 5000, 400_000]))
        stride = dice.choice([0, 0, 1, 10, 3000, 100_000])
        width = dice.randint(1, stride) if stride else 0
        s = Segment(file, offset, size, 0, width, stride, f"t{n}")
        memory = Memory(bytes(len(wanted(files[file], s))))
        segments.append(s._replace(address=memory.address))
        places.append(memory)
    report = _gather.read([tmp_path / f"{n}.bin" for n in range(3)], segments, device="host", verify=verify)
    for s, memory in zip(segments, places):
        assert memory.content() == wanted(files[s.file], s), s
    assert report["op"] == "gather" and report["segments"] == 100 and ("verify" in report) == verify
    assert report.bytes == sum(m.size for m in places)


@pytest.mark.parametrize(
    ("gap", "width", "stride", "read"),
    [
        (0, 1024, 4096, 99 * 4096 + 1024),
        (1024, 1024, 4096, 100 * 1024),
        (0, 4096, 16384, 100 * 4096),  # rows in the page cache that are far apart are copied one by one
    ],
)
def test_a_gap_separates_rows(tmp_path: Path, gap: int, width: int, stride: int, read: int) -> None:
    content = os.urandom(100 * stride)
    (tmp_path / "a.bin").write_bytes(content)
    rows = Memory(bytes(100 * width))
    segment = Segment(0, 0, 99 * stride + width, rows.address, width, stride)
    with hold(tmp_path / "a.bin"):  # reads of absent pages are cut at other places
        report = _gather.read([tmp_path / "a.bin"], [segment], device="host", gap=gap, cache="keep")
    assert rows.content() == wanted(content, segment)
    assert report["read_bytes"] == read


def test_a_damaged_block_names_file_and_labels(tmp_path: Path) -> None:
    memory = Memory(os.urandom(3 << 20))
    path = tmp_path / "a.bin"
    _gather.write(path, [memory.piece()])
    with open(path, "r+b") as file:
        file.seek((1 << 20) + 5)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    out = Memory(bytes(3 << 20))
    segments = [
        Segment(0, 2 << 20, 10, out.address, label="far"),
        Segment(0, 1 << 20, 100, out.address + 100, label="model.w"),
    ]
    with pytest.raises(CorruptError, match=r'a\.bin.*tensor "model\.w"'):
        _gather.read([path], segments, device="host", verify=True)
    _gather.read([path], segments[:1], device="host", verify=True)
    os.unlink(f"{path}.crc64nvme")
    with pytest.raises(NotFoundError, match="no checksums"):
        _gather.read([path], segments[:1], device="host", verify=True)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    memory = Memory(b"0123456789")
    _gather.write(path, [memory.piece()])
    at = memory.address
    for bad, why in (
        (Segment(1, 0, 1, at), "names file 1"),
        (Segment(0, 11, 0, at), "the file has 10 bytes"),
        (Segment(0, 0, 1, 0), "address 0x0"),
        (Segment(0, -1, 1, at), "offset=-1"),
        (Segment(0, 0, 1 << 64, at), "size="),
        (Segment(0, 1 << 63, 1, at), "2\\^63"),
        (Segment(0, 1 << 62, 1 << 62, at), "2\\^62"),
        (Segment(0, 0, 10, at, 3, 2), "3 bytes out of every 2"),
        (Segment(0, 0, 10, at, 0, 2), "0 bytes out of every 2"),
        (Segment(0, 0, 1, at, label="a\0b"), "label"),
    ):
        with pytest.raises(InvalidError, match=why):
            _gather.read([path], [bad], device="host")
    with pytest.raises(NotFoundError, match="missing"):
        _gather.read([tmp_path / "missing"], [Segment(0, 0, 0, 0)], device="host")
    with pytest.raises(InvalidError):
        _gather.read([path], [], device="tpu")
    with pytest.raises(InvalidError, match="address 0x0"):
        _gather.write(tmp_path / "b", [Piece(0, 1, "host")])
    with pytest.raises(InvalidError, match="client="):
        _gather.write(tmp_path / "b", [], client=object())
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "a.bin.crc64nvme"]


def test_a_cancelled_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    memory = Memory(bytes(64 << 20))
    running = _gather.start_write(path, [memory.piece()])
    running.cancel()
    try:
        running.wait()
    except CancelledError:
        assert path.read_bytes() == b"old"
        with pytest.raises(CancelledError):
            running.wait()
    else:  # the write was faster than the cancellation
        assert path.stat().st_size == 64 << 20
    assert running.done()
    with _gather.start_write(tmp_path / "b.bin", [memory.piece()]) as other:
        assert other.wait() == other.wait()
    assert other.done() and other.counted() == (64 << 20, 64 << 20)


def log(holder: _process.Holder) -> list[str]:
    """The calls of the fake library so far."""
    return str(holder.load().functions.fake_log().decode()).split()


@pytest.mark.parametrize("status, kind", [(2, InvalidError), (3, NotFoundError), (5, CorruptError)])
def test_errors_of_each_step_are_raised(fake: _process.Holder, status: int, kind: type[Exception]) -> None:
    for step in ("start", "wait"):
        with pytest.raises(kind, match="scripted"):
            _gather.read([f"{step}={status}"], [], device="host")
        with pytest.raises(kind, match="scripted"):
            _gather.write(f"{step}={status}", [])
    assert fake.load().functions.fake_live() == 0


def test_a_write_that_is_left_is_cancelled(fake: _process.Holder) -> None:
    with _gather.start_write("slow", []) as running:
        assert not running.done()
    assert "cancel" in log(fake) and running.done()
    dropped = _gather.start_write("slow", [])
    del dropped
    assert log(fake).count("cancel") >= 2
    assert fake.load().functions.fake_live() == 0
    with pytest.raises(KeyboardInterrupt):
        _gather.read(["slow"], [], device="host", progress=interrupt)
    other = _gather.start_write("slow", [])
    with pytest.raises(KeyboardInterrupt):
        other.wait(progress=interrupt)
    assert not other.done()  # an interrupted wait leaves the write running
    other.cancel()
    with pytest.raises(CancelledError):
        other.wait()


def interrupt(_: int, __: int) -> None:
    raise KeyboardInterrupt


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    code = """
import ctypes, resource, sys
from nebulaio import _gather
from nebulaio._gather import Segment
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
out = ctypes.create_string_buffer(4 * 300)
files = [f"{sys.argv[1]}/{n}" for n in range(300)]
segments = [Segment(n, 1, 3, ctypes.addressof(out) + 3 * n) for n in range(300)]
for verify in (False, True):
    report = _gather.read(files, segments, device="host", verify=verify)
    assert out.raw[: 900] == b"".join(b"%03d" % n for n in range(300)) and report.bytes == 900
print(len(report["files"]))
"""
    for n in range(300):
        memory = Memory(b"x%03d" % n)
        _gather.write(tmp_path / str(n), [memory.piece()])
    assert python(code, tmp_path) == "300\n"


@pytest.mark.parametrize("door", ["require", "off"])
def test_objects_are_written_and_read(tmp_path: Path, door: str) -> None:
    via = "door" if door == "require" else "http"
    with (
        serving.serving(tmp_path, buckets=("box",)) as server,
        GPUDirectClient(server.endpoint, **server.keys, door=door) as client,
    ):
        memory = Memory(os.urandom(2_000_000))
        url = "s3://box/dir/a.bin"
        report = _gather.write(url, [memory.piece()], client=client)
        assert report.via == via and len(report["crc64nvme"]) == 16 and report.etag
        out = Memory(bytes(1_000_000))
        segment = Segment(0, 500_000, 1_000_000, out.address, label="w")
        read = _gather.read([url], [segment], device="host", verify=True, client=client)
        assert out.content() == memory.content()[500_000:1_500_000]
        assert read.via == via and read["verify"]["blocks"] == 2
        assert server.request("HEAD", "/box/dir/a.bin.crc64nvme")[0] == 200
        with pytest.raises(NotFoundError, match="missing"):
            _gather.read(["s3://box/missing"], [segment], device="host", client=client)


@pytest.mark.cuda
def test_tensors_of_a_gpu(tmp_path: Path) -> None:
    import torch

    size = 64 << 20
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
    head = Memory(b"h" * 4096)
    stream = torch.cuda.current_stream().cuda_stream
    source += 1  # queued on the stream: the write waits for it
    pieces = [head.piece(), Piece(source.data_ptr(), size, "cuda:0")]
    report = _gather.write(tmp_path / "a", pieces, streams={"cuda:0": stream})
    assert report.bytes == size + 4096 and report["save"]["sources"]
    out = torch.zeros(size, dtype=torch.uint8, device="cuda")
    for verify in (False, True):
        out.zero_()
        segments = [
            Segment(0, 4096 + at, 1 << 20, out.data_ptr() + at, label=str(at)) for at in range(0, size, 1 << 20)
        ]
        _gather.read([tmp_path / "a"], segments[::-1], device="cuda:0", stream=stream, verify=verify)
        assert torch.equal(out, source)
    columns = torch.zeros(size // 4, dtype=torch.uint8, device="cuda")
    rows = Segment(0, 4096, size, columns.data_ptr(), width=256, stride=1024)
    _gather.read([tmp_path / "a"], [rows], device="cuda:0", stream=stream)
    assert torch.equal(columns, source.view(-1, 1024)[:, :256].reshape(-1))
