# SPDX-License-Identifier: Apache-2.0
"""What a started server prints for its user to copy, and what the pages tell to paste, run as they are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PROGRAM = os.environ.get("NEBULAIO_CLI", str(ROOT / "bin" / "nebulaio"))


def clean(home: Path, **more: str) -> dict[str, str]:
    """An environment with aws-cli and without any key of this machine."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "NEBULAIO_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), str(Path(PROGRAM).parent), os.environ["PATH"]])
    return keep | {"PATH": path, "HOME": str(home), "AWS_CONFIG_FILE": str(home / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(home / "none"),
                   "AWS_EC2_METADATA_DISABLED": "true"} | more


@pytest.fixture
def started(tmp_path):
    """Starts a server as a person does, and returns what it printed until the empty line behind the commands."""
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
    done = subprocess.run(["bash", "-e"], input=commands(said), env=clean(tmp_path, **env), cwd=elsewhere, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{said}\n{done.stdout}\n{done.stderr}"
    assert "hello.txt" in done.stdout


def block(page: str, name: str) -> str:
    """The shell commands behind a mark in a page."""
    text = (ROOT / page).read_text()
    _, found, rest = text.partition(f"<!-- test: {name} -->\n```sh\n")
    assert found, f"{page} has no block {name}"
    return rest.partition("\n```\n")[0] + "\n"


def endpoint(said: str) -> str:
    return next(line.split()[1] for line in said.splitlines() if line.startswith("endpoint"))


def test_policy_of_the_page_works_as_pasted(started, tmp_path):
    said = started("--data", "data")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nebulaio").symlink_to(PROGRAM)
    script = block("docs/server.md", "policy").replace("http://127.0.0.1:9000", endpoint(said))
    assert script.count(endpoint(said)) == 1
    done = subprocess.run(["bash", "-e"], input=script, env=clean(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.endswith("hello\n"), done.stdout


def test_who_owns_a_bucket(started, tmp_path):
    """What docs/server.md says under "Who owns a bucket", asked of a server."""
    said = started("--data", "data")
    keys = {"root": "minioadmin"}
    for name, role in {"owner": "userplus", "boss": "admin", "guest": "user"}.items():
        made = subprocess.run([PROGRAM, "user", "add", name, "--role", role, "--data", "data", "--json"], cwd=tmp_path, env=clean(tmp_path), capture_output=True, text=True, check=True)
        keys[name] = json.loads(made.stdout)["secret_key"]

    def aws(who: str, *argv: str) -> subprocess.CompletedProcess:
        env = clean(tmp_path, AWS_ACCESS_KEY_ID="minioadmin" if who == "root" else who, AWS_SECRET_ACCESS_KEY=keys[who], AWS_DEFAULT_REGION="us-east-1")
        return subprocess.run(["aws", "--endpoint-url", endpoint(said), *argv], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)

    def may(who: str, *argv: str) -> bool:
        done = aws(who, *argv)
        assert done.returncode == 0 or "AccessDenied" in done.stderr or "403" in done.stderr, done.stderr
        return done.returncode == 0

    def policy(*statements: dict) -> str:
        (tmp_path / "policy.json").write_text(json.dumps({"Statement": list(statements)}))
        return "file://policy.json"

    both = ["arn:aws:s3:::house", "arn:aws:s3:::house/*"]
    (tmp_path / "file").write_text("x")
    assert not may("guest", "s3", "mb", "s3://mine"), "a user makes no buckets"
    assert may("owner", "s3", "mb", "s3://house")
    assert not may("guest", "s3", "cp", "file", "s3://house/a")
    subprocess.run([PROGRAM, "user", "grant", "guest", "house", "--data", "data"], cwd=tmp_path, env=clean(tmp_path), check=True, capture_output=True)
    assert may("guest", "s3", "cp", "file", "s3://house/a")
    assert may("owner", "s3", "cp", "s3://house/a", "-"), "the owner reads what others wrote"
    assert aws("guest", "s3", "ls").stdout == "", "a granted bucket is in no list"
    assert "house" in aws("owner", "s3", "ls").stdout and "house" in aws("boss", "s3", "ls").stdout
    # A policy that speaks of others takes nothing from the owner; a denial does, and also the policy itself.
    assert may("owner", "s3api", "put-bucket-policy", "--bucket", "house", "--policy", policy({"Effect": "Allow", "Principal": {"AWS": "guest"}, "Action": "s3:GetObject", "Resource": both[1]}))
    assert may("owner", "s3", "cp", "file", "s3://house/b")
    assert may("owner", "s3api", "put-bucket-policy", "--bucket", "house", "--policy", policy({"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": both}))
    assert not may("owner", "s3", "cp", "s3://house/a", "-")
    assert not may("owner", "s3api", "delete-bucket-policy", "--bucket", "house")
    for who in ("boss", "root"):
        assert may(who, "s3", "cp", "s3://house/a", "-"), "no policy binds an admin"
    assert may("boss", "s3api", "delete-bucket-policy", "--bucket", "house")
    assert "MalformedPolicy" in aws("owner", "s3api", "put-bucket-policy", "--bucket", "house", "--policy", policy({"Effect": "Allow", "Principal": {"AWS": "guest"}, "Action": "*", "Resource": both})).stderr
    assert "MalformedPolicy" in aws("owner", "s3api", "put-bucket-policy", "--bucket", "house", "--policy", policy({"Effect": "Allow", "Principal": {"AWS": "nobody"}, "Action": "s3:*", "Resource": both})).stderr
    assert "MalformedPolicy" in aws("owner", "s3api", "put-bucket-policy", "--bucket", "house", "--policy", policy({"Effect": "Allow", "Principal": {"AWS": "guest"}, "Action": "s3:GetObject", "Resource": both[0]})).stderr
    # The bucket outlives its owner, and a later account of that name finds it.
    subprocess.run([PROGRAM, "user", "remove", "owner", "--data", "data"], cwd=tmp_path, env=clean(tmp_path), check=True, capture_output=True)
    assert may("boss", "s3", "cp", "s3://house/a", "-")
    made = subprocess.run([PROGRAM, "user", "add", "owner", "--data", "data", "--json"], cwd=tmp_path, env=clean(tmp_path), capture_output=True, text=True, check=True)
    keys["owner"] = json.loads(made.stdout)["secret_key"]
    assert may("owner", "s3", "cp", "s3://house/a", "-")
