# SPDX-License-Identifier: Apache-2.0
"""Clients that travel to other processes, as multiprocessing and data loaders send them."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path

import nebulaio
import nebulaio.safetensors as ns
import numpy
import pytest
import serving
from nebulaio import GPUDirectClient, errors
from nebulaio._connection import with_environment
from support import python

SETTINGS = {"region": "eu", "door": "off", "connections": 3, "verify": False, "timeout": 2.5, "retries": 1,
            "buffer_pool_size": "32MiB",
            "workers": 2, "device": "cpu"}


def test_settings_travel() -> None:
    client = GPUDirectClient("http://h:1", "key", "secret", **SETTINGS)  # type: ignore[arg-type]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        made = pickle.loads(pickle.dumps(client, protocol))
        assert (made._options, made._tuning, made.closed) == (client._options, client._tuning, False)
        assert type(made) is GPUDirectClient and "secret" not in repr(made)
    assert copy.copy(client)._options == copy.deepcopy(client)._options == client._options


def test_a_closed_client_stays_closed() -> None:
    client = GPUDirectClient("http://h:1", "key", "secret")
    client.close()
    with pytest.raises(errors.ClosedError):
        pickle.loads(pickle.dumps(client)).stat("bucket", "key")


def test_keys_of_the_environment_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", "from-the-environment")
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", "hidden-secret")
    text = pickle.dumps(GPUDirectClient("http://h:1"))
    assert b"hidden-secret" not in text and b"from-the-environment" not in text
    given = pickle.dumps(GPUDirectClient("http://h:1", "key", "given-secret"))
    assert b"given-secret" in given  # in the clear, as docs/python.md says


def read(client: GPUDirectClient) -> bytes:
    """What another process does with a client that it was sent."""
    buffer = bytearray(5)
    client.read_to_gpu("bucket", "pickled", buffer)
    return bytes(buffer)


IN_PYTHON = """
import os, sys
import nebulaio
nebulaio.devices()
os.environ.update(zip(('NEBULAIO_ENDPOINT', 'NEBULAIO_ACCESS_KEY', 'NEBULAIO_SECRET_KEY'), sys.argv[1:]))
client = nebulaio.GPUDirectClient()
client.write_from_gpu('bucket', 'environment', b'hello')
print(client.stat('bucket', 'environment').size, client.endpoint)
"""


def test_variables_that_python_has_set_are_seen(tmp_path: Path) -> None:
    """Go's runtime sees the environment of the start alone."""
    with serving.serving(tmp_path) as server:
        assert python(IN_PYTHON, server.endpoint, *server.keys.values()).split() == ["5", "None"]


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({}, {}, {"endpoint": "http://localhost:9000", "region": "us-east-1"}),
        ({"endpoint": "http://a"}, {"NEBULAIO_ENDPOINT": "http://b"}, {"endpoint": "http://a"}),
        ({}, {"AWS_ENDPOINT_URL": "http://c", "AWS_ENDPOINT_URL_S3": "http://b"}, {"endpoint": "http://b"}),
        ({}, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"},
         {"access_key": "a", "secret_key": "s", "session_token": "t"}),
        ({}, {"NEBULAIO_ACCESS_KEY": "n", "NEBULAIO_SECRET_KEY": "m", "AWS_ACCESS_KEY_ID": "a",
              "AWS_SESSION_TOKEN": "t"}, {"access_key": "n", "secret_key": "m", "session_token": None}),
        ({"access_key": "k", "secret_key": "x"}, {"NEBULAIO_ACCESS_KEY": "n", "NEBULAIO_SECRET_KEY": "m"},
         {"access_key": "k", "secret_key": "x"}),
        ({}, {"AWS_DEFAULT_REGION": "eu"}, {"region": "eu"}),
    ],
)
def test_what_the_environment_says(given: dict[str, str], environment: dict[str, str],
                                   expected: dict[str, str]) -> None:
    found = with_environment(given, environment)
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_another_process_connects_anew(tmp_path: Path, start: str) -> None:
    with serving.serving(tmp_path) as server, GPUDirectClient(server.endpoint, **server.keys) as client:
        client.write_from_gpu("bucket", "pickled", b"hello")  # it is connected when it is sent
        with multiprocessing.get_context(start).Pool(1) as pool:
            assert pool.apply(read, (client,)) == b"hello"
        assert read(client) == b"hello"


def test_what_is_open_says_why_it_cannot_travel(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    ns.save_file({"a": numpy.arange(4.0)}, path)
    with ns.safe_open(path, "numpy") as file, ns.stream(path, device="cpu",
                                                        framework="numpy") as stream, nebulaio.CuFile(path) as raw:
        for one in (file, file.get_slice("a"), stream, raw):
            for travel in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=r"open files of this process.*fix: pass the path"):
                    travel(one)
