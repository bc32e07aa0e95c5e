# SPDX-License-Identifier: Apache-2.0
"""Log in and out, what stays in the browser, and what a user without rights sees."""

import json

from playwright.sync_api import expect
from servers import ACCESS, SECRET


def test_wrong_keys_are_refused_and_right_ones_open_the_console(open_console, server):
    console = open_console(server.console)
    console.guard.allow("401")  # the browser logs the refusal that this test provokes
    console.go("#/config")
    console.page.get_by_label("Access key").fill(ACCESS)
    console.page.get_by_label("Secret key").fill("not the key")
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("alert")).not_to_be_empty()
    console.page.get_by_label("Secret key").fill(SECRET)
    console.page.keyboard.press("Enter")
    expect(console.heading("Configuration")).to_be_visible()  # the page that was asked for


def test_the_root_of_the_address_leads_to_the_console(open_console, server):
    console = open_console(server.console)
    console.page.goto(server.console)
    expect(console.heading("Log in")).to_be_visible()
    assert console.serious_problems() == []


def test_no_secret_stays_in_the_browser(console):
    kept = console.page.evaluate(
        "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert SECRET not in kept and ACCESS not in kept
    local, _, cookie, _ = json.loads(kept)
    assert cookie == ""  # scripts cannot see the session
    assert set(local) <= {"nebulaio-session", "nebulaio-theme", "nebulaio-keys", "nebulaio-uploads"}
    assert local.get("nebulaio-session") == "1"


def test_log_out_ends_the_session_in_every_tab(console):
    other = console.page.context.new_page()
    other.goto(f"{console.base}/console/#/buckets")
    expect(other.get_by_role("heading", level=1, name="Buckets")).to_be_visible()
    console.button("Log out").click()
    expect(console.heading("Log in")).to_be_visible()
    console.guard.allow("401")
    other.goto(f"{console.base}/console/#/transfers")
    expect(other.get_by_role("heading", level=1, name="Log in")).to_be_visible()


def test_a_user_sees_what_the_policies_allow(console, open_console, server, bucket):
    secret = add_user(console, "reader")
    server.run("mb", f"s3://{bucket}-hidden")
    mine = open_console(server.console)
    mine.log_in("reader", secret)
    names = mine.page.get_by_role("navigation", name="Pages").get_by_role("link")
    expect(names).to_have_text(["Overview", "Buckets", "Transfers"])
    mine.go("#/users")
    expect(mine.page.get_by_text("There is no such page for you.")).to_be_visible()
    mine.go("#/buckets")
    expect(mine.heading("Buckets")).to_be_visible()
    expect(mine.page.get_by_role("link", name=bucket)).to_have_count(0)
    # A bucket that nobody granted says why it cannot be opened.
    mine.guard.allow("403")
    mine.go(f"#/buckets/{bucket}-hidden")
    expect(mine.page.get_by_role("alert").first).to_be_visible()


def add_user(console, name: str) -> str:
    """Add a user in the console and return the secret key that it shows."""
    console.go("#/users")
    console.button("Add a user").click()
    console.dialog().get_by_label("Access key").fill(name)
    console.button("Add", console.dialog()).click()
    expect(console.page.get_by_role("dialog", name="The new keys")).to_be_visible()
    secret = console.dialog().get_by_label("Secret key").input_value()
    console.button("Done", console.dialog()).click()
    return secret
