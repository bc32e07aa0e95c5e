# SPDX-License-Identifier: Apache-2.0
"""Deferred tensors: views, copies, the order of reads and writes, and how many bytes are read."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import CorruptError, NotFoundError

torch = pytest.importorskip("torch")
from deferred_chains import chain, target  # noqa: E402
from nebulaio._deferred import Deferred  # noqa: E402
from nebulaio._deferred_plan import LoadPlan  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

pytestmark = pytest.mark.torch

DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.float8_e4m3fn, torch.bool]


def values(shape: tuple[int, ...], dtype: Any = torch.float32, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    """A function that writes tensors to a file, and returns a plan and the deferred tensors."""
    count = iter(range(1000))

    def write(tensors: dict[str, Any], **options: Any) -> tuple[LoadPlan, dict[str, Any]]:
        path = tmp_path / f"{next(count)}.safetensors"
        save_file(tensors, path)
        plan = LoadPlan("cpu", cache="keep", **options)
        return plan, dict(plan.tensors([str(path)]))

    return write


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_views_equal_those_of_real_tensors(stored: Any, seed: int) -> None:
    rng = random.Random(seed)
    tensors = {}
    for number in range(10):
        shape = tuple(rng.choice([1, 2, 3, 4, 6, 8]) for _ in range(rng.randint(0, 4)))
        tensors[str(number)] = values(shape, rng.choice(DTYPES), seed + number)
    plan, lazy = stored(tensors)
    wanted = []
    with plan.recording():
        for name, real in tensors.items():
            steps = chain(rng, real, rng.randint(0, 6))
            deferred = lazy[name]
            for one in steps:
                real, deferred = one(real), one(deferred)
                assert deferred.shape == real.shape
                if isinstance(deferred, Deferred) and 0 not in real.shape:
                    assert deferred.stride() == real.stride() or deferred.inner is not deferred.outer
            dtype = real.dtype if rng.random() < 0.7 else torch.float32
            part, base = target(rng, real, dtype)
            copy = base.clone()
            part.copy_(deferred)
            wanted.append((part, real.to(dtype), base, copy))
    for part, real, base, copy in wanted:
        assert torch.equal(part.double(), real.double())
        outside = torch.ones_like(base, dtype=torch.bool)
        torch.as_strided(outside, part.shape, part.stride(), part.storage_offset()).fill_(False)
        assert torch.equal(base.double()[outside], copy.double()[outside])


@pytest.mark.parametrize("seed", range(20))
def test_values_of_chains_equal_those_of_real_tensors(stored: Any, seed: int) -> None:
    rng = random.Random(1000 + seed)
    real = values((4, 6, 8), rng.choice([torch.float32, torch.bfloat16]), seed)
    _, lazy = stored({"w": real})
    deferred = lazy["w"]
    for one in chain(rng, real, 5):
        real, deferred = one(real), one(deferred)
    assert torch.equal(deferred.float() * 2 + 1, real.float() * 2 + 1)
    assert deferred.tolist() == real.tolist()


def test_only_the_needed_bytes_are_read(stored: Any) -> None:
    real = values((64, 16384))
    plan, lazy = stored({"w": real})
    rows, columns = torch.zeros(16, 16384), torch.zeros(64, 4096)
    with plan.recording():
        rows.copy_(lazy["w"].narrow(0, 16, 16))
        columns.copy_(lazy["w"].narrow(1, 4096, 4096))
    assert torch.equal(rows, real[16:32]) and torch.equal(columns, real[:, 4096:8192])
    report = plan.report()
    assert report["bytes"] == report["read_bytes"] == rows.nbytes + columns.nbytes
    assert report["jobs"] == 1 and report["eager"]["reads"] == 0 and report["direct"]["copies"] == 2


def test_nothing_is_read_for_tensors_that_nobody_copies(stored: Any) -> None:
    plan, lazy = stored({"w": values((8, 8))})
    with plan.recording():
        assert lazy["w"].t()[2:].contiguous().shape == (6, 8)
        torch.empty(8, 8, device="meta").copy_(lazy["w"])
    assert plan.report()["jobs"] == 0


def test_an_operation_on_a_recorded_target_sees_its_values(stored: Any) -> None:
    real = values((8, 8))
    plan, lazy = stored({"w": real, "v": values((4,))})
    param, other = torch.nn.Parameter(torch.zeros(8, 8), requires_grad=False), torch.zeros(4)
    with plan.recording():
        param.data.copy_(lazy["w"])
        other.copy_(lazy["v"])
        param.data.copy_(-torch.exp(param.float()))  # as vLLM's composed_weight_loader does
        assert plan.report()["flushes"] == {"aten.exp.default": 1}
    assert torch.equal(param, -torch.exp(real))
    assert torch.equal(other, values((4,)))


@pytest.mark.parametrize("look", ["numpy", "tolist", "data_ptr", "untyped_storage"])
def test_memory_that_is_taken_without_an_operation_is_filled_first(stored: Any, look: str) -> None:
    real = values((8,))
    plan, lazy = stored({"w": real})
    param = torch.zeros(8)
    with plan.recording():
        param.copy_(lazy["w"])
        getattr(param, look)()
        assert plan.report()["flushes"] == {look: 1}


def test_a_write_beside_a_recorded_copy_flushes_nothing(stored: Any) -> None:
    real = values((6, 8))
    plan, lazy = stored({"w": real})
    param = torch.ones(8, 8)
    with plan.recording():
        param[:6].copy_(lazy["w"])
        param[6:].fill_(0)  # the padding of vLLM's embeddings
        assert plan.report()["flushes"] == {}
    assert torch.equal(param[:6], real) and not param[6:].any()


def test_the_later_of_two_copies_wins(stored: Any) -> None:
    one, two = values((8, 8), seed=1), values((8, 8), seed=2)
    plan, lazy = stored({"one": one, "two": two})
    same, partly = torch.zeros(8, 8), torch.zeros(8, 8)
    with plan.recording():
        same.copy_(lazy["one"])
        same.copy_(lazy["two"])
        partly.copy_(lazy["one"])
        partly[2:4].copy_(lazy["two"][:2])
    assert torch.equal(same, two)
    assert torch.equal(partly[2:4], two[:2]) and torch.equal(partly[4:], one[4:]) and torch.equal(partly[:2], one[:2])
    assert plan.report()["recorded"] == {"copies": 4, "replaced": 1} and plan.report()["flushes"]["overlap"] == 1


def test_a_write_to_a_deferred_tensor_reaches_all_its_views(stored: Any) -> None:
    real = values((4, 4))
    _, lazy = stored({"w": real})
    whole, row, clone = lazy["w"], lazy["w"][1], lazy["w"].clone()
    assert whole.mul_(2) is whole
    row.add_(1)
    expected = real * 2
    expected[1] += 1
    assert torch.equal(whole + 0, expected) and torch.equal(row + 0, expected[1]) and torch.equal(clone + 0, real)
    clone.view(-1)[3] = 50
    assert clone[0, 3].item() == 50 and whole[0, 3].item() != 50


def test_arithmetic_and_items_are_eager_and_counted(stored: Any) -> None:
    plan, lazy = stored({"s": torch.tensor(2.5), "w": values((4, 4))})
    with plan.recording():
        assert lazy["s"].item() == 2.5
        assert torch.equal(lazy["w"][:2] * 2, values((4, 4))[:2] * 2)
    eager = plan.report()["eager"]
    assert eager == {"reads": 2, "bytes": 4 + 32, "by": {"aten._local_scalar_dense.default": 1, "aten.mul.Tensor": 1}}


def test_other_dtypes_and_transposed_copies_go_through_small_buffers(stored: Any,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nebulaio._deferred_copies._SLAB", 4096)
    monkeypatch.setattr("nebulaio._deferred_copies.BUFFER", 16384)
    real = values((128, 256))
    plan, lazy = stored({"w": real})
    half, turned = torch.zeros(128, 256, dtype=torch.bfloat16), torch.zeros(256, 128)
    with plan.recording():
        half.copy_(lazy["w"])
        turned.copy_(lazy["w"].to("cpu").t().contiguous())
    assert torch.equal(half, real.bfloat16()) and torch.equal(turned, real.t())
    report = plan.report()
    assert report["buffered"] == {"copies": 2, "bytes": 2 * real.nbytes} and report["eager"]["reads"] == 0
    assert report["jobs"] >= 2 * real.nbytes // 16384


def test_assignments_take_deferred_values(stored: Any) -> None:
    real = values((4,))
    plan, lazy = stored({"w": real, "s": torch.tensor(3.0)})
    scales, param = torch.zeros(3, 2), torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    with plan.recording():
        scales[1][0] = lazy["s"]
        scales[2] = lazy["s"].reshape(())
        param.data = lazy["w"]
    assert scales.tolist() == [[0, 0], [3, 0], [3, 3]]
    assert torch.equal(param.data, real) and not isinstance(param.data, Deferred)


def test_other_threads_copy_at_once(stored: Any) -> None:
    real = values((8, 8))
    plan, lazy = stored({"w": real})
    param = torch.zeros(8, 8)
    with plan.recording():
        thread = threading.Thread(target=lambda: param.copy_(lazy["w"].t()))
        thread.start()
        thread.join()
        assert torch.equal(param, real.t())


def test_an_error_forgets_recorded_copies(stored: Any) -> None:
    plan, lazy = stored({"w": values((8,))})
    param = torch.zeros(8)
    with pytest.raises(RuntimeError, match="on purpose"), plan.recording():
        param.copy_(lazy["w"])
        raise RuntimeError("on purpose")
    assert not param.any() and plan.report()["jobs"] == 0
    param.copy_(lazy["w"])  # outside of the block, each copy is read at once
    assert torch.equal(param, values((8,)))


def test_wrong_shapes_raise_what_torch_raises(stored: Any) -> None:
    plan, lazy = stored({"w": values((8, 4))})
    with plan.recording():
        with pytest.raises(RuntimeError):
            torch.zeros(4, 4).copy_(lazy["w"])
        with pytest.raises(RuntimeError):
            lazy["w"].narrow(0, 6, 4)
        with pytest.raises(RuntimeError):
            lazy["w"].t().view(-1)


def test_damaged_files_and_changed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"w": values((64,))}, path)
    content = path.read_bytes()
    for cut in (4, 20, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(CorruptError, match="a.safetensors"):
            LoadPlan("cpu").tensors([str(path)])
    path.write_bytes(content)
    plan = LoadPlan("cpu")
    lazy = dict(plan.tensors([str(path)]))
    with pytest.raises(CorruptError, match="changed during the load"), plan.recording():
        torch.zeros(64).copy_(lazy["w"])
        (tmp_path / "b").write_bytes(content)
        (tmp_path / "b").rename(path)
    with pytest.raises(NotFoundError, match="no such file"):
        LoadPlan("cpu").tensors([str(tmp_path / "none.safetensors")])
