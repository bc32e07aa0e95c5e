# SPDX-License-Identifier: Apache-2.0
"""A server of its own for the tests of the console, and a proxy in front of it that cuts connections."""

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.environ.get("NEBULAIO_CLI", str(ROOT / "bin" / "nebulaio"))
ACCESS, SECRET = "console-root", "console-root-secret"


class Server:
    """A running server. stop and start keep its data and its addresses."""

    def __init__(self, folder: pathlib.Path, *settings: str, env: dict[str, str] | None = None):
        self.folder, self.settings, self.env = folder, settings, env or {}
        self.address = self.console_address = "127.0.0.1:0"
        self.process: subprocess.Popen | None = None
        self.reserved: list[socket.socket] = []
        self.start()

    def start(self) -> None:
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [
                PROGRAM,
                "server",
                "--json",
                "--data",
                str(self.folder / "data"),
                "--address",
                self.address,
                "--console-address",
                self.console_address,
                *self.settings,
            ],
            env=os.environ
            | self.env
            | {"NEBULAIO_ROOT_USER": ACCESS, "NEBULAIO_ROOT_PASSWORD": SECRET, "HOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        said = self._first_line(60)
        self.endpoint, self.console = said["endpoint"], said["console"]
        self.address, self.console_address = (url.split("//")[1].rstrip("/") for url in (self.endpoint, self.console))

    def _first_line(self, seconds: float) -> dict:
        end, buffer = time.monotonic() + seconds, b""
        while b"\n" not in buffer and time.monotonic() < end:
            ready, _, _ = select.select([self.process.stdout], [], [], end - time.monotonic())
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not piece:
                break
            buffer += piece
        if b"\n" not in buffer:
            raise RuntimeError(
                f"the server does not say where it listens: {buffer!r}\n{(self.folder / 'log').read_text()[-4000:]}"
            )
        return json.loads(buffer.split(b"\n")[0])

    def stop(self) -> None:
        """Stop the server, and look whether it stops as it should."""
        self.process.send_signal(signal.SIGTERM)
        self.process.stdout.read()
        code = self.process.wait(60)
        self.log.close()
        assert code == 0, f"the server ended with {code}:\n{(self.folder / 'log').read_text()[-4000:]}"
        self._reserve()

    def _reserve(self) -> None:
        """Keep the ports until start listens on them again. The kernel would give them to any process that asks for one."""
        if self.reserved:
            return
        for address in (self.address, self.console_address):
            host, port = address.rsplit(":", 1)
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server sets it, too: both can have the port
            held.bind((host, int(port)))  # without listen: connections are refused
            self.reserved.append(held)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()
        for held in self.reserved:
            held.close()
        self.reserved = []

    def run(self, *arguments: str, raw: bool = False) -> str | bytes:
        """Run the command nebulaio with the administrator's keys and return its output."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            capture_output=True,
            timeout=600,
            text=not raw,
            env=os.environ
            | {
                "AWS_ACCESS_KEY_ID": ACCESS,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": self.endpoint,
                "AWS_EC2_METADATA_DISABLED": "true",
                "HOME": str(self.folder),
            },
        )
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


class Proxy:
    """Passes connections on to an address, until cut closes all of them. While it is down, it refuses new ones."""

    def __init__(self, to: str):
        host, port = to.rsplit(":", 1)
        self.to = (host, int(port))
        self.up = True
        self.received = 0  # bytes from the browser
        self.cut_after: int | None = None  # bytes from the browser at which all connections are cut, once
        self.cuts = 0
        self.hold_after: int | None = None  # bytes from the browser at which nothing more is passed on, until go_on
        self.passing = threading.Event()
        self.passing.set()
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                browser, _ = self.listener.accept()
            except OSError:
                return
            if not self.up:
                reset(browser)
                continue
            try:
                server = socket.create_connection(self.to)
            except OSError:
                reset(browser)
                continue
            with self.lock:
                self.open |= {browser, server}
            for pair in ((browser, server, True), (server, browser, False)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if counted:
                    self._count(len(piece))
                    self.passing.wait()
                target.sendall(piece)
        for end in (source, target):
            reset(end)
        with self.lock:
            self.open -= {source, target}

    def _count(self, size: int) -> None:
        with self.lock:
            self.received += size
            now = self.cut_after is not None and self.received >= self.cut_after
            if now:
                self.cut_after = None
            if self.hold_after is not None and self.received >= self.hold_after:
                self.hold_after = None
                self.passing.clear()
        if now:
            self.cut()

    def go_on(self) -> None:
        """Pass on what was held."""
        self.passing.set()

    def cut(self) -> None:
        """Close every connection at once, as a network that fails does."""
        with self.lock:
            self.cuts += 1
            victims, self.open = self.open, set()
        for victim in victims:
            reset(victim)

    def close(self) -> None:
        self.listener.close()
        self.go_on()
        self.cut()


def reset(connection: socket.socket) -> None:
    """Close a connection so that the other end sees a reset, also while a thread waits in recv."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
