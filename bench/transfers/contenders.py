# SPDX-License-Identifier: Apache-2.0
"""The transfer clients and the command lines by which each copies one object and a whole prefix."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

CHILD = Path(__file__).resolve().parent / "child.py"


@dataclass(frozen=True)
class Server:
    """The S3 server that all contenders read from."""

    endpoint: str
    access: str
    secret: str
    region: str
    bucket: str = "bench"


@dataclass(frozen=True)
class Contender:
    """One transfer client. `cp` and `sync` are its arguments, with {placeholders} for the names of source and target."""

    name: str
    version: str
    cp: list[str]
    sync: list[str]
    env: dict[str, str] = field(default_factory=dict)
    settings: str = ""

    def command(self, row: str, server: Server, source: str, target: Path) -> list[str]:
        """Return the command line that copies an object (cp) or a prefix (sync) to a file or folder."""
        names = {"endpoint": server.endpoint, "bucket": server.bucket, "source": source, "target": str(target)}
        return [part.format(**names) for part in (self.cp if row == "cp" else self.sync)]

    def environment(self, server: Server, home: Path) -> dict[str, str]:
        """Return the environment of the client, which sees no settings of this machine."""
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RCLONE_", "S3_", "NEBULAIO_"))}
        keys = {"AWS_ACCESS_KEY_ID": server.access, "AWS_SECRET_ACCESS_KEY": server.secret, "AWS_REGION": server.region,
                "AWS_DEFAULT_REGION": server.region, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(home),
                "AWS_ENDPOINT_URL": server.endpoint}
        return keep | keys | {k: v.format(endpoint=server.endpoint, home=home) for k, v in self.env.items()}


def said(*command: str) -> str:
    """Return the first line that a command prints, or "" if the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = done.stdout.strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else ""


def python_child(name: str, package: str, python: str) -> Contender | None:
    """Return a contender that is a library of Python, driven by child.py."""
    version = said(python, "-c", f"from importlib.metadata import version; print(version({package!r}))")
    if not version:
        return None
    line = [python, str(CHILD), package]
    tail = ["{endpoint}", "{bucket}", "{source}", "{target}"]
    settings = "awscrt's client, target of 100 Gb/s" if package == "boto3" else "ranges of 8 MiB in 16 threads; 64 objects at once"
    return Contender(name, version, [*line, "cp", *tail], [*line, "sync", *tail], settings=settings)


def all_of(nebulaio: str, rclone: str | None) -> tuple[list[Contender], dict[str, str]]:
    """Return the contenders that can run here, and for each missing one the reason."""
    found: list[Contender] = []
    missing: dict[str, str] = {}
    bin_dir = Path(sys.executable).parent
    whole, prefix = "s3://{bucket}/{source}", "s3://{bucket}/{source}/"
    found.append(Contender("nebulaio", said(nebulaio, "--version"), [nebulaio, "cp", whole, "{target}"],
                           [nebulaio, "sync", prefix, "{target}"]))
    if (s5cmd := bin_dir / "s5cmd").exists():
        line = [str(s5cmd), "--log", "error", "--endpoint-url", "{endpoint}"]
        found.append(Contender("s5cmd", said(str(s5cmd), "version"),
                               [*line, "cp", "--concurrency", "16", whole, "{target}"],
                               [*line, "cp", prefix + "*", "{target}/"],
                               settings="cp --concurrency 16; prefixes by cp with a wildcard, 256 workers"))
    else:
        missing["s5cmd"] = f"{s5cmd} does not exist"
    if rclone:
        env = {"RCLONE_CONFIG": "/dev/null", "RCLONE_CONFIG_M_TYPE": "s3", "RCLONE_CONFIG_M_PROVIDER": "Minio",
               "RCLONE_CONFIG_M_ENV_AUTH": "true", "RCLONE_CONFIG_M_ENDPOINT": "{endpoint}"}
        found.append(Contender("rclone", said(rclone, "version"),
                               [rclone, "copyto", "--multi-thread-streams", "16", "m:{bucket}/{source}", "{target}"],
                               [rclone, "copy", "--transfers", "64", "--checkers", "64", "m:{bucket}/{source}",
                                "{target}"],
                               env, "--multi-thread-streams 16; --transfers 64 --checkers 64"))
    else:
        missing["rclone"] = "it could not be built"
    if (aws := bin_dir / "aws").exists():
        line = [str(aws), "--endpoint-url", "{endpoint}", "s3", "cp", "--quiet"]
        found.append(Contender("aws-cli", said(str(aws), "--version").split()[0], [*line, whole, "{target}"],
                               [*line, "--recursive", prefix, "{target}"], {"AWS_CONFIG_FILE": "{home}/aws-config"},
                               "max_concurrent_requests = 64; CRT is measured by boto3, because this version has none and "
                               "the CRT of aws-cli 2.9 in Debian accepts no endpoint without TLS"))
    else:
        missing["aws-cli"] = f"{aws} does not exist"
    for name, package in (("CRT (boto3)", "boto3"), ("obstore", "obstore")):
        if child := python_child(name, package, sys.executable):
            found.append(child)
        else:
            missing[name] = f"the package {package} is not installed"
    return found, missing


AWS_CONFIG = "[default]\ns3 =\n  max_concurrent_requests = 64\n"
