# SPDX-License-Identifier: Apache-2.0
"""The load format of SGLang against SGLang's own loader, on its real sources."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import checkpoints as models
import nebulaio.sglang
import pytest
from installed import install
from nebulaio.errors import CorruptError, InvalidError, NotFoundError
from serving import ACCESS, SECRET, serving
from sglang.srt.arg_groups.choices import LOAD_FORMAT_CHOICES
from sglang.srt.configs.load_config import LoadConfig, LoadFormat
from sglang.srt.model_loader.loader import DefaultModelLoader
from sglang.srt.plugins import GENERAL_PLUGINS_GROUP, load_plugins_by_group
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang_models import as_rank, assert_equal, load, share


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """SGLang finds the plugin by its entry point, and applies its hooks."""
    with pytest.MonkeyPatch.context() as patch:
        install(tmp_path_factory.mktemp("installed"), patch)
        (plugin, _) = load_plugins_by_group(GENERAL_PLUGINS_GROUP)["nebulaio"]
        plugin()
        nebulaio.sglang.register()  # SGLang may call it again
        HookRegistry.apply_hooks()
        yield


def both(path: Path, extra: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Load a model by SGLang's loader and by ours, compare the weights, and return our model and report."""
    theirs, _ = load(path, "safetensors")
    ours, loader = load(path, "nebulaio", {"cache": "keep", **(extra or {})})
    assert_equal(ours, theirs)
    assert loader.last_report is not None
    return ours, loader.last_report


def test_the_command_line_offers_the_format() -> None:
    assert LOAD_FORMAT_CHOICES.count("nebulaio") == 1
    assert LoadConfig(load_format="safetensors").load_format is LoadFormat.SAFETENSORS
    with pytest.raises(ValueError, match="nonsense"):
        LoadConfig(load_format="nonsense")


@pytest.mark.parametrize("world", [1, 2, 4])
def test_each_rank_reads_its_share(checkpoints: Path, world: int) -> None:
    for rank in range(world):
        with as_rank(rank, world, models.wide_llama(checkpoints)):
            model, report = both(models.wide_llama(checkpoints))
        assert report["bytes"] <= report["read_bytes"] <= 1.02 * share(model)
        assert report["jobs"] == 1 and report["eager"]["reads"] == 0


@pytest.mark.parametrize("make", [models.tied_qwen2, models.mixtral])
def test_other_models(checkpoints: Path, make: Any) -> None:
    for rank in range(2):
        with as_rank(rank, 2, make(checkpoints)):
            both(make(checkpoints), {"gap": 1})


def test_weights_of_an_update_are_read_when_they_are_copied(checkpoints: Path, tmp_path: Path) -> None:
    """update_weights_from_disk asks the loader for its iterator, and loads by the static methods."""
    path = models.llama(checkpoints)
    other = models.edited(path, tmp_path / "other", lambda tensors: {name: -value for name, value in tensors.items()})
    with as_rank(1, 2, path):
        model, loader = load(path, "nebulaio")
        expected, _ = load(other, "safetensors")
        source = DefaultModelLoader.Source(str(other), None)
        DefaultModelLoader.load_weights_and_postprocess(model, loader._get_weights_iterator(source),
                                                        next(model.parameters()).device)
    assert_equal(model, expected)


def test_weights_from_a_bucket(checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, local = models.llama(checkpoints), tmp_path / "local"
    local.mkdir()
    shutil.copy(path / "config.json", local)
    with serving(tmp_path) as server, as_rank(0, 2, path):
        for name, value in zip(("ENDPOINT", "ACCESS_KEY", "SECRET_KEY"), (server.endpoint, ACCESS, SECRET)):
            monkeypatch.setenv(f"NEBULAIO_{name}", value)
        for file in (*path.glob("*.safetensors"), path / "model.safetensors.index.json"):
            server.put("bucket", f"llama/{file.name}", file.read_bytes())
        theirs, _ = load(path, "safetensors")
        ours, _ = load(local, "nebulaio", {"weights": "s3://bucket/llama/", "verify": True,
                                           "report": str(tmp_path / "r.json")})
        assert_equal(ours, theirs)
        with pytest.raises(NotFoundError, match="there are no files"):
            load(local, "nebulaio", {"weights": "s3://bucket/none/"})
    report = json.loads((tmp_path / "r-rank0.json").read_text())
    assert report["framework"] == "sglang" and report["verified"] and report["world"] == 2


def test_wrong_settings_and_cut_files(checkpoints: Path, tmp_path: Path) -> None:
    with as_rank(0, 1, models.llama(checkpoints)):
        with pytest.raises(InvalidError, match="unknown 'threads', expected keys out of weights, verify"):
            load(models.llama(checkpoints), "nebulaio", {"threads": 8})
        path = models.edited(models.llama(checkpoints), tmp_path / "a", lambda tensors: tensors)
        file = path / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(CorruptError, match="its header describes"):
            load(path, "nebulaio")
