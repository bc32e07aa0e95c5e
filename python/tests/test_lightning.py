# SPDX-License-Identifier: Apache-2.0
"""CheckpointIO with a real Lightning Trainer on the CPU."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import serving
from nebulaio.errors import CorruptError, InvalidError, NotFoundError
from support import run_python
from torch_states import assert_equal

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def lightning() -> Any:
    return pytest.importorskip("lightning", reason="lightning is not installed; make test-torch installs it")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, server: serving.Server) -> None:
    monkeypatch.setenv("NEBULAIO_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", serving.ACCESS)
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", serving.SECRET)


def plugin(**options: Any) -> Any:
    pytest.importorskip("lightning", reason="lightning is not installed; make test-torch installs it")
    from nebulaio.lightning import CheckpointIO

    return CheckpointIO(**options)


def make_model(torch: Any, lightning: Any) -> Any:
    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, width: int = 4) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(width, 2)

        def training_step(self, batch: Any, number: int) -> Any:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.1)

        def train_dataloader(self) -> Any:
            data = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(8, 4))
            return torch.utils.data.DataLoader(data, batch_size=2)

    torch.manual_seed(0)
    return Model()


def make_trainer(lightning: Any, folder: Path, epochs: int, **options: Any) -> Any:
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", default_root_dir=folder, logger=False, enable_progress_bar=False,
        enable_model_summary=False, **options,
    )


def test_a_trainer_saves_rotates_and_resumes(torch: Any, lightning: Any, tmp_path: Path) -> None:
    def kept(folder: Path) -> Any:
        return lightning.pytorch.callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=1, monitor="epoch",
                                                           mode="max", save_last=True)

    class Epoch(lightning.pytorch.callbacks.Callback):  # type: ignore[misc]
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            module.log("epoch", float(trainer.current_epoch))

    straight = make_model(torch, lightning)
    make_trainer(lightning, tmp_path / "none", 4, enable_checkpointing=False).fit(straight)

    model = make_model(torch, lightning)
    trainer = make_trainer(lightning, tmp_path, 2, plugins=[plugin()], callbacks=[Epoch(), kept(tmp_path / "run")])
    trainer.fit(model)
    assert sorted(os.listdir(tmp_path / "run")) == ["epoch=1.ckpt", "epoch=1.ckpt.crc64nvme", "last.ckpt",
                                                    "last.ckpt.crc64nvme"]
    found = torch.load(tmp_path / "run" / "last.ckpt")  # stock torch reads it
    assert_equal(torch, found["state_dict"], model.state_dict())
    assert found["hyper_parameters"] == {"width": 4}

    again = make_model(torch, lightning)
    trainer = make_trainer(lightning, tmp_path, 4, plugins=[plugin(verify=True)],
                           callbacks=[Epoch(), kept(tmp_path / "more")])
    trainer.fit(again, ckpt_path=tmp_path / "run" / "last.ckpt")
    assert trainer.global_step == 16
    assert_equal(torch, again.state_dict(), straight.state_dict())  # as if it had never stopped


def test_checkpoints_in_a_bucket(torch: Any, lightning: Any, tmp_path: Path, server: serving.Server,
                                 keys: None) -> None:
    straight = make_model(torch, lightning)
    make_trainer(lightning, tmp_path, 3, enable_checkpointing=False).fit(straight)
    model = make_model(torch, lightning)
    trainer = make_trainer(lightning, tmp_path, 1, plugins=[plugin()], enable_checkpointing=False)
    trainer.fit(model)
    trainer.save_checkpoint("s3://bucket/run/last.ckpt")
    again = make_model(torch, lightning)
    trainer = make_trainer(lightning, tmp_path, 3, plugins=[plugin()], enable_checkpointing=False)
    trainer.fit(again, ckpt_path="s3://bucket/run/last.ckpt")
    assert_equal(torch, again.state_dict(), straight.state_dict())
    plugin().remove_checkpoint("s3://bucket/run/last.ckpt")
    plugin().remove_checkpoint("s3://bucket/run/last.ckpt")
    assert server.request("GET", "/bucket/run/last.ckpt")[0] == server.request("GET",
                                                                               "/bucket/run/last.ckpt.crc64nvme")[
                                                                                   0] == 404
    with pytest.raises(InvalidError, match="names no object"):
        plugin().remove_checkpoint("s3://bucket/")


def test_files_and_folders_are_removed(torch: Any, tmp_path: Path) -> None:
    one = plugin()
    one.save_checkpoint({"w": torch.ones(3)}, tmp_path / "new" / "folder" / "a.ckpt")
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["a.ckpt", "a.ckpt.crc64nvme"]
    assert_equal(torch, one.load_checkpoint(tmp_path / "new" / "folder" / "a.ckpt"), {"w": torch.ones(3)})
    one.remove_checkpoint(tmp_path / "new" / "folder" / "a.ckpt")
    one.remove_checkpoint(tmp_path / "new" / "folder" / "a.ckpt")
    assert os.listdir(tmp_path / "new" / "folder") == []
    one.remove_checkpoint(tmp_path / "new")
    assert os.listdir(tmp_path) == []


def test_errors_and_settings(torch: Any, tmp_path: Path) -> None:
    one = plugin(verify=True)
    with pytest.raises(NotFoundError, match="a.ckpt"):
        one.load_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(TypeError, match="storage_options"):
        one.save_checkpoint({}, tmp_path / "a.ckpt", storage_options={"x": 1})
    one.save_checkpoint({"w": torch.rand(1000)}, tmp_path / "a.ckpt")
    content = bytearray((tmp_path / "a.ckpt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "a.ckpt").write_bytes(content)
    with pytest.raises(CorruptError, match="a.ckpt"):
        one.load_checkpoint(tmp_path / "a.ckpt")
    plugin(checksum=False).save_checkpoint({"w": torch.rand(3)}, tmp_path / "b.ckpt")
    assert not (tmp_path / "b.ckpt.crc64nvme").exists()
    assert isinstance(pickle.loads(pickle.dumps(one)), type(one))


def test_either_package_takes_the_plugin() -> None:
    code = """
import sys, nebulaio.lightning
assert not any("lightning" in name and not name.startswith("nebulaio") for name in sys.modules)
package = __import__(sys.argv[1])
trainer = package.Trainer(plugins=[nebulaio.lightning.CheckpointIO()], accelerator="cpu", logger=False)
assert type(trainer.strategy.checkpoint_io) is nebulaio.lightning.CheckpointIO
assert "CheckpointIO" in dir(nebulaio.lightning)
"""
    for package in ("lightning", "pytorch_lightning"):
        pytest.importorskip(package, reason=f"{package} is not installed; make test-torch installs it")
        done = run_python(code, package)
        assert done.returncode == 0, done.stderr[-3000:]


def test_without_lightning(tmp_path: Path) -> None:
    code = """
import sys
sys.path = [entry for entry in sys.path if "site-packages" not in entry]
import nebulaio.lightning
try:
    nebulaio.lightning.CheckpointIO
except ImportError as problem:
    print(problem)
"""
    assert "pip install lightning" in run_python(code).stdout
