# SPDX-License-Identifier: Apache-2.0
"""boto3 in its current and in an older version: both run this file."""

import base64
import hashlib
import io
import socket
import urllib.error
import urllib.parse
import urllib.request
import uuid
import zlib

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.client import Config
from botocore.exceptions import ClientError
from conftest import content, new_name

MIB = 1024 * 1024
NEW = tuple(int(n) for n in boto3.__version__.split(".")[:2]) >= (1, 36)  # sends checksums unasked

KEYS = [
    "a", "a/", "a//b", "a/b", "../x", "a/../b", "./x", "..", "/lead", "//", "trail ", " lead", "k" * 1024, "é" * 512,
    "😀/😀", "ключ/鍵",
    "plus+plus", "per%cent", "%2F", "%00", "question?mark", "hash#", "amp&<>\"'", "back\\slash", "semi;colon",
    "tab\there", "star*", "~", "x=1&y=2",
]


@pytest.fixture(scope="module")
def s3(server):
    return boto3.client(
        "s3", endpoint_url=server.endpoint, aws_access_key_id=server.access, aws_secret_access_key=server.secret,
        region_name=server.region,
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )


@pytest.fixture
def bucket(s3):
    """A bucket for one test, removed with all its objects."""
    name = new_name("boto-")
    s3.create_bucket(Bucket=name)
    yield name
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
        for version in page.get("Versions", []) + page.get("DeleteMarkers", []):
            s3.delete_object(Bucket=name, Key=version["Key"], VersionId=version["VersionId"])
    s3.delete_bucket(Bucket=name)
    assert name not in [b["Name"] for b in s3.list_buckets()["Buckets"]]


def refused(call, code: str, status: int) -> None:
    """Expect that call fails with this S3 error."""
    with pytest.raises(ClientError) as caught:
        call()
    said = caught.value.response
    assert (said["Error"]["Code"], said["ResponseMetadata"]["HTTPStatusCode"]) == (code, status), said


def body(s3, bucket, key, **more) -> bytes:
    return s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()


def md5(data: bytes) -> str:
    return '"' + hashlib.md5(data).hexdigest() + '"'


def with_header(s3, operation: str, name: str, value: str, call):
    """Send a header for which this version of boto3 may have no parameter."""

    def add(request, **_):
        request.headers[name] = value

    s3.meta.events.register(f"before-sign.s3.{operation}", add)
    try:
        return call()
    finally:
        s3.meta.events.unregister(f"before-sign.s3.{operation}", add)


@pytest.mark.parametrize("size", [0, 1, 4096, 16 * 1024, 16 * 1024 + 1, MIB, 5 * MIB + 7])
def test_put_get_head_list_delete(s3, bucket, size):
    data = content(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=data, ContentType="text/x-odd", CacheControl="no-store",
                        Metadata={"one": "1", "two": "zwei"})
    assert put["ETag"] == md5(data)
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == data
    head = s3.head_object(Bucket=bucket, Key="k")
    for said in got, head:
        assert (said["ContentLength"], said["ETag"], said["ContentType"], said["CacheControl"]) == (size, md5(data),
                                                                                                    "text/x-odd",
                                                                                                    "no-store")
        assert said["Metadata"] == {"one": "1", "two": "zwei"}
    (entry,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert (entry["Key"], entry["Size"], entry["ETag"]) == ("k", size, md5(data))
    s3.delete_object(Bucket=bucket, Key="k")
    refused(lambda: s3.get_object(Bucket=bucket, Key="k"), "NoSuchKey", 404)
    s3.delete_object(Bucket=bucket, Key="k")  # what is not there is deleted


def test_streams_are_put_as_they_are(s3, bucket):
    data = content(3 * MIB + 1)
    s3.put_object(Bucket=bucket, Key="stream", Body=io.BytesIO(data),
                  ContentMD5=base64.b64encode(hashlib.md5(data).digest()).decode())
    assert body(s3, bucket, "stream") == data
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    refused(lambda: s3.put_object(Bucket=bucket, Key="stream", Body=b"new", ContentMD5=wrong), "BadDigest", 400)
    assert body(s3, bucket, "stream") == data


def test_ranges(s3, bucket):
    data = content(2 * MIB + 5)
    s3.put_object(Bucket=bucket, Key="k", Body=data)
    n = len(data)
    for asked, first, last in [
        ("bytes=0-0", 0, 0), ("bytes=0-", 0, n - 1), ("bytes=-3", n - 3, n - 1),
        (f"bytes={n - 1}-{n + 99}", n - 1, n - 1),
        ("bytes=1048575-1048576", 1048575, 1048576), ("bytes=5-1500000", 5, 1500000), (f"bytes=-{n + 5}", 0, n - 1),
    ]:
        got = s3.get_object(Bucket=bucket, Key="k", Range=asked)
        assert got["Body"].read() == data[first : last + 1], asked
        assert got["ContentRange"] == f"bytes {first}-{last}/{n}", asked
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    refused(lambda: s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={n}-"), "InvalidRange", 416)


def test_conditional_reads(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    assert body(s3, bucket, "k", IfMatch=etag) == b"x"
    refused(lambda: body(s3, bucket, "k", IfMatch='"other"'), "PreconditionFailed", 412)
    refused(lambda: body(s3, bucket, "k", IfNoneMatch=etag), "304", 304)
    assert body(s3, bucket, "k", IfNoneMatch='"other"') == b"x"


def test_conditional_writes(s3, bucket):
    def put(data, header, value):
        return with_header(s3, "PutObject", header, value, lambda: s3.put_object(Bucket=bucket, Key="k", Body=data))

    first = put(b"first", "If-None-Match", "*")["ETag"]
    refused(lambda: put(b"second", "If-None-Match", "*"), "PreconditionFailed", 412)
    refused(lambda: put(b"second", "If-Match", md5(b"never")), "PreconditionFailed", 412)
    assert body(s3, bucket, "k") == b"first"
    put(b"second", "If-Match", first)
    assert body(s3, bucket, "k") == b"second"


def test_copy(s3, bucket):
    data = content(MIB + 1)
    s3.put_object(Bucket=bucket, Key="from ü+%", Body=data, Metadata={"m": "1"}, ContentType="text/plain")
    source = {"Bucket": bucket, "Key": "from ü+%"}
    done = s3.copy_object(Bucket=bucket, Key="to", CopySource=source)
    assert done["CopyObjectResult"]["ETag"] == md5(data)
    assert body(s3, bucket, "to") == data
    assert s3.head_object(Bucket=bucket, Key="to")["Metadata"] == {"m": "1"}
    s3.copy_object(Bucket=bucket, Key="to", CopySource={"Bucket": bucket, "Key": "to"}, MetadataDirective="REPLACE",
                   Metadata={"n": "2"}, ContentType="a/b")
    head = s3.head_object(Bucket=bucket, Key="to")
    assert (head["Metadata"], head["ContentType"], head["ContentLength"]) == ({"n": "2"}, "a/b", len(data))
    refused(lambda: s3.copy_object(Bucket=bucket, Key="to", CopySource=source, CopySourceIfMatch='"other"'),
            "PreconditionFailed", 412)
    refused(lambda: s3.copy_object(Bucket=bucket, Key="x", CopySource={"Bucket": bucket, "Key": "none"}), "NoSuchKey",
            404)


@pytest.mark.parametrize("key", KEYS, ids=lambda k: repr(k[:12]))
def test_odd_keys_alone(s3, bucket, key):
    data = content(100, key)
    s3.put_object(Bucket=bucket, Key=key, Body=data)
    assert body(s3, bucket, key) == data
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket).get("Contents", [])] == [key]
    s3.delete_object(Bucket=bucket, Key=key)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_odd_keys_together(s3, bucket):
    for key in KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    in_order = sorted(KEYS, key=lambda k: k.encode())
    listed = [o["Key"] for p in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket,
                                                                             PaginationConfig={"PageSize": 3})
                                                                             for o in p["Contents"]]
    assert listed == in_order
    for key in KEYS:
        assert body(s3, bucket, key) == key.encode(), key
    page = s3.list_objects_v2(Bucket=bucket, Prefix="a/", Delimiter="/")
    assert [o["Key"] for o in page["Contents"]] == ["a/", "a/b"]
    assert [p["Prefix"] for p in page["CommonPrefixes"]] == ["a/../", "a//"]
    old = [o["Key"] for p in s3.get_paginator("list_objects").paginate(Bucket=bucket, PaginationConfig={"PageSize": 7})
           for o in p["Contents"]]
    assert old == in_order
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in KEYS + ["not there"]]})
    assert sorted(d["Key"] for d in gone["Deleted"]) == sorted(KEYS + ["not there"]) and "Errors" not in gone
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_key_too_long(s3, bucket):
    refused(lambda: s3.put_object(Bucket=bucket, Key="k" * 1025, Body=b"x"), "KeyTooLongError", 400)


def test_pages_with_delimiter(s3, bucket):
    for i in range(7):
        for j in range(3):
            s3.put_object(Bucket=bucket, Key=f"p/d{i}/f{j}", Body=b"")
    s3.put_object(Bucket=bucket, Key="p/z", Body=b"z")
    seen, objects, token = [], [], {}
    while True:
        page = s3.list_objects_v2(Bucket=bucket, Prefix="p/", Delimiter="/", MaxKeys=2, **token)
        seen += [p["Prefix"] for p in page.get("CommonPrefixes", [])]
        objects += [o["Key"] for o in page.get("Contents", [])]
        assert page["KeyCount"] <= 2
        if not page["IsTruncated"]:
            break
        token = {"ContinuationToken": page["NextContinuationToken"]}
    assert (seen, objects) == ([f"p/d{i}/" for i in range(7)], ["p/z"])
    after = s3.list_objects_v2(Bucket=bucket, StartAfter="p/d5/f1")
    assert [o["Key"] for o in after["Contents"]] == ["p/d5/f2", "p/d6/f0", "p/d6/f1", "p/d6/f2", "p/z"]


def begin(s3, bucket, key) -> dict:
    return {"Bucket": bucket, "Key": key, "UploadId": s3.create_multipart_upload(Bucket=bucket, Key=key,
                                                                                 Metadata={"by": "parts"})["UploadId"]}


def complete(s3, upload: dict, etags: dict[int, str]):
    parts = [{"PartNumber": n, "ETag": e} for n, e in sorted(etags.items())]
    return s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


def composite(*parts: bytes) -> str:
    return f'"{hashlib.md5(b"".join(hashlib.md5(p).digest() for p in parts)).hexdigest()}-{len(parts)}"'


def test_multipart_last_part_first(s3, bucket):
    parts = {1: content(5 * MIB, "1"), 2: content(6 * MIB + 1, "2"), 3: content(11, "3")}
    upload = begin(s3, bucket, "k")
    etags = {n: s3.upload_part(**upload, PartNumber=n, Body=parts[n])["ETag"] for n in (3, 1, 2)}
    assert etags == {n: md5(p) for n, p in parts.items()}
    listed = s3.list_parts(**upload)["Parts"]
    assert [(p["PartNumber"], p["Size"], p["ETag"]) for p in listed] == [(n, len(parts[n]), md5(parts[n]))
                                                                         for n in (1, 2, 3)]
    refused(lambda: s3.get_object(Bucket=bucket, Key="k"), "NoSuchKey", 404)
    assert complete(s3, upload, etags)["ETag"] == composite(*parts.values())
    assert body(s3, bucket, "k") == b"".join(parts.values())
    assert body(s3, bucket, "k", Range=f"bytes={5 * MIB - 1}-{5 * MIB}") == parts[1][-1:] + parts[2][:1]
    assert body(s3, bucket, "k", PartNumber=2) == parts[2]
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {"by": "parts"}


def test_multipart_part_repeated_and_cut_off(s3, bucket):
    first, second, other, last = content(5 * MIB, "1"), content(5 * MIB, "2"), content(7 * MIB, "other"), content(1,
                                                                                                                  "3")
    upload = begin(s3, bucket, "k")
    etags = {1: s3.upload_part(**upload, PartNumber=1, Body=first)["ETag"],
             3: s3.upload_part(**upload, PartNumber=3, Body=last)["ETag"]}
    s3.upload_part(**upload, PartNumber=2, Body=other)
    etags[2] = s3.upload_part(**upload, PartNumber=2, Body=second)["ETag"]  # the later one counts
    cut_off(s3.generate_presigned_url("upload_part", Params=upload | {"PartNumber": 2}), announce=len(other),
            send=other[: 3 * MIB])
    listed = s3.list_parts(**upload)["Parts"]
    assert [(p["PartNumber"], p["Size"]) for p in listed] == [(1, 5 * MIB), (2, 5 * MIB), (3, 1)]
    refused(lambda: complete(s3, upload, etags | {2: md5(other)}), "InvalidPart", 400)
    complete(s3, upload, etags)
    assert body(s3, bucket, "k") == first + second + last


def cut_off(url: str, announce: int, send: bytes) -> None:
    """Start a PUT, send only a part of the announced bytes, and close the connection."""
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as s:
        s.sendall(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {announce}\r\n\r\n".encode() + send)
        s.shutdown(socket.SHUT_WR)
        while s.recv(65536):  # until the server has noticed
            pass


def test_put_cut_off_leaves_what_was_there(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"old")
    for key in "k", "new":
        for size in 100, 9 * MIB:
            cut_off(s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": key}), announce=size,
                    send=content(size // 2))
    assert body(s3, bucket, "k") == b"old"
    refused(lambda: s3.get_object(Bucket=bucket, Key="new"), "NoSuchKey", 404)


def test_multipart_completed_with_one_and_three(s3, bucket):
    parts = {n: content(5 * MIB + n, str(n)) for n in (1, 2, 3)}
    upload = begin(s3, bucket, "k")
    etags = {n: s3.upload_part(**upload, PartNumber=n, Body=parts[n])["ETag"] for n in (2, 3, 1)}
    assert complete(s3, upload, {1: etags[1], 3: etags[3]})["ETag"] == composite(parts[1], parts[3])
    assert body(s3, bucket, "k") == parts[1] + parts[3]
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_multipart_refusals_and_abort(s3, bucket):
    upload = begin(s3, bucket, "k")
    etags = {n: s3.upload_part(**upload, PartNumber=n, Body=content(100, str(n)))["ETag"] for n in (1, 2)}
    refused(lambda: complete(s3, upload, etags), "EntityTooSmall", 400)
    refused(lambda: complete(s3, upload, {5: etags[2]}), "InvalidPart", 400)
    assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == [upload["UploadId"]]
    s3.abort_multipart_upload(**upload)
    refused(lambda: s3.list_parts(**upload), "NoSuchUpload", 404)
    refused(lambda: complete(s3, upload, etags), "NoSuchUpload", 404)


def test_multipart_of_copies(s3, bucket):
    data = content(12 * MIB + 5)
    s3.put_object(Bucket=bucket, Key="from", Body=data)
    upload = begin(s3, bucket, "to")
    etags = {}
    for n, (first, last) in {2: (6 * MIB, len(data) - 1), 1: (3, 6 * MIB - 1)}.items():
        done = s3.upload_part_copy(**upload, PartNumber=n, CopySource={"Bucket": bucket, "Key": "from"},
                                   CopySourceRange=f"bytes={first}-{last}")
        etags[n] = done["CopyPartResult"]["ETag"]
    complete(s3, upload, etags)
    assert body(s3, bucket, "to") == data[3:]


@pytest.mark.parametrize("size", [0, 1, 5 * MIB, 17 * MIB + 3])
def test_transfer_manager(s3, bucket, size):
    data = content(size)
    how = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(data), bucket, "k", Config=how, ExtraArgs={"Metadata": {"a": "b"}})
    back = io.BytesIO()
    s3.download_fileobj(bucket, "k", back, Config=how)
    assert back.getvalue() == data
    s3.copy({"Bucket": bucket, "Key": "k"}, bucket, "copy", Config=how)
    assert body(s3, bucket, "copy") == data


def test_presigned(s3, bucket):
    data = content(MIB + 9)
    key = "pre signed/ü+😀"
    put = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": key})
    with urllib.request.urlopen(urllib.request.Request(put, data=data, method="PUT"), timeout=60) as done:
        assert done.status == 200
    get = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key, "ResponseContentType": "x/y"})
    with urllib.request.urlopen(get, timeout=60) as got:
        assert (got.read(), got.headers["Content-Type"]) == (data, "x/y")
    for bad in get.replace("Signature=", "Signature=0"), get.split("?")[0]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(bad, timeout=60)
        assert caught.value.code == 403


def test_post_form(s3, bucket):
    form = s3.generate_presigned_post(bucket, "posted/f.txt")
    boundary, lines = uuid.uuid4().hex, b""
    for name, value in form["fields"].items():
        lines += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    lines += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\nContent-Type: text/plain\r\n\r\n'.encode()
    lines += b"in a form\r\n" + f"--{boundary}--\r\n".encode()
    request = urllib.request.Request(form["url"], data=lines,
                                     headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
    with urllib.request.urlopen(request, timeout=60) as done:
        assert done.status in (200, 201, 204)
    assert body(s3, bucket, "posted/f.txt") == b"in a form"


def test_tagging(s3, bucket):
    tags = [{"Key": "ü", "Value": "a b"}, {"Key": "k", "Value": ""}]
    s3.put_object(Bucket=bucket, Key="k", Body=b"", Tagging="one=1&two=2")
    assert {t["Key"]: t["Value"] for t in s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]} == {"one": "1",
                                                                                                       "two": "2"}
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": tags})
    assert sorted(s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"], key=lambda t: t["Key"]) == sorted(tags, key=lambda t: t["Key"])
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    assert len(s3.get_bucket_tagging(Bucket=bucket)["TagSet"]) == 2


def test_versioning(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    one, two = (s3.put_object(Bucket=bucket, Key="k", Body=b)["VersionId"] for b in (b"one", b"two"))
    assert body(s3, bucket, "k") == b"two"
    assert [body(s3, bucket, "k", VersionId=v) for v in (one, two, "null")] == [b"one", b"two", b"before"]
    marker = s3.delete_object(Bucket=bucket, Key="k")
    assert marker["DeleteMarker"]
    refused(lambda: s3.get_object(Bucket=bucket, Key="k"), "NoSuchKey", 404)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    page = s3.list_object_versions(Bucket=bucket)
    assert [(v["VersionId"], v["IsLatest"]) for v in page["Versions"]] == [(two, False), (one, False), ("null", False)]
    assert [(m["VersionId"], m["IsLatest"]) for m in page["DeleteMarkers"]] == [(marker["VersionId"], True)]
    s3.delete_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
    assert body(s3, bucket, "k") == b"two"
    s3.delete_object(Bucket=bucket, Key="k", VersionId=two)
    assert body(s3, bucket, "k") == b"one"
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    s3.put_object(Bucket=bucket, Key="k", Body=b"after")
    assert [body(s3, bucket, "k"), body(s3, bucket, "k", VersionId="null"),
            body(s3, bucket, "k", VersionId=one)] == [b"after", b"after", b"one"]


def crc(data: bytes, polynomial: int, bits: int) -> bytes:
    """Compute a reflected CRC bit by bit: slow, but independent of any library."""
    ones = (1 << bits) - 1
    value = ones
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return (value ^ ones).to_bytes(bits // 8, "big")


SUMS = {
    "CRC32": lambda d: zlib.crc32(d).to_bytes(4, "big"), "SHA1": lambda d: hashlib.sha1(d).digest(),
    "SHA256": lambda d: hashlib.sha256(d).digest(),
    "CRC32C": lambda d: crc(d, 0x82F63B78, 32), "CRC64NVME": lambda d: crc(d, 0x9A6C9329AC4BC9B5, 64),
}


def text(algorithm: str, data: bytes) -> str:
    return base64.b64encode(SUMS[algorithm](data)).decode()


# the older one needs a library for the others
ALGORITHMS = [a for a in SUMS if NEW or a in ("CRC32", "SHA1", "SHA256")]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_checksums(s3, bucket, algorithm):
    data = content(3001)
    field, want = f"Checksum{algorithm}", text(algorithm, content(3001))
    # in a trailer
    assert s3.put_object(Bucket=bucket, Key="k", Body=io.BytesIO(data), ChecksumAlgorithm=algorithm)[field] == want
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head[field] == want and "ContentEncoding" not in head  # aws-chunked is of the wire, not of the object
    got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (got[field], got["Body"].read()) == (want, data)
    assert s3.put_object(Bucket=bucket, Key="k", Body=data, **{field: want})[field] == want  # in a header
    refused(lambda: s3.put_object(Bucket=bucket, Key="k", Body=b"other", **{field: want}), "BadDigest", 400)
    assert body(s3, bucket, "k") == data
    attributes = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["Checksum", "ObjectSize"])
    assert (attributes["Checksum"][field], attributes["ObjectSize"]) == (want, len(data))


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a != "CRC64NVME"])
def test_checksums_of_parts(s3, bucket, algorithm):
    parts = [content(5 * MIB, "1"), content(2000, "2")]
    field = f"Checksum{algorithm}"
    made = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm=algorithm)
    upload = {"Bucket": bucket, "Key": "k", "UploadId": made["UploadId"]}
    done = [s3.upload_part(**upload, PartNumber=n, Body=p, ChecksumAlgorithm=algorithm) for n, p in enumerate(parts, 1)]
    assert done[1][field] == text(algorithm, parts[1])
    named = [{"PartNumber": n, "ETag": d["ETag"], field: d[field]} for n, d in enumerate(done, 1)]
    whole = base64.b64encode(SUMS[algorithm](b"".join(base64.b64decode(d[field]) for d in done))).decode() + "-2"
    assert s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": named})[field] == whole
    assert s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")[field] == whole
    assert body(s3, bucket, "k") == b"".join(parts)


def test_errors(s3, server, bucket):
    refused(lambda: s3.list_objects_v2(Bucket="no-such-bucket-here"), "NoSuchBucket", 404)
    refused(lambda: s3.head_object(Bucket=bucket, Key="none"), "404", 404)
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    refused(lambda: s3.delete_bucket(Bucket=bucket), "BucketNotEmpty", 409)
    refused(lambda: s3.create_bucket(Bucket="No"), "InvalidBucketName", 400)
    wrong = boto3.client("s3", endpoint_url=server.endpoint, aws_access_key_id=server.access,
                         aws_secret_access_key="wrong" * 4, region_name=server.region)
    refused(wrong.list_buckets, "SignatureDoesNotMatch", 403)
    nobody = boto3.client("s3", endpoint_url=server.endpoint, aws_access_key_id="nobody",
                          aws_secret_access_key="wrong" * 4, region_name=server.region)
    refused(nobody.list_buckets, "InvalidAccessKeyId", 403)


def test_policy_opens_a_bucket_to_everybody(s3, server, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"public")
    url = f"{server.endpoint}/{bucket}/k"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=60)
    assert caught.value.code == 403
    policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*"}]}' % bucket
    s3.put_bucket_policy(Bucket=bucket, Policy=policy)
    with urllib.request.urlopen(url, timeout=60) as got:
        assert got.read() == b"public"
    s3.delete_bucket_policy(Bucket=bucket)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(url, timeout=60)
