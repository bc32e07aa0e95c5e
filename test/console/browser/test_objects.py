# SPDX-License-Identifier: Apache-2.0
"""Buckets and objects: create, upload, find, look into, share, delete, undo."""

import json
import struct
import urllib.request
import uuid

from playwright.sync_api import expect


def open_bucket(console, bucket: str) -> None:
    console.go(f"#/buckets/{bucket}")
    expect(console.heading(bucket)).to_be_visible()


def upload(console, *files: dict) -> None:
    console.choose_files(*files)
    for file in files:
        expect(console.page.get_by_role("link", name=file["name"], exact=True)).to_be_visible()


def file(name: str, content: bytes, kind: str = "application/octet-stream") -> dict:
    return {"name": name, "mimeType": kind, "buffer": content}


def test_a_bucket_is_made_and_deleted(console):
    name = "made-" + uuid.uuid4().hex[:10]
    console.go("#/buckets")
    console.button("Create a bucket").click()
    console.dialog().get_by_label("Name").fill("Bad_Name")
    expect(console.dialog().get_by_text('"B" is not allowed')).to_be_visible()
    console.dialog().get_by_label("Name").fill(name)
    console.dialog().get_by_label("Keep versions").check()
    console.button("Create", console.dialog()).click()
    console.page.get_by_role("link", name=name, exact=True).click()
    expect(console.page.get_by_text("No objects here.")).to_be_visible()
    console.page.get_by_role("link", name="Settings").click()
    expect(console.page.get_by_text("Versions are kept.")).to_be_visible()
    console.button("Delete the bucket").click()
    console.button("Delete the bucket", console.dialog()).click()
    expect(console.heading("Buckets")).to_be_visible()
    expect(console.page.get_by_role("link", name=name, exact=True)).to_have_count(0)


def test_files_are_uploaded_searched_and_downloaded(console, bucket):
    open_bucket(console, bucket)
    upload(console, file("alpha.txt", b"first"), file("beta ü 😀.txt", b"second"), file("empty", b""))
    console.page.get_by_label("Search objects").fill("BETA")
    expect(console.page.get_by_role("link", name="alpha.txt")).to_have_count(0)
    expect(console.page.get_by_text("1 key found")).to_be_visible()
    with console.page.expect_download() as waiting:
        console.menu("Actions for beta ü 😀.txt", "Download")
    assert open(waiting.value.path(), "rb").read() == b"second"


def test_files_are_dropped_into_a_folder(console, bucket):
    open_bucket(console, bucket)
    console.go(f"#/buckets/{bucket}?prefix=deep%2Fer%2F")
    expect(console.page.get_by_text("No objects here.")).to_be_visible()
    data = console.page.evaluate_handle("""() => { const t = new DataTransfer();
        t.items.add(new File(['dropped'], 'one.txt', {type: 'text/plain'})); t.items.add(new File(['too'],
          'two.txt')); return t; }""")
    area = console.page.locator(".drop")
    area.dispatch_event("dragenter", {"dataTransfer": data})
    expect(area).to_have_class("drop over")
    area.dispatch_event("drop", {"dataTransfer": data})
    expect(console.page.get_by_role("link", name="one.txt", exact=True)).to_be_visible()
    expect(console.page.get_by_role("link", name="two.txt", exact=True)).to_be_visible()
    console.page.get_by_role("navigation", name="Folder").get_by_role("link", name="deep").click()
    console.page.get_by_role("link", name="er/", exact=True).click()
    expect(console.page.get_by_role("link", name="one.txt", exact=True)).to_be_visible()


def test_the_tensors_of_a_safetensors_object_are_listed(console, bucket):
    head = {
        "__metadata__": {"format": "pt"},
        "model.embed.weight": {"dtype": "BF16", "shape": [128, 64], "data_offsets": [0, 16384]},
        "model.norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [16384, 16640]},
    }
    text = json.dumps(head).encode()
    open_bucket(console, bucket)
    upload(console, file("tiny.safetensors", struct.pack("<Q", len(text)) + text + bytes(16640)))
    console.page.get_by_role("link", name="tiny.safetensors", exact=True).click()
    console.page.get_by_role("tab", name="Tensors").click()
    expect(console.page.get_by_role("row", name="model.embed.weight BF16 128 × 64 16.0 KiB")).to_be_visible()
    expect(console.page.get_by_role("row", name="model.norm.weight F32 64 256 B")).to_be_visible()
    assert console.serious_problems() == []


def test_the_samples_of_a_pack_are_listed(console, server, bucket, tmp_path):
    for i in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{i:04d}.txt").write_text("x" * (i + 1))
    server.run("pack", str(tmp_path / "in"), str(tmp_path / "out"), "--format", "tar")
    (tar,) = (tmp_path / "out").glob("*.tar")
    open_bucket(console, bucket)
    console.choose_files(str(tar))
    console.page.get_by_role("link", name=tar.name, exact=True).click()
    console.page.get_by_role("tab", name="Samples").click()
    expect(console.page.get_by_role("row", name="0002")).to_contain_text("txt")


def test_a_deletion_is_undone_where_versions_are_kept(console, bucket):
    console.go(f"#/buckets/{bucket}/settings")
    console.button("Keep versions").click()
    expect(console.page.get_by_text("Versions are kept.")).to_be_visible()
    open_bucket(console, bucket)
    upload(console, file("keep.txt", b"one"), file("other.txt", b"two"))
    console.page.get_by_label("Select keep.txt").check()
    console.button("Delete 1 object").click()
    console.button("Delete", console.dialog()).click()
    console.said("1 object deleted.")
    expect(console.page.get_by_role("link", name="keep.txt", exact=True)).to_have_count(0)
    console.button("Undo").click()
    expect(console.page.get_by_role("link", name="keep.txt", exact=True)).to_be_visible()


def test_an_older_version_becomes_current(console, bucket):
    console.go(f"#/buckets/{bucket}/settings")
    console.button("Keep versions").click()
    expect(console.page.get_by_text("Versions are kept.")).to_be_visible()
    open_bucket(console, bucket)
    upload(console, file("doc.txt", b"old", "text/plain"))
    console.button("Close the list of uploads").click()
    console.choose_files(file("doc.txt", b"newer", "text/plain"))
    expect(console.row("doc.txt")).to_contain_text("5 B")
    console.page.get_by_role("link", name="doc.txt", exact=True).click()
    console.page.get_by_role("tab", name="Versions").click()
    rows = console.dialog().get_by_role("row").filter(has_text="B")
    expect(rows).to_have_count(2)
    old = rows.filter(has_text="3 B")
    old.get_by_role("button").click()
    console.page.get_by_role("menuitem", name="Make it current").click()
    console.said("The version is current now.")
    console.page.get_by_role("tab", name="Content").click()
    expect(console.dialog().locator("pre")).to_have_text("old")
    console.page.keyboard.press("Escape")
    console.page.get_by_role("link", name="Versions").click()
    expect(console.page.get_by_role("row").filter(has_text="doc.txt")).to_have_count(3)


def test_tags_of_an_object_are_changed(console, bucket):
    open_bucket(console, bucket)
    upload(console, file("tagged", b"x"))
    console.page.get_by_role("link", name="tagged", exact=True).click()
    console.button("Change", console.dialog()).click()
    console.dialog().get_by_label("Name of tag 1").fill("team")
    console.dialog().get_by_label("Value of tag 1").fill("vision")
    console.button("Save", console.dialog()).click()
    expect(console.dialog().get_by_text("team: vision")).to_be_visible()


def test_a_share_link_downloads_without_keys(console, bucket):
    open_bucket(console, bucket)
    upload(console, file("shared.bin", b"shared content"))
    console.menu("Actions for shared.bin", "Share link")
    console.dialog().get_by_label("Valid for").select_option("15 minutes")
    console.button("Make the link", console.dialog()).click()
    link = console.dialog().get_by_label("Link").input_value()
    assert "X-Amz-Expires=900" in link
    with urllib.request.urlopen(link) as reply:
        assert reply.read() == b"shared content"
