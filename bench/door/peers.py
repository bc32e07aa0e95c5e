# SPDX-License-Identifier: Apache-2.0
"""Other programs' ways to bring an object to a GPU. Each reader fills a buffer on the device."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import urllib.parse
import urllib.request

import numpy as np


def signed(server, method: str, path: str) -> urllib.request.Request:
    """Return a request with AWS Signature Version 4, for a body that is not signed."""
    host = urllib.parse.urlsplit(server.endpoint).netloc
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": stamp}
    names = ";".join(headers)
    canonical = "\n".join([method, path, "", *(f"{k}:{v}" for k, v in headers.items()), "", names, "UNSIGNED-PAYLOAD"])
    scope = f"{day}/us-east-1/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + server.password).encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={server.user}/{scope}, SignedHeaders={names}, Signature={signature}"
    del headers["host"]
    return urllib.request.Request(server.endpoint + path, method=method, headers=headers)


def readers(server, bucket: str, key: str, size: int, dev, pinned, notes: dict) -> dict:
    """Return the readers that work here, by name; notes gets the reasons why others do not."""
    out = {}
    out["plain GET, then a pinned copy"] = lambda buffer: plain_get(server, bucket, key, dev, pinned, buffer)
    missing = notes.setdefault("peers not measured", {})
    try:
        out["boto3, then torch.frombuffer().cuda()"] = boto3_reader(server, bucket, key, dev)
        missing.pop("boto3", None)
    except ImportError as e:
        missing["boto3"] = str(e)
    try:
        out["s3torchconnector, then .cuda()"] = s3torch_reader(server, bucket, key, dev)
        missing.pop("s3torchconnector", None)
    except Exception as e:  # it may be installed and refuse to start  # noqa: BLE001
        missing["s3torchconnector"] = repr(e)
    return out


def plain_get(server, bucket, key, dev, pinned, buffer) -> None:
    view = memoryview(pinned.numpy() if hasattr(pinned, "numpy") else pinned).cast("B")
    request = signed(server, "GET", f"/{bucket}/{key}")
    parts = urllib.parse.urlsplit(request.full_url)
    conn = http.client.HTTPConnection(parts.netloc)
    conn.request("GET", parts.path, headers=dict(request.header_items()))
    reply = conn.getresponse()
    at = 0
    while at < len(view):
        n = reply.readinto(view[at : at + (8 << 20)])
        if n == 0:
            raise SystemExit(f"the body ended after {at} bytes")
        at += n
    conn.close()
    dev.copy_in(buffer, pinned)


def boto3_reader(server, bucket, key, dev):
    import io

    import boto3

    client = boto3.client("s3", endpoint_url=server.endpoint, aws_access_key_id=server.user,
                          aws_secret_access_key=server.password, region_name="us-east-1")

    def read(buffer) -> None:
        body = io.BytesIO()
        client.download_fileobj(bucket, key, body)
        to_device(dev, buffer, body.getbuffer())

    return read


def s3torch_reader(server, bucket, key, dev):
    import os

    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client

    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = server.user, server.password
    client = S3Client(region="us-east-1", endpoint=server.endpoint,
                      s3client_config=S3ClientConfig(force_path_style=True))

    def read(buffer) -> None:
        to_device(dev, buffer, client.get_object(bucket, key).read())

    return read


def to_device(dev, buffer, data) -> None:
    if dev.name == "host":
        buffer[:] = np.frombuffer(data, np.uint8)
        return
    import torch

    moved = torch.frombuffer(data, dtype=torch.uint8).to(dev.device)
    buffer.copy_(moved)
    torch.cuda.synchronize()
