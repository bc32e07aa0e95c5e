# SPDX-License-Identifier: Apache-2.0
"""The benchmark of checkpoints keeps to its time and its disk, records failures, and computes right ratios."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoints import child, ranks, run, table
from checkpoints.files import KEPT, Files, drop, remove_all
from checkpoints.references import RawReads, blocks
from checkpoints.rounds import Clock, measure
from checkpoints.states import Spec, nbytes
from nbench import cache
from nbench.ceilings import Setting


def test_every_row_has_a_function_a_weight_and_a_title() -> None:
    assert set(child.ROWS) == set(child.WEIGHTS) == set(table.WHAT)
    assert {one.row for one in table.WANTED} <= set(child.ROWS)


@pytest.mark.parametrize(
    ("size", "width"), [(15 * 10**9, 4096), (10**9, 1024), (10**8, 256), (10**7, 256), (10**6, 64), (1, 64)]
)
def test_a_state_has_about_the_size_that_was_asked_for(size: int, width: int) -> None:
    spec = Spec(size)
    shapes = spec.tensors()
    assert shapes["layers.0.q"] == (width, width)
    assert spec.bytes == sum(map(nbytes, shapes.values()))
    if size >= 10**6:
        assert 0.7 * size < spec.bytes <= size


def test_three_states_of_15_gb_fit_on_the_disk() -> None:
    assert 0.98 * 45e9 < 3 * Spec(15 * 10**9).bytes < 45e9


def test_rows_share_the_time_that_is_left() -> None:
    rows = ["warm", "cold", "async"]
    shares = [child.share("warm", rows, 220), child.share("cold", rows, 110), child.share("async", rows, 65)]
    assert shares == [110, 45, 65]
    assert child.share("async", rows, -5) == 0


def test_rounds_alternate_and_record_failures() -> None:
    order: list[str] = []

    def step(name: str) -> Any:
        def work(number: int) -> dict[str, Any] | None:
            order.append(f"{name}{number}")
            if name == "fails" and number == 0:
                raise OSError("gone")
            if name == "once" and number:
                return None
            return {
                "seconds": 2.0,
                "bits": "state.w has other bits" if name == "wrong" else "equal",
                "report": {"read_seconds": 1.0},
            }

        return work

    said: list[str] = []
    found = measure(
        {name: step(name) for name in ("good", "fails", "once", "wrong")}, 3, 10**9, Clock(100), said.append
    )
    assert order == ["good0", "fails0", "once0", "wrong0", "once1", "good1", "once2", "good2"]
    assert found["good"]["seconds"] == [2.0, 2.0, 2.0] and len(found["good"]["reports"]) == 3
    assert found["fails"] == {"seconds": [0.0, 0.0, 0.0], "failed": ["round 1: OSError: gone"]}
    assert found["once"]["seconds"] == [2.0, 0.0, 0.0] and not found["once"]["failed"]
    assert found["wrong"]["failed"] == ["round 1: state.w has other bits"] and found["wrong"]["seconds"] == [
        2.0,
        0.0,
        0.0,
    ]
    assert "  round 1: good 2.000 s, 0.50 GB/s, read 1.000 s, bits equal" in said


def test_the_first_round_is_run_even_if_the_time_is_over() -> None:
    found = measure({"a": lambda number: {"seconds": 1.0}}, 3, 1, Clock(-1), lambda text: None)
    assert found["a"]["seconds"] == [1.0, 0.0, 0.0] and not found["a"]["failed"]


def test_blocks_cover_files() -> None:
    assert blocks([10, 0, 4, 5], 4) == [(0, 0, 4), (0, 4, 4), (0, 8, 2), (2, 0, 4), (3, 0, 4), (3, 4, 1)]


def test_raw_reads_read_every_byte(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "empty"]
    for path, size in zip(paths, (70000, 4096, 0)):
        path.write_bytes(os.urandom(size))
    try:
        raw = RawReads(paths, 8192, [Setting(2, 4096), Setting(1, 16384)])
    except OSError as problem:
        pytest.skip(f"this file system has no O_DIRECT: {problem}")
    assert {setting for setting, _ in raw.sweep} == set(raw.best)
    assert [raw.run(setting) for setting in raw.best] == [74096, 74096]
    paths[0].write_bytes(b"")
    paths[1].unlink()
    with pytest.raises(OSError):
        raw.run(raw.best[0])
    raw.close()


def made(files: Files, name: str, size: int) -> None:
    path = files.path(name)
    if name == "pt":
        path.write_bytes(bytes(size))
    else:
        path.mkdir()
        (path / "__0_0.distcp").write_bytes(bytes(size))
    path.with_name(path.name + ".made").write_text("{}")


def test_files_keep_to_the_limit(tmp_path: Path) -> None:
    said: list[str] = []
    files = Files(tmp_path / "work", Spec(10**6), 1000, said.append)
    for name in KEPT:
        made(files, name, 300)
    files.scratch.write_bytes(bytes(5000))
    files.room(100)
    assert all(map(files.is_made, KEPT)) and not files.scratch.exists() and not said
    files.room(300, keep=["stock"])
    assert [files.is_made(name) for name in KEPT] == [True, False, True] and len(said) == 1
    with pytest.raises(OSError, match="limit of 1000 bytes"):
        files.room(800, keep=["stock"])
    assert files.data("stock") == [files.path("stock") / "__0_0.distcp"]
    (tmp_path / "work" / "other").write_text("of somebody else")
    remove_all(tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["other"]


def test_a_file_that_stays_in_the_page_cache_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(bytes(8192))
    monkeypatch.setattr(cache, "drop", lambda path, everything=True: 0.0)
    monkeypatch.setattr(cache, "resident", lambda path: 0.5)
    with pytest.raises(cache.CacheError, match="50%"):
        drop([tmp_path / "a"], everything=False)


def test_a_rank_that_fails_ends_the_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks.sys, "executable", "/bin/false")
    with pytest.raises(ranks.WorldError, match="rank 0"):
        ranks.save(Spec(10**6, 2), {"stock": tmp_path / "stock"}, 60)


ENTRY = {"seconds": [1.0, 2.0, 0.0], "failed": []}


def results(**rows: Any) -> dict[str, Any]:
    machine = {"date": "2026-11-16", "cores": 2, "cpu": "Xeon", "ram_bytes": 2**34, "kernel": "6",
               "file_system": "ext4",
               "gpu": {"name": "H200"}, "python": "3.12", "nebulaio_cli": "nebulaio 1"}
    return {"command": "bench/checkpoint.py", "machine": machine, "versions": {"torch": "2.11"}, "device": "cuda:0",
            "size": 10**9,
            "ranks": 4, "rows": rows}


def test_ratios_are_of_rounds_and_of_the_fastest_reference() -> None:
    row: dict[str, Any] = {"bytes": 10**9, "contenders": {
        "ours": {**ENTRY, "bits": "equal"},
        "FileSystemWriter, thread_count 1": {"seconds": [3.0, 0.0, 0.0], "failed": []},
        "FileSystemWriter, thread_count 4": {"seconds": [4.0, 6.0, 5.0], "failed": []},
        "O_DIRECT 8x1M": {"seconds": [0.5, 2.0, 0.0], "failed": []},
        "O_DIRECT 4x1M": {"seconds": [0.0, 0.0, 0.0], "failed": ["round 1: no"]}}}
    assert table.fastest(row, "FileSystemWriter") == "FileSystemWriter, thread_count 4"
    assert table.fastest(row, "O_DIRECT") == "O_DIRECT 8x1M" and table.fastest(row, "nobody") == ""
    text = table.whole(results(save=row))
    assert "| save | ours, divided by FileSystemWriter, thread_count 4 | 2 | 3.50 (3.00 to 4.00) | reached |" in text
    assert "| save | ours, divided by O_DIRECT 8x1M | 0.9 | 0.75 (0.50 to 1.00) | **short** |" in text
    assert "| ours | 1.500 | 1.000 to 2.000 | 2 | 0.67 | equal |  |" in text
    assert "not measured; failed in round 1: no" in text and "H200" in text and "torch 2.11" in text
    assert table.missed(row) and table.missed({"error": "x"})
    assert table.wanted({**results(save=row), "device": "host"}) == ""


def test_rows_that_were_not_measured_are_named() -> None:
    text = table.whole(results(pt={"error": "OSError: full"}, **{"async": {"error": "gone"}}))
    assert (
        "Not measured: OSError: full" in text
        and "| pt | ours, divided by torch.load, mmap | 5 | not measured | |" in text
    )
    assert "| async | stall and steps | | not measured | |" in text


def test_stalls_are_shares_of_a_save_that_waits() -> None:
    def save(stall: float, slower: float) -> dict[str, Any]:
        return {
            "seconds": 3.0,
            "stall_s": stall,
            "alone_s": 0.1,
            "step_s": 0.1 * (1 + slower),
            "slower": slower,
            "gpu_bytes": 0,
        }

    entry = {"saves": [save(0.1, 0.01), save(0.3, 0.02), save(0.11, 0.5)], "failed": [], "first": save(1.0, 0),
             "bits": "equal",
             "process_bytes": 10**9, "machine_bytes": 10**9}
    broken = {"saves": [], "failed": ["OSError: full"]}
    row = {
        "bytes": 6 * 10**9,
        "memory": 6 * 10**9,
        "blocking_s": [2.0, 2.2, 2.4],
        "contenders": {"ours, device": entry, "ours, staging": broken},
    }
    assert table.stalls(entry, 2.2) == pytest.approx((0.05, 0.02))
    text = table.whole(results(**{"async": row}))
    assert "| at most 5% | 5.0% | reached |" in text and "| at most 3% | +2.0% | reached |" in text
    assert "| ours, staging | not measured: OSError: full |" in text and table.missed(row)


@pytest.mark.parametrize(
    "arguments", [["--rows", "lukewarm"], ["--device", "gpu"], ["--size", "10"], ["--ranks", "0"], ["--rounds", "0"]]
)
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        run.parse(arguments)


def test_arguments() -> None:
    given = run.parse(["--rows", "pt,load", "--size", "1.5GB", "--device", "host"])
    assert given.rows == ["warm", "cold", "pt"] and given.size == 1_500_000_000 and given.tokens == 16
    assert run.parse([]).rows == [*child.ROWS] and run.parse([]).tokens == 8192
    assert run.size("64MiB") == 64 << 20 and run.size("12") == 12


def stand_in(tmp_path: Path, code: str) -> str:
    """A program that takes the place of Python, and prints events."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport json, sys\ntask = json.loads(sys.argv[3])\n{code}\n")
    path.chmod(0o755)
    return str(path)


CRASH = """
row = task["rows"][0]
print(json.dumps({"event": "begin", "row": row}), flush=True)
if row == "cold":
    import os
    os.abort()
print(json.dumps({"event": "row", "row": row, "result": {"rows": task["rows"]}}), flush=True)
if len(task["rows"]) > 1:
    sys.exit(3)
print(json.dumps({"event": "end"}), flush=True)
"""


def test_a_process_that_dies_loses_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: dict[str, Any] = {}
    monkeypatch.setattr(run.sys, "executable", stand_in(tmp_path, CRASH))
    given = run.parse(["--device", "host", "--workdir", str(tmp_path / "work")])
    run.Run(given, noted.__setitem__).rows()
    assert noted["warm"] == {"rows": ["warm", "cold", "save", "pt"]}
    assert noted["cold"] == {"error": "the process ended with exit code 3"}
    assert noted["save"] == {"rows": ["save", "pt"]} and noted["pt"] == {"error": "the process ended with exit code 3"}
    assert noted["async"] == {"rows": ["async"]}
    only = run.parse(["--device", "host", "--rows", "cold", "--workdir", str(tmp_path / "work")])
    run.Run(only, noted.__setitem__).rows()
    assert noted["cold"] == {"error": "the process ended with exit code -6"}


def test_a_row_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: dict[str, Any] = {}
    monkeypatch.setattr(run.sys, "executable", stand_in(tmp_path, "import threading\nthreading.Event().wait()"))
    run.Run(run.parse(["--device", "host", "--rows", "pt", "--timeout", "0.3"]), noted.__setitem__).rows()
    assert noted == {"pt": {"error": "no result after 0 s"}}
