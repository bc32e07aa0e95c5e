# SPDX-License-Identifier: Apache-2.0
"""Compile and run every snippet of the documentation as it stands.

    make test-snippets                                   every block that runs on any machine
    python test/snippets/run.py README.md docs/server.md some pages
    python test/snippets/run.py --needs torch            pages with blocks marked "needs torch", these blocks too

Each page is a session of one reader: its blocks run in order, in a fresh copy of the checkout. As root, each session has
its own network, so that pages may use the same ports. pages.py defines how blocks are marked.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from pages import NEEDS, Page, PageError, documents, read  # noqa: E402
from session import Failed, Session, adopt_orphans, run_page  # noqa: E402

PORTS = (9000, 9001)  # of the server's defaults, which the pages use


def own_network() -> list[str]:
    """Return the command that gives a process its own network; empty if this user may not."""
    command = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        return command if subprocess.run([*command, "true"], stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL).returncode == 0 else []
    except FileNotFoundError:
        return []


def port_taken() -> int:
    """Return a port that pages use and another process listens on; 0 if there is none."""
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return port
    return 0


def copy_checkout(root: Path, folder: Path) -> None:
    """Make folder a checkout as a reader clones it: the files that git tracks or would track."""
    folder.mkdir()
    if not (root / ".git").exists():
        for name in ("include", "python", "examples"):
            if (root / name).is_dir():
                shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("_lib", "__pycache__"))
        return
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                            check=True, stdout=subprocess.PIPE).stdout
    for name in listed.decode().split("\0"):
        if name and not (name.startswith("docs/benchmarks/") and not name.endswith(".md")) and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def environment(root: Path, arguments: argparse.Namespace) -> dict[str, str]:
    """Return a reader's environment, with the programs and the package on their paths and without our settings."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("NEBULAIO_", "AWS_", "MAKE", "MFLAGS"))}
    paths = [arguments.cli.parent, arguments.python.parent, *arguments.path]
    kept["PATH"] = ":".join([*map(str, paths), kept.get("PATH", "")])
    kept["PYTHONPATH"] = ":".join([str(root / "python"), *map(str, arguments.python_path),
                                   *filter(None, [kept.get("PYTHONPATH")])])
    kept["NEBULAIO_LIBRARY"] = str(arguments.library)
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    # Paths in compiled files would make every session build everything again.
    kept["GOFLAGS"] = "-trimpath"
    # The reader has a separate home, but uses Go's caches of the machine.
    go = shutil.which("go", path=kept["PATH"])
    if go:
        names = ("GOCACHE", "GOMODCACHE", "GOPATH")
        found = subprocess.run([go, "env", *names], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        kept.update(zip(names, found))
    kept["AWS_CONFIG_FILE"] = kept["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    kept["AWS_EC2_METADATA_DISABLED"] = "true"
    return kept


def inside(root: Path, arguments: argparse.Namespace) -> int:
    """Run one page in this process and print a JSON object with the blocks that ran."""
    adopt_orphans()
    page = read(root, arguments.inside)
    # Not in memory: writes through the door need a file system that reports writers.
    with tempfile.TemporaryDirectory(prefix="snippets.", dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
        folder = Path(work) / "nebulaio"
        copy_checkout(root, folder)
        home = Path(work) / "home"
        home.mkdir()
        session = Session(folder, {**environment(root, arguments), "HOME": str(home)}, root / "include",
                          arguments.library.parent)
        try:
            ran = run_page(page, frozenset(arguments.needs), session)
        except Failed as problem:
            print(json.dumps({"failed": str(problem)}))
            return 1
    print(json.dumps({"ran": sum(block.line > 0 for block in ran)}))  # without what was set up for a page
    return 0


def options(root: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="files of the checkout; default: all files with documentation")
    parser.add_argument("--needs", default=[], type=lambda text: text.split(","),
                        help=f"features of this machine: {', '.join(NEEDS)}; runs the pages that need them")
    parser.add_argument("--cli", default=root / "bin" / "nebulaio", type=Path, help="the nebulaio binary")
    parser.add_argument("--library", default=root / "build" / "libnebulaio.so", type=Path, help="the shared library")
    parser.add_argument("--python", default=Path(sys.executable), type=Path, help="the interpreter for Python blocks")
    parser.add_argument("--path", default=[], type=Path, action="append",
                        help="a further folder of programs, such as aws")
    parser.add_argument("--python-path", default=[], type=Path, action="append",
                        help="a further folder of Python packages, such as boto3")
    parser.add_argument("--jobs", default=2, type=int, help="number of pages at one time, if each has its own network")
    parser.add_argument("--root", default=root, type=Path, help="the checkout")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser


def count(pages: list[Page], ran: int, have: frozenset[str]) -> str:
    """Return the line with the number of blocks that ran, and the reasons why others did not."""
    left: collections.Counter[str] = collections.Counter()
    for page in pages:
        for block in filter(lambda each: each.line > 0, page.blocks):
            if block.kind in ("output", "fragment"):
                left[block.kind] += 1
            elif missing := block.needs - have:
                left["needs " + ", ".join(sorted(missing))] += 1
    reasons = "; ".join(f"{number} {reason}" for reason, number in sorted(left.items()))
    return f"{ran} snippets ran on {len(pages)} pages; marked: {reasons or 'none'}"


def main() -> int:
    parser = options(HERE.parents[1])
    arguments = parser.parse_args()
    root = arguments.root = arguments.root.resolve()
    have = frozenset(arguments.needs)
    if unknown := have - set(NEEDS):
        parser.error(f"--needs {','.join(sorted(unknown))}: expected some of {', '.join(NEEDS)}")
    if arguments.inside:
        return inside(root, arguments)
    pages, problems = [], []
    for path in arguments.pages or documents(root):
        try:
            pages.append(read(root, path))
        except PageError as problem:
            problems.append(str(problem))
    pages = [page for page in pages if page.blocks]
    if have:
        pages = [page for page in pages if any(block.needs and block.runs(have) for block in page.blocks)]
    if not pages and not problems:
        problems.append(f"no block to run: no page has one that needs {', '.join(sorted(have)) or 'to be run'}")
    network = own_network()
    serves = any(block.kind == "server" for page in pages for block in page.blocks)
    if not network and serves and (port := port_taken()):
        print(f"snippets: skipped: port {port} is taken and this user cannot make a network of its own (fix: stop what listens there, or run as root)")
        return 0

    def one(page: Page) -> tuple[Page, subprocess.CompletedProcess[bytes], float]:
        started = time.monotonic()
        command = [*network, sys.executable, str(HERE / "run.py"), "--inside", page.path, *sys.argv[1:]]
        return page, subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE), time.monotonic() - started

    ran = 0
    runnable = [page for page in pages if any(block.runs(have) or block.compiles_only(have) for block in page.blocks)]
    with ThreadPoolExecutor(arguments.jobs if network else 1) as workers:
        for page, done, seconds in workers.map(one, runnable):
            try:
                result = json.loads(done.stdout.splitlines()[-1])
            except (IndexError, ValueError):
                result = {"failed": f"{page.path}: the session broke off:\n{done.stdout.decode()}"}
            if "failed" in result:
                problems.append(result["failed"] + "\n" + done.stderr.decode()[-3000:])
            ran += result.get("ran", 0)
            print(f"{page.path}: {'failed' if 'failed' in result else str(result['ran']) + ' ran'} in {seconds:.1f} s",
                  flush=True)
    for problem in problems:
        print(f"\n{problem}", file=sys.stderr)
    print(count(pages, ran, have))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
