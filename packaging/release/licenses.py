# SPDX-License-Identifier: Apache-2.0
"""Collects the licences of everything that the command and the library link, and lists it as an SBOM.

    licenses.py OUT_TEXT OUT_SBOM ARCH...

The text has each module with the texts of its licence files, also of those in the
folders of linked packages. A module without a licence file is an error.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

NAMES = ("license", "licence", "copying", "notice", "copyright", "patents", "unlicense")
TERMS = ("license", "licence", "copying", "unlicense")
# What is linked, and whether cgo is on: the command is built without it.
LINKED = (("./cmd/nebulaio", "0"), ("./capi", "1"))
GO = os.environ.get("GO", "go")
RULE = "=" * 100


def linked_packages(arch: str) -> list[dict[str, object]]:
    """Every package that is linked on an architecture, as `go list` describes it."""
    packages = []
    for target, cgo in LINKED:
        env = {**os.environ, "GOOS": "linux", "GOARCH": arch, "CGO_ENABLED": cgo, "GOFLAGS": ""}
        listed = subprocess.run(
            [GO, "list", "-deps", "-json=ImportPath,Dir,Module,Standard", target],
            env=env, check=True, stdout=subprocess.PIPE, text=True,
        ).stdout
        decoder, at = json.JSONDecoder(), 0
        while at < len(listed):
            package, at = decoder.raw_decode(listed, at)
            packages.append(package)
            at += len(listed[at:]) - len(listed[at:].lstrip())
    return packages


def licence_files(folder: Path) -> list[Path]:
    """Files of a folder that hold a licence or a notice."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(NAMES)
                  and path.suffix.lower() not in (".go", ".tmpl", ".py"))


def collect(arches: list[str]) -> dict[tuple[str, str], dict[str, str]]:
    """By module and version: the texts of its licence files by their path in the module."""
    modules: dict[tuple[str, str], dict[str, str]] = {}
    for arch in arches:
        for package in linked_packages(arch):
            module = package.get("Module")
            if not isinstance(module, dict) or module.get("Main"):
                continue
            module = module.get("Replace") or module
            root, folder = Path(module["Dir"]), Path(str(package["Dir"]))
            files = modules.setdefault((module["Path"], module["Version"]), {})
            for place in (folder, *folder.parents):
                for path in licence_files(place):
                    files.setdefault(str(path.relative_to(root)), path.read_text(encoding="utf-8", errors="replace"))
                if place == root:
                    break
    return modules


def go_itself() -> tuple[str, str]:
    """Version and licence of Go, whose standard library is linked."""
    run = subprocess.run([GO, "env", "GOROOT", "GOVERSION"], check=True, stdout=subprocess.PIPE, text=True)
    root, version = run.stdout.split()
    return version, (Path(root) / "LICENSE").read_text(encoding="utf-8")


def zig_itself() -> tuple[str, str]:
    """Version and licence of zig, whose start-up objects are linked into the library."""
    import importlib.metadata
    import importlib.util

    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("release: the package ziglang is missing (fix: make release makes its environment)")
    return importlib.metadata.version("ziglang"), (Path(spec.origin).parent / "LICENSE").read_text(encoding="utf-8")


def write_text(out: Path, modules: dict[tuple[str, str], dict[str, str]], tools: dict[str, tuple[str, str]]) -> None:
    """Write one file with every licence."""
    parts = ["Third-party software in the command nebulaio and in libnebulaio.so, with its licences.\n"]
    for name, (version, text) in tools.items():
        parts.append(f"{RULE}\n{name} {version}\n{RULE}\n\n{text.strip()}\n")
    for (path, version), files in sorted(modules.items()):
        parts.append(f"{RULE}\n{path} {version}\n{RULE}\n")
        parts += [f"--- {name}\n\n{text.strip()}\n" for name, text in sorted(files.items())]
    out.write_text("\n".join(parts), encoding="utf-8")


def write_sbom(out: Path, version: str, modules: dict[tuple[str, str], dict[str, str]], go: str) -> None:
    """Write the list of modules in the form of CycloneDX."""
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    parts = [("stdlib", go.removeprefix("go"))] + [(path, found) for path, found in sorted(modules)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "name": "nebulaio", "version": version, "bom-ref": "nebulaio"},
        },
        "components": [
            {"type": "library", "name": path, "version": found, "purl": f"pkg:golang/{path}@{found}",
             "bom-ref": f"{path}@{found}"}
            for path, found in parts
        ],
    }
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main(text: str, sbom: str, *arches: str) -> None:
    """Write both files, or end with the modules that have no licence."""
    modules = collect(list(arches))
    bare = [f"{path} {version}" for (path, version), files in sorted(modules.items())
            if not any(Path(name).name.lower().startswith(TERMS) for name in files)]
    if bare:
        raise SystemExit(
            f"release: no licence file in {', '.join(bare)} (fix: ask its authors, or do without the module)")
    go = go_itself()
    write_text(Path(text), modules, {"Go": go, "zig": zig_itself()})
    write_sbom(Path(sbom), Path("VERSION").read_text().strip(), modules, go[0])
    print(f"release: licences of {len(modules)} modules, of Go and of zig in {text}")


main(*sys.argv[1:])
