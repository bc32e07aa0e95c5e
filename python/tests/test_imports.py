# SPDX-License-Identifier: Apache-2.0
"""The modules of the package import each other in one direction."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nebulaio
import pytest

PACKAGE = Path(nebulaio.__file__).parent


def modules(package: Path) -> dict[str, Path]:
    """Every module of a package by its full name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The known modules that a module imports: at its top, inside of functions, and for types alone."""
    parent = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in known:
                    yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = parent.split(".")[: len(parent.split(".")) - node.level + 1]
                base = ".".join(above + ([node.module] if node.module else []))
            for alias in node.names:
                # `from . import x` names a module, `from .x import name` something inside of one.
                target = f"{base}.{alias.name}"
                if target in known:
                    yield target
                elif base in known:
                    yield base


def graph(package: Path) -> dict[str, set[str]]:
    known = modules(package)
    return {name: set(imported(name, path, known)) - {name} for name, path in known.items()}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules in which each one leads to each other one."""
    reach = {name: set(to) for name, to in arrows.items()}
    for via in reach:
        for name in reach:
            if via in reach[name]:
                reach[name] |= reach[via]
    groups = {tuple(sorted(other for other in reach if other in reach[name] and name in reach[other]))
              for name in reach}
    return [list(group) for group in sorted(groups) if group]


def test_no_module_leads_back_to_itself() -> None:
    arrows = graph(PACKAGE)
    assert len(arrows) > 40
    assert circles(arrows) == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a.py": "from . import b", "b.py": "import os"}, []),
        ({"a.py": "from . import b", "b.py": "from .a import thing"}, [["p.a", "p.b"]]),
        ({"a.py": "import p.b", "b.py": "def f():\n    from . import a"}, [["p.a", "p.b"]]),
        ({"a.py": "from .s import b", "s/b.py": "if TYPE_CHECKING:\n    from ..a import T"}, [["p.a", "p.s.b"]]),
        ({"a.py": "from .b import x", "b.py": "from .c import x", "c.py": "from .a import x"}, [["p.a", "p.b", "p.c"]]),
        ({"__init__.py": "from . import a", "a.py": "from p import version"}, [["p", "p.a"]]),
    ],
)
def test_planted_circles_are_found(tmp_path: Path, files: dict[str, str], found: list[list[str]]) -> None:
    for name, text in {"__init__.py": "", "s/__init__.py": "", **files}.items():
        path = tmp_path / "p" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert circles(graph(tmp_path / "p")) == found
