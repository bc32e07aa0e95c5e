# SPDX-License-Identifier: Apache-2.0
"""The reader behind `from_pretrained`: what it reads for each request, and what it reads ahead."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from nebulaio import _handles
from nebulaio.errors import ClosedError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from nebulaio.huggingface import _ahead, _place, from_pretrained  # noqa: E402
from nebulaio.huggingface._values import StoredTensor  # noqa: E402
from pretrained_models import make  # noqa: E402


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny models, each in a directory of its name."""
    root = tmp_path_factory.mktemp("models")
    for name in ("llama", "mixtral"):
        make(name, root / name)
    return root


def ahead_of(folder: Path, bold: bool = True) -> tuple[_ahead.Ahead, dict[str, StoredTensor]]:
    place = _place.open_place(folder, "", None)
    files, stored = _place.read_headers(place, "model.safetensors", False, "auto")
    order = sorted(stored, key=lambda one: _ahead.natural(one.name))
    ahead = _ahead.Ahead(files, order, bold)
    return ahead, {one.name: StoredTensor(ahead, at, one) for at, one in enumerate(order)}


def test_a_value_is_read_as_it_is_indexed(folders: Path) -> None:
    from safetensors.torch import load_file

    stored = load_file(folders / "llama" / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    whole = stored[name]
    ahead, values = ahead_of(folders / "llama", bold=False)
    value: Any = values[name]
    assert value.get_shape() == list(whole.shape) and value.get_dtype() == "F32" and value.dtype is torch.float32
    assert value.is_floating_point() and value.shape == whole.shape
    for index in (slice(8, 24), (slice(None), slice(4, 20)), (slice(1, 3), slice(2, 30, 3)), 5, (Ellipsis, 7),
                  (slice(3, 3),)):
        assert value[index].shape == whole[index].shape
        assert torch.equal(value[index].to("cpu"), whole[index])
    assert torch.equal(value[..., None].to("cpu"), whole[..., None])
    assert torch.equal(value[[3, 1]].to("cpu"), whole[[3, 1]])
    assert torch.equal(torch.cat([value[0:2], value[4:6]]), torch.cat([whole[0:2], whole[4:6]]))
    assert value.to(torch.float16).dtype is torch.float16 and value.to("meta").is_meta
    assert value.mean() == whole.mean()
    ahead.close()
    with pytest.raises(ClosedError):
        value.to("cpu")


def test_rows_read_only_their_bytes(folders: Path) -> None:
    """A rank asks for rows of every tensor. Those of later layers are read ahead, by the rows of the first one."""
    ahead, values = ahead_of(folders / "llama", bold=False)
    for name, value in values.items():
        rows = value.get_shape()[0] // 2
        part: Any = value[0:rows]
        assert part.to("cpu").shape[0] == rows, name
    ahead.close()
    assert ahead.wanted * 2 == sum(stored.size for stored in ahead._order) and ahead.unused == 0
    assert sum(int(report["bytes"]) for report in ahead._files.reports) == ahead.wanted
    assert ahead.counts["ahead"] == 2 * 9 and ahead.counts["alone"] == 9 + 3


def test_what_is_not_asked_for_is_bounded(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors in front of the first request are not read, and at most a window behind the last one."""
    monkeypatch.setattr(_ahead, "JOB", 4 << 10)
    monkeypatch.setattr(_ahead, "WINDOW", 16 << 10)
    ahead, values = ahead_of(folders / "llama")
    largest = max(stored.size for stored in ahead._order)
    values["model.layers.1.input_layernorm.weight"].to("cpu")
    ahead.close()
    assert ahead.counts["alone"] == 1 and ahead.unused <= (16 << 10) + largest
    assert not any(job.poll() for job in ahead._jobs) and not ahead._flights


def test_a_late_request_is_read_again(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that comes when others are far ahead gets its tensor, and later ones of its kind are read ahead again."""
    monkeypatch.setattr(_ahead, "JOB", 4 << 10)
    monkeypatch.setattr(_ahead, "WINDOW", 16 << 10)
    ahead, values = ahead_of(folders / "llama")
    names = [name for name in values if name.startswith("model.layers.0.")]
    late = "model.layers.0.mlp.gate_proj.weight"
    for name in names:
        if name != late:
            values[name].to("cpu")
    values["model.layers.1.self_attn.v_proj.weight"].to("cpu")
    at = list(values).index(late)
    assert at in ahead._dropped and ahead._guesses[ahead._kinds[at]] is None
    again, plain = values[late].to("cpu"), ahead_of(folders / "llama")[1][late].to("cpu")
    assert torch.equal(again, plain) and ahead._guesses[ahead._kinds[at]] is not None
    ahead.close()
    assert ahead.unused


def test_a_device_without_memory_for_more(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If memory for tensors that are read ahead is refused, they are read when they are asked for."""
    ahead, values = ahead_of(folders / "llama")
    original = ahead._part
    left = [3]

    def scarce(at: int, guess: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise torch.OutOfMemoryError("no memory")
        return original(at, guess)

    monkeypatch.setattr(ahead, "_part", scarce)
    plain = transformers.LlamaForCausalLM.from_pretrained(folders / "llama").state_dict()
    for name, value in values.items():
        assert torch.equal(value.to("cpu"), plain[name])
    ahead.close()
    assert "too little free memory" in ahead.notes[0]


def test_an_error_ends_all_reads(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = _ahead.Ahead.__init__

    def keep(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        made.append(self)

    monkeypatch.setattr(_ahead.Ahead, "__init__", keep)
    monkeypatch.setattr(transformers.LlamaForCausalLM, "tie_weights", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        from_pretrained(folders / "llama")
    (ahead,) = made
    assert ahead._closed and not ahead._flights and not ahead._jobs


def test_reads_that_are_forgotten_write_nowhere(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of running reads is freed after them, also if nobody closes the reader."""
    monkeypatch.setattr(_ahead, "JOB", 4 << 10)
    order: list[str] = []
    drain = _handles.Job._drain
    monkeypatch.setattr(_handles.Job, "_drain", lambda self: (drain(self), order.append("read"))[0])
    ahead, values = ahead_of(folders / "llama")
    next(iter(values.values())).to("cpu")
    waiting = [flight.part.memory for flight in ahead._flights.values()]
    assert waiting
    watched = [weakref.finalize(memory, order.append, "memory") for memory in waiting]
    order.clear()
    del ahead, values, waiting
    gc.collect()
    assert watched and order[0] == "read" and "memory" in order


def test_threads_wait_for_one_job(folders: Path) -> None:
    ahead, values = ahead_of(folders / "mixtral")
    plain = {name: value.to("cpu") for name, value in ahead_of(folders / "mixtral")[1].items()}
    wrong: list[str] = []

    def work(part: int) -> None:
        for name in list(values)[part::4]:
            if not torch.equal(values[name].to("cpu"), plain[name]):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ahead.close()
    assert not wrong


def test_names_are_sorted_as_transformers_does() -> None:
    theirs = pytest.importorskip("transformers.core_model_loading").dot_natural_key
    names = ["lm_head.weight", "a.10.b", "a.9.b", "a.b.c", "a.w12", "a.w2", "a.w", "b.0", "a.2", "a.x1y", "a.10"]
    assert sorted(names, key=_ahead.natural) == sorted(names, key=theirs)
    assert _ahead.natural("a." + "9" * 5000)[1][2] == -1
