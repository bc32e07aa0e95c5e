# SPDX-License-Identifier: Apache-2.0
"""The loader as a node of torchdata. This module imports torchdata."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from ._loader import Loader

_nodes: Any = importlib.import_module("torchdata.nodes")
_KEY = "loader"


class LoaderNode(_nodes.BaseNode):  # type: ignore[misc] # torchdata's types are unknown here
    """A BaseNode that delivers the batches of a loader. A reset without a state begins the next epoch."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._epoch: Iterator[Any] = iter(())

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        if initial_state is not None:
            self._loader.load_state_dict(initial_state[_KEY])
        elif self._loader.state_dict()["position"]:
            self._loader.set_epoch(self._loader.epoch + 1)
        self._epoch = iter(self._loader)

    def next(self) -> Any:
        return next(self._epoch)

    def get_state(self) -> dict[str, Any]:
        return {_KEY: self._loader.state_dict()}


def node(loader: Loader) -> LoaderNode:
    """Return the node of a loader."""
    return LoaderNode(loader)
