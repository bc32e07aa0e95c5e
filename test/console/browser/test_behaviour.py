# SPDX-License-Identifier: Apache-2.0
"""Keys, long lists, live rates, and a server that goes away and comes back."""

import time

import pytest
from playwright.sync_api import expect
from servers import ACCESS, SECRET, Server
from test_objects import file, open_bucket, upload

MANY = 100_000


def test_the_console_is_used_by_keys_alone(console, bucket):
    keys = console.page.keyboard
    open_bucket(console, bucket)
    upload(console, file("a.txt", b"a"), file("b.txt", b"b"), file("c.txt", b"c"))
    keys.press("g")
    keys.press("t")
    expect(console.heading("Transfers")).to_be_visible()
    expect(console.heading("Transfers")).to_be_focused()
    open_bucket(console, bucket)
    console.page.get_by_role("link", name="a.txt", exact=True).focus()
    keys.press("ArrowDown")
    expect(console.page.get_by_role("link", name="b.txt", exact=True)).to_be_focused()
    keys.press("Space")
    expect(console.page.get_by_label("Select b.txt")).to_be_checked()
    keys.press("End")
    expect(console.page.get_by_role("link", name="c.txt", exact=True)).to_be_focused()
    keys.press("Enter")
    expect(console.page.get_by_role("dialog", name="c.txt")).to_be_visible()
    keys.press("Escape")
    expect(console.dialog()).to_have_count(0)
    expect(console.page.get_by_role("link", name="c.txt", exact=True)).to_be_focused()
    keys.press("Delete")
    expect(console.page.get_by_role("dialog", name="Delete the object")).to_be_visible()
    keys.press("Escape")
    expect(console.dialog()).to_have_count(0)
    expect(console.page.get_by_role("link", name="c.txt", exact=True)).to_be_focused()
    keys.press("/")
    expect(console.page.get_by_label("Search objects")).to_be_focused()
    keys.press("Shift+Tab")


def test_single_keys_can_be_turned_off(console):
    console.page.keyboard.press("?")
    console.dialog().get_by_label("Single keys are commands").uncheck()
    console.page.keyboard.press("Escape")
    expect(console.dialog()).to_have_count(0)
    console.page.keyboard.press("g")
    console.page.keyboard.press("b")
    expect(console.heading("Overview")).to_be_visible()


def test_the_first_key_skips_the_navigation(console):
    console.page.reload()
    expect(console.heading("Overview")).to_be_visible()
    console.page.keyboard.press("Tab")
    expect(console.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    console.page.keyboard.press("Enter")
    expect(console.page.locator("main")).to_be_focused()


def test_a_menu_is_used_by_keys(console, bucket):
    open_bucket(console, bucket)
    upload(console, file("m.txt", b"m"))
    console.button("Actions for m.txt").focus()
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("menuitem", name="Details")).to_be_focused()
    console.page.keyboard.press("ArrowUp")
    expect(console.page.get_by_role("menuitem", name="Delete")).to_be_focused()
    console.page.keyboard.press("Escape")
    expect(console.button("Actions for m.txt")).to_be_focused()


@pytest.fixture(scope="module")
def crowded(server, tmp_path_factory) -> str:
    """A bucket with 100,000 objects."""
    work = tmp_path_factory.mktemp("crowded")
    for i in range(MANY):
        (work / f"object-{i:06d}").touch()
    server.run("mb", "s3://crowded")
    server.run("sync", str(work), "s3://crowded/")
    return "crowded"


def test_a_list_of_100000_objects_stays_small_and_smooth(console, crowded):
    page = console.page
    open_bucket(console, crowded)
    expect(page.get_by_role("link", name="object-000000", exact=True)).to_be_visible()
    assert page.locator("tbody tr").count() < 150  # only what is in view
    # Scroll to the end again and again until everything is loaded.
    end = time.monotonic() + 240
    while not page.get_by_text("100,000 entries.").count() and time.monotonic() < end:
        page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(30)
    expect(page.get_by_text("100,000 entries.")).to_be_visible()
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_role("link", name="object-099999", exact=True)).to_be_visible()
    rows = page.locator("tbody tr").count()
    assert rows < 150, f"{rows} rows are in the page"
    nodes = page.evaluate("() => document.querySelectorAll('*').length")
    assert nodes < 4000, f"{nodes} elements are in the page"
    # A jump to the middle shows the middle.
    page.evaluate("() => scrollTo(0, document.body.scrollHeight / 2)")
    page.wait_for_function(
        "() => [...document.querySelectorAll('tbody [data-main]')].some((e) => /object-0(49|50)/.test(e.textContent))"
    )
    page.get_by_label("Search objects").fill("object-09999")
    expect(page.get_by_text("10 keys found")).to_be_visible(timeout=60_000)


# A stream that sends the samples of an hour as fast as the page takes them.
HOUR = """() => { window.EventSource = class extends EventTarget {
  static OPEN = 1;
  readyState = 1;
  constructor() {
    super();
    const sample = (i) => ({at: new Date(1.7e12 + i * 1000).toISOString(), s3: {read: i % 97, written: i % 31,
      requests: i % 7, errors: 0},
      routes: [], disks: [{name: 'nvme0n1', read: i, written: i, busy: 0.5}], gpus: [], cpu: (i % 10) / 10, memory: 1});
    const send = (name, data) => this.dispatchEvent(new MessageEvent(name, {data: JSON.stringify(data)}));
    const more = (i) => { window.sent = i; if (i < 4200) { for (let n = 0; n < 20; n++) send('sample',
      sample(i + n)); setTimeout(more, 1, i + 20); } };
    setTimeout(() => { send('history', Array.from({length: 600}, (_, i) => sample(i))); more(600); });
  }
  close() {}
}; }"""


def test_live_rates_arrive(console):
    console.go("#/overview")
    expect(console.page.get_by_role("img", name="S3 traffic")).to_be_visible()
    before = console.page.locator(".chart .ends").first.inner_text()
    console.page.wait_for_function("(old) => document.querySelector('.chart .ends').innerText !== old", arg=before)


def test_an_hour_of_live_rates_keeps_ten_minutes(open_console, server):
    """The page's memory does not grow with the time that it is open."""
    console = open_console(server.console)
    console.page.add_init_script(f"({HOUR})()")
    console.log_in(ACCESS, SECRET)
    tool = console.page.context.new_cdp_session(console.page)

    def heap() -> int:
        tool.send("HeapProfiler.collectGarbage")
        return tool.send("Runtime.getHeapUsage")["usedSize"]

    console.page.wait_for_function("() => window.sent >= 1200")
    early = heap()
    console.page.wait_for_function("() => window.sent >= 4200")
    late = heap()
    drawn = console.page.evaluate("() => document.querySelector('.chart .line').getAttribute('d').split('L').length")
    assert drawn == 600
    assert late < early + (4 << 20), f"the heap grew from {early} to {late} bytes"


def test_the_server_goes_away_and_comes_back(open_console, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("gone"))
    try:
        server.run("mb", "s3://before")
        console = open_console(server.console)
        console.guard.allow("ERR_|EventSource|401|503")  # the browser logs what fails
        console.log_in(ACCESS, SECRET, "#/buckets")
        expect(console.page.get_by_role("link", name="before", exact=True)).to_be_visible()
        server.stop()
        console.go("#/overview")
        expect(console.page.get_by_text("No connection to the server.")).to_be_visible()
        server.start()
        server.run("mb", "s3://after")
        # A new server knows no sessions: the page asks for the keys, then shows the page that was open.
        expect(console.heading("Log in")).to_be_visible()
        console.page.get_by_label("Access key").fill(ACCESS)
        console.page.get_by_label("Secret key").fill(SECRET)
        console.page.keyboard.press("Enter")
        expect(console.heading("Overview")).to_be_visible()
        expect(console.page.get_by_text("No connection to the server.")).to_have_count(0)
        console.page.get_by_role("link", name="Buckets", exact=True).click()
        expect(console.page.get_by_role("link", name="after", exact=True)).to_be_visible()
        server.stop()
    finally:
        server.kill()


def test_a_short_cut_shows_and_heals_by_itself(open_console, proxy):
    console = open_console(f"http://{proxy.address}")
    console.guard.allow("ERR_|EventSource")
    console.log_in(ACCESS, SECRET, "#/overview")
    expect(console.page.get_by_role("img", name="S3 traffic")).to_be_visible()
    proxy.up = False
    proxy.cut()
    expect(console.page.get_by_text("No connection to the server.")).to_be_visible()
    expect(console.heading("Overview")).to_be_visible()  # what was there stays
    proxy.up = True
    expect(console.page.get_by_text("The server answers again.")).to_be_visible()
    expect(console.page.get_by_text("No connection to the server.")).to_have_count(0)
