# SPDX-License-Identifier: Apache-2.0
"""Programs of torch give the same with deferred tensors as with real ones, or say that they cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import UnsupportedError

torch = pytest.importorskip("torch")
from nebulaio._deferred_plan import LoadPlan  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

pytestmark = pytest.mark.torch

Program = Callable[[Any], Any]


def stored() -> dict[str, Any]:
    values = torch.arange(24.0).reshape(4, 6)
    return {"w": values, "v": values + 100}


def filled(source: Any) -> Any:
    """Return a new tensor into which a deferred one was copied."""
    target = torch.zeros(source.shape)
    target.copy_(source)
    return target


def wrapped(given: Any) -> tuple[Any, Any]:
    """Return a wrapper of two tensors, and the first of them, into which a deferred tensor was copied."""
    inner = torch.zeros(4, 6)
    both = TwoTensor(inner, torch.zeros(4, 6))
    inner.copy_(given["w"])
    return both, inner


def filled_wrapper(given: Any) -> Any:
    both, inner = wrapped(given)
    both.fill_(9.0)
    return inner + 0


def gathered(given: Any) -> Any:
    targets = [filled(given["w"])]
    torch.distributed.all_gather(targets, torch.ones(4, 6))
    return targets[0]


def scattered(given: Any) -> Any:
    target = torch.zeros(4, 6)
    torch.distributed.scatter(target, [filled(given["w"])], 0)
    return target


def scattered_deferred(given: Any) -> Any:
    target = torch.zeros(4, 6)
    torch.distributed.scatter(target, [given["w"]], 0)
    return target


PROGRAMS: dict[str, Program] = {
    # A tensor is filled by a recorded copy and then expanded: several elements of the view are at one address.
    "expand": lambda given: filled(given["w"][0]).expand(4, 6).contiguous(),
    "scale": lambda given: filled(given["w"][:, :1]).expand(4, 6) * torch.ones(4, 6),
    "one": lambda given: filled(given["w"][0, :1]).expand(4).clone(),
    "repeat_interleave": lambda given: filled(given["w"][:, 0]).repeat_interleave(2),
    "heads": lambda given: filled(given["w"][:2, :4])[:, None, :].expand(2, 3, 4).reshape(6, 4),
    # Arguments in lists, and in lists of lists.
    "cat": lambda given: torch.cat([filled(given["w"]), given["v"], torch.ones(1, 6)]),
    "foreach": lambda given: torch._foreach_add([filled(given["w"]), given["v"]], 1.0)[1],
    "index": lambda given: filled(given["w"])[:, torch.tensor([1, 2])].clone(),
    "all_gather": gathered,
    "scatter": scattered,
    "scatter a deferred tensor": scattered_deferred,
    # A wrapper runs operations on the tensors inside it, and the plan does not see these operations.
    "wrapper": lambda given: (wrapped(given)[0] + 1).a,
    "fill a wrapper": filled_wrapper,
    "wrapper in a list": lambda given: torch.cat([wrapped(given)[0]] * 2).a,
    "repr": lambda given: torch.tensor([float(x) for x in re.findall(r"[0-9.]+", repr(filled(given["w"])))]),
    "neg_view": lambda given: filled(torch._neg_view(given["w"])),
}


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A group of one process, for collective operations."""
    place = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{place}")
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    """A plan, and the deferred tensors of a file."""
    save_file(stored(), tmp_path / "w.safetensors")
    made = LoadPlan("cpu", cache="keep")
    return made, dict(made.tensors([str(tmp_path / "w.safetensors")]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_they_give_with_real_tensors(plan: Any, name: str) -> None:
    made, lazy = plan
    want = PROGRAMS[name](stored())
    with made.recording():
        got = PROGRAMS[name](lazy)
    assert got.shape == want.shape and torch.equal(got, want)


def test_a_copy_to_an_expanded_tensor_is_refused_as_by_torch(plan: Any) -> None:
    made, lazy = plan
    with made.recording(), pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(6).expand(4, 6).copy_(lazy["w"])


@pytest.mark.parametrize(
    "change", [lambda t: t.t_(), lambda t: t.unsqueeze_(0), lambda t: t.resize_(2, 3), lambda t: t.transpose_(0, 1)]
)
def test_a_shape_that_changes_in_place_is_refused(plan: Any, change: Program) -> None:
    made, lazy = plan
    with made.recording():
        with pytest.raises(UnsupportedError, match="changes the shape of 'w' in place.*defer=false"):
            change(lazy["w"])
        assert torch.equal(lazy["v"] + 0, stored()["v"])
