# SPDX-License-Identifier: Apache-2.0
"""Directory buckets of S3 Express, with boto3 and aws-cli: sessions, appends, renames, listings, URLs and multipart uploads."""

import concurrent.futures
import json
import os
import shutil
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import pytest
from botocore.client import Config
from botocore.exceptions import ClientError
from conftest import Server, content, new_name, running

pytestmark = [
    pytest.mark.skipif("S3_ENDPOINT" in os.environ, reason="a server that was given may have no directory buckets"),
    # the certificate is made by the server
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

ZONE = "test1-az1"
HOST = "express.test"  # a name of the server that it does not know
MIB = 1024 * 1024


@pytest.fixture(scope="module", params=["http", "https"])
def express(request, tmp_path_factory):
    """A server with directory buckets. boto3 renews a session 45 seconds before its end, here after 3 seconds."""
    more = ["--tls-generate=true"] if request.param == "https" else []
    with running(tmp_path_factory, "--s3-express-enabled=true", "--s3-express-zones", ZONE,
                 "--s3-express-session-duration", "48s", *more) as started:
        yield started


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Every name below HOST resolves to this machine."""
    ask = socket.getaddrinfo

    def answer(host, *more, **named):
        text = host.decode() if isinstance(host, bytes) else host
        return ask("127.0.0.1" if text and text.endswith(HOST) else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.fixture(params=["address", "name"])
def endpoint(request, express: Server) -> str:
    """The server by its address, where SDKs put the bucket into the path, or by a name, where they put it before the name."""
    return express.endpoint if request.param == "address" else express.endpoint.replace("127.0.0.1", HOST)


def client(server: Server, endpoint: str, **config):
    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=server.access, aws_secret_access_key=server.secret,
        region_name=server.region,
        verify=False, config=Config(retries={"max_attempts": 1}, **config),
    )


@pytest.fixture
def s3(express, endpoint):
    return client(express, endpoint)


def create(s3) -> str:
    name = f"{new_name('x')[:20]}--{ZONE}--x-s3"
    place = {"Location": {"Type": "AvailabilityZone", "Name": ZONE},
             "Bucket": {"Type": "Directory", "DataRedundancy": "SingleAvailabilityZone"}}
    s3.create_bucket(Bucket=name, CreateBucketConfiguration=place)
    return name


@pytest.fixture
def bucket(s3) -> str:
    return create(s3)


def refused(call, *args, **named) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        call(*args, **named)
    reply = caught.value.response
    return reply["ResponseMetadata"]["HTTPStatusCode"], reply["Error"]["Code"]


def body_of(s3, bucket: str, key: str, **more) -> bytes:
    return s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()


def test_buckets(s3, bucket, express):
    ordinary = new_name("plain-")
    s3.create_bucket(Bucket=ordinary)
    listed = [b["Name"] for b in s3.list_directory_buckets()["Buckets"]]
    assert bucket in listed and ordinary not in listed
    pages = s3.get_paginator("list_directory_buckets").paginate(PaginationConfig={"PageSize": 1})
    assert [b["Name"] for page in pages for b in page["Buckets"]] == listed
    assert s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert refused(create_named, s3, bucket) == (409, "BucketAlreadyOwnedByYou")
    assert refused(create_named, s3, "a--other-az1--x-s3") == (400, "InvalidBucketName")
    assert refused(s3.put_object, Bucket=f"none--{ZONE}--x-s3", Key="k", Body=b"") == (404, "NoSuchBucket")
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    assert refused(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)
    assert bucket not in [b["Name"] for b in s3.list_directory_buckets()["Buckets"]]


def create_named(s3, name: str) -> None:
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={
        "Location": {"Type": "AvailabilityZone", "Name": name.split("--")[-2]}, "Bucket": {"Type": "Directory"}})


def test_objects(s3, bucket):
    for key, size in {"a": 0, "dir/ünï code+%": 4096, "x//y": 4097, "big": 3 * MIB + 1, "..": 17}.items():
        data = content(size, key)
        put = s3.put_object(Bucket=bucket, Key=key, Body=data, Metadata={"color": "red"}, ContentType="text/plain")
        got = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        assert (got["Body"].read(), got["Metadata"], got["ContentType"], got["StorageClass"]) == (data,
                                                                                                  {"color": "red"},
                                                                                                  "text/plain",
                                                                                                  "EXPRESS_ONEZONE")
        assert got["ETag"] == put["ETag"] and "-" in put["ETag"] and got["ChecksumCRC32"] == put["ChecksumCRC32"]
        head = s3.head_object(Bucket=bucket, Key=key)
        assert (head["ContentLength"], head["ETag"]) == (size, put["ETag"])
    assert body_of(s3, bucket, "big", Range="bytes=1000-1999") == content(3 * MIB + 1, "big")[1000:2000]
    assert refused(s3.get_object, Bucket=bucket, Key="big", IfMatch='"no"') == (412, "PreconditionFailed")
    assert refused(s3.get_object, Bucket=bucket, Key="none") == (404, "NoSuchKey")
    assert refused(s3.put_object, Bucket=bucket, Key="big", Body=b"", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert refused(s3.put_object, Bucket=bucket, Key="big", Body=b"x", ChecksumCRC32="AAAAAA==") == (400, "BadDigest")
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "big"})
    assert body_of(s3, bucket, "copy") == content(3 * MIB + 1, "big")
    assert s3.get_object_attributes(Bucket=bucket, Key="copy",
                                    ObjectAttributes=["ObjectSize", "StorageClass"])["ObjectSize"] == 3 * MIB + 1
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "copy"}, {"Key": "big"}]})
    s3.delete_object(Bucket=bucket, Key="a")
    assert refused(s3.delete_object, Bucket=bucket, Key="x//y", IfMatch='"no"') == (412, "PreconditionFailed")
    assert refused(s3.head_object, Bucket=bucket, Key="a")[0] == 404


def test_append(s3, bucket):
    want = b""
    for i, size in enumerate([5, 3000, 5000, MIB, 1, 2 * MIB + 7]):
        data = content(size, str(i))
        reply = s3.put_object(Bucket=bucket, Key="log", Body=data, WriteOffsetBytes=len(want))
        want += data
        assert reply["Size"] == len(want)
        got = s3.get_object(Bucket=bucket, Key="log", ChecksumMode="ENABLED")  # boto3 compares the checksum
        assert got["Body"].read() == want and got["ETag"] == reply["ETag"] and got["ChecksumType"] == "FULL_OBJECT"
    assert refused(s3.put_object, Bucket=bucket, Key="log", Body=b"x", WriteOffsetBytes=1) == (400,
                                                                                               "InvalidWriteOffset")
    assert refused(s3.put_object, Bucket=bucket, Key="log", Body=b"x", WriteOffsetBytes=len(want),
                   IfMatch='"no"') == (412, "PreconditionFailed")
    assert refused(s3.put_object, Bucket=bucket, Key="none", Body=b"x", WriteOffsetBytes=1) == (400,
                                                                                                "InvalidWriteOffset")
    assert body_of(s3, bucket, "log") == want


def test_appenders_at_once(s3, bucket):
    """Eight appenders: each byte that was acknowledged is there once, and the others are told that they lost."""

    def work(number: int) -> list[tuple[int, bytes]]:
        won = []
        while len(won) < 5:
            try:
                size = s3.head_object(Bucket=bucket, Key="log")["ContentLength"]
            except ClientError:
                size = 0
            data = content(1000 + number * 37, f"{number}-{len(won)}")
            try:
                s3.put_object(Bucket=bucket, Key="log", Body=data, WriteOffsetBytes=size)
            except ClientError as err:
                assert err.response["Error"]["Code"] in ("InvalidWriteOffset", "SlowDown"), err
                continue
            won.append((size, data))
        return won

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        won = sorted(piece for pieces in pool.map(work, range(8)) for piece in pieces)
    assert len(won) == 40
    assert body_of(s3, bucket, "log") == b"".join(data for _, data in won)


def test_rename(s3, bucket):
    put = s3.put_object(Bucket=bucket, Key="draft/a", Body=b"weights", Metadata={"step": "7"})
    first = s3.head_object(Bucket=bucket, Key="draft/a")
    s3.rename_object(Bucket=bucket, Key="final/ä b", RenameSource="draft/a")
    got = s3.get_object(Bucket=bucket, Key="final/ä b")
    assert (got["Body"].read(), got["ETag"], got["Metadata"], got["LastModified"]) == (b"weights", put["ETag"],
                                                                                       {"step": "7"},
                                                                                       first["LastModified"])
    assert refused(s3.head_object, Bucket=bucket, Key="draft/a")[0] == 404
    s3.put_object(Bucket=bucket, Key="other", Body=b"other")
    assert refused(s3.rename_object, Bucket=bucket, Key="other", RenameSource="final/%C3%A4%20b",
                   DestinationIfNoneMatch="*") == (412, "PreconditionFailed")
    assert refused(s3.rename_object, Bucket=bucket, Key="other", RenameSource="final/%C3%A4%20b",
                   SourceIfMatch='"no"') == (412, "PreconditionFailed")
    assert refused(s3.rename_object, Bucket=bucket, Key="other", RenameSource="none") == (404, "NoSuchKey")
    token = {"Bucket": bucket, "Key": "other", "RenameSource": f"/{bucket}/final/%C3%A4%20b", "ClientToken": "token-1"}
    s3.rename_object(**token)
    s3.rename_object(**token)  # the same request again
    assert refused(s3.rename_object, **(token | {"Key": "third"})) == (400, "IdempotencyParameterMismatch")
    assert body_of(s3, bucket, "other") == b"weights"


def test_listing(s3, bucket):
    keys = {f"d{i}/k{j}" for i in range(3) for j in range(4)} | {"top"}
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 5})
    assert {o["Key"] for page in pages for o in page["Contents"]} == keys
    page = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert ({p["Prefix"] for p in page["CommonPrefixes"]},
            [o["Key"] for o in page["Contents"]]) == ({"d0/", "d1/", "d2/"}, ["top"])
    assert {o["Key"] for o in s3.list_objects_v2(Bucket=bucket, Prefix="d1/")["Contents"]} == {k for k in keys
                                                                                               if k.startswith("d1/")}
    assert refused(s3.list_objects_v2, Bucket=bucket, Prefix="d1") == (400, "InvalidArgument")
    assert refused(s3.list_objects_v2, Bucket=bucket, Delimiter="-") == (400, "InvalidArgument")
    assert refused(s3.list_objects_v2, Bucket=bucket, StartAfter="a") == (501, "NotImplemented")


def test_multipart(s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="m/big")["UploadId"]
    data, parts = content(11 * MIB + 5), []
    for i in range(3):
        piece = data[i * 5 * MIB:(i + 1) * 5 * MIB]
        parts.append({"PartNumber": i + 1, "ETag": s3.upload_part(Bucket=bucket, Key="m/big", UploadId=upload,
                                                                  PartNumber=i + 1, Body=piece)["ETag"]})
    assert [p["PartNumber"] for p in s3.list_parts(Bucket=bucket, Key="m/big", UploadId=upload)["Parts"]] == [1, 2, 3]
    assert [u["Key"] for u in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["m/big"]
    s3.complete_multipart_upload(Bucket=bucket, Key="m/big", UploadId=upload, MultipartUpload={"Parts": parts})
    assert body_of(s3, bucket, "m/big") == data
    s3.put_object(Bucket=bucket, Key="m/big", Body=b"tail", WriteOffsetBytes=len(data))
    assert body_of(s3, bucket, "m/big", Range=f"bytes={len(data) - 2}-") == data[-2:] + b"tail"
    other = s3.create_multipart_upload(Bucket=bucket, Key="m/other")["UploadId"]
    s3.abort_multipart_upload(Bucket=bucket, Key="m/other", UploadId=other)


def test_presigned_urls(s3, bucket):
    def ask(what):
        # the certificate is made by the server
        return urllib.request.urlopen(what, context=ssl._create_unverified_context())

    s3.put_object(Bucket=bucket, Key="a b", Body=b"by URL")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b"}, ExpiresIn=60)
    assert "X-Amz-S3session-Token=" in url
    assert ask(url).read() == b"by URL"
    for spoilt in (url.replace("a%20b", "other"), url[:-1] + ("0" if url[-1] != "0" else "1")):
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(spoilt)
        assert caught.value.code == 403
    url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "put"}, ExpiresIn=60)
    request = urllib.request.Request(url, data=b"written by URL", method="PUT",
                                     headers={"Content-Type": "application/octet-stream"})
    assert ask(request).status == 200
    assert body_of(s3, bucket, "put") == b"written by URL"


def test_sessions_expire_and_renew(s3, bucket):
    """A client that works for longer than its session lasts begins new sessions, and none of its requests fails."""
    begun = []
    s3.meta.events.register("before-call.s3.CreateSession", lambda **_: begun.append(1))
    end = time.monotonic() + 60
    n = 0
    while len(begun) < 3 and time.monotonic() < end:
        s3.put_object(Bucket=bucket, Key="k", Body=str(n).encode())
        assert body_of(s3, bucket, "k") == str(n).encode()
        n += 1
    assert 2 <= len(begun) < n, f"{len(begun)} sessions for {n} writes"  # several requests use one session


def test_an_expired_session_is_refused(tmp_path_factory):
    # Long enough that a busy machine has the first request before the session ends.
    with running(tmp_path_factory, "--s3-express-enabled=true", "--s3-express-session-duration", "5s") as short:
        s3 = client(short, short.endpoint)
        bucket = create(s3)
        s3.put_object(Bucket=bucket, Key="k", Body=b"x")
        url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"}, ExpiresIn=600)
        end = time.monotonic() + 60
        with pytest.raises(urllib.error.HTTPError) as caught:
            while time.monotonic() < end:
                urllib.request.urlopen(url).read()  # until the session ends, long before the URL does
                time.sleep(0.05)
        assert caught.value.code == 400 and b"<Code>ExpiredToken</Code>" in caught.value.read()


def test_session_modes(s3, bucket, express, endpoint):
    def through(mode: str):
        keys = s3.create_session(Bucket=bucket, SessionMode=mode)["Credentials"]
        assert keys["Expiration"].timestamp() > time.time() - 1
        return keys

    assert refused(through, "Everything")[0] == 400
    for mode in ("ReadOnly", "ReadWrite"):
        assert set(through(mode)) == {"SessionToken", "SecretAccessKey", "AccessKeyId", "Expiration"}


def test_without_sessions(express, endpoint, bucket, monkeypatch):
    monkeypatch.setenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true")
    s3 = client(express, endpoint)
    begun = []
    s3.meta.events.register("before-call.s3.CreateSession", lambda **_: begun.append(1))
    s3.put_object(Bucket=bucket, Key="k", Body=b"plain keys")
    assert body_of(s3, bucket, "k") == b"plain keys" and not begun


def test_what_s3_does_not_support(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for call, named in [
        (s3.get_bucket_versioning, {}), (s3.get_bucket_acl, {}), (s3.get_bucket_tagging, {}), (s3.get_bucket_cors, {}),
        (s3.get_bucket_website, {}),
        (s3.get_object_lock_configuration, {}), (s3.list_object_versions, {}), (s3.get_object_tagging, {"Key": "k"}),
        (s3.get_object_acl, {"Key": "k"}),
        (s3.get_bucket_notification_configuration, {}), (s3.get_object_retention, {"Key": "k"}),
        (s3.get_bucket_location, {}),
    ]:
        assert refused(call, Bucket=bucket, **named) == (405, "MethodNotAllowed"), call
    for named in ({"Tagging": "a=b"}, {"ACL": "public-read"},
                  {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": "2099-01-01T00:00:00Z"}):
        assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"y", **named) == (501, "NotImplemented"), named
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"y", StorageClass="STANDARD") == (400,
                                                                                                  "InvalidStorageClass")
    assert refused(s3.list_objects, Bucket=bucket) == (501, "NotImplemented")
    assert refused(s3.get_object, Bucket=bucket, Key="k", VersionId="0123456789abcdefghijklmnop") == (400,
                                                                                                      "InvalidArgument")
    assert body_of(s3, bucket, "k") == b"x"


@pytest.fixture
def aws(express, endpoint, run, tmp_path):
    """The aws command, in which every name below HOST is this machine."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\nask = socket.getaddrinfo\n"
        "def answer(host, *more, **named):\n"
        f"    return ask('127.0.0.1' if host and str(host).endswith('{HOST}') else host, *more, **named)\n"
        "socket.getaddrinfo = answer\n")
    program = shutil.which("aws", path=str(Path(sys.executable).parent))
    assert program, "aws-cli is not installed beside this python: make test-clients installs it"
    env = {
        "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_ACCESS_KEY_ID": express.access,
        "AWS_SECRET_ACCESS_KEY": express.secret, "AWS_DEFAULT_REGION": express.region, "PYTHONPATH": str(tmp_path),
        "PYTHONWARNINGS": "ignore",
    }

    def call(*argv, **how):
        return run(program, "--no-verify-ssl", "--endpoint-url", endpoint, *argv, env=env, **how)

    return call


def test_awscli(aws, bucket, tmp_path):
    data = content(17 * MIB + 3)
    (tmp_path / "up").write_bytes(data)
    aws("s3", "cp", "up", f"s3://{bucket}/dir/big")  # by parts
    assert "PRE dir/" in aws("s3", "ls", f"s3://{bucket}/")
    aws("s3", "cp", f"s3://{bucket}/dir/big", "down")
    assert (tmp_path / "down").read_bytes() == data
    (tmp_path / "more").write_bytes(b"more")
    said = json.loads(aws("s3api", "put-object", "--bucket", bucket, "--key", "dir/big", "--body", "more",
                          "--write-offset-bytes", str(len(data))))
    assert said["Size"] == len(data) + 4
    aws("s3api", "rename-object", "--bucket", bucket, "--key", "final", "--rename-source", "dir/big")
    assert json.loads(aws("s3api", "head-object", "--bucket", bucket, "--key", "final"))["ContentLength"] == len(
        data) + 4
    assert bucket in aws("s3api", "list-directory-buckets")
    aws("s3", "rm", "--recursive", f"s3://{bucket}/")
    aws("s3api", "delete-bucket", "--bucket", bucket)
