# SPDX-License-Identifier: Apache-2.0
"""What a started server prints for its user to copy, and what the pages tell to paste, run as they are."""

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
