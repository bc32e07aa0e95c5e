# SPDX-License-Identifier: Apache-2.0
"""Writes packs with our writers, and lists the samples that our readers find in a pack."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PROGRAM = os.environ.get("PEERS_SAMPLES", "samples")

# A sample is its key, and the size and the SHA-256 of each of its parts. Formats without keys have "" for all.
Sample = tuple[str, dict[str, tuple[int, str]]]


class Refused(Exception):
    """Our program ended with an error, which is the text of this exception."""


def run(*arguments: str) -> str:
    """Run our program and return its output."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        assert done.returncode == 1, done.stderr  # 2 is a panic
        raise Refused(done.stderr)
    return done.stdout


def pack(pack_format: str, source: Path, out: Path, **options: Any) -> Path:
    """Write the files of a folder as a pack into the folder out, and return out."""
    flags = [f"--{name.replace('_', '-')}={str(value).lower() if value is True else value}"
             for name, value in options.items()]
    run("write", pack_format, *flags, str(source), str(out))
    return out


def lines(pack_format: str, path: Path, *flags: str) -> list[dict[str, Any]]:
    """Return what our reader says of each sample of a pack."""
    return [json.loads(line) for line in run("read", pack_format, *flags, str(path)).splitlines()]


def samples(pack_format: str, path: Path, *flags: str) -> list[Sample]:
    """Return the samples that our reader finds in a pack."""
    return [
        (line["key"], {name: (part["size"], part["sha256"]) for name, part in line["parts"].items()})
        for line in lines(pack_format, path, *flags)
    ]


def digest(data: Any) -> tuple[int, str]:
    """Return what stands for the bytes of a part."""
    data = bytes(data)
    return len(data), hashlib.sha256(data).hexdigest()


def sample(key: str, parts: Mapping[str, Any]) -> Sample:
    """Return the sample with these bytes."""
    return key, {name: digest(data) for name, data in parts.items()}


def write(folder: Path, parts: Iterable[tuple[str, Mapping[str, bytes]]]) -> Path:
    """Write a file KEY.EXT for each part of samples, and return the folder."""
    for key, columns in parts:
        for name, data in columns.items():
            file = folder / f"{key}.{name}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    return folder


def command(*arguments: str) -> str:
    """Run nebulaio and return its output. A refused pack is the exception Refused."""
    done = subprocess.run([os.environ.get("NEBULAIO_CLI", "nebulaio"), *arguments], capture_output=True, text=True,
                          encoding="utf-8")
    if done.returncode != 0:
        assert "panic" not in done.stderr, done.stderr
        raise Refused(done.stderr)
    return done.stdout


def pack_command(pack_format: str, source: Path, out: Path, *flags: str) -> Path:
    """Pack a folder with `nebulaio pack`, and return the pack."""
    said = json.loads(command("pack", str(source), str(out), "--format", pack_format, "--json", *flags))
    assert said["verified"] and said["bad_count"] == 0
    return out


def unpack_command(source: Path, out: Path) -> dict[str, bytes]:
    """Unpack a pack with `nebulaio unpack`, and return the bytes of its files by name."""
    command("unpack", str(source), str(out))
    return files(out)


def files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a folder by name, without hidden ones."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: data for name, data in found.items() if not name.startswith(".nebulaio-")}
