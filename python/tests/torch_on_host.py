# SPDX-License-Identifier: Apache-2.0
"""Makes the torch wheel of PyPI importable on a machine without a GPU and without gigabytes of CUDA packages.

    pip install --no-deps torch nvidia-cuda-runtime nvidia-cuda-cupti nvidia-cufile
    pip install filelock typing-extensions sympy networkx jinja2 fsspec
    python tests/torch_on_host.py

The wheel (about 540 MB) links CUDA's math libraries (about 2.5 GB more), which
host tensors never call. For each of them that is missing, a library is compiled
here that has the symbols torch asks for, every one returning an error code.
Torch itself is the real one; torch.cuda.is_available() is False. Needs cc, nm
and readelf. Only for tests.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

_OPTIONAL = "libcuda.so.1"  # the driver's own; torch looks for it when it needs it


def _run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _missing(libraries: list[Path], folder: Path) -> list[str]:
    """Sonames that torch's libraries need and nothing here has."""
    present = {library.name for library in libraries} | {file.name for file in folder.glob("*")}
    needed: set[str] = set()
    for library in libraries:
        needed.update(re.findall(r"\(NEEDED\).*\[(lib(?:cu|nv|nccl).*)\]", _run("readelf", "-d", library)))
    return sorted(needed - present - {_OPTIONAL})


def _symbols(libraries: list[Path]) -> tuple[dict[str, set[str]], set[str]]:
    """Symbols asked for by version node, and those asked for without version that torch does not define."""
    versioned: defaultdict[str, set[str]] = defaultdict(set)
    plain: set[str] = set()
    defined: set[str] = set()
    for library in libraries:
        for line in _run("nm", "-D", "--with-symbol-versions", library).splitlines():
            kind, name = line.split()[-2:]
            symbol, _, version = name.partition("@")
            if kind not in "Uw":
                defined.add(symbol)
            elif version:
                versioned[version].add(symbol)
            else:
                plain.add(symbol)
    # What is left without version is C of the CUDA libraries; C++ names are torch's own.
    return versioned, {name for name in plain - defined if re.match(r"(cu|nccl|nv)", name)}


def _nodes(libraries: list[Path]) -> dict[str, set[str]]:
    """Version nodes that torch asks of each soname."""
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    for library in libraries:
        soname = ""
        for line in _run("readelf", "-V", "-W", library).splitlines():
            if match := re.search(r"Version: \d+\s+File: (\S+)", line):
                soname = match[1]
            elif match := re.search(r"Name: (\S+)\s+Flags:", line):
                nodes[soname].add(match[1])
    return nodes


def main() -> int:
    """Compile what is missing into nvidia/cu<major>/lib beside torch; returns the exit code."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        print("torch is not installed", file=sys.stderr)
        return 1
    torch = Path(spec.origin).parent
    major = re.search(r"cuda[^\n]*['\"](\d+)\.", (torch / "version.py").read_text())
    if major is None:
        print("this torch is built without CUDA and needs no help")
        return 0
    folder = torch.parent / "nvidia" / f"cu{major[1]}" / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    libraries = sorted((torch / "lib").glob("lib*.so*"))
    versioned, plain = _symbols(libraries)
    nodes = _nodes(libraries)
    for soname in _missing(libraries, folder):
        wanted = {node: versioned[node] for node in nodes.get(soname, ())}
        if not wanted:
            wanted = {"": plain}
        with tempfile.TemporaryDirectory() as scratch:
            source, script = Path(scratch, "stand_in.c"), Path(scratch, "version.map")
            names = sorted({name for symbols in wanted.values() for name in symbols})
            source.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in names) + "int nothing_;\n")
            script.write_text("".join(f"{node} {{ {' '.join(f'{n};' for n in sorted(s))} }};\n"
                                      for node, s in wanted.items() if node))
            flags = [f"-Wl,--version-script={script}"] if "" not in wanted else []
            _run("cc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{soname}", *flags, source, "-o", folder / soname)
        print(f"{soname}: {len(names)} symbols")
    return 0


if __name__ == "__main__":
    sys.exit(main())
