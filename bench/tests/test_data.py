# SPDX-License-Identifier: Apache-2.0
"""The benchmark of loaders makes right samples, checks that no contender skips work, and reports what it measured."""

from __future__ import annotations

import contextlib
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loaders import child, references, run, samples, store, table
from loaders.contenders import Contender, Plain, Task
from nbench import cache


@pytest.fixture
def some(tmp_path: Path) -> samples.Samples:
    """Seventy samples of 4 KiB, which are more than a batch and not a multiple of it."""
    return samples.Samples(tmp_path / "data", 70, 4096)


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2] / "python"))


def test_samples_differ_and_are_made_again(some: samples.Samples) -> None:
    contents = list(some.contents())
    assert len(set(contents)) == some.count == 70 and {len(c) for c in contents} == {4096}
    assert contents == list(some.contents())


def test_the_digest_is_of_all_samples_in_any_order(some: samples.Samples) -> None:
    contents = list(some.contents())
    whole = samples.digest(contents)
    assert samples.digest(reversed(contents)) == whole
    assert samples.digest(contents[:-1]) != whole
    assert samples.digest([*contents[:-1], contents[0]]) != whole
    assert samples.digest([*contents[:-1], bytes(4096)]) != whole


def test_forms_have_the_samples(some: samples.Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SHARD", 20 * 4096)
    for form in ("files", "tar", "one.safetensors"):
        samples.make(some, form)
    want = samples.digest(some.contents())
    assert samples.digest(path.read_bytes() for path in some.files("files")) == want
    found = []
    for path in some.files("tar"):
        with tarfile.open(path) as archive:
            for member in archive:
                assert member.offset_data % 4096 == 0
                found.append(archive.extractfile(member).read())
    assert len(some.files("tar")) == 4 and samples.digest(found) == want
    one = some.path("one.safetensors")
    raw = one.read_bytes()[samples.data_offset(one) :]
    assert samples.data_offset(one) % 4096 == 0 and samples.digest(
        np.frombuffer(raw, np.uint8).reshape(70, 4096)) == want


def test_a_form_is_made_once_and_again_for_other_samples(some: samples.Samples) -> None:
    samples.make(some, "files")
    first = some.files("files")[0]
    first.write_bytes(b"kept")
    samples.make(some, "files")
    assert first.read_bytes() == b"kept"
    samples.make(samples.Samples(some.folder, 3, 512), "files")
    assert [p.stat().st_size for p in some.files("files")] == [512] * 3


class Lazy(Plain):
    """A contender that leaves out its last batch."""

    def epoch(self, number: int) -> Iterator[Any]:
        *batches, _ = super().epoch(number)
        return iter(batches)


class Wrong(Plain):
    """A contender that returns the first sample of a batch over and over."""

    def epoch(self, number: int) -> Iterator[Any]:
        for batch in super().epoch(number):
            batch[:] = batch[0]
            yield batch


@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_are_whole_and_shuffled(some: samples.Samples, shuffle: bool) -> None:
    samples.make(some, "one.safetensors")
    contender = Plain(Task(some, 16, "host", shuffle))
    assert child.verify(contender)["digest"] == samples.digest(some.contents())
    first = [bytes(sample) for batch in contender.epoch(0) for sample in contender.each(batch)]
    assert (first == list(some.contents())) is not shuffle
    assert child.measure(contender, cold=False)["samples"] == 70


def test_contenders_that_skip_work_are_found(some: samples.Samples) -> None:
    samples.make(some, "one.safetensors")
    task = Task(some, 16, "host", False)
    with pytest.raises(RuntimeError, match="64 samples"):
        child.epoch(Lazy(task), 0)
    assert child.verify(Wrong(task))["digest"] != samples.digest(some.contents())


def test_random_reads_are_measured(some: samples.Samples) -> None:
    samples.make(some, "one.safetensors")
    program = references.build_random(some.folder)
    assert references.random_reads(program, some, 4, 1) > 0
    longer = samples.Samples(some.folder, 71, 4096)
    with pytest.raises(references.subprocess.CalledProcessError):
        references.random_reads(program, longer, 4, 1)


def test_a_run_reports_each_contender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rows", "stored,shuffled", "--contenders", "engine,plain", "--sample", "4KiB", "--count", "70",
                 "--batch", "16",
                 "--rounds", "2", "--workdir", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert run.main(arguments) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(found["rows"]) == ["stored", "shuffled"] and found["samples"]["count"] == 70
    for row in found["rows"].values():
        assert set(row["contenders"]) == {"engine", "plain"}
        for contender in row["contenders"].values():
            assert len(contender["seconds"]) == 2 and min(contender["seconds"]) > 0 and contender["verified"] == found[
                "digest"]
    text = capsys.readouterr().out
    assert text.strip() == (tmp_path / "out" / "table.md").read_text().strip() and "| engine |" in text


def test_our_loader_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "python"))
    arguments = ["--rows", "shuffled,objects", "--contenders", "ours,ours-files,ours-objects", "--sample", "4KiB",
                 "--count", "70",
                 "--batch", "16", "--rounds", "1", "--workdir", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    for name in ("NEBULAIO_ENDPOINT", "NEBULAIO_ACCESS_KEY", "NEBULAIO_SECRET_KEY"):
        monkeypatch.setenv(name, "")  # so that the test restores what the store sets
    assert run.main(arguments) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    for row in found["rows"].values():
        for contender in row["contenders"].values():
            assert contender["verified"] == found["digest"] and contender["seconds"][0] > 0 and contender["reports"]


def test_a_missing_package_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rows", "stored", "--contenders", "webdataset,plain", "--sample", "4096", "--count", "5", "--rounds",
                 "1",
                 "--workers", "0", "--workdir", str(tmp_path)]
    assert run.main(arguments) == 1
    assert "| webdataset | not measured: ModuleNotFoundError" in capsys.readouterr().out


def test_a_cold_row_has_its_reference(tmp_path: Path) -> None:
    arguments = ["--rows", "cold", "--contenders", "plain", "--sample", "64KiB", "--count", "20", "--depths", "1,4",
                 "--rounds", "1",
                 "--workdir", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    code = run.main(arguments)
    found = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]["cold"]["contenders"]
    if "page cache" in str(found["plain"].get("failed")):
        pytest.skip(f"this file system keeps files in the page cache: {found['plain']['failed']}")
    assert code == 0 and set(found) == {"plain", "O_DIRECT, depth 1", "O_DIRECT, depth 4"}
    assert all(min(contender["seconds"]) > 0 for contender in found.values())


def test_the_store_has_the_samples(some: samples.Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "python"))
    for name in ("NEBULAIO_ENDPOINT", "NEBULAIO_ACCESS_KEY", "NEBULAIO_SECRET_KEY"):
        monkeypatch.setenv(name, "")  # so that the test restores what the store sets
    with store.objects(some, os.environ["NEBULAIO_CLI"], some.folder) as url:
        assert url == "s3://bench/samples/"
        from nebulaio import GPUDirectClient

        with contextlib.closing(GPUDirectClient(door="require", device="host")) as client:
            buffer, found = np.empty(some.size, np.uint8), []
            for n in range(some.count):
                client.read_to_gpu("bench", f"samples/{n:08d}.bin", buffer)
                found.append(buffer.tobytes())
    assert found == list(some.contents())


def test_a_cold_epoch_is_cold(some: samples.Samples) -> None:
    samples.make(some, "one.safetensors")
    cache.warm(some.path("one.safetensors"))
    try:
        left = child.drop(some, "one.safetensors")
    except (RuntimeError, cache.CacheError) as problem:
        pytest.skip(f"this file system keeps files in the page cache: {problem}")
    assert left <= cache.COLD_LIMIT


def test_ratios_compare_rounds() -> None:
    row: dict[str, Any] = {"count": 100, "bytes": 1000, "contenders": {
        "ours": {"seconds": [1.0, 2.0, 0.0], "setting": {}},
        "torch": {"seconds": [2.0, 6.0, 1.0], "setting": {"workers": 2}},
        "broken": {"error": "no such package"}, "failing": {"seconds": [0.0], "failed": ["round 0: gone"]}}}
    assert table.ratios(row, "ours", "torch") == [2.0, 3.0]
    assert "workers 2" in table.line("torch", row["contenders"]["torch"], row)
    assert "ours **2.50** (2.00 to 3.00)" in table.line("torch", row["contenders"]["torch"], row)
    row["contenders"]["ours-files"] = {"seconds": [4.0, 4.0], "setting": {}}
    assert "ours-files **0.38** (0.25 to 0.50)" in table.line("ours", row["contenders"]["ours"], row)
    assert "not measured: no such package" in table.line("broken", row["contenders"]["broken"], row)
    assert "every round failed: round 0: gone" in table.line("failing", row["contenders"]["failing"], row)


@pytest.mark.parametrize("arguments", [["--rows", "lukewarm"], ["--contenders", "nobody"], ["--sample", "4"],
                                       ["--rows", "cold", "--sample", "1000"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        run.parse(arguments)


def test_every_contender_names_its_form() -> None:
    for name, kind in child.CONTENDERS.items():
        assert issubclass(kind, Contender) and kind.__doc__
        assert kind.form in samples.FORMS or name == "ours-objects"
