# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained` on a real GPU beside transformers' own; off by default, run with -m cuda."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from nebulaio.huggingface import from_pretrained  # noqa: E402
from pretrained_models import MODELS, both, logits, make  # noqa: E402

MIB = 1 << 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny models, each in a directory of its name."""
    root = tmp_path_factory.mktemp("models")
    for name in MODELS:
        make(name, root / name)
    return root


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense model of about 1.6 GB in bfloat16, in several files: more than the window that is read ahead."""
    folder = tmp_path_factory.mktemp("larger") / "model"
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=12,
        num_attention_heads=16, num_key_value_heads=4,
    )
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="500MB")
    return folder


def memory() -> tuple[int, int]:
    """Bytes that torch has allocated, and the highest since the last call."""
    gc.collect()
    torch.cuda.synchronize()
    found = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_theirs(folders: Path, name: str) -> None:
    for spread in ("cuda:0", "auto", {"": 0}):
        ours, report = both(folders / name, device_map=spread)
        assert next(ours.parameters()).is_cuda and report["unused_bytes"] == 0
    both(folders / name, device_map="cuda", dtype=torch.bfloat16)


def test_a_map_of_the_host_and_the_gpu(folders: Path) -> None:
    spread = {"model.embed_tokens": 0, "model.layers.0": "cpu", "model.layers.1": 0, "model.layers.2": "cpu"}
    spread.update({"model.norm": 0, "model.rotary_emb": 0, "lm_head": 0})
    ours = from_pretrained(folders / "mixtral", device_map=spread)
    theirs = transformers.MixtralForCausalLM.from_pretrained(folders / "mixtral", device_map=spread)
    assert torch.equal(logits(ours), logits(theirs))


def test_one_copy_of_the_model_in_gpu_memory(larger: Path) -> None:
    """What is read goes into the memory of the parameters, and nothing else is left or reserved for long."""
    size = sum(file.stat().st_size for file in larger.glob("*.safetensors"))
    torch.cuda.empty_cache()
    before, _ = memory()
    profile: dict[str, Any] = {}
    model = from_pretrained(larger, device_map="cuda:0", profile=profile)
    after, peak = memory()
    assert after - before <= size + 32 * MIB
    assert peak - before <= size + 64 * MIB  # transformers' own warm-up block is as large as the model
    assert torch.cuda.memory_reserved() - before <= 1.1 * size + 64 * MIB
    assert profile["report"]["wanted_bytes"] <= profile["report"]["bytes"] <= 1.05 * size
    theirs = transformers.LlamaForCausalLM.from_pretrained(larger, device_map="cuda:0")
    for mine, other in zip(model.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
    del model, theirs, mine, other
    assert memory()[0] - before <= MIB


def test_another_dtype_needs_a_window_more(larger: Path) -> None:
    size = sum(file.stat().st_size for file in larger.glob("*.safetensors"))
    torch.cuda.empty_cache()
    before, _ = memory()
    model = from_pretrained(larger, device_map="cuda:0", dtype=torch.float32)
    after, peak = memory()
    assert after - before <= 2 * size + 64 * MIB and peak - before <= 2 * size + 1400 * MIB
    assert model.dtype is torch.float32
    del model


def test_an_error_frees_everything(larger: Path, tmp_path: Path) -> None:
    for file in larger.iterdir():
        (tmp_path / file.name).symlink_to(file)
    broken = sorted(tmp_path.glob("*.safetensors"))[-1]
    content = broken.read_bytes()
    broken.unlink()
    broken.write_bytes(content[: len(content) // 2])
    before, _ = memory()
    with pytest.raises(Exception, match=broken.name):
        from_pretrained(tmp_path, device_map="cuda:0")
    assert memory()[0] - before <= MIB


def test_weights_of_eight_bits(folders: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folders / "llama" / "model.safetensors")
    for name, value in list(tensors.items()):
        if name.startswith("model.layers") and value.ndim == 2:
            tensors[name] = (value / 0.01).to(torch.float8_e4m3fn)
            tensors[name + "_scale_inv"] = torch.full([-(-extent // 16) for extent in value.shape], 0.01)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((folders / "llama" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [16, 16], "dequantize": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    wanted = transformers.FineGrainedFP8Config(weight_block_size=(16, 16), dequantize=True)
    ours = from_pretrained(tmp_path, device_map="cuda:0", quantization_config=wanted)
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path, device_map="cuda:0", quantization_config=wanted)
    assert torch.equal(logits(ours), logits(theirs))


def test_quantised_as_it_is_loaded(folders: Path) -> None:
    quantisation = pytest.importorskip("torchao.quantization")
    wanted = transformers.TorchAoConfig(quantisation.Int8WeightOnlyConfig())
    options = {"quantization_config": wanted, "device_map": "cuda:0", "dtype": torch.bfloat16}
    ours = from_pretrained(folders / "llama", **options)
    theirs = transformers.LlamaForCausalLM.from_pretrained(folders / "llama", **options)
    assert torch.equal(logits(ours), logits(theirs))
