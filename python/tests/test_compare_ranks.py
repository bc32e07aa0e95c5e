# SPDX-License-Identifier: Apache-2.0
"""The part of one tensor-parallel rank in the comparison tool: arithmetic, files with holes, loads of every rank."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy
import pytest
from nebulaio.compare import cache, cli, files, fit, parts, shapes, table
from nebulaio.errors import InvalidError
from support import run_python

GIB = 1 << 30
TINY = shapes.SPECS["tiny"]
LARGE = shapes.SPECS["70b"]


def ranges(rank: parts.Rank, spec: shapes.Spec = TINY) -> dict[str, list[tuple[int, int]]]:
    return {name: list(parts.runs(name, shape, rank)) for name, shape in spec.tensors().items()}


@pytest.mark.parametrize("world", [1, 2])
def test_the_ranks_have_each_byte_once_and_all_norms(world: int) -> None:
    all_ranks = [ranges(parts.Rank(index, world)) for index in range(world)]
    for name, shape in TINY.tensors().items():
        together = sorted(run for one in all_ranks for run in one[name])
        if parts.divided(name) is None:
            assert together == [(0, shapes.size_of(shape))] * world, name
            continue
        assert together[0][0] == 0 and together[-1][1] == shapes.size_of(shape), name
        assert all(a[1] == b[0] for a, b in zip(together, together[1:])), name


def test_runs_are_those_of_the_part() -> None:
    rank = parts.Rank(1, 2)
    for name, shape in TINY.tensors().items():
        whole = numpy.arange(shapes.size_of(shape) // 2, dtype="u4").reshape(shape)
        wanted = whole[parts.part(name, shape, rank)].ravel()
        found = numpy.concatenate([whole.ravel()[a // 2 : b // 2] for a, b in parts.runs(name, shape, rank)])
        assert (found == wanted).all(), name


def test_the_share_of_a_rank() -> None:
    rank = parts.Rank(0, 4)
    runs = ranges(rank, LARGE)
    assert parts.share(LARGE, rank) == sum(end - begin for each in runs.values() for begin, end in each)
    assert 0.25 < parts.share(LARGE, rank) / LARGE.nbytes() < 0.2501
    assert parts.share(LARGE, rank) < parts.footprint(LARGE, rank) < 1.2 * parts.share(LARGE, rank)
    assert parts.share(TINY, parts.Rank(0, 1)) == parts.footprint(TINY, parts.Rank(0, 1)) == TINY.nbytes()


def test_a_rank_of_a_model_beyond_the_disk() -> None:
    rank = parts.Rank(3, 4)
    made = fit.plan_rank(LARGE, fit.Room(60 * GIB, 120 * GIB, 139 * GIB), rank)
    assert made.spec.layers == 80 and made.rank == rank and made.written() < 42 * GIB
    assert "only the 32.86 GiB of rank 3 of 4" in made.notes[0]
    assert fit.made_by(**json.loads(json.dumps(made.recipe()))).rank == rank
    assert made.name(1) == "70b-80-1-rank-3-of-4"
    whole = fit.plan_rank(LARGE, fit.Room(200 * GIB, 120 * GIB, 139 * GIB), rank)
    assert whole.rank is None and whole.notes == [] and whole.written() == LARGE.nbytes()
    asked = fit.plan_rank(LARGE, fit.Room(200 * GIB, 120 * GIB, 139 * GIB), rank, sparse=True)
    assert asked.rank == rank
    fewer = fit.plan_rank(LARGE, fit.Room(60 * GIB, 120 * GIB, 20 * GIB), rank)
    assert fewer.spec.layers < 80 and parts.share(fewer.spec, rank) < 19 * GIB and "of 80 layers" in fewer.notes[0]
    with pytest.raises(fit.DoesNotFit, match="rank 3 of 4 needs .* on disk.*fix"):
        fit.plan_rank(LARGE, fit.Room(20 * GIB, 120 * GIB, 139 * GIB), rank)
    with pytest.raises(InvalidError, match="8 key-value heads cannot be divided among 3 ranks.*fix"):
        fit.plan_rank(LARGE, fit.Room(200 * GIB, 120 * GIB, 139 * GIB), parts.Rank(0, 3))


@pytest.mark.parametrize("value", ["4/4", "-1/4", "0", "0/0", "a/b", "0/4/2", "", "1/99999"])
def test_wrong_ranks_are_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([f"--rank={value}"])
    assert left.value.code == 2 and "expected R/N" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--only", "load"], ["--processes", "2"]])
def test_a_rank_is_a_comparison_of_its_own(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["--rank", "0/2", *more])
    assert left.value.code == 2 and "--rank: expected no --only" in capsys.readouterr().err


def test_files_with_holes_are_warmed_without_their_holes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        for place in (64 << 20, 200 << 20):
            file.seek(place)
            file.write(os.urandom(8 << 20))
        file.truncate(1 << 30)
    names = [str(path)]
    if cache.resident(names) is None or cache.in_memory(names[0]):
        pytest.skip("files cannot be made cold here, or the kernel does not say what is cached")
    if os.stat(path).st_blocks * 512 > 32 << 20:
        pytest.skip("the file system has no holes")
    if cache.make_cold(names):
        assert (cache.resident(names, without_holes=True) or 0) < cache.COLD_LIMIT
    cache.make_warm(names, without_holes=True)
    assert (cache.resident(names, without_holes=True) or 0) > cache.WARM_LIMIT
    assert (cache.resident(names) or 0) < 0.03  # the holes were not read


def test_different_values_are_named() -> None:
    one = {"loads": 4, "digests": 2, "loaders": 2}
    found = {"like": "some", "rank": {"index": 0, "world": 2}, "bytes": 1, "model_bytes": 2, "files": 1, "notes": [],
             "states": {"warm": {"figures": {}, "digests": one, "read": {"nebulaio": 1.5}}}}
    lines = table.rank_lines(found, {"name": "nothing"})
    assert any("DIFFERENT VALUES" in line for line in lines) and any("read 1.500 times" in line for line in lines)


TOOL = "import sys; from nebulaio.compare.cli import main; sys.exit(main(sys.argv[1:]))"

BROKEN = """
import sys
from nebulaio.compare import rankload, cli
honest = rankload.LOADERS["serving"]
def broken(folder, device, rank):
    tensors, profile = honest(folder, device, rank)
    flat = tensors["lm_head.weight"].view(-1)
    flat[0], flat[1] = flat[1].clone(), flat[0].clone()
    return tensors, profile
rankload.LOADERS["serving"] = broken
sys.exit(cli.main(sys.argv[1:]))
"""


def run(code: str, folder: Path, *more: str) -> tuple[int, str, Any]:
    out = folder / "out.json"
    done = run_python(code, "--model", "tiny", "--device", "cpu", "--rounds", 1, "--dir", folder / "models",
                      "--json", out, *more, timeout=500)
    return done.returncode, done.stdout + done.stderr, json.loads(out.read_text())


@pytest.mark.torch
@pytest.mark.parametrize("more", [["--rank", "0/2", "--sparse", "--cold"], ["--rank", "1/2"],
                                  ["--rank", "0/2", "--cold", "only"]])
def test_every_loader_loads_the_same_part(tmp_path: Path, more: list[str]) -> None:
    pytest.importorskip("transformers")
    code, shown, found = run(TOOL, tmp_path, *more)
    assert code == 0, shown
    assert not (tmp_path / "models").exists()
    (part,) = found["ranks"]
    assert part["bytes"] == parts.share(TINY, parts.Rank(part["rank"]["index"], 2))
    assert ("files with holes" in shown) is ("--sparse" in more)
    for state, result in part["states"].items():
        assert result["digests"] == {"loads": 3, "digests": 1, "loaders": 3}, state
        assert result["figures"].keys() == {"nebulaio", "serving", "get_slice"}
        assert result["read"].keys() == {"nebulaio", "serving"}
        assert all(1 <= times < 1.5 for times in result["read"].values())
    assert ("cold" in part["states"]) is ("--cold" in more)
    assert ("warm" in part["states"]) is ("only" not in more)


@pytest.mark.torch
def test_two_values_in_each_others_place_are_a_failure(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    code, shown, _ = run(BROKEN, tmp_path, "--rank", "0/2", "--no-watch")
    assert code == 1 and "DIFFERENT VALUES" in shown and "have loaded different values" in shown, shown


@pytest.mark.torch
def test_holes_are_everywhere_else(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    rank = parts.Rank(1, 2)
    files.make(tmp_path / "whole", fit.Plan(TINY, False, 4), 1)
    files.make(tmp_path / "part", fit.Plan(TINY, True, 4, rank=rank), 1)
    whole, part = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "part"))
    start = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:start])
    assert part[:start] == whole[:start] and len(part) == len(whole)
    for name, shape in TINY.tensors().items():
        begin, end = (start + offset for offset in header[name]["data_offsets"])
        expected = bytearray(end - begin)
        for a, b in parts.runs(name, shape, rank):
            expected[a:b] = whole[begin + a : begin + b]
        assert part[begin:end] == expected, name
