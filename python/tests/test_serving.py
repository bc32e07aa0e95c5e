# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint, as the loaders of vLLM and SGLang find them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nebulaio import _serving
from nebulaio.errors import CorruptError, NotFoundError
from nebulaio.gpudirect import ObjectInfo

RANK = ["model-rank-0-part-*.safetensors"]


class Bucket:
    """A client of a bucket with these objects."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects

    def list(self, bucket: str, prefix: str, delimiter: str) -> list[ObjectInfo]:
        return [self.stat(bucket, key) for key in sorted(self.objects) if key.startswith(prefix)]

    def stat(self, bucket: str, key: str) -> ObjectInfo:
        return ObjectInfo(bucket, key, len(self.objects[key]))

    def read_to_gpu(self, bucket: str, key: str, buffer: Any) -> None:
        buffer[:] = self.objects[key]


@pytest.mark.parametrize("marker", [b"", b"{}"])
def test_the_marker_of_a_folder_is_no_file(monkeypatch: pytest.MonkeyPatch, marker: bytes) -> None:
    bucket = Bucket({"llama/": marker, "llama/model-rank-0-part-0.safetensors": b"", "llama/x.safetensors": b""})
    monkeypatch.setattr(_serving, "_client", lambda url: bucket)
    wanted = ["s3://b/llama/model-rank-0-part-0.safetensors"]
    assert _serving.checkpoint("s3://b/llama", RANK, index="").files == wanted
    assert len(_serving.checkpoint("s3://b/llama", ["*"]).files) == 2
    bucket.objects["llama/" + _serving.INDEX] = json.dumps({"weight_map": {"a": "x.safetensors"}}).encode()
    assert _serving.checkpoint("s3://b/llama", ["*.safetensors"]).files == ["s3://b/llama/x.safetensors"]


def test_files_of_a_directory(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors", "config.json"):
        (tmp_path / name).touch()
    both = [f"{tmp_path}/a.safetensors", f"{tmp_path}/b.safetensors"]
    assert _serving.checkpoint(str(tmp_path), ["*.safetensors"]).files == both
    (tmp_path / _serving.INDEX).write_text(json.dumps({"weight_map": {"x": "b.safetensors"}}))
    assert _serving.checkpoint(str(tmp_path), ["*.safetensors"]).files == both[1:]
    assert _serving.checkpoint(str(tmp_path), ["*.safetensors"], index="").files == both
    with pytest.raises(NotFoundError, match="there are no files"):
        _serving.checkpoint(str(tmp_path), RANK, index="")
    (tmp_path / _serving.INDEX).write_text("")
    with pytest.raises(CorruptError, match="not an index"):
        _serving.checkpoint(str(tmp_path), ["*.safetensors"])
