# SPDX-License-Identifier: Apache-2.0
"""Uploads of large files: the connection is cut in the middle, the page is closed in the middle."""

import hashlib
import random

import pytest
from playwright.sync_api import expect
from servers import ACCESS, SECRET

MIB = 1 << 20
SIZE = 200 * 10**6
PART = 16 * MIB


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file of 200 MB with content that does not repeat."""
    path = tmp_path_factory.mktemp("large") / "weights.bin"
    draw = random.Random(21)
    with open(path, "wb") as out:
        left = SIZE
        while left:
            left -= out.write(draw.randbytes(min(left, 8 * MIB)))
    return path


def stored_sum(server, bucket: str, key: str, folder) -> str:
    target = folder / "downloaded"
    server.run("cp", f"s3://{bucket}/{key}", str(target))
    return hashlib.file_digest(open(target, "rb"), "sha256").hexdigest()


def sum_of(path) -> str:
    return hashlib.file_digest(open(path, "rb"), "sha256").hexdigest()


def hold(console, proxy, size: int, path) -> None:
    """Choose a file, and return when so many of its bytes are sent. No more bytes reach the server until proxy.go_on.

    Without that, the upload could end while this process has no processor.
    """
    proxy.hold_after = proxy.received + size
    console.choose_files(str(path))
    while proxy.passing.is_set():
        console.page.wait_for_timeout(20)


def test_an_upload_survives_cut_connections(open_console, server, proxy, bucket, large, tmp_path):
    console = open_console(f"http://{proxy.address}")
    console.guard.allow("ERR_|EventSource")  # the browser logs each cut
    console.log_in(ACCESS, SECRET, f"#/buckets/{bucket}")
    expect(console.heading(bucket)).to_be_visible()
    proxy.cut_after = proxy.received + SIZE // 2
    before = proxy.received
    console.choose_files(str(large))
    expect(console.page.locator(".uploads [data-state=done]")).to_be_visible(timeout=240_000)
    assert proxy.cuts == 1
    assert stored_sum(server, bucket, "weights.bin", tmp_path) == sum_of(large)
    # Only the parts that were on their way are sent again: three at a time.
    assert proxy.received - before < SIZE + 4 * PART, "more was sent again than the parts on their way"


def test_an_upload_goes_on_after_the_page_was_closed(open_console, server, proxy, bucket, large, tmp_path):
    first = open_console(f"http://{proxy.address}")
    first.guard.allow("ERR_|EventSource")
    first.log_in(ACCESS, SECRET, f"#/buckets/{bucket}")
    expect(first.heading(bucket)).to_be_visible()
    hold(first, proxy, SIZE // 2, large)
    first.page.goto("about:blank")  # the page is gone with the upload in the middle
    sent = proxy.received
    proxy.go_on()

    first.go(f"#/buckets/{bucket}/uploads")
    expect(first.page.get_by_role("row").filter(has_text="weights.bin")).to_be_visible()
    first.go(f"#/buckets/{bucket}")
    expect(first.heading(bucket)).to_be_visible()
    first.choose_files(str(large))
    done = first.page.locator(".uploads [data-state=done]")
    expect(done).to_be_visible(timeout=240_000)
    expect(done).to_contain_text("were there already")
    assert proxy.received - sent < SIZE - PART, "the parts that the server had were sent again"
    assert stored_sum(server, bucket, "weights.bin", tmp_path) == sum_of(large)


def test_an_upload_of_another_file_does_not_take_over_the_parts(open_console, server, proxy, bucket, large, tmp_path):
    """A file of the same size goes on with the upload of another one: each of its parts is compared, and none fits."""
    console = open_console(f"http://{proxy.address}")
    console.guard.allow("ERR_|EventSource")
    console.log_in(ACCESS, SECRET, f"#/buckets/{bucket}")
    expect(console.heading(bucket)).to_be_visible()
    hold(console, proxy, 6 * PART, large)
    progress = console.page.get_by_role("progressbar", name="Upload of weights.bin")
    while float(progress.get_attribute("value") or 0) < 2 * PART:  # three are on their way, and three have arrived
        console.page.wait_for_timeout(20)
    console.button("Pause the upload of weights.bin").click()
    expect(console.page.locator(".uploads [data-state=paused]")).to_be_visible()
    proxy.go_on()

    other = tmp_path / "weights.bin"
    other.write_bytes(bytes(SIZE))
    console.go(f"#/buckets/{bucket}/uploads")
    with console.page.expect_file_chooser() as waiting:
        console.button("Choose the file").click()
    waiting.value.set_files(str(other))
    done = console.page.locator(".uploads [data-state=done]")
    expect(done).to_be_visible(timeout=240_000)
    expect(done).not_to_contain_text("were there already")
    assert stored_sum(server, bucket, "weights.bin", tmp_path) == sum_of(other)


def test_a_cancelled_upload_leaves_nothing(open_console, proxy, bucket, large):
    console = open_console(f"http://{proxy.address}")
    console.guard.allow("ERR_|EventSource")
    console.log_in(ACCESS, SECRET, f"#/buckets/{bucket}")
    expect(console.heading(bucket)).to_be_visible()
    hold(console, proxy, 4 * PART, large)
    progress = console.page.get_by_role("progressbar", name="Upload of weights.bin")
    while float(progress.get_attribute("value") or 0) < PART:
        console.page.wait_for_timeout(20)
    console.button("Cancel the upload of weights.bin").click()
    proxy.go_on()
    expect(console.page.locator(".uploads")).to_have_count(0)
    console.go(f"#/buckets/{bucket}/uploads")
    expect(console.page.get_by_text("No unfinished uploads.")).to_be_visible()
