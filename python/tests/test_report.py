# SPDX-License-Identifier: Apache-2.0
"""What a report is in Python: its routes are one thing, and documents speak of it as it is."""

from __future__ import annotations

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio._report import Report, Routes
from nebulaio.safetensors import load_file
from support import ROOT, random_entry, write

RAW = {"bytes": 5, "routes": [{"route": "page_cache", "bytes": 3, "chunks": 1},
                              {"route": "direct", "bytes": 2, "chunks": 1}]}


def test_routes_are_one_thing() -> None:
    report = Report(json.dumps(RAW).encode())
    assert report.routes is report["routes"]
    assert report.routes == RAW["routes"] == list(report["routes"])  # as docs/report.md has it
    assert report.routes == {"page_cache": 3, "direct": 2} and report.routes != {"page_cache": 3}
    assert dict(report.routes) == {"page_cache": 3, "direct": 2}
    assert report.routes["direct"] == report["routes"][1]["bytes"] == 2
    assert report.routes.get("network", 0) == 0 and sum(report.routes.values()) == 5
    assert "direct" in report.routes and "network" not in report.routes and RAW["routes"][0] in report.routes
    assert json.loads(json.dumps(dict(report))) == RAW
    assert "page_cache 3, direct 2" in repr(report)
    with pytest.raises(KeyError):
        report.routes["network"]
    assert Report(b"{}").routes == [] and Report(b"{}").routes == {}


def test_a_report_tells_how_the_server_got_the_bytes() -> None:
    served = {"from": "peer", "age_seconds": 7, "verified": "crc64nvme"}
    report = Report(json.dumps({**RAW, "via": "http", "served": served}).encode())
    assert report.via == "http" and report.served == served == report["served"]
    plain = Report(json.dumps(RAW).encode())
    assert plain.via == "" and plain.served == {}


def test_a_report_is_json_as_it_is() -> None:
    def made() -> Report:  # each use meets one that nothing has read yet
        return Report(json.dumps(RAW).encode())

    assert json.loads(json.dumps(made())) == RAW == json.loads(json.dumps({"of": [made()]}, indent=1))["of"][0]
    assert json.loads(json.dumps(made(), sort_keys=True, default=str)) == RAW and json.loads(
        json.dumps(Report(b"{}"))) == {}
    for same in (dict(made()), {**made()}, made().copy(), made() | {}, {} | made(), copy.deepcopy(made()),
                 pickle.loads(pickle.dumps(made()))):
        assert same == RAW and list(same) == list(RAW) and isinstance(same["routes"], Routes)
    assert made() == RAW and made() == made() and RAW == made() and made() != {} and len(made()) == 2 and isinstance(
        made(), dict)
    assert "bytes" in made() and "unread" not in made() and list(reversed(made())) == ["routes",
                                                                                       "bytes"] and made().get(
                                                                                           "bytes") == 5
    assert list(made().keys()) == ["bytes", "routes"] and list(made().items())[0] == ("bytes",
                                                                                      5) and list(made().values())[
                                                                                          0] == 5


@pytest.mark.parametrize("change", [
    lambda r: r.update(a=1), lambda r: r.__setitem__("a", 1), lambda r: r.pop("bytes"), lambda r: r.clear(),
    lambda r: r.__delitem__("bytes"), hash,
])
def test_a_report_cannot_be_changed(change: Any) -> None:
    report = Report(json.dumps(RAW).encode())
    with pytest.raises(TypeError):
        change(report)
    assert report == RAW


def test_the_last_report_has_the_same_routes(tmp_path: Path) -> None:
    load_file(write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [10])}), "cpu", framework="numpy")
    report = nebulaio.last_report()
    assert report is not None and isinstance(report["routes"], Routes) and sum(report["routes"].values()) == 10
    assert json.loads(json.dumps(report))["routes"] == list(report["routes"])


def test_documents_say_what_the_device_of_a_report_is(tmp_path: Path) -> None:
    load_file(write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [10])}), "cpu", framework="numpy")
    report = nebulaio.last_report()
    assert report is not None and report["device"]["id"] == "host" and {"id", "kind",
                                                                        "model"} <= report["device"].keys()
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "python").glob("*.md"),
             *(ROOT / "examples").rglob("*.py"),
             *(ROOT / "python" / "nebulaio").rglob("*.py")]
    found = 0
    for text in texts:
        if text.is_file():
            for use in re.findall(r"""last_report\(\)\[["']device["']\](.{0,8})""", text.read_text()):
                found += 1
                assert use.startswith(('["id"]', '["kind"]', '["model"]')), f"{text}: {use}"
    assert found  # the package's own example
