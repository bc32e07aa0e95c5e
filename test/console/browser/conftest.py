# SPDX-License-Identifier: Apache-2.0
"""Chromium against a real server. Every test fails if a page logs an error or asks another host for anything."""

import os
import pathlib
import re
import shutil
import uuid

import pytest
from console import Console
from playwright.sync_api import Browser, expect, sync_playwright
from servers import ACCESS, ROOT, SECRET, Proxy, Server

SHOTS = pathlib.Path(os.environ.get("CONSOLE_SHOTS", ROOT / "build" / "console"))


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("server"))
    try:
        yield running
        running.stop()
    finally:
        running.kill()


@pytest.fixture(scope="session")
def browser():
    expect.set_options(timeout=30_000)  # CI machines are loaded: what takes long is no failure
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert program, "there is no chromium: apt install chromium, or CHROMIUM=/path/of/a/browser"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program,
            args=[
                "--no-sandbox",
                "--disable-background-networking",
                "--disable-component-update",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
        )
        yield started
        started.close()


class Guard:
    """Records what a page must not do: errors in its log, uncaught exceptions, requests to other hosts."""

    def __init__(self, base: str):
        self.base, self.bad, self.allowed = base, [], []

    def watch(self, context) -> None:
        context.on("request", lambda r: r.url.startswith((self.base, "about:")) or self.bad.append(f"asks for {r.url}"))
        context.on(
            "console", lambda m: m.type in ("error", "warning") and self.bad.append(f"logs {m.text} ({m.location})")
        )
        context.on("weberror", lambda e: self.bad.append(f"throws {e.error}"))

    def allow(self, pattern: str) -> None:
        """Allow entries that match: a refusal that the test provokes is logged by the browser itself."""
        self.allowed.append(re.compile(pattern))

    def check(self) -> None:
        bad = [b for b in self.bad if not any(p.search(b) for p in self.allowed)]
        assert not bad, "\n".join(bad)


@pytest.fixture
def open_console(browser: Browser):
    """Open the console of a server in a fresh browser context."""
    guards, contexts = [], []

    def call(base: str, **options) -> Console:
        context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
        context.set_default_timeout(30_000)
        guard = Guard(base)
        guard.watch(context)
        guards.append(guard)
        contexts.append(context)
        return Console(context.new_page(), base, guard)

    yield call
    for context in contexts:
        context.close()
    for guard in guards:
        guard.check()


@pytest.fixture
def console(open_console, server) -> Console:
    """The console, with the administrator logged in."""
    opened = open_console(server.console)
    opened.log_in(ACCESS, SECRET)
    return opened


@pytest.fixture
def proxy(server):
    started = Proxy(server.console_address)
    yield started
    started.close()


@pytest.fixture
def bucket(server) -> str:
    """A new bucket."""
    name = "b-" + uuid.uuid4().hex[:12]
    server.run("mb", f"s3://{name}")
    return name
