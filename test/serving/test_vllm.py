# SPDX-License-Identifier: Apache-2.0
"""The load formats of vLLM against vLLM's own loaders, on its real sources."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import checkpoints as models
import nebulaio.vllm
import pytest
import torch
from installed import install
from nebulaio.errors import CorruptError, InvalidError, NotFoundError
from nebulaio.safetensors import write_checksums
from safetensors.torch import save_file
from serving import ACCESS, SECRET, serving
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.inplace import reload_weights
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.plugins import DEFAULT_PLUGINS_GROUP, load_plugins_by_group
from vllm_models import as_rank, assert_equal, config_of, create, load, share

KEEP = {"cache": "keep"}  # the files were just written, and stay in the page cache


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """vLLM finds the plugin by its entry point."""
    with pytest.MonkeyPatch.context() as patch:
        install(tmp_path_factory.mktemp("installed"), patch)
        plugins = load_plugins_by_group(DEFAULT_PLUGINS_GROUP)
        plugins["nebulaio"]()
        nebulaio.vllm.register()  # vLLM may call it again
        yield


def both(path: Path, extra: dict[str, Any] | None = None, **options: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Load a model by vLLM's loader and by ours, compare the weights, and return our model and report."""
    theirs, _ = load(config_of(path, "safetensors", **options))
    ours, loader = load(config_of(path, "nebulaio", {**KEEP, **(extra or {})}, **options))
    assert_equal(ours, theirs)
    assert loader.last_report is not None
    return ours, loader.last_report


@pytest.mark.parametrize("world", [1, 2, 4])
def test_each_rank_reads_its_share(checkpoints: Path, world: int) -> None:
    for rank in range(world):
        with as_rank(rank, world):
            model, report = both(models.wide_llama(checkpoints))
        assert report["bytes"] <= report["read_bytes"] <= 1.02 * share(model)
        assert report["jobs"] == 1 and report["eager"]["reads"] == 0 and report["buffered"]["copies"] == 0
        assert report["direct"]["bytes"] == report["bytes"]


@pytest.mark.parametrize("world", [1, 2])
def test_tied_embeddings(checkpoints: Path, world: int) -> None:
    for rank in range(world):
        with as_rank(rank, world):
            model, report = both(models.tied_qwen2(checkpoints), {"gap": 1})
        assert report["read_bytes"] <= 1.02 * share(model) and report["eager"]["reads"] == 0


@pytest.mark.parametrize("make", [models.mixtral, models.qwen2_moe])
@pytest.mark.parametrize("world", [1, 2])
def test_mixtures_of_experts(checkpoints: Path, make: Any, world: int) -> None:
    for rank in range(world):
        with as_rank(rank, world):
            model, report = both(make(checkpoints), {"gap": 1})
        assert report["read_bytes"] <= 1.02 * share(model)


@pytest.mark.parametrize("make", [models.awq, models.gptq, models.fp8])
@pytest.mark.parametrize("world", [1, 2])
def test_quantised_checkpoints(checkpoints: Path, tmp_path: Path, make: Any, world: int) -> None:
    path = make(models.llama(checkpoints), tmp_path / "quantised")
    for rank in range(world):
        with as_rank(rank, world):
            model, report = both(path, {"gap": 1}, dtype="float16")
        assert report["read_bytes"] <= 1.05 * share(model)


def test_other_dtypes_are_converted(checkpoints: Path) -> None:
    with as_rank(1, 2):
        model, report = both(models.llama(checkpoints), {"gap": 1}, dtype="float32")
    assert report["buffered"]["copies"] > 0 and report["eager"]["reads"] == 0
    assert report["read_bytes"] <= 1.02 * share(model) // 2


def test_without_deferring(checkpoints: Path) -> None:
    _, report = both(models.llama(checkpoints), {"defer": False})
    assert report["eager"]["reads"] == report["tensors"]


def test_a_whole_load_of_a_model(checkpoints: Path) -> None:
    config = config_of(models.llama(checkpoints), "nebulaio")
    with set_current_vllm_config(config):
        model = get_model_loader(config.load_config).load_model(config, config.model_config)
    stock = config_of(models.llama(checkpoints), "safetensors")
    with set_current_vllm_config(stock):
        theirs = get_model_loader(stock.load_config).load_model(stock, stock.model_config)
    assert_equal(model, theirs)


def test_reload_reads_only_the_rank_s_bytes(checkpoints: Path, tmp_path: Path) -> None:
    path = models.llama(checkpoints)
    other = models.edited(path, tmp_path / "other", lambda tensors: {name: -value for name, value in tensors.items()})
    config = config_of(path, "nebulaio")
    with as_rank(1, 2):
        model, _ = load(config)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        addresses = {name: value.data_ptr() for name, value in model.named_parameters()}
        with set_current_vllm_config(config):
            reload_weights(config, model, None, str(other), True)
        for name, value in model.named_parameters():
            assert value.data_ptr() == addresses[name]
            assert torch.equal(value[:100], -before[name][:100]), name


def test_a_reload_from_another_path_replaces_the_weights_of_the_settings(checkpoints: Path, tmp_path: Path) -> None:
    path = models.llama(checkpoints)
    other = models.edited(path, tmp_path / "other", lambda tensors: {name: -value for name, value in tensors.items()})
    weights = models.edited(path, tmp_path / "weights",
                            lambda tensors: {name: 2 * value for name, value in tensors.items()})
    config = config_of(path, "nebulaio", {"weights": str(weights)})
    model, _ = load(config)
    loaded = model.model.norm.weight.clone()
    with set_current_vllm_config(config):
        reload_weights(config, model, None, None, True)
        assert torch.equal(model.model.norm.weight, loaded)
        reload_weights(config, model, None, str(other), True)
    assert torch.equal(model.model.norm.weight * -2, loaded)


def test_reload_layer_by_layer_defers_until_a_layer_is_complete(checkpoints: Path) -> None:
    config = config_of(models.llama(checkpoints), "nebulaio")
    theirs, _ = load(config_of(models.llama(checkpoints), "safetensors"))
    with set_current_vllm_config(config):
        model = create(config)
        initialize_layerwise_reload(model)
        loader = get_model_loader(config.load_config)
        model.load_weights(loader.get_all_weights(config.model_config, model))
        finalize_layerwise_reload(model, config.model_config)
    assert_equal(model, theirs)


def test_layers_that_are_processed_during_the_load_have_their_values(checkpoints: Path) -> None:
    """Online quantisation processes a layer as soon as vLLM has collected its weights, in the middle of the load."""
    theirs, _ = load(config_of(models.llama(checkpoints), "safetensors"))
    config = config_of(models.llama(checkpoints), "nebulaio")
    seen = []
    with set_current_vllm_config(config):
        model = create(config)
        for module in model.modules():
            method = getattr(module, "quant_method", None)
            if isinstance(method, UnquantizedLinearMethod):
                module.quant_method = Watching(seen)
        initialize_layerwise_reload(model)
        loader = get_model_loader(config.load_config)
        loader.load_weights(model, config.model_config)
        finalize_layerwise_reload(model, config.model_config)
    assert_equal(model, theirs)
    sums = sorted(float(module.weight.double().sum()) for module in theirs.modules() if isinstance(module, LinearBase))
    assert sorted(seen) == sums
    assert loader.last_report["flushes"]["process_weights_after_loading"] == len(seen)
    assert not [one for one in model.modules()
                if "process_weights_after_loading" in vars(getattr(one, "quant_method", object))]


class Watching(UnquantizedLinearMethod):
    """Records the sum of a layer's weights when vLLM processes them, from the bare memory as a kernel does."""

    uses_meta_device = True

    def __init__(self, seen: list[float]) -> None:
        super().__init__()
        self._seen = seen

    def process_weights_after_loading(self, layer: Any) -> None:
        weight = layer.weight.data
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            self._seen.append(float(weight.double().sum()))


@pytest.mark.parametrize("world", [1, 2])
def test_sharded_state(checkpoints: Path, tmp_path: Path, world: int) -> None:
    path = models.llama(checkpoints)
    shutil.copy(path / "config.json", tmp_path)
    saved = []
    for rank in range(world):
        with as_rank(rank, world):
            saved.append(load(config_of(path, "safetensors"))[0])
            ShardedStateLoader.save_model(saved[-1], str(tmp_path), max_size=300_000)
    for rank in range(world):
        with as_rank(rank, world):
            model, loader = load(config_of(tmp_path, "nebulaio_sharded", KEEP))
        assert_equal(model, saved[rank])
        assert loader.last_report["read_bytes"] <= 1.02 * share(model)
        assert loader.last_report["files"] > 1
    (tmp_path / "model-rank-0-part-0.safetensors").unlink()
    with pytest.raises(CorruptError, match="have no"):
        load(config_of(tmp_path, "nebulaio_sharded"))


def test_experts_of_other_ranks_are_not_read(checkpoints: Path) -> None:
    parallel = {"tensor_parallel_size": 2, "enable_expert_parallel": True, "enable_ep_weight_filter": True}
    whole = share(load(config_of(models.mixtral(checkpoints), "safetensors"))[0])
    for rank in range(2):
        with as_rank(rank, 2):
            theirs, _ = load(config_of(models.mixtral(checkpoints), "safetensors", parallel=parallel))
            ours, loader = load(config_of(models.mixtral(checkpoints), "nebulaio", {**KEEP, "gap": 1},
                                          parallel=parallel))
        assert_equal(ours, theirs)
        assert loader.last_report["read_bytes"] <= 1.02 * share(ours) < 0.8 * whole


def test_consolidated_duplicates_are_left_out(checkpoints: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(models.llama(checkpoints), path)
    save_file({"model.norm.weight": torch.zeros(128, dtype=torch.bfloat16)}, path / "another.safetensors")
    _, report = both(path)
    assert report["files"] == len(list(path.glob("model-*.safetensors")))


def test_weights_from_a_bucket(checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, local = models.llama(checkpoints), tmp_path / "local"
    local.mkdir()
    shutil.copy(path / "config.json", local)
    with serving(tmp_path) as server:
        for name, value in zip(("ENDPOINT", "ACCESS_KEY", "SECRET_KEY"), (server.endpoint, ACCESS, SECRET)):
            monkeypatch.setenv(f"NEBULAIO_{name}", value)
        for file in (*path.glob("*.safetensors"), path / "model.safetensors.index.json"):
            server.put("bucket", f"llama/{file.name}", file.read_bytes())
        with as_rank(1, 2):
            theirs, _ = load(config_of(path, "safetensors"))
            for extra in ({}, {"verify": True}):
                ours, loader = load(config_of(local, "nebulaio", {"weights": "s3://bucket/llama", **extra}))
                assert_equal(ours, theirs)
                assert loader.last_report["files"] == len(list(path.glob("*.safetensors")))
        with pytest.raises(NotFoundError, match=r"there are no files \*.safetensors"):
            load(config_of(local, "nebulaio", {"weights": "s3://bucket/none/"}))


def test_verified_files(checkpoints: Path, tmp_path: Path) -> None:
    path = models.edited(models.llama(checkpoints), tmp_path / "a", lambda tensors: tensors)
    write_checksums(path)
    both(path, {"verify": True})
    file = path / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-50] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptError, match="model.safetensors"):
        load(config_of(path, "nebulaio", {"verify": True}))


def test_reports_name_the_rank(checkpoints: Path, tmp_path: Path) -> None:
    for rank in range(2):
        with as_rank(rank, 2):
            load(config_of(models.llama(checkpoints), "nebulaio", {"report": str(tmp_path / "load.json")}))
            load(config_of(models.llama(checkpoints), "nebulaio", {"report": str(tmp_path / "r{rank}.json")}))
    report = json.loads((tmp_path / "load-rank1.json").read_text())
    assert report["rank"] == 1 and report["world"] == 2 and report["framework"] == "vllm"
    assert report["direct"]["bytes"] == report["bytes"] > 0 and report["eager"] == {"reads": 0, "bytes": 0, "by": {}}
    assert (tmp_path / "r0.json").exists() and (tmp_path / "r1.json").exists()


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"verfy": True}, "unknown 'verfy', expected keys out of weights, verify"),
        ({"verify": "yes"}, "'yes' is not True or False"),
        ({"cache": "none"}, "'none' is not one of auto, keep, bypass"),
        ({"gap": -1}, "gap=-1 is not a whole number"),
        ({"report": 5}, "report=5 is neither true, false nor a path"),
        ({"weights": ""}, "weights='' is not a text"),
        ({"pattern": "x"}, "unknown 'pattern'"),
    ],
)
def test_wrong_settings_are_refused(checkpoints: Path, extra: dict[str, Any], said: str) -> None:
    config = config_of(models.llama(checkpoints), "nebulaio", extra)
    with pytest.raises(InvalidError, match=said):
        get_model_loader(config.load_config)


def test_missing_and_cut_files(checkpoints: Path, tmp_path: Path) -> None:
    path = models.edited(models.llama(checkpoints), tmp_path / "a",
                         lambda tensors: {n: t for n, t in tensors.items() if "norm" not in n})
    with pytest.raises(ValueError, match=r"not initialized from checkpoint.*norm"):
        load(config_of(path, "nebulaio"))
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CorruptError, match="its header describes"):
        load(config_of(path, "nebulaio"))
    with pytest.raises(NotFoundError, match="no such file"):
        load(config_of(path, "nebulaio", {"weights": str(tmp_path / "none")}))
    with pytest.raises(NotFoundError, match="verify|crc64nvme|checksums"):
        load(config_of(models.llama(checkpoints), "nebulaio", {"verify": True}))
