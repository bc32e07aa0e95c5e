# SPDX-License-Identifier: Apache-2.0
"""Small tensors that safe_open copies from the page cache itself, and what it leaves to the engine."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
import safetensors
from held import Keeper
from nebulaio import _cached, errors
from nebulaio.safetensors import safe_open, write_checksums
from support import BITS, Entry, python, random_entry, write

WHOLE_BYTES = [dtype for dtype, bits in BITS.items() if bits >= 8]
NOTE = "without the engine"


def entries(dtypes: list[str]) -> dict[str, Entry]:
    shapes = ([], [3], [0], [2, 0, 3], [4, 5], [1])
    return {f"{dtype}.{n}": random_entry(n, dtype, shape) for dtype in dtypes for n, shape in enumerate(shapes)}


@pytest.fixture
def keep() -> Iterator[Keeper]:
    """Keeps the pages of a file in the page cache until the test ends."""
    keeper = Keeper()
    yield keeper
    keeper.close()


def last() -> dict[str, Any]:
    report = nebulaio.last_report()
    assert report is not None
    return report


def small_read() -> bool:
    """Whether the last read was made without the engine."""
    return any(NOTE in note for note in last()["notes"])


def test_every_type_with_numpy(tmp_path: Path, keep: Keeper) -> None:
    path = keep(write(tmp_path / "t.safetensors", entries(WHOLE_BYTES), pad=1))
    with safe_open(path, "np") as file:
        for name, (_, shape, data) in entries(WHOLE_BYTES).items():
            array = file.get_tensor(name)
            assert array.shape == tuple(shape) and array.tobytes() == data and array.flags.writeable, name
            assert small_read(), name
        assert file.keys() == sorted(entries(WHOLE_BYTES))


@pytest.mark.torch
def test_every_type_with_torch(tmp_path: Path, keep: Keeper) -> None:
    import torch

    path = keep(write(tmp_path / "t.safetensors", entries(WHOLE_BYTES), pad=1))
    with safe_open(path, "pt") as file, safetensors.safe_open(path, "pt") as reference:
        for name, (dtype, shape, data) in entries(WHOLE_BYTES).items():
            tensor = file.get_tensor(name)
            assert list(tensor.shape) == shape and small_read(), name
            assert bytes(tensor.reshape(-1).view(torch.uint8).numpy()) == data, name
            if dtype != "F8_E8M0":
                assert tensor.dtype is reference.get_tensor(name).dtype
            tensor.zero_()  # it is memory of its own
            again = file.get_tensor(name)
            assert bytes(again.reshape(-1).view(torch.uint8).numpy()) == data


def test_the_report(tmp_path: Path, keep: Keeper) -> None:
    path = keep(write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [10])}))
    with safe_open(path, "np") as file:
        file.get_tensor("a")
        report = last()
        assert report["routes"][0]["route"] == "page_cache" and report["routes"][0]["bytes"] == report["bytes"] == 40
        assert report["device"]["id"] == "host" and report["path"] == str(path) and report["seconds"] > 0
        engines = safe_open(path, "np", cache="keep")
        engines.get_tensor("a")
        assert not small_read()
        # What the two kinds of reports have in common goes by the same names.
        assert report.keys() <= last().keys()
        assert report["routes"][0].keys() == last()["routes"][0].keys()


def test_the_order_of_tensors_is_the_references(tmp_path: Path) -> None:
    names = ["z", "empty.2", "m", "empty.1", "a"]
    made = {name: random_entry(1, "U8", [0 if "empty" in name else 4]) for name in names}
    path = write(tmp_path / "t.safetensors", made)
    with safe_open(path, "np") as ours, safetensors.safe_open(path, "np") as theirs:
        assert ours.offset_keys() == theirs.offset_keys()
        assert ours.keys() == theirs.keys()


@pytest.mark.parametrize("options", [{"route": "direct"}, {"route": "buffered"}, {"cache": "bypass"}, {"verify": True}],
                         ids=str)
def test_what_was_asked_for_is_the_engines(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [10])})
    write_checksums(path)
    with safe_open(path, "np", **options) as file:
        try:
            assert file.get_tensor("a").tobytes() == random_entry(1, "F32", [10])[2]
        except errors.UnsupportedError:
            assert options == {"route": "direct"}  # a file system without it
            return
    assert not small_read()


def test_large_tensors_are_the_engines(tmp_path: Path, keep: Keeper) -> None:
    most = _cached.LARGEST
    made = {"most": random_entry(1, "U8", [most]), "more": random_entry(2, "U8", [most + 1])}
    with safe_open(keep(write(tmp_path / "t.safetensors", made)), "np") as file:
        assert file.get_tensor("most").tobytes() == made["most"][2] and small_read()
        assert file.get_tensor("more").tobytes() == made["more"][2] and not small_read()


def test_absent_pages_are_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"first": random_entry(1, "U8", [100]), "gap": random_entry(2, "U8", [1 << 20]),
            "a": random_entry(3, "U8", [50_000])}
    path = write(tmp_path / "t.safetensors", made)
    with safe_open(path, "np") as file:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(descriptor, [bytearray(1)], os.path.getsize(path) - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        except OSError as why:
            pytest.skip(f"this file system does not tell: {why}")
        else:
            pytest.skip("the kernel keeps the pages")
        finally:
            os.close(descriptor)
        found: list[int] = []

        def preadv(*arguments: Any) -> int:
            found.append(0)
            found[-1] = real(*arguments)
            return found[-1]

        real = os.preadv
        monkeypatch.setattr(os, "preadv", preadv)
        assert file.get_tensor("a").tobytes() == made["a"][2]
        # The kernel starts to read absent pages even for a caller that does not wait. In a few runs of 10,000, these
        # pages are there when the kernel looks again, and it hands them out.
        assert small_read() == (found == [50_000])
        assert sum(route["bytes"] for route in last()["routes"]) >= 50_000


@pytest.mark.parametrize("there", [0, 1, 4096, 49_999])
def test_what_the_kernel_does_not_hand_out_is_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                          there: int) -> None:
    """The first pages may be there and others absent: then the kernel hands out a part."""
    made = {"a": random_entry(3, "U8", [50_000])}
    with safe_open(write(tmp_path / "t.safetensors", made), "np") as file:
        real, asked = os.preadv, []

        def preadv(descriptor: int, buffers: Any, offset: int, flags: int) -> int:
            asked.append(flags)
            if not there:
                raise BlockingIOError(errno.EAGAIN, "no page is there")
            return real(descriptor, [memoryview(buffers[0]).cast("B")[:there]], offset, 0)

        monkeypatch.setattr(os, "preadv", preadv)
        assert file.get_tensor("a").tobytes() == made["a"][2]
        assert len(asked) == 1 and not small_read()
        assert sum(route["bytes"] for route in last()["routes"]) >= 50_000


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [10])})
    with safe_open(path, "np") as file:
        file.get_tensor("a")
        os.utime(path, (1, 1))
        with pytest.raises(errors.ReadError, match="changed while it was being read"):
            file.get_tensor("a")
    with safe_open(path, "np") as file:
        os.truncate(path, os.path.getsize(path) - 4)
        with pytest.raises(errors.ReadError):  # and no SIGBUS, which a mapping would end in
            file.get_tensor("a")


def test_another_file_of_the_name_is_not_mixed_in(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [10])})
    other = write(tmp_path / "o.safetensors", {"a": random_entry(2, "F32", [10])})
    with safe_open(path, "np") as file:
        other.rename(path)
        assert file.get_tensor("a").tobytes() == random_entry(1, "F32", [10])[2]


SWAPPED = """
import os, sys
from nebulaio import _cached, _handles
from nebulaio.safetensors import safe_open
opened = _handles.Model.__init__
def swapping(self, *arguments):
    os.rename(sys.argv[2], sys.argv[1])  # between the two opens
    opened(self, *arguments)
_handles.Model.__init__ = swapping
file = safe_open(sys.argv[1], 'np')
assert file.get_tensor('a').tobytes().hex() == sys.argv[3] and file._cached is None
"""


def test_a_file_that_is_replaced_while_it_is_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [10])})
    other = write(tmp_path / "o.safetensors", {"a": random_entry(2, "F32", [10])})
    python(SWAPPED, path, other, random_entry(2, "F32", [10])[2].hex())


FORKED = """
import os, sys
from nebulaio.errors import ClosedError
from nebulaio.safetensors import safe_open
file = safe_open(sys.argv[1], 'np')
file.get_tensor('a')
child = os.fork()
if child == 0:
    try:
        file.get_tensor('a')
    except ClosedError:
        os._exit(0)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_file_of_the_parent_is_closed_in_a_child(tmp_path: Path) -> None:
    python(FORKED, write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [10])}))


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [10])})
    nebulaio.devices()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with safe_open(path, "np") as file:
            file.get_tensor("a")
        with pytest.raises(errors.ClosedError):
            file.get_tensor("a")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_reports_are_each_threads_own(tmp_path: Path, keep: Keeper) -> None:
    made = {"a": random_entry(1, "U8", [10]), "b": random_entry(1, "U8", [20])}
    path = keep(write(tmp_path / "t.safetensors", made))
    sizes = []
    with safe_open(path, "np") as file:
        file.get_tensor("a")

        def other() -> None:
            file.get_tensor("b")
            sizes.append(last()["bytes"])

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert sizes == [20] and last()["bytes"] == 10


@pytest.mark.parametrize("index", [0, -1, slice(1, 3), (1, slice(2, 5)), (0, 0, 0), (slice(1, 2), slice(None)),
                                   (slice(0, 5, 2),), ...], ids=repr)
def test_parts_that_lie_together(tmp_path: Path, index: Any, keep: Keeper) -> None:
    array = numpy.arange(5 * 7 * 4, dtype="i4").reshape(5, 7, 4)
    path = keep(write(tmp_path / "t.safetensors", {"odd": random_entry(1, "U8", [3]),
                                                   "b": ("I32", [5, 7, 4], array.tobytes())}))
    with safe_open(path, "np") as file:
        part = file.get_slice("b")[index]
        assert small_read()
        assert part.tolist() == array[index].tolist()


def test_parts_that_lie_apart_are_the_engines(tmp_path: Path) -> None:
    array = numpy.arange(5 * 7 * 4, dtype="i4").reshape(5, 7, 4)
    path = write(tmp_path / "t.safetensors", {"b": ("I32", [5, 7, 4], array.tobytes())})
    with safe_open(path, "np") as file:
        assert file.get_slice("b")[:, 1:3].tolist() == array[:, 1:3].tolist()
        assert not small_read()
