# SPDX-License-Identifier: Apache-2.0
"""Options: configure() and environment, their forms and their order."""

from __future__ import annotations

from pathlib import Path

import nebulaio
import pytest
from nebulaio import _device, _options, _process
from nebulaio.errors import DeviceError, InvalidError
from nebulaio.safetensors import load_file


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("134217728", 1 << 27), ("128MiB", 1 << 27), ("128M", 1 << 27), ("2GB", 2 * 10**9),
     ("1.5 GiB", 3 << 29)],
)
def test_sizes(text: str, size: int) -> None:
    assert _options.check("buffer_pool_size", text, "x") == size


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("buffer_pool_size", 0),
        ("buffer_pool_size", -1),
        ("buffer_pool_size", "0.3"),
        ("buffer_pool_size", "1 XB"),
        ("max_transfer_size", True),
        ("max_transfer_size", 1.5),
        ("workers", "4k"),
        ("workers", -2),
        ("queue_depth", "²"),
        ("io", "mmap"),
        ("devices", None),
    ],
)
def test_bad_values_are_refused_with_their_source(key: str, value: object) -> None:
    with pytest.raises(InvalidError, match="^here: "):
        _options.check(key, value, "here")


def test_environment() -> None:
    found = _options.from_environment(
        {"NEBULAIO_BUFFER_POOL_SIZE": "64MiB", "NEBULAIO_WORKERS": " 3 ", "NEBULAIO_IO": "", "NEBULAIO_DEVICES": "off"}
    )
    assert found == {"buffer_pool_size": 64 << 20, "workers": 3, "devices": "off"}
    with pytest.raises(InvalidError, match="NEBULAIO_QUEUE_DEPTH"):
        _options.from_environment({"NEBULAIO_QUEUE_DEPTH": "deep"})


def test_configure_beats_environment_and_adds_up(fake: _process.Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULAIO_WORKERS", "7")
    monkeypatch.setenv("NEBULAIO_QUEUE_DEPTH", "9")
    nebulaio.configure(workers=2)
    nebulaio.configure(io="pread", buffer_pool_size="1MiB")
    assert nebulaio.devices()["options"] == {"workers": 2, "queue_depth": 9, "io": "pread", "buffer_pool_size": 1 << 20}


def test_configure_after_use_is_refused(fake: _process.Holder) -> None:
    nebulaio.devices()
    with pytest.raises(InvalidError, match="before the first"):
        nebulaio.configure(workers=2)


def test_failed_open_can_be_configured_away(fake: _process.Holder) -> None:
    nebulaio.configure(devices="require")
    with pytest.raises(DeviceError, match="require a GPU"):
        nebulaio.devices()
    nebulaio.configure(devices="off")
    assert nebulaio.devices()["options"] == {"devices": "off"}


class _TorchDevice:
    def __init__(self, kind: str, index: int | None) -> None:
        self.type, self.index = kind, index


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("auto", "auto"),
        ("cpu", "host"),
        ("host", "host"),
        ("cuda", "cuda"),
        ("cuda:12", "cuda:12"),
        (0, "cuda:0"),
        (_TorchDevice("cpu", None), "host"),
        (_TorchDevice("cpu", 0), "host"),
        (_TorchDevice("cuda", None), "cuda"),
        (_TorchDevice("cuda", 3), "cuda:3"),
    ],
)
def test_device_names(given: object, name: str) -> None:
    assert _device.canonical(given) == name


@pytest.mark.parametrize("given", ["", "gpu", "cuda:", "cuda:-1", "cuda:01", "CUDA", -1, True, None, 1.0,
                                   _TorchDevice("meta", None)])
def test_unknown_devices_are_refused(given: object) -> None:
    with pytest.raises(InvalidError, match="device"):
        _device.canonical(given)


@pytest.mark.parametrize("tensors", [3, [], [1], object()])
def test_globs_that_are_none(tmp_path: Path, tensors: object) -> None:
    with pytest.raises(InvalidError, match=r"tensors=.* is not a glob or a list of globs"):
        load_file(tmp_path / "none.safetensors", "cpu", framework="numpy", tensors=tensors)  # type: ignore[arg-type]
