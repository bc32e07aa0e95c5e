# SPDX-License-Identifier: Apache-2.0
"""Runs the blocks of one page as a reader would: in order, in one shell and one Python, in a separate folder."""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from pages import Block, Page

HERE = Path(__file__).resolve().parent
LIMIT = 600.0  # seconds for one block: it is for blocks that hang, and a busy machine is slow
FILE_NAME = re.compile(r"^(?://|#)\s*(\w[\w/-]*\.(?:go|c|cpp|yaml|yml))\b")


class Failed(Exception):
    """A block did not behave as the page says; the text names the block and has its output."""


class Speaker:
    """A process that receives blocks on standard input and answers on descriptor 3."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str], log: Path) -> None:
        answers, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                ["bash", "-c", f'exec 3>&{theirs} {theirs}>&-; exec "$@"', "speaker", *command],
                cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=out, pass_fds=[theirs],
                start_new_session=True,
            )
        os.close(theirs)
        self.answers = answers

    def ask(self, line: str) -> str:
        """Send one line and return the answer; empty if the process has ended or takes too long."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        answer, end = b"", time.monotonic() + LIMIT
        while not answer.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                return ""
            piece = os.read(self.answers, 4096)
            if not piece:
                return ""
            answer += piece
        return answer.decode().strip()

    def close(self) -> None:
        end_group(self.process, signal.SIGKILL)
        assert self.process.stdin is not None
        self.process.stdin.close()
        os.close(self.answers)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that it can wait for them."""
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) != 0:  # PR_SET_CHILD_SUBREAPER
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end_group(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    """Stop a process and everything that it started, and wait until all have ended and their ports are free."""
    for number in (first, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        end = time.monotonic() + 40
        while time.monotonic() < end:
            try:
                if os.waitpid(-process.pid, os.WNOHANG)[0] == 0:
                    time.sleep(0.02)
            except ChildProcessError:
                process.wait()
                return


class Session:
    """One reader with one page. folder is the reader's directory; library and include are for C and C++."""

    def __init__(self, folder: Path, environment: dict[str, str], include: Path, library: Path) -> None:
        self.folder, self.environment, self.include, self.library = folder, environment, include, library
        self.aside = folder.parent / (folder.name + ".session")  # what the reader does not see
        self.aside.mkdir()
        self.log = self.aside / "log"
        self.log.touch()
        self.shell = Speaker(["bash", "--norc"], folder, environment, self.log)
        self.python: Speaker | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.number = 0
        # The shell answers with its status; its folder and environment are kept in files for the other languages.
        self.tell("set -eu -o pipefail", "true")

    def close(self) -> None:
        self.stop_server()
        for speaker in (self.python, self.shell):
            if speaker is not None:
                speaker.close()

    def tell(self, *commands: str) -> str:
        lines = [*commands, f"pwd >{self.aside}/folder", f"env -0 >{self.aside}/environment", "echo ok >&3"]
        return self.shell.ask("\n".join(lines))

    def where(self) -> tuple[str, dict[str, str]]:
        """Return the folder and the environment of the reader's shell."""
        pairs = (self.aside / "environment").read_bytes().decode().split("\0")
        return (self.aside / "folder").read_text().rstrip("\n"), dict(pair.split("=", 1) for pair in pairs if pair)

    def run(self, block: Block, only_compiled: bool = False) -> None:
        """Run a block; raises Failed with its output if it fails."""
        self.number += 1
        before = self.log.stat().st_size
        if block.kind == "server stopped":
            self.stop_server()
        if only_compiled:
            ok = self.compiles(block)
        elif block.kind == "server":
            ok = self.start_server(block)
        else:
            method = {"console": self.console, "python": self.ask_python, "doctest": self.ask_python, "go": self.go,
                      "c": self.native,
                      "cpp": self.native, "yaml": self.yaml, "json": self.json}.get(block.language, self.sh)
            ok = method(block)
        if not ok:
            with open(self.log, "rb") as log:
                log.seek(before)
                said = log.read().decode(errors="replace")[-6000:]
            raise Failed(f"{block.where}: this {block.language} block failed:\n{block.text}\nIt printed:\n{said}")

    def file(self, block: Block, name: str) -> Path:
        """Save a block in the reader's folder, under the name in its first comment if it has one."""
        named = FILE_NAME.match(block.text)
        path = Path(self.where()[0]) / (named[1] if named else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        return path

    def command(self, *arguments: str) -> bool:
        folder, environment = self.where()
        with open(self.log, "ab") as out:
            try:
                done = subprocess.run(arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                      stderr=out, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                out.write(f"it took more than {LIMIT:.0f} s\n".encode())
                return False
        return done.returncode == 0

    def sh(self, block: Block) -> bool:
        path = self.aside / f"{self.number}.sh"
        path.write_text(block.text)
        return self.tell(f"source {path} </dev/null") == "ok"

    def console(self, block: Block) -> bool:
        """Run each line after "$ ". The lines after it are output: each begins like some line of the real output."""
        commands: list[tuple[str, list[str]]] = []
        for line in block.text.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif commands:
                commands[-1][1].append(line)
        for number, (command, wanted) in enumerate(commands):
            path, out = self.aside / f"{self.number}.{number}.sh", self.aside / f"{self.number}.{number}.out"
            path.write_text(command + "\n")
            ok = self.tell(f"source {path} </dev/null >{out}") == "ok"
            said = out.read_text(errors="replace") if out.exists() else ""
            with open(self.log, "a") as log:
                log.write(f"$ {command}\n{said}")
            first = {line.split()[0] for line in said.splitlines() if line.strip()}
            missing = [line for line in wanted if line.strip() not in ("", "...") and line.split()[0] not in first]
            if not ok or missing:
                with open(self.log, "a") as log:
                    log.writelines(f"no line of the output begins as this one does: {line}\n" for line in missing)
                return False
        return True

    def ask_python(self, block: Block) -> bool:
        folder, environment = self.where()
        if self.python is None:
            self.python = Speaker(["python", "-u", str(HERE / "python_blocks.py")], Path(folder), environment, self.log)
        order = {"name": block.page, "line": block.line, "text": block.text, "language": block.language,
                 "folder": folder, "environment": environment}
        return self.python.ask(json.dumps(order)) == "ok"

    def go(self, block: Block) -> bool:
        # Without cgo, as bin/nebulaio was built, so that most packages are already compiled.
        return self.command("env", "CGO_ENABLED=0", "go", "run", str(self.file(block, "main.go")))

    def compiler(self, block: Block) -> list[str]:
        return [*(["cc", "-std=c11"] if block.language == "c" else ["c++", "-std=c++17"]), "-Wall", "-Wextra",
                "-Werror", f"-I{self.include}"]

    def native(self, block: Block) -> bool:
        path = self.file(block, "main." + block.language)
        program = str(path.with_suffix(""))
        link = [f"-L{self.library}", "-lnebulaio", f"-Wl,-rpath,{self.library}"]
        if "gpu" in block.needs:
            link += ["-lcufile", "-lcudart"]
        return self.command(*self.compiler(block), str(path), "-o", program, *link) and self.command(program)

    def compiles(self, block: Block) -> bool:
        """Return whether a GPU program compiles here. If CUDA's headers are missing, our declarations replace them."""
        path = self.file(block, "main." + block.language)
        return self.command(*self.compiler(block), "-fsyntax-only", "-idirafter", str(HERE.parent / "native" / "cuda"),
                            str(path))

    def yaml(self, block: Block) -> bool:
        return self.command("nebulaio", "config", "--config", str(self.file(block, "nebulaio.yaml")))

    def json(self, block: Block) -> bool:
        try:
            json.loads(block.text)
        except ValueError as problem:
            with open(self.log, "a") as log:
                log.write(f"no JSON: {problem}\n")
            return False
        return True

    def start_server(self, block: Block) -> bool:
        """Run a block in the background and wait until it prints its endpoint."""
        self.stop_server()
        path, said = self.aside / f"{self.number}.sh", self.aside / f"{self.number}.out"
        path.write_text(block.text)
        folder, environment = self.where()
        with open(self.log, "ab") as log, open(said, "wb") as out:
            self.server = subprocess.Popen(["bash", "-eu", str(path)], cwd=folder, env=environment,
                                           stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True)
        end = time.monotonic() + LIMIT
        while b"endpoint" not in said.read_bytes() and time.monotonic() < end:
            try:
                self.server.wait(0.05)
                return False  # it has ended
            except subprocess.TimeoutExpired:
                pass
        return b"endpoint" in said.read_bytes()

    def stop_server(self) -> None:
        if self.server is not None:
            end_group(self.server, signal.SIGTERM)
            self.server = None


def run_page(page: Page, have: frozenset[str], session: Session) -> list[Block]:
    """Run the blocks of a page that this machine can run and return them; raises Failed at the first failure."""
    ran = []
    try:
        for block in page.blocks:
            started = time.monotonic()
            if block.compiles_only(have):
                session.run(block, only_compiled=True)
            elif block.runs(have):
                session.run(block)
                ran.append(block)
                print(f"  {block.where} {block.language} {time.monotonic() - started:.1f} s", file=sys.stderr)
    finally:
        session.close()
    return ran
