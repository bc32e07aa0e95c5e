# SPDX-License-Identifier: Apache-2.0
"""Reads, writes and merges the results file, a JSON file that grows by one row at a time.

{"schema": 1, "runs": [{"command", "machine", "rows": [row, …]}, …]}. Each row is written as soon as it is complete,
so an interrupted run keeps its finished rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCHEMA = 1

Data = dict[str, Any]


class ResultsFile:
    """A results file to which this run appends rows."""

    def __init__(self, path: Path, command: str, machine: Data) -> None:
        self.path = path
        self.data: Data = load(path) if path.exists() else {"schema": SCHEMA, "runs": []}
        self.run: Data = {"command": command, "machine": machine, "rows": []}
        self.data["runs"].append(self.run)

    def append(self, row: Data) -> None:
        """Add a row and write the file atomically."""
        self.run["rows"].append(row)
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(part, self.path)


def load(path: str | os.PathLike[str]) -> Data:
    """Read a results file.

    Raises ValueError if the file is not a results file.
    """
    data = json.loads(Path(path).read_text())
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"{path}: not a results file of schema {SCHEMA}")
    return data


def merge(files: Iterable[Data]) -> tuple[list[Data], list[Data]]:
    """Return the rows of several files, and the runs that contain them.

    Of several rows with the same name on the same kind of device, the latest one with samples counts. Rows of
    different runs are never mixed, because the code may have changed in between. Each row gets `run`, the index of
    its run, and `superseded`, the number of older rows that it replaces.
    """
    runs: list[Data] = []
    rows: dict[tuple[str, str], Data] = {}
    for data in files:
        for run in data["runs"]:
            runs.append(run)
            for row in run["rows"]:
                key = (row["name"], row.get("device", "").partition(":")[0])
                old = rows.get(key)
                new = {**row, "run": len(runs) - 1, "superseded": old["superseded"] + 1 if old else 0}
                if old and (old["date"] > row["date"] or (old["samples"] and not row["samples"])):
                    old["superseded"] += 1
                else:
                    rows[key] = new
    used = sorted({row["run"] for row in rows.values()})
    for row in rows.values():
        row["run"] = used.index(row["run"])
    return list(rows.values()), [runs[index] for index in used]
