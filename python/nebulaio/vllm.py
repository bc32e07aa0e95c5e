# SPDX-License-Identifier: Apache-2.0
"""Loads the weights of vLLM models: the load formats `nebulaio` and `nebulaio_sharded`.

vLLM finds `register` by the entry point group vllm.general_plugins. Then `vllm serve MODEL --load-format nebulaio`
loads MODEL with this package. docs/serving.md describes the settings and the report.
"""

from __future__ import annotations

from typing import Any

__all__ = ["register"]


def register() -> None:
    """Register the load formats `nebulaio` and `nebulaio_sharded` with vLLM. A second call does nothing.

    vLLM calls this function in each of its processes.
    """
    import importlib

    registry: Any = importlib.import_module("vllm.model_executor.model_loader")
    loaders: Any = importlib.import_module("nebulaio._vllm_loaders")
    for name, loader in (("nebulaio", loaders.NebulaioLoader), ("nebulaio_sharded", loaders.NebulaioShardedLoader)):
        if registry._LOAD_FORMAT_TO_MODEL_LOADER.get(name) is not loader:
            registry.register_model_loader(name)(loader)
