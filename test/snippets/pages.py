# SPDX-License-Identifier: Apache-2.0
"""Finds the snippets of the documentation: fenced blocks of Markdown, @code blocks of headers, docstrings.

A block runs unchanged unless a comment on the line before it marks it:

    <!-- snippet: needs gpu -->        the block runs only on a machine with a GPU; several needs: needs torch, gpu
    <!-- snippet: needs install -->    the block needs the installed library, so test/native/install.sh runs it
    <!-- snippet: server -->           the block serves until it is stopped, so it runs in the background
    <!-- snippet: server stopped -->   the server is stopped before the block runs
    <!-- snippet: output -->           the block is the output of a command and does not run
    <!-- snippet: fragment -->         the block is a declaration for reading and does not run
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

# Features of a machine. Of debian, rhel and sles, each means the distributions with its package manager.
NEEDS = ("dali", "debian", "gpu", "install", "network", "nvme", "rdma", "rhel", "root", "sles", "systemd", "torch")
SHELL = ("sh", "bash", "console")
LANGUAGES = (*SHELL, "python", "go", "c", "cpp", "yaml", "json", "doctest")
KINDS = ("run", "server", "server stopped", "output", "fragment")

MARK = re.compile(r"^\s*<!-- snippet: (.*?) -->\s*$")
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([^\s`]*)[^`]*$")
LIST = re.compile(r"^([-*+]|\d+[.)]) ")
INDENTED = re.compile(r"^( {4}|\t)\s*[^\s`~]")
# A line that a reader would type. In a text block such a line is a snippet that escapes the test.
COMMAND = re.compile(r"^(\$ |(nebulaio|aws|make|python3?|pip|go|curl|c\+\+|cc|export|sudo) )")


class PageError(Exception):
    """A page has a block that cannot run and has no mark."""


@dataclass
class Block:
    """One snippet: its place, its text and how it runs."""

    page: str
    line: int  # of its first line of text; 0 where the page does not show it
    language: str
    text: str
    kind: str = "run"
    needs: frozenset[str] = frozenset()

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def runs(self, have: frozenset[str]) -> bool:
        """Return whether the block runs on a machine that has these."""
        return self.kind not in ("output", "fragment") and self.needs <= have

    def compiles_only(self, have: frozenset[str]) -> bool:
        """Return whether the block is a program for a GPU and there is none, so that it is compiled but not run."""
        return self.language in ("c", "cpp") and "gpu" in self.needs - have


@dataclass
class Page:
    """The snippets of one file in order, as one session of a reader."""

    path: str
    blocks: list[Block] = field(default_factory=list)


def parse_mark(text: str, where: str) -> tuple[str, frozenset[str]]:
    """Return the kind and the needs that a mark gives its block."""
    if text in KINDS and text != "run":
        return text, frozenset()
    if text.startswith("needs "):
        needs = frozenset(name.strip() for name in text[len("needs ") :].split(","))
        if needs <= set(NEEDS):
            return "run", needs
    raise PageError(f"{where}: unknown mark {text!r}; expected {', '.join(KINDS[1:])} or needs {'|'.join(NEEDS)}")


def judge(block: Block) -> Block:
    """Refuse a block that cannot be run as it stands and has no mark."""
    if block.language in ("", "text") and block.kind not in ("output", "fragment"):
        if not block.language:
            raise PageError(
                f"{block.where}: a block without a language (fix: name it after the fence, or text for output)")
        for line in block.text.splitlines():
            if COMMAND.match(line):
                raise PageError(f"{block.where}: a text block with the command {line!r} (fix: make it sh or console)")
        block.kind = "output"
    if block.kind != "output" and block.language not in (*LANGUAGES, "text",
                                                         *(("cmake",) if "install" in block.needs else ())):
        raise PageError(f"{block.where}: no way to run {block.language!r}; known are {', '.join(LANGUAGES)}, text")
    if block.kind.startswith("server") and block.language not in SHELL:
        raise PageError(f"{block.where}: only a shell's block can be marked as {block.kind}")
    return block


def markdown(path: str, text: str) -> Page:
    """Return the fenced blocks of a Markdown page; raises PageError for a block that is neither runnable nor marked."""
    page, lines = Page(path), text.split("\n")
    mark, at, in_list = "", 0, False
    while at < len(lines):
        line = lines[at]
        at += 1
        if line[:1].strip():
            in_list = bool(LIST.match(line))
        if INDENTED.match(line) and not in_list and (at == 1 or not lines[at - 2].strip()):
            raise PageError(f"{path}:{at}: an indented block (fix: put it between fences, with its language)")
        if found := MARK.match(line):
            mark = found[1]
            if not (at < len(lines) and FENCE.match(lines[at])):
                raise PageError(f"{path}:{at}: a mark without a block on the next line")
            continue
        opening = FENCE.match(line)
        if not opening:
            continue
        first, closing = at + 1, re.compile(rf"^\s*{opening[2][0]}{{{len(opening[2])},}}\s*$")
        while at < len(lines) and not closing.match(lines[at]):
            at += 1
        if at == len(lines):
            raise PageError(f"{path}:{first - 1}: a block that does not end")
        body = textwrap.dedent("\n".join(lines[first - 1 : at])) + "\n"
        at += 1
        kind, needs = parse_mark(mark, f"{path}:{first - 2}") if mark else ("run", frozenset())
        page.blocks.append(judge(Block(path, first, opening[3], body, kind, needs)))
        mark = ""
    return page


CODE = re.compile(r"^\s*\*?\s*@code(?:\{\.(\w+)\})?(?:\s+snippet: (.*?))?\s*$")
# A line that looks like a statement, in the indented part of a comment.
STATEMENT = re.compile(r"^ \*   +\S.*;\s*(//.*)?$")


def header(path: str, text: str) -> Page:
    """Return the @code blocks of a C header's comments; raises PageError for code outside of them."""
    page, lines = Page(path), text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        opening = CODE.match(line)
        if not opening:
            if STATEMENT.match(line):
                raise PageError(f"{path}:{at}: code in a comment (fix: put it between @code{{.cpp}} and @endcode)")
            continue
        first = at + 1
        while at < len(lines) and "@endcode" not in lines[at]:
            at += 1
        if at == len(lines):
            raise PageError(f"{path}:{first - 1}: @code without @endcode")
        body = textwrap.dedent("\n".join(re.sub(r"^\s*\* ?", "", each) for each in lines[first - 1 : at])) + "\n"
        at += 1
        kind, needs = parse_mark(opening[2], f"{path}:{first - 1}") if opening[2] else ("run", frozenset())
        if not page.blocks:
            set_up(page, needs)
        page.blocks.append(judge(Block(path, first, opening[1] or "c", body, kind, needs)))
    return page


def go_documentation(path: str, text: str) -> None:
    """Refuse code in the doc comments of the Go package: Example functions are compiled and run, comments are not."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("//\t"):
            raise PageError(f"{path}:{number}: code in a doc comment (fix: make it an Example function)")


# The set-up for the examples in docstrings and headers, by the name of their file.
SERVER = "NEBULAIO_GPUDIRECT_ENABLED=true nebulaio server --data data\n"
BUCKETS = """export NEBULAIO_ACCESS_KEY=minioadmin NEBULAIO_SECRET_KEY=minioadmin
export AWS_ACCESS_KEY_ID=minioadmin AWS_SECRET_ACCESS_KEY=minioadmin AWS_DEFAULT_REGION=us-east-1
for bucket in models my-bucket training-data; do aws --endpoint-url http://localhost:9000 s3 mb s3://$bucket; done
"""
WITH_SERVER = ("gpudirect.py", "gpudirect.h", "pytorch.py", "dali.py")
MODULE_NEEDS = {
    "huggingface": frozenset({"torch"}),
    "torch": frozenset({"torch"}),
    "torch.py": frozenset({"torch"}),
    "pytorch.py": frozenset({"torch"}),
    "dali.py": frozenset({"dali"}),
}


def set_up(page: Page, needs: frozenset[str] = frozenset()) -> None:
    """Prepend a server and its buckets to the examples of a file that need them."""
    if Path(page.path).name in WITH_SERVER:
        page.blocks.append(Block(page.path, 0, "sh", SERVER, "server", needs))
        page.blocks.append(Block(page.path, 0, "sh", BUCKETS, needs=needs))


def module(path: str, text: str, package: str) -> Page:
    """Return the examples in the docstrings of a Python module, as one block for doctest."""
    page = Page(path)
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.lstrip().startswith(">>> ")]
    if lines:
        file = Path(path)
        parts = [*file.parts[file.parts.index(package) : -1], file.stem]
        name = ".".join(parts[:-1] if file.stem == "__init__" else parts)
        needs = MODULE_NEEDS.get(file.name, MODULE_NEEDS.get(file.parent.name, frozenset()))
        set_up(page, needs)
        page.blocks.append(Block(path, lines[0], "doctest", name, needs=needs))
    return page


def read(root: Path, path: str) -> Page:
    """Return the snippets of one file of the checkout, according to the type of the file."""
    text = (root / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return markdown(path, text)
    if path.endswith(".py"):
        return module(path, text, "nebulaio")
    if path.endswith((".h", ".hpp")):
        return header(path, text)
    go_documentation(path, text)
    return Page(path)


def documents(root: Path) -> list[str]:
    """Return the files with documentation: all Markdown, the headers, the Python package, the Go package."""
    found = [p for p in root.rglob("*.md") if not any(part.startswith(".") or part in ("build", "data")
                                                      for part in p.relative_to(root).parts)]
    found += [*(root / "include").rglob("*.h"), *(root / "include").rglob("*.hpp")]
    found += [*(root / "python" / "nebulaio").rglob("*.py")]
    found += [p for p in root.glob("*.go") if not p.name.endswith("_test.go")]
    return sorted(str(p.relative_to(root)) for p in found)
