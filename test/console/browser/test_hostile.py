# SPDX-License-Identifier: Apache-2.0
"""Names, metadata, tags and contents that would run as code in a careless page are shown as text."""

import uuid

import pytest
from playwright.sync_api import expect
from servers import ACCESS, SECRET
from test_objects import file, open_bucket, upload

ATTACKS = [
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "<svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "' onmouseover='alert(1)",
    "&lt;b&gt;&amp;",
    "..%2f..%2fetc",
    "a?b#c&d=e",
    "#/users",
    "ends with space ",
    "\u202egnp.exe",
]


@pytest.fixture
def alarmed(console):
    """The console, which fails the test if a page opens a dialog of the browser or sets a mark."""
    raised = []
    console.page.on("dialog", lambda d: (raised.append(d.message), d.dismiss()))
    yield console
    assert raised == []


def test_names_of_objects_are_text(alarmed, bucket):
    console = alarmed
    open_bucket(console, bucket)
    upload(console, *[file(name, b"<script>alert(2)</script>", "text/html") for name in ATTACKS if "/" not in name])
    for name in ATTACKS:
        if "/" in name:
            continue
        console.page.get_by_role("link", name=name, exact=True).first.click()
        heading = console.dialog().get_by_role("heading", level=2)
        expect(heading).to_have_text(name.strip(), use_inner_text=True)
        if console.page.get_by_role("tab", name="Content").count():
            console.page.get_by_role("tab", name="Content").click()
            expect(console.dialog().locator("pre")).to_have_text("<script>alert(2)</script>")
        console.page.keyboard.press("Escape")
        expect(console.dialog()).to_have_count(0)
    console.go("#/transfers")
    expect(console.page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()


def test_folders_and_searches_are_text(alarmed, bucket):
    console = alarmed
    open_bucket(console, bucket)
    console.go(
        f"#/buckets/{bucket}?prefix=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%2F&search=%3Csvg%20onload%3Dalert(1)%3E"
    )
    expect(console.page.get_by_text('No key contains "<svg onload=alert(1)>".')).to_be_visible()
    console.go("#/buckets/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    console.guard.allow("40[034]")
    expect(console.page.get_by_role("alert").first).to_contain_text("<img src=x onerror=alert(1)>")


def test_metadata_and_tags_are_text(alarmed, server, bucket, tmp_path):
    console = alarmed
    console.page.evaluate(
        """async ([bucket, value]) => {
      const { csrf } = await (await fetch('/console/api/session')).json();
      const meta = btoa(JSON.stringify({note: value}));
      const reply = await fetch(`/console/api/buckets/${bucket}/content?key=m`, {method: 'PUT', body: 'x',
        headers: {'X-CSRF-Token': csrf, 'X-Object-Metadata': meta}});
      if (!reply.ok) throw new Error(await reply.text());
    }""",
        [bucket, ATTACKS[0]],
    )
    console.go(f"#/buckets/{bucket}?object=m")
    expect(console.dialog().get_by_role("cell", name=ATTACKS[0])).to_be_visible()
    console.button("Change", console.dialog()).click()
    console.dialog().get_by_label("Name of tag 1").fill("t")
    console.dialog().get_by_label("Value of tag 1").fill("javascript:alert/1/")
    console.button("Save", console.dialog()).click()
    expect(console.dialog().get_by_text("t: javascript:alert/1/")).to_be_visible()


def test_addresses_that_cannot_be_decoded_show_the_overview(alarmed):
    alarmed.go("#/buckets/%E0%A4%A")
    expect(alarmed.heading("Overview")).to_be_visible()
    alarmed.go("#/constructor")
    expect(alarmed.page.get_by_text("There is no such page for you.")).to_be_visible()


def test_the_policy_of_the_pages_stops_injected_code(console):
    """If a mistake let markup in, the browser would still not run it."""
    console.guard.allow("Content Security Policy|Trusted(HTML|Script)|Trusted Type")
    ran = console.page.evaluate("""async () => {
      window.ran = [];
      try { const d = document.createElement('div'); d.innerHTML = '<img src=x onerror="window.ran.push(1)">';
        document.body.append(d); } catch { /* refused */ }
      try { const s = document.createElement('script'); s.textContent = 'window.ran.push(2)';
        document.body.append(s); } catch { /* refused */ }
      // A timer runs outside of this function, which the driver of the browser exempts from the policy.
      setTimeout(() => { try { new Function('window.ran.push(3)')(); } catch { /* refused */ } });
      await new Promise((r) => setTimeout(r, 300));
      return window.ran;
    }""")
    assert ran == []


def test_the_console_cannot_be_framed(browser, server):
    page = browser.new_page()
    page.set_content(f'<iframe src="{server.console}/console/" width="800" height="600"></iframe>')
    page.wait_for_timeout(500)
    inner = page.frames[1]
    assert inner.locator("form").count() == 0
    page.close()


def test_a_session_of_one_server_is_not_taken_over(open_console, server):
    """The cookie that a browser had before the log in is not the session after it."""
    console = open_console(server.console)
    console.page.context.add_cookies([{"name": "nebulaio", "value": uuid.uuid4().hex, "url": server.console}])
    before = {c["value"] for c in console.page.context.cookies()}
    console.log_in(ACCESS, SECRET)
    after = [c for c in console.page.context.cookies() if c["httpOnly"]]
    assert after and not {c["value"] for c in after} & before
    assert all(c["sameSite"] == "Strict" for c in after)
