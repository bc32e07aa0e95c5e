# SPDX-License-Identifier: Apache-2.0
"""s3cmd, which has its own way to sign and list."""

import shutil
import sys
import urllib.request
from pathlib import Path

import pytest
from conftest import TREE, content, files_in, new_name

MIB = 1024 * 1024


@pytest.fixture
def s3cmd(server, run, tmp_path):
    settings = tmp_path / "s3cfg"
    settings.write_text(
        f"[default]\naccess_key = {server.access}\nsecret_key = {server.secret}\nhost_base = {server.host}\nhost_bucket = {server.host}\n"
        f"bucket_location = {server.region}\nuse_https = False\nsignature_v2 = False\nmultipart_chunk_size_mb = 5\nprogress_meter = False\n"
    )
    program = shutil.which("s3cmd", path=str(Path(sys.executable).parent))
    assert program, "s3cmd is not installed beside this python: make test-clients installs it"
    return lambda *argv, **how: run(program, "-c", settings, *argv, **how)


@pytest.fixture
def bucket(s3cmd):
    name = new_name("s3cmd-")
    s3cmd("mb", f"s3://{name}")
    yield name
    s3cmd("rb", "--recursive", "--force", f"s3://{name}")


def test_put_get_info_cp_mv_del(s3cmd, bucket, tmp_path):
    data = content(11 * MIB + 7)
    (tmp_path / "up").write_bytes(data)
    (tmp_path / "empty").write_bytes(b"")
    s3cmd("put", "up", f"s3://{bucket}/dir/big ü")
    s3cmd("put", "--add-header=x-amz-meta-k:v", "empty", f"s3://{bucket}/empty")
    assert f"s3://{bucket}/dir/big ü" in s3cmd("ls", "--recursive", f"s3://{bucket}")
    s3cmd("get", f"s3://{bucket}/dir/big ü", "down")
    assert (tmp_path / "down").read_bytes() == data
    s3cmd("get", f"s3://{bucket}/empty", "nothing")
    assert (tmp_path / "nothing").read_bytes() == b""
    info = s3cmd("info", f"s3://{bucket}/empty")
    assert "x-amz-meta-k:" in info and "File size: 0" in info
    s3cmd("cp", f"s3://{bucket}/dir/big ü", f"s3://{bucket}/copy")
    s3cmd("mv", f"s3://{bucket}/copy", f"s3://{bucket}/moved")
    s3cmd("get", "--force", f"s3://{bucket}/moved", "down")
    assert (tmp_path / "down").read_bytes() == data
    assert "DIR" in s3cmd("ls", f"s3://{bucket}")
    s3cmd("del", f"s3://{bucket}/moved")
    s3cmd("get", "--force", f"s3://{bucket}/moved", "down", ok=False)
    assert s3cmd("du", f"s3://{bucket}").split()[0] == str(len(data))
    # s3cmd signs URLs with version 2.
    with urllib.request.urlopen(s3cmd("signurl", f"s3://{bucket}/dir/big ü", "+600").strip(), timeout=60) as reply:
        assert reply.read() == data


def test_sync(s3cmd, bucket, tree, tmp_path):
    s3cmd("sync", "tree/", f"s3://{bucket}/t/")
    (tmp_path / "back").mkdir()
    s3cmd("sync", f"s3://{bucket}/t/", "back/")
    assert files_in(tmp_path / "back") == files_in(tree) and len(files_in(tree)) == len(TREE)
    (tree / "a").unlink()
    assert "delete:" in s3cmd("sync", "--delete-removed", "tree/", f"s3://{bucket}/t/")
    assert f"s3://{bucket}/t/a\n" not in s3cmd("ls", "--recursive", f"s3://{bucket}")


def test_tags_and_batch_delete(s3cmd, bucket, tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    for key in "a", "a//b", "😀":
        s3cmd("put", "f", f"s3://{bucket}/{key}")
    s3cmd("settagging", f"s3://{bucket}/a", "k=v&l=w")
    assert "k" in s3cmd("gettagging", f"s3://{bucket}/a")
    s3cmd("del", "--recursive", "--force", f"s3://{bucket}/")
    assert s3cmd("ls", f"s3://{bucket}").strip() == ""
