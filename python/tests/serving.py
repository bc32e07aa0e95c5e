# SPDX-License-Identifier: Apache-2.0
"""A server of ours for tests, and S3 requests to it by nothing but the standard library.

    python serving.py COMMAND...    runs a command while a server with its door open
                                    runs, told by NEBULAIO_ENDPOINT and its likes
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ACCESS, SECRET = "gpudirect-tests", "gpudirect-tests-secret"


def program() -> str:
    """The nebulaio binary: NEBULAIO_CLI, else the checkout's."""
    return os.environ.get("NEBULAIO_CLI", str(ROOT / "bin" / "nebulaio"))


class Server:
    """A running server, and its administrator's requests."""

    def __init__(self, endpoint: str, data: Path, process: subprocess.Popen[bytes]) -> None:
        self.endpoint = endpoint
        self.data = data
        self.process = process
        self.killed = False
        self.keys = {"access_key": ACCESS, "secret_key": SECRET}

    def request(self, method: str, path: str, body: bytes = b"", query: str = "",
                headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """A signed request; path is not escaped yet. Returns status and body."""
        host = self.endpoint.partition("//")[2]
        when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path, digest = urllib.parse.quote(path), hashlib.sha256(body).hexdigest()
        sent = {**(headers or {}), "host": host, "x-amz-content-sha256": digest, "x-amz-date": when}
        names = ";".join(sorted(name.lower() for name in sent))
        lines = "".join(f"{name.lower()}:{sent[name].strip()}\n" for name in sorted(sent, key=str.lower))
        scope = f"{when[:8]}/us-east-1/s3/aws4_request"
        request = "\n".join([method, path, query, lines, names, digest])
        text = "\n".join(["AWS4-HMAC-SHA256", when, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = ("AWS4" + SECRET).encode()
        for part in (when[:8], "us-east-1", "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        proof = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        sent[
            "Authorization"] = f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={proof}"
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            connection.request(method, path + ("?" + query if query else ""), body, sent)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def add_user(self, name: str) -> dict[str, str]:
        """Make an account that may do nothing yet; returns its keys."""
        said = subprocess.run([program(), "user", "add", name, "--data", str(self.data), "--json"], check=True,
                              stdout=subprocess.PIPE)
        return {"access_key": name, "secret_key": json.loads(said.stdout)["secret_key"]}

    def add_reader(self, name: str, bucket: str) -> dict[str, str]:
        """Make an account that may read the objects of a bucket and no more; returns its keys."""
        keys = self.add_user(name)
        allow = {"Effect": "Allow", "Principal": {"AWS": [name]}, "Action": ["s3:GetObject"],
                 "Resource": [f"arn:aws:s3:::{bucket}/*"]}
        status, said = self.request("PUT", f"/{bucket}",
                                    json.dumps({"Version": "2012-10-17", "Statement": [allow]}).encode(), "policy=")
        assert status in (200, 204), said
        return keys

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def put(self, bucket: str, key: str, body: bytes) -> None:
        """Put an object the ordinary way."""
        status, said = self.request("PUT", f"/{bucket}/{key}", body)
        assert status == 200, said

    def get(self, bucket: str, key: str) -> bytes:
        """The content of an object."""
        status, said = self.request("GET", f"/{bucket}/{key}")
        assert status == 200, said
        return said


def endpoint_of(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Where a server says that it listens; RuntimeError with what it said instead."""
    end, buffer = time.monotonic() + seconds, b""
    assert process.stdout is not None
    while (left := end - time.monotonic()) > 0 and select.select([process.stdout], [], [], left)[0]:
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            break
        buffer += piece
        for line in buffer.split(b"\n")[:-1]:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict) and "endpoint" in said:
                return str(said["endpoint"])
    raise RuntimeError(f"the server has not said where it listens; it said {buffer!r}")


@contextmanager
def serving(folder: Path, *, buckets: tuple[str, ...] = ("bucket", "my-bucket"),
            **environment: str) -> Iterator[Server]:
    """A server with its door open, on a free port and with data in folder, and some buckets."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [program(), "server", "--json", "--data", str(folder / "data"), "--address", "127.0.0.1:0",
             "--console-address", "127.0.0.1:0"],
            env={**os.environ, "NEBULAIO_ROOT_USER": ACCESS, "NEBULAIO_ROOT_PASSWORD": SECRET,
                 "NEBULAIO_GPUDIRECT_ENABLED": "true", **environment},
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            try:
                server = Server(endpoint_of(process, 60), folder / "data", process)
            except RuntimeError as problem:
                raise RuntimeError(f"{problem}\n{(folder / 'log').read_text()[-4000:]}") from None
            for bucket in buckets:
                status, said = server.request("PUT", "/" + bucket)
                assert status == 200, said
            yield server
            if server.killed:
                return
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (folder / "log").read_text()[-4000:]
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def main() -> int:
    # Not in memory: door-written objects need a file system that tells of writers.
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder, serving(
        Path(folder)) as server:
        told = {"NEBULAIO_ENDPOINT": server.endpoint, "NEBULAIO_ACCESS_KEY": ACCESS, "NEBULAIO_SECRET_KEY": SECRET,
                "SERVER_DATA": str(server.data)}
        reader = server.add_reader("reader", "my-bucket")
        told |= {"READER_ACCESS_KEY": reader["access_key"], "READER_SECRET_KEY": reader["secret_key"]}
        return subprocess.run(sys.argv[1:], env={**os.environ, **told}).returncode


if __name__ == "__main__":
    sys.exit(main())
