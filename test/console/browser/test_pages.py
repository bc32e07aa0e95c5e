# SPDX-License-Identifier: Apache-2.0
"""Every page at three widths, light and dark: pictures of it, no sideways scroll, nothing on top of each other, axe."""

import json
import pathlib
import struct

import pytest
from conftest import SHOTS
from playwright.sync_api import expect
from servers import ACCESS, ROOT, SECRET, Server

BUCKET = "models"
PAGES = {
    "overview": "#/overview",
    "buckets": "#/buckets",
    "objects": f"#/buckets/{BUCKET}",
    "folder": f"#/buckets/{BUCKET}?prefix=llama%2F",
    "object": f"#/buckets/{BUCKET}?object=tiny.safetensors",
    "versions": f"#/buckets/{BUCKET}/versions",
    "uploads": f"#/buckets/{BUCKET}/uploads",
    "policy": f"#/buckets/{BUCKET}/policy",
    "settings": f"#/buckets/{BUCKET}/settings",
    "transfers": "#/transfers",
    "users": "#/users",
    "user": "#/users/alice",
    "machine": "#/machine",
    "benchmarks": "#/benchmarks",
    "benchmark": "#/benchmarks/h200.json",
    "compare": "#/benchmarks?a=h200.json&b=h200.json",
    "cluster": "#/cluster",
    "config": "#/config",
}
SIZES = [(375, 812), (768, 1024), (1440, 900)]


UPSTREAM = """
upstream:
  mirror:
    endpoint: {endpoint}
    bucket: far
    access_key_env: UPSTREAM_ACCESS
    secret_key_env: UPSTREAM_SECRET
"""


@pytest.fixture(scope="module")
def furnished(server, tmp_path_factory):
    """A node of a cluster with a bucket of another server, a door, and results of benchmarks."""
    folder = tmp_path_factory.mktemp("furnished")
    server.run("mb", "s3://far")
    (folder / "far.bin").write_bytes(bytes(3_000_000))
    server.run("cp", str(folder / "far.bin"), "s3://far/shards/far.bin")
    server.run("cluster", "key", "--out", str(folder / "key"))
    (folder / "config.yaml").write_text(UPSTREAM.format(endpoint=server.endpoint))
    node = Server(
        folder,
        "--config",
        str(folder / "config.yaml"),
        "--cluster-address",
        "127.0.0.1:0",
        "--cluster-gossip-address",
        "127.0.0.1:0",
        "--cluster-key-file",
        str(folder / "key"),
        "--gpudirect-enabled",
        "--console-benchmarks",
        str(ROOT / "docs" / "benchmarks" / "2026-11-15-bench"),
        env={"UPSTREAM_ACCESS": ACCESS, "UPSTREAM_SECRET": SECRET},
    )
    try:
        node.run("cat", "s3://mirror/shards/far.bin", raw=True)
        yield node
        node.stop()
    finally:
        node.kill()


@pytest.fixture(scope="module")
def filled(furnished, tmp_path_factory):
    """A server with something on every page."""
    server = furnished
    work = tmp_path_factory.mktemp("filled")
    tensors = {
        f"model.layers.{i}.self_attn.q_proj.weight": {
            "dtype": "BF16",
            "shape": [64, 32],
            "data_offsets": [i * 4096, (i + 1) * 4096],
        }
        for i in range(40)
    }
    text = json.dumps(tensors).encode()
    (work / "tiny.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(40 * 4096))
    for name in (
        "readme.txt",
        "llama/model-00001-of-00191.safetensors",
        "llama/model-00002-of-00191.safetensors",
        "a folder with a long name that does not fit on a phone/x",
        "checkpoints/step-1000/state.bin",
        "ein-sehr-langer-name-ohne-jede-trennstelle-" + "x" * 120 + ".bin",
    ):
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 70_000)
    server.run(
        "mb", f"s3://{BUCKET}", "s3://datasets", "s3://checkpoints-of-the-training-run-with-a-long-name-2026-11-17"
    )
    server.run("sync", str(work), f"s3://{BUCKET}/")
    return server


@pytest.fixture(scope="module")
def prepared(filled, browser):
    """Users and versions, made through the console's own API, as pages make them."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{filled.console}/console/")
    page.evaluate(
        """async ([access, secret, bucket]) => {
      const api = '/console/api/';
      const login = await fetch(api + 'session', {method: 'POST', headers: {'Content-Type': 'application/json'},
        body: JSON.stringify({access_key: access, secret_key: secret})});
      const { csrf } = await login.json();
      const send = async (method, path, json) => {
        const reply = await fetch(api + path, {method, headers: {'Content-Type': 'application/json',
          'X-CSRF-Token': csrf}, body: JSON.stringify(json)});
        if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
      };
      await send('POST', 'users', {access_key: 'alice', role: 'user', secret_key: ''});
      await send('POST', 'grants', {bucket: 'datasets', user: 'alice', access: 'read-write', prefix: 'imagenet/'});
      await send('PUT', `buckets/${bucket}/versioning`, {status: 'enabled'});
      await send('PUT', `buckets/${bucket}/tags`, {tags: {team: 'vision', cost: '42'}});
      await send('POST', `buckets/${bucket}/delete`, {objects: [{key: 'readme.txt'}]});
      await send('POST', `buckets/${bucket}/uploads`, {key: 'llama/unfinished.safetensors', size: 50000000, type: '',
        metadata: {}});
      await send('POST', 'machine/diagnose', {}).catch((e) => console.info(e));
    }""",
        [ACCESS, SECRET, BUCKET],
    )
    context.close()
    return filled


def settle(console) -> None:
    """Wait until a page has what it loads."""
    expect(console.page.locator("main h1, dialog h2, main .note.bad").first).to_be_attached()
    console.page.wait_for_function("""() => !document.querySelector('.loading')
      && (document.querySelector('main').children.length > 1 || document.querySelector('main > .note.bad'))""")
    assert console.page.get_by_text("This page failed.").count() == 0
    console.page.evaluate("() => document.fonts.ready")


def picture(console, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    console.page.screenshot(path=pathlib.Path(SHOTS, name + ".png"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=lambda s: str(s[0]))
def test_pages(open_console, prepared, size, scheme):
    """One browser visits all pages: each must hold, and its picture is kept."""
    console = open_console(prepared.console, viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    console.go()
    expect(console.heading("Log in")).to_be_visible()
    picture(console, f"login-{size[0]}-{scheme}")
    console.log_in(ACCESS, SECRET)
    bad = []
    for name, fragment in PAGES.items():
        console.go(fragment)
        settle(console)
        picture(console, f"{name}-{size[0]}-{scheme}")
        bad += [f"{name}: {p}" for p in console.too_wide() + console.overlaps() + console.serious_problems()]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dialogs(open_console, prepared, scheme):
    """Each dialog on a phone: it fits, and axe finds nothing."""
    console = open_console(prepared.console, viewport={"width": 375, "height": 812}, color_scheme=scheme)
    console.log_in(ACCESS, SECRET)
    steps = {
        "create": ("#/buckets", lambda: console.button("Create a bucket").click()),
        "share": (f"#/buckets/{BUCKET}", lambda: console.menu("Actions for tiny.safetensors", "Share link")),
        "delete": (f"#/buckets/{BUCKET}", lambda: console.menu("Actions for tiny.safetensors", "Delete")),
        "tensors": (
            f"#/buckets/{BUCKET}?object=tiny.safetensors",
            lambda: console.page.get_by_role("tab", name="Tensors").click(),
        ),
        "add-user": ("#/users", lambda: console.button("Add a user").click()),
        "grant": ("#/users/alice", lambda: console.button("Grant access").click()),
        "transfer": ("#/transfers", lambda: console.page.locator("tbody th a").first.click()),
        "keys": ("#/overview", lambda: console.page.keyboard.press("?")),
    }
    bad = []
    for name, (fragment, act) in steps.items():
        console.go(fragment)
        settle(console)
        act()
        expect(console.dialog()).to_be_visible()
        console.page.wait_for_function("() => !document.querySelector('dialog .loading')")
        picture(console, f"dialog-{name}-375-{scheme}")
        wide = console.dialog().evaluate(
            "(d) => d.scrollWidth > d.clientWidth ? [`the dialog is ${d.scrollWidth} wide in ${d.clientWidth}`] : []"
        )
        bad += [f"{name}: {p}" for p in wide + console.too_wide() + console.overlaps() + console.serious_problems()]
        console.page.keyboard.press("Escape")
        expect(console.dialog()).to_have_count(0)
    assert not bad, "\n".join(bad)


def test_the_navigation_of_a_phone(open_console, prepared):
    console = open_console(prepared.console, viewport={"width": 375, "height": 812})
    console.log_in(ACCESS, SECRET)
    console.button("Navigation").click()
    picture(console, "navigation-375-light")
    assert console.too_wide() + console.serious_problems() == []
    console.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Buckets").click()
    expect(console.heading("Buckets")).to_be_visible()
    expect(console.page.get_by_role("navigation", name="Pages")).not_to_be_visible()


def test_the_colours_can_be_chosen(open_console, prepared):
    console = open_console(prepared.console, color_scheme="light")
    console.log_in(ACCESS, SECRET)
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = console.page.evaluate(ground)
    console.page.get_by_role("button", name="Colours").click()
    console.page.get_by_role("button", name="Colours").click()
    dark = console.page.evaluate(ground)
    assert light != dark
    console.page.reload()
    expect(console.heading("Overview")).to_be_visible()
    assert console.page.evaluate(ground) == dark
