# SPDX-License-Identifier: Apache-2.0
"""Users, grants and policies, and the pages about the machine and the server."""

import urllib.error
import urllib.request

from playwright.sync_api import expect
from test_login import add_user
from test_objects import file, open_bucket, upload


def test_a_user_is_added_granted_and_deleted(console, open_console, server, bucket):
    secret = add_user(console, "grantee")
    console.page.get_by_role("link", name="grantee", exact=True).click()
    expect(console.page.get_by_text("No grants.")).to_be_visible()
    console.button("Grant access").click()
    console.dialog().get_by_label("Bucket").select_option(bucket)
    console.dialog().get_by_label("Access", exact=True).select_option("read")
    console.button("Grant", console.dialog()).click()
    expect(console.page.get_by_role("row").filter(has_text=bucket)).to_contain_text("read")

    open_bucket(console, bucket)
    upload(console, file("seen.txt", b"x"))
    theirs = open_console(server.console)
    theirs.log_in("grantee", secret, f"#/buckets/{bucket}")
    expect(theirs.page.get_by_role("link", name="seen.txt", exact=True)).to_be_visible()
    expect(theirs.button("Upload")).to_have_count(0)  # a reader cannot write

    console.go("#/users/grantee")
    console.button(f"Take back the grant on {bucket}").click()
    expect(console.page.get_by_text("No grants.")).to_be_visible()
    console.go("#/users")
    console.menu("Actions for grantee", "New secret key")
    console.button("Make a new secret key", console.dialog()).click()
    expect(console.page.get_by_role("dialog", name="The new keys")).to_be_visible()
    assert console.dialog().get_by_label("Secret key").input_value() != secret
    console.button("Done", console.dialog()).click()
    theirs.guard.allow("401")
    theirs.go("#/transfers")  # the session ended with the old secret key
    expect(theirs.heading("Log in")).to_be_visible()
    console.menu("Actions for grantee", "Delete")
    console.button("Delete the user", console.dialog()).click()
    expect(console.page.get_by_role("link", name="grantee", exact=True)).to_have_count(0)


def test_a_policy_is_checked_saved_and_removed(console, server, bucket):
    open_bucket(console, bucket)
    upload(console, file("public.txt", b"for all"))
    url = f"{server.endpoint}/{bucket}/public.txt"
    console.page.get_by_role("link", name="Policy").click()
    area = console.page.get_by_label(f"Policy of {bucket}")
    area.fill('{\n  "Version": "2012-10-17",\n  "Statement": [}\n}')
    expect(console.page.get_by_text("The policy is not valid.")).to_be_visible()
    expect(console.button("Save the policy")).to_have_attribute("aria-disabled", "true")
    assert console.serious_problems() == []
    console.button("Anybody may read").click()
    expect(console.page.get_by_text("The policy is valid.")).to_be_visible()
    console.button("Save the policy").click()
    console.said("The policy is in force.")
    with urllib.request.urlopen(url) as reply:
        assert reply.read() == b"for all"
    console.button("Remove the policy").click()
    console.button("Remove", console.dialog()).click()
    console.said("The policy is removed.")
    try:
        urllib.request.urlopen(url).close()
    except urllib.error.HTTPError as refused:
        assert refused.code == 403
    else:
        raise AssertionError("the object is still public")


def test_a_transfer_shows_its_route(console, bucket):
    open_bucket(console, bucket)
    upload(console, file("moved.bin", bytes(3_000_000)))
    console.go("#/transfers")
    row = console.page.get_by_role("row").filter(has_text=f"{bucket}/moved.bin").first
    expect(row).to_contain_text("2.86 MiB")
    row.get_by_role("link").click()
    expect(console.dialog().get_by_role("heading", name="Route")).to_be_visible()
    expect(console.dialog().locator(".route .legend")).to_contain_text("2.86 MiB")


def test_the_machine_is_diagnosed_and_gives_a_fix_script(console):
    console.go("#/machine")
    expect(console.heading("GPUs and disks")).to_be_visible()
    if console.button("Diagnose now").count():
        console.button("Diagnose now").click()
    expect(console.page.get_by_text("Diagnosed").first).to_be_visible(timeout=120_000)
    console.button("Fix script").first.click()
    expect(console.dialog().locator("pre")).to_contain_text("#!")


def test_every_setting_says_where_it_comes_from(console, server):
    console.go("#/config")
    console.page.get_by_label("Search settings").fill("console_address")
    row = console.page.get_by_role("row").filter(has=console.page.get_by_text("console_address", exact=True))
    expect(row).to_contain_text("flag")
    console.page.get_by_label("Search settings").fill("root_password")
    expect(console.page.get_by_role("row").filter(has_text="root_password").first).not_to_contain_text(
        "console-root-secret"
    )
