# SPDX-License-Identifier: Apache-2.0
"""A separate server for the tests of real clients, on a free port and a temporary directory."""

import contextlib
import itertools
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCESS, SECRET, REGION = "clientsclients", "clients-secret-key", "us-east-1"
DOMAIN = "s3.test"  # under which buckets have host names of their own


@dataclass(frozen=True)
class Server:
    """The address of a server, and the keys of its administrator."""

    endpoint: str
    access: str
    secret: str
    region: str

    @property
    def host(self) -> str:
        return self.endpoint.split("//", 1)[1]

    def env(self, **more: str) -> dict[str, str]:
        """Return the environment of a client that must see no settings of this machine."""
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RCLONE_", "S3_"))}
        return keep | {"LC_ALL": "C.UTF-8", "AWS_EC2_METADATA_DISABLED": "true"} | more


def endpoint_of(line: bytes) -> str | None:
    """Return the endpoint in the line of JSON that a server prints when it listens."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said.get("endpoint") if isinstance(said, dict) else None


def wait_for_endpoint(process: subprocess.Popen, seconds: float) -> str:
    end, buffer = time.monotonic() + seconds, b""
    while time.monotonic() < end:
        ready, _, _ = select.select([process.stdout], [], [], end - time.monotonic())
        if not ready:
            break
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            break
        buffer += piece
        for line in buffer.split(b"\n")[:-1]:
            if found := endpoint_of(line):
                return found
    raise RuntimeError(f"the server has not said where it listens; it said {buffer!r}")


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A running server. The variables S3_ENDPOINT, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY name an existing one."""
    if given := os.environ.get("S3_ENDPOINT"):
        yield Server(given, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], REGION)
        return
    with running(tmp_path_factory, "--domains", DOMAIN) as started:
        yield started


@contextlib.contextmanager
def running(tmp_path_factory, *settings: str):
    """Run a server with these settings, and look at the end whether it stops as it should."""
    program = os.environ.get("NEBULAIO_CLI", str(ROOT / "bin" / "nebulaio"))
    data = tmp_path_factory.mktemp("server")
    log = open(data / "log", "wb")
    process = subprocess.Popen(
        [program, "server", "--json", "--data", str(data / "data"), "--address", "127.0.0.1:0", "--console-address",
         "127.0.0.1:0",
         *settings],
        env=os.environ | {"NEBULAIO_ROOT_USER": ACCESS, "NEBULAIO_ROOT_PASSWORD": SECRET},
        stdout=subprocess.PIPE, stderr=log,
    )
    try:
        yield Server(wait_for_endpoint(process, 60), ACCESS, SECRET, REGION)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(
            60) == 0, f"the server ended with {process.returncode}:\n{(data / 'log').read_text()[-4000:]}"
    finally:
        process.kill()
        process.wait()
        log.close()


@pytest.fixture
def run(server, tmp_path):
    """Run a client's program and return its output. If it fails, show all of its output."""

    def call(*argv, ok: bool = True, env: dict[str, str] | None = None, stdin: bytes | None = None, cwd=None) -> str:
        done = subprocess.run([str(a) for a in argv], env=server.env(**(env or {})), input=stdin, capture_output=True,
                              timeout=300, cwd=cwd or tmp_path)
        said = f"{argv}\nended with {done.returncode}\n{done.stdout.decode(errors='replace')}\n{done.stderr.decode(errors='replace')}"
        assert (done.returncode == 0) == ok, said
        return done.stdout.decode()

    return call


@pytest.fixture
def tree(tmp_path):
    """A directory to synchronise: empty files, odd sizes, names with spaces, dots and other scripts."""
    top = tmp_path / "tree"
    for name, size in TREE.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(size, name))
        os.utime(path, (1_700_000_000, 1_700_000_000))  # before any object, also where times are whole seconds
    return top


TREE = {
    "a": 1, "b/c": 4096, "b/empty": 0, "b/d/e f": 70_001, "ünïcode/ключ/鍵.txt": 333,
    "b/😀": 17, "plus+and%percent": 2, "dots/..hidden": 3, "dots/x..": 4, "odd": 6 * 1024 * 1024 + 3,
}


NAMES = itertools.cycle(os.environ["S3_BUCKETS"].split(",")) if os.environ.get("S3_BUCKETS") else None


def new_name(prefix: str) -> str:
    """Return the name of a bucket that does not exist. The variable S3_BUCKETS lists the names that an existing server allows."""
    return next(NAMES) if NAMES else prefix + uuid.uuid4().hex[:12]


def content(size: int, seed: str = "") -> bytes:
    """Return bytes without a pattern, the same for the same seed and size."""
    return random.Random(f"{seed}/{size}").randbytes(size)


def files_in(top) -> dict[str, bytes]:
    return {str(p.relative_to(top)): p.read_bytes() for p in pathlib.Path(top).rglob("*") if p.is_file()}
