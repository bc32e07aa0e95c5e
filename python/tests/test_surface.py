# SPDX-License-Identifier: Apache-2.0
"""nebulaio.safetensors beside the package safetensors: every name, every signature, and a table of calls.

Each version of safetensors runs in a process of its own (surface_calls.py), because two do not fit into one.
NEBULAIO_TEST_SAFETENSORS names an interpreter that has the next version; `make test-torch` makes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from support import PACKAGE

pytestmark = pytest.mark.torch

# Calls whose results differ on purpose, and why.
DIFFERENT = {
    "numpy slice empty": "a tensor without elements can be sliced",
    "get_slice[slice(-2, None, None)] numpy": "a negative index counts from the end",
    "get_slice[slice(0, 100, None)] numpy": "an end beyond the tensor is clipped",
    "get_slice[slice(4, 2, None)] numpy": "an empty slice is an empty array",
    "framework=None": "None means torch",
    "open b'x'": "a path may be bytes",
    "load_file b'x'": "a path may be bytes",
    "torch.save_file {}": "empty metadata is no metadata",
    "numpy.save no array": "the error says what is expected",
    "TensorSpec negative": "the error is InvalidError, a ValueError",
    "serialize negative": "the error is InvalidError, a ValueError",
    "prefetch threads=-1": "the error is InvalidError, a ValueError",
    "prefetch(None) on the host": "the host is a device like another",
    "prefetch({}) on the host": "the host is a device like another",
    "prefetch({'scalar': None}) on the host": "the host is a device like another",
}

# Names that safetensors 0.8 does not have.
ADDED = ("get_tensor_meta", "prefetch", "TensorMeta", "PrefetchLoader", "PySafeSlice")


Both = tuple[bool, dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module", params=["installed", "next"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Whether safetensors is at 0.9, and what safetensors and our package do."""
    import safetensors.torch
    import surface_calls

    python = sys.executable if request.param == "installed" else os.environ.get("NEBULAIO_TEST_SAFETENSORS")
    if python is None:
        pytest.skip("NEBULAIO_TEST_SAFETENSORS is not set (make test-torch sets it)")
    folder = tmp_path_factory.mktemp("surface")
    made = surface_calls.tensors()
    safetensors.torch.save_file(made, folder / "reference.safetensors", {"k": "v"})
    plain = {name: tensor for name, tensor in made.items() if not name.startswith(("t.bf", "t.float8"))}
    safetensors.torch.save_file(plain, folder / "plain.safetensors")
    safetensors.torch.save_file({}, folder / "nothing.safetensors")
    (folder / "short.safetensors").write_bytes((folder / "reference.safetensors").read_bytes()[:-1])
    (folder / "bad.safetensors").write_bytes(b"\x08" + bytes(7) + b"not json")
    done = subprocess.run(
        [python, "-W", "ignore", str(PACKAGE / "tests" / "surface_calls.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(PACKAGE / "tests")])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert request.param == "installed" or found["version"].startswith("0.9"), found["version"]
    return not found["version"].startswith("0.8"), found["safetensors"], found["nebulaio.safetensors"]


def test_names_and_signatures(both: Both) -> None:
    is_new, theirs, ours = both
    assert len(theirs["names"]) > 60
    if is_new:
        assert {".PrefetchLoader.take", ".safe_open.prefetch", ".TensorMeta.dtype", ".flax.load_file",
                ".mlx.save"} <= theirs["names"].keys()
    for name, wanted in theirs["names"].items():
        assert name in ours["names"], name
        here = {argument: (kind, default) for argument, kind, default in ours["names"][name] or []}
        if wanted is None or name in (".PrefetchLoader", ".PySafeSlice", ".TensorMeta"):
            continue  # these cannot be made by a caller: the table of calls has them
        for argument, kind, default in wanted:
            if argument == "self" or name.endswith(("__exit__", "__getitem__")):
                continue  # Python's own protocols, called by place
            assert argument in here, f"{name}({argument})"
            assert here[argument][0] == kind, f"{name}({argument})"
            assert default in ("none", "hidden", here[argument][1]), f"{name}({argument})"
        order = [argument for argument, kind, _ in wanted if kind == "POSITIONAL_OR_KEYWORD"]
        assert [argument for argument in here if argument in order] == order or name.endswith("__exit__"), name
        for argument, (kind, default) in here.items():
            if argument != "self" and argument not in {one[0]
                                                       for one in wanted} and not name.endswith(
                                                           ("__exit__", "__getitem__")):
                assert kind == "KEYWORD_ONLY" and default != "none", f"{name}({argument})"


def test_calls(both: Both) -> None:
    is_new, theirs, ours = both
    assert len(theirs["calls"]) > 300 and theirs["calls"].keys() == ours["calls"].keys()
    compared = 0
    for label, wanted in theirs["calls"].items():
        found = ours["calls"][label]
        if not is_new and any(name in label for name in ADDED):
            assert "AttributeError" in wanted.get("raises", ()), label
            continue
        compared += 1
        if "raises" in wanted:
            same = wanted["raises"][0] in found.get("raises", ())
        else:
            same = wanted == found
        assert same == (
            label not in DIFFERENT), f"{label}: safetensors {str(wanted)[:300]}, nebulaio {str(found)[:300]}"
    assert compared > 250


def test_a_framework_that_is_not_installed() -> None:
    import importlib.util

    for module, package in (("flax", "jax"), ("tensorflow", "tensorflow"), ("paddle", "paddle"), ("mlx", "mlx")):
        if importlib.util.find_spec(package) is None:
            with pytest.raises(ImportError, match=f"pip install {package}"):
                importlib.import_module(f"nebulaio.safetensors.{module}")
