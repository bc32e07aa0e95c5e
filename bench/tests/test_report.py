# SPDX-License-Identifier: Apache-2.0
"""Tables, plot, checks and merging, from invented results."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from nbench import checks, child, report, results, svg, table, table_analysis

SVG = "{http://www.w3.org/2000/svg}"


def sample(method: str, seconds: float, index: int = 0, nbytes: int = 10**10, **more: Any) -> dict[str, Any]:
    """A valid sample."""
    return {"method": method, "round": index, "nbytes": nbytes, "seconds": seconds, "gbps": nbytes / seconds / 1e9,
            "cpu_s": 0.1, "valid": True, "bits": "equal", "cached_before": 1.0, **more}


def row(name: str, samples: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a row as in a results file."""
    kind, _, model = name.partition("-")
    return {"name": name, "kind": kind, "model": model, "device": "cuda:0", "date": "2026-01-01T00:00:00Z",
            "rounds_asked": 1, "rounds_done": 1, "stopped": "", "estimate_s": 1.0, "took_s": 1.0, "skipped": {},
            "files": {"name": "f.safetensors", "bytes": 10**10, "tensors": 300}, "samples": samples, "memory": {},
            "facts": {}, "last_report": {}, **more}


def data(*rows: dict[str, Any]) -> dict[str, Any]:
    """Return a results file with one run."""
    machine = {"date": "d", "kernel": "6.8", "cpu": "c", "gpu": {"name": "GPU"}, "ram_bytes": 2**30}
    return {"schema": 1, "runs": [{"command": "run", "machine": machine, "rows": list(rows)}]}


WARM = row("warm-7b", [sample("nebulaio", 0.2), sample("safetensors", 1.6), sample("ceiling_pinned", 0.19),
                       {"method": "torch_gds", "round": 0, "nbytes": 0, "valid": False, "error": "RuntimeError: a|b"}])
FOUR = row("four", [sample("nebulaio", 1.0, variant="alone"), sample("nebulaio", 1.01, variant="at once")],
           files={"a": {"name": "a", "bytes": 1, "tensors": 1}}, facts={"aggregate_ratio": {"nebulaio": 0.99}})
HALF = row("half-7b", [sample("nebulaio", 1.0, state="first-half", extra={"factor": 1.3, "expected_s": 0.77})])
THREE = row("three-7b", [
    sample(method, took, variant=variant, repeat=n, cached_before=part)
    for method, variant, took in (("nebulaio", "auto", 1.0), ("nebulaio", "keep", 1.2), ("safetensors", "", 2.0))
    for n, part in ((1, 0.0), (2, 1.0), (3, 1.0))
])
FIRST = row("first", [sample("nebulaio", 0.05,
                             extra={"seconds": [0.05, 0.04, 0.04], "setup_s": 0.01, "import_s": 0.1})])
MEMORY = row("memory", [sample("nebulaio", 1.0, variant="7b",
                               extra={"growth_bytes": 300 << 20, "staging_bytes": 128 << 20})],
             files={"7b": {"name": "a", "bytes": 1, "tensors": 1}})
ANALYSIS = row("analysis", [
    sample("nebulaio", 0.05, nbytes=10**9, variant="0.6b",
           report={"stages": [{"stage": "read", "busy_seconds": 0.25}]}),
    sample("nebulaio", 0.3, variant="7b"),
], files={"0.6b": {"bytes": 10**9, "tensors": 311}, "7b": {"bytes": 10**10, "tensors": 339}},
    facts={"cost": {"nebulaio": {"per_tensor_s": 1e-5, "per_byte_s": 2e-11, "gbps": 50.0}},
           "mini_gds": {"0.6b": {"hf_s": 1.23, "nixl_gds_s": 3.03}, "per_tensor_ms": {"wait": 1.8}},
           "profile": {"7b": [{"function": "f", "calls": 1, "own_s": 0.1, "total_s": 0.2}]}})
EVERY = (WARM, FOUR, HALF, THREE, FIRST, MEMORY, ANALYSIS)


def test_page_has_every_row_and_well_formed_tables() -> None:
    text = report.markdown(*results.merge([data(*EVERY)]))
    for entry in EVERY:
        assert f"### {entry['name']} " in text
    assert "RuntimeError: a\\|b" in text
    lines = text.splitlines()
    for above, rule in itertools.pairwise(lines):
        if rule.startswith("| ---"):
            assert above.count("|") == rule.count("|")
    for expected in ("0.950", "8.00", "Mini-GDS", "stages.read.busy_seconds", "50.00"):
        assert expected in text


def test_checks_say_pass_fail_and_not_run() -> None:
    found = {(c.row, c.asked): c for c in checks.every(results.merge([data(*EVERY)])[0])}
    verdicts = {key: check.verdict for key, check in found.items()}
    assert verdicts["warm-7b", "of ceiling_pinned ≥ 0.94"] == checks.PASS
    assert verdicts["warm-7b", "× safetensors ≥ 7"] == checks.PASS
    assert verdicts["cold-7b", "of ceiling_raw ≥ 0.95"] == checks.NOT_RUN
    assert verdicts["half-7b", "factor, first-half ≤ 1.15"] == checks.FAIL
    assert verdicts["three-7b", "sum, auto < safetensors"] == checks.PASS
    assert verdicts["three-7b", "keep: cached before the 2nd and 3rd ≥ 0.99"] == checks.PASS
    assert verdicts["first", "set-up ≤ 15 ms"] == checks.PASS
    assert verdicts["memory 7b", "staging ≤ 128 MiB"] == checks.PASS
    assert verdicts["memory 7b", "growth < 256 MiB"] == checks.FAIL
    assert verdicts["four", "rate of four at once to one alone ≥ 0.95"] == checks.PASS
    assert verdicts["all rows", "every bit as the reference"] == checks.PASS


def test_checks_of_nothing() -> None:
    assert {check.verdict for check in checks.every([])} == {checks.NOT_RUN}


def test_a_wrong_bit_fails() -> None:
    wrong = row("warm-7b", [sample("nebulaio", 0.2, bits="w: content differs")])
    last = checks.every([wrong])[-1]
    assert last.verdict == checks.FAIL
    assert "content differs" in last.found


def test_plot_has_a_bar_per_method_and_a_ceiling() -> None:
    cold = row("cold-7b", [sample("nebulaio", 2.6), sample("ceiling_raw", 2.5, variant="8x1M")])
    root = ElementTree.fromstring(report.plot(*results.merge([data(WARM, cold)])))
    titles = [element.text for element in root.iter(f"{SVG}title")]
    assert [title.split(":")[0] for title in titles if title] == ["nebulaio", "safetensors", "nebulaio"]
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert any(text.startswith("ceiling_raw") for text in texts)


def test_plot_of_nothing_is_still_a_document() -> None:
    assert ElementTree.fromstring(svg.draw([])).tag == f"{SVG}svg"


@pytest.mark.parametrize("highest", [0.0, 0.03, 0.9, 1.0, 4.2, 55.2, 99.9, 1000.0])
def test_axis_reaches_above_the_highest(highest: float) -> None:
    marks = svg.ticks(highest)
    assert marks[0] == 0
    assert marks[-1] >= highest
    assert len(marks) <= 9


def test_merge_takes_the_latest_row_and_keeps_runs_apart() -> None:
    old = data(row("warm-7b", [sample("nebulaio", 1.0)]), row("first", [sample("nebulaio", 1.0, extra={})]))
    new = data(row("warm-7b", [sample("nebulaio", 0.5)], date="2026-01-02T00:00:00Z"))
    empty = data(row("warm-7b", [], date="2026-01-03T00:00:00Z"))
    rows, runs = results.merge([new, old, empty])
    warm = next(r for r in rows if r["name"] == "warm-7b")
    assert warm["samples"][0]["seconds"] == 0.5
    assert warm["superseded"] == 2
    assert len(runs) == 2


def test_results_file_grows(tmp_path: Path) -> None:
    for _ in range(2):
        store = results.ResultsFile(tmp_path / "results.json", "run", {})
        store.append(WARM)
    assert [len(run["rows"]) for run in json.loads((tmp_path / "results.json").read_text())["runs"]] == [1, 1]
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="not a results file"):
        results.load(tmp_path / "other.json")


def test_report_command_merges_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, entry in (("a.json", WARM), ("b.json", FOUR)):
        (tmp_path / name).write_text(json.dumps(data(entry)))
    assert report.main([str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--out", str(tmp_path / "out")]) == 0
    assert "pass" in capsys.readouterr().out
    text = (tmp_path / "out" / "results.md").read_text()
    assert "### warm-7b" in text
    assert "### four" in text
    assert (tmp_path / "out" / "plot.svg").exists()


def test_staging_is_found_by_name_and_size() -> None:
    assert child.staging({"engine": {"staging": "pinned", "staging_size": 96 << 20, "staging_used": True}}) == 96 << 20
    assert child.staging({"stages": {"staging_wait_seconds": 0.5}, "staging_slots": 32}) is None
    assert child.staging({}) is None


def test_flatten_names_list_entries() -> None:
    value = {"a": [{"stage": "read", "s": 1}, {"s": 2}], "b": True, "c": "x"}
    assert table_analysis.flatten(value) == [("a.read.s", 1.0), ("a.1.s", 2.0)]


def test_units() -> None:
    assert [table.seconds(v) for v in (None, 0.01, 2.0)] == ["–", "10.0 ms", "2.000 s"]
    assert [table.mib(None), table.mib(3 << 20), table.share(0.5), table.number(1.234, 1)] == ["–", "3 MiB", "50.0%",
                                                                                               "1.2"]
