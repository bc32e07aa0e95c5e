# SPDX-License-Identifier: Apache-2.0
"""rclone, in the version that the machine has."""

import json
import os
import shutil
import urllib.request

import pytest
from conftest import TREE, content, files_in, new_name

MIB = 1024 * 1024


@pytest.fixture
def rclone(server, run):
    program = shutil.which("rclone")
    if not program and os.environ.get("CLIENTS_WITHOUT_RCLONE") == "1":
        pytest.skip("RCLONE IS NOT TESTED: it is not installed, and CLIENTS_WITHOUT_RCLONE=1 allows that")
    assert program, "rclone is not installed and make test-clients could not install it: apt install rclone, or say CLIENTS_WITHOUT_RCLONE=1"
    env = {
        "RCLONE_CONFIG": "/dev/null", "RCLONE_CONFIG_N_TYPE": "s3", "RCLONE_CONFIG_N_PROVIDER": "Other",
        "RCLONE_CONFIG_N_ENDPOINT": server.endpoint,
        "RCLONE_CONFIG_N_ACCESS_KEY_ID": server.access, "RCLONE_CONFIG_N_SECRET_ACCESS_KEY": server.secret,
        "RCLONE_CONFIG_N_REGION": server.region,
        "RCLONE_S3_UPLOAD_CUTOFF": "5Mi", "RCLONE_S3_CHUNK_SIZE": "5Mi", "RCLONE_RETRIES": "1",
        "RCLONE_LOW_LEVEL_RETRIES": "1",
    }
    return lambda *argv, **how: run(program, *argv, env=env, **how)


@pytest.fixture
def bucket(rclone):
    name = new_name("rclone-")
    rclone("mkdir", f"n:{name}")
    yield name
    rclone("purge", f"n:{name}")
    assert name not in rclone("lsd", "n:")


def test_sync_and_check(rclone, bucket, tree, tmp_path):
    rclone("sync", "tree", f"n:{bucket}/t")
    rclone("check", "--download", "tree", f"n:{bucket}/t")
    rclone("check", "tree", f"n:{bucket}/t")  # by hashes
    listed = {e["Path"]: e["Size"] for e in json.loads(rclone("lsjson", "-R", "--files-only", f"n:{bucket}/t"))}
    assert listed == TREE
    rclone("copy", f"n:{bucket}/t", "back")
    assert files_in(tmp_path / "back") == files_in(tree)
    (tree / "a").unlink()
    rclone("sync", "tree", f"n:{bucket}/t")
    assert "a" not in [e["Path"] for e in json.loads(rclone("lsjson", f"n:{bucket}/t"))]
    rclone("copy", f"n:{bucket}/t", f"n:{bucket}/u")  # in the server
    rclone("check", f"n:{bucket}/t", f"n:{bucket}/u")


def test_parts_ranges_and_streams(rclone, bucket, tmp_path):
    data = content(17 * MIB + 5)
    (tmp_path / "up").write_bytes(data)
    rclone("copyto", "up", f"n:{bucket}/big")
    rclone("copyto", f"n:{bucket}/big", "down", "--multi-thread-streams", "4")
    assert (tmp_path / "down").read_bytes() == data
    text = content(4 * MIB).hex()
    rclone("rcat", f"n:{bucket}/stream", stdin=text.encode())  # of unknown length, in parts
    assert rclone("cat", "--offset", "5242879", "--count", "3", f"n:{bucket}/stream") == text[5242879:5242882]
    assert rclone("cat", f"n:{bucket}/stream") == text
    rclone("moveto", f"n:{bucket}/big", f"n:{bucket}/moved ü")
    with urllib.request.urlopen(rclone("link", f"n:{bucket}/moved ü").strip(), timeout=60) as page:
        assert page.read() == data
    rclone("touch", f"n:{bucket}/zero")
    assert rclone("cat", f"n:{bucket}/zero") == ""
    rclone("deletefile", f"n:{bucket}/moved ü")
    assert rclone("size", "--json", f"n:{bucket}") == rclone("size", "--json", f"n:{bucket}", "--fast-list")
