# SPDX-License-Identifier: Apache-2.0
"""Hugging Face models through ours and through transformers: the same module, the same logits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio.compare import files, fit, shapes
from nebulaio.errors import InvalidError, NotFoundError, UnsupportedError
from nebulaio.huggingface import load_pretrained
from support import PACKAGE, PATIENCE, run_python

pytestmark = pytest.mark.torch

ROOM = fit.Room(1 << 40, 1 << 40, None)


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, transformers: Any) -> Path:
    """The tiny model, whose head is tied and stored as a copy."""
    made = tmp_path_factory.mktemp("model") / "tiny"
    files.make(made, fit.plan(shapes.SPECS["tiny"], ROOM), 1)
    return made


def logits(torch: Any, model: Any) -> Any:
    tokens = torch.arange(16).reshape(1, 16) * 7
    with torch.no_grad():
        return model(tokens, use_cache=False).logits


def same(torch: Any, ours: Any, theirs: Any) -> None:
    """Both modules have the same names, values and buffers, and compute the same."""
    for kind in ("named_parameters", "named_buffers"):
        mine, other = dict(getattr(ours, kind)()), dict(getattr(theirs, kind)())
        assert mine.keys() == other.keys()
        for name, value in other.items():
            assert mine[name].dtype is value.dtype, name
            assert mine[name].requires_grad is value.requires_grad, name
            assert torch.equal(mine[name], value), name
    assert not ours.training
    found = logits(torch, ours)
    assert bool(found.isfinite().all()) and float(found.std()) > 0.01
    assert torch.equal(found, logits(torch, theirs))


def rewrite(folder: Path, target: Path, change: Any) -> Path:
    """A copy of a model directory with changed tensors."""
    from safetensors.torch import load_file, save_file

    target.mkdir()
    (target / "config.json").write_text((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: value.clone() for name, value in tensors.items()}, target / "model.safetensors", {"format": "pt"})
    return target


def test_equal_to_from_pretrained(torch: Any, transformers: Any, folder: Path) -> None:
    profile: dict[str, Any] = {}
    ours = load_pretrained(folder, "cpu", profile=profile)
    same(torch, ours, transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16))
    assert ours.lm_head.weight is ours.model.embed_tokens.weight
    assert {"config", "module", "wait", "assign", "weights", "total"} <= profile["seconds"].keys()
    size = shapes.SPECS["tiny"].nbytes()
    assert sum(report["bytes"] for report in profile["reports"]) == size
    report = nebulaio.last_report()
    assert report is not None and report["bytes"] == profile["reports"][0]["bytes"] < size  # the bulk, not the copy


def test_a_sharded_untied_model_with_biases(torch: Any, transformers: Any, tmp_path: Path) -> None:
    spec = shapes.Spec("7b", "small", "Qwen2Config", 3, 64, 192, 1000, 4, 2, 16, 3, qkv_bias=True)
    made = fit.plan(spec, ROOM)
    files.make(tmp_path / "whole", made, 5)
    parts = shapes.shards(spec.tensors(), limit=100_000)
    assert len(parts) > 2
    from safetensors.torch import load_file, save_file

    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    (sharded / "config.json").write_text((tmp_path / "whole" / "config.json").read_text())
    names = {}
    for index, part in enumerate(parts):
        name = shapes.shard_name(index, len(parts))
        save_file({key: tensors[key] for key in part}, sharded / name, {"format": "pt"})
        names.update(dict.fromkeys(part, name))
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    ours = load_pretrained(sharded, "cpu")
    same(torch, ours, transformers.AutoModelForCausalLM.from_pretrained(sharded, torch_dtype=torch.bfloat16))
    assert ours.lm_head.weight is not ours.model.embed_tokens.weight


def test_a_tied_head_may_be_missing_or_alone(torch: Any, folder: Path, tmp_path: Path) -> None:
    whole = logits(torch, load_pretrained(folder, "cpu"))
    for left_out in ("lm_head.weight", "model.embed_tokens.weight"):
        other = rewrite(folder, tmp_path / left_out, lambda tensors, name=left_out: tensors.pop(name))
        model = load_pretrained(other, "cpu")
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert torch.equal(logits(torch, model), whole)


def test_a_head_that_differs_stays_apart(torch: Any, folder: Path, tmp_path: Path) -> None:
    other = rewrite(folder, tmp_path / "apart", lambda tensors: tensors["lm_head.weight"].mul_(2))
    with pytest.warns(RuntimeWarning, match="different values"):
        model = load_pretrained(other, "cpu")
    assert torch.equal(model.lm_head.weight, model.model.embed_tokens.weight * 2)
    assert torch.equal(logits(torch, model), logits(torch, load_pretrained(folder, "cpu")) * 2)


def test_another_dtype(torch: Any, transformers: Any, folder: Path) -> None:
    ours = load_pretrained(folder, "cpu", dtype=torch.float32)
    same(torch, ours, transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32))


def test_what_does_not_match_is_refused(torch: Any, folder: Path, tmp_path: Path) -> None:
    norm = "model.norm.weight"
    missing = rewrite(folder, tmp_path / "missing", lambda tensors: tensors.pop(norm))
    with pytest.raises(UnsupportedError, match=f"1 missing .{norm}"):
        load_pretrained(missing, "cpu")
    extra = rewrite(folder, tmp_path / "extra", lambda tensors: tensors.update(more=tensors[norm]))
    with pytest.raises(UnsupportedError, match="1 left over .more"):
        load_pretrained(extra, "cpu")
    shape = rewrite(folder, tmp_path / "shape", lambda tensors: tensors.update({norm: tensors[norm][:-1]}))
    with pytest.raises(InvalidError, match=r"model.norm.weight has shape \[255\], expected \[256\]"):
        load_pretrained(shape, "cpu")
    with pytest.raises(NotFoundError, match="config.json"):
        load_pretrained(tmp_path, "cpu")
    with pytest.raises(NotFoundError, match="no such directory.*hf download"):
        load_pretrained("Qwen/Qwen3-0.6B", "cpu")
    quantised = rewrite(folder, tmp_path / "quantised", lambda tensors: None)
    config = json.loads((quantised / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (quantised / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match="quantised"):
        load_pretrained(quantised, "cpu")


def test_code_beside_the_weights_is_never_run(folder: Path, tmp_path: Path, transformers: Any) -> None:
    """Not even on a yes to transformers' question, which is not asked."""
    for known in (False, True):
        other = rewrite(folder, tmp_path / str(known), lambda tensors: None)
        (other / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nConfig = Model = None\n")
        config = json.loads((other / "config.json").read_text())
        config["auto_map"] = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"}
        config["model_type"] = config["model_type"] if known else "theirs"
        (other / "config.json").write_text(json.dumps(config))
        done = subprocess.run(
            [sys.executable, "-c", TRUSTING, str(other)],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            input="y\ny\ny\n",
            text=True,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert done.stdout.strip() == ("loaded" if known else "UnsupportedError"), done.stdout + done.stderr
        assert not (tmp_path / "ran").exists()


TRUSTING = """
import sys
from nebulaio.errors import UnsupportedError
from nebulaio.huggingface import load_pretrained
try:
    load_pretrained(sys.argv[1], 'cpu')
    print('loaded')
except UnsupportedError as error:
    assert 'never run' in str(error)
    print('UnsupportedError')
"""


def test_a_dtype_is_torchs_and_of_floats(torch: Any, folder: Path, transformers: Any) -> None:
    for dtype in ("float16", "auto", torch.int8, float):
        with pytest.raises(InvalidError, match="torch.bfloat16"):
            load_pretrained(folder, "cpu", dtype=dtype)


def test_a_damaged_file_is_an_error_of_the_caller(folder: Path, tmp_path: Path, transformers: Any) -> None:
    damaged = rewrite(folder, tmp_path / "damaged", lambda tensors: None)
    with open(damaged / "model.safetensors", "r+b") as file:
        file.truncate(5000)
    with pytest.raises(nebulaio.errors.CorruptError):
        load_pretrained(damaged, "cpu")


def test_modules_of_other_threads_keep_their_memory(torch: Any, folder: Path, transformers: Any) -> None:
    """The hook that takes memory from parameters is for the loading thread alone, and goes when it is done."""
    from nebulaio.huggingface import _assembled

    made: list[Any] = []
    with _assembled._without_memory(torch):
        assert torch.nn.Linear(2, 2).weight.is_meta
        other = threading.Thread(target=lambda: made.append(torch.nn.Linear(2, 2)))
        other.start()
        other.join()
    assert not made[0].weight.is_meta
    assert not torch.nn.Linear(2, 2).weight.is_meta


def test_a_first_cold_load_goes_past_the_page_cache(folder: Path, tmp_path: Path, transformers: Any) -> None:
    """Reading the names of tied weights must not look like a load before this one."""
    from nebulaio.compare import cache

    other = rewrite(folder, tmp_path / "cold", lambda tensors: None)
    paths = files.weights_of(other)
    if cache.in_memory(paths[0]) or cache.resident(paths) is None or not cache.make_cold(paths):
        pytest.skip("files cannot be made cold here")
    profile: dict[str, Any] = {}
    load_pretrained(other, "cpu", profile=profile)
    assert all(file["cache"] == "bypass" for report in profile["reports"] for file in report["files"])


def test_training_goes_on_from_it(torch: Any, folder: Path, transformers: Any) -> None:
    model = load_pretrained(folder, "cpu")
    loss = model(torch.arange(8).reshape(1, 8), labels=torch.arange(8).reshape(1, 8)).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_weights_are_a_function_of_the_seed(folder: Path, tmp_path: Path) -> None:
    made = fit.plan(shapes.SPECS["tiny"], ROOM)
    for seed in (1, 2):
        files.make(tmp_path / str(seed), made, seed)
    content = (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "1" / "model.safetensors").read_bytes() == content
    assert (tmp_path / "2" / "model.safetensors").read_bytes() != content


def test_holes_are_zeros_and_take_no_room(torch: Any, tmp_path: Path, transformers: Any) -> None:
    spec = shapes.SPECS["tiny"]
    files.make(tmp_path / "holes", fit.Plan(spec, True, 1), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_pretrained(tmp_path / "holes", "cpu")
    assert bool(model.model.layers[0].mlp.up_proj.weight.any())
    assert not bool(model.model.layers[3].mlp.up_proj.weight.any())
    assert float(logits(torch, model).std()) > 0.01


TOOL = "import sys; from nebulaio.compare.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("spawn", [False, True])
def test_the_whole_tool(transformers: Any, tmp_path: Path, spawn: bool) -> None:
    out = tmp_path / "out.json"
    rounds = 1 if spawn else 2
    arguments = ["--model", "tiny", "--device", "cpu", "--rounds", rounds, "--models", 2, "--processes", 3]
    arguments += ["--spawn"] if spawn else ["--cold"]
    done = run_python(TOOL, *arguments, "--dir", tmp_path / "models", "--json", out, timeout=500)
    shown = done.stdout
    assert done.returncode == 0, shown + done.stderr
    assert "no GPU takes part" in shown and "equal, bit by bit" in shown and "GPU memory" not in shown
    assert "Q1 Can it accelerate loading?" in shown and "no process failed" in shown
    assert not (tmp_path / "models").exists()
    found = json.loads(out.read_text())
    assert found["spawned"] is spawn
    (model,) = found["models"]
    warm = model["states"]["warm"]
    expected = {"nebulaio": 2 * rounds, "transformers": 2 * rounds}
    assert {name: len(samples) for name, samples in warm["samples"].items()} == expected
    assert warm["logits"]["digests"] == 1 and warm["logits"]["against"]["nebulaio and transformers"]["equal"]
    (crowd,) = found["crowds"]
    assert len(crowd["rounds"]) == rounds and crowd["failures"] == []
    assert {one["model"] for one in crowd["rounds"][0]["together"]["processes"]} == {"tiny-4-1", "tiny-4-2"}


BROKEN = """
import sys
from nebulaio.compare import loaders, cli
honest = loaders.LOADERS["nebulaio"]
def broken(folder, device):
    import torch
    model, profile = honest(folder, device)
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    return model, profile
loaders.LOADERS["nebulaio"] = broken
sys.exit(cli.main(sys.argv[1:]))
"""


def test_different_logits_are_a_failure(transformers: Any, tmp_path: Path) -> None:
    arguments = ["--model", "tiny", "--device", "cpu", "--rounds", 1, "--dir", tmp_path / "models"]
    done = run_python(BROKEN, *arguments, timeout=500)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFERENT, by at most" in done.stdout and "PROBLEM: tiny warm: logits differ" in done.stdout
