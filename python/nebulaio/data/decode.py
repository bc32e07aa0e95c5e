# SPDX-License-Identifier: Apache-2.0
"""Decoders of samples, for the argument `decode` of `nebulaio.data.Loader`.

    >>> import json, pathlib
    >>> from nebulaio.data import Loader, decode
    >>> folder = pathlib.Path("texts")
    >>> folder.mkdir(exist_ok=True)
    >>> for number in range(4):
    ...     _ = (folder / f"{number}.json").write_text(json.dumps({"label": number}))
    >>> with Loader("texts", batch_size=4, device="cpu", framework="numpy", format="groups",
    ...             shuffle="stored", decode={"json": decode.json}) as loader:
    ...     labels = [sample["label"] for batch in loader for sample in batch["json"]]
    >>> labels
    [0, 1, 2, 3]

Each decoder takes the bytes of one sample: a memoryview in host memory, or a tensor of
type uint8 on a GPU, which is copied to the host.
"""

from __future__ import annotations

import importlib
import io
import json as _json
from typing import Any

from ..errors import UnsupportedError

__all__ = ["json", "npy", "pt", "raw", "text"]


def raw(sample: Any) -> bytes:
    """Return the bytes of the sample."""
    if hasattr(sample, "cpu"):  # a tensor of torch
        sample = sample.cpu().numpy()
    elif hasattr(sample, "get"):  # an array of CuPy
        sample = sample.get()
    return bytes(sample)


def text(sample: Any) -> str:
    """Return the sample as text, which must be UTF-8."""
    return raw(sample).decode()


def json(sample: Any) -> Any:
    """Return the value of a sample that is JSON."""
    return _json.loads(raw(sample))


def npy(sample: Any) -> Any:
    """Return the NumPy array of a sample that is a .npy file. Arrays of Python objects are refused."""
    return _package("numpy").load(io.BytesIO(raw(sample)), allow_pickle=False)


def pt(sample: Any) -> Any:
    """Return what torch.save has written. Only tensors and plain data are read (weights_only)."""
    return _package("torch").load(io.BytesIO(raw(sample)), map_location="cpu", weights_only=True)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        raise UnsupportedError(
            f"decode: the package {name} cannot be imported: {cause} (fix: install {name})") from cause
