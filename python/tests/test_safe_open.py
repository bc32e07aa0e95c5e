# SPDX-License-Identifier: Apache-2.0
"""safe_open against the reference it stands in for."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
import safetensors
from nebulaio import _process, _slices, errors
from nebulaio.safetensors import safe_open, write_checksums
from support import Entry, random_entry, write, write_sharded

ENTRIES: dict[str, Entry] = {
    "z.first": random_entry(1, "F32", [5, 7]),
    "a*[b]": random_entry(2, "F16", [3]),
    "ab": random_entry(3, "I64", [2, 3, 4]),
    "scalar": random_entry(4, "F64", []),
    "empty": random_entry(5, "U8", [0, 3]),
    "big": random_entry(6, "U8", [3 << 20]),
    "": random_entry(7, "U8", [2]),
    "a\\*b": random_entry(8, "U8", [4]),
    "a*b": random_entry(9, "U8", [6]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "t.safetensors", ENTRIES, {"format": "np", "k": "v"})


def both(path: Path) -> tuple[Any, Any]:
    return safe_open(path, "np"), safetensors.safe_open(path, "np")


def same(ours: Any, theirs: Any) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert ours.tobytes() == theirs.tobytes()


def test_as_the_reference(path: Path) -> None:
    ours, theirs = both(path)
    with ours as file, theirs as reference:
        assert file is ours
        assert file.keys() == reference.keys()
        assert file.offset_keys() == reference.offset_keys()
        assert file.metadata() == reference.metadata() == {"format": "np", "k": "v"}
        for name in reference.keys():
            same(file.get_tensor(name), reference.get_tensor(name))
        all_of_it, expected = file.get_tensors(), reference.get_tensors()
        assert list(all_of_it) == list(expected)
        for name, tensor in expected.items():
            same(all_of_it[name], tensor)
            part, of = file.get_slice(name), reference.get_slice(name)
            assert (part.get_shape(), part.get_dtype()) == (of.get_shape(), of.get_dtype())
            # The reference cannot slice a tensor without elements.
            same(part[...], of[...] if tensor.size else tensor)
    for use in (file.keys, file.metadata, file.offset_keys, file.get_tensors, lambda: file.get_tensor("ab"),
                lambda: file.get_slice("ab")):
        with pytest.raises(errors.ClosedError, match="is closed"):
            use()
    if expected[name].size:
        same(part[...], of[...])  # both are still open


def test_without_metadata_and_without_a_block(tmp_path: Path) -> None:
    file = safe_open(write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [4])}), framework="numpy")
    assert file.metadata() is None
    assert file.get_tensor("a").tobytes() == random_entry(1, "U8", [4])[2]


def test_a_tensor_reads_its_own_bytes_into_its_own_memory(path: Path) -> None:
    with safe_open(path, "np", cache="bypass") as file:
        first, second = file.get_tensor("z.first"), file.get_tensor("z.first")
        report = nebulaio.last_report()
        assert report is not None and report["bytes"] == 5 * 7 * 4 and report["tensors"] == 1
        first[:] = 0
        assert second.tobytes() == ENTRIES["z.first"][2]
    assert second.tobytes() == ENTRIES["z.first"][2]


def test_the_header_is_read_once(path: Path) -> None:
    with safe_open(path, "np") as file:
        path.rename(path.with_suffix(".moved"))
        assert file.get_tensor("ab").tobytes() == ENTRIES["ab"][2]


def test_refusals(path: Path, tmp_path: Path) -> None:
    with safe_open(path, "np") as file:
        for read in (file.get_tensor, file.get_slice):
            with pytest.raises(errors.NotFoundError, match="no tensor 'nope'.*keys"):
                read("nope")
    with pytest.raises(FileNotFoundError, match="gone"):
        safe_open(tmp_path / "gone.safetensors", "np")
    with pytest.raises(errors.InvalidError, match="framework 'zz' is not known"):
        safe_open(path, "zz")
    with pytest.raises(errors.InvalidError, match="backend='x'"):
        safe_open(path, "np", backend="x")
    with pytest.raises(errors.InvalidError, match="load_model"):
        safe_open(write_sharded(tmp_path / "m", {"m.safetensors": ENTRIES}).parent, "np")
    with pytest.raises(errors.InvalidError, match="'numpy' holds host memory only"):
        safe_open(path, "np", device="cuda")
    safe_open(path, "np", backend="pread")
    packed = write(tmp_path / "p.safetensors", {"p": random_entry(1, "F4", [2, 4]), "u": random_entry(1, "U8", [4])})
    with safe_open(packed, "np") as file:
        assert file.get_tensor("u").size == 4  # a type that NumPy lacks does not matter until it is read
        with pytest.raises(errors.UnsupportedError, match="dtype F4"):
            file.get_tensor("p")
        with pytest.raises(errors.UnsupportedError, match="are not aligned to bytes"):
            file.get_slice("p")[:1]


def test_threads(path: Path) -> None:
    failed: list[BaseException] = []

    def read(seed: int) -> None:
        names = list(ENTRIES) * 5
        random.Random(seed).shuffle(names)
        try:
            for name in names:
                assert file.get_tensor(name).tobytes() == ENTRIES[name][2]
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    with safe_open(path, "np") as file:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_verify(path: Path) -> None:
    with safe_open(path, "np", verify=True) as file, pytest.raises(errors.NotFoundError, match="inspect .* --checksum"):
        file.get_tensor("ab")
    write_checksums(path)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1  # in "a*b" and the others of the last block
    path.write_bytes(data)
    with safe_open(path, "np", verify=True) as file:
        assert file.get_tensor("z.first").tobytes() == ENTRIES["z.first"][2]
        with pytest.raises(errors.CorruptError, match=r"block 3, .* tensor"):
            file.get_tensor("a*b")


def test_handles_are_released(fake: _process.Holder) -> None:
    with safe_open("size=300", "np") as file:
        part = file.get_slice("t")
        assert bytes(file.get_tensor("t")) == bytes(part[:]) == bytes(i % 256 for i in range(300))
        assert fake.load().functions.fake_live() == 1
    assert fake.load().functions.fake_live() == 1  # the slice can still be read
    del part
    assert fake.load().functions.fake_live() == 0
    for step in ("select", "start", "wait"):
        with safe_open(f"{step}=6", "np") as file, pytest.raises(errors.ReadError, match="scripted"):
            file.get_tensor("t")
        assert fake.load().functions.fake_live() == 0
    assert "release-running" not in fake.load().functions.fake_log().decode()


WHOLE = [slice(None), slice(0, 5), slice(None, None, 1), slice(0, 5, 2), ..., (), (..., slice(0, 4, 3)),
         (slice(1, 1), 0),
         (slice(None), slice(3, 3))]
PARTS = [
    0, -1, 2, numpy.int64(1), slice(1, 3), slice(4, 5), slice(2, None), slice(None, 2), slice(1, 4, 3), (..., 0),
    (0, ...), (slice(None), 1),
    (slice(None), slice(1, 6)), (slice(1, 3), slice(2, 4), slice(0, 1)), (0, 0, 0), (-1, -1, -1),
    (slice(2, 4), ..., 3), (1, slice(2, 5, 2)),
]
REFUSED = [
    5, -6, (0, 0, 0, 0), None, (None, 0), 1.0, "x", [0], [0, 1], (slice(None), [0, 2]), (..., ...), numpy.array([0]),
    slice(None, None, -1), slice(None, None, 0),
    slice(1.0, 2),
]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return write(tmp_path / "box.safetensors",
                 {"odd": random_entry(1, "U8", [3]), "b": random_entry(2, "I32", [5, 7, 4])})


@pytest.mark.parametrize("index", [*WHOLE, *PARTS], ids=repr)
def test_what_an_index_means(index: Any) -> None:
    array = numpy.arange(5 * 7 * 4).reshape(5, 7, 4)
    wanted = _slices.box(index, array.shape, "x")
    part = array[tuple(slice(*bounds) for bounds in wanted.ranges)]
    same(wanted.view(part), numpy.asarray(array[index]))


@pytest.mark.parametrize("index", WHOLE, ids=repr)
def test_slices_that_need_no_part(box: Path, index: Any) -> None:
    """All of the tensor is read, or nothing at all."""
    ours, theirs = both(box)
    same(ours.get_slice("b")[index], theirs.get_slice("b")[index])


@pytest.mark.parametrize("index", PARTS, ids=repr)
def test_slices_as_the_reference(box: Path, index: Any) -> None:
    ours, theirs = both(box)
    same(ours.get_slice("b")[index], theirs.get_slice("b")[index])


@pytest.mark.parametrize("index", REFUSED, ids=repr)
def test_what_the_reference_refuses(box: Path, index: Any) -> None:
    ours, theirs = both(box)
    with pytest.raises((safetensors.SafetensorError, OverflowError, TypeError, SystemError)):
        theirs.get_slice("b")[index]
    with pytest.raises(errors.InvalidError, match="get_slice"):
        ours.get_slice("b")[index]


COUNTED = [slice(-1, None), slice(None, -1), slice(0, 100), slice(5, 9), slice(2, 1), slice(-100, 2), slice(-3, -1),
           slice(9, None),
           (slice(-2, None), -1), (..., slice(-3, 99, 2)), (slice(1, 2), slice(3, 1))]


@pytest.mark.parametrize("index", COUNTED, ids=repr)
def test_slices_as_python_counts(box: Path, index: Any) -> None:
    """As the reference has it with torch, where its slices are torch's own."""
    with safe_open(box, "np") as ours:
        same(ours.get_slice("b")[index], ours.get_tensor("b")[index])


def test_a_truth_value_is_no_place(box: Path) -> None:
    """The reference takes it for a place with NumPy and for a mask with torch."""
    with safe_open(box, "np") as ours, pytest.raises(errors.InvalidError, match="True"):
        ours.get_slice("b")[True]


@pytest.mark.torch
@pytest.mark.parametrize("index", COUNTED, ids=repr)
def test_slices_as_the_reference_with_torch(box: Path, index: Any) -> None:
    torch = pytest.importorskip("torch")
    with safe_open(box, "pt") as ours, safetensors.safe_open(box, "pt") as theirs:
        mine, other = ours.get_slice("b")[index], theirs.get_slice("b")[index]
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert torch.equal(mine, other)


FANCY = [
    [0, 2], [4, 4, 0], (slice(None), [0, 2]), ([0, 1], [2, 3]), None, (None, 0), (0, None, slice(1, 3)), True, False,
    [True, False, True, False, True],
    (slice(1, 3), [True] * 7), [-1], [],
]


@pytest.mark.torch
@pytest.mark.parametrize("index", FANCY, ids=repr)
def test_lists_and_masks_as_the_reference_with_torch(box: Path, index: Any) -> None:
    torch = pytest.importorskip("torch")
    with safe_open(box, "pt") as ours, safetensors.safe_open(box, "pt") as theirs:
        for form in (index, torch.tensor(index)) if isinstance(index, list) and index else (index,):
            mine, other = ours.get_slice("b")[form], theirs.get_slice("b")[form]
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            assert torch.equal(mine, other)


@pytest.mark.torch
@pytest.mark.parametrize("truth", [True, False])
def test_one_truth_value_is_a_mask_as_in_the_reference_with_torch(box: Path, truth: bool) -> None:
    torch = pytest.importorskip("torch")
    mask = torch.tensor(truth)
    with safe_open(box, "pt") as ours, safetensors.safe_open(box, "pt") as theirs:
        for index in (mask, (mask, 1), (slice(1, 3), mask)):
            mine, other = ours.get_slice("b")[index], theirs.get_slice("b")[index]
            assert mine.shape == other.shape and torch.equal(mine, other)


@pytest.mark.torch
@pytest.mark.parametrize("index", [5, [9], (0, 0, 0, 0), "x", 1.0, [True, False]], ids=repr)
def test_what_torch_refuses_is_our_error(box: Path, index: Any) -> None:
    with safe_open(box, "pt") as ours, pytest.raises(errors.InvalidError, match="get_slice"):
        ours.get_slice("b")[index]


@pytest.mark.torch
def test_no_device_is_the_host(box: Path) -> None:
    with safe_open(box, "pt", None) as ours, safetensors.safe_open(box, "pt", None) as theirs:
        assert ours.get_tensor("b").device == theirs.get_tensor("b").device


def test_a_slice_reads_its_part_only(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"rows": random_entry(1, "F32", [1000, 1000])})
    with safe_open(path, "np") as file:
        part = file.get_slice("rows")[100:110]
        report = nebulaio.last_report()
    assert part.tobytes() == path.read_bytes()[-4_000_000:][100 * 4000 : 110 * 4000]
    assert report is not None and report["bytes"] == 10 * 4000


@pytest.mark.parametrize(("name", "module"), [("tf", "tensorflow"), ("tensorflow", "tensorflow"), ("mlx", "mlx"),
                                              ("paddle", "paddle")])
def test_frameworks_that_only_have_a_module(tmp_path: Path, name: str, module: str) -> None:
    path = write(tmp_path / "t.safetensors", {"a": ("U8", [2], b"ab")})
    with pytest.raises(errors.InvalidError, match=rf"is not known .*fix: .*nebulaio\.safetensors\.{module}\.load_file"):
        safe_open(path, name)
