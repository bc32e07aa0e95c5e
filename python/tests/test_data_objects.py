# SPDX-License-Identifier: Apache-2.0
"""nebulaio.data.Loader over objects of a server: values, a server that hangs, and one that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import serving
from nebulaio.data import Loader
from nebulaio.errors import NebulaioError, NotFoundError
from nebulaio.gpudirect import GPUDirectClient
from support import python

OBJECTS = 40


def content(number: int) -> bytes:
    return bytes([number]) * (500 + number)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[serving.Server]:
    with serving.serving(tmp_path, buckets=("train",)) as made:
        for number in range(OBJECTS):
            made.put("train", f"set/{number:03d}.bin", content(number))
        yield made


def make(server: serving.Server, **options: Any) -> Loader:
    return Loader("s3://train/set/", **{"batch_size": 4, "device": "cpu", "framework": "numpy", "format": "files",
                                        **options})


def test_objects_are_samples(server: serving.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    account = {"endpoint": server.endpoint, **server.keys}
    monkeypatch.setenv("NEBULAIO_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", server.keys["access_key"])
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", server.keys["secret_key"])
    client = GPUDirectClient(**account, door="off")
    orders = set()
    for options in ({}, account, {"client": client}):
        with make(server, **options) as loader:
            keys = []
            for batch in loader:
                (values,) = batch.values()
                assert [part.tobytes() for part in values] == [content(n) for n in batch.indices]
                keys += batch.sample_keys
            assert len(set(keys)) == OBJECTS
            orders.add(tuple(keys))
            assert loader.report()["total"]["bytes"] == sum(len(content(n)) for n in range(OBJECTS))
    assert len(orders) == 1
    with pytest.raises(NotFoundError, match="s3://train/none/"):
        Loader("s3://train/none/", batch_size=4, device="cpu", framework="numpy")


def test_a_server_that_dies(server: serving.Server) -> None:
    client = GPUDirectClient(server.endpoint, **server.keys, door="off", retries=1)
    with make(server, client=client, ahead=4000) as loader:
        epoch = iter(loader)
        for _ in range(2):
            next(epoch)
        server.kill()
        got = 2
        with pytest.raises(NebulaioError, match=r"s3://train/set/\d\d\d.bin") as failed:
            for _ in epoch:
                got += 1
        assert "sample" in str(failed.value)
        assert loader.state_dict()["position"] == 4 * got < OBJECTS


HANG = """
import os, signal, sys
from nebulaio.data import Loader
from nebulaio.gpudirect import GPUDirectClient

pid, endpoint, access, secret = sys.argv[1:]
client = GPUDirectClient(endpoint, access_key=access, secret_key=secret, door="off")
loader = Loader("s3://train/set/", batch_size=4, device="cpu", framework="numpy", format="files", ahead=4000, client=client)
epoch = iter(loader)
keys = next(epoch).sample_keys
real = loader._feed._engine.system.functions.nebulaio_loader_next

class Interrupting:
    # Ctrl-C arrives while the loop waits.
    __name__ = "nebulaio_loader_next"
    def __call__(self, *arguments):
        status = real(*arguments)
        if status == -1:
            signal.raise_signal(signal.SIGINT)
        return status

class Functions:
    nebulaio_loader_next = Interrupting()
    def __getattr__(self, name):
        return getattr(functions, name)

functions = loader._feed._engine.system.functions
os.kill(int(pid), signal.SIGSTOP)
loader._feed._engine.system.functions = Functions()
try:
    for batch in epoch:
        keys += batch.sample_keys
except KeyboardInterrupt:
    print("interrupted")
loader._feed._engine or print("ended")
loader._data.system.functions = functions
os.kill(int(pid), signal.SIGCONT)
for batch in epoch:
    keys += batch.sample_keys
assert len(set(keys)) == len(keys) == 40, keys
print("went on")
"""


def test_ctrl_c_while_a_server_hangs(server: serving.Server) -> None:
    try:
        said = python(HANG, server.process.pid, server.endpoint, *server.keys.values())
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert said == "interrupted\nended\nwent on\n"
