# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that a started server prints and those of the documentation, unchanged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from conftest import ROOT

PROGRAM = os.environ.get("NEBULAIO_CLI", str(ROOT / "bin" / "nebulaio"))


def clean(home: Path, **more: str) -> dict[str, str]:
    """Return an environment with aws-cli and without any key of this machine."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "NEBULAIO_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), str(Path(PROGRAM).parent), os.environ["PATH"]])
    return keep | {"PATH": path, "HOME": str(home), "AWS_CONFIG_FILE": str(home / "none"),
                   "AWS_SHARED_CREDENTIALS_FILE": str(home / "none"),
                   "AWS_EC2_METADATA_DISABLED": "true"} | more


@pytest.fixture
def started(tmp_path):
    """Start a server as a person does, and return its output up to the empty line after the commands."""
    processes = []

    def start(*args: str, **env: str) -> str:
        log = open(tmp_path / "log", "ab")
        process = subprocess.Popen(
            [PROGRAM, "server", "--address", "127.0.0.1:0", "--console-address", "127.0.0.1:0", *args],
            env=clean(tmp_path, **env), cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True,
        )
        processes.append(process)
        said = ""
        for line in process.stdout:
            said += line
            if line == "\n" and "  aws " in said:
                return said
        raise RuntimeError(f"the server ended: {said}{(tmp_path / 'log').read_text()}")

    yield start
    for process in processes:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def commands(said: str) -> str:
    return "".join(line for line in said.splitlines(keepends=True) if line.startswith("  "))


@pytest.mark.parametrize("how", ["default", "generated", "environment", "tls"])
def test_printed_commands_work_as_pasted(started, tmp_path, how):
    data = tmp_path / "my data"
    env = {"NEBULAIO_ROOT_USER": "somebody", "NEBULAIO_ROOT_PASSWORD": "some'thing$else"} if how == "environment" else {}
    more = {"default": [], "environment": [], "generated": ["--generate-root-keys"], "tls": ["--tls-generate"]}[how]
    # Relative to the server's directory: the shell below is elsewhere.
    said = started("--data", data.name, *more, **env)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(["bash", "-e"], input=commands(said), env=clean(tmp_path, **env), cwd=elsewhere,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{said}\n{done.stdout}\n{done.stderr}"
    assert "hello.txt" in done.stdout


def endpoint(said: str) -> str:
    return next(line.split()[1] for line in said.splitlines() if line.startswith("endpoint"))


def test_who_owns_a_bucket(started, tmp_path):
    """The statements of docs/server.md under "Who owns a bucket", tested on a server."""
    said = started("--data", "data")
    keys = {"root": "minioadmin"}
    for name, role in {"owner": "userplus", "boss": "admin", "guest": "user"}.items():
        made = subprocess.run([PROGRAM, "user", "add", name, "--role", role, "--data", "data", "--json"], cwd=tmp_path,
                              env=clean(tmp_path), capture_output=True, text=True, check=True)
        keys[name] = json.loads(made.stdout)["secret_key"]

    def s3(who: str):
        return boto3.client("s3", endpoint_url=endpoint(said), region_name="us-east-1", aws_secret_access_key=keys[who],
                            aws_access_key_id="minioadmin" if who == "root" else who)

    def code(who: str, operation: str, **arguments) -> str:
        """Return the error code of a request, or "" if the request succeeds."""
        try:
            getattr(s3(who), operation)(**arguments)
        except ClientError as e:
            return e.response["Error"]["Code"]
        return ""

    def policy(*statements: dict) -> dict:
        return {"Bucket": "house", "Policy": json.dumps({"Statement": list(statements)})}

    def listed(who: str) -> list[str]:
        return [b["Name"] for b in s3(who).list_buckets()["Buckets"]]

    def administer(*argv: str) -> str:
        done = subprocess.run([PROGRAM, "user", *argv, "--data", "data", "--json"], cwd=tmp_path, env=clean(tmp_path),
                              capture_output=True, text=True, check=True)
        return done.stdout

    both = ["arn:aws:s3:::house", "arn:aws:s3:::house/*"]
    a = {"Bucket": "house", "Key": "a"}
    assert code("guest", "create_bucket", Bucket="mine") == "AccessDenied", "a user makes no buckets"
    assert code("owner", "create_bucket", Bucket="house") == ""
    assert code("guest", "put_object", **a) == "AccessDenied"
    administer("grant", "guest", "house")
    assert code("guest", "put_object", **a) == ""
    assert code("owner", "get_object", **a) == "", "the owner reads what others wrote"
    assert listed("guest") == [], "a granted bucket is in no list"
    assert listed("owner") == ["house"] and listed("boss") == ["house"]
    # A policy that speaks of others takes nothing from the owner; a denial does, and also the policy itself.
    assert code("owner", "put_bucket_policy",
                **policy({"Effect": "Allow", "Principal": {"AWS": "guest"}, "Action": "s3:GetObject",
                          "Resource": both[1]})) == ""
    assert code("owner", "put_object", Bucket="house", Key="b") == ""
    assert code("owner", "put_bucket_policy",
                **policy({"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": both})) == ""
    assert code("owner", "get_object", **a) == "AccessDenied"
    assert code("owner", "delete_bucket_policy", Bucket="house") == "AccessDenied"
    for who in ("boss", "root"):
        assert code(who, "get_object", **a) == "", "no policy binds an admin"
    assert code("boss", "delete_bucket_policy", Bucket="house") == ""
    assert code("owner", "put_bucket_policy",
                **policy({"Effect": "Allow", "Principal": {"AWS": "guest"}, "Action": "*", "Resource": both})) == ""
    for principal, action, resource in (("nobody", "s3:*", both), ("guest", "s3:GetObject", both[0])):
        assert code("owner", "put_bucket_policy",
                    **policy({"Effect": "Allow", "Principal": {"AWS": principal}, "Action": action,
                              "Resource": resource})) == "MalformedPolicy"
    # The bucket outlives its owner, and a later account of that name finds it.
    administer("remove", "owner")
    assert code("boss", "get_object", **a) == ""
    keys["owner"] = json.loads(administer("add", "owner"))["secret_key"]
    assert code("owner", "get_object", **a) == ""
