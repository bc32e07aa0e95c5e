# SPDX-License-Identifier: Apache-2.0
"""Buckets by host name, and signatures of version 2, as boto3, aws-cli 1 and s3cmd use them by default or on demand."""

import os
import shutil
import socket
import urllib.error
import urllib.request
import uuid

import boto3
import pytest
from botocore.client import Config
from botocore.exceptions import ClientError
from conftest import DOMAIN

pytestmark = pytest.mark.skipif("S3_ENDPOINT" in os.environ, reason="a server that was given has domains of its own")


@pytest.fixture(autouse=True)
def names_of_the_domain(monkeypatch):
    """Every name below the domain resolves to this machine."""
    ask = socket.getaddrinfo

    def answer(host, *more, **named):
        text = host.decode() if isinstance(host, bytes) else host
        return ask("127.0.0.1" if text and text.endswith(DOMAIN) else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def client(server, style: str, host: str | None = None, **config):
    port = server.host.rsplit(":", 1)[1]
    return boto3.client(
        "s3", endpoint_url=f"http://{host or DOMAIN}:{port}", aws_access_key_id=server.access,
        aws_secret_access_key=server.secret,
        region_name=server.region, config=Config(s3={"addressing_style": style}, retries={"max_attempts": 1}, **config),
    )


def fetch(url: str, method: str = "GET", data: bytes | None = None, **headers) -> bytes:
    # An opener without urllib's own Content-Type, which would have to be signed.
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request) as reply:
        return reply.read()


def upload(form: dict, content: bytes) -> int:
    """Send a form as a browser does."""
    edge = uuid.uuid4().hex
    parts = [f'--{edge}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
             for k, v in form["fields"].items()]
    parts.append(f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'.encode() + content + f"\r\n--{edge}--\r\n".encode())
    request = urllib.request.Request(form["url"], data=b"".join(parts),
                                     headers={"Content-Type": f"multipart/form-data; boundary={edge}"})
    with urllib.request.urlopen(request) as reply:
        return reply.status


@pytest.mark.parametrize("style", ["virtual", "path"])
@pytest.mark.parametrize("version", ["s3v4", "s3", None])
@pytest.mark.parametrize("name", ["plain-", "dots.in.it."])
def test_addressing_and_signatures(server, style, version, name):
    """Each way to name a bucket with each way to sign: operations, URLs and forms."""
    s3 = client(server, style, **({"signature_version": version} if version else {}))
    bucket = name + uuid.uuid4().hex[:12]
    s3.create_bucket(Bucket=bucket)
    for key in ["a", "dir/ünï code+%", "x//y", bucket]:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode(), Metadata={"color": "red"}, ContentType="text/plain")
        reply = s3.get_object(Bucket=bucket, Key=key)
        assert (reply["Body"].read(), reply["Metadata"], reply["ContentType"]) == (key.encode(), {"color": "red"},
                                                                                   "text/plain")
        url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=60)
        assert (f"//{bucket}.{DOMAIN}" in url) == (style == "virtual"), url
        assert fetch(url) == key.encode()
    url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "put", "ContentType": "text/css"},
                                    ExpiresIn=60)
    fetch(url, "PUT", b"put by URL", **{"Content-Type": "text/css"})
    assert s3.get_object(Bucket=bucket, Key="put")["Body"].read() == b"put by URL"
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(url, "GET")
    assert caught.value.code == 403
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "put", "ResponseContentType": "a/b"},
                                    ExpiresIn=60)
    with urllib.request.urlopen(url) as reply:
        assert reply.headers["Content-Type"] == "a/b"
    assert upload(s3.generate_presigned_post(bucket, "form", ExpiresIn=60), b"by form") == 204
    assert s3.get_object(Bucket=bucket, Key="form")["Body"].read() == b"by form"
    up = s3.create_multipart_upload(Bucket=bucket, Key="parts")
    part = s3.upload_part(Bucket=bucket, Key="parts", UploadId=up["UploadId"], PartNumber=1, Body=b"part")
    s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=up["UploadId"],
                                 MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "parts"})
    s3.put_object_tagging(Bucket=bucket, Key="copy", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    assert s3.get_object_tagging(Bucket=bucket, Key="copy")["TagSet"] == [{"Key": "k", "Value": "v"}]
    keys = [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert len(keys) == 8
    assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys]})["Deleted"]) == 8
    s3.delete_bucket(Bucket=bucket)


def test_wrong_secret(server):
    for version in ("s3", "s3v4"):
        s3 = boto3.client("s3", endpoint_url=server.endpoint, aws_access_key_id=server.access,
                          aws_secret_access_key="wrong", region_name=server.region,
                          config=Config(signature_version=version, retries={"max_attempts": 1}))
        with pytest.raises(ClientError) as caught:
            s3.list_buckets()
        assert caught.value.response["Error"]["Code"] == "SignatureDoesNotMatch"


@pytest.mark.skipif(not shutil.which("s3cmd"), reason="s3cmd is not installed")
def test_s3cmd_with_version_2(server, run, tmp_path):
    common = ["s3cmd", "--no-ssl", f"--host={server.host}", f"--host-bucket={server.host}",
              f"--access_key={server.access}", f"--secret_key={server.secret}",
              f"--config={tmp_path / 'none'}", "--signature-v2"]
    (tmp_path / "none").write_text("[default]\n")
    bucket = "s3cmd-" + uuid.uuid4().hex[:12]
    (tmp_path / "file").write_bytes(b"by s3cmd")
    run(*common, "mb", f"s3://{bucket}")
    run(*common, "put", tmp_path / "file", f"s3://{bucket}/a b")
    run(*common, "get", f"s3://{bucket}/a b", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"by s3cmd"
    assert fetch(run(*common, "signurl", f"s3://{bucket}/a b", "+60").strip()) == b"by s3cmd"
    run(*common, "rb", "--recursive", "--force", f"s3://{bucket}")


@pytest.mark.skipif(not shutil.which("aws"), reason="aws-cli is not installed")
def test_aws_presign_by_default(server, run, tmp_path):
    env = {"AWS_ACCESS_KEY_ID": server.access, "AWS_SECRET_ACCESS_KEY": server.secret,
           "AWS_DEFAULT_REGION": server.region}
    bucket = "awscli-" + uuid.uuid4().hex[:12]
    aws = ["aws", "--endpoint-url", server.endpoint, "s3"]
    (tmp_path / "file").write_bytes(b"by aws")
    run(*aws, "mb", f"s3://{bucket}", env=env)
    run(*aws, "cp", tmp_path / "file", f"s3://{bucket}/key", env=env)
    assert fetch(run(*aws, "presign", f"s3://{bucket}/key", env=env).strip()) == b"by aws"
    run(*aws, "rb", "--force", f"s3://{bucket}", env=env)
