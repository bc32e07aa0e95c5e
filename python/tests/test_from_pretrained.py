# SPDX-License-Identifier: Apache-2.0
"""`nebulaio.huggingface.from_pretrained` beside transformers' own: equal models, equal errors, bounded reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio.errors import CorruptError, InvalidError, NotFoundError, UnsupportedError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from nebulaio.huggingface import _ahead, from_pretrained, load_pretrained  # noqa: E402
from nebulaio.huggingface._values import StoredTensor  # noqa: E402
from pretrained_models import HEADERS, MODELS, SMALL, both, logits, make, same, with_header  # noqa: E402


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny models, each in a directory of its name."""
    root = tmp_path_factory.mktemp("models")
    for name in MODELS:
        make(name, root / name)
    return root


def rewrite(folder: Path, target: Path, change: Any, file: str = "model.safetensors") -> Path:
    """A copy of a model directory with changed tensors."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, target)
    tensors = load_file(folder / file)
    change(tensors)
    save_file({name: value.clone().contiguous() for name, value in tensors.items()}, target / file, {"format": "pt"})
    return target


def configure(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps(
        {name: value for name, value in config.items() if value is not None}))


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_theirs(folders: Path, name: str) -> None:
    _, report = both(folders / name)
    stored = (folders / name / "model.safetensors").stat().st_size
    assert 0 < report["bytes"] == report["wanted_bytes"] < stored and report["unused_bytes"] == 0
    assert sum(route["bytes"] for route in report["routes"]) == report["bytes"]
    assert report["tensors"]["ahead"] > report["tensors"]["alone"] == 1
    last = nebulaio.last_report()
    assert last is not None and last["bytes"] == report["bytes"]


def test_small_windows_and_jobs(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window smaller than the model reads the same in many jobs."""
    monkeypatch.setattr(_ahead, "JOB", 4 << 10)
    monkeypatch.setattr(_ahead, "WINDOW", 16 << 10)
    for name in ("llama", "mixtral"):
        _, report = both(folders / name)
        assert report["jobs"] > 5
        assert report["wanted_bytes"] <= report["bytes"] <= report["wanted_bytes"] + report["unused_bytes"]


def test_each_tensor_alone(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ahead, "WINDOW", 0)
    _, report = both(folders / "qwen3_moe")
    assert report["tensors"]["ahead"] == 0 and report["jobs"] == report["tensors"]["alone"]


def test_files_of_shards(tmp_path: Path) -> None:
    folder = make("qwen2", tmp_path / "model", max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    both(folder)


def test_one_thread_of_transformers(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")
    both(folders / "mixtral")


@pytest.mark.parametrize("dtype", ["auto", "float16", torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(folders: Path, tmp_path: Path, dtype: Any) -> None:
    ours, _ = both(folders / "llama", dtype=dtype)
    wanted = {"auto": torch.float32, "float16": torch.float16}.get(dtype, dtype)
    assert ours.dtype is wanted


def test_the_dtype_of_the_weights_if_the_configuration_has_none(tmp_path: Path) -> None:
    whole = make("llama", tmp_path / "whole", torch.bfloat16)
    shards = make("llama", tmp_path / "shards", torch.bfloat16, max_shard_size="40KB")
    for folder in (whole, shards):
        configure(folder, dtype=None, torch_dtype=None)
        ours, _ = both(folder)
        assert ours.dtype is torch.bfloat16


def test_classes(folders: Path) -> None:
    both(folders / "llama", transformers.LlamaForCausalLM)
    both(folders / "llama", transformers.AutoModelForCausalLM)
    ours = from_pretrained(folders / "llama", cls=transformers.AutoModel)
    assert type(ours) is transformers.LlamaModel
    theirs = transformers.AutoModel.from_pretrained(folders / "llama")
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    ours = from_pretrained(folders / "llama", cls=transformers.AutoModelForSequenceClassification, num_labels=5)
    assert ours.score.out_features == 5 and ours.config.num_labels == 5
    with pytest.raises(InvalidError, match="cls="):
        from_pretrained(folders / "llama", cls=dict)
    with pytest.raises(UnsupportedError, match="AutoModelForImageClassification has no class"):
        from_pretrained(folders / "llama", cls=transformers.AutoModelForImageClassification)


def test_arguments_of_the_configuration(folders: Path) -> None:
    ours, _ = both(folders / "llama", attn_implementation="eager", use_cache=False, output_attentions=True)
    assert ours.config.use_cache is False and ours.config._attn_implementation == "eager"
    config = transformers.AutoConfig.from_pretrained(folders / "llama", use_cache=False)
    both(folders / "llama", config=config)


def test_how_text_is_generated(tmp_path: Path, folders: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders / "llama", folder)
    (folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 7, "do_sample": True, "top_k": 3}))
    ours, _ = both(folder)
    assert ours.generation_config.max_new_tokens == 7
    (folder / "generation_config.json").unlink()
    both(folder)
    given = transformers.GenerationConfig(max_new_tokens=9)
    ours, _ = both(folder, generation_config=given)
    assert ours.generation_config.max_new_tokens == 9


def test_what_is_missing_unexpected_and_of_another_shape(folders: Path, tmp_path: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        del tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.more.weight"] = torch.ones(3)
        tensors["model.norm.weight"] = torch.ones(7)

    folder = rewrite(folders / "llama", tmp_path / "other", change)
    found = []
    for load in (from_pretrained, transformers.LlamaForCausalLM.from_pretrained):
        with pytest.raises(RuntimeError, match="mismatched|size"):
            load(folder)
        torch.manual_seed(3)
        model, info = load(folder, ignore_mismatched_sizes=True, output_loading_info=True)
        found.append({name: sorted(map(str, keys)) for name, keys in info.items()})
    assert found[0] == found[1]
    assert found[0]["missing_keys"] == ["model.layers.1.mlp.up_proj.weight"]
    assert found[0]["unexpected_keys"] == ["model.more.weight"]


def test_names_of_old_checkpoints(folders: Path, tmp_path: Path) -> None:
    """GPT-2's published files lack the prefix, and LayerNorm once had gamma and beta."""

    def change(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)

    both(rewrite(folders / "gpt2", tmp_path / "gpt2", change))
    config = transformers.BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                     intermediate_size=48)
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")

    def older(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            changed = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[changed] = tensors.pop(name)

    folder = rewrite(tmp_path / "bert", tmp_path / "old", older)
    ours, info = from_pretrained(folder, output_loading_info=True)
    theirs = transformers.BertModel.from_pretrained(folder)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_mapping_of_keys(folders: Path, tmp_path: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[name.replace("model.layers", "model.blocks")] = tensors.pop(name)

    folder = rewrite(folders / "llama", tmp_path / "other", change)
    both(folder, transformers.LlamaForCausalLM, key_mapping={"^model.blocks": "model.layers"})


def test_device_maps(folders: Path) -> None:
    pytest.importorskip("accelerate")
    for spread in ("auto", "cpu", {"": "cpu"}, {"model": "cpu", "lm_head": "cpu"}):
        both(folders / "mixtral", device_map=spread)


def test_disk_offload_is_read_by_transformers(folders: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    profile: dict[str, Any] = {}
    spread = {"model.embed_tokens": "cpu", "model.layers": "disk", "model.norm": "cpu", "model.rotary_emb": "cpu",
              "lm_head": "cpu"}
    options = {"device_map": spread, "offload_folder": str(tmp_path)}
    ours = from_pretrained(folders / "llama", profile=profile, **options)
    assert profile["report"]["notes"] == ["read by transformers: device_map offloads to disk"]
    theirs = transformers.LlamaForCausalLM.from_pretrained(folders / "llama", **options)
    assert torch.equal(logits(ours), logits(theirs))


def test_pickled_weights_are_read_by_transformers(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(folders / "llama" / "config.json", folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folders / "llama")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    _, report = both(folder)
    assert report["notes"] == ["read by transformers: there are no safetensors weights"]


def test_further_files_of_a_configuration_are_read_by_transformers(tmp_path: Path) -> None:
    if not hasattr(transformers, "JevForDecision"):
        pytest.skip("this transformers has no Jev")
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "jev"
    text = transformers.LlamaConfig(**SMALL, head_dim=8)
    config = transformers.JevConfig(hidden_size=32, text_config=text.to_dict())
    transformers.JevForDecision(config).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    head = {name: tensors.pop(name) for name in list(tensors) if not name.startswith("model.")}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    save_file(head, folder / "head.safetensors", {"format": "pt"})
    profile: dict[str, Any] = {}
    ours = from_pretrained(folder, cls=transformers.JevForDecision, profile=profile)
    theirs = transformers.JevForDecision.from_pretrained(folder)
    assert head and all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())
    (note,) = profile["report"]["notes"]
    assert note.startswith("read by transformers: JevForDecision reads further files: head.safetensors")


@pytest.mark.parametrize("by_place", [False, True])
def test_a_language_is_read_by_transformers(tmp_path: Path, by_place: bool) -> None:
    from safetensors.torch import save_file

    config = transformers.Wav2Vec2Config(
        vocab_size=20, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        conv_dim=(8, 8), conv_stride=(2, 2), conv_kernel=(3, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, adapter_attn_dim=4, do_stable_layer_norm=True,
    )
    model = transformers.Wav2Vec2ForCTC(config)
    model.save_pretrained(tmp_path)
    language = {name: torch.randn_like(value) for name, value in model._get_adapters().items()}
    save_file(language, tmp_path / "adapter.fra.safetensors", {"format": "pt"})
    profile: dict[str, Any] = {}
    own: dict[str, Any] = {"cls": transformers.Wav2Vec2ForCTC, "profile": profile}
    ours = from_pretrained(tmp_path, "fra", **own) if by_place else from_pretrained(tmp_path, target_lang="fra", **own)
    assert all(torch.equal(value, language[name]) for name, value in ours._get_adapters().items())
    assert "of a language" in str(profile) if by_place else "the weights of target_lang" in str(profile)
    ours = from_pretrained(tmp_path, **own)
    assert profile["report"]["bytes"] and ours.name_or_path == str(tmp_path)
    ours.load_adapter("fra")
    assert all(torch.equal(value, language[name]) for name, value in ours._get_adapters().items())


class Further(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """A class that reads a file beside the weights, as Qwen2.5-Omni does."""

    @classmethod
    def from_pretrained(cls, path: Any, *arguments: Any, **named: Any) -> Any:
        made = super().from_pretrained(path, *arguments, **named)
        made.speakers = json.loads(Path(path, "speakers.json").read_text())
        return made


def test_a_class_with_its_own_from_pretrained_is_left_to_it(folders: Path, tmp_path: Path) -> None:
    folder = rewrite(folders / "llama", tmp_path / "model", lambda tensors: None)
    (folder / "speakers.json").write_text('["one"]')
    ours, report = both(folder, Further)
    assert ours.speakers == ["one"]
    assert report["notes"] == [
        "read by transformers: Further has its own from_pretrained, which may read further files"]


def test_quantised_as_it_is_loaded_and_stored_so(folders: Path, tmp_path: Path) -> None:
    quantisation = pytest.importorskip("torchao.quantization")
    pytest.importorskip("accelerate")
    wanted = transformers.TorchAoConfig(quantisation.Int8WeightOnlyConfig())
    options = {"quantization_config": wanted, "device_map": "cpu"}
    ours = from_pretrained(folders / "llama", **options)
    theirs = transformers.LlamaForCausalLM.from_pretrained(folders / "llama", **options)
    assert type(ours.model.layers[0].mlp.up_proj.weight).__name__ == "Int8Tensor"
    assert torch.equal(logits(ours), logits(theirs))
    theirs.save_pretrained(tmp_path / "stored")
    profile: dict[str, Any] = {}
    ours = from_pretrained(tmp_path / "stored", device_map="cpu", profile=profile)
    assert torch.equal(logits(ours), logits(theirs))
    assert profile["report"]["notes"] == ["read by transformers: torchao's quantizer reads the metadata of the files"]


def test_weights_of_eight_bits(folders: Path, tmp_path: Path) -> None:
    """Transformers converts them to bfloat16 by the scales that are stored beside them.

    The configuration asks for this. Otherwise, transformers does so only without a GPU. With a GPU, it would compute
    with eight bits, and for this it needs the package `kernels` and a download.
    """
    pytest.importorskip("accelerate")

    def change(tensors: dict[str, Any]) -> None:
        for name, value in list(tensors.items()):
            if name.startswith("model.layers") and value.ndim == 2:
                blocks = [-(-extent // 16) for extent in value.shape]
                tensors[name] = (value / 0.01).to(torch.float8_e4m3fn)
                tensors[name + "_scale_inv"] = torch.full(blocks, 0.01)

    folder = rewrite(folders / "llama", tmp_path / "fp8", change)
    configure(folder, quantization_config={"quant_method": "fp8", "weight_block_size": [16, 16], "dequantize": True})
    ours, report = both(folder)
    assert ours.model.layers[0].mlp.up_proj.weight.is_floating_point() and report["bytes"] == report["wanted_bytes"]


def test_variants_and_subfolders(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model" / "part"
    shutil.copytree(folders / "llama", folder)
    both(tmp_path / "model", transformers.LlamaForCausalLM, subfolder="part")
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    both(folder, variant="fp16")


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize("name", ["llama", "gemma"])  # gemma's head is tied: load_pretrained inspects the files
def test_headers_that_transformers_accepts(folders: Path, tmp_path: Path, name: str, kind: str) -> None:
    folder = rewrite(folders / name, tmp_path / "model", lambda tensors: None)
    with_header(folder / "model.safetensors", HEADERS[kind])
    ours, _ = both(folder)
    same(load_pretrained(folder, "cpu"), ours)


def test_damage(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="config.json"):
        from_pretrained(tmp_path)
    with pytest.raises(NotFoundError, match="no such directory.*hf download"):
        from_pretrained("Qwen/Qwen3-0.6B")
    with pytest.raises(InvalidError, match="client="):
        from_pretrained(tmp_path, client=object())
    with pytest.raises(InvalidError, match="verify"):
        from_pretrained(folders / "llama", verify="yes")
    with pytest.raises(ValueError, match="dtype"):
        from_pretrained(folders / "llama", dtype="float17")
    with pytest.raises(UnsupportedError, match="GGUF"):
        from_pretrained(folders / "llama", gguf_file="model.gguf")
    outside = rewrite(folders / "llama", tmp_path / "outside", lambda tensors: None)
    configure(outside, transformers_weights="../llama/model.safetensors")
    with pytest.raises(InvalidError, match="outside of the model"):
        from_pretrained(outside)
    cut = rewrite(folders / "llama", tmp_path / "cut", lambda tensors: None)
    with open(cut / "model.safetensors", "r+b") as file:
        file.truncate(5000)
    with pytest.raises(CorruptError, match="model.safetensors"):
        from_pretrained(cut)
    shards = make("llama", tmp_path / "shards", max_shard_size="40KB")
    gone = sorted(shards.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(NotFoundError, match=gone.name):
        from_pretrained(shards)


def test_a_file_that_changes_during_the_load(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = rewrite(folders / "llama", tmp_path / "model", lambda tensors: None)
    original = StoredTensor.to
    other = shutil.copy(folder / "model.safetensors", tmp_path / "new")

    def replaced(self: Any, *arguments: Any, **named: Any) -> Any:
        if Path(other).exists():
            Path(other).rename(folder / "model.safetensors")
        return original(self, *arguments, **named)

    monkeypatch.setattr(StoredTensor, "to", replaced)
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")
    with pytest.raises(CorruptError, match="changed"):
        from_pretrained(folder)


def test_a_flipped_bit_is_found_by_verify(folders: Path, tmp_path: Path) -> None:
    from nebulaio.safetensors import write_checksums

    folder = rewrite(folders / "llama", tmp_path / "model", lambda tensors: None)
    with pytest.raises(NotFoundError):
        from_pretrained(folder, verify=True)
    write_checksums(folder)
    same(from_pretrained(folder, verify=True), transformers.LlamaForCausalLM.from_pretrained(folder))
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CorruptError, match="model.safetensors"):
        from_pretrained(folder, verify=True)


TRUSTED = """
from transformers import LlamaConfig, LlamaForCausalLM
class Config(LlamaConfig):
    model_type = "of_the_model"
class Model(LlamaForCausalLM):
    config_class = Config
"""


def test_code_of_the_model_runs_only_if_it_is_trusted(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(folders / "llama", folder)
    (folder / "code_of_the_model.py").write_text(TRUSTED)
    names = {"AutoConfig": "code_of_the_model.Config", "AutoModelForCausalLM": "code_of_the_model.Model"}
    configure(folder, auto_map=names, model_type="of_the_model", architectures=["Model"])
    with pytest.raises(ValueError, match="trust_remote_code"):
        from_pretrained(folder, trust_remote_code=False)
    ours, report = both(folder, trust_remote_code=True)
    assert type(ours).__name__ == "Model" and report["bytes"]
