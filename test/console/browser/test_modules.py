# SPDX-License-Identifier: Apache-2.0
"""Modules of the pages by themselves, in the browser that runs them."""

import hashlib

import pytest


def run(console, module: str, body: str, *arguments):
    """Run a function with a module of the pages."""
    return console.page.evaluate(
        f"async (args) => {{ const m = await import('/console/static/js/{module}'); return ({body})(m, ...args); }}",
        arguments,
    )


@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 1 << 20, (1 << 20) + 1, 3_000_001])
def test_md5_is_that_of_python(console, size):
    data = hashlib.shake_128(str(size).encode()).digest(min(size, 4096))
    whole = (data * (size // max(len(data), 1) + 1))[:size] if size else b""
    got = run(
        console,
        "upload/md5.js",
        """(m, text, size) => { const seed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const all = new Uint8Array(size); for (let i = 0; i < size; i++) all[i] = seed[i % seed.length];
          return m.md5(new Blob([all])); }""",
        __import__("base64").b64encode(data).decode(),
        size,
    )
    assert got == hashlib.md5(whole).hexdigest()


def test_sizes_rates_and_times_are_those_of_the_command(console):
    got = run(
        console,
        "format.js",
        """(m) => [m.bytes(0), m.bytes(1023), m.bytes(1536), m.bytes(1503238553), m.bytes(null), m.rate(52.1e9),
          m.rate(999),
        m.percent(0.125), m.percent(1), m.duration(0.0274), m.duration(200), m.duration(90000), m.plural(1,
          'object'), m.plural(1234, 'object')]""",
    )
    assert got == [
        "0 B",
        "1023 B",
        "1.50 KiB",
        "1.40 GiB",
        "–",
        "52.1 GB/s",
        "999 B/s",
        "12.5 %",
        "100 %",
        "27.4 ms",
        "3 min 20 s",
        "25 h 0 min",
        "1 object",
        "1,234 objects",
    ]


def test_fragments_are_parsed_and_made(console):
    got = run(
        console,
        "router.js",
        """(m) => [m.link('buckets', 'a/b', {prefix: 'x/ü&#?', empty: ''}),
           m.parse(m.link('buckets', 'a/b', {prefix: 'x/ü&#?'})), m.parse('#/%E0%A4%A')]""",
    )
    assert got[1] == {"path": ["buckets", "a/b"], "query": {"prefix": "x/ü&#?"}}
    assert "empty" not in got[0] and got[2] == {"path": [], "query": {}}


def test_lines_of_a_route_cross_no_box(console):
    """A route past host memory gets a gap between the boxes of the others."""
    got = run(
        console,
        "parts/route.js",
        """(m) => m.arrange({direction: 'read', routes: [
        {route: 'cufile_p2p', device: 'cuda:0', bytes: 60}, {route: 'page_cache', device: 'cuda:0', bytes: 20},
          {route: 'direct', device: 'cuda:1', bytes: 20}]})
        .columns.map((c) => c.map((b) => b.name))""",
    )
    assert got == [["Disk"], ["", "Page cache", "Staging memory"], ["GPU 0", "GPU 1"]]
    got = run(
        console,
        "parts/route.js",
        """(m) => m.arrange({direction: 'write', routes: [{route: 'direct', device: 'host', bytes: 5}]})
           .columns.map((c) => c.map((b) => b.name))""",
    )
    assert got == [["Host memory"], ["Staging memory"], ["Disk"]]
    got = run(
        console,
        "parts/route.js",
        """(m) => m.arrange({direction: 'write', routes: [{route: 'network', device: 'network', bytes: 5}]})
           .columns.map((c) => c.map((b) => b.name))""",
    )
    assert got == [["Client"], ["Network"], ["Store"]]
