# SPDX-License-Identifier: Apache-2.0
"""aws-cli, called as its users call it."""

import json
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest
from conftest import TREE, content, files_in, new_name

MIB = 1024 * 1024


@pytest.fixture
def aws(server, run, tmp_path):
    """The aws command, with parts of 5 MiB."""
    settings = tmp_path / "aws-config"
    settings.write_text(
        "[default]\nregion = " + server.region + "\noutput = json\n"
        "s3 =\n  multipart_threshold = 5MB\n  multipart_chunksize = 5MB\n  addressing_style = path\n  signature_version = s3v4\n"
    )
    program = shutil.which("aws", path=str(Path(sys.executable).parent))
    assert program, "aws-cli is not installed beside this python: make test-clients installs it"
    env = {"AWS_CONFIG_FILE": str(settings), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
           "AWS_ACCESS_KEY_ID": server.access, "AWS_SECRET_ACCESS_KEY": server.secret}

    def call(*argv, **how):
        return run(program, "--endpoint-url", server.endpoint, *argv, env=env, **how)

    return call


@pytest.fixture
def bucket(aws):
    name = new_name("aws-")
    aws("s3", "mb", f"s3://{name}")
    yield name
    aws("s3", "rb", "--force", f"s3://{name}")


def test_cp_ls_mv_rm(aws, bucket, tmp_path):
    data = content(17 * MIB + 3)  # several parts and an odd last one
    (tmp_path / "up").write_bytes(data)
    aws("s3", "cp", "up", f"s3://{bucket}/dir/big ü")
    assert f"{len(data)} dir/big ü" in aws("s3", "ls", "--recursive", f"s3://{bucket}/")
    aws("s3", "cp", f"s3://{bucket}/dir/big ü", "down")
    assert (tmp_path / "down").read_bytes() == data
    aws("s3", "cp", f"s3://{bucket}/dir/big ü", f"s3://{bucket}/copy")  # by parts, in the server
    aws("s3", "mv", f"s3://{bucket}/copy", f"s3://{bucket}/moved")
    assert "PRE dir/" in aws("s3", "ls", f"s3://{bucket}")
    aws("s3", "cp", f"s3://{bucket}/moved", "down")
    assert (tmp_path / "down").read_bytes() == data
    aws("s3", "rm", "--recursive", f"s3://{bucket}/")
    assert aws("s3", "ls", f"s3://{bucket}").strip() == ""


def test_streams(aws, bucket):
    aws("s3", "cp", "-", f"s3://{bucket}/stream", stdin=content(6 * MIB + 1).hex().encode())
    assert aws("s3", "cp", f"s3://{bucket}/stream", "-") == content(6 * MIB + 1).hex()
    aws("s3", "cp", "-", f"s3://{bucket}/empty", stdin=b"")
    assert aws("s3", "cp", f"s3://{bucket}/empty", "-") == ""


def test_sync(aws, bucket, tree, tmp_path):
    aws("s3", "sync", "tree", f"s3://{bucket}/t")
    assert aws("s3", "sync", "tree", f"s3://{bucket}/t").strip() == ""  # nothing is left to do
    aws("s3", "sync", f"s3://{bucket}/t", "back")
    assert files_in(tmp_path / "back") == files_in(tree) and len(files_in(tree)) == len(TREE)
    (tree / "a").unlink()
    aws("s3", "sync", "--delete", "tree", f"s3://{bucket}/t")
    assert "t/a\n" not in aws("s3", "ls", "--recursive", f"s3://{bucket}")


def test_api(aws, bucket, tmp_path):
    (tmp_path / "f").write_bytes(content(1000))
    where = ["--bucket", bucket, "--key", "a//b/../😀"]
    put = json.loads(aws("s3api", "put-object", *where, "--body", "f", "--checksum-algorithm", "SHA256", "--metadata",
                         "k=v", "--tagging", "a=b"))
    assert put["ChecksumSHA256"]
    got = json.loads(aws("s3api", "get-object", *where, "--range", "bytes=10-19", "part"))
    assert (got["ContentRange"], (tmp_path / "part").read_bytes()) == ("bytes 10-19/1000", content(1000)[10:20])
    assert json.loads(aws("s3api", "head-object", *where))["Metadata"] == {"k": "v"}
    assert json.loads(aws("s3api", "get-object-tagging", *where))["TagSet"] == [{"Key": "a", "Value": "b"}]
    aws("s3api", "put-object", *where, "--body", "f", "--if-none-match", "*", ok=False)
    with urllib.request.urlopen(aws("s3", "presign", f"s3://{bucket}/a//b/../😀").strip(), timeout=60) as page:
        assert page.read() == content(1000)
    gone = json.loads(aws("s3api", "delete-objects", "--bucket", bucket, "--delete",
                          json.dumps({"Objects": [{"Key": "a//b/../😀"}, {"Key": "none"}]})))
    assert len(gone["Deleted"]) == 2
