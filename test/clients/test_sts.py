# SPDX-License-Identifier: Apache-2.0
"""Temporary keys with boto3: AssumeRole, AssumeRoleWithWebIdentity with a real issuer, and GetCallerIdentity."""

import datetime
import json
import os
import subprocess
import urllib.error
import urllib.request

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from conftest import ROOT, running

READ_TEAM = json.dumps({"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::models/team/*"}]})


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    """A running OpenID Connect issuer. The variable NEBULAIO_TEST_ISSUER names its program."""
    program = os.environ.get("NEBULAIO_TEST_ISSUER")
    if not program:
        program = str(tmp_path_factory.mktemp("issuer") / "issuer")
        subprocess.run(["go", "build", "-o", program, "./test/issuer/serve"], cwd=ROOT, check=True)
    with subprocess.Popen([program, "-alg", "RS256"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield json.loads(process.stdout.readline())["issuer"]
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.fixture(scope="module")
def server(issuer, tmp_path_factory):
    """A server that accepts the issuer's tokens, with a bucket of two objects."""
    file = tmp_path_factory.mktemp("settings") / "server.yaml"
    file.write_text(f"oidc:\n  company:\n    issuer: {issuer}\n    audiences: [storage]\n")
    with running(tmp_path_factory, "--config", str(file)) as started:
        s3 = client(started, "s3")
        s3.create_bucket(Bucket="models")
        for key in ("a", "team/a"):
            s3.put_object(Bucket="models", Key=key, Body=b"content")
        yield started


def client(server, service, keys=None, **config):
    """Return a boto3 client with temporary keys, or with those of the administrator."""
    if keys is None:
        keys = {"AccessKeyId": server.access, "SecretAccessKey": server.secret, "SessionToken": None}
    return boto3.client(service, endpoint_url=server.endpoint, region_name=server.region,
                        aws_access_key_id=keys["AccessKeyId"], aws_secret_access_key=keys["SecretAccessKey"],
                        aws_session_token=keys["SessionToken"],
                        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, **config))


def token(issuer, **wish):
    """Return a token of the issuer."""
    body = {"sub": "alice", "aud": ["storage"], "seconds": 600, "claims": {"policy": ["readonly"]}} | wish
    request = urllib.request.Request(issuer + "/token", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)["id_token"]


def exchange(server, text, **more):
    return client(server, "sts").assume_role_with_web_identity(
        RoleArn="arn:aws:iam::000000000000:role/reader", RoleSessionName="alice@work", WebIdentityToken=text, **more)


def code(call, *args, **kwargs):
    """Return the code of the error that a call ends with."""
    with pytest.raises(ClientError) as caught:
        call(*args, **kwargs)
    return caught.value.response["Error"]["Code"]


def test_assume_role(server):
    sts = client(server, "sts")
    reply = sts.assume_role(RoleArn="arn:aws:iam::000000000000:role/reader", RoleSessionName="build-7",
                            DurationSeconds=900,
                            Policy=READ_TEAM)
    keys = reply["Credentials"]
    left = keys["Expiration"] - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(minutes=10) < left <= datetime.timedelta(minutes=15)
    assert reply["AssumedRoleUser"]["Arn"] == "arn:aws:sts::000000000000:assumed-role/reader/build-7"
    s3 = client(server, "s3", keys)
    assert s3.get_object(Bucket="models", Key="team/a")["Body"].read() == b"content"
    assert code(s3.get_object, Bucket="models", Key="a") == "AccessDenied"
    assert code(s3.put_object, Bucket="models", Key="team/a", Body=b"") == "AccessDenied"
    assert code(client(server, "sts", keys).assume_role, RoleArn="arn:aws:iam::000000000000:role/reader",
                RoleSessionName="again") == "AccessDenied"


def test_caller_identity(server):
    root = client(server, "sts").get_caller_identity()
    assert root["Arn"] == "arn:aws:iam::000000000000:root" and root["Account"] == "000000000000"
    keys = client(server, "sts").assume_role(RoleArn="arn:aws:iam::000000000000:role/r",
                                             RoleSessionName="me")["Credentials"]
    mine = client(server, "sts", keys).get_caller_identity()
    assert mine["Arn"] == "arn:aws:sts::000000000000:assumed-role/r/me"
    assert mine["UserId"] == keys["AccessKeyId"] + ":me"
    wrong = keys | {"SessionToken": keys["SessionToken"][:-1]}
    assert code(client(server, "sts", wrong).get_caller_identity) == "InvalidClientTokenId"
    wrong = keys | {"SecretAccessKey": "wrong-secret"}
    assert code(client(server, "sts", wrong).get_caller_identity) == "SignatureDoesNotMatch"


def test_web_identity(server, issuer):
    reply = exchange(server, token(issuer))
    assert reply["SubjectFromWebIdentityToken"] == "alice" and reply["Audience"] == "storage"
    s3 = client(server, "s3", reply["Credentials"])
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"content"
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["models"]
    assert code(s3.put_object, Bucket="models", Key="a", Body=b"") == "AccessDenied"
    assert code(exchange, server, token(issuer, seconds=-1)) == "ExpiredTokenException"
    assert code(exchange, server, token(issuer, aud=["other"])) == "InvalidIdentityToken"
    assert code(exchange, server, token(issuer, claims={})) == "AccessDenied"
    assert code(exchange, server, token(issuer), DurationSeconds=43201) == "ValidationError"
    assert code(exchange, server, token(issuer), Policy="{") == "MalformedPolicyDocument"


def test_web_identity_after_a_rotation(server, issuer):
    old = token(issuer)
    for algorithm in ("ES256", "EdDSA"):
        with urllib.request.urlopen(f"{issuer}/rotate?alg={algorithm}", b"", timeout=30) as reply:
            assert reply.status == 200
        exchange(server, token(issuer))
    exchange(server, old)  # its key is still published


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_presigned_urls(server, issuer, version):
    keys = exchange(server, token(issuer))["Credentials"]
    s3 = client(server, "s3", keys, signature_version=version)
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
    with urllib.request.urlopen(url, timeout=30) as reply:
        assert reply.read() == b"content"
    lower = "x-amz-security-token" if version == "s3" else "X-Amz-Security-Token"
    assert lower in url
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(url.replace(lower, "x-nothing"), timeout=30)


def test_presigned_form(server):
    """A form of a session has the token among its fields."""
    keys = client(server, "sts").assume_role(RoleArn="arn:aws:iam::000000000000:role/r",
                                             RoleSessionName="me")["Credentials"]
    post = client(server, "s3", keys).generate_presigned_post("models", "forms/a")
    assert post["fields"]["x-amz-security-token"] == keys["SessionToken"]
    assert upload(post) == 204
    post["fields"]["x-amz-security-token"] = "another"
    assert upload(post) in (400, 403)


def upload(post) -> int:
    boundary, body = "boundary7", b""
    for name, value in post["fields"].items():
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    body += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--{boundary}--\r\n'.encode()
    request = urllib.request.Request(post["url"], body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status
    except urllib.error.HTTPError as e:
        return e.code


def test_credentials_of_a_file(server, issuer, tmp_path, monkeypatch):
    """The SDK itself exchanges the token in a file, as in a container of Kubernetes, and gets new keys when they end."""
    file = tmp_path / "token"
    file.write_text(token(issuer))
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(file))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::000000000000:role/reader")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", server.region)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3 = boto3.Session().client("s3", config=Config(s3={"addressing_style": "path"}))
    assert s3.get_object(Bucket="models", Key="team/a")["Body"].read() == b"content"
