# SPDX-License-Identifier: Apache-2.0
"""nebulaio.patch against the real packages: what is swapped, what it reads, and that all of it is put back."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import nebulaio
import pytest
from nebulaio import _patch, errors
from nebulaio.safetensors import safe_open
from support import in_threads, python, write

pytestmark = pytest.mark.torch


def held() -> dict[str, int]:
    """Every name of every module but ours whose value is a reader, with the identity of its value."""
    found = {}
    for where, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and not where.startswith("nebulaio"):
            for name, value in list(vars(module).items()):
                if isinstance(value, (type, FunctionType)) and value.__name__ in ("safe_open", "load_file"):
                    found[f"{where}.{name}"] = id(value)
    return found


@pytest.fixture(autouse=True)
def all_is_put_back() -> Any:
    """Each test ends with the names that it began with; modules that it imported have the originals too."""
    import safetensors.torch

    before, theirs = held(), {id(safetensors.safe_open), id(safetensors.torch.load_file)}
    yield
    after = held()
    assert _patch._state.patches == [] and _patch._state.pairs == []
    assert {name: after.get(name) for name in before} == before
    assert all(value in theirs for name, value in after.items() if name not in before
               and name.startswith(_patch.PACKAGES) and "numpy" not in name)


@pytest.fixture
def reports() -> list[dict[str, Any]]:
    return []


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A tiny model of transformers and its folder."""
    transformers = pytest.importorskip("transformers")

    folder = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=200,
        dtype="float32"
    )
    model = transformers.LlamaModel(config)
    model.save_pretrained(folder)
    return folder, model


def bytes_of(model: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


def equal(state: dict[str, Any], model: Any) -> bool:
    import torch

    wanted = model.state_dict()
    return state.keys() == wanted.keys() and all(torch.equal(state[name], tensor) for name, tensor in wanted.items())


def read(reports: list[dict[str, Any]]) -> int:
    """The bytes of the tensors that our engine, or our page-cache reads, have delivered."""
    assert all(report["routes"] or not report["bytes"] for report in reports)
    return sum(report["wanted_bytes"] for report in reports)


def test_transformers(llama: tuple[Path, Any], reports: list[dict[str, Any]]) -> None:
    import transformers

    folder, model = llama
    with nebulaio.patch(report=reports.append) as patch:
        assert {"safetensors.safe_open", "safetensors.torch.load_file",
                "transformers.modeling_utils.safe_open"} <= set(patch.swapped)
        loaded = transformers.AutoModel.from_pretrained(folder)
    assert equal(loaded.state_dict(), model) and read(reports) == bytes_of(model)
    reports.clear()
    assert equal(transformers.AutoModel.from_pretrained(folder).state_dict(), model) and reports == []


def test_accelerate(llama: tuple[Path, Any], reports: list[dict[str, Any]]) -> None:
    accelerate = pytest.importorskip("accelerate")
    folder, model = llama
    with nebulaio.patch(report=reports.append) as patch:
        assert {"accelerate.utils.modeling.safe_open", "accelerate.utils.modeling.safe_load_file"} <= set(patch.swapped)
        for places in (None, {"": "cpu"}):
            with accelerate.init_empty_weights():
                empty = type(model)(model.config)
            if places is None:
                empty.to_empty(device="cpu")
            accelerate.load_checkpoint_in_model(empty, str(folder / "model.safetensors"), device_map=places)
            assert {name: tensor.device.type for name, tensor in empty.state_dict().items()} == dict.fromkeys(
                model.state_dict(), "cpu")
            assert equal(empty.state_dict(), model) and read(reports) == bytes_of(model)
            reports.clear()


def test_diffusers(tmp_path: Path, reports: list[dict[str, Any]]) -> None:
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.UNet2DModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    model.save_pretrained(tmp_path)
    with nebulaio.patch(report=reports.append):
        loaded = diffusers.UNet2DModel.from_pretrained(tmp_path)
        assert equal(loaded.state_dict(), model) and read(reports) == bytes_of(model)
        # Its loader of adapters catches the error class of safetensors.
        import safetensors

        (tmp_path / "bad.safetensors").write_bytes(b"not a model")
        with pytest.raises((OSError, safetensors.SafetensorError)):
            safetensors.torch.load_file(tmp_path / "bad.safetensors")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_checkpoint_reader_of_torch(llama: tuple[Path, Any], reports: list[dict[str, Any]]) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    folder, model = llama
    state = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    with nebulaio.patch(report=reports.append):
        dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
    assert equal(state, model) and read(reports) == bytes_of(model)


def test_safetensors_itself(llama: tuple[Path, Any], reports: list[dict[str, Any]]) -> None:
    import safetensors.numpy
    import safetensors.torch

    folder, model = llama
    path = folder / "model.safetensors"
    kept = safetensors.torch.load_file  # a reference that no module holds reads by its module's safe_open
    with nebulaio.patch(report=reports.append) as patch:
        for load in (safetensors.torch.load_file, kept):
            assert equal(load(path), model) and read(reports) == bytes_of(model)
            reports.clear()
        assert {name: array.shape for name, array in safetensors.numpy.load_file(path).items()} == {
            name: tuple(tensor.shape) for name, tensor in model.state_dict().items()
        }
        assert read(reports) == bytes_of(model)
        reports.clear()
        other = type(model)(model.config)
        assert safetensors.torch.load_model(other, path) == (set(), []) and equal(other.state_dict(), model)
        assert read(reports) == bytes_of(model)
        reports.clear()
        with safetensors.safe_open(path, "pt") as file:
            assert isinstance(file, safe_open)
            name = file.keys()[0]
            file.get_slice(name)[:1]
            file.get_slice(name)[0:0]
            assert len(reports) == 1
            reports.clear()
            with file.prefetch() as loader:
                assert equal(dict(loader), model)
            assert [report["wanted_bytes"] for report in reports] == [bytes_of(model)] and loader.report == reports[0]
        assert "safetensors.numpy.load_file" in patch.swapped and repr(patch).startswith("<nebulaio.patch, ")
    assert patch.swapped == [] and repr(patch) == "<nebulaio.patch, undone>"
    assert len(file.prefetch.__doc__ or "") > 0


def test_errors_are_of_both_packages(tmp_path: Path) -> None:
    import safetensors
    import safetensors.torch

    path = write(tmp_path / "t.safetensors", {"a": ("U8", [2], b"ab")})
    with nebulaio.patch():
        for call, kind in (
            (lambda: safetensors.safe_open(path, "pt").get_tensor("nope"), errors.NotFoundError),
            (lambda: safetensors.safe_open(path, "pt").get_slice("nope"), errors.NotFoundError),
            (lambda: safetensors.safe_open(path, "pt").get_slice("a")[7], errors.OutOfRangeError),
            (lambda: safetensors.safe_open(path, "pt").prefetch({"nope": None}), errors.NotFoundError),
            (lambda: safetensors.safe_open(path, "pt").prefetch().take("nope"), errors.NotFoundError),
            (lambda: safetensors.safe_open(__file__, "pt"), errors.CorruptError),
            (lambda: safetensors.torch.load_file(tmp_path / "none"), FileNotFoundError),
        ):
            with pytest.raises(safetensors.SafetensorError) as told:
                call()
            assert isinstance(told.value, kind) and isinstance(told.value, errors.NebulaioError)
            assert str(told.value) == str(told.value.__cause__)


def test_other_devices_and_frameworks_stay_with_safetensors(tmp_path: Path) -> None:
    import safetensors

    path = write(tmp_path / "t.safetensors", {"a": ("U8", [2], b"ab")})
    theirs = safetensors.safe_open
    with nebulaio.patch():
        assert type(safetensors.safe_open(path, "flax")) is theirs
        assert type(safetensors.safe_open(path, framework="pt", device="mps")) is theirs
        assert isinstance(safetensors.safe_open(path, "numpy", device=None), safe_open)
        with pytest.raises(safetensors.SafetensorError, match="framework nope is invalid"):
            safetensors.safe_open(path, "nope")


def test_headers_that_only_safetensors_accepts(tmp_path: Path) -> None:
    import safetensors

    text = b' {"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    path = tmp_path / "t.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"ab")
    assert safetensors.safe_open(path, "pt").get_tensor("a").tolist() == [97, 98]
    with nebulaio.patch():
        assert safetensors.safe_open(path, "pt").get_tensor("a").tolist() == [97, 98]


def test_headers_that_only_nebulaio_refuses(tmp_path: Path) -> None:
    import safetensors

    path = tmp_path / "t.safetensors"
    one = b'{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'
    for text in (b'{"a":%b,"a":%b}' % (one, one), b'{"a\\u0000":%b}' % one, b'{"a":["U8",[2],[0,2]]}'):
        path.write_bytes(len(text).to_bytes(8, "little") + text + b"ab")
        assert len(safetensors.safe_open(path, "pt").keys()) == 1
        with nebulaio.patch(), pytest.raises(safetensors.SafetensorError) as told:
            safetensors.safe_open(path, "pt")
        assert isinstance(told.value, errors.CorruptError)


def test_modules_that_are_imported_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors

    (tmp_path / "imported_later.py").write_text(
        "from safetensors import safe_open\nfrom safetensors.torch import load_file as read\n")
    (tmp_path / "imported_before.py").write_text("from safetensors import safe_open\n")
    monkeypatch.syspath_prepend(tmp_path)
    theirs, before = safetensors.safe_open, importlib.import_module("imported_before")
    try:
        with nebulaio.patch() as patch:
            later = importlib.import_module("imported_later")
            assert later.safe_open is safetensors.safe_open is not theirs and before.safe_open is theirs
            assert {"imported_later.safe_open", "imported_later.read"} <= set(patch.swapped)
            assert "imported_before.safe_open" not in patch.swapped
            with nebulaio.patch("imported_before") as more:
                assert before.safe_open is safetensors.safe_open and "imported_before.safe_open" in more.swapped
        assert later.safe_open is theirs is before.safe_open and later.read is safetensors.torch.load_file
    finally:
        for name in ("imported_later", "imported_before"):
            sys.modules.pop(name, None)


def test_nested_and_in_any_order() -> None:
    import safetensors

    theirs = safetensors.safe_open
    one, two = nebulaio.patch(), nebulaio.patch()
    ours = safetensors.safe_open
    assert ours is not theirs and one.swapped == two.swapped
    one.undo()
    one.undo()
    assert safetensors.safe_open is ours and one.swapped == [] and two.swapped
    with pytest.raises(KeyError), nebulaio.patch():
        raise KeyError
    assert safetensors.safe_open is ours
    two.undo()
    assert safetensors.safe_open is theirs
    with nebulaio.patch():
        safetensors.safe_open = marker = lambda: None  # somebody else's
    assert safetensors.safe_open is marker
    safetensors.safe_open = theirs


def test_threads() -> None:
    """Names are swapped as long as one thread's patch is on, and are the originals in the end."""
    import safetensors

    theirs, together = safetensors.safe_open, threading.Barrier(4)

    def work(_: int) -> None:
        together.wait()
        for _ in range(3):
            with nebulaio.patch() as patch:
                assert safetensors.safe_open is not theirs and "safetensors.safe_open" in patch.swapped

    in_threads(work, 4)
    assert safetensors.safe_open is theirs


def test_wrong_arguments() -> None:
    for packages, report in (((1,), None), (("",), None), ((), "x")):
        with pytest.raises(errors.InvalidError):
            nebulaio.patch(*packages, report=report)  # type: ignore[arg-type]


def test_an_import_swaps_nothing() -> None:
    out = python("import safetensors; before = safetensors.safe_open; import nebulaio, nebulaio.safetensors; print(safetensors.safe_open is before)")
    assert out.split() == ["True"]
    out = python(
        "import sys; sys.modules['safetensors'] = None; import nebulaio\n"
        "try: nebulaio.patch()\nexcept nebulaio.errors.UnsupportedError as error: print(error)"
    )
    assert "pip install safetensors" in out


def test_an_exception_of_the_report(llama: tuple[Path, Any]) -> None:
    import safetensors.torch

    def refuse(_: dict[str, Any]) -> None:
        raise KeyError("enough")

    with nebulaio.patch(report=refuse), pytest.raises(KeyError, match="enough"):
        safetensors.torch.load_file(llama[0] / "model.safetensors")
