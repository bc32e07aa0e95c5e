# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained` of objects, through the door and over HTTP, and of several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nebulaio
import pytest
import serving
from nebulaio.errors import CorruptError, InvalidError, NebulaioError, NotFoundError, UnsupportedError
from nebulaio.gpudirect import GPUDirectClient

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from nebulaio.huggingface import from_pretrained  # noqa: E402
from pretrained_models import logits, make  # noqa: E402
from torch_worlds import run_world  # noqa: E402


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server"), buckets=("models",)) as made:
        yield made


@pytest.fixture(autouse=True)
def environment(server: serving.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULAIO_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", server.keys["access_key"])
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", server.keys["secret_key"])


def put(server: serving.Server, folder: Path, prefix: str) -> str:
    for file in folder.iterdir():
        server.put("models", f"{prefix}/{file.name}", file.read_bytes())
    return f"s3://models/{prefix}"


def equal(ours: Any, folder: Path, url: str) -> None:
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert type(ours) is type(theirs) and ours.name_or_path == url and ours.config._name_or_path == url
    mine = ours.state_dict()
    for name, value in theirs.state_dict().items():
        assert mine[name].dtype is value.dtype and torch.equal(mine[name], value), name
    assert ours.generation_config.to_dict() == theirs.generation_config.to_dict()
    assert torch.equal(logits(ours), logits(theirs))


@pytest.mark.parametrize("door", ["auto", "off"])
def test_models_of_a_bucket(server: serving.Server, tmp_path: Path, door: str) -> None:
    for name, options in (("llama", {"max_shard_size": "40KB"}), ("mixtral", {})):
        folder = make(name, tmp_path / name, **options)
        url = put(server, folder, f"{door}/{name}")
        profile: dict[str, Any] = {}
        with GPUDirectClient(server.endpoint, **server.keys, door=door) as client:
            equal(from_pretrained(url, client=client, profile=profile), folder, url)
        report = profile["report"]
        assert report["bytes"] == report["wanted_bytes"] > 0
        assert {job["via"] for job in profile["reports"]} == {"http" if door == "off" else "door"}


def test_the_environment_names_the_server(server: serving.Server, tmp_path: Path) -> None:
    folder = make("qwen2", tmp_path / "qwen2")
    url = put(server, folder, "plain/qwen2")
    equal(from_pretrained(url), folder, url)
    equal(from_pretrained(url, verify=True), folder, url)
    part = from_pretrained("s3://models/plain", subfolder="qwen2")
    assert torch.equal(logits(part), logits(from_pretrained(folder)))
    last = nebulaio.last_report()
    assert last is not None and last["path"] == str(folder)


def test_bad_objects(server: serving.Server, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="config.json"):
        from_pretrained("s3://models/nothing")
    with pytest.raises(InvalidError, match="object URL"):
        from_pretrained("s3://")
    with pytest.raises(NebulaioError):
        from_pretrained("s3://no-such-bucket/x")
    folder = make("llama", tmp_path / "cut")
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:6000])
    with pytest.raises(CorruptError):
        from_pretrained(put(server, folder, "cut"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    url = put(server, folder, "pickled")
    with pytest.raises(UnsupportedError, match="there are no safetensors weights.*nebulaio cp"):
        from_pretrained(url)


RANKS = """
import json
import transformers
from nebulaio.huggingface import from_pretrained
from transformers.distributed import DistributedConfig
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
whole = transformers.AutoModelForCausalLM.from_pretrained(folder)
options = {"distributed_config": DistributedConfig(tp_size=world)}
profile = {}
ours = from_pretrained(folder, profile=profile, **options)
theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
local = lambda value: value.to_local() if hasattr(value, "to_local") else value
mine, shared = ours.state_dict(), 0
for name, value in theirs.state_dict().items():
    assert torch.equal(local(mine[name]), local(value)), name
    shared += local(value).numel() * value.element_size()
tokens = torch.arange(8).reshape(1, 8)
with torch.no_grad():
    assert torch.equal(ours(tokens).logits, theirs(tokens).logits)
    assert torch.allclose(ours(tokens).logits, whole(tokens).logits, atol=1e-5)
report = profile["report"]
total = sum(value.numel() * value.element_size() for value in whole.state_dict().values())
print(json.dumps({"bytes": report["bytes"], "share": shared, "total": total, "unused": report["unused_bytes"], "tensors": report["tensors"]}))
"""


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_each_rank_reads_its_part(tmp_path: Path, name: str) -> None:
    import json

    folder = make(name, tmp_path / name)
    for said in run_world(RANKS, folder, timeout=400):
        found = json.loads(said.splitlines()[-1])
        assert found["share"] < found["total"]
        assert found["bytes"] <= found["share"] * 1.02, found
