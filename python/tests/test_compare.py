# SPDX-License-Identifier: Apache-2.0
"""The comparison tool without torch: shapes, what fits, figures, sentences, processes, the command line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from nebulaio.compare import cache, cli, conclusions, crowd, figures, files, fit, memory, process, shapes, stats, table
from nebulaio.errors import InvalidError
from support import python, run_python

GIB = 1 << 30


def test_models_are_those_of_the_study() -> None:
    for name, tensors, nbytes in (("0.6b", 311, 1503264768), ("7b", 339, 15231233024), ("70b", 723, 141107412992)):
        spec = shapes.SPECS[name]
        assert (len(spec.tensors()), spec.nbytes()) == (tensors, nbytes), name


def test_shards_hold_every_tensor_once_and_stay_small() -> None:
    tensors = shapes.SPECS["7b"].tensors()
    parts = shapes.shards(tensors)
    assert [shapes.shard_name(n, len(parts)) for n in (0, 3)] == [
        "model-00001-of-00004.safetensors",
        "model-00004-of-00004.safetensors",
    ]
    assert sorted(name for part in parts for name in part) == sorted(tensors)
    assert all(sum(map(shapes.size_of, part.values())) <= shapes.SHARD for part in parts)
    assert all(list(part) == sorted(part) for part in parts)
    assert len(shapes.shards(shapes.SPECS["0.6b"].tensors())) == 1
    assert shapes.shard_name(0, 1) == "model.safetensors"
    assert len(shapes.shards({"a": (100,), "b": (1,)}, limit=50)) == 2  # a large tensor is a file of its own


def test_what_fits_is_left_alone() -> None:
    made = fit.plan(shapes.SPECS["7b"], fit.Room(64 * GIB, 100 * GIB, 139 * GIB))
    assert (made.spec.layers, made.sparse, made.notes) == (28, False, [])
    assert made.written() == made.spec.nbytes()


def test_a_model_beyond_the_disk_has_holes_and_says_so() -> None:
    made = fit.plan(shapes.SPECS["70b"], fit.Room(60 * GIB, 120 * GIB, 139 * GIB))
    assert made.sparse and made.spec.layers == 80
    assert 0 < made.real_layers < 80 and made.written() < 17 * GIB
    assert made.real("model.embed_tokens.weight") and made.real("model.layers.79.input_layernorm.weight")
    assert made.real("model.layers.0.mlp.up_proj.weight") and not made.real("model.layers.79.mlp.up_proj.weight")
    assert "holes" in made.notes[0] and f"{made.real_layers} of 80 layers" in made.notes[0]


@pytest.mark.parametrize(("room", "copies", "models", "word"), [
    (fit.Room(500 * GIB, 500 * GIB, 24 * GIB), 1, 1, "the device"),
    (fit.Room(500 * GIB, 40 * GIB, None), 1, 1, "host memory"),
    (fit.Room(900 * GIB, 500 * GIB, 139 * GIB), 4, 1, "the device"),
    (fit.Room(900 * GIB, 40 * GIB, 139 * GIB), 1, 2, "the page cache"),
])
def test_a_model_beyond_memory_has_fewer_layers(room: fit.Room, copies: int, models: int, word: str) -> None:
    made = fit.plan(shapes.SPECS["70b"], room, copies=copies, models=models)
    assert 1 <= made.spec.layers < 80
    assert copies * made.spec.nbytes() <= room.for_tensors()
    assert f"{made.spec.layers} of 80 layers" in made.notes[0] and word in made.notes[0]


def test_what_cannot_fit_is_an_error() -> None:
    with pytest.raises(fit.DoesNotFit, match="fix"):
        fit.plan(shapes.SPECS["70b"], fit.Room(500 * GIB, 500 * GIB, 2 * GIB))
    with pytest.raises(fit.DoesNotFit, match="on disk"):
        fit.plan(shapes.SPECS["70b"], fit.Room(2 * GIB, 500 * GIB, 139 * GIB))


def test_folders_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    made = fit.plan(shapes.SPECS["tiny"], fit.Room(60 * GIB, 60 * GIB, None))
    assert not files.ready(tmp_path / "none", made, 1)
    (tmp_path / "theirs").mkdir()
    with pytest.raises(InvalidError, match="not made by this tool"):
        files.ready(tmp_path / "theirs", made, 1)
    (tmp_path / "theirs" / files.MARK).write_text(json.dumps(files.recipe(made, 1)))
    assert files.ready(tmp_path / "theirs", made, 1)
    assert not files.ready(tmp_path / "theirs", made, 2)


def test_statistics() -> None:
    assert stats.spread([]) is None and stats.spread([None]) is None
    assert stats.spread([3.0, None, 1.0, 2.0]) == {"n": 3, "median": 2.0, "min": 1.0, "max": 3.0}
    assert [stats.rotated([1, 2, 3], by) for by in (0, 1, 5)] == [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    assert stats.rate(2_000_000_000, 0.5) == 4.0
    # 10 GB at 10 GB/s take 1 s; of 1.5 s, half a second is beyond them.
    assert stats.overhead_per_tensor(1.5, 10_000_000_000, 10.0, 100) == pytest.approx(0.005)
    assert stats.overhead_share(1.5, 10_000_000_000, 10.0) == pytest.approx(1 / 3)
    assert stats.overhead_per_tensor(0.5, 10_000_000_000, 10.0, 100) == 0.0


def test_ratios_in_words() -> None:
    assert stats.times_text(2.5, 1.0) == "2.50 times as fast"
    assert stats.times_text(0.5, 1.0) == "2.00 times slower"
    assert stats.times_text(1.01, 1.0) == "as fast, within 3 %"


def load(seconds: float, fresh: bool = True, state: str = "warm", cached: float = 1.0, **more: Any) -> dict[str, Any]:
    report = {
        "open_seconds": 0.001, "alloc_seconds": 0.0, "seconds": 0.1,
        "routes": [{"route": "page_cache", "bytes": 75}, {"route": "direct", "bytes": 25}],
        "stages": [
            {"stage": "plan", "busy_seconds": 0.002}, {"stage": "copy", "busy_seconds": 9, "span_seconds": 0.09}
        ],
        "refusals": [{"what": "gpu", "reason": "no driver", "on": "this machine", "fix": "install it"}],
    }
    profile = {"seconds": {"module": 0.05, "total": seconds}, "how": "somehow", "reports": [report, report]}
    memory_used = {"rss_growth": 10 << 20, "rss_peak": 20 << 20, "anonymous_growth": 5 << 20}
    return {
        "fresh": fresh, "state": state, "cached_before": cached, "seconds": seconds, "forward_seconds": 1.0,
        "device": {}, "profile": profile, **memory_used, **more,
    }


def test_figures_of_a_loader() -> None:
    watched = {"anonymous_peak": 7 << 20, "machine_peak": 9 << 20}
    found = figures.of_loader([load(1.0), load(3.0), load(0.5, fresh=False, cached=0.5)], watched, 10**9, 10, 4.0)
    assert found["first"]["median"] == 2.0 and found["again"]["median"] == 0.5 and found["ready"]["median"] == 3.0
    assert found["gbps"] == 2.0
    assert found["routes"] == {"page_cache": 0.75, "direct": 0.25}
    assert found["refusals"] == [{"what": "gpu", "reason": "no driver", "on": "this machine", "fix": "install it"}]
    assert found["invalid"] == 1
    # Two reports of one load follow each other; elapsed time is taken where there is some.
    assert found["stages"]["library: copy"]["median"] == pytest.approx(0.18)
    assert found["stages"]["library: plan"]["median"] == pytest.approx(0.004)
    assert found["overhead_per_tensor"] == pytest.approx((0.5 - 0.25) / 10)


def test_a_load_in_another_cache_state_is_marked() -> None:
    assert not figures.valid(load(1, cached=0.9)) and figures.valid(load(1, cached=0.999))
    assert not figures.valid(load(1, state="cold", cached=0.1)) and figures.valid(load(1, state="cold", cached=0.0))
    assert figures.valid({**load(1), "cached_before": None})


def case(model: str, ours: float, theirs: float, **more: Any) -> conclusions.Case:
    loaders = {
        name: figures.of_loader([load(seconds)], {"anonymous_peak": peak << 20, "machine_peak": 0}, 10**9, 100, 50.0)
        for name, seconds, peak in (("nebulaio", ours, 100), ("transformers", theirs, 400))
    }
    plain = {"state": "warm", "parameters": 7e9 if model != "0.6b" else 6e8, "bytes": 10**9, "tensors": 100}
    return {"model": model, **plain, "holes": 0.0, "device": "cuda:0", "ceiling": 50.0, "loaders": loaders, **more}


def text(*cases: conclusions.Case, crowds: Any = ()) -> str:
    return "\n".join(conclusions.questions(list(cases), list(crowds)) + conclusions.claims(list(cases), list(crowds)))


def test_conclusions_follow_the_figures() -> None:
    fast, slow = text(case("7b", 0.5, 4.0)), text(case("7b", 4.0, 0.5))
    assert "Yes (7b warm): 500.0 ms against 4.00 s, 8.00 times as fast" in fast
    assert "No (7b warm): 4.00 s against 500.0 ms, 8.00 times slower" in slow
    assert "No difference (7b warm)" in text(case("7b", 1.0, 1.01))
    assert '"7b: 1.42x faster than Hugging Face": holds; here 8.00x faster' in fast
    assert '"7b: 1.42x faster than Hugging Face": does not hold; here 8.00x slower' in slow
    assert '"0.6b: 2.46x slower than Hugging Face": does not hold' in text(case("0.6b", 0.5, 4.0))
    assert '"0.6b: 2.46x slower than Hugging Face": holds' in text(case("0.6b", 4.0, 0.5))
    assert '"CPU memory 5.1x more": does not hold (7b); 100.0 MiB of its own against 400.0 MiB' in fast
    assert "75.0% by page_cache, 25.0% by direct" in fast and "Not open: gpu (no driver)" in fast
    # 0.5 s for 1 GB at 50 GB/s and 100 tensors: 4.8 ms each.
    assert '"Overhead of 2.7 ms per tensor": holds (7b)' in fast and "4.8 ms per tensor" in fast
    assert '"Overhead of 2.7 ms per tensor": does not hold' in text(case("7b", 0.1, 4.0))


def test_small_and_large_models_are_told_apart() -> None:
    both = text(case("0.6b", 4.0, 0.5), case("7b", 0.5, 4.0))
    assert "For small models (under 3B): none in any case measured" in both
    assert "For large models: an advantage in every case measured" in both
    mixed = text(case("7b", 0.5, 4.0), case("7b", 4.0, 0.5, state="cold"))
    assert "For large models: it depends" in mixed and "small" not in mixed


def test_nothing_is_concluded_from_what_is_missing() -> None:
    alone = case("7b", 0.5, 4.0)
    del alone["loaders"]["transformers"]
    found = text(alone)
    assert "not answered" in found and "than Hugging Face" not in found and "CPU memory" not in found


def test_holes_and_host_are_named() -> None:
    assert "90% of the bytes are holes" in text(case("70b", 0.5, 4.0, holes=0.9))
    assert "no GPU took part" in text(case("7b", 0.5, 4.0, device="host"))
    # 5 MiB of memory of its own for 1 GB: mapped. For 10 MB it is not said.
    assert "stayed pages of the files (memory of its own grew by 5.0 MiB)" in text(case("7b", 0.5, 4.0, device="host"))
    assert "stayed pages" not in text(case("7b", 0.5, 4.0, device="host", bytes=10**7))


def test_a_part_of_a_very_large_model_is_no_very_large_model() -> None:
    whole = case("70b", 0.5, 4.0, parameters=70.6e9, holes=0.9)
    assert "measured here (70.6B parameters, 953.7 MiB, 90% of it holes)" in conclusions.claims([whole], [])[-1]
    part = case("70b", 0.5, 4.0, parameters=4.7e9)
    assert "not answered here either, 4.7B parameters" in conclusions.claims([part], [])[-1]


def round_of(*loads: tuple[float, float]) -> dict[str, Any]:
    each = [(n, "m", {"start": a, "end": b, "bytes": 10**9, "routes": {}}) for n, (a, b) in enumerate(loads)]
    return crowd.summary(each)


def test_a_crowd_is_measured_from_first_start_to_last_end() -> None:
    found = round_of((1.0, 2.0), (1.5, 3.0))
    assert (found["seconds"], found["gbps"], found["start_spread"]) == (2.0, 1.0, 0.5)
    assert [one["gbps"] for one in found["processes"]] == [1.0, pytest.approx(2 / 3)]
    assert crowd.summary([]) == {"processes": []}


def test_a_crowd_in_words() -> None:
    found: dict[str, Any] = {"processes": 8, "models": 4, "state": "warm", "failures": [], "ratio": 0.95}
    found["alone_gbps"], found["together_gbps"] = stats.spread([40.0]), stats.spread([38.0])
    found["rounds"] = [{"alone": round_of((0.0, 1.0)), "together": round_of((0.0, 1.0), (0.0, 2.0))}]
    assert "8 processes with 4 models (warm) moved 38.00 GB/s together, 0.95 of one alone" in text(crowds=[found])
    assert any("ratio 0.95; 0 failures" in line for line in table.crowd_lines(found, "some"))
    found["failures"] = [{"process": 3, "model": "m", "why": "died"}]
    assert "1 of 8 processes failed" in text(crowds=[found])
    assert any("FAILED: process 3 (m): died" in line for line in table.crowd_lines(found, "some"))


def test_the_table_names_ratio_and_memory() -> None:
    found = case("7b", 0.5, 4.0)["loaders"]
    lines = "\n".join(table.loader_lines("nebulaio", found["nebulaio"], found["transformers"]))
    assert "500.0 ms (one load), 8.00 times as fast" in lines
    assert "resident after +10.0 MiB, peak +20.0 MiB, anonymous +5.0 MiB, anonymous peak +100.0 MiB" in lines
    assert "GPU memory" not in lines  # none took part
    marked = figures.of_loader([load(1.0, cached=0.2)], None, 10**9, 10, 4.0)
    assert any("another cache state" in line for line in table.loader_lines("nebulaio", marked, None))


def test_page_cache_states(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 << 20))
    if cache.resident([str(path)]) is None:
        pytest.skip("this kernel does not say what is cached")
    if cache.in_memory(str(path)):
        pytest.skip("the file system is memory")
    if cache.make_cold([str(path)]):
        assert (cache.resident([str(path)]) or 0) < cache.COLD_LIMIT
    cache.make_warm([str(path)])
    assert (cache.resident([str(path)]) or 0) > cache.WARM_LIMIT


def test_memory_that_is_taken_is_seen() -> None:
    memory.reset_peak()
    before = memory.resident()
    with memory.Watch() as watch:
        taken = bytearray(os.urandom(1)) * (64 << 20)
    after = memory.resident()
    assert len(taken) == 64 << 20
    assert after["anonymous"] - before["anonymous"] > 60 << 20
    assert watch.anonymous > 60 << 20 and memory.available() > 0


def test_jobs_run_apart_and_failures_are_told() -> None:
    assert process.run(lambda: {"pid": os.getpid()}, [], 30, False)["pid"] != os.getpid()
    with pytest.raises(process.ChildFailed, match="ZeroDivisionError"):
        process.run(lambda: 1 / 0, [], 30, False)
    with pytest.raises(process.ChildFailed, match="died with status 3"):
        process.run(lambda: os._exit(3), [], 30, False)
    with pytest.raises(process.ChildFailed, match="did not end"):
        process.run(signal.pause, [], 0.2, False)


def test_a_worker_that_fails_is_counted(tmp_path: Path) -> None:
    found = crowd.measure([tmp_path / "none"], 2, "cpu", 1, "warm", 60, False)
    assert [one["process"] for one in found["failures"]] == [0, 1]
    assert found["ratio"] is None and found["rounds"] == []


@pytest.mark.parametrize("arguments", [
    ["--model", "8b"], ["--model", ""], ["--loaders", "magic"], ["--rounds", "0"], ["--processes", "-1"],
    ["--only", "crowd"], ["--models", "0"], ["--json", "/nowhere/out.json"],
])
def test_bad_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_without_torch_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; from nebulaio.compare.cli import main; sys.exit(main([]))"
    done = run_python(code)
    assert done.returncode == 9
    assert "pip install torch transformers" in done.stderr
    code = "import sys; sys.modules['torch'] = None; from nebulaio.huggingface import load_pretrained as f\n"
    code += "try: f('/nowhere')\nexcept NotImplementedError as error: print(error)"
    assert "pip install torch transformers" in python(code)
