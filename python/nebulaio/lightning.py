# SPDX-License-Identifier: Apache-2.0
"""`CheckpointIO` for Lightning: the Trainer's checkpoints go through the engine, to files and objects.

    trainer = lightning.Trainer(plugins=[nebulaio.lightning.CheckpointIO()])
    trainer.fit(model)
    trainer.save_checkpoint("s3://bucket/run/last.ckpt")
    trainer.fit(model, ckpt_path="s3://bucket/run/last.ckpt")

The files are those of torch.save, so Lightning reads them without NebulaIO too. `import nebulaio.lightning` imports
nothing. The first use of `CheckpointIO` imports lightning or pytorch_lightning, whichever the process uses.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from importlib import util
from typing import TYPE_CHECKING, Any

from . import _load
from .errors import InvalidError, NotFoundError

__all__ = ["CheckpointIO"]

# The packages that have a Trainer, and the module with the base class that each of them expects.
_PACKAGES = {"lightning": "lightning.fabric.plugins", "pytorch_lightning": "lightning_fabric.plugins"}


class _Files:
    """Saves, loads and removes checkpoint files. `CheckpointIO` adds Lightning's base class."""

    def __init__(self, *, checksum: bool = True, verify: bool = False, client: Any = None) -> None:
        """Set how checkpoints are moved.

        Args:
            checksum: Whether to write checksums beside each checkpoint, which `verify` needs.
            verify: Whether loads compare the content with its checksums.
            client: GPUDirectClient for s3:// paths. Default: the settings of the environment.
        """
        self._checksum = checksum
        self._verify = verify
        self._client = client

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Save a checkpoint to a file or an object. On return it is durable. Missing directories are made."""
        from .torch import save

        if storage_options is not None:
            raise TypeError(
                f"save {os.fsdecode(path)}: storage_options={storage_options!r} are not supported "
                "(fix: pass settings to CheckpointIO)"
            )
        if not _load.is_url(path):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        save(checkpoint, path, checksum=self._checksum, client=self._server(path))

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return a checkpoint of a file or an object.

        Args:
            path: Path of the file, or s3://bucket/key.
            map_location: Where tensors go, as torch.load takes it. Default: the CPU, as Lightning does.
            weights_only: Whether to allow only tensors and plain data. None means True, as for torch.load.
        """
        from .torch import load

        place = "cpu" if map_location is None else map_location
        found: dict[str, Any] = load(
            path, place, weights_only=weights_only is not False, verify=self._verify, client=self._server(path)
        )
        return found

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint with its checksums. A missing one is no error."""
        if _load.is_url(path):
            self._remove_object(os.fsdecode(path))
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            name = os.fsdecode(path)
            for one in (name, f"{name}.crc64nvme"):
                try:
                    os.unlink(one)
                except FileNotFoundError:
                    continue

    def teardown(self) -> None:
        """Do nothing: every save is durable when it returns."""

    def _server(self, path: str | os.PathLike[str]) -> Any:
        return self._client if _load.is_url(path) else None

    def _remove_object(self, url: str) -> None:
        from .gpudirect import GPUDirectClient

        endpoint, bucket, key = _load.place(url, "remove")
        if not key:
            raise InvalidError(f"remove {url!r}: the URL names no object (expected s3://bucket/key)")
        client = GPUDirectClient(endpoint) if self._client is None else self._client
        try:
            for one in (key, f"{key}.crc64nvme"):
                try:
                    client.delete(bucket, one)
                except NotFoundError:
                    continue
        finally:
            if self._client is None:
                client.close()


if TYPE_CHECKING:

    class CheckpointIO(_Files):
        """See the built class below."""


def _build() -> type[Any]:
    """Return the class, derived from the base classes of the Lightning packages that this process uses."""
    used = [package for package in _PACKAGES if package in sys.modules]
    wanted = used or [package for package in _PACKAGES if util.find_spec(package) is not None]
    if not wanted:
        raise ImportError(
            "use nebulaio.lightning: there is no lightning or pytorch_lightning (fix: pip install lightning)")
    bases = tuple(dict.fromkeys(importlib.import_module(_PACKAGES[package]).CheckpointIO for package in wanted))
    text = "Saves, loads and removes the checkpoints of a Lightning Trainer through the engine.\n\n" + str(
        _Files.__init__.__doc__)
    return type("CheckpointIO", (_Files, *bases), {"__module__": __name__, "__doc__": text})


def __getattr__(name: str) -> Any:
    """Build `CheckpointIO` at its first use."""
    if name != "CheckpointIO":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = _build()
    return value


def __dir__() -> list[str]:
    """Return every public name, imported or not."""
    return sorted({*globals(), *__all__})
