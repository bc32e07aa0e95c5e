# SPDX-License-Identifier: Apache-2.0
"""webdataset reads our archives, and we read its archives: every sample is equal."""

from __future__ import annotations

from pathlib import Path

import made
import ours
import pytest
import webdataset


def theirs(folder: Path) -> list[ours.Sample]:
    """Return the samples that webdataset reads from all archives of a folder."""
    urls = [str(path) for path in sorted(folder.glob("*.tar"))]
    dataset = webdataset.WebDataset(urls, shardshuffle=False)
    return [
        ours.sample(found["__key__"], {name: data for name, data in found.items() if not name.startswith("__")})
        for found in dataset
    ]


def shard_writer(folder: Path, **options) -> webdataset.ShardWriter:
    """Return a writer of webdataset that writes bytes as they are."""
    folder.mkdir()
    return webdataset.ShardWriter(str(folder / "%06d.tar"), encoder=False, verbose=0, **options)


MANY = made.KEYS + [f"many/{n:05d}" for n in range(60)]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("shard_size", [1, 30_000, 1 << 30])
def test_webdataset_reads_ours(tmp_path: Path, align: bool, shard_size: int) -> None:
    samples = made.columns(MANY)
    source = ours.write(tmp_path / "source", samples)
    out = ours.pack("tar", source, tmp_path / "out", shard_size=shard_size, **({"align": True} if align else {}))
    expected = sorted(ours.sample(key, parts) for key, parts in samples)
    shards = len(list(out.glob("*.tar")))
    assert shards == 1 if shard_size == 1 << 30 else shards > 5
    assert sorted(theirs(out)) == expected
    assert theirs(out) == ours.samples("tar", out)  # in the same order


@pytest.mark.parametrize("mtime", [0, None, 1.5])  # None and 1.5 add a PAX header to each member
def test_we_read_webdataset(tmp_path: Path, mtime: float | None) -> None:
    samples = made.columns(MANY)
    with shard_writer(tmp_path / "in", maxcount=7, mtime=mtime) as writer:
        for key, parts in samples:
            writer.write({"__key__": key, **parts})
    assert len(list((tmp_path / "in").glob("*.tar"))) == -(-len(MANY) // 7)
    assert ours.samples("tar", tmp_path / "in") == [ours.sample(key, parts) for key, parts in samples]
    assert ours.samples("tar", tmp_path / "in") == theirs(tmp_path / "in")


def test_our_archive_is_theirs_byte_by_byte(tmp_path: Path) -> None:
    samples = sorted(made.columns(made.KEYS))
    with shard_writer(tmp_path / "in", mtime=0) as writer:
        for key, parts in samples:
            writer.write({"__key__": key, **parts})
    out = ours.pack("tar", ours.write(tmp_path / "source", samples), tmp_path / "out")
    written = {key: place for place, (key, _) in enumerate(ours.samples("tar", out))}
    if [written[key] for key, _ in samples] != sorted(written.values()):
        pytest.fail("the samples have another order, so the archives cannot be compared")
    assert (out / "shard-000000.tar").read_bytes() == (tmp_path / "in" / "000000.tar").read_bytes()


def test_upper_case_extensions_are_read_alike(tmp_path: Path) -> None:
    with shard_writer(tmp_path / "in") as writer:
        writer.write({"__key__": "a", "JPG": b"1", "Seg.PNG": b"2"})
    assert theirs(tmp_path / "in") == ours.samples("tar",
                                                   tmp_path / "in") == [ours.sample("a",
                                                                                    {"jpg": b"1", "seg.png": b"2"})]


def test_keys_with_dots_are_read_alike(tmp_path: Path) -> None:
    """The key ends at the first dot of the file name, also if the writer meant another place."""
    with shard_writer(tmp_path / "in") as writer:
        writer.write({"__key__": "d.1/a.b", "x": b"1"})
        writer.write({"__key__": "d.1/.hidden", "x": b"2"})
        writer.write({"__key__": "d.1/c", "x": b"3"})
    assert ours.samples("tar", tmp_path / "in") == theirs(tmp_path / "in")
    assert ours.sample("d.1/a", {"b.x": b"1"}) in theirs(tmp_path / "in")


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "a.tar.gz"), compress=True, encoder=False) as writer:
        writer.write({"__key__": "a", "x": b"1"})
    with pytest.raises(ours.Refused, match=r"a\.tar\.gz.*(gzip|compress)"):
        ours.samples("tar", tmp_path / "a.tar.gz")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    with shard_writer(tmp_path / "in") as writer:
        writer.write({"__key__": "a", "x": b"1" * 5000})
    whole = (tmp_path / "in" / "000000.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:3000])
    with pytest.raises(ours.Refused, match=r"cut\.tar"):
        ours.samples("tar", tmp_path / "cut.tar")
